//! Programs with rows: each step judged as an ordinary program, against the verifier's one proof.
//! No unsafe program may be accepted. Safe programs are rejected for these reasons alone:
//!
//! * the rows of a sequence would go beyond the context: the verifier lets a sequence begin at any
//!   position with all its rows, and what they would do there is wrong ("in a longer context");
//! * AMK0805, a fixed bound in a dimension in which others move: a rule, so that one sequence that
//!   starts anywhere stands for all;
//! * AMK0804, a rule too: a call for wanted rows writes no state, though a later call may overwrite
//!   it for all rows; and what it writes is known by buffers, not by elements;
//! * AMK0801, a rule: states or moving tiles share bytes with another buffer, though some programs
//!   do so without harm;
//! * packets order by row 0 alone, in calls that are not for wanted rows: what others order is not
//!   ordered in every step, but a conflict may be of their row ("by packets of later rows");
//! * AMK0802, a rule: a row writes a state at its own position alone, as other pages may be shared;
//! * AMK0306, with aliases: all rows of a call count as one access, though a call on states runs
//!   row by row.
//!
//! The large run is
//! `cargo run --release -p amk-tests --bin soundness -- --rows --programs 1000000`.

use amk_ir::text;
use amk_tests::oracle::{self, Reason, read, source::Source};
use amk_tests::rows::mutate::Change;
use amk_tests::rows::step::{Row, Step};
use amk_tests::rows::tally::{Count, LATER, LONGER, Tally};
use amk_tests::rows::{self, Fault, Verdict, explore, instance::instance, judge_step};
use amk_tests::soundness::{Verifier, codes};
use std::fs;
use std::path::Path;

/// Two rows: each appends, then reads up to its own position, on another worker.
const CHUNK: &str = r#"program @chunk
positions 4
rows 2
instruction i0 "ops::append" append(mut cache)
instruction i1 "ops::attend" attend(cache) -> (y)
buffer b0 @cache state f32[4, 1]
buffer b1 @y output f32[2, 1]
event e0 @appended
task t0: append(mut b0[pos..pos+2, ..]) rows 0..2 signal e0
task t1: attend(b0[0..pos+2, ..]) -> (b1[.., ..]) rows 0..2 wanted wait e0 >= 1
worker w0: t0
worker w1: t1"#;

/// Two rows that append each in a task of their own, on two workers that do not meet.
const APART: &str = r#"program @apart
positions 4
rows 2
instruction i0 "ops::append" append(mut cache)
instruction i1 "ops::fill" fill() -> (y)
buffer b0 @cache state f32[4, 1]
buffer b1 @y output f32[2, 1]
task t0: append(mut b0[pos, ..]) rows 0..1
task t1: append(mut b0[pos+1, ..]) rows 1..2
task t2: fill() -> (b1[.., ..]) rows 0..2
worker w0: t0 t2
worker w1: t1"#;

/// Three rows that append on two workers which do not meet; the last one reads the two of its own.
const WINDOW: &str = r#"program @window
positions 4
rows 3
instruction i0 "ops::append" append(mut cache)
instruction i1 "ops::use" use(cache)
instruction i2 "ops::fill" fill() -> (y)
buffer b0 @cache state f32[4, 1]
buffer b1 @y output f32[3, 1]
task t0: append(mut b0[pos, ..]) rows 0..1
task t1: append(mut b0[pos+1..pos+3, ..]) rows 1..3
task t2: use(b0[pos+1..pos+3, ..]) rows 2..3
task t3: fill() -> (b1[.., ..]) rows 0..3
worker w0: t0 t3
worker w1: t1 t2"#;

fn row(sequence: usize, position: u64) -> Row {
    Row { sequence, position, wanted: true }
}

fn source(text: &str) -> Source {
    read::read(text).expect("the text should be read")
}

/// The verdict on a text in all steps.
fn judge(text: &str) -> Verdict {
    rows::judge_text(text, usize::MAX)
}

fn verifier(text: &str) -> Vec<String> {
    codes(&text::parse(text).expect("the text should be read"))
}

#[test]
fn a_chunk_is_safe() {
    for text in [CHUNK, APART] {
        assert_eq!(judge(text), Verdict::Safe);
        assert_eq!(verifier(text), [""; 0]);
    }
}

