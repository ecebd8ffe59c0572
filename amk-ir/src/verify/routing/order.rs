//! Orders that hold for every routing, or for every routing in which an entry has a certain value.
//!
//! If entry `n` of a table is `v`, the task that signals `n` finishes before the tasks start that
//! wait for the count of `v`; and the tasks that signal element `v` of an event finish before the
//! tasks start that wait there for entry `n` and for all signals. Together with the order of the
//! least program, these *edges* determine what comes after a task given the value. An entry has
//! *some* value: what comes after a task for each value of one entry comes after it for every
//! routing; and so does what comes after it for each entry of a row that names all values.

use crate::verify::Given;
use crate::verify::budget::Budget;
use crate::verify::clocks::Clocks;
use crate::verify::storage::Access;
use crate::verify::sync::task;
use crate::verify::violation::TooMuch;
use crate::{Element, EventId, Holds, Program, Routed, RoutedWait, TableId};
use std::collections::{BTreeMap, HashMap};

/// A set of tasks.
type Tasks = Vec<u64>;

/// Words of sets that are kept to be asked again.
const KEPT_WORDS: usize = 1 << 24;

/// Edges of a table of routes.
#[derive(Default)]
struct Edges {
    entries: u32,
    values: u32,
    /// Entries of a row if they differ, else 1.
    row: u32,
    /// In order of their numbers.
    named: Vec<Entry>,
}

/// An entry that some task signals or waits for.
#[derive(Default)]
struct Entry {
    number: u32,
    /// Who signals it, on which event tensor.
    signals: Vec<(EventId, u32)>,
    /// The tasks that wait for its element, with the event tensor and the number of signals.
    picks: Vec<(u32, EventId, u32)>,
}

/// The order that routed waits establish.
pub(in crate::verify) struct RoutedOrder {
    tasks: u32,
    tables: Vec<Edges>,
    /// By element: the tasks that wait for its count.
    counts: HashMap<Element, Vec<u32>>,
    /// By element: the tasks that signal it, whatever the routing.
    fixed: HashMap<Element, Vec<u32>>,
    /// By buffer: the table it is. A task's waits read it before the waits are over, so they do not
    /// order it.
    is_table: Vec<bool>,
    /// Tasks after a task in the least program.
    successors: HashMap<u32, Tasks>,
    /// Tasks after a task.
    after: HashMap<(u32, Option<Given>), Tasks>,
}

impl RoutedOrder {
    pub(super) fn of(program: &Program) -> Self {
        let edges = |table: &crate::Table| match table.holds {
            Holds::Routes { values, distinct } => {
                let row = if distinct { table.row_len(program) } else { 1 };
                Edges { entries: table.entries(program), values, row, ..Edges::default() }
            }
            Holds::Splits { .. } => Edges { row: 1, ..Edges::default() },
        };
        let mut tables: Vec<Edges> = program.tables.iter().map(edges).collect();
        let mut named: Vec<BTreeMap<u32, Entry>> = tables.iter().map(|_| BTreeMap::new()).collect();
        let (mut counts, mut fixed) = (HashMap::<_, Vec<u32>>::new(), HashMap::<_, Vec<u32>>::new());
        let mut picked = Vec::new();
        for (id, task) in (0..).zip(&program.tasks) {
            for wait in &task.routed_waits {
                match *wait {
                    RoutedWait::Count { event, value, .. } => {
                        counts.entry(Element { event, index: value }).or_default().push(id);
                    }
                    RoutedWait::Pick { event, table, entry, threshold } => {
                        named[table.index()].entry(entry).or_default().picks.push((id, event, threshold));
                        picked.push(event);
                    }
                }
            }
            for signal in &task.routed_signals {
                named[signal.table.index()].entry(signal.entry).or_default().signals.push((signal.event, id));
            }
        }
        for (edges, named) in tables.iter_mut().zip(named) {
            edges.named = named.into_iter().map(|(number, entry)| Entry { number, ..entry }).collect();
        }
        picked.sort_unstable();
        for (id, task) in (0..).zip(&program.tasks) {
            for &signal in task.signals.iter().filter(|signal| picked.binary_search(&signal.event).is_ok()) {
                fixed.entry(signal).or_default().push(id);
            }
        }
        let mut is_table = vec![false; program.buffers.len()];
        program.tables.iter().for_each(|table| is_table[table.buffer.index()] = true);
        let tasks = program.tasks.len() as u32;
        Self { tasks, tables, counts, fixed, is_table, successors: HashMap::new(), after: HashMap::new() }
    }

