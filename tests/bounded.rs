//! Programs that once took minutes or gigabytes to check: each is decided soon, one way or the
//! other.

use amk_ir::text::parse;
use amk_ir::verify::verify;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Far more than any of them takes, and far less than they took.
const SOON: Duration = Duration::from_secs(5);

/// Accepted.
const NONE: [u16; 0] = [];

/// Checks a program; its codes, or nothing where it is accepted.
fn decide(text: &str) -> Vec<u16> {
    let program = parse(text).unwrap();
    let (name, start) = (program.name.clone(), Instant::now());
    let rejected = verify(program).err();
    let took = start.elapsed();
    assert!(took < SOON, "{name} took {took:?}");
    let violations = rejected.iter().flat_map(|rejected| &rejected.violations);
    let mut codes: Vec<u16> = violations.map(|violation| violation.code().0).collect();
    codes.dedup();
    assert_eq!(rejected.is_some_and(|rejected| rejected.is_too_large()), codes == [114]);
    codes
}

fn lines<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.fold(String::new(), |mut text, item| {
        let _ = writeln!(text, "{item}");
        text
    })
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// A mixture of experts: each token is packed for its experts, and its results are added up.
fn mixture(tokens: u32, top_k: u32, experts: u32) -> String {
    let rows = tokens * top_k;
    let each = |item: &dyn Fn(u32) -> String| list((0..top_k).map(item));
    let pack = |t: u32| {
        let writes = each(&|k| format!("b2[row r0[{t}, {k}], ..]"));
        let signals = each(&|k| format!("e1[r0[{t}, {k}]]"));
        format!("pack(b0[{t}, ..], b1[..]) -> ({writes}) wait e0 >= 1 signal {signals}").replace("b1[..]", "b1[.., ..]")
    };
    let expert = |e: u32| {
        let (packed, made) = (format!("b2[rows r0[{e}], ..]"), format!("b3[rows r0[{e}], ..]"));
        format!("expert({packed}, b1[.., ..]) -> ({made}) wait e0 >= 1, e1[{e}] >= count r0 signal e2[{e}]")
    };
    let sum = |t: u32| {
        let reads = each(&|k| format!("b3[row r0[{t}, {k}], ..]"));
        let waits = each(&|k| format!("e2[r0[{t}, {k}]] >= 1"));
        format!("sum(b1[.., ..], {reads}) -> (b4[{t}, ..]) wait e0 >= 1, {waits}")
    };
    let tasks = (0..tokens).map(pack).chain((0..experts).map(expert)).chain((0..tokens).map(sum));
    let tasks = lines((1..).zip(tasks).map(|(n, task)| format!("task t{n}: {task}")));
    let queues = lines((0..8).map(|worker| {
        let own = (0..1 + 2 * tokens + experts).filter(|task| task % 8 == worker);
        format!("worker w{worker}: {}", own.map(|task| format!("t{task}")).collect::<Vec<_>>().join(" "))
    }));
    let (packs, sums) = (each(&|k| format!("p{k}")), each(&|k| format!("y{k}")));
    format!(
        "program @mixture_{tokens}_{top_k}_{experts}
instruction i0 \"ops::router\" router() -> (r)
instruction i1 \"ops::pack\" pack(x, r) -> ({packs})
instruction i2 \"ops::expert\" expert(p, r) -> (y)
instruction i3 \"ops::sum\" sum(r, {sums}) -> (o)
buffer b0 @x input f32[{tokens}, 8]
buffer b1 @topk activation u32[{tokens}, {top_k}]
buffer b2 @packed activation f32[{rows}, 8]
buffer b3 @made activation f32[{rows}, 8]
buffer b4 @out output f32[{tokens}, 8]
event e0 @routed
event e1 @packed_for[{experts}]
event e2 @done[{experts}]
table r0 @topk b1 routes {experts} distinct
task t0: router() -> (b1[.., ..]) signal e0
{tasks}{queues}"
    )
}

#[test]
fn mixtures_of_experts_are_accepted() {
    for (tokens, top_k, experts) in [(2, 2, 4), (32, 8, 64), (64, 8, 128)] {
        assert_eq!(decide(&mixture(tokens, top_k, experts)), NONE);
    }
    // One expert that does not wait for its rows.
    let racy = mixture(32, 8, 64).replace("e1[5] >= count r0", "e1[6] >= count r0");
    assert!(decide(&racy).contains(&302));
}

