//! `cases/dependency_cases.json` and `cases/queue_cases.json`: grids of tasks, their signals and
//! waits, and the edges and counts that follow; the second has also the queues of the CTAs and how
//! many of these are resident.
//!
//! Each case becomes a program in which a task writes its own element and reads the elements of the
//! tasks it depends on. Routing that a real run decides (the mixture of experts) is in the case
//! with its concrete counts.

use amk_ir::{
    Access, Buffer, BufferId, BufferKind, Call, DType, Element, EventTensor, Exchange, Instruction, Interval, Limits,
    Operand, OperandSpec, Program, Queues, Region, Task, TaskId, Wait, events, text, verify,
};
use amk_tests::oracle;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

type Coord = Vec<u32>;
/// A task, or a counter: the grid's or the event tensor's name, and the coordinate.
type Point = (String, Coord);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    grids: BTreeMap<String, Coord>,
    events: BTreeMap<String, Event>,
    notify: Vec<(String, Coord, String, Coord)>,
    wait: Vec<(String, Coord, String, Coord)>,
    fan_in: Vec<FanIn>,
    task_edges: Vec<(String, Coord, String, Coord)>,
    required_pairs: Option<Vec<(String, Coord, String, Coord)>>,
    uncovered: Option<Vec<(String, Coord, String, Coord)>>,
    queues: Option<CaseQueues>,
    /// CTAs that can be resident at once.
    resident_ctas: Option<u32>,
    expect: String,
    #[serde(rename = "note")]
    _note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    shape: Coord,
    wait: serde_json::Value,
    /// Of counters that several GPUs share; in one program they are like others.
    #[serde(rename = "scope")]
    _scope: Option<String>,
}

