//! Random mixtures of experts: tokens are routed, packed for their experts, and combined again.

use super::instance::whole;
use crate::generate::Rng;
use amk_ir::{
    Access, Buffer, BufferId, BufferKind, Call, DType, Element, EventId, EventTensor, Exchange, Holds, Instruction,
    Interval, Operand, OperandSpec, Program, Queues, Routed, RoutedSignal, RoutedWait, Table, TableId, Task, TaskId,
    Wait,
};

const TABLE: TableId = TableId(0);
const X: BufferId = BufferId(0);
const TOPK: BufferId = BufferId(1);
const PACKED: BufferId = BufferId(2);
const OUT: BufferId = BufferId(3);
const Y: BufferId = BufferId(4);

/// The sizes drawn for a program before its tasks.
struct Sizes {
    tokens: u32,
    choices: u32,
    experts: u32,
}

/// A random program with a table; as drawn it is mostly safe.
pub fn program(rng: &mut Rng) -> Program {
    let (tokens, choices) = *rng.pick(&[(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]).unwrap_or(&(1, 1));
    let sizes = Sizes { tokens, choices, experts: rng.between(1, 3) };
    let mut draw = Draw { program: Program::default(), routes: 0 };
    draw.declare(rng, &sizes);
    draw.tasks(rng, &sizes);
    let count = draw.program.tasks.len();
    let all = (0..count).map(TaskId::from);
    draw.program.queues = if rng.chance(15) {
        Queues::Ticket { workers: rng.between(1, 3), order: all.collect() }
    } else {
        let mut queues = vec![Vec::new(); if rng.chance(50) { count } else { rng.between(1, 5) as usize }];
        let workers = queues.len();
        for (n, task) in all.enumerate() {
            let worker = if workers == count { n } else { rng.below(workers as u32) as usize };
            queues[worker].push(task);
        }
        Queues::Static(queues)
    };
    draw.program
}

struct Draw {
    program: Program,
    /// Tasks that write the table.
    routes: u32,
}

impl Draw {
    fn declare(&mut self, rng: &mut Rng, &Sizes { tokens, choices, experts }: &Sizes) {
        let buffer = |name: &str, kind, shape: &[u32]| Buffer {
            name: name.into(),
            kind,
            dtype: DType::F32,
            shape: shape.to_vec(),
            exchange: Exchange::Counter,
            place: None,
        };
        let event = |name: &str, shape: &[u32]| EventTensor { name: name.into(), shape: shape.to_vec() };
        self.program.name = "routed".into();
        self.program.positions = 1;
        let of_experts = rng.chance(30);
        let y = if of_experts { [experts, 1] } else { [tokens * choices, 1] };
        self.program.buffers = vec![
            buffer("x", BufferKind::Activation, &[tokens, 1]),
            buffer("topk", BufferKind::Activation, &[tokens, choices]),
            buffer("packed", BufferKind::Activation, &[tokens * choices, 1]),
            buffer("out", BufferKind::Output, &[tokens, 1]),
            buffer("y", BufferKind::Activation, &y),
        ];
        self.program.events =
            vec![event("ready", &[2]), event("packed", &[experts]), event("done", &[experts]), event("end", &[])];
        let distinct = choices <= experts && rng.chance(50);
        self.program.tables =
            vec![Table { name: "topk".into(), buffer: TOPK, holds: Holds::Routes { values: experts, distinct } }];
    }

    fn tasks(&mut self, rng: &mut Rng, sizes: &Sizes) {
        let &Sizes { tokens, choices, experts } = sizes;
        let of_experts = self.program.buffers[Y.index()].shape != [tokens * choices, 1];
        self.push(vec![self.all(X, Access::Write)], |task| task.signals.push(on(0, 0)));
        let split = rng.chance(20) && tokens > 1;
        self.routes = if split { tokens } else { 1 };
        for route in 0..self.routes {
            let topk = if split { self.row(TOPK, route, Access::Write) } else { self.all(TOPK, Access::Write) };
            self.push(vec![self.all(X, Access::Read), topk], |task| {
                task.waits.push(Wait { on: on(0, 0), threshold: 1 });
                task.signals.push(on(0, 1));
            });
        }
        let apart = rng.chance(25);
        for token in 0..tokens {
            let entries = (0..choices).map(|choice| token * choices + choice);
            let lists: Vec<Vec<u32>> = if apart { entries.map(|e| vec![e]).collect() } else { vec![entries.collect()] };
            for list in lists {
                let mut operands = vec![self.row(X, token, Access::Read), self.all(TOPK, Access::Read)];
                operands.extend(list.iter().map(|&entry| self.entry(PACKED, entry, Access::Write)));
                let routed = self.routed();
                self.push(operands, |task| {
                    task.waits.push(routed);
                    let signal = |&entry: &u32| RoutedSignal { event: EventId(1), table: TABLE, entry };
                    task.routed_signals.extend(list.iter().map(signal));
                });
            }
        }
        for expert in 0..experts {
            let result = match of_experts {
                true => self.row(Y, expert, Access::Write),
                false => self.group(Y, expert, Access::Write),
            };
            let operands = vec![self.group(PACKED, expert, Access::Read), self.all(TOPK, Access::Read), result];
            let routed = self.routed();
            self.push(operands, |task| {
                task.waits.push(routed);
                task.routed_waits.push(RoutedWait::Count { event: EventId(1), value: expert, table: TABLE });
                task.signals.push(on(2, expert));
            });
        }
        let (in_place, picks) = (rng.chance(50), rng.chance(60));
        for token in 0..tokens {
            self.combine(sizes, token, of_experts, in_place, picks);
        }
        if in_place {
            self.push(vec![self.all(X, Access::Read), self.all(OUT, Access::Write)], |task| {
                task.waits.push(Wait { on: on(3, 0), threshold: tokens });
            });
        }
    }

    fn combine(&mut self, sizes: &Sizes, token: u32, of_experts: bool, in_place: bool, picks: bool) {
        let entries = token * sizes.choices..(token + 1) * sizes.choices;
        let mut operands = vec![self.all(TOPK, Access::Read)];
        operands.extend(entries.clone().map(|entry| match of_experts {
            true => Operand { routed: Some(Routed::Pick { table: TABLE, entry }), ..self.all(Y, Access::Read) },
            false => self.entry(Y, entry, Access::Read),
        }));
        operands.push(match in_place {
            true => self.row(X, token, Access::Update),
            false => self.row(OUT, token, Access::Write),
        });
        let routed = self.routed();
        self.push(operands, |task| {
            task.waits.push(routed);
            if picks {
                let wait = |entry| RoutedWait::Pick { event: EventId(2), table: TABLE, entry, threshold: 1 };
                task.routed_waits.extend(entries.map(wait));
            } else {
                task.waits.extend((0..sizes.experts).map(|expert| Wait { on: on(2, expert), threshold: 1 }));
            }
            if in_place {
                task.signals.push(on(3, 0));
            }
        });
    }

    /// The wait for the table.
    fn routed(&self) -> Wait {
        Wait { on: on(0, 1), threshold: self.routes }
    }

    fn push(&mut self, operands: Vec<Operand>, more: impl FnOnce(&mut Task)) {
        let n = self.program.instructions.len();
        let spec = |(n, operand): (usize, &Operand)| OperandSpec { name: format!("x{n}"), access: operand.access };
        let specs = operands.iter().enumerate().map(spec).collect();
        let (name, path) = (format!("call{n}"), format!("test::call{n}"));
        self.program.instructions.push(Instruction { name, path, operands: specs, params: Vec::new() });
        let call = Call { instruction: n.into(), operands, params: Vec::new(), rows: None };
        let mut task = Task { calls: vec![call], ..Task::default() };
        more(&mut task);
        self.program.tasks.push(task);
    }

    fn all(&self, buffer: BufferId, access: Access) -> Operand {
        whole(&self.program, buffer, access)
    }

    fn row(&self, buffer: BufferId, row: u32, access: Access) -> Operand {
        let mut operand = self.all(buffer, access);
        operand.region.intervals_mut()[0] = Interval::fixed(row, row + 1);
        operand
    }

    fn entry(&self, buffer: BufferId, entry: u32, access: Access) -> Operand {
        Operand { routed: Some(Routed::Row { table: TABLE, entry }), ..self.all(buffer, access) }
    }

    fn group(&self, buffer: BufferId, group: u32, access: Access) -> Operand {
        Operand { routed: Some(Routed::Group { table: TABLE, group }), ..self.all(buffer, access) }
    }
}

fn on(event: u32, index: u32) -> Element {
    Element { event: EventId(event), index }
}
