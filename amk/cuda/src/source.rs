//! The generated source: the device VM, the registered bodies and the dispatch of the program's
//! instructions, with shapes as constants.

use super::body::{self, bodies};
use super::code::{self, DeviceCode};
use super::image::declare::Struct;
use super::image::{Image, abi};
use super::lines::{self, own_lines};
use super::options::VmOptions;
use super::params;
use super::plan::Plan;
use super::ring::RingMemory;
use super::set::{BodySet, RecordKind, body_sets, codes, record_kinds, row_structs};
use super::target::GpuTarget;
use core::fmt::Write as _;

/// Returns the maximum number of slots that are full or in flight while a ring runs low, so that
/// its loader is not paced; 0: the pace always applies, or there is none.
///
/// If nothing has landed beyond the slots in flight, the consumers wait for weights or soon will,
/// and catching up matters more than the packets. If a ring holds two phases, they rarely wait, and
/// the pace applies until it is nearly empty. Steps of rows wait for their inputs, not for weights.
fn low_slots(plan: &Plan) -> u32 {
    let (RingMemory { slots, slot_bytes, .. }, in_flight) = (RingMemory::of(plan), plan.schedule.ring.in_flight);
    if plan.rows().is_some() || plan.schedule.ring.pace == 0 {
        return 0;
    }
    let mut bytes: Vec<u64> = plan.phases.iter().map(|phase| phase.kind().weight_bytes(plan)).collect();
    bytes.retain(|&bytes| bytes > 0);
    bytes.sort_unstable();
    // The largest phase of a layer: the few above it, such as the logits, come once a step.
    let most = bytes.get(bytes.len().saturating_sub(1) * 9 / 10).copied().unwrap_or(0);
    let rings = u64::from(plan.schedule.workers) * u64::from(slots * slot_bytes);
    let low = if 2 * most <= rings { in_flight.saturating_sub(1) } else { in_flight };
    if low + 1 < slots { low } else { 0 }
}

/// Returns whether the steps of a plan use all shared memory of a worker: wide steps do, unless
/// generic code may declare some of its own.
pub(super) fn uses_all_memory(plan: &Plan) -> bool {
    plan.is_wide() && plan.sequences.is_empty()
}

/// Renders the source of a plan for a target.
pub fn generate_for(plan: &Plan, target: &GpuTarget, options: &VmOptions) -> String {
    let source = generate(plan, options);
    if uses_all_memory(plan) { format!("#define AMK_SHARED_BYTES {}\n{source}", target.shared_bytes) } else { source }
}

