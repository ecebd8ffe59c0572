//! The generated source: the device VM and the dispatch of the program's instructions, with shapes as constants.

use super::body::{self, bodies, own_lines};
use super::code::DeviceCode;
use super::image::AttentionForm;
use super::image::abi::{
    self, GEMV_FLAGS_BIT, GEMV_NORM, MOST_DEPTH, OP_ADOPT, OP_ATTEND, OP_BEST, OP_CHOOSE, OP_COMBINE, OP_EMBED,
    OP_GEMV, OP_PROBE,
};
use super::options::VmOptions;
use super::plan::{Gemv, Plan};
use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};

pub use super::image::abi::{CHUNK, GROUP_UNITS, TILE, TILE_K, WARPS};

/// Input tiles a warp holds at most where it reads its input in two passes but waits for it once.
const MOST_HELD: u32 = 6;

/// How a projection's input is read: tiles a warp holds of a block of weights, and passes.
pub fn cut(k: u32) -> (u32, u32) {
    let tiles = k.div_ceil(TILE_K).div_ceil(WARPS).max(1);
    let passes = tiles.div_ceil(MOST_DEPTH);
    (tiles.div_ceil(passes), passes)
}

/// What a record's shape says of a projection's input, as far as it decides which function computes: its elements, and whether it is
/// normed.
pub(super) fn input_shape(gemv: &Gemv) -> u32 {
    gemv.k | if gemv.norm.is_some() { GEMV_NORM << GEMV_FLAGS_BIT } else { 0 }
}

/// How often a projection waits for its input: once where the registers hold all of it, else before every pass.
pub fn waits(gemv: &Gemv) -> u32 {
    let (depth, passes) = cut(gemv.k);
    let whole = passes == 1 || (gemv.norm.is_none() && passes == 2 && depth * passes <= MOST_HELD);
    if whole { 1 } else { passes }
}

/// Whether every warp has tiles in all of its places.
fn even(gemv: &Gemv) -> bool {
    (gemv.k / TILE_K).is_multiple_of(cut(gemv.k).0 * WARPS)
}

/// The device's function for a projection. There is one for each depth, not for each shape: more would not stay in the instruction
/// cache. In an even one every warp has tiles in all of its places.
fn gemv(gemv: &Gemv) -> String {
    let ((depth, passes), even) = (cut(gemv.k), even(gemv));
    if waits(gemv) == 1 {
        format!("multiply<{depth}, {passes}, {even}>(w, r, group, prepare)")
    } else {
        format!("multiply<{depth}, 0, {even}>(w, r, group, prepare)")
    }
}

/// The source of a plan.
pub fn generate(code: DeviceCode, plan: &Plan, options: &VmOptions) -> String {
    let mut out: String = own_lines(&abi::text()).flat_map(|line| [line, "\n"]).collect();
    out.push_str(&inputs(&plan.projections().collect::<Vec<_>>()));
    let _ = writeln!(out, "#define AMK_SLOTS {}", plan.schedule.ring_slots);
    let _ = writeln!(out, "#define AMK_IN_FLIGHT {}", plan.schedule.in_flight);
    let _ = writeln!(out, "#define AMK_PACE {}", plan.schedule.pace);
    let _ = writeln!(out, "#define AMK_EXCHANGE {}", u32::from(!plan.program.events.is_empty()));
    let _ = writeln!(out, "#define AMK_LOOKAHEAD {}", plan.schedule.lookahead << 10);
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
    out.push_str(&code.whole());
    out.push_str(&bodies(plan));
    let attention = AttentionForm::of(plan).map(attention);
    let mut gemvs = BTreeMap::<String, BTreeSet<u32>>::new();
    for of in plan.projections() {
        gemvs.entry(gemv(of)).or_default().insert(input_shape(of));
    }
    let mut cases = vec![
        (OP_EMBED, "embed(w, r)".to_owned()),
        (OP_ADOPT, "adopt(w, r)".to_owned()),
        (OP_BEST, "best(w, r)".to_owned()),
        (OP_PROBE, "probe(w, r)".to_owned()),
        (OP_CHOOSE, "choose(w, r)".to_owned()),
    ];
    let mut feeds = Vec::new();
    if let Some(attention) = attention {
        cases.push((OP_ATTEND, format!("attention<{attention}>(w, r)")));
        cases.push((OP_COMBINE, format!("combine<{attention}>(w, r)")));
        feeds.push((OP_ATTEND, format!("attention_feed<{attention}>(l, r, feed)")));
    }
    if !gemvs.is_empty() {
        feeds.push((OP_GEMV, "gemv_feed(r, feed)".to_owned()));
    }
    let _ = writeln!(
        out,
        "AMK_DEVICE void project(Worker& w, const Record& r) {{\n    const u32 input = r.shape & GEMV_INPUT;\n    gemv(w, r, [&](Group& group, auto prepare) {{ {} }});\n}}",
        by_input(&gemvs)
    );
    out.push_str("AMK_DEVICE void dispatch(Worker& w, const Record& r) {\n    switch (r.op) {\n");
    out.push_str(&by_op(&cases));
    out.push_str(&body::cases(plan));
    out.push_str("    }\n}\n");
    out.push_str(
        "template <class L> AMK_DEVICE void dispatch_feed(L& l, const Record& r, Feed& feed) {\n    switch (r.op) {\n",
    );
    out.push_str(&by_op(&feeds));
    out.push_str(&body::feeds(plan));
    out.push_str("    }\n}\n");
    out
}

