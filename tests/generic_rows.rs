//! The tasks of generic bodies in steps of rows, as the device computes them: its code for these
//! tasks (`task.cuh` and the instructions' bodies), compiled for this machine, runs whole decoders
//! from their images. Without a C++ compiler it says "skipped".

use crate::device_programs::{bits, convolved, error, sized, tiny, windowed, with};
use crate::native;
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::ir::{BufferId, DType, Queues};
use amk::rows::{PageChange, PageEdit, PlacedRow, PoolSize, RowLimits, RowVm, contract};
use amk::vm::Bindings;
use amk_bench::kernel_check::Decoder;
use amk_cuda::image::abi;
use amk_cuda::plan::Plan;
use amk_cuda::{Image, Pools, Precision, TARGETS, VmOptions, source};
use amk_models::model::{FAMILIES, Family};
use core::convert::Infallible;
use core::fmt::Write as _;
use half::bf16;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Pages of the states of a group.
const PAGES: usize = 12;
/// Tokens of a sequence, which take a second page.
const STEPS: u32 = 70;

/// The worker of `device/generic_rows.cpp`, between the ABI and the code.
const WORKER: &str = "
#define AMK_ROW_PACKETS 0
struct Kept {
    float scratch[SCRATCH_FLOATS];
    RowWords rows[AMK_ROWS];
};
struct Params {
    const u32* arguments;
    u8* plain;
    u64* packets;
    float *scratch, *logits;
    const u32* page_tables;
    u32 scratch_len, logit_stride, row_count;
};
static Params params;
static Kept shared;
struct Worker {
    const Params& p;
    Kept& s;
    u32 warp, lane;
    u32 thread() const { return warp * 32 + lane; }
    u32 pos() const { return 0; }
    void sync() const { of_block.wait(); }
    void stamp(int) const {}
    bool dropped() const { return false; }
    void delay() const {}
    u64* words(u32 offset, u32 row) const { return p.packets + (offset + (u64)row * AMK_ROW_WORDS); }
    void* memory(u32 at) const { return (u8*)s.scratch + at; }
};
";

/// The device code of plans, compiled for this machine.
struct Device {
    code: String,
    program: PathBuf,
    _folder: TempDir,
}

impl Device {
    /// `None` without a C++ compiler.
    fn of(plan: &Plan) -> Option<Self> {
        let code = code(plan);
        let (folder, program) = native::build(&code, "generic_rows", &[])?;
        Some(Self { code, program, _folder: folder })
    }
}

/// A VM of rows whose device is a process on this machine.
struct Emulated {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    limits: RowLimits,
    pools: Pools,
    vocab: usize,
    /// By row of the last step, its place among the wanted ones.
    places: Vec<Option<usize>>,
    logits: Vec<f32>,
}

