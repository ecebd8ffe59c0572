//! Tables at run time: the entries that a task writes are checked against the table's contract;
//! then they determine tiles, counts and counters.

use super::area::{Area, Moment};
use super::error::{Breach, Role, VmError};
use super::memory::Memory;
use crate::tensor::Weight;
use amk_ir::{EventId, Holds, Interval, Operand, Program, Routed, RoutedWait, TableId, Task};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A table.
pub(super) struct Table {
    name: String,
    holds: Holds,
    columns: usize,
    area: Area,
    /// The first counters of the events whose signals it counts.
    counted: Vec<usize>,
}

impl Table {
    pub(super) fn all(program: &Program, memory: &Memory, bases: &[u64]) -> Result<Vec<Arc<Self>>, VmError> {
        let table = |(n, table): (usize, &amk_ir::Table)| {
            let whole = amk_ir::Region::full(&program.buffers[table.buffer.index()].shape);
            let operand = Operand {
                buffer: table.buffer,
                region: whole,
                access: amk_ir::Access::Read,
                early: false,
                routed: None,
            };
            let refuse = |why| VmError::Buffer { buffer: table.name.clone(), role: Role::Table, why };
            let area = memory.area(program, &operand).map_err(refuse)?;
            let signals = program.tasks.iter().flat_map(|task| &task.routed_signals);
            let mut events: Vec<EventId> =
                signals.filter(|signal| signal.table == TableId::from(n)).map(|signal| signal.event).collect();
            events.sort_unstable();
            events.dedup();
            let counted = events.iter().map(|event| bases[event.index()] as usize).collect();
            let columns = table.row_len(program) as usize;
            Ok(Arc::new(Self { name: table.name.clone(), holds: table.holds, columns, area, counted }))
        };
        program.tables.iter().enumerate().map(table).collect()
    }

    /// Returns one entry.
    ///
    /// # Safety
    /// Its row is written and checked, and no one writes it now.
    unsafe fn entry(&self, moment: Moment, entry: u32) -> u32 {
        let (row, column) = (entry as usize / self.columns, entry as usize % self.columns);
        // SAFETY: as the caller promises; other rows are not read.
        let row = unsafe { self.area.rows(row..row + 1).tensor(moment) };
        row.data()[column] as u32
    }

    /// Returns all entries.
    ///
    /// # Safety
    /// The table is written and checked, and no one writes it now.
    unsafe fn entries(&self, moment: Moment) -> Vec<u32> {
        // SAFETY: as the caller promises.
        let tensor = unsafe { self.area.tensor(moment) };
        tensor.data().iter().map(|&entry| entry as u32).collect()
    }

