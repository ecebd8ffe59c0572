//! Programs with tables other than mixtures of experts: several tables, of which one may decide on
//! the next, tiles in any order, splits, picks and parts of rows, steps at several positions,
//! packets and states beside them.

use super::instance::whole;
use crate::generate::Rng;
use amk_ir::{
    Access, Bound, Buffer, BufferId, BufferKind, Call, DType, Element, EventId, EventTensor, Exchange, Holds,
    Instruction, Interval, Operand, OperandSpec, Program, Queues, Routed, RoutedSignal, RoutedWait, Table, TableId,
    Task, TaskId, Wait,
};

/// A random program with one or two tables.
pub fn program(rng: &mut Rng) -> Program {
    loop {
        let program = attempt(rng);
        if routings(&program) <= MOST_ROUTINGS {
            return program;
        }
    }
}

/// The most routings of a program.
const MOST_ROUTINGS: u32 = 40;

/// The number of ways to fill the tables, or more.
fn routings(program: &Program) -> u32 {
    let fillings = |table: &Table| match table.holds {
        Holds::Routes { values, .. } => values.pow(table.entries(program)),
        Holds::Splits { total } => (total + 1).pow(table.entries(program).saturating_sub(2)),
    };
    program.tables.iter().map(fillings).product()
}

fn attempt(rng: &mut Rng) -> Program {
    let positions = if rng.chance(55) { 1 } else { rng.between(2, 3) };
    let program = Program { name: "tangled".into(), positions, ..Program::default() };
    let mut draw = Draw { rng, program, tiled: Vec::new(), plain: Vec::new(), drafts: Vec::new() };
    for _ in 0..1 + u32::from(draw.rng.chance(35)) {
        draw.table();
    }
    for _ in 0..draw.rng.between(0, 2) {
        draw.ordinary();
    }
    for _ in 0..draw.rng.between(1, 3) {
        draw.stage();
    }
    draw.cover();
    draw.list();
    draw.program
}

/// A buffer that a table tiles, or of which it picks.
#[derive(Clone, Copy)]
struct Tiled {
    buffer: BufferId,
    table: TableId,
    picks: bool,
}

struct Draw<'a> {
    rng: &'a mut Rng,
    program: Program,
    tiled: Vec<Tiled>,
    plain: Vec<BufferId>,
    /// Operands of the tasks.
    drafts: Vec<Vec<Operand>>,
}