#[test]
fn tables_take_no_memory_for_their_entries() {
    let buffers = lines((0..14).map(|n| format!("buffer b{n} @t{n} activation u32[16777216]")));
    let tables = lines((0..14).map(|n| format!("table r{n} @t{n} b{n} routes 16777216")));
    assert_eq!(decide(&format!("program @tables\n{buffers}{tables}")), NONE);
    let signals = list((0..12).map(|k| format!("e1[r0[{k}]]")));
    let text = format!(
        "program @signals
instruction i0 \"ops::router\" router() -> (r)
instruction i1 \"ops::use\" use(r)
buffer b0 @topk activation u32[12]
event e0 @routed
event e1 @named[16777216]
table r0 @topk b0 routes 16777216
task t0: router() -> (b0[..]) signal e0
task t1: use(b0[..]) wait e0 >= 1 signal {signals}
worker w0: t0 t1"
    );
    assert_eq!(decide(&text), NONE);
}

#[test]
fn clocks_of_many_workers_and_counters_are_bounded() {
    const WORKERS: u32 = 15_000;
    let stage = |s: u32, w: u32| match s {
        0 => format!("task t{w}: fill() -> (b0[{w}]) signal e0[{w}]"),
        _ => {
            let (before, other) = (s - 1, (w + 1) % WORKERS);
            let task = s * WORKERS + w;
            format!(
                "task t{task}: map(b{before}[{other}]) -> (b{s}[{w}]) wait e{before}[{other}] >= 1 signal e{s}[{w}]"
            )
        }
    };
    let tasks = lines((0..4).flat_map(|s| (0..WORKERS).map(move |w| stage(s, w))));
    let buffers = lines((0..4).map(|s| format!("buffer b{s} @b{s} activation f32[{WORKERS}]")));
    let events = lines((0..4).map(|s| format!("event e{s} @e{s}[{WORKERS}]")));
    let queue = |w: u32| (0..4).map(|s| format!("t{}", s * WORKERS + w)).collect::<Vec<_>>().join(" ");
    let queues = lines((0..WORKERS).map(|w| format!("worker w{w}: {}", queue(w))));
    let instructions = "instruction i0 \"ops::fill\" fill() -> (y)\ninstruction i1 \"ops::map\" map(x) -> (y)\n";
    assert_eq!(decide(&format!("program @wide\n{instructions}{buffers}{events}{tasks}{queues}")), [114]);
}

/// A state of many rows that shares its last bytes with an activation, and tasks.
fn shared(positions: u32, steps: &str, instructions: &str, tasks: &str, workers: &str) -> String {
    let (rows, place) = (positions + 64, (positions + 61) * 32);
    format!(
        "program @shared
positions {positions}
steps {steps}
{instructions}
buffer b0 @s activation f32[{rows}, 8] at 0
buffer b1 @x activation f32[{rows}, 8] at {place}
{tasks}{workers}"
    )
}

#[test]
fn moving_tiles_of_shared_bytes_are_bounded() {
    for count in [4, 60] {
        let operands = list((0..count).map(|n| format!("mut b{}[pos+{n}, 0..4]", n % 2)));
        let names = list((0..count).map(|n| format!("mut a{n}")));
        let call = format!("instruction i0 \"ops::change\" change({names})");
        let fills = "\ninstruction i1 \"ops::fill\" fill() -> (y)";
        let tasks =
            format!("task t0: fill() -> (b0[.., ..])\ntask t1: fill() -> (b1[.., ..])\ntask t2: change({operands})\n");
        let text = shared(4096, "barrier", &format!("{call}{fills}"), &tasks, "worker w0: t0 t1 t2");
        assert_eq!(decide(&text), NONE);
    }
    let instructions = "instruction i0 \"ops::use\" use(x)\ninstruction i1 \"ops::fill\" fill() -> (y)";
    let reads = (0..40).map(|n| format!("task t{n}: use(early b0[pos+{n}, ..])"));
    let writes = (0..40).map(|n| format!("task t{}: fill() -> (b1[pos+{n}, ..])", 40 + n));
    let queue = (0..80).map(|n| format!("t{n}")).collect::<Vec<_>>().join(" ");
    let text = shared(4096, "barrier", instructions, &lines(reads.chain(writes)), &format!("worker w0: {queue}"));
    assert!(!decide(&text).is_empty());
    for each in [2, 4] {
        let left = (0..each).map(|n| format!("task t{n}: fill() -> (b0[pos+{n}, 0..4])"));
        let right = (0..each).map(|n| format!("task t{}: fill() -> (b1[pos+{n}, 4..8])", each + n));
        let queues = lines((0..2 * each).map(|n| format!("worker w{n}: t{n}")));
        assert!(!decide(&shared(4000, "pipelined", instructions, &lines(left.chain(right)), &queues)).is_empty());
    }
}