    /// Checks the rows that a task has written, and counts their entries for later waits.
    ///
    /// # Safety
    /// The caller's task has written the rows, and no one else accesses them now.
    unsafe fn accept(&self, moment: Moment, rows: Range<usize>, wanted: &[AtomicU64]) -> Result<(), VmError> {
        // SAFETY: as the caller promises; other rows are not read.
        let area = unsafe { self.area.rows(rows.clone()).tensor(moment) };
        match self.holds {
            Holds::Routes { values, distinct } => {
                for (n, row) in area.data().chunks(self.columns).enumerate() {
                    self.check_row(rows.start + n, row, values, distinct)?;
                }
                for (&first, &entry) in
                    self.counted.iter().flat_map(|first| area.data().iter().map(move |entry| (first, entry)))
                {
                    // The task's signals publish it.
                    wanted[first + entry as usize].fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Holds::Splits { total } => self.check_splits(area.data(), total),
        }
    }

    fn check_row(&self, row: usize, entries: &[f32], values: u32, distinct: bool) -> Result<(), VmError> {
        for (column, &value) in entries.iter().enumerate() {
            if !(value >= 0.0 && value.fract() == 0.0 && value < values as f32) {
                return Err(self.breach(row, column, value, Breach::Range { values }));
            }
            if distinct && entries[..column].contains(&value) {
                return Err(self.breach(row, column, value, Breach::Repeated));
            }
        }
        Ok(())
    }

    fn check_splits(&self, entries: &[f32], total: u32) -> Result<(), VmError> {
        let mut least = 0.0;
        for (row, &value) in entries.iter().enumerate() {
            let whole = value.fract() == 0.0 && value <= total as f32;
            if !(value >= least && whole) || row == 0 && value != 0.0 {
                return Err(self.breach(row, 0, value, Breach::Order { least: least as u32, total }));
            }
            least = value;
        }
        match entries.last() {
            Some(&last) if last != total as f32 => {
                Err(self.breach(entries.len() - 1, 0, last, Breach::Order { least: total, total }))
            }
            _ => Ok(()),
        }
    }

    fn breach(&self, row: usize, column: usize, value: f32, breach: Breach) -> VmError {
        VmError::Table { table: self.name.clone(), row, column, value, breach }
    }
}

/// A tile that a table decides.
pub(super) struct RoutedArea {
    area: Area,
    table: Arc<Table>,
    routed: Routed,
}

impl RoutedArea {
    pub(super) fn new(area: Area, tables: &[Arc<Table>], routed: Routed) -> Self {
        Self { area, table: Arc::clone(&tables[routed.table().index()]), routed }
    }

    /// Returns the tile in this step.
    ///
    /// # Safety
    /// For a picked tile as for [`Table::entry`], otherwise as for [`Table::entries`].
    pub(super) unsafe fn at(&self, moment: Moment) -> Area {
        let all = || {
            // SAFETY: as the caller promises.
            unsafe { self.table.entries(moment) }
        };
        let rows = match self.routed {
            Routed::Pick { entry, .. } => {
                // SAFETY: as the caller promises.
                let value = unsafe { self.table.entry(moment, entry) };
                value..value + 1
            }
            Routed::Row { entry, .. } => {
                let row = Holds::row(&all(), entry);
                row..row + 1
            }
            Routed::Group { group, .. } => self.table.holds.group(&all(), group),
        };
        self.area.rows(rows.start as usize..rows.end as usize)
    }
}

/// A weight of which an entry selects a part.
pub(super) struct PickedWeight {
    /// By value.
    parts: Vec<Weight>,
    table: Arc<Table>,
    entry: u32,
}

impl PickedWeight {
    /// `None` if rows are not selected one by one.
    pub(super) fn new(weight: &Weight, tables: &[Arc<Table>], operand: &Operand, routed: Routed) -> Option<Self> {
        let Routed::Pick { table, entry } = routed else { return None };
        let table = Arc::clone(&tables[table.index()]);
        let intervals = operand.region.intervals();
        if intervals.iter().any(|interval| interval.moves()) {
            return None;
        }
        let range = |interval: &Interval| interval.lo.base as usize..interval.hi.base as usize;
        let mut ranges: Vec<_> = intervals.iter().map(range).collect();
        let part = |value: usize| {
            *ranges.first_mut()? = value..value + 1;
            Some(weight.slice(&ranges))
        };
        let parts = (0..*weight.shape().first()?).map(part).collect::<Option<_>>()?;
        Some(Self { parts, table, entry })
    }

    /// The part in this step.
    ///
    /// # Safety
    /// As for [`Table::entry`].
    pub(super) unsafe fn at(&self, moment: Moment) -> &Weight {
        // SAFETY: as the caller promises.
        &self.parts[unsafe { self.table.entry(moment, self.entry) } as usize]
    }
}

/// The part of a task that depends on tables.
#[derive(Default)]
pub(super) struct RoutedTask {
    waits: Vec<(RoutedWait, usize, Arc<Table>)>,
    /// The event's first counter, the table and the entry.
    signals: Vec<(usize, Arc<Table>, u32)>,
    /// Tables that it writes, and which rows.
    writes: Vec<(Arc<Table>, Range<usize>)>,
}

impl RoutedTask {
    pub(super) fn new(program: &Program, task: &Task, tables: &[Arc<Table>], bases: &[u64]) -> Self {
        let table = |id: TableId| Arc::clone(&tables[id.index()]);
        let base = |event: EventId| bases[event.index()] as usize;
        let mut writes = Vec::new();
        for operand in task.calls.iter().flat_map(|call| &call.operands).filter(|operand| operand.access.writes()) {
            let written = program.tables.iter().position(|table| table.buffer == operand.buffer);
            if let (Some(n), Some(rows)) = (written, operand.region.intervals().first()) {
                writes.push((Arc::clone(&tables[n]), rows.lo.base as usize..rows.hi.base as usize));
            }
        }
        Self {
            waits: task.routed_waits.iter().map(|&wait| (wait, base(wait.event()), table(wait.table()))).collect(),
            signals: task.routed_signals.iter().map(|s| (base(s.event), table(s.table), s.entry)).collect(),
            writes,
        }
    }

    /// The counters and counts that the task waits for; `fan_in` is the number of signals per step
    /// that do not depend on a table.
    ///
    /// # Safety
    /// The task's other waits are satisfied.
    pub(super) unsafe fn waits(
        &self,
        moment: Moment,
        fan_in: &[u64],
        wanted: &[AtomicU64],
    ) -> impl Iterator<Item = (usize, u64)> {
        self.waits.iter().map(move |(wait, first, table)| match *wait {
            RoutedWait::Count { value, .. } => {
                let counter = first + value as usize;
                (counter, wanted[counter].load(Ordering::Relaxed))
            }
            RoutedWait::Pick { entry, threshold, .. } => {
                // SAFETY: the task's other waits order it after the tasks that write the table.
                let counter = first + unsafe { table.entry(moment, entry) } as usize;
                (counter, fan_in[counter] * moment.step + u64::from(threshold))
            }
        })
    }

    /// Checks the tables that the task has written.
    ///
    /// # Safety
    /// The task's calls are over, its signals have not been given.
    pub(super) unsafe fn accept(&self, moment: Moment, wanted: &[AtomicU64]) -> Result<(), VmError> {
        // SAFETY: until the signals the rows are the task's.
        self.writes.iter().try_for_each(|(table, rows)| unsafe { table.accept(moment, rows.clone(), wanted) })
    }

    /// Counters that the task signals.
    ///
    /// # Safety
    /// As for [`Self::accept`].
    pub(super) unsafe fn signals(&self, moment: Moment) -> impl Iterator<Item = usize> {
        self.signals.iter().map(move |(first, table, entry)| {
            // SAFETY: the task reads the table, which is written before and not in between.
            first + unsafe { table.entry(moment, *entry) } as usize
        })
    }
}