/// Renders the source of a plan, which does not touch memory beyond the ring's slots.
pub fn generate(plan: &Plan, options: &VmOptions) -> String {
    let mut out: String = own_lines(&abi::text()).flat_map(|line| [line, "\n"]).collect();
    out.push_str(&registered_abi());
    if plan.rows().is_some() {
        out.push_str(&row_abi());
    }
    out.push_str(&params::text(plan.rows().is_some()));
    body_sets().into_iter().for_each(|set| out.push_str(&set.shared.defines(plan)));
    let memory = RingMemory::of(plan);
    let _ = writeln!(out, "#define AMK_SLOTS {}\n#define AMK_SLOT_BYTES {}", memory.slots, memory.slot_bytes);
    let _ = writeln!(out, "#define AMK_IN_FLIGHT {}", plan.schedule.ring.in_flight);
    let _ = writeln!(out, "#define AMK_PACE {}", plan.schedule.ring.pace);
    let _ = writeln!(out, "#define AMK_LOW {}", low_slots(plan));
    let _ = writeln!(out, "#define AMK_EXCHANGE {}", u32::from(!plan.program.events.is_empty()));
    let _ = writeln!(out, "#define AMK_LOOKAHEAD {}", plan.schedule.ring.lookahead << 10);
    if let Some((task, position)) = options.faults.drop {
        let _ = writeln!(out, "#define AMK_DROP_TASK {}\n#define AMK_DROP_POSITION {position}", task.0);
    }
    if options.faults.delay_ns > 0 {
        let _ = writeln!(out, "#define AMK_DELAY {}", options.faults.delay_ns);
    }
    if options.trace {
        out.push_str("#define AMK_TRACE 1\n");
    }
    if options.no_arrivals {
        out.push_str("#define AMK_NO_ARRIVALS 1\n");
    }
    out.push_str("struct Worker;\n");
    out.push_str("__device__ __forceinline__ void project(Worker&, const Record&);\n");
    out.push_str("__device__ __forceinline__ void dispatch(Worker&, const Record&);\n");
    out.push_str("struct Feed;\n");
    out.push_str("template <class L> __device__ __forceinline__ void dispatch_feed(L&, const Record&, Feed&);\n");
    out.push_str("struct Shared;\n");
    out.push_str("__device__ __forceinline__ void bodies_begin_launch(Shared&);\n");
    out.push_str("__device__ __forceinline__ void bodies_begin_step(Worker&);\n");
    out.push_str("__device__ __forceinline__ void bodies_copy(const Params&, Shared&, u32, u32, u32);\n");
    out.push_str("__device__ __forceinline__ void bodies_see_logits(Worker&, const float*, u32, u32);\n");
    let _ = writeln!(out, "#define AMK_ROWS {}", plan.rows().unwrap_or(0));
    let _ = writeln!(out, "#define AMK_WIDE {}", u32::from(plan.is_wide()));
    let _ = writeln!(out, "#define AMK_ROW_PACKETS {}", u32::from(plan.has_row_packets()));
    let _ = writeln!(out, "#define AMK_GROUPS {}", plan.groups.len().max(1));
    if plan.rows().is_some() {
        let words = Image::row_words(plan);
        let _ = writeln!(out, "#define AMK_WORKERS {}", plan.schedule.workers);
        let RingMemory { row_units, row_scratch, .. } = memory;
        let _ = writeln!(out, "#define AMK_ROW_WORDS {words}u\n#define AMK_ROW_SCRATCH {row_scratch}");
        let _ = writeln!(out, "#define AMK_ROW_UNITS {row_units}");
        let floats = Image::page_bytes(plan).into_iter().map(|bytes| bytes / 4);
        let _ = writeln!(out, "#define AMK_PAGE {}u", amk::rows::PAGE);
        let _ = match plan.groups.len() {
            0 | 1 => writeln!(out, "#define AMK_PAGE_FLOATS {}u", floats.sum::<u64>()),
            _ => writeln!(out, "#define AMK_PAGE_FLOATS_OF(group) ({})", by_group("group", floats)),
        };
        let _ = writeln!(out, "#define AMK_POSITIONS {}u", plan.sizes.context);
    }
    out.push_str(&kinds_of_records(plan));
    out.push_str(&code::BASE.text());
    body_sets().into_iter().for_each(|set| out.push_str(&set.types.text()));
    let kept: String = body_sets().into_iter().map(|set| set.kept).collect();
    let _ = writeln!(out, "struct Kept {{\n{kept}}};");
    out.push_str(&code::BELOW.text());
    codes().for_each(|set| out.push_str(&set.text()));
    if plan.rows().is_some() {
        body_sets().into_iter().for_each(|set| out.push_str(&set.rows.code.text()));
    }
    let begin = |of: fn(&BodySet) -> &'static str| -> String { body_sets().into_iter().map(of).collect() };
    let _ = writeln!(out, "AMK_DEVICE void bodies_begin_launch(Shared& s) {{ {} }}", begin(|set| set.begin_launch));
    let _ = writeln!(out, "AMK_DEVICE void bodies_begin_step(Worker& w) {{ {} }}", begin(|set| set.begin_step));
    let copy = if plan.is_wide() { begin(|set| set.copy) } else { String::new() };
    let _ = writeln!(
        out,
        "AMK_DEVICE void bodies_copy(const Params& p, Shared& s, u32 data, u32 warp, u32 lane) {{ {copy} }}"
    );
    let see = begin(|set| set.see_logits);
    let _ = writeln!(
        out,
        "AMK_DEVICE void bodies_see_logits(Worker& w, const float* values, u32 first, u32 len) {{ {see} }}"
    );
    out.push_str(&code::ABOVE.text());
    out.push_str(&bodies(plan));
    body_sets().into_iter().for_each(|set| out.push_str(&set.shared.functions(plan)));
    let kinds = || record_kinds().into_iter().zip(0..);
    let cases = kinds().filter_map(|(kind, op)| Some((op, (kind.dispatch)(plan)?)));
    out.push_str("AMK_DEVICE void dispatch(Worker& w, const Record& r) {\n    switch (r.op) {\n");
    out.push_str(&by_op(cases));
    out.push_str(&body::cases(plan));
    out.push_str("    }\n}\n");
    out.push_str(
        "template <class L> AMK_DEVICE void dispatch_feed(L& l, const Record& r, Feed& feed) {\n    switch (r.op) {\n",
    );
    out.push_str(&by_op(kinds().filter_map(|(kind, op)| Some((op, (kind.feed)(plan)?)))));
    out.push_str(&body::feeds(plan));
    out.push_str("    }\n}\n");
    lines::numbered(&out)
}