    /// The same for other clocks: the cached successors are dropped.
    pub(in crate::verify) fn of_other_clocks(&mut self) -> &mut Self {
        self.successors.clear();
        self.after.clear();
        self
    }

    /// Whether `first` has finished when `second` starts, for every routing in which they touch the
    /// same elements. If not, a value for which no order is known, if it matters.
    pub(in crate::verify) fn holds(
        &mut self,
        clocks: &Clocks,
        first: &Access,
        second: &Access,
        budget: &mut Budget,
    ) -> Result<(), Option<Given>> {
        if self.is_table[first.operand.buffer.index()] {
            return Err(None);
        }
        let mut search = Search { clocks, budget, a: first.task(), b: second.task() };
        if self.comes_after(&mut search, None) {
            return Ok(());
        }
        let Some(cases) = self.cases(first, second) else { return Err(None) };
        for given in cases {
            if !self.comes_after(&mut search, Some(given)) {
                return Err(Some(given));
            }
        }
        Ok(())
    }

    /// The values for which two operands touch the same elements: for each of them some routing
    /// exists. `None` if they do in every routing, or it depends on no value.
    fn cases(&self, first: &Access, second: &Access) -> Option<impl Iterator<Item = Given> + use<>> {
        // The elements of an operand that a pick can refer to.
        let picked = |table: TableId, other: &Access| {
            let fixed = other.operand.region.intervals().first().filter(|i| !i.moves());
            fixed.map_or(0..self.tables[table.index()].values, |i| i.lo.base..i.hi.base)
        };
        let (table, entries, values) = match (first.operand.routed, second.operand.routed) {
            (Some(Routed::Row { table, entry }), Some(Routed::Group { group, .. }))
            | (Some(Routed::Group { group, .. }), Some(Routed::Row { table, entry })) => {
                (table, entry..entry + 1, group..group + 1)
            }
            // The group has rows if some entry has its value.
            (Some(Routed::Group { table, group }), _) | (_, Some(Routed::Group { table, group })) => {
                (table, 0..self.tables[table.index()].entries, group..group + 1)
            }
            (Some(Routed::Pick { table, entry }), _) => (table, entry..entry + 1, picked(table, second)),
            (_, Some(Routed::Pick { table, entry })) => (table, entry..entry + 1, picked(table, first)),
            _ => return None,
        };
        let given = move |entry: u32| values.clone().map(move |value| Given { table, entry, value });
        Some(entries.flat_map(given)).filter(|cases| cases.clone().next().is_some())
    }

    fn comes_after(&mut self, search: &mut Search<'_, '_>, given: Option<Given>) -> bool {
        let (a, b) = (search.a, search.b);
        self.remember(search, None);
        if self.after[&(a, None)].has(b) {
            return true;
        }
        let Some(given) = given else { return false };
        // Nearly always an edge of the value itself leads there.
        for to in self.targets(a, &self.after[&(a, None)], given) {
            if to == b || self.successors(search, to).has(b) {
                return true;
            }
        }
        self.remember(search, Some(given));
        self.after[&(a, Some(given))].has(b)
    }

    /// Ensures that the successors of a task are computed.
    fn remember(&mut self, search: &mut Search<'_, '_>, given: Option<Given>) {
        let key = (search.a, given);
        if self.after.contains_key(&key) {
            return;
        }
        if (self.after.len() + 1) * self.words() > KEPT_WORDS {
            self.after.retain(|(a, given), _| *a == search.a && given.is_none());
        }
        let after = self.all_after(search, given);
        self.after.insert(key, after);
    }

    fn words(&self) -> usize {
        self.tasks as usize / 64 + 1
    }

    /// All tasks that start only when `a` has finished.
    fn all_after(&mut self, search: &mut Search<'_, '_>, given: Option<Given>) -> Tasks {
        let mut after = self.successors(search, search.a).clone();
        loop {
            let mut more = after.clone();
            if let Some(given) = given {
                let reached = self.reached(search, &after, given);
                more.add(&reached);
            }
            for table in (0..self.tables.len()).map(TableId::from) {
                self.some_value(search, table, &after, &mut more);
            }
            if more == after || search.budget.is_spent() {
                return after;
            }
            after = more;
        }
    }

