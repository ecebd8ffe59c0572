use super::*;
use amk_ir::text::parse;

/// Two workers: each computes a half of `h` from `x`, then a half of `y` from all of `h`.
const PROGRAM: &str = "program @two
instruction i0 \"k::product\" product(x, w) -> (y)
op o0 \"project\"
op o1 \"attend 3\"
buffer b0 @x input f32[32]
buffer b1 @w.layers[3].attn.q weight bf16[16, 32]
buffer b2 @h activation f32[16] packet 1
buffer b3 @w.out weight bf16[8, 16]
buffer b4 @y output f32[8]
task t0 o0: product(b0[..], early b1[0..8, ..]) -> (b2[0..8])
task t1 o0: product(b0[..], early b1[8..16, ..]) -> (b2[8..16])
task t2 o1: product(b2[..], b3[0..4, ..]) -> (b4[0..4])
task t3 o1: product(b2[..], b3[4..8, ..]) -> (b4[4..8])
worker w0: t0 t2
worker w1: t1 t3
";

/// Clocks of worker 0 run at 2 GHz, those of worker 1 at 1 GHz; both begin at nanosecond 6000.
fn traced() -> (Program, Vec<u64>) {
    let records = [
        // start, inputs, product, gathered, end, starved, late, timer at the start, full, landing,
        // paced, issued
        [3000, 3000, 3400, 3500, 3600, 100, 0, 6000, 8, 6, 4, 2800],
        [3620, 4600, 4800, 4900, 5000, 0, 40, 6310, 2, 0, 0, 3000],
        [1000, 1000, 1500, 1600, 1700, 0, 0, 6000, 0, 0, 0, 900],
        [1720, 0, 0, 0, 1730, 0, 0, 6720, 0, 0, 0, 950],
    ];
    let clocks = [[5200, 7100], [2400, 7400]]; // at the end, with the timer
    let words = records.iter().flatten().chain(clocks.iter().flatten()).copied().collect();
    (parse(PROGRAM).expect("the program should be read"), words)
}

#[test]
fn clocks_of_workers_become_nanoseconds_of_the_step() {
    let (program, words) = traced();
    assert_eq!(words.len(), super::words(&program));
    let trace = Trace::decode(&program, 7, &words).expect("a trace");
    assert_eq!(trace.ops, ["project q", "attend", "?"]);
    let seen: Vec<_> =
        trace.tasks.iter().map(|task| (task.worker, task.op, task.start, task.ready(), task.end)).collect();
    // Both workers start 1000 ns after the beginning.
    assert_eq!(
        seen,
        [(0, 0, 0.0, 0.0, 300.0), (0, 1, 310.0, 800.0, 1000.0), (1, 0, 0.0, 0.0, 700.0), (1, 1, 720.0, 720.0, 730.0),]
    );
    let first = &trace.tasks[0];
    assert_eq!((first.layer, first.bytes, first.writes.as_str()), (Some(3), 512, "h[0..8]"));
    assert_eq!((first.starved, first.loader), (50.0, LoaderWaits { full: 4.0, landing: 3.0, paced: 2.0 }));
    assert_eq!(trace.step(), 1000.0);
}

#[test]
fn a_record_without_stamps_is_no_trace() {
    let (program, mut words) = traced();
    words[4] = 0;
    assert_eq!(Trace::decode(&program, 7, &words), None);
    assert_eq!(Trace::decode(&program, 7, &words[..30]), None);
}

#[test]
fn the_critical_path_is_the_step() {
    let (program, words) = traced();
    let summary = Trace::decode(&program, 7, &words).expect("a trace").summary(&program);
    // t2 waited for t1 on the other worker (its end at 700, here at 800), not for t0 before it.
    let [project, attend] = &summary.ops[..] else { panic!("{summary:?}") };
    assert_eq!(attend.critical, Parts { wait: 120.0, compute: 80.0, gather: 50.0, epilogue: 50.0, ..Parts::default() });
    assert_eq!(project.critical, Parts { compute: 500.0, gather: 100.0, epilogue: 100.0, ..Parts::default() });
    assert_eq!(project.critical.total() + attend.critical.total(), summary.step);
    // t3 had nothing to do: it is not in the medians.
    assert_eq!((attend.tasks, attend.median.wait), (1, 510.0));
    assert_eq!(project.median.starved, 50.0);
    assert_eq!(summary.loader, LoaderWaits { full: 2.5, landing: 1.5, paced: 1.0 });
}

#[test]
fn the_timeline_is_chrome_json() {
    let (program, words) = traced();
    let trace = Trace::decode(&program, 7, &words).expect("a trace");
    let mut text = Vec::new();
    trace.write_chrome(&mut text, "two").expect("it should be written");
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    let golden = include_str!("golden.json");
    assert_eq!(text.lines().count(), golden.lines().count());
    // The order of fields depends on the features that other crates ask of the JSON library.
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&text), value(golden));
}

#[test]
fn a_clock_that_changes_its_rate_is_read_by_a_timer_that_ticks() {
    // 2 GHz for 100 us, then 1.96 GHz; a sample each 1.3 us, of a timer that ticks every 32 ns. A
    // store delays some readings of it.
    let clock_at = |ns: f64| if ns < 1e5 { 2.0 * ns } else { 2e5 + 1.96 * (ns - 1e5) };
    let samples: Vec<_> = (0..160)
        .map(|i| {
            let (ns, stall) = (f64::from(i) * 1303.0, if i % 3 == 0 { 400.0 } else { 0.0 });
            (7000 + clock_at(ns) as u64, 5000 + ((ns + stall) / 32.0) as u64 * 32)
        })
        .collect();
    let clock = Clock::new(&samples, 5000).expect("a clock");
    for ns in (20_000..190_000).step_by(7) {
        let read = clock.at(7000 + clock_at(f64::from(ns)) as u64);
        // A tick at most; where the rate changes, it goes straight for 20 us.
        let most = if (70_000..130_000).contains(&ns) { 200.0 } else { 24.0 };
        assert!((read + 16.0 - f64::from(ns)).abs() < most, "{ns}: {read}");
    }
}
