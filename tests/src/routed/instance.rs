//! Programs with tables, one routing at a time: ordinary programs, without tables, for each way the
//! tables can be filled.
//!
//! This is a second definition of tables that shares no code with the verifier: tiles become the
//! rows that the routing gives them, counts become numbers. Who depends on a table reads it,
//! whether an operand says so or not; and as a task reads it before it checks the waits that depend
//! on it, such a task becomes two: one that reads, and one that does the work.

use amk_ir::{
    Access, BufferId, Call, Element, EventId, EventTensor, Exchange, Holds, Instruction, Interval, Operand,
    OperandSpec, Program, Queues, Routed, RoutedWait, Table, TableId, Task, TaskId, Wait,
};
use std::collections::{BTreeMap, BTreeSet};

/// The entries of each table.
pub type Routing = Vec<Vec<u32>>;

/// All that keep the contracts of the tables.
pub fn routings(program: &Program) -> Vec<Routing> {
    program.tables.iter().fold(vec![Vec::new()], |routings, table| {
        let fillings = fillings(program, table);
        let with = |routing: &Routing| {
            fillings
                .iter()
                .map(|filling| [routing.as_slice(), std::slice::from_ref(filling)].concat())
                .collect::<Vec<_>>()
        };
        routings.iter().flat_map(with).collect()
    })
}

fn fillings(program: &Program, table: &Table) -> Vec<Vec<u32>> {
    let shape = &program.buffers[table.buffer.index()].shape;
    let (entries, columns) = (shape.iter().product::<u32>(), if shape.len() == 2 { shape[1] as usize } else { 1 });
    let largest = match table.holds {
        Holds::Routes { values, .. } => values - 1,
        Holds::Splits { total } => total,
    };
    let longer = |short: Vec<Vec<u32>>| -> Vec<Vec<u32>> {
        short.iter().flat_map(|start| (0..=largest).map(move |next| [start.as_slice(), &[next]].concat())).collect()
    };
    let mut all = (0..entries).fold(vec![Vec::new()], |short, _| longer(short));
    all.retain(|filling| match table.holds {
        Holds::Routes { distinct, .. } => {
            let repeats = |row: &[u32]| (1..row.len()).any(|n| row[..n].contains(&row[n]));
            !distinct || !filling.chunks(columns).any(repeats)
        }
        Holds::Splits { total } => filling.is_sorted() && filling.first() == Some(&0) && filling.last() == Some(&total),
    });
    all
}

/// Whether each entry or group that a task names is in its table.
pub fn names_what_is_there(program: &Program) -> bool {
    let entry = |table: TableId, entry: u32| {
        let declared = &program.tables[table.index()];
        matches!(declared.holds, Holds::Routes { .. }) && entry < declared.entries(program)
    };
    let group = |table: TableId, group: u32| group < program.tables[table.index()].groups(program);
    program.tasks.iter().all(|task| {
        let mut tiles = task.calls.iter().flat_map(|call| &call.operands).filter_map(|operand| operand.routed);
        tiles.all(|routed| match routed {
            Routed::Pick { table, entry: n } | Routed::Row { table, entry: n } => entry(table, n),
            Routed::Group { table, group: n } => group(table, n),
        }) && task.routed_signals.iter().all(|signal| entry(signal.table, signal.entry))
            && task.routed_waits.iter().all(|wait| match *wait {
                RoutedWait::Pick { table, entry: n, .. } => entry(table, n),
                RoutedWait::Count { table, value, .. } => group(table, value),
            })
    })
}

