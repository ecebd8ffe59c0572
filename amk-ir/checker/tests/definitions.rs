//! Hand-written certificates: the true ones are accepted, and each false one is refused for the
//! right reason.

use amk_checker::{Counter, Ill, Malformed, Missing, Refusal, check};
use amk_ir::certificate::{Certificate, Period, Proof, Trap};
use amk_ir::{Element, EventId, Program, Queues, TaskId, text};

const INSTRUCTIONS: &str = r#"
instruction i0 "k::fill" fill() -> (y)
instruction i1 "k::use" use(x)
instruction i2 "k::copy" copy(x) -> (y)
instruction i3 "k::bump" bump(mut x)
"#;

fn program(head: &str, body: &str) -> Program {
    text::parse(&format!("program @test\n{head}{INSTRUCTIONS}{body}")).expect("a program")
}

fn period(first: u32, last: u32) -> Period {
    Period { first, last }
}

/// The only element of an event tensor.
fn counter(event: u32) -> Element {
    Element { event: EventId(event), index: 0 }
}

fn trap(task: u32, horizon: u32, stuck: &[(u32, u32)]) -> Trap {
    Trap {
        from: 0,
        task: TaskId(task),
        horizon,
        stuck: stuck.iter().map(|&(task, step)| (TaskId(task), step)).collect(),
    }
}

/// A certificate without clocks and traps, whose order is the eager one.
fn plain(program: &Program) -> Certificate {
    let all = period(0, program.positions - 1);
    let chains = match &program.queues {
        Queues::Static(queues) => queues.clone(),
        Queues::Ticket { workers: 1, order } => vec![order.clone()],
        Queues::Ticket { .. } => Vec::new(),
    };
    let proof = Proof {
        starts: all,
        order: (0..program.tasks.len()).map(TaskId::from).collect(),
        chains,
        clocks: Vec::new(),
        steps: Vec::new(),
        mixed: Vec::new(),
        traps: Vec::new(),
    };
    Certificate { periods: vec![all], proofs: vec![proof] }
}

fn with(program: &Program, change: impl FnOnce(&mut Certificate, usize)) -> Result<(), Refusal> {
    let mut certificate = plain(program);
    change(&mut certificate, 0);
    check(program, &certificate)
}

/// Two producers of a buffer, and a consumer that waits for both.
fn joined() -> Program {
    let body = "buffer b0 @x activation f32[8]
buffer b1 @y output f32[8]
event e0 @done
task t0: fill() -> (b0[0..4]) signal e0
task t1: fill() -> (b0[4..8]) signal e0
task t2: copy(b0[..]) -> (b1[..]) wait e0 >= 2
worker w0: t0
worker w1: t1
worker w2: t2";
    program("", body)
}

fn joined_clocks(certificate: &mut Certificate) -> &mut Proof {
    let proof = &mut certificate.proofs[0];
    proof.clocks = vec![vec![], vec![1, 1]];
    proof.steps = vec![vec![0, 0, 1]];
    proof
}

#[test]
fn a_wait_for_all_signals_is_shown_by_clocks_or_traps() {
    let program = joined();
    let clocks = with(&program, |certificate, _| {
        joined_clocks(certificate);
    });
    assert_eq!(clocks, Ok(()));
    let traps = |traps: Vec<Trap>| with(&program, |certificate, n| certificate.proofs[n].traps = traps);
    assert_eq!(traps(vec![trap(0, 1, &[(2, 0)]), trap(1, 1, &[(2, 0)])]), Ok(()));
    assert!(matches!(traps(vec![trap(0, 1, &[(2, 0)])]), Err(Refusal::Unordered { .. })));
    let stuck = traps(vec![trap(0, 1, &[(1, 0), (2, 0)]), trap(1, 1, &[(2, 0)])]);
    assert!(matches!(stuck, Err(Refusal::NotStuck { stuck: TaskId(1), .. })), "{stuck:?}");
    let later = traps(vec![trap(0, 2, &[(2, 0), (2, 1)])]);
    assert!(matches!(later, Err(Refusal::Certificate(Ill::Stuck { step: 1, .. }))), "{later:?}");
    let own = traps(vec![trap(0, 1, &[(0, 0)])]);
    assert!(matches!(own, Err(Refusal::Certificate(Ill::Stuck { .. }))), "{own:?}");
}