/// Which CTA runs which tasks, in which order.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum CaseQueues {
    /// A separate list for each CTA.
    Static(Vec<Vec<Point>>),
    /// One list, from which a free CTA takes the next task.
    Ticket { ticket: Vec<Point> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FanIn {
    event: String,
    coord: Coord,
    fan_in: u32,
}

fn cases() -> Vec<Case> {
    let files = [include_str!("cases/dependency_cases.json"), include_str!("cases/queue_cases.json")];
    let read = |file| serde_json::from_str::<Vec<Case>>(file).expect("the cases are of this shape");
    files.into_iter().flat_map(read).collect()
}

/// Every coordinate of a shape, in row-major order.
fn coords(shape: &[u32]) -> Vec<Coord> {
    let mut coords = vec![Vec::new()];
    for &extent in shape {
        let behind = |coord: Coord| (0..extent).map(move |at| [&coord[..], &[at]].concat());
        coords = coords.into_iter().flat_map(behind).collect();
    }
    coords
}

fn row_major(shape: &[u32], coord: &[u32]) -> u32 {
    shape.iter().zip(coord).fold(0, |index, (extent, at)| index * extent + at)
}

impl Case {
    /// Grids, producers first.
    fn grids_in_order(&self) -> Vec<&String> {
        let (dependencies, mut grids) = (self.dependencies(), Vec::new());
        while grids.len() < self.grids.len() {
            let free = |grid: &&String| {
                let mut from = dependencies.iter().filter(|(_, to)| to.0 == **grid).map(|(from, _)| &from.0);
                !grids.contains(grid) && from.all(|from| grids.contains(&from))
            };
            let next = self.grids.keys().find(free).expect("the grids depend on each other one way");
            grids.push(next);
        }
        grids
    }

    fn tasks(&self) -> Vec<Point> {
        let of = |grid: &String| coords(&self.grids[grid]).into_iter().map(|c| (grid.clone(), c)).collect::<Vec<_>>();
        self.grids_in_order().into_iter().flat_map(of).collect()
    }

    /// Producer and consumer of every true dependency.
    fn dependencies(&self) -> BTreeSet<(Point, Point)> {
        pairs(self.required_pairs.as_ref().unwrap_or(&self.task_edges))
    }

    fn threshold(&self, event: &str, coord: &[u32]) -> u32 {
        let fan_in = || self.fan_in.iter().find(|f| f.event == event && f.coord == coord).map(|f| f.fan_in);
        match self.events[event].wait.as_u64() {
            Some(count) => count as u32,
            // Counts that the run writes: the concrete ones.
            None => fan_in().expect("a count for every counter"),
        }
    }

    /// The case's own queues, or its tasks dealt out to so many workers.
    fn queues(&self, workers: usize) -> Queues {
        let tasks = self.tasks();
        let id = |point: &Point| TaskId::from(tasks.iter().position(|task| task == point).expect("a task"));
        let list = |points: &Vec<Point>| points.iter().map(id).collect();
        match &self.queues {
            Some(CaseQueues::Static(lists)) => Queues::Static(lists.iter().map(list).collect()),
            Some(CaseQueues::Ticket { ticket }) => Queues::Ticket { workers: workers as u32, order: list(ticket) },
            None => {
                let mut queues = vec![Vec::new(); workers];
                for (n, point) in tasks.iter().enumerate() {
                    queues[n * workers / tasks.len()].push(id(point));
                }
                Queues::Static(queues)
            }
        }
    }

    /// Pairs of tasks where the second is reached from the first by waits and by the queues of
    /// CTAs.
    fn ordered(&self, waits: &BTreeSet<(Point, Point)>) -> BTreeSet<(Point, Point)> {
        let mut after: BTreeMap<Point, BTreeSet<Point>> = BTreeMap::new();
        let lists = match &self.queues {
            Some(CaseQueues::Static(lists)) => lists.as_slice(),
            Some(CaseQueues::Ticket { .. }) | None => &[],
        };
        let next = lists.iter().flat_map(|list| list.iter().cloned().zip(list.iter().skip(1).cloned()));
        for (from, to) in waits.iter().cloned().chain(next) {
            after.entry(from).or_default().insert(to);
        }
        let mut ordered = BTreeSet::new();
        for from in self.tasks() {
            let mut pending = vec![from.clone()];
            while let Some(task) = pending.pop() {
                for to in after.get(&task).into_iter().flatten() {
                    if ordered.insert((from.clone(), to.clone())) {
                        pending.push(to.clone());
                    }
                }
            }
        }
        ordered
    }

    /// The program, with the case's own queues or its tasks dealt out to so many workers.
    fn program(&self, workers: usize) -> Program {
        let tasks = self.tasks();
        let grids = self.grids_in_order();
        let buffer = |grid: &&String| Buffer {
            name: grid.to_string(),
            kind: BufferKind::Activation,
            dtype: DType::F32,
            shape: self.grids[*grid].clone(),
            exchange: Exchange::Counter,
            place: None,
        };
        let event = |(name, event): (&String, &Event)| EventTensor { name: name.clone(), shape: event.shape.clone() };
        let mut program = Program {
            name: self.name.clone(),
            positions: 1,
            buffers: grids.iter().map(buffer).collect(),
            events: self.events.iter().map(event).collect(),
            limits: Limits { workers: self.resident_ctas.unwrap_or(u32::MAX), ..Limits::default() },
            queues: self.queues(workers),
            ..Program::default()
        };
        for point in &tasks {
            let task = self.task(&mut program, &grids, point);
            program.tasks.push(task);
        }
        program
    }

    fn task(&self, program: &mut Program, grids: &[&String], point: &Point) -> Task {
        let operand = |(grid, coord): &Point, access| {
            let intervals: Vec<Interval> = coord.iter().map(|&at| Interval::fixed(at, at + 1)).collect();
            let buffer = BufferId::from(grids.iter().position(|name| *name == grid).expect("a grid"));
            Operand {
                buffer,
                region: Region::new(&intervals).expect("a small rank"),
                access,
                early: false,
                routed: None,
            }
        };
        let dependencies = self.dependencies();
        let producers = dependencies.iter().filter(|(_, consumer)| consumer == point);
        let mut operands: Vec<Operand> = producers.map(|(producer, _)| operand(producer, Access::Read)).collect();
        operands.push(operand(point, Access::Write));
        let element = |event: &String, coord: &Coord| Element {
            event: self.events.keys().position(|name| name == event).expect("an event").into(),
            index: row_major(&self.events[event].shape, coord),
        };
        let wait = |(event, at, _, _): &(String, Coord, String, Coord)| Wait {
            on: element(event, at),
            threshold: self.threshold(event, at),
        };
        Task {
            op: None,
            calls: vec![Call {
                instruction: instruction(program, operands.len()),
                operands,
                params: Vec::new(),
                rows: None,
            }],
            waits: self.wait.iter().filter(|w| (&w.2, &w.3) == (&point.0, &point.1)).map(wait).collect(),
            signals: self
                .notify
                .iter()
                .filter(|n| (&n.0, &n.1) == (&point.0, &point.1))
                .map(|(_, _, event, at)| element(event, at))
                .collect(),
            ..Task::default()
        }
    }
}

fn pairs(list: &[(String, Coord, String, Coord)]) -> BTreeSet<(Point, Point)> {
    list.iter().cloned().map(|(from, at, to, on)| ((from, at), (to, on))).collect()
}

/// The instruction that reads all its operands but writes the last.
fn instruction(program: &mut Program, operands: usize) -> amk_ir::InstructionId {
    let name = format!("gather{operands}");
    let known = program.instructions.iter().position(|instruction| instruction.name == name);
    let at = known.unwrap_or_else(|| {
        let access = |n| if n + 1 == operands { Access::Write } else { Access::Read };
        let operands = (0..operands).map(|n| OperandSpec { name: format!("x{n}"), access: access(n) }).collect();
        program.instructions.push(Instruction { path: format!("case::{name}"), name, operands, params: Vec::new() });
        program.instructions.len() - 1
    });
    at.into()
}

#[test]
fn notify_and_wait_give_the_edges_and_counts() {
    for case in cases() {
        let (program, tasks) = (case.program(1), case.tasks());
        let mut edges = BTreeSet::new();
        for (to, task) in program.tasks.iter().enumerate() {
            for wait in &task.waits {
                let from = (0..tasks.len()).filter(|&from| program.tasks[from].signals.contains(&wait.on));
                edges.extend(from.map(|from| (tasks[from].clone(), tasks[to].clone())));
            }
        }
        assert_eq!(edges, pairs(&case.task_edges), "{}", case.name);
        let uncovered: BTreeSet<_> = case.dependencies().difference(&case.ordered(&edges)).cloned().collect();
        assert_eq!(uncovered, pairs(case.uncovered.as_deref().unwrap_or_default()), "{}", case.name);
        for FanIn { event, coord, fan_in } in &case.fan_in {
            let signals = case.notify.iter().filter(|n| (&n.2, &n.3) == (event, coord)).count();
            assert_eq!(signals as u32, *fan_in, "{} {event}{coord:?}", case.name);
        }
    }
}

/// The codes that refuse the cases of queues.
#[test]
fn queues_and_residency_are_refused_for_what_is_wrong_with_them() {
    let code = |name: &str| {
        let case = cases().into_iter().find(|case| case.name == name).expect("a case of this name");
        let found = verify::check(&case.program(case.tasks().len()));
        found.iter().map(|violation| violation.code().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(code("NEG_nonresident_static_queue"), ["AMK0110"]);
    assert_eq!(code("NEG_static_queue_reversed"), ["AMK0202"]);
    assert_eq!(code("NEG_ticket_order_reversed"), ["AMK0203"]);
    assert_eq!(code("NEG_queue_of_another_cta"), ["AMK0302"]);
}

#[test]
fn the_verifier_decides_as_expected() {
    for case in cases() {
        // A worker for each task: nothing is ordered by chance.
        let found = verify::check(&case.program(case.tasks().len()));
        assert_eq!(found.is_empty(), case.expect == "accept", "{}: {found:?}", case.name);
    }
}

#[test]
fn the_oracle_decides_as_expected() {
    for case in cases() {
        let verdict = oracle::judge(&text::print(&case.program(3)));
        assert_ne!(verdict, oracle::Verdict::TooLarge, "{}", case.name);
        assert_eq!(verdict.is_safe(), case.expect == "accept", "{}: {verdict}", case.name);
    }
}

/// Derived counters cover every true dependency and nothing else, also where the case's own events
/// do not.
#[test]
fn derivation_covers_exactly_the_dependencies() {
    for case in cases() {
        let tasks = case.tasks();
        for from in case.grids.keys() {
            for to in case.grids.keys() {
                let of = |grid: &String| tasks.iter().filter(|task| task.0 == *grid).collect::<Vec<_>>();
                let (producers, consumers, all) = (of(from), of(to), case.dependencies());
                let depends = |consumer: &&Point| -> Vec<u32> {
                    let on = |n: &usize| all.contains(&(producers[*n].clone(), (*consumer).clone()));
                    (0..producers.len()).filter(on).map(|n| n as u32).collect()
                };
                let dependencies: Vec<Vec<u32>> = consumers.iter().map(depends).collect();
                covers(&events::derive(producers.len(), &dependencies), &dependencies);
            }
        }
    }
}

fn covers(derived: &events::Derived, dependencies: &[Vec<u32>]) {
    for (consumer, dependency) in dependencies.iter().enumerate() {
        let mut covered = BTreeSet::new();
        for &(counter, threshold) in &derived.waits[consumer] {
            assert_eq!(threshold, derived.fan_in[counter as usize], "all signals are awaited");
            let signals = |producer: &u32| derived.signals[*producer as usize].contains(&counter);
            let before = covered.len();
            covered.extend((0..derived.signals.len() as u32).filter(signals));
            assert_eq!(covered.len() - before, threshold as usize, "fan-in is the number of signals");
        }
        assert!(covered.into_iter().eq(dependency.iter().copied()));
    }
}

/// Tiles of the first dimension, `tile` elements each; the whole of the others.
fn tiles(extent: u32, tile: u32) -> Vec<Region> {
    let tiles = (0..extent.div_ceil(tile)).map(|n| Interval::fixed(n * tile, (n * tile + tile).min(extent)));
    tiles.map(|tile| Region::new(&[tile]).expect("rank 1")).collect()
}

/// The cases whose dependencies are overlaps of tiles, from the tiles.
#[test]
fn overlaps_give_the_edges_of_the_tiled_cases() {
    let expect = |name: &str, producers: &[Region], consumers: &[Region]| {
        let case = cases().into_iter().find(|case| case.name == name).expect("a case of this name");
        let tasks = case.tasks();
        let (from, to) = tasks.split_at(producers.len());
        let overlaps = events::overlaps(producers, consumers, 1);
        let edges = |n: usize| overlaps[n].iter().map(move |&m| (m, n));
        let found: BTreeSet<_> =
            (0..to.len()).flat_map(edges).map(|(m, n)| (from[m as usize].clone(), to[n].clone())).collect();
        assert_eq!(found, case.dependencies(), "{name}");
    };
    let box_of = |rows: (u32, u32), columns: (u32, u32)| {
        Region::new(&[Interval::fixed(rows.0, rows.1), Interval::fixed(columns.0, columns.1)]).expect("rank 2")
    };
    let grid = |n: u32, m: u32, rows: u32| -> Vec<Region> {
        coords(&[n, m]).iter().map(|at| box_of((at[0] * rows, (at[0] + 1) * rows), (at[1], at[1] + 1))).collect()
    };
    expect("gemm_rs_single", &grid(4, 2, 1), &grid(2, 2, 2));
    expect("splitk_sum_n3", &grid(3, 4, 1), &(0..3).map(|row| box_of((row, row + 1), (0, 4))).collect::<Vec<_>>());
    let rows = coords(&[4, 4]).iter().map(|at| tiles(128, 32)[at[0] as usize]).collect::<Vec<_>>();
    expect("lum_rows_to_tiles", &tiles(128, 1), &rows);
    let transposed: Vec<Region> =
        coords(&[4, 4]).iter().map(|at| box_of((at[1], at[1] + 1), (at[0], at[0] + 1))).collect();
    expect("NEG_transposed_read", &grid(4, 4, 1), &transposed);
    let halo: Vec<Region> = (0..8u32)
        .map(|at| Region::new(&[Interval::fixed(at.saturating_sub(1), (at + 2).min(8))]).expect("rank 1"))
        .collect();
    expect("NEG_halo", &tiles(8, 1), &halo);
}
