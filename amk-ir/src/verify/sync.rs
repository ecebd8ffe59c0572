//! Synchronisation compiled to flat arrays: queues, counters, and packets as private counters.

use super::packets::PacketEdges;
use crate::{Element, Program, Queues, TaskId, Wait};
use std::rc::Rc;

/// A list of lists in two flat arrays.
#[derive(Debug)]
pub(super) struct Rows<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { starts: Vec::new(), items: Vec::new() }
    }
}

impl<T> Rows<T> {
    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.starts.push(0);
        self.items.clear();
    }

    pub(super) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Ends the row that `push` has filled.
    pub(super) fn end_row(&mut self) {
        self.starts.push(self.items.len() as u32);
    }

    pub(super) fn row(&self, n: u32) -> &[T] {
        let n = n as usize;
        match self.starts.get(n..n + 2) {
            Some(&[start, end]) => &self.items[start as usize..end as usize],
            _ => &[],
        }
    }

    /// How many items all rows have.
    pub(super) fn items(&self) -> u64 {
        self.items.len() as u64
    }

    pub(super) fn rows(&self) -> u32 {
        self.starts.len().saturating_sub(1) as u32
    }

    /// The transposed relation of a list of lists of small numbers.
    pub(super) fn transpose_into(&self, columns: u32, key: impl Fn(&T) -> u32, out: &mut Rows<u32>) {
        out.starts.clear();
        out.starts.resize(columns as usize + 1, 0);
        for item in &self.items {
            out.starts[key(item) as usize + 1] += 1;
        }
        for n in 1..out.starts.len() {
            out.starts[n] += out.starts[n - 1];
        }
        out.items.clear();
        out.items.resize(self.items.len(), 0);
        let mut row = 0;
        for (n, item) in self.items.iter().enumerate() {
            while self.starts[row + 1] as usize <= n {
                row += 1;
            }
            let column = key(item) as usize;
            out.items[out.starts[column] as usize] = row as u32;
            out.starts[column] += 1;
        }
        out.starts.rotate_right(1);
        if let Some(first) = out.starts.first_mut() {
            *first = 0;
        }
    }
}

/// How tasks come to workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    /// Each worker runs its queue in order.
    #[default]
    Queues,
    /// So many workers draw from one list.
    Tickets(u32),
}

/// A wait for a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterWait {
    pub(super) counter: u32,
    pub(super) threshold: u32,
}

/// Queues and counters of a program whose structure has been checked.
#[derive(Default)]
pub(super) struct Sync {
    pub(super) tasks: u32,
    pub(super) mode: Mode,
    /// Tasks of each queue; of the one list for tickets.
    pub(super) queues: Rows<u32>,
    /// Queue of each task and its place in it.
    pub(super) place: Vec<(u32, u32)>,
    /// Counters that each task signals.
    pub(super) signals: Rows<u32>,
    /// The waits of each task.
    pub(super) waits: Rows<CounterWait>,
    /// Tasks that signal each counter.
    pub(super) signallers: Rows<u32>,
    /// The counters that are mentioned, in order, if they are few of many; otherwise empty, and
    /// counters are numbered as laid out.
    named: Vec<u64>,
    bases: Vec<u64>,
}

impl Sync {
    pub(super) fn compile(&mut self, program: &Program) {
        self.tasks = program.tasks.len() as u32;
        self.compile_queues(program);
        let counters = self.compile_counters(program);
        let (signals, waits) = (&mut self.signals, &mut self.waits);
        signals.clear();
        waits.clear();
        let named = &self.named;
        let bases = &self.bases;
        let counter = |element: Element| dense(named, bases, element);
        for task in &program.tasks {
            task.signals.iter().for_each(|&signal| signals.push(counter(signal)));
            signals.end_row();
            for &Wait { on, threshold } in &task.waits {
                waits.push(CounterWait { counter: counter(on), threshold });
            }
            waits.end_row();
        }
        signals.transpose_into(counters, |&counter| counter, &mut self.signallers);
    }

    fn compile_queues(&mut self, program: &Program) {
        self.place.clear();
        self.place.resize(program.tasks.len(), (0, 0));
        self.queues.clear();
        let lists = match &program.queues {
            Queues::Static(queues) => {
                self.mode = Mode::Queues;
                queues.as_slice()
            }
            Queues::Ticket { workers, order } => {
                // One worker runs the list in order, like a queue; without workers there is no
                // task.
                self.mode = if *workers <= 1 { Mode::Queues } else { Mode::Tickets(*workers) };
                std::slice::from_ref(order)
            }
        };
        for (queue, list) in lists.iter().enumerate() {
            for (n, task) in list.iter().enumerate() {
                self.queues.push(task.0);
                self.place[task.index()] = (queue as u32, n as u32);
            }
            self.queues.end_row();
        }
    }

    /// Decides how counters are numbered; the number of them.
    fn compile_counters(&mut self, program: &Program) -> u32 {
        self.bases.clear();
        self.named.clear();
        let mut total = 0u64;
        for event in &program.events {
            self.bases.push(total);
            total = total.saturating_add(event.len());
        }
        let mentions: usize = program.tasks.iter().map(|task| task.signals.len() + task.waits.len()).sum();
        const SPARSE: u64 = 4;
        if total <= SPARSE * mentions as u64 + 1024 {
            return total as u32;
        }
        for task in &program.tasks {
            let elements = task.signals.iter().copied().chain(task.waits.iter().map(|wait| wait.on));
            self.named.extend(elements.map(|e| self.bases[e.event.index()] + u64::from(e.index)));
        }
        self.named.sort_unstable();
        self.named.dedup();
        self.named.len() as u32
    }

    pub(super) fn counters(&self) -> u32 {
        self.signallers.rows()
    }

    pub(super) fn fan_in(&self, counter: u32) -> u32 {
        self.signallers.row(counter).len() as u32
    }

    /// The counter as the program names it.
    pub(super) fn element(&self, counter: u32) -> Element {
        let flat = self.named.get(counter as usize).copied().unwrap_or(u64::from(counter));
        let event = self.bases.partition_point(|&base| base <= flat).saturating_sub(1);
        Element { event: event.into(), index: (flat - self.bases.get(event).copied().unwrap_or(0)) as u32 }
    }

    /// The task and step before those in their queue.
    pub(super) fn before_in_launch(&self, task: u32, step: u32) -> Option<(u32, u32)> {
        let (queue, _) = self.place[task as usize];
        let last = || Some((*self.queues.row(queue).last()?, step.checked_sub(1)?));
        self.before(task).map(|before| (before, step)).or_else(last)
    }

    /// The task before `task` in its queue.
    pub(super) fn before(&self, task: u32) -> Option<u32> {
        let (queue, n) = self.place[task as usize];
        n.checked_sub(1).map(|n| self.queues.row(queue)[n as usize])
    }
}

fn dense(named: &[u64], bases: &[u64], element: Element) -> u32 {
    let flat = bases[element.event.index()] + u64::from(element.index);
    if named.is_empty() { flat as u32 } else { named.partition_point(|&known| known < flat) as u32 }
}

/// The order of `Sync` together with the order of packets at one position.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) sync: &'a Sync,
    /// For each copy of the step. A single one holds for all steps; with several, no step after the
    /// last is considered.
    pub(super) packets: &'a [Rc<PacketEdges>],
}

impl<'a> Order<'a> {
    pub(super) fn packets(&self, step: u32) -> &'a PacketEdges {
        &self.packets[(step as usize).min(self.packets.len() - 1)]
    }
}

/// The ids of tasks.
pub(super) fn task(n: u32) -> TaskId {
    TaskId(n)
}