/// A row that reads itself and the one before, which nothing orders behind the first row of the
/// step. What would read from the first position on is a race (R7 decides that one first).
#[test]
fn a_window_that_leaves_out_another_row_is_safe() {
    assert_eq!(judge(WINDOW), Verdict::Safe);
    assert_eq!(verifier(WINDOW), [""; 0]);
    let whole = WINDOW.replace("use(b0[pos+1..pos+3, ..])", "use(b0[0..pos+3, ..])");
    let verdict = judge(&whole);
    assert!(matches!(verdict, Verdict::Unsafe(_, Fault::Step(Reason::Race { .. }))), "{verdict}");
    assert_eq!(verifier(&whole), ["AMK0302"]);
}

/// The stand-in's states are longer, by the rows of a step.
#[test]
fn the_memory_of_a_program_is_that_of_its_own_buffers() {
    let with = |bytes: u32| verifier(&CHUNK.replace("rows 2\n", &format!("rows 2\nlimits memory {bytes}\n")));
    assert_eq!(with(4 * 4 + 2 * 4), [""; 0]);
    assert_eq!(with(4 * 4 + 2 * 4 - 1), ["AMK0110"]);
}

#[test]
fn a_chunk_without_its_edge_is_a_race() {
    let text = CHUNK.replace(" wait e0 >= 1", "");
    let verdict = judge(&text);
    assert!(matches!(verdict, Verdict::Unsafe(_, Fault::Step(Reason::Race { .. }))), "{verdict}");
    assert_eq!(verifier(&text), ["AMK0302"]);
}

#[test]
fn a_chunk_that_reads_first_is_out_of_order() {
    let (append, attend) = ("append(mut b0[pos..pos+2, ..])", "attend(b0[0..pos+2, ..]) -> (b1[.., ..])");
    let text = CHUNK.replace(append, "?").replace(attend, append).replace('?', attend).replace(" wanted", "");
    let verdict = judge(&text);
    let Verdict::Unsafe(step, Fault::Order { listed: (0, 1), then: (1, 0) }) = &verdict else { panic!("{verdict}") };
    assert_eq!(step.rows.len(), 2);
    assert_eq!(verifier(&text), ["AMK0803"]);
}

/// A row of each of two sequences is right in any order, at one position too.
#[test]
fn sequences_have_states_of_their_own() {
    let source = source(APART);
    for rows in [[row(0, 0), row(1, 0)], [row(0, 3), row(1, 1)]] {
        let step = Step::new(rows.to_vec(), 2);
        assert!(step.keeps_contract());
        assert_eq!(judge_step(&source, &step), Ok(()));
    }
}

/// Two sequences that share a full page, and have the next one each to themselves.
#[test]
fn forks_share_what_they_read() {
    let table = vec![vec![0, 1], vec![0, 2]];
    let step = Step { rows: vec![row(0, 2), row(1, 2)], page: 2, tables: [table.clone(), table] };
    assert!(step.keeps_contract());
    let source = source(CHUNK);
    assert_eq!(judge_step(&source, &step), Ok(()));
    // The model sees that the page is one.
    let built = instance(&source, &step);
    let [append, attend] = &built.source.tasks[..] else { panic!("two tasks") };
    let touched = |task: &oracle::source::Task, call: usize| -> Vec<usize> {
        task.calls[call].operands.iter().map(|operand| operand.buffer).collect()
    };
    assert_ne!(touched(append, 0), touched(append, 1));
    let (one, other) = (touched(attend, 0), touched(attend, 1));
    assert_eq!((one[0], other[0], built.shared.as_slice()), (one[0], one[0], &one[..1]));
    assert_ne!(one[1], other[1]);
}