#[test]
fn each_field_of_a_certificate_is_held_against_the_program() {
    let program = joined();
    let lie = |change: &dyn Fn(&mut Proof)| with(&program, |certificate, _| change(joined_clocks(certificate)));
    let is_clock = |refusal| matches!(refusal, Err(Refusal::Clock { task: TaskId(2), .. }));
    assert!(is_clock(lie(&|proof| proof.clocks[1] = vec![2, 1])));
    assert!(is_clock(lie(&|proof| proof.clocks[1] = vec![1, 1, 1])));
    let none = lie(&|proof| proof.clocks[1] = vec![1]);
    assert!(matches!(none, Err(Refusal::Unordered { .. })), "{none:?}");
    let early = lie(&|proof| proof.clocks[0] = vec![0, 0, 1]);
    assert!(matches!(early, Err(Refusal::Clock { .. })), "{early:?}");
    let swapped = lie(&|proof| proof.order.swap(1, 2));
    let signals = |refusal| matches!(refusal, Err(Refusal::NotEnabled { missing: Missing::Signals { .. }, .. }));
    assert!(signals(swapped));

    let ill = |change: &dyn Fn(&mut Proof), wanted: Ill| assert_eq!(lie(change), Err(Refusal::Certificate(wanted)));
    ill(&|proof| proof.order[1] = TaskId(0), Ill::Order);
    ill(&|proof| proof.order[1] = TaskId(9), Ill::Order);
    ill(&|proof| proof.order.truncate(2), Ill::Order);
    ill(&|proof| proof.chains.swap(0, 1), Ill::NotQueues);
    ill(&|proof| proof.chains.truncate(2), Ill::NotQueues);
    ill(&|proof| proof.clocks[1] = vec![0; 4], Ill::Clock(1));
    ill(&|proof| proof.steps[0][1] = 2, Ill::Step(0));
    ill(&|proof| proof.steps[0].truncate(2), Ill::Step(0));
    ill(&|proof| proof.mixed = vec![counter(1)], Ill::Mixed(Counter(counter(1))));
    ill(&|proof| proof.starts.last = 1, Ill::Starts);
    ill(&|proof| proof.traps = vec![trap(7, 1, &[(2, 0)])], Ill::Stuck { task: TaskId(7), stuck: TaskId(2), step: 0 });
    let nothing = check(&program, &Certificate::default());
    assert_eq!(nothing, Err(Refusal::Certificate(Ill::Periods)));
}

#[test]
fn a_partial_wait_shows_nothing_unless_signals_are_in_order() {
    let mut partial = joined();
    partial.tasks[2].waits[0].threshold = 1;
    let clocks = with(&partial, |certificate, _| {
        joined_clocks(certificate);
    });
    assert!(matches!(clocks, Err(Refusal::Clock { claimed: 1, shown: 0, .. })), "{clocks:?}");
    // In one queue the first signal is the first task's.
    let body = "buffer b0 @x activation f32[8]
event e0 @done
task t0: fill() -> (b0[..]) signal e0
task t1: signal e0
task t2: use(b0[..]) wait e0 >= 1
worker w0: t0 t1
worker w1: t2";
    let ordered = program("", body);
    let claim = |clock: Vec<u32>| {
        with(&ordered, |certificate, n| {
            certificate.proofs[n].clocks = vec![vec![], clock];
            certificate.proofs[n].steps = vec![vec![0, 0, 1]];
        })
    };
    assert_eq!(claim(vec![1]), Ok(()));
    assert!(matches!(claim(vec![2]), Err(Refusal::Clock { shown: 1, .. })));
}

/// A worker that goes on to the next step when the other has read what it wrote.
fn in_turns() -> (Program, Certificate) {
    let body = "buffer b0 @x activation f32[8]
buffer b1 @y output f32[8]
event e0 @written
event e1 @read
task t0: fill() -> (b0[..]) signal e0
task t1: copy(b0[..]) -> (b1[..]) wait e0 >= 1 signal e1
task t2: wait e1 >= 1
worker w0: t0 t2
worker w1: t1";
    let program = program("steps pipelined\n", body);
    let mut certificate = plain(&program);
    let proof = &mut certificate.proofs[0];
    proof.clocks = vec![vec![], vec![1], vec![0, 1], vec![3], vec![0, 2]];
    proof.steps = vec![vec![0, 1, 2], vec![2, 3, 4]];
    (program, certificate)
}

