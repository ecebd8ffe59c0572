//! Frozen programs, with the exact counts of the verifier's verdicts on them and on all their small
//! changes.
//!
//! The programs are lowerings as they once were; they do not follow the lowering. A changed count
//! is a changed verdict: examine it before accepting the new snapshot.

use amk_ir::text::parse;
use amk_ir::verify::{Code, Verifier};
use amk_ir::{Program, Queues, Steps};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The verifier's verdicts on a set of programs: how often it accepts, and how often it reports
/// each code.
#[derive(Default)]
struct Tally {
    programs: u32,
    accepted: u32,
    codes: BTreeMap<Code, u32>,
}

impl Tally {
    fn add(&mut self, program: &Program, verifier: &mut Verifier) {
        let mut codes: Vec<Code> = verifier.check(program).iter().map(|violation| violation.code()).collect();
        self.programs += 1;
        self.accepted += u32::from(codes.is_empty());
        codes.sort();
        codes.dedup();
        codes.into_iter().for_each(|code| *self.codes.entry(code).or_default() += 1);
    }
}

/// Every program that differs from `program` by one edit of a kind.
fn mutants(program: &Program, kind: &str) -> Vec<Program> {
    let mut mutants = Vec::new();
    let mut edited = |edit: &dyn Fn(&mut Program)| {
        let mut mutant = program.clone();
        edit(&mut mutant);
        mutants.push(mutant);
    };
    for (t, task) in program.tasks.iter().enumerate() {
        match kind {
            "wait dropped" => (0..task.waits.len()).for_each(|w| edited(&|p| _ = p.tasks[t].waits.remove(w))),
            "wait lowered" => (0..task.waits.len()).for_each(|w| edited(&|p| p.tasks[t].waits[w].threshold -= 1)),
            "wait raised" => (0..task.waits.len()).for_each(|w| edited(&|p| p.tasks[t].waits[w].threshold += 1)),
            "signal dropped" => (0..task.signals.len()).for_each(|s| edited(&|p| _ = p.tasks[t].signals.remove(s))),
            "read early" => {
                for (c, call) in task.calls.iter().enumerate() {
                    (0..call.operands.len()).for_each(|o| edited(&|p| p.tasks[t].calls[c].operands[o].early = true));
                }
            }
            _ => {}
        }
    }
    match (&program.queues, kind) {
        (Queues::Static(queues), "queue swapped") => {
            for (q, queue) in queues.iter().enumerate() {
                for n in 1..queue.len() {
                    edited(&|p| {
                        if let Queues::Static(queues) = &mut p.queues {
                            queues[q].swap(n - 1, n);
                        }
                    });
                }
            }
        }
        (Queues::Static(_), "pipelined") => edited(&|p| p.steps = Steps::Pipelined),
        (Queues::Static(_), "tickets") => edited(&|p| {
            p.queues = Queues::Ticket { workers: 4, order: (0..p.tasks.len()).map(amk_ir::TaskId::from).collect() };
        }),
        (_, "as it is") => edited(&|_| {}),
        _ => {}
    }
    mutants
}

const KINDS: [&str; 9] = [
    "as it is",
    "pipelined",
    "tickets",
    "wait dropped",
    "wait lowered",
    "wait raised",
    "signal dropped",
    "queue swapped",
    "read early",
];

#[test]
fn frozen_programs_keep_their_counts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ratchet");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let (mut table, mut verifier) = (String::new(), Verifier::default());
    for file in files {
        let program = parse(&fs::read_to_string(&file).unwrap()).unwrap();
        let waits: usize = program.tasks.iter().map(|task| task.waits.len()).sum();
        let signals: usize = program.tasks.iter().map(|task| task.signals.len()).sum();
        let counters: u64 = program.events.iter().map(|event| event.len()).sum();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let tasks = program.tasks.len();
        writeln!(table, "{name}: {tasks} tasks, {counters} counters, {waits} waits, {signals} signals").unwrap();
        for kind in KINDS {
            let mut tally = Tally::default();
            mutants(&program, kind).iter().for_each(|mutant| tally.add(mutant, &mut verifier));
            let codes: Vec<String> = tally.codes.iter().map(|(code, count)| format!("{code} {count}")).collect();
            writeln!(table, "  {kind}: {} programs, {} accepted; {}", tally.programs, tally.accepted, codes.join(", "))
                .unwrap();
        }
    }
    insta::assert_snapshot!("ratchet", table);
}