impl Draw<'_> {
    fn buffer(&mut self, kind: BufferKind, shape: Vec<u32>) -> BufferId {
        let id = BufferId::from(self.program.buffers.len());
        let name = format!("m{}", id.0);
        let (dtype, exchange) = (DType::F32, Exchange::Counter);
        self.program.buffers.push(Buffer { name, kind, dtype, shape, exchange, place: None });
        id
    }

    /// A table and the tasks that write it; they may read what an earlier table decides.
    fn table(&mut self) {
        let id = TableId::from(self.program.tables.len());
        let splits = self.rng.chance(20);
        let shapes: [&[u32]; 6] = [&[1], &[2], &[2, 1], &[1, 2], &[2, 2], &[3]];
        let shape =
            if splits { vec![self.rng.between(2, 3)] } else { self.rng.pick(&shapes).map_or(vec![1], |s| s.to_vec()) };
        let buffer = self.buffer(BufferKind::Activation, shape.clone());
        let holds = if splits {
            Holds::Splits { total: self.rng.between(1, 3) }
        } else {
            let values = self.rng.between(1, 3);
            let columns = shape.get(1).copied().unwrap_or(1);
            Holds::Routes { values, distinct: columns <= values && self.rng.chance(50) }
        };
        self.program.tables.push(Table { name: format!("r{}", id.0), buffer, holds });
        let rows = if !splits && self.rng.chance(30) { shape[0] } else { 1 };
        for row in 0..rows {
            let mut operand = whole(&self.program, buffer, Access::Write);
            if rows > 1 {
                operand.region.intervals_mut()[0] = Interval::fixed(row, row + 1);
            }
            let mut operands = self.some_read();
            operands.push(operand);
            self.drafts.push(operands);
        }
        for _ in 0..self.rng.between(1, 2) {
            self.tile_by(id);
        }
    }

    /// A buffer whose rows the table decides on.
    fn tile_by(&mut self, table: TableId) {
        let declared = &self.program.tables[table.index()];
        let routes = matches!(declared.holds, Holds::Routes { .. });
        let picks = routes && self.rng.chance(30);
        let rows = if picks { declared.groups(&self.program) } else { declared.rows(&self.program) };
        let columns = match self.rng.below(10) {
            0..5 => vec![],
            5..7 => vec![self.rng.between(1, 2)],
            _ => vec![self.program.positions + self.rng.below(2)],
        };
        let kind = match self.rng.below(100) {
            0..70 => BufferKind::Activation,
            70..88 => BufferKind::Output,
            88..94 => BufferKind::Input,
            _ => BufferKind::Weight,
        };
        let buffer = self.buffer(kind, [&[rows], columns.as_slice()].concat());
        self.tiled.push(Tiled { buffer, table, picks });
    }

    /// A buffer that no table knows: a state, or packets.
    fn ordinary(&mut self) {
        let state = self.rng.chance(50);
        let kind = if state { BufferKind::State } else { BufferKind::Activation };
        let extent = self.program.positions + self.rng.below(2);
        let buffer = self.buffer(kind, vec![extent]);
        if !state && self.rng.chance(60) {
            self.program.buffers[buffer.index()].exchange = Exchange::Packet { slots: 1 };
        }
        self.plain.push(buffer);
    }

    /// Tasks that write a tiled buffer, in parts, and tasks that read it.
    fn stage(&mut self) {
        let Some(&of) = self.rng.pick(&self.tiled) else { return };
        let written = !matches!(self.program.buffers[of.buffer.index()].kind, BufferKind::Input | BufferKind::Weight);
        if written {
            for write in self.parts(of, Access::Write) {
                let mut operands = self.some_read();
                operands.push(write);
                self.drafts.push(operands);
            }
        }
        for _ in 0..self.rng.between(1, 2) {
            let (reads, last) = (self.parts(of, Access::Read), self.tiled.len() as u32 - 1);
            let to = self.rng.chance(60).then(|| self.tiled[self.rng.below(last + 1) as usize]);
            for read in reads.into_iter().filter(|_| self.rng.below(100) < 85).collect::<Vec<_>>() {
                let mut operands = vec![read];
                if let Some(to) = to.filter(|to| to.buffer != of.buffer) {
                    let access = if self.rng.chance(75) { Access::Write } else { Access::Update };
                    let parts = self.parts(to, access);
                    let writable =
                        !matches!(self.program.buffers[to.buffer.index()].kind, BufferKind::Input | BufferKind::Weight);
                    operands.extend(self.rng.pick(&parts).copied().filter(|_| writable));
                }
                self.drafts.push(operands);
            }
        }
        if self.rng.chance(30) {
            let operands = self.some_read();
            self.drafts.push(operands);
        }
    }

    /// Operands that together are a buffer: by entries, groups, fixed rows, or one for all.
    fn parts(&mut self, of: Tiled, access: Access) -> Vec<Operand> {
        let all = whole(&self.program, of.buffer, access);
        let table = of.table;
        let declared = &self.program.tables[table.index()];
        let (entries, groups) = (declared.entries(&self.program), declared.groups(&self.program));
        let routes = matches!(declared.holds, Holds::Routes { .. });
        let routed = |routed| Operand { routed: Some(routed), ..all };
        let mut parts: Vec<Operand> = match (of.picks, self.rng.below(100)) {
            (_, 0..15) => vec![all],
            (true, n) if n < 60 && access == Access::Read => {
                (0..entries).map(|entry| routed(Routed::Pick { table, entry })).collect()
            }
            (true, _) => (0..groups)
                .map(|row| {
                    let mut part = all;
                    part.region.intervals_mut()[0] = Interval::fixed(row, row + 1);
                    part
                })
                .collect(),
            (false, n) if n < 60 && routes => (0..entries).map(|entry| routed(Routed::Row { table, entry })).collect(),
            (false, _) => (0..groups).map(|group| routed(Routed::Group { table, group })).collect(),
        };
        if let Some(&columns) = self.program.buffers[of.buffer.index()].shape.get(1) {
            self.columns(&mut parts, columns, access);
        }
        parts
    }

    /// Cuts parts in their columns, which may move.
    fn columns(&mut self, parts: &mut Vec<Operand>, columns: u32, access: Access) {
        let positions = self.program.positions;
        if access == Access::Read {
            let interval = match self.rng.below(4) {
                0 if columns >= positions => Interval { lo: Bound::at_pos(0), hi: Bound::at_pos(1) },
                1 if columns >= positions => {
                    let lo = if self.rng.chance(50) { Bound::behind(1) } else { Bound::fixed(0) };
                    Interval { lo, hi: Bound::at_pos(1) }
                }
                2 => Interval::fixed(0, 1),
                _ => Interval::fixed(0, columns),
            };
            parts.iter_mut().for_each(|part| part.region.intervals_mut()[1] = interval);
        } else if columns >= positions && columns > 1 && self.rng.chance(40) {
            let cut = if self.rng.chance(60) { Bound::at_pos(0) } else { Bound::fixed(1) };
            let cut = if cut.pos && positions == 1 { Bound::fixed(1) } else { cut };
            let right: Vec<Operand> = parts
                .iter()
                .map(|part| {
                    let mut part = *part;
                    part.region.intervals_mut()[1] = Interval { lo: cut, hi: Bound::fixed(columns) };
                    part
                })
                .collect();
            parts
                .iter_mut()
                .for_each(|part| part.region.intervals_mut()[1] = Interval { lo: Bound::fixed(0), hi: cut });
            parts.extend(right);
        }
    }

    /// Reads of what tables do not know, and a write now and then.
    fn some_read(&mut self) -> Vec<Operand> {
        let mut operands = Vec::new();
        if let Some(&buffer) = self.rng.pick(&self.plain).filter(|_| self.rng.chance(45)) {
            let packet = self.program.buffers[buffer.index()].exchange != Exchange::Counter;
            let written = self.drafts.iter().flatten().any(|operand| operand.buffer == buffer);
            let state = self.program.buffers[buffer.index()].kind == BufferKind::State;
            let access = if written || state && self.rng.chance(40) { Access::Read } else { Access::Write };
            let mut operand = whole(&self.program, buffer, access);
            if access == Access::Read && self.rng.chance(60) || state && self.rng.chance(60) {
                let offset = u32::from(self.rng.chance(30));
                let extent = self.program.buffers[buffer.index()].shape[0];
                if extent > offset + self.program.positions - 1 {
                    operand.region.intervals_mut()[0] =
                        Interval { lo: Bound::at_pos(offset), hi: Bound::at_pos(offset + 1) };
                }
            }
            if access == Access::Write || !packet || written {
                operands.push(operand);
            }
        }
        operands
    }

    /// The last task writes the outputs that nobody writes.
    fn cover(&mut self) {
        for id in (0..self.program.buffers.len()).map(BufferId::from) {
            let written = self.drafts.iter().flatten().any(|operand| operand.buffer == id && operand.access.writes());
            if self.program.buffers[id.index()].kind == BufferKind::Output && !written {
                let all = whole(&self.program, id, Access::Write);
                self.drafts.push(vec![all]);
            }
        }
    }

    /// Makes tasks of the drafts, with waits, signals and queues.
    fn list(&mut self) {
        let drafts = core::mem::take(&mut self.drafts);
        for operands in drafts {
            self.task(operands);
        }
        let counted: Vec<TableId> = (0..self.program.tables.len()).map(TableId::from).collect();
        for table in counted {
            self.count(table);
            self.pick(table);
        }
        self.read_tables();
        self.wait();
        let count = self.program.tasks.len();
        let all = (0..count).map(TaskId::from);
        self.program.queues = if self.rng.chance(15) {
            Queues::Ticket { workers: self.rng.between(1, 3), order: all.collect() }
        } else {
            let workers = if self.rng.chance(50) { count as u32 } else { self.rng.between(1, 4) };
            let mut queues = vec![Vec::new(); workers as usize];
            for (n, task) in all.enumerate() {
                let worker = if workers as usize == count { n } else { self.rng.below(workers) as usize };
                queues[worker].push(task);
            }
            Queues::Static(queues)
        };
    }

    fn task(&mut self, operands: Vec<Operand>) {
        let calls = vec![call(&mut self.program, operands)];
        self.program.tasks.push(Task { calls, ..Task::default() });
    }

    /// Tasks signal by entries, each entry once; those that have a group count.
    fn count(&mut self, table: TableId) {
        let Holds::Routes { values, .. } = self.program.tables[table.index()].holds else { return };
        if self.rng.chance(25) {
            return;
        }
        let event = self.event(&[values]);
        let entries = self.program.tables[table.index()].entries(&self.program);
        let strangers = self.rng.chance(15);
        for entry in 0..entries {
            let writes = |task: &Task| {
                operands(task).any(|o| o.routed == Some(Routed::Row { table, entry }) && o.access.writes())
            };
            let writers: Vec<usize> =
                (0..self.program.tasks.len()).filter(|&n| writes(&self.program.tasks[n])).collect();
            let any = self.rng.below(self.program.tasks.len() as u32) as usize;
            let any = any.max(self.writers(table));
            let by = writers.last().copied().filter(|_| !strangers).unwrap_or(any);
            self.program.tasks[by].routed_signals.push(RoutedSignal { event, table, entry });
        }
        for n in 0..self.program.tasks.len() {
            let groups: Vec<u32> = operands(&self.program.tasks[n])
                .filter_map(|operand| match operand.routed {
                    Some(Routed::Group { table: of, group }) if of == table => Some(group),
                    _ => None,
                })
                .collect();
            let stray = self.rng.chance(4).then(|| self.rng.below(values));
            for value in groups.into_iter().chain(stray) {
                if self.program.tasks[n].routed_signals.is_empty() && self.rng.chance(85) {
                    self.program.tasks[n].routed_waits.push(RoutedWait::Count { event, value, table });
                }
            }
        }
    }

    /// One past the last task that writes a table.
    fn writers(&self, table: TableId) -> usize {
        let buffer = self.program.tables[table.index()].buffer;
        let writes = |task: &Task| operands(task).any(|operand| operand.buffer == buffer && operand.access.writes());
        let last = self.program.tasks.iter().rposition(writes).map_or(0, |last| last + 1);
        last.min(self.program.tasks.len() - 1)
    }

    /// Tasks signal a value's element, those that have an entry wait for the element that it names.
    fn pick(&mut self, table: TableId) {
        let Holds::Routes { values, .. } = self.program.tables[table.index()].holds else { return };
        if self.rng.chance(45) {
            return;
        }
        let event = self.event(&[values]);
        let mut fan_in = vec![0; values as usize];
        let mut first = 0;
        for (n, task) in self.program.tasks.iter_mut().enumerate() {
            let written = |value: u32| {
                operands(task).any(|operand| {
                    let group = operand.routed == Some(Routed::Group { table, group: value });
                    let row = self.tiled.iter().any(|of| of.picks && of.table == table && of.buffer == operand.buffer)
                        && operand.region.intervals()[0] == Interval::fixed(value, value + 1);
                    operand.access.writes() && (group || row)
                })
            };
            let signals: Vec<u32> = (0..values).filter(|&value| written(value)).collect();
            for value in signals {
                task.signals.push(Element { event, index: value });
                fan_in[value as usize] += 1;
                first = n + 1;
            }
        }
        if fan_in.contains(&0) {
            return;
        }
        for n in first..self.program.tasks.len() {
            let entries: Vec<u32> = operands(&self.program.tasks[n])
                .filter_map(|operand| match operand.routed {
                    Some(Routed::Row { table: of, entry } | Routed::Pick { table: of, entry }) if of == table => {
                        Some(entry)
                    }
                    _ => None,
                })
                .collect();
            for entry in entries {
                let least = fan_in.iter().copied().min().unwrap_or(1);
                let threshold = if self.rng.chance(90) { least } else { self.rng.between(1, least) };
                let wait = RoutedWait::Pick { event, table, entry, threshold };
                let waits = &mut self.program.tasks[n].routed_waits;
                if self.rng.chance(80) && !waits.contains(&wait) {
                    waits.push(wait);
                }
            }
        }
    }

    fn event(&mut self, shape: &[u32]) -> EventId {
        let id = EventId::from(self.program.events.len());
        self.program.events.push(EventTensor { name: format!("n{}", id.0), shape: shape.to_vec() });
        id
    }

    /// Whoever depends on a table reads it.
    fn read_tables(&mut self) {
        for n in 0..self.program.tasks.len() {
            let task = &self.program.tasks[n];
            let mut used: Vec<TableId> = operands(task).filter_map(|operand| Some(operand.routed?.table())).collect();
            used.extend(task.routed_waits.iter().map(|wait| wait.table()));
            used.extend(task.routed_signals.iter().map(|signal| signal.table));
            used.sort_unstable();
            used.dedup();
            let mut all: Vec<Operand> = operands(task).copied().collect();
            for table in used {
                let buffer = self.program.tables[table.index()].buffer;
                let writes = all.iter().any(|operand| operand.buffer == buffer);
                if !writes && self.rng.chance(98) {
                    all.insert(0, whole(&self.program, buffer, Access::Read));
                }
            }
            all.sort_by_key(|operand| operand.access == Access::Write);
            self.program.tasks[n].calls = vec![call(&mut self.program, all)];
        }
    }

    /// Fixed waits for most conflicts; fewer where a table may order them.
    fn wait(&mut self) {
        let forgetful = self.rng.chance(30);
        for later in 0..self.program.tasks.len() {
            let mut earlier = Vec::new();
            for other in 0..later {
                let (a, b) = (&self.program.tasks[other], &self.program.tasks[later]);
                let pairs = || operands(a).flat_map(|a| operands(b).map(move |b| (a, b)));
                let meet = |a: &Operand, b: &Operand| {
                    a.buffer == b.buffer && (a.access.writes() || b.access.writes()) && !apart(a, b)
                };
                let packet = |o: &Operand| self.program.buffers[o.buffer.index()].exchange != Exchange::Counter;
                let fixed = pairs().any(|(a, b)| meet(a, b) && !routed(a, b) && !packet(a));
                let by_table = pairs().any(|(a, b)| meet(a, b) && routed(a, b));
                let percent = match (fixed, by_table) {
                    (true, _) => 100,
                    (false, true) if waits_by_table(a, b) => 25,
                    (false, true) => 92,
                    (false, false) => 0,
                };
                let percent = if forgetful { percent * 9 / 10 } else { percent };
                if percent > 0 && self.rng.chance(percent) {
                    earlier.push(other);
                }
            }
            if !earlier.is_empty() {
                let event = self.event(&[]);
                let on = Element { event, index: 0 };
                let partial = forgetful && self.rng.chance(6);
                let threshold = earlier.len() as u32 - u32::from(partial && earlier.len() > 1);
                earlier.into_iter().for_each(|other| self.program.tasks[other].signals.push(on));
                self.program.tasks[later].waits.push(Wait { on, threshold });
            }
        }
    }
}