#[test]
fn clocks_of_two_steps_go_on_for_ever() {
    let (program, certificate) = in_turns();
    assert_eq!(check(&program, &certificate), Ok(()));
    let lie = |change: &dyn Fn(&mut Proof)| {
        let mut certificate = certificate.clone();
        change(&mut certificate.proofs[0]);
        check(&program, &certificate)
    };
    let clock = |change: &dyn Fn(&mut Proof)| assert!(matches!(lie(change), Err(Refusal::Clock { .. })));
    for number in 1..5 {
        for chain in 0..2 {
            let mut raised = certificate.proofs[0].clocks[number].clone();
            raised.resize(raised.len().max(chain + 1), 0);
            raised[chain] += 1;
            // Where the own place says as much, it is not raised.
            let own = (number, chain) == (2, 0) || (number, chain) == (3, 1) || (number, chain) == (4, 0);
            let found = lie(&|proof| proof.clocks[number] = raised.clone());
            assert!(own && found.is_ok() || matches!(found, Err(Refusal::Clock { .. })), "{number} {chain}: {found:?}");
        }
    }
    clock(&|proof| proof.mixed = vec![counter(0)]);
    clock(&|proof| proof.mixed = vec![counter(1)]);
    let dropped = lie(&|proof| proof.steps[1][0] = 0);
    assert!(matches!(dropped, Err(Refusal::Unordered { .. })), "{dropped:?}");
}

#[test]
fn signals_of_later_steps_count() {
    // t0 waits for nobody: its signals make up for t1's.
    let body = "buffer b0 @x activation f32[3]
event e0 @done
task t0: signal e0
task t1: fill() -> (b0[..]) signal e0
task t2: use(b0[..]) wait e0 >= 2
task t3: wait e1 >= 1
event e1 @used
worker w0: t0
worker w1: t1
worker w2: t2 t3";
    let body = body.replace("task t3: wait e1 >= 1\nevent e1 @used\n", "").replace("t2 t3", "t2");
    let ahead = program("steps pipelined\n", &body);
    let claims = |mixed: Vec<Element>| {
        with(&ahead, |certificate, n| {
            let proof = &mut certificate.proofs[n];
            proof.clocks = vec![vec![], vec![1, 1], vec![2, 2]];
            proof.steps = vec![vec![0, 0, 1], vec![0, 0, 2]];
            proof.mixed = mixed;
        })
    };
    assert!(matches!(claims(vec![]), Err(Refusal::Mixed { .. })));
    assert!(matches!(claims(vec![counter(0)]), Err(Refusal::Clock { .. })));
    for horizon in [1, 2, 5] {
        let traps = with(&ahead, |certificate, n| certificate.proofs[n].traps = vec![trap(1, horizon, &[(2, 0)])]);
        assert!(matches!(traps, Err(Refusal::NotStuck { stuck: TaskId(2), .. })), "{traps:?}");
    }
    // One step of clocks does not prove that there is no other order.
    let one = with(&ahead, |certificate, n| {
        certificate.proofs[n].clocks = vec![vec![], vec![1, 1]];
        certificate.proofs[n].steps = vec![vec![0, 0, 1]];
    });
    assert!(matches!(one, Err(Refusal::Mixed { .. })), "{one:?}");
}