/// Steps that break the contract go wrong in the model: nothing in it assumes the contract.
#[test]
fn a_broken_contract_shows() {
    let source = source(APART);
    let broken = |rows: [Row; 2], tables: Vec<Vec<usize>>| {
        let step = Step { rows: rows.to_vec(), page: 2, tables: [tables.clone(), tables] };
        assert!(!step.keeps_contract(), "{step}");
        (judge_step(&source, &step), explore(&instance(&source, &step)))
    };
    let is_race = |verdict: &oracle::Verdict| matches!(verdict, oracle::Verdict::Unsafe(Reason::Race { .. }));

    // Two sequences append to one page, at the same position.
    let (judged, explored) = broken([row(0, 0), row(1, 0)], vec![vec![0], vec![0]]);
    assert_eq!(judged, Err(Some(Fault::Shared { task: 0, row: 0 })));
    assert!(is_race(&explored), "{explored}");
    // At different positions they do not meet, and yet each finds what the other wrote.
    let (judged, _) = broken([row(0, 0), row(1, 1)], vec![vec![0], vec![0]]);
    assert_eq!(judged, Err(Some(Fault::Shared { task: 0, row: 0 })));
    // The page of a fork without rows.
    let (judged, _) = broken([row(0, 0), row(1, 1)], vec![vec![0], vec![1], vec![0]]);
    assert_eq!(judged, Err(Some(Fault::Shared { task: 0, row: 0 })));
    // A sequence twice in a step, and its rows at one position.
    let (_, explored) = broken([row(0, 1), row(0, 1)], vec![vec![0]]);
    assert!(is_race(&explored), "{explored}");
    // A page that is in a table twice: two positions are one.
    let (_, explored) = broken([row(0, 1), row(0, 3)], vec![vec![0, 0]]);
    assert!(is_race(&explored), "{explored}");
    // Rows of one sequence that go back: the later one reads what the earlier has overwritten.
    let chunk = self::source(CHUNK);
    let step = Step::new(vec![row(0, 1), row(0, 0)], 2);
    assert!(!step.keeps_contract());
    assert!(matches!(judge_step(&chunk, &step), Err(Some(Fault::Order { .. }))));
}

/// A value that is computed for wanted rows alone is missing where others need it.
#[test]
fn a_value_of_a_row_that_is_not_wanted() {
    let text = r#"program @wanted
positions 2
rows 1
instruction i0 "ops::fill" fill() -> (y)
instruction i1 "ops::append" append(x, mut cache)
buffer b0 @x activation f32[1, 1]
buffer b1 @cache state f32[2, 1]
buffer b2 @y output f32[1, 1]
task t0: fill() -> (b0[.., ..]) rows 0..1
task t1: fill() -> (b0[.., ..]) rows 0..1 wanted
task t2: append(b0[.., ..], mut b1[pos, ..]) rows 0..1
task t3: fill() -> (b2[.., ..]) rows 0..1
worker w0: t0 t1 t2 t3"#;
    let verdict = judge(text);
    assert!(matches!(verdict, Verdict::Unsafe(_, Fault::Value { buffer: 1 })), "{verdict}");
    assert_eq!(verifier(text), ["AMK0804"]);
    assert_eq!(judge(&text.replace(" wanted", "")), Verdict::Safe);
}

/// A value goes from worker to worker in packets, and so does the order of a state behind it.
const PACKETS: &str = r#"program @packets
positions 4
rows 2
instruction i0 "ops::append" append(mut cache) -> (y)
instruction i1 "ops::attend" attend(x, cache) -> (y)
buffer b0 @cache state f32[4, 1]
buffer b1 @x activation f32[2, 1] packet 1
buffer b2 @y output f32[2, 1]
task t0: append(mut b0[pos..pos+2, ..]) -> (b1[.., ..]) rows 0..2
task t1: attend(b1[.., ..], b0[0..pos+2, ..]) -> (b2[.., ..]) rows 0..2
worker w0: t0
worker w1: t1"#;

/// The same, each row in a task of its own; only row 1 reads its packet.
const PACKETS_OF_ROW_1: &str = r#"program @packets
positions 4
rows 2
instruction i0 "ops::append" append(mut cache) -> (y)
instruction i1 "ops::attend" attend(x, cache) -> (y)
instruction i2 "ops::read" read(cache) -> (y)
buffer b0 @cache state f32[4, 1]
buffer b1 @x activation f32[2, 1] packet 1
buffer b2 @y output f32[2, 1]
task t0: append(mut b0[pos, ..]) -> (b1[0..1, ..]) rows 0..1
task t1: append(mut b0[pos+1, ..]) -> (b1[1..2, ..]) rows 1..2
task t2: attend(b1[1..2, ..], b0[0..pos+2, ..]) -> (b2[1..2, ..]) rows 1..2
task t3: read(b0[0..pos+1, ..]) -> (b2[0..1, ..]) rows 0..1
worker w0: t0 t1
worker w1: t2 t3"#;