    /// Adds the successors of `a` for every value of an entry of the table.
    fn some_value(&mut self, search: &mut Search<'_, '_>, table: TableId, after: &Tasks, more: &mut Tasks) {
        let &Edges { entries, values, row, .. } = &self.tables[table.index()];
        // A value that no task waits for and none signals leads nowhere.
        if values as usize > self.counts.len() + self.fixed.len() {
            return;
        }
        for n in 0..self.tables[table.index()].named.len() {
            let entry = self.tables[table.index()].named[n].number;
            let cases = (0..values).map(|value| Given { table, entry, value });
            self.one_of(search, after, cases, more);
        }
        // A row of different entries that is as long as there are values names each of them.
        if row == values && self.tables[table.index()].named.len() as u32 == entries {
            for first in (0..entries).step_by(row as usize) {
                for value in 0..values {
                    let cases = (first..first + row).map(|entry| Given { table, entry, value });
                    self.one_of(search, after, cases, more);
                }
            }
        }
    }

    /// Adds the common successors of `a` over several cases, one of which holds for every routing.
    fn one_of(
        &mut self,
        search: &mut Search<'_, '_>,
        after: &Tasks,
        cases: impl Iterator<Item = Given>,
        more: &mut Tasks,
    ) {
        let mut common: Option<Tasks> = None;
        for given in cases {
            let mut both = self.reached(search, after, given);
            if let Some(common) = &common {
                both.iter_mut().zip(common).for_each(|(both, common)| *both &= common);
            }
            if both.iter().all(|&word| word == 0) {
                return;
            }
            common = Some(both);
        }
        more.add(&common.unwrap_or_default());
    }

    /// Returns the tasks that the edges of a value reach from `a` and its successors, in addition
    /// to those.
    fn reached(&mut self, search: &mut Search<'_, '_>, after: &Tasks, given: Given) -> Tasks {
        let mut reached = Tasks::new();
        let mut known = Tasks::new();
        loop {
            let from = if known.is_empty() { after } else { &known };
            let work = 50 + 4 * known.len() as u64;
            if !search.budget.spend(work, TooMuch::Routes { task: task(search.a) }) {
                return reached;
            }
            let mut targets = self.targets(search.a, from, given);
            targets.retain(|&to| !from.has(to));
            if targets.is_empty() {
                return reached;
            }
            reached.resize(after.len(), 0);
            for to in targets {
                reached.add(self.successors(search, to));
                reached[to as usize / 64] |= 1 << (to % 64);
            }
            known.clone_from(after);
            known.add(&reached);
        }
    }

    /// Where the edges of a value end that start at `a` or after it.
    fn targets(&self, a: u32, after: &Tasks, Given { table, entry, value }: Given) -> Vec<u32> {
        let comes_after = |task: u32| task == a || after.has(task);
        let named = &self.tables[table.index()].named;
        let mut targets = Vec::new();
        let Ok(n) = named.binary_search_by_key(&entry, |entry| entry.number) else { return targets };
        for &(event, from) in &named[n].signals {
            if comes_after(from) {
                targets.extend(self.counts.get(&Element { event, index: value }).into_iter().flatten());
            }
        }
        for &(to, event, threshold) in &named[n].picks {
            let signals = self.fixed.get(&Element { event, index: value }).map_or(&[][..], Vec::as_slice);
            if signals.len() as u32 == threshold && signals.iter().any(|&from| comes_after(from)) {
                targets.push(to);
            }
        }
        targets
    }

    /// Returns the successors of a task in the least program.
    fn successors(&mut self, search: &mut Search<'_, '_>, a: u32) -> &Tasks {
        let (tasks, words) = (self.tasks, self.words());
        if !self.successors.contains_key(&a) {
            const PER_TASK: u64 = 10;
            search.budget.spend(u64::from(tasks) * PER_TASK, TooMuch::Routes { task: task(search.a) });
            if (self.successors.len() + 1) * words > KEPT_WORDS {
                self.successors.clear();
            }
        }
        self.successors.entry(a).or_insert_with(|| {
            let mut after = vec![0; words];
            for b in (0..tasks).filter(|&b| search.clocks.before(a, 0, b, 0)) {
                after[b as usize / 64] |= 1 << (b % 64);
            }
            after
        })
    }
}

/// A question: does `b` come after `a`?
struct Search<'a, 'b> {
    clocks: &'a Clocks,
    budget: &'b mut Budget,
    a: u32,
    b: u32,
}

trait TaskSet {
    fn has(&self, task: u32) -> bool;
    fn add(&mut self, more: &Tasks);
}

impl TaskSet for Tasks {
    fn has(&self, task: u32) -> bool {
        self.get(task as usize / 64).is_some_and(|word| word >> (task % 64) & 1 == 1)
    }

    fn add(&mut self, more: &Tasks) {
        self.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
    }
}