#[test]
fn a_trap_holds_for_all_later_steps() {
    let (program, mut certificate) = in_turns();
    let proof = &mut certificate.proofs[0];
    (proof.clocks, proof.steps) = (Vec::new(), Vec::new());
    // While t0 of the first step has not finished, nothing starts; while t1 has not, t2 and all
    // after it do not.
    let first = trap(0, 2, &[(1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
    let second = trap(1, 2, &[(2, 0), (0, 1), (1, 1), (2, 1)]);
    proof.traps = vec![first.clone(), second.clone()];
    assert_eq!(check(&program, &certificate), Ok(()));
    // One step is enough: t0 signals in no later one before it has finished in the first.
    certificate.proofs[0].traps = vec![trap(0, 1, &[(1, 0), (2, 0)]), trap(1, 1, &[(2, 0)])];
    let one = check(&program, &certificate);
    assert!(
        matches!(one, Err(Refusal::Unordered { ref conflict, .. }) if conflict.second.task == TaskId(0)),
        "{one:?}"
    );
    // An instance outside the trap signals.
    certificate.proofs[0].traps = vec![trap(0, 2, &[(1, 0), (1, 1)]), second];
    let found = check(&program, &certificate);
    assert!(matches!(found, Err(Refusal::NotStuck { stuck: TaskId(1), step: 0, .. })), "{found:?}");
    certificate.proofs[0].traps = vec![first, trap(1, 2, &[(0, 1)])];
    let found = check(&program, &certificate);
    assert!(matches!(found, Err(Refusal::NotStuck { stuck: TaskId(0), step: 1, .. })), "{found:?}");
}

#[test]
fn a_trap_holds_in_launches_from_its_start_on() {
    // The tiles meet at position 2 and later.
    let body = "buffer b0 @x state f32[8]
event e0 @done
task t0: fill() -> (b0[2]) signal e0
task t1: use(b0[0..pos+1]) wait e0 >= 1
worker w0: t0
worker w1: t1";
    let moving = program("positions 4\n", body);
    let from = |from: u32| {
        let held = Trap { from, ..trap(0, 1, &[(1, 0)]) };
        with(&moving, |certificate, n| certificate.proofs[n].traps = vec![held])
    };
    assert_eq!((from(0), from(1), from(2)), (Ok(()), Ok(()), Ok(())));
    assert!(matches!(from(3), Err(Refusal::Unordered { .. })));
    assert_eq!(from(4), Err(Refusal::Certificate(Ill::From { task: TaskId(0), from: 4 })));
}

#[test]
fn periods_keep_the_order_of_bounds() {
    let body = "buffer b0 @x activation f32[4]
task t0: fill() -> (b0[0..pos+1])
task t1: use(b0[0..pos+1])
worker w0: t0 t1";
    let grows = program("positions 4\n", body);
    let periods = |periods: &[(u32, u32)]| {
        with(&grows, |certificate, _| {
            certificate.periods = periods.iter().map(|&(first, last)| period(first, last)).collect();
        })
    };
    assert_eq!(periods(&[(0, 2), (3, 3)]), Ok(()));
    assert!(matches!(periods(&[(0, 3)]), Err(Refusal::Period { first: 0, last: 3, .. })));
    for gap in [&[(0, 1), (3, 3)][..], &[(0, 2)], &[(0, 2), (2, 3)], &[(1, 3)], &[(0, 4)], &[(2, 1), (0, 3)]] {
        assert_eq!(periods(gap), Err(Refusal::Certificate(Ill::Periods)), "{gap:?}");
    }
    // At the first position all is written that is read, at a later one it is not.
    let less = program("positions 4\n", &body.replace("(b0[0..pos+1])\ntask t1", "(b0[0..2])\ntask t1"));
    let found = with(&less, |_, _| ());
    assert!(matches!(found, Err(Refusal::Period { .. })), "{found:?}");
    let each = with(&less, |certificate, _| certificate.periods = (0..4).map(|at| period(at, at)).collect());
    assert!(matches!(each, Err(Refusal::Undefined { position: 2, .. })), "{each:?}");
}

#[test]
fn packets_have_the_same_writers_in_all_launches_of_a_proof() {
    let body = "buffer b0 @p activation f32[4] packet 1
task t0: fill() -> (b0[0..2])
task t1: fill() -> (b0[2..4])
task t2: use(b0[pos])
worker w0: t0
worker w1: t1
worker w2: t2";
    let moving = program("positions 4\n", body);
    let periods = |certificate: &mut Certificate| certificate.periods = (0..4).map(|at| period(at, at)).collect();
    let merged = with(&moving, |certificate, _| periods(certificate));
    assert!(matches!(merged, Err(Refusal::Writers { writer: TaskId(0), step: 0, .. })), "{merged:?}");
    let split = with(&moving, |certificate, _| {
        periods(certificate);
        let mut second = certificate.proofs[0].clone();
        certificate.proofs[0].starts = period(0, 1);
        second.starts = period(2, 3);
        certificate.proofs.push(second);
    });
    assert_eq!(split, Ok(()));
    let swapped = with(&moving, |certificate, _| {
        periods(certificate);
        let mut second = certificate.proofs[0].clone();
        certificate.proofs[0].starts = period(0, 1);
        second.starts = period(2, 3);
        second.order = [0, 2, 1].map(TaskId).to_vec();
        certificate.proofs.push(second);
    });
    let packet = Missing::Packet(TaskId(1));
    assert!(
        matches!(swapped, Err(Refusal::NotEnabled { position: 2, missing, .. }) if missing == packet),
        "{swapped:?}"
    );
}

#[test]
fn tickets_keep_the_order_of_their_list_and_no_more() {
    let body = "buffer b0 @x activation f32[8]
event e0 @done
task t0: fill() -> (b0[0..4]) signal e0
task t1: fill() -> (b0[4..8]) signal e0
task t2: use(b0[..]) wait e0 >= 2
ticket 8: t1 t0 t2";
    let tickets = program("", body);
    let order = |proof: &mut Proof| proof.order = [1, 0, 2].map(TaskId).to_vec();
    let eager = with(&tickets, |_, _| ());
    assert!(matches!(eager, Err(Refusal::NotEnabled { missing: Missing::Queue, .. })), "{eager:?}");
    let chains = |chains: &[&[u32]], clock: Vec<u32>| {
        with(&tickets, |certificate, n| {
            let proof = &mut certificate.proofs[n];
            order(proof);
            proof.chains = chains.iter().map(|chain| chain.iter().map(|&task| TaskId(task)).collect()).collect();
            proof.clocks = vec![vec![], clock];
            proof.steps = vec![vec![0, 0, 1]];
        })
    };
    assert_eq!(chains(&[&[0, 2], &[1]], vec![0, 1]), Ok(()));
    assert!(matches!(chains(&[&[0, 1, 2]], vec![]), Err(Refusal::Clock { task: TaskId(1), .. })));
    assert_eq!(chains(&[&[0, 0]], vec![]), Err(Refusal::Certificate(Ill::Chain(TaskId(0)))));
    let traps = |workers: u32, traps: Vec<Trap>| {
        let mut tickets = tickets.clone();
        tickets.queues = Queues::Ticket { workers, order: [1, 0, 2].map(TaskId).to_vec() };
        with(&tickets, |certificate, n| {
            order(&mut certificate.proofs[n]);
            certificate.proofs[n].traps = traps;
        })
    };
    assert_eq!(traps(8, vec![trap(0, 1, &[(2, 0)]), trap(1, 1, &[(2, 0)])]), Ok(()));
    // One worker draws t0 when it has done t1; two do not wait for it.
    assert_eq!(traps(1, vec![trap(1, 1, &[(0, 0), (2, 0)])]), Ok(()));
    assert!(matches!(traps(2, vec![trap(1, 1, &[(0, 0)])]), Err(Refusal::NotStuck { .. })));
}

#[test]
fn values_are_those_of_the_eager_order() {
    let refused = |head: &str, body: &str| with(&program(head, body), |_, _| ()).expect_err("a refusal");
    let undefined = "buffer b0 @x activation f32[8]
task t0: fill() -> (b0[0..7])
task t1: use(b0[..])
worker w0: t0 t1";
    assert!(matches!(refused("", undefined), Refusal::Undefined { .. }));
    let output = "buffer b0 @x output f32[8]
task t0: fill() -> (b0[1..8])
worker w0: t0";
    assert!(matches!(refused("", output), Refusal::NotKept { .. }));
    let twice = "buffer b0 @x activation f32[8] packet 1
task t0: fill() -> (b0[..])
task t1: fill() -> (b0[0..2])
worker w0: t0 t1";
    assert!(matches!(refused("", twice), Refusal::WrittenTwice(_)));
    let same = "instruction i4 \"k::both\" both(x) -> (y)
buffer b0 @x state f32[8]
task t0: both(b0[0..4]) -> (b0[3..8])
worker w0: t0";
    assert!(matches!(refused("", same), Refusal::SameCall(_)));
    let early = "buffer b0 @x state f32[8]
task t0: use(early b0[0..4])
task t1: fill() -> (b0[pos+3])
worker w0: t0 t1";
    assert!(matches!(refused("positions 2\n", early), Refusal::Early(..)));
    let early = early.replace("fill() -> (b0[pos+3])", "fill() -> (b0[pos+4])");
    assert_eq!(with(&program("positions 2\n", &early), |_, _| ()), Ok(()));
}

#[test]
fn shared_bytes_belong_to_their_last_writer() {
    let body = "buffer b0 @x activation f32[8] at 0
buffer b1 @y activation f32[2, 4] at 16
task t0: fill() -> (b0[..])
task t1: use(b0[4..6])
task t2: fill() -> (b1[0, ..])
task t3: use(b1[0, 0..3])
worker w0: t0 t1 t2 t3";
    assert_eq!(with(&program("", body), |_, _| ()), Ok(()));
    let clobbered = program(
        "",
        &body
            .replace("t0 t1 t2 t3", "t0 t2 t1 t3")
            .replace(
                "task t1: use(b0[4..6])\ntask t2: fill() -> (b1[0, ..])",
                "task t1: fill() -> (b1[0, ..])\ntask t2: use(b0[4..6])",
            )
            .replace("t0 t2 t1 t3", "t0 t1 t2 t3"),
    );
    let found = with(&clobbered, |_, _| ());
    assert!(matches!(found, Err(Refusal::Undefined { .. })), "{found:?}");
    let apart = program("", &body.replace("worker w0: t0 t1 t2 t3", "worker w0: t0 t1\nworker w1: t2 t3"));
    let found = with(&apart, |_, _| ());
    assert!(matches!(found, Err(Refusal::Unordered { .. })), "{found:?}");
    let lost = program("", &body.replace("@x activation", "@x output"));
    assert!(matches!(with(&lost, |_, _| ()), Err(Refusal::NotKept { .. })));
}

#[test]
fn moving_tiles_of_shared_bytes_are_followed_position_by_position() {
    let body = "buffer b0 @a activation f32[4, 1] at 8
buffer b1 @b activation f32[3] at 4
task t0: fill() -> (b0[3, ..])
task t1: fill() -> (b1[0..pos+1])
worker w0: t1
worker w1: t0";
    // Bytes 20..24 and 4..4 * pos + 8.
    let found = |body: &str| with(&program("positions 3\nsteps pipelined\n", body), |_, _| ());
    assert_eq!(found(body), Ok(()));
    let meets = found(&body.replace("b0[3, ..]", "b0[1, ..]"));
    assert!(matches!(meets, Err(Refusal::Unordered { ref conflict, .. }) if conflict.position == 2), "{meets:?}");
}

#[test]
fn least_distances_count() {
    // A row is written two positions before it is read.
    let body = "buffer b0 @rows state f32[8]
task t0: fill() -> (b0[pos+2])
task t1: use(b0[pos])
worker w0: t0
worker w1: t1";
    let apart = program("positions 4\nsteps pipelined\n", body);
    let found = with(&apart, |_, _| ());
    let Err(Refusal::Unordered { conflict, .. }) = found else { panic!("{found:?}") };
    assert_eq!((conflict.distance, conflict.first.task, conflict.second.task), (2, TaskId(0), TaskId(1)));
    assert_eq!(with(&program("positions 2\nsteps pipelined\n", body), |_, _| ()), Ok(()), "no launch is as long");
    let one = with(&program("positions 4\nsteps pipelined\n", &body.replace("t0\nworker w1: t1", "t0 t1")), |_, _| ());
    assert_eq!(one, Ok(()));
}

#[test]
fn programs_are_not_trusted() {
    let refused = |change: &dyn Fn(&mut Program)| {
        let mut program = joined();
        let mut certificate = plain(&program);
        joined_clocks(&mut certificate);
        change(&mut program);
        match check(&program, &certificate) {
            Err(Refusal::Program(malformed)) => malformed,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&|program| program.positions = 0), Malformed::NoPositions);
    assert!(matches!(refused(&|program| program.tasks[0].signals[0].index = 1), Malformed::NoCounter(..)));
    assert!(matches!(refused(&|program| program.tasks[2].waits[0].on.event.0 = 9), Malformed::NoCounter(..)));
    let twice = |program: &mut Program| program.tasks[0].signals = [program.tasks[0].signals[0]; 2].to_vec();
    assert!(matches!(refused(&twice), Malformed::SignalledTwice(..)));
    assert!(matches!(refused(&|program| program.buffers[0].shape.clear()), Malformed::Rank(_)));
    assert!(matches!(refused(&|program| program.buffers[0].shape[0] = 7), Malformed::Tile(_)));
    let crossing = |program: &mut Program| {
        program.tasks[0].calls[0].operands[0].region.intervals_mut()[0] = amk_ir::Interval::fixed(4, 3);
    };
    assert!(matches!(refused(&crossing), Malformed::Tile(_)));
    let absent = |program: &mut Program| program.tasks[0].calls[0].operands[0].buffer.0 = 9;
    assert!(matches!(refused(&absent), Malformed::NoBuffer(_)));
    let early = |program: &mut Program| program.tasks[0].calls[0].operands[0].early = true;
    assert!(matches!(refused(&early), Malformed::EarlyWrite(_)));
    assert!(matches!(refused(&|program| program.buffers[0].kind = amk_ir::BufferKind::Weight), Malformed::ReadOnly(_)));
    assert!(matches!(refused(&|program| program.buffers[0].kind = amk_ir::BufferKind::Local), Malformed::Local { .. }));
    let queue = |change: &dyn Fn(&mut Vec<Vec<TaskId>>)| {
        refused(&|program| match &mut program.queues {
            Queues::Static(queues) => change(queues),
            Queues::Ticket { .. } => panic!("static queues"),
        })
    };
    assert!(matches!(queue(&|queues| queues[0].clear()), Malformed::Queued { times: 0, .. }));
    assert!(matches!(queue(&|queues| queues[0].push(TaskId(2))), Malformed::Queued { times: 2, .. }));
    assert!(matches!(queue(&|queues| queues[0].push(TaskId(3))), Malformed::NoTask(TaskId(3))));
    assert!(matches!(refused(&|program| program.buffers[0].place = Some(u64::MAX - 3)), Malformed::Place(_)));
    let share = |program: &mut Program| {
        program.buffers.iter_mut().for_each(|buffer| buffer.place = Some(0));
        program.buffers[0].exchange = amk_ir::Exchange::Packet { slots: 1 };
    };
    assert!(matches!(refused(&share), Malformed::Shared(..)));
}

#[test]
fn what_is_too_large_is_refused_at_once() {
    let body = "buffer b0 @x activation f32[100000, 1000000] at 0
buffer b1 @y activation f32[100000, 1000000] at 4
task t0: fill() -> (b0[.., 0..5])
task t1: fill() -> (b1[.., 7..9])
worker w0: t0 t1";
    let found = with(&program("", body), |_, _| ());
    assert_eq!(found, Ok(()), "two hundred thousand runs are few");
    let body = body.replace("0..5", "pos..15");
    let found = with(&program("positions 12\n", &body), |_, _| ());
    assert!(matches!(found, Err(Refusal::TooLarge { .. })), "{found:?}");
    // Nothing is as long as the program says.
    let body = "buffer b0 @x state f32[4294967295, 4294967295, 4294967295]
event e0 @many[4294967295]
event e1 @more[4294967295, 4294967295]
task t0: fill() -> (b0[pos, .., ..]) signal e0[4294967294]
worker w0: t0";
    let found = with(&program("positions 4294967295\nsteps pipelined\n", body), |certificate, n| {
        certificate.proofs[n].traps = vec![trap(0, u32::MAX, &[(0, 1), (0, 4294967293)])];
    });
    assert_eq!(found, Ok(()));
}

#[test]
fn tables_are_not_covered() {
    let body = "buffer b0 @t activation u32[2]
table r0 @t b0 routes 2
task t0: fill() -> (b0[..])
worker w0: t0";
    assert_eq!(with(&program("", body), |_, _| ()), Err(Refusal::Tables));
}

#[test]
fn messages_name_both_parties() {
    let message = with(&joined(), |_, _| ()).expect_err("no clocks").to_string();
    let wanted = "not shown to be in order: (1) b0[0..4] (operand 0 of call 0 of t0) at position 0 and (2) b0[0..8] \
                  (operand 0 of call 0 of t2) of the same step; the proof from position 0 has no clock and no \
                  trap for it";
    assert_eq!(message, wanted);
}

/// The two opinions are worth more than one only as long as neither is made of the other.
#[test]
fn the_checker_has_nothing_of_the_other_one() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut read = 0;
    for file in std::fs::read_dir(sources).expect("sources") {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(!text.contains("verify"), "{}", path.display());
        read += 1;
    }
    assert!(read > 8, "{read} files");
}