/// What the inputs of all projections have in common: the most tiles that a warp has in a pass, whether the request for them is code for
/// all shapes, and whether all are even. The request is shared where depths differ by one at most and no input is held for two passes:
/// else every task would pay for the registers of the deepest.
fn inputs(gemvs: &[&Gemv]) -> String {
    let depths = || gemvs.iter().map(|gemv| cut(gemv.k).0);
    let (least, most) = (depths().min().unwrap_or(1), depths().max().unwrap_or(1));
    let shared = most <= least + 1 && gemvs.iter().all(|gemv| waits(gemv) > 1 || cut(gemv.k).1 == 1);
    let even = gemvs.iter().all(|gemv| even(gemv));
    format!("#define AMK_MOST {most}\n#define AMK_SHARED {}\n#define AMK_EVEN {}\n", u32::from(shared), u32::from(even))
}

/// The cases of a switch over the records' `op`.
fn by_op(calls: &[(u32, String)]) -> String {
    calls.iter().map(|(op, call)| format!("    case {op}: {call}; break;\n")).collect()
}

/// The calls of projections, each for the shapes of input that it computes, the last for those that are left. Votes: see `vm/ptx.cuh`.
fn by_input(gemvs: &BTreeMap<String, BTreeSet<u32>>) -> String {
    let case = |(nth, (call, shapes)): (usize, (&String, &BTreeSet<u32>))| {
        let these: Vec<String> = shapes.iter().map(|shape| format!("input == {shape}")).collect();
        if nth + 1 < gemvs.len() {
            format!("if (any({})) {call}; else ", these.join(" || "))
        } else {
            format!("{call};")
        }
    };
    gemvs.iter().enumerate().map(case).collect()
}

/// The type of the attentions, all of which are alike.
fn attention(form: AttentionForm) -> String {
    let AttentionForm { head_dim, group, kv_heads, splits, run, normed } = form;
    format!("Attention<{head_dim}, {group}, {kv_heads}, {splits}, {run}, {normed}>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Input, Output};
    use amk_ir::BufferId;

    #[test]
    fn every_tile_of_an_input_has_a_warp_and_a_pass_and_a_block_fits_a_slot() {
        for k in (TILE_K..40_000).step_by(TILE_K as usize) {
            let (depth, passes) = cut(k);
            let tiles = k / TILE_K;
            assert!((1..=MOST_DEPTH).contains(&depth) && depth * WARPS * TILE <= CHUNK, "{k}");
            assert!((depth * WARPS * (passes - 1)..=depth * WARPS * passes).contains(&tiles), "{k}");
        }
    }

    fn reading(k: u32, norm: Option<BufferId>) -> Gemv {
        let output = Output::Store(Vec::new());
        let (input, weights, biases) = (Input::Packets(BufferId(0)), Vec::new(), Vec::new());
        Gemv { input, norm, k, weights, biases, output }
    }

    #[test]
    fn the_request_is_shared_where_inputs_are_alike() {
        let of = |ks: &[u32]| {
            let gemvs: Vec<Gemv> = ks.iter().map(|&k| reading(k, None)).collect();
            inputs(&gemvs.iter().collect::<Vec<_>>()).replace("#define AMK_", "").replace('\n', ", ")
        };
        assert_eq!(of(&[576, 1536]), "MOST 3, SHARED 1, EVEN 0, ");
        assert_eq!(of(&[1024, 2048]), "MOST 4, SHARED 0, EVEN 1, ");
        assert_eq!(of(&[2048, 3072]), "MOST 4, SHARED 0, EVEN 1, ", "held for two passes");
        assert_eq!(of(&[4096, 14336]), "MOST 4, SHARED 1, EVEN 1, ");
        assert_eq!(of(&[]), "MOST 1, SHARED 1, EVEN 1, ");
    }

    #[test]
    fn an_input_is_waited_for_once_where_the_registers_hold_it() {
        let waits_of = |k, norm| waits(&reading(k, norm));
        let norm = Some(BufferId(1));
        assert_eq!([576, 2048, 3072, 4096, 8192].map(|k| waits_of(k, None)), [1, 1, 1, 2, 4]);
        // The norm's weights take registers, too.
        assert_eq!([576, 2048, 3072, 4096].map(|k| waits_of(k, norm)), [1, 1, 2, 2]);
    }
}