#[test]
fn tiles_that_pass_each_other_at_many_positions_are_bounded() {
    const POSITIONS: u32 = 400_000;
    let (fixed, moving) = (126, 250);
    let size = (POSITIONS + 7 * moving).next_multiple_of(fixed);
    let tile = size / fixed;
    let writes = (0..fixed).map(|n| format!("task t{n}: fill() -> (b0[{}..{}])", n * tile, (n + 1) * tile));
    let reads = (0..moving).map(|n| format!("task t{}: use(b0[pos+{}])", fixed + n, 7 * n));
    let queue = (0..fixed + moving).map(|n| format!("t{n}")).collect::<Vec<_>>().join(" ");
    let tasks = lines(writes.chain(reads));
    for packet in ["", " packet 1"] {
        let text = format!(
            "program @tiles
positions {POSITIONS}
steps pipelined
instruction i0 \"ops::use\" use(x)
instruction i1 \"ops::fill\" fill() -> (y)
buffer b0 @x activation f32[{size}]{packet}
{tasks}worker w0: {queue}"
        );
        assert_eq!(decide(&text), [114]);
    }
}

/// Two bounds that pass each other are followed over as many steps as any packet has slots.
#[test]
fn tiles_that_pass_each_other_are_bounded_beside_packets_of_many_slots() {
    const POSITIONS: u32 = 400_000;
    let (buffers, tiles) = (12, 124);
    let size = (POSITIONS + 4 * tiles).next_multiple_of(tiles + 1);
    let declared =
        |kind: &str| lines((0..buffers).map(|n| format!("buffer b{n} @b{n} {kind} f32[{size}, {size}, {size}]")));
    let reads = (0..buffers).flat_map(|buffer| {
        (0..2 * tiles).map(move |n| {
            let lo = if n < tiles { format!("pos+{}", 3 * n) } else { (size / (tiles + 1) * (n - tiles)).to_string() };
            format!("task t{}: use(b{buffer}[{lo}, {lo}, {lo}])", buffer * 2 * tiles + n)
        })
    });
    let (reads, count) = (lines(reads), buffers * 2 * tiles);
    let queue = (0..=count).map(|n| format!("t{n}")).collect::<Vec<_>>().join(" ");
    let text = |kind| {
        let declared = declared(kind);
        format!(
            "program @{kind}s
positions {POSITIONS}
steps pipelined
instruction i0 \"ops::use\" use(x)
instruction i1 \"ops::fill\" fill() -> (y)
{declared}buffer b{buffers} @x activation f32[4] packet 255
{reads}task t{count}: fill() -> (b{buffers}[..])
worker w0: {queue}"
        )
    };
    assert_eq!(decide(&text("state")), NONE);
    assert_eq!(decide(&text("activation")), [114]);
}

/// Reads of a state conflict with its writes alone.
#[test]
fn reads_of_a_state_by_rows_are_bounded() {
    const TASKS: u32 = 2_000;
    let calls = vec!["use(b0[0..pos+2, ..]) rows 0..2"; 100].join(" then ");
    let tasks = lines((0..TASKS).map(|n| format!("task t{}: {calls} wait e0 >= 1", n + 1)));
    let queue = (0..=TASKS).map(|n| format!("t{n}")).collect::<Vec<_>>().join(" ");
    let text = format!(
        "program @reads
positions 64
rows 2
instruction i0 \"ops::append\" append(mut s)
instruction i1 \"ops::use\" use(x)
buffer b0 @s state f32[64, 4]
event e0 @appended
task t0: append(mut b0[pos..pos+2, ..]) rows 0..2 signal e0
{tasks}worker w0: {queue}"
    );
    assert_eq!(decide(&text), NONE);
}

/// Each task has a counter, and each counter a clock of the thousands of chains before it.
#[test]
fn chains_of_many_tickets_are_named() {
    let (width, depth) = (2000, 12);
    let task = |layer: usize, n: usize| {
        let of_before = |d| format!("e{}[{}] >= 1", layer - 1, (n + d) % width);
        let waits = (0..3).filter(|_| layer > 0).map(of_before).collect::<Vec<_>>().join(", ");
        let wait = if layer > 0 { " wait " } else { "" };
        format!("task t{}:{wait}{waits} signal e{layer}[{n}]", 1 + layer * width + n)
    };
    let text = format!(
        "program @tickets\npositions 1\ninstruction i0 \"ops::fill\" fill() -> (y)\nbuffer b0 @y output f32[4]\n\
         {}task t0: fill() -> (b0[..])\n{}ticket 8: {}\n",
        lines((0..depth).map(|layer| format!("event e{layer} @e{layer}[{width}]"))),
        lines((0..depth).flat_map(|layer| (0..width).map(move |n| task(layer, n)))),
        (0..=width * depth).map(|task| format!("t{task}")).collect::<Vec<_>>().join(" "),
    );
    assert_eq!(decide(&text), [114]);
    let rejected = verify(parse(&text).unwrap()).map(drop).unwrap_err().to_string();
    assert!(rejected.contains(" chains of tickets take too much memory"), "{rejected}");
    assert!(rejected.contains("use static queues"), "{rejected}");
}