impl Emulated {
    fn new(device: &Device, plan: &Plan, bindings: &Bindings) -> Self {
        assert!(device.code == code(plan), "the code of another plan");
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        let image = Image::build(&verified, plan).expect("the image should be the program");
        let mut child = Command::new(&device.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it should start");
        let (mut input, output) =
            (child.stdin.take().expect("a pipe"), BufReader::new(child.stdout.take().expect("a pipe")));
        input.write_all(image_words(plan, &image, bindings).as_bytes()).expect("all should be read");
        let limits = RowLimits {
            rows: plan.rows().expect("rows") as usize,
            positions: plan.sizes.context as usize,
            groups: plan.groups.clone(),
        };
        let pools = image.pools.clone();
        let vocab = plan.sizes.vocab as usize;
        Self { child, input, output, limits, pools, vocab, places: Vec::new(), logits: Vec::new() }
    }

    fn send(&mut self, command: &str) {
        self.input.write_all(command.as_bytes()).expect("the process should read");
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RowVm for Emulated {
    type Error = Infallible;

    fn limits(&self) -> RowLimits {
        self.limits.clone()
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Infallible> {
        let (group, first) = (edit.group, self.pools.0[edit.group].first);
        match edit.change {
            PageChange::Copy { from, to } => self.send(&format!("copy {group} {} {}\n", first + from, first + to)),
            PageChange::Clear { page, first: 0 } => self.send(&format!("clear {group} {}\n", first + page)),
            PageChange::Clear { .. } => {}
        }
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Infallible> {
        contract::check(&self.limits, &rows).expect("the contract of a step");
        let wanted = rows.iter().filter(|row| row.wanted).count();
        let mut command = format!("step {} {wanted} ", rows.len());
        let mut tables: Vec<u32> = Vec::new();
        self.places.clear();
        for row in &rows {
            let place = self.places.iter().flatten().count();
            self.places.push(row.wanted.then_some(place));
            let number = if row.wanted { place + 1 } else { 0 };
            let _ = write!(command, "{} {} {} {number} ", row.token.0, row.pos.0, tables.len());
            tables.extend(self.pools.entries(&row.pages));
        }
        list(&mut command, tables);
        self.send(&command);
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        self.logits = line.split_whitespace().map(|word| f32::from_bits(word.parse().expect("a word"))).collect();
        assert_eq!(self.logits.len(), wanted * self.vocab);
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        let place = self.places[row].expect("a wanted row");
        &self.logits[place * self.vocab..(place + 1) * self.vocab]
    }
}

/// The device code of a plan's generic tasks.
fn code(plan: &Plan) -> String {
    let source = source::generate(plan, &VmOptions::default());
    let part = |from: &str, to: &str| {
        let (_, after) = source.split_once(from).expect("its begin");
        format!("{from}{}", after.split_once(to).expect("its end").0)
    };
    let define = |name: &str| {
        let define = source.lines().find(|line| line.starts_with(&format!("#define {name} ")));
        format!("{}\n", define.unwrap_or_else(|| panic!("`{name}`")))
    };
    let floats = if plan.groups.len() > 1 { "AMK_PAGE_FLOATS_OF(group)" } else { "AMK_PAGE_FLOATS" };
    let defines: String =
        ["AMK_ROWS", "AMK_ROW_WORDS", "AMK_PAGE", floats, "AMK_GROUPS", "AMK_POSITIONS"].map(define).concat();
    let wide = u32::from(plan.is_wide());
    let (values, task) = (native::text("vm/values.cuh"), native::text("vm/task.cuh"));
    // Another number of warps takes part here.
    let abi: String = native::plain(&abi::text())
        .lines()
        .filter(|line| !line.starts_with("typedef") && !line.starts_with("#define AMK_WARPS"))
        .map(|line| format!("{line}\n"))
        .collect();
    let bodies: String = part("namespace body0 {", "AMK_DEVICE u32 tile_bytes")
        .lines()
        .filter(|line| !line.starts_with("#line"))
        .map(|line| format!("{line}\n"))
        .collect();
    let cases: String = (0..plan.sequences.len())
        .map(|number| format!("    case {}: task_{number}(w, r); break;\n", abi::FIRST_BODY as usize + number))
        .collect();
    format!(
        "{abi}{defines}#define AMK_WIDE {wide}\n{WORKER}{values}{task}{bodies}\
         static void dispatch(Worker& w, const Record& r) {{\n    switch (r.op) {{\n{cases}    }}\n}}\n"
    )
}

/// Appends words behind their number.
fn list(text: &mut String, words: impl IntoIterator<Item = u32>) {
    let words: Vec<u32> = words.into_iter().collect();
    let _ = write!(text, "{} ", words.len());
    words.iter().for_each(|word| _ = write!(text, "{word} "));
    text.push('\n');
}

/// The fields of an image that the process reads.
fn image_words(plan: &Plan, image: &Image, bindings: &Bindings) -> String {
    let mut text = String::new();
    list(&mut text, image.plain.words.iter().copied());
    list(&mut text, plain_words(plan, image, bindings));
    list(&mut text, tasks(plan, image));
    let states_at = image.plain.bytes;
    let _ = writeln!(
        text,
        "{} {states_at} {} {} {} {}",
        image.packets,
        image.pools.bytes(&image.plain.pages),
        plan.schedule.workers,
        image.plain.scratch,
        plan.sizes.vocab
    );
    list(&mut text, image.plain.pages.iter().map(|&bytes| bytes as u32));
    text
}

/// The plain memory before the pages.
fn plain_words(plan: &Plan, image: &Image, bindings: &Bindings) -> Vec<u32> {
    let mut bytes = vec![0; image.plain.bytes as usize];
    for &(id, at) in &image.plain.buffers {
        let buffer = &plan.program.buffers[id.index()];
        let values = bindings.weights()[&buffer.name].to_f32();
        let content: Vec<u8> = match buffer.dtype {
            DType::BF16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        bytes[at as usize..at as usize + content.len()].copy_from_slice(&content);
    }
    bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// Worker and record of each task of generic bodies, in eager order.
fn tasks(plan: &Plan, image: &Image) -> Vec<u32> {
    let Queues::Static(queues) = &plan.program.queues else { panic!("static queues") };
    let mut records: Vec<(u32, usize)> = Vec::new();
    for worker in 0..queues.len() {
        let own = image.record_at[worker] as usize..image.record_at[worker + 1] as usize;
        records.extend(own.map(|at| (worker as u32, at)));
    }
    records.sort_by_key(|&(_, at)| image.records[at].task);
    let generic = records.into_iter().filter(|&(_, at)| u32::from(image.records[at].op) >= abi::FIRST_BODY);
    generic.flat_map(|(worker, at)| [worker].into_iter().chain(words(&image.records[at]))).collect()
}

/// The words of a record, in the order of its fields.
fn words(record: &amk_cuda::image::Record) -> Vec<u32> {
    let amk_cuda::image::Record {
        op,
        units,
        input,
        output,
        shape,
        row,
        norm,
        bias,
        task,
        layer,
        aux,
        partial,
        tape,
        signal,
        wait,
        arrivals,
        more,
    } = *record;
    let first = u32::from(op) | u32::from(units) << 16;
    let rest = [input, output, shape, row, norm, bias, task, layer, aux, partial, tape, signal, wait, arrivals, more];
    [first].into_iter().chain(rest).collect()
}

/// A decoder of two layers for steps of so many rows.
fn decoder(family: Family, rows: u32, workers: u32) -> Decoder {
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    let schedule = Schedule { workers, ..target.row_schedule(rows) };
    Decoder::new(family, sized(family, &tiny()), schedule, STEPS, 3).expect("a decoder")
}

/// Runs a decoder's tokens in chunks beside other sequences; `false` without a C++ compiler.
fn emulated(family: Family, rows: u32, workers: u32) -> bool {
    let decoder = decoder(family, rows, workers);
    let mut plan = decoder.plan(Precision::F32).expect("a plan");
    plan.set_pages(&PAGES.into(), rows);
    let Some(device) = Device::of(&plan) else { return false };
    let run = |chunk, company| {
        let vm = Emulated::new(&device, &plan, decoder.bindings());
        decoder.on_rows(vm, chunk, company).expect("logits")
    };
    let logits = run(rows as usize - 2, 2);
    if family.name == "lfm2" {
        let alone = run(1, 0);
        assert_eq!(bits(&logits), bits(&alone), "a row's bits depend on its own tokens alone");
    }
    // Nothing is rounded to bf16.
    let error = error(&decoder, &logits);
    assert!(error < 0.02, "{}: {error} deviations", family.name);
    true
}

#[test]
fn generic_tasks_of_narrow_and_wide_steps_compute_the_function() {
    for (name, rows) in [("gemma2", 6), ("cohere2", 20), ("starcoder2", 6), ("nemotron", 20), ("lfm2", 6), ("lfm2", 20)]
    {
        let family = FAMILIES.into_iter().find(|family| family.name == name).expect("the family");
        if !emulated(family, rows, rows - 1) {
            return println!("skipped: no C++ compiler");
        }
    }
}

#[test]
fn a_sequence_longer_than_the_pages_has_the_bits_of_one_that_keeps_them() {
    let one = (windowed(50, 48), vec![Some(50)], PoolSize::Pages(3));
    let two = (with("gemma3", &[("WINDOW", 50)]), vec![None, Some(50)], PoolSize::Groups(vec![4, 3]));
    let (lfm2, dims) = convolved();
    let reaches = vec![None, Some(dims["TAPS"])];
    let convolutions = ((lfm2, dims), reaches, PoolSize::Groups(vec![4, 3]));
    let forms = [(6, &one), (20, &one), (6, &two), (20, &two), (6, &convolutions)];
    for (rows, (of, reaches, few)) in forms {
        let (expected, few) =
            (reaches.iter().map(|reach| reach.map(|reach| reach as usize)).collect::<Vec<_>>(), few.clone());
        let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
        let schedule = Schedule { workers: rows - 1, ..target.row_schedule(rows) };
        let decoder = Decoder::new(of.0, of.1.clone(), schedule, 200, 3).expect("a decoder");
        let plan = decoder.plan(Precision::F32).expect("a plan");
        let of_pages = |pages: PoolSize| {
            let mut plan = plan.clone();
            plan.set_pages(&pages, rows);
            plan
        };
        let all = of_pages(PAGES.into());
        let Some(device) = Device::of(&all) else { return println!("skipped: no C++ compiler") };
        let run = |plan: &Plan| {
            let vm = Emulated::new(&device, plan, decoder.bindings());
            let reaches: Vec<_> = vm.limits.groups.iter().map(|group| group.reach).collect();
            assert_eq!(reaches, expected);
            bits(&decoder.on_rows(vm, rows as usize - 2, 0).expect("logits"))
        };
        assert_eq!(run(&of_pages(few)), run(&all), "{rows} rows");
    }
}

#[test]
fn states_lie_in_the_same_pages_for_steps_of_any_number_of_rows() {
    let family = FAMILIES.into_iter().find(|family| family.name == "lfm2").expect("the family");
    let image = |rows| {
        let plan = decoder(family, rows, 24).plan(Precision::F32).expect("a plan");
        let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
        let plain = Image::build(&verified, &plan).expect("the image should be the program").plain;
        let name = |&(id, at): &(BufferId, u64)| (plan.program.buffers[id.index()].name.clone(), at);
        (plain.states.iter().map(name).collect::<Vec<_>>(), plain.states, plain.buffers, plain.pages, plain.bytes)
    };
    let narrow = image(8);
    assert!(narrow.0.iter().any(|(name, _)| name.contains("inputs")), "{:?}", narrow.0);
    assert_eq!(narrow, image(20));
    assert_eq!(narrow, image(40));
}