#[test]
fn packets_order_by_the_row_that_every_step_has() {
    assert_eq!(judge(PACKETS), Verdict::Safe);
    assert_eq!(verifier(PACKETS), [""; 0]);
    // Only the second row waits for packets: a step of one row is a race.
    let verdict = judge(PACKETS_OF_ROW_1);
    assert!(matches!(verdict, Verdict::Unsafe(..)), "{verdict}");
    assert!(!verifier(PACKETS_OF_ROW_1).is_empty());
    // Where row 0 is not wanted, its packets are not waited for. Nothing goes wrong here, as all
    // rows have one writer; but that is not looked at.
    let wanted = PACKETS.replace("-> (b2[.., ..]) rows 0..2", "-> (b2[.., ..]) rows 0..2 wanted");
    assert_eq!(judge(&wanted), Verdict::Safe);
    assert!(!verifier(&wanted).is_empty());
}

#[test]
fn packets_that_move_are_refused() {
    let text =
        PACKETS.replace("activation f32[2, 1]", "activation f32[2, 8]").replace("b1[.., ..]", "b1[.., pos..pos+1]");
    assert_eq!(verifier(&text), ["AMK0801"]);
}

/// Steps of several sequences in which each random program is judged.
const STEPS: usize = 16;

/// Whether a safe program is rejected for a reason in the head comment.
fn is_known(cause: &str) -> bool {
    let known = ["AMK0306", "AMK0801 Rows SharedBytes", "AMK0802 OtherPositions", "AMK0804", "AMK0805"];
    cause.ends_with(LONGER) || cause.ends_with(LATER) || known.iter().any(|known| cause.starts_with(known))
}

#[test]
fn every_step_of_random_programs() {
    let tally = Tally::run(codes, 1, 0..3_000, STEPS);
    let total = tally.total();
    for difference in tally.differences.iter().filter(|difference| difference.codes.is_empty()) {
        let text = text::print(&difference.program);
        println!("program {}: {}\n{text}", difference.number, difference.oracle);
    }
    let unknown: Vec<&String> = tally.rejects.keys().filter(|cause| !is_known(cause)).collect();
    assert!(unknown.is_empty() && total.undecided == 0, "safe, and rejected: {unknown:?}");
    // Many are safe, and many are not; and nothing that lowering makes is rejected without need.
    let Count { programs, unsafe_programs, accepted, .. } = total;
    assert!(unsafe_programs * 5 > programs && accepted * 4 > programs, "{total}");
    let lowered = tally.changes[&Change::Lowered];
    assert!(lowered.accepted * 2 > lowered.programs && lowered.programs > 200, "{lowered}");
    assert_eq!(lowered.false_rejects, 0);
    for change in Change::ROWS {
        assert!(tally.changes[&change].unsafe_programs > 0, "no unsafe program of {change:?}");
    }
    assert!(tally.accepts.is_empty(), "unsafe, and accepted: {:?}", tally.accepts);
}

/// The comparison detects a verifier that forgets one of the rules of rows, or the order of tasks.
#[test]
fn a_wrong_verifier_is_found_out() {
    let verifiers: [(&str, Verifier); 4] = [
        ("AMK0802", |program| codes(program).into_iter().filter(|code| code != "AMK0802").collect()),
        ("AMK0803", |program| codes(program).into_iter().filter(|code| code != "AMK0803").collect()),
        ("AMK0804", |program| codes(program).into_iter().filter(|code| code != "AMK0804").collect()),
        ("AMK03", |program| codes(program).into_iter().filter(|code| !code.starts_with("AMK03")).collect()),
    ];
    let right = Tally::run(codes, 2, 0..400, 4).total().false_accepts;
    for (forgotten, verifier) in verifiers {
        let found = Tally::run(verifier, 2, 0..400, 4).total().false_accepts;
        assert!(found > right + 5, "{forgotten}: {found}");
    }
}

/// The files say of programs with rows what the oracle says, but for those that cut a dimension:
/// they are refused by rule.
#[test]
fn files_have_the_verdict_of_the_oracle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests/rows");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let program: String = text.lines().map(without_error).collect();
        let verdict = rows::judge_text(&program, STEPS);
        let by_rule = text.contains("; error: AMK0805");
        assert!(by_rule || verdict.is_safe() != text.contains("; error: "), "{}: {verdict}", file.display());
    }
}

fn without_error(line: &str) -> String {
    line.split("; error: ").next().unwrap_or_default().to_owned() + "\n"
}