/// Renders the ABI of the registered bodies: the kinds of records by number, and the additions of
/// each crate.
pub fn registered_abi() -> String {
    let names: String = record_kinds().iter().map(|kind| format!("    OP_{},\n", kind.name)).collect();
    let of_sets: String = body_sets().into_iter().map(|set| (set.abi)()).collect();
    let params: String = body_sets().into_iter().flat_map(|set| set.params).map(Struct::text).collect();
    format!("// The kinds of records.\nenum DeviceOp {{\n{names}}};\n\n{of_sets}{params}")
}

/// Renders the structs of the code that only programs with rows have.
pub fn row_abi() -> String {
    row_structs().0.into_iter().map(Struct::text).collect()
}

/// Returns all device code in order: name and text of each file.
pub fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    let types: Vec<DeviceCode> = body_sets().into_iter().map(|set| set.types).collect();
    let sets: Vec<DeviceCode> = codes().chain(body_sets().into_iter().map(|set| set.rows.code)).collect();
    let all = [code::BASE].into_iter().chain(types).chain([code::BELOW]).chain(sets).chain([code::ABOVE]);
    all.flat_map(|code| code.files).copied()
}

/// Renders macros about kinds of records.
fn kinds_of_records(plan: &Plan) -> String {
    let kinds = record_kinds();
    let one_row = plan.rows().is_none();
    let projects = kinds.iter().filter(|kind| kind.projects && one_row).map(|kind| format!("(op) == OP_{}", kind.name));
    let skips =
        kinds.iter().filter(|_| one_row).filter_map(|kind| kind.skips.map(|(when, count)| (kind.name, when, count)));
    let (skips, counts): (Vec<String>, Vec<u32>) =
        skips.map(|(name, when, count)| (format!("(op) == OP_{name} && {when}"), count)).unzip();
    let of_kinds = |is: fn(&RecordKind) -> fn(&Plan) -> bool| {
        kinds.iter().filter(|kind| is(kind)(plan)).map(|kind| format!("(op) == OP_{}", kind.name)).collect()
    };
    let any = |of: Vec<String>| if of.is_empty() { "false".to_owned() } else { of.join(" || ") };
    format!(
        "#define AMK_PROJECTS(op) ({})\n#define AMK_READS_ALL {}\n#define AMK_AWAITS(op) ({})\n\
         #define AMK_SIGNALS(op) ({})\n#define AMK_SKIPS(w, op) ({})\n#define AMK_SKIPPED {}\n",
        any(projects.collect()),
        u32::from(kinds.iter().any(|kind| (kind.reads_all)(plan))),
        any(of_kinds(|kind| kind.awaits)),
        any(of_kinds(|kind| kind.signals)),
        any(skips),
        counts.first().copied().unwrap_or(0)
    )
}

/// Renders a choice of numbers by a group's number, the value of `group`.
pub fn by_group(group: &str, numbers: impl IntoIterator<Item = u64>) -> String {
    let cases = numbers.into_iter().enumerate().map(|(number, value)| format!("({group}) == {number} ? {value}ull : "));
    cases.collect::<String>() + "0ull"
}

/// Renders the cases of a switch over the records' `op`.
fn by_op(calls: impl Iterator<Item = (u32, String)>) -> String {
    calls.map(|(op, call)| format!("    case {op}: {call}; break;\n")).collect()
}
