//! The oracle on small programs whose verdict is known, by hand.

use amk_tests::generate::{self, Rng, Size};
use amk_tests::oracle::{self, Launch, Verdict, judge};
use amk_tests::soundness::Family;

/// A program of copies: `t0` writes `x[0..2]`, `t1` writes `x[2..4]`, `t2` reads the region `read`
/// and writes `y`.
fn two_producers(steps: &str, producers: [&str; 2], read: &str, queues: &str) -> Verdict {
    judge(&format!(
        r#"program @two
steps {steps}
instruction i0 "k::fill" fill() -> (y)
instruction i1 "k::copy" copy(x) -> (y)
buffer b0 @x activation f32[4]
buffer b1 @y output f32[2]
event e0 @done[2]
event e1 @read
task t0: fill() -> (b0[0..2]) {}
task t1: fill() -> (b0[2..4]) {}
task t2: copy({read}
{queues}
"#,
        producers[0], producers[1]
    ))
}

const EACH: [&str; 2] = ["signal e0[0]", "signal e0[1]"];
const SHARED: [&str; 2] = ["signal e0[0]", "signal e0[0]"];
const THREE: &str = "worker w0: t0\nworker w1: t1\nworker w2: t2";

#[track_caller]
fn expect(verdict: Verdict, kind: &str) {
    assert_eq!(verdict.kind(), kind, "{verdict}");
}

#[test]
fn all_joined_is_safe() {
    expect(two_producers("barrier", SHARED, "b0[..]) -> (b1[..]) wait e0[0] >= 2", THREE), "safe");
    expect(two_producers("barrier", EACH, "b0[..]) -> (b1[..]) wait e0[0] >= 1, e0[1] >= 1", THREE), "safe");
}

#[test]
fn disjoint_tile_needs_only_its_producer() {
    expect(two_producers("barrier", EACH, "b0[0..2]) -> (b1[..]) wait e0[0] >= 1", THREE), "safe");
    expect(two_producers("barrier", EACH, "b0[1..3]) -> (b1[..]) wait e0[0] >= 1", THREE), "race");
    expect(two_producers("barrier", EACH, "b0[2..4]) -> (b1[..]) wait e0[0] >= 1", THREE), "race");
}

#[test]
fn partial_wait_is_a_race_unless_the_producers_are_ordered() {
    let first = "b0[0..2]) -> (b1[..]) wait e0[0] >= 1";
    expect(two_producers("barrier", SHARED, first, THREE), "race");
    expect(two_producers("barrier", SHARED, first, "worker w0: t0 t1\nworker w1: t2"), "safe");
    expect(two_producers("barrier", SHARED, first, "worker w0: t1 t0\nworker w1: t2"), "race");
}

#[test]
fn queues_and_waits_together_deadlock() {
    let wait = "b0[..]) -> (b1[..]) wait e0[0] >= 2";
    expect(two_producers("barrier", SHARED, wait, "worker w0: t2 t0\nworker w1: t1"), "deadlock");
    expect(two_producers("barrier", SHARED, wait, "ticket 3: t2 t0 t1"), "deadlock");
    expect(two_producers("barrier", SHARED, wait, "ticket 3: t1 t0 t2"), "safe");
}

#[test]
fn pipelined_producers_must_not_overtake_the_reader() {
    let wait = "b0[..]) -> (b1[..]) wait e0[0] >= 2";
    expect(two_producers("pipelined", SHARED, wait, THREE), "race");
    expect(two_producers("pipelined", SHARED, wait, "worker w0: t0 t1 t2"), "safe");
    let closed = ["signal e0[0]", "wait e1 >= 1 signal e0[0]"];
    expect(two_producers("pipelined", closed, wait, THREE), "structure");
}

#[test]
fn structure_is_checked() {
    expect(two_producers("barrier", SHARED, "b0[0..5]) -> (b1[..]) wait e0[0] >= 2", THREE), "structure");
    expect(two_producers("barrier", SHARED, "b0[..]) -> (b1[..]) wait e0[0] >= 3", THREE), "structure");
    expect(two_producers("barrier", SHARED, "b0[..]) -> (b1[..]) wait e0[2] >= 1", THREE), "structure");
    expect(two_producers("barrier", SHARED, "b0[..]) -> (b1[..]) wait e0[0] >= 2", "worker w0: t0 t1"), "structure");
    expect(two_producers("barrier", SHARED, "b0[..], b0[..]) -> (b1[..]) wait e0[0] >= 2", THREE), "structure");
    expect(two_producers("barrier", SHARED, "b0[..] -> (b1[..])", THREE), "text");
}

#[test]
fn memory_is_checked_in_eager_order() {
    expect(two_producers("barrier", SHARED, "b1[..]) -> (b0[0..2]) wait e0[0] >= 2", THREE), "uninitialised");
    expect(two_producers("barrier", SHARED, "b0[..]) -> (b1[0..1]) wait e0[0] >= 2", THREE), "unwritten");
    expect(two_producers("barrier", SHARED, "b0[..]) -> (b0[0..2]) wait e0[0] >= 2", THREE), "overlap");
}

/// `t0` writes `b`, `t1` writes `c` over its second element, `t2` reads the region `last`.
fn arena(last: &str) -> Verdict {
    judge(&format!(
        r#"program @arena
instruction i0 "k::fill" fill() -> (y)
instruction i1 "k::copy" copy(x) -> (y)
buffer b0 @b activation f32[2] at 16
buffer b1 @c activation f16[2] at 20
buffer b2 @y output f32[2]
task t0: fill() -> (b0[..])
task t1: fill() -> (b1[..])
task t2: copy({last}) -> (b2[..])
worker w0: t0 t1 t2
"#
    ))
}

#[test]
fn aliases_clobber() {
    expect(arena("b1[..]"), "safe");
    expect(arena("b0[0..1]"), "safe");
    expect(arena("b0[..]"), "clobbered");
}

/// A cache of a row a position; `t0` appends, `t1` attends to rows that `read` names.
fn cache(append: &str, read: &str, queues: &str) -> Verdict {
    judge(&format!(
        r#"program @cache
positions 3
steps pipelined
instruction i0 "k::append" append() -> (cache) {{ pos }}
instruction i1 "k::attend" attend(cache) -> (y)
buffer b0 @cache state f32[3, 2]
buffer b1 @y output f32[1]
event e0 @appended
task t0: append() -> (b0[{append}, ..]) {{pos}} signal e0
task t1: attend(b0[{read}, ..]) -> (b1[..]) wait e0 >= 1
{queues}
"#
    ))
}

#[test]
fn rows_of_other_positions_do_not_conflict() {
    expect(cache("pos", "0..pos+1", "worker w0: t0\nworker w1: t1"), "safe");
    expect(cache("pos", "..", "worker w0: t0\nworker w1: t1"), "race");
    expect(cache("0", "0", "worker w0: t0\nworker w1: t1"), "race");
    expect(cache("0", "0", "worker w0: t0 t1"), "safe");
    expect(cache("pos+1", "0", "worker w0: t0 t1"), "structure");
}

/// Packets from `t0` to `t1` and on to `t2`, with `slots` copies.
fn packet(slots: u32, queues: &str) -> Verdict {
    judge(&format!(
        r#"program @packet
steps pipelined
instruction i0 "k::fill" fill() -> (y)
instruction i1 "k::copy" copy(x) -> (y)
buffer b0 @x activation f32[1] packet {slots}
buffer b1 @r activation f32[1] packet {slots}
buffer b2 @y output f32[1]
task t0: fill() -> (b0[..])
task t1: copy(b0[..]) -> (b1[..])
task t2: copy(b1[..]) -> (b2[..])
{queues}
"#
    ))
}

#[test]
fn a_slot_is_written_again_only_after_its_readers() {
    expect(packet(1, "worker w0: t0 t2\nworker w1: t1"), "safe");
    expect(packet(1, "worker w0: t0\nworker w1: t1 t2"), "race");
    expect(packet(2, "worker w0: t0\nworker w1: t1 t2"), "race");
    expect(packet(1, "worker w0: t2 t0\nworker w1: t1"), "deadlock");
}

#[test]
fn signals_of_later_steps_do_not_stand_in_for_this_one() {
    let program = r#"program @ahead
steps pipelined
instruction i0 "k::fill" fill() -> (y)
instruction i1 "k::copy" copy(x) -> (y)
buffer b0 @s activation f32[1]
buffer b1 @x activation f32[1] packet 2
buffer b2 @y output f32[1]
event e0 @done
task t0: fill() -> (b0[..]) signal e0
task t1: fill() -> (b1[..]) signal e0
task t2: copy(b1[..]) -> (b2[..]) wait e0 >= WANT
worker w0: t0
worker w1: t1 t2
"#;
    // Nothing reads t0's writes, so its lead of several steps is harmless.
    expect(judge(&program.replace("WANT", "2")), "safe");
    let reader = program.replace("copy(x)", "copy(x, s)").replace("copy(b1[..])", "copy(b1[..], b0[..])");
    expect(judge(&reader.replace("WANT", "2")), "race");
}

#[test]
fn locals_live_in_one_task() {
    let program = r#"program @fused
instruction i0 "k::fill" fill() -> (y)
instruction i1 "k::copy" copy(x) -> (y)
buffer b0 @h local f32[2]
buffer b1 @y output f32[2]
task t0: fill() -> (b0[WRITTEN]) then copy(b0[..]) -> (b1[..])
ticket 2: t0
"#;
    expect(judge(&program.replace("WRITTEN", "..")), "safe");
    expect(judge(&program.replace("WRITTEN", "0..1")), "uninitialised");
}

/// Tasks as one event, or starts and ends apart with a memory of values: both see the same races
/// and deadlocks.
#[test]
fn whole_tasks_show_all_that_starts_and_ends_show() {
    let mut counts = [0; 4];
    for n in 0..6_000 {
        let program = generate::program(&mut Rng::new(7, n), Size::SMALL);
        let source = oracle::read::read(&amk_ir::text::print(&program)).expect("the printer's text can be read");
        let Some(cells) = oracle::cells::Cells::new(&source) else { continue };
        let steps = if source.pipelined && source.positions != 2 { 2 } else { 1 };
        if oracle::structure::check(&source).is_err()
            || source.tasks.len() * steps as usize > 9
            || oracle::eager::run(&source, &cells, 0, steps).is_err()
        {
            continue;
        }
        let launch = Launch::new(&source, &cells, 0, steps).expect("few tasks");
        let found = oracle::fine::explore(&launch);
        let told = oracle::Explorer::default().explore(&launch);
        let text = || amk_ir::text::print(&program);
        match told.as_ref().err().map(oracle::Reason::kind) {
            None => assert_eq!(found, oracle::fine::Findings::default(), "{}", text()),
            Some("race") => assert!(found.race, "{}", text()),
            Some(_) => assert!(found.deadlock, "{}", text()),
        }
        assert!(found.race || !found.wrong_value, "{}", text());
        for (count, seen) in counts.iter_mut().zip([told.is_ok(), found.race, found.wrong_value, found.deadlock]) {
            *count += u32::from(seen);
        }
    }
    let [safe, race, wrong_value, deadlock] = counts;
    println!("safe {safe}, race {race}, wrong value {wrong_value}, deadlock {deadlock}");
    assert!(safe > 100 && race > 100 && wrong_value > 100 && deadlock > 20, "{counts:?}");
}

/// One execution a task instance, or every interleaving of each launch on its own: the same
/// verdicts.
#[test]
fn keeping_one_task_back_shows_every_race() {
    let (mut explorer, mut counts) = (oracle::Explorer::default(), [0; 3]);
    for (family, n) in Family::small().into_iter().flat_map(|family| (0..1_000).map(move |n| (family, n))) {
        let (_, program) = amk_tests::soundness::draw(family, 11, n);
        let text = amk_ir::text::print(&program);
        let source = oracle::read::read(&text).expect("the printer's text can be read");
        let horizon = oracle::Horizon { steps: 1 };
        let steps = if source.pipelined { horizon.of(&source) } else { 1 };
        if source.tasks.len() as u64 * steps > 24 {
            continue;
        }
        let all = explorer.judge(&source, horizon);
        let one = oracle::withhold::judge(&source, horizon);
        assert!(all.is_safe() == one.is_safe(), "{all} but {one}\n{text}");
        for (count, kind) in counts.iter_mut().zip(["safe", "race", "deadlock"]) {
            *count += u32::from(all.kind() == kind);
        }
    }
    assert!(counts.iter().all(|&count| count > 200), "{counts:?}");
}

/// A wait that only a later step makes up for: the longest launch alone looks safe.
#[test]
fn a_launch_that_ends_early_can_deadlock() {
    let text = include_str!("corpus/deadlock_of_a_short_launch.amk");
    assert_eq!(judge(text).kind(), "deadlock");
    let source = oracle::read::read(text).expect("it can be read");
    let cells = oracle::cells::Cells::new(&source).expect("it is small");
    let launch = |steps| Launch::new(&source, &cells, 0, steps).expect("few tasks");
    let found = |steps| oracle::Explorer::default().explore(&launch(steps)).err();
    assert_eq!([1, 2, 3].map(|steps| found(steps).map(|reason| reason.kind())), [None, Some("deadlock"), None]);
}