/// The program of a routing.
pub fn instance(program: &Program, routing: &Routing) -> Program {
    let mut built = Builder { routing, program, out: Program::default(), queued: BTreeMap::new() };
    built.out.clone_from(program);
    (built.out.tables, built.out.tasks, built.out.instructions) = (Vec::new(), Vec::new(), Vec::new());
    (0..).zip(&program.tasks).for_each(|(id, task)| built.task(TaskId(id), task));
    let Builder { mut out, queued, .. } = built;
    let expand = |queue: &mut Vec<TaskId>| {
        *queue = queue.iter().flat_map(|task| queued.get(task).cloned().unwrap_or_default()).collect();
    };
    match &mut out.queues {
        Queues::Static(queues) => queues.iter_mut().for_each(expand),
        Queues::Ticket { order, .. } => expand(order),
    }
    out
}

struct Builder<'a> {
    routing: &'a Routing,
    program: &'a Program,
    out: Program,
    /// The tasks that replace each task in its queue.
    queued: BTreeMap<TaskId, Vec<TaskId>>,
}

impl Builder<'_> {
    fn task(&mut self, id: TaskId, task: &Task) {
        let mut work = Task { waits: task.waits.clone(), signals: task.signals.clone(), ..Task::default() };
        if !task.routed_waits.is_empty() {
            let looked = self.counter(format!("looked{id}"));
            let used = task.routed_waits.iter().map(|wait| match *wait {
                RoutedWait::Count { table, .. } => (table, None),
                RoutedWait::Pick { table, entry, .. } => (table, Some(entry)),
            });
            // Packets are waited for before the tables are read.
            let mut operands = self.look(used.collect()).operands;
            operands.extend(self.packets(task));
            let look = Task {
                calls: vec![self.call(operands)],
                waits: task.waits.clone(),
                signals: vec![looked],
                ..Task::default()
            };
            self.push(id, look);
            work.waits = vec![Wait { on: looked, threshold: 1 }];
            // Entries that agree wait for the same counter.
            for wait in task.routed_waits.iter().filter_map(|wait| self.wait(*wait)) {
                match work.waits.iter_mut().find(|known| known.on == wait.on) {
                    Some(known) => known.threshold = known.threshold.max(wait.threshold),
                    None => work.waits.push(wait),
                }
            }
        }
        for call in &task.calls {
            let used = call.operands.iter().filter_map(|operand| match operand.routed? {
                Routed::Pick { table, entry } => Some((table, Some(entry))),
                // Where a row lies depends on all entries.
                Routed::Row { table, .. } | Routed::Group { table, .. } => Some((table, None)),
            });
            let operands = call.operands.iter().filter_map(|operand| self.operand(*operand)).collect();
            let calls = [self.look(used.collect()), self.call(operands)];
            work.calls.extend(calls.into_iter().filter(|call| !call.operands.is_empty()));
        }
        let used = task.routed_signals.iter().map(|signal| (signal.table, Some(signal.entry))).collect();
        let look = self.look(used);
        work.calls.extend(Some(look).filter(|call| !call.operands.is_empty()));
        // A task signals a counter once: further signals come from tasks behind it.
        let mut again = Vec::new();
        for signal in &task.routed_signals {
            let on = Element { event: signal.event, index: self.routing[signal.table.index()][signal.entry as usize] };
            if work.signals.contains(&on) { again.push(on) } else { work.signals.push(on) }
        }
        self.push(id, work);
        for on in again {
            self.push(id, Task { signals: vec![on], ..Task::default() });
        }
    }

    /// The packets of other tasks that a task reads.
    fn packets(&self, task: &Task) -> Vec<Operand> {
        let packet = |operand: &&Operand| {
            matches!(self.program.buffers[operand.buffer.index()].exchange, Exchange::Packet { .. })
        };
        let operands = || task.calls.iter().flat_map(|call| &call.operands).filter(packet);
        let own: BTreeSet<BufferId> =
            operands().filter(|operand| operand.access.writes()).map(|operand| operand.buffer).collect();
        operands().filter(|operand| !own.contains(&operand.buffer)).copied().collect()
    }

    /// A call that reads entries of tables, or all of a table.
    fn look(&mut self, used: Vec<(TableId, Option<u32>)>) -> Call {
        let read = |(table, entry): (TableId, Option<u32>)| {
            let buffer = self.program.tables[table.index()].buffer;
            let mut operand = whole(self.program, buffer, Access::Read);
            if let Some(entry) = entry {
                let columns = self.program.buffers[buffer.index()].shape.get(1).copied().unwrap_or(1);
                for (interval, at) in operand.region.intervals_mut().iter_mut().zip([entry / columns, entry % columns])
                {
                    *interval = Interval::fixed(at, at + 1);
                }
            }
            operand
        };
        let operands = used.into_iter().map(read).collect();
        self.call(operands)
    }

    fn push(&mut self, of: TaskId, task: Task) {
        self.queued.entry(of).or_default().push(TaskId::from(self.out.tasks.len()));
        self.out.tasks.push(task);
    }

    fn counter(&mut self, name: String) -> Element {
        let event = EventId::from(self.out.events.len());
        self.out.events.push(EventTensor { name, shape: Vec::new() });
        Element { event, index: 0 }
    }

    /// A call of a new instruction.
    fn call(&mut self, operands: Vec<Operand>) -> Call {
        let name = format!("call{}", self.out.instructions.len());
        let spec = |(n, operand): (usize, &Operand)| OperandSpec { name: format!("x{n}"), access: operand.access };
        let operands_of = operands.iter().enumerate().map(spec).collect();
        let instruction = self.out.instructions.len().into();
        let path = format!("test::{name}");
        self.out.instructions.push(Instruction { name, path, operands: operands_of, params: Vec::new() });
        Call { instruction, operands, params: Vec::new(), rows: None }
    }

    fn wait(&self, wait: RoutedWait) -> Option<Wait> {
        match wait {
            RoutedWait::Count { event, value, table } => {
                let threshold = self.routing[table.index()].iter().filter(|&&entry| entry == value).count() as u32;
                (threshold > 0).then_some(Wait { on: Element { event, index: value }, threshold })
            }
            RoutedWait::Pick { event, table, entry, threshold } => {
                let index = self.routing[table.index()][entry as usize];
                Some(Wait { on: Element { event, index }, threshold })
            }
        }
    }

    /// The operand with its rows; `None` where it has none.
    fn operand(&self, operand: Operand) -> Option<Operand> {
        let Some(routed) = operand.routed else { return Some(operand) };
        let entries = &self.routing[routed.table().index()];
        // Entries in the order of their rows.
        let mut sorted: Vec<usize> = (0..entries.len()).collect();
        sorted.sort_by_key(|&entry| entries[entry]);
        let row = |wanted: &dyn Fn(usize) -> bool| sorted.iter().position(|&entry| wanted(entry));
        let (lo, hi) = match (routed, self.program.tables[routed.table().index()].holds) {
            (Routed::Pick { entry, .. }, _) => (entries[entry as usize], entries[entry as usize] + 1),
            (Routed::Row { entry, .. }, _) => {
                let row = row(&|other| other == entry as usize)? as u32;
                (row, row + 1)
            }
            (Routed::Group { group, .. }, Holds::Routes { .. }) => {
                let first = row(&|other| entries[other] == group)? as u32;
                (first, first + entries.iter().filter(|&&entry| entry == group).count() as u32)
            }
            (Routed::Group { group, .. }, Holds::Splits { .. }) => {
                (entries[group as usize], entries[group as usize + 1])
            }
        };
        let mut operand = Operand { routed: None, ..operand };
        *operand.region.intervals_mut().first_mut()? = Interval::fixed(lo, hi);
        (lo < hi).then_some(operand)
    }
}

/// The operand of a whole buffer.
pub fn whole(program: &Program, buffer: BufferId, access: Access) -> Operand {
    let region = amk_ir::Region::full(&program.buffers[buffer.index()].shape);
    Operand { buffer, region, access, early: false, routed: None }
}