fn operands(task: &Task) -> impl Iterator<Item = &Operand> {
    task.calls.iter().flat_map(|call| &call.operands)
}

fn routed(a: &Operand, b: &Operand) -> bool {
    a.routed.is_some() || b.routed.is_some()
}

/// Whether one task waits, by a table, for an event that the other signals.
fn waits_by_table(one: &Task, other: &Task) -> bool {
    let signals = one.routed_signals.iter().map(|signal| signal.event).chain(one.signals.iter().map(|on| on.event));
    let mut waits = other.routed_waits.iter().map(|wait| wait.event());
    let signals: Vec<EventId> = signals.collect();
    waits.any(|event| signals.contains(&event))
}

/// Whether two tiles are different entries, groups or fixed rows.
fn apart(a: &Operand, b: &Operand) -> bool {
    match (a.routed, b.routed) {
        (Some(Routed::Row { entry: x, .. }), Some(Routed::Row { entry: y, .. })) => x != y,
        (Some(Routed::Group { group: x, .. }), Some(Routed::Group { group: y, .. })) => x != y,
        (None, None) => {
            let fixed = |o: &Operand| o.region.intervals().first().filter(|i| !i.moves()).copied();
            matches!((fixed(a), fixed(b)), (Some(x), Some(y)) if x.hi.base <= y.lo.base || y.hi.base <= x.lo.base)
        }
        _ => false,
    }
}

/// A call of a new instruction.
fn call(program: &mut Program, operands: Vec<Operand>) -> Call {
    let n = program.instructions.len();
    let spec = |(n, operand): (usize, &Operand)| OperandSpec { name: format!("x{n}"), access: operand.access };
    let specs = operands.iter().enumerate().map(spec).collect();
    let (name, path) = (format!("call{n}"), format!("test::call{n}"));
    program.instructions.push(Instruction { name, path, operands: specs, params: Vec::new() });
    Call { instruction: n.into(), operands, params: Vec::new(), rows: None }
}
