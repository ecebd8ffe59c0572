//! AMK03xx to AMK05xx on memory: replays the accesses of a storage in eager order, cell by cell.
//!
//! Each cell records its last writer and the readers since. A read must come after the last writer,
//! and a write after the last writer and the readers since; earlier accesses are ordered by
//! induction. Readers of the same cells between the same writes form a group, so that n writers and
//! m readers cost n + m.

use super::clocks::{ClockId, Place};
use super::grid::{Grid, Step};
use super::judge::{Event, Judge};
use super::storage::{Access, Storage};
use super::violation::{TooMuch, Violation};
use crate::{Buffer, BufferId, BufferKind};

const NONE: u32 = u32::MAX;
/// Units of work for a cell that an access has.
const PER_CELL: u64 = 10;

/// Readers of the same cells between the same writes.
struct Group {
    /// The instance that defines the cells.
    first: u32,
    /// The last writers of the cells, one of each chain.
    writers: Vec<(Place, u32)>,
    /// The readers; one of each chain up to `sorted`.
    readers: Vec<(Place, u32)>,
    reduced: usize,
    /// A cell that is not defined in this step.
    undefined: Option<u32>,
    /// A write has touched the cells: later readers are another group.
    closed: bool,
    /// The last write that touched them.
    last_writer: u32,
    /// A clock that is known to come after all writers, and one after all readers.
    after_writers: ClockId,
    after_readers: ClockId,
}

/// Reusable memory of the replay.
#[derive(Default)]
pub(super) struct Replay {
    grid: Grid,
    /// The instance that wrote each cell last.
    writers: Vec<u32>,
    /// The first entry of each cell's list of groups.
    lists: Vec<u32>,
    /// Group and next entry.
    entries: Vec<(u32, u32)>,
    groups: Vec<Group>,
    ranges: Vec<(u32, u32)>,
    /// Per chain, for reducing a list to the last of each.
    last: Vec<u32>,
    stamps: Vec<u32>,
    stamp: u32,
}

/// One storage and the steps to replay.
pub(super) struct Scene<'a> {
    pub(super) storage: Storage,
    pub(super) buffers: &'a [BufferId],
    pub(super) accesses: &'a [Access],
    pub(super) steps: &'a [Step],
}

impl<'a> Scene<'a> {
    fn event(&self, instance: u32) -> Event<'a> {
        let (step, n) = (instance as usize / self.accesses.len(), instance as usize % self.accesses.len());
        Event { access: &self.accesses[n], step: self.steps[step].number }
    }

    fn position(&self) -> u32 {
        self.steps.first().map_or(0, |step| step.position)
    }
}

impl Replay {
    /// Replays the steps; `false` if the storage is divided too finely for cells.
    pub(super) fn run(&mut self, scene: &Scene<'_>, judge: &mut Judge<'_>) -> bool {
        if !self.grid.cut(judge.program, scene.buffers, scene.accesses, scene.steps, scene.storage.moves) {
            return false;
        }
        const PER_RUN: u64 = 100;
        let buffer = scene.buffers[0];
        if !judge.budget.spend(self.grid.runs() * PER_RUN, TooMuch::Runs { buffer }) {
            return true;
        }
        let cells = self.grid.cells() as usize;
        self.writers.clear();
        self.writers.resize(cells, NONE);
        self.lists.clear();
        self.lists.resize(cells, NONE);
        self.entries.clear();
        self.groups.clear();
        self.last.resize(judge.clocks.chains() as usize, 0);
        for n in 0..scene.steps.len() {
            let first = n * scene.accesses.len();
            for instance in first..first + scene.accesses.len() {
                if judge.is_done() {
                    return true;
                }
                self.access(scene, judge, instance as u32);
            }
            if n == 0 {
                self.end_of_step(scene, judge);
            }
        }
        true
    }

    fn access(&mut self, scene: &Scene<'_>, judge: &mut Judge<'_>, instance: u32) {
        let operand = &scene.event(instance).access.operand;
        let Some(cell) = self.grid.first(instance as usize) else { return };
        let buffer = operand.buffer;
        let group = if operand.access.reads() { self.find_group(scene, cell, instance) } else { None };
        if group.is_none() || operand.access.writes() {
            self.grid.ranges(instance as usize, &mut self.ranges);
            let visits: u64 = self.ranges.iter().map(|&(start, end)| u64::from(end - start)).sum();
            let what = if scene.storage.shared { TooMuch::Runs { buffer } } else { TooMuch::Pairs { buffer } };
            if !judge.budget.spend(visits * PER_CELL, what) {
                return;
            }
        }
        if operand.access.reads() {
            let group = group.unwrap_or_else(|| self.add_group(scene, judge, instance));
            self.read(scene, judge, group, instance);
        }
        if operand.access.writes() {
            self.write(scene, judge, instance);
        }
    }

    fn find_group(&self, scene: &Scene<'_>, cell: u32, instance: u32) -> Option<u32> {
        const LOOK_AT: usize = 8;
        let mut entry = self.lists[cell as usize];
        for _ in 0..LOOK_AT {
            let &(group, next) = self.entries.get(entry as usize)?;
            let Group { first, closed, .. } = self.groups[group as usize];
            let buffer = |instance: u32| scene.event(instance).access.operand.buffer;
            if !closed && buffer(first) == buffer(instance) && self.grid.same(first as usize, instance as usize) {
                return Some(group);
            }
            entry = next;
        }
        None
    }

    /// A new group of readers of the cells in `ranges`.
    fn add_group(&mut self, scene: &Scene<'_>, judge: &Judge<'_>, instance: u32) -> u32 {
        let id = self.groups.len() as u32;
        let mut writers: Vec<(Place, u32)> = Vec::new();
        let mut undefined = None;
        let mut latest = NONE;
        for &(start, end) in &self.ranges {
            for cell in start..end {
                let writer = self.writers[cell as usize];
                if !is_defined(judge, scene, instance, writer) {
                    undefined = undefined.or(Some(cell));
                }
                if writer != NONE && writer != latest {
                    let event = scene.event(writer);
                    writers.push((judge.clocks.place(event.access.task(), event.step), writer));
                    latest = writer;
                }
                self.entries.push((id, self.lists[cell as usize]));
                self.lists[cell as usize] = self.entries.len() as u32 - 1;
            }
        }
        self.reduce(&mut writers);
        self.groups.push(Group {
            first: instance,
            writers,
            readers: Vec::new(),
            reduced: 0,
            undefined,
            closed: false,
            last_writer: NONE,
            after_writers: NONE,
            after_readers: NONE,
        });
        id
    }

    /// Keeps the last of each chain.
    fn reduce(&mut self, list: &mut Vec<(Place, u32)>) {
        if list.len() < 2 {
            return;
        }
        self.stamp += 1;
        self.stamps.resize(self.last.len(), 0);
        let mut kept = 0;
        for n in 0..list.len() {
            let (place, instance) = list[n];
            let chain = place.chain as usize;
            match self.stamps.get(chain) {
                Some(&stamp) if stamp == self.stamp => {
                    let at = self.last[chain] as usize;
                    if list[at].0.position < place.position {
                        list[at] = (place, instance);
                    }
                    continue;
                }
                Some(_) => {
                    self.stamps[chain] = self.stamp;
                    self.last[chain] = kept as u32;
                }
                None => {}
            }
            list[kept] = (place, instance);
            kept += 1;
        }
        list.truncate(kept);
    }

    fn read(&mut self, scene: &Scene<'_>, judge: &mut Judge<'_>, group: u32, instance: u32) {
        let event = scene.event(instance);
        let (task, step) = (event.access.task(), event.step);
        let (place, base) = (judge.clocks.place(task, step), judge.clocks.base(task, step));
        let group = &mut self.groups[group as usize];
        if let Some(cell) = group.undefined {
            report_undefined(judge, scene, &self.grid, instance, cell, self.writers[cell as usize]);
        }
        // Packets carry their own order; early reads are of elements that are never written.
        let ordered = scene.storage.packet || event.access.operand.early;
        if !ordered && group.after_writers != base {
            let by_base = require_all(scene, judge, &group.writers, instance);
            if by_base {
                group.after_writers = base;
            }
        }
        group.readers.push((place, instance));
    }

    /// Writes the cells in `ranges`.
    fn write(&mut self, scene: &Scene<'_>, judge: &mut Judge<'_>, instance: u32) {
        let event = scene.event(instance);
        let base = judge.clocks.base(event.access.task(), event.step);
        let ranges = std::mem::take(&mut self.ranges);
        let mut latest = NONE;
        for &(start, end) in &ranges {
            for cell in start..end {
                let writer = std::mem::replace(&mut self.writers[cell as usize], instance);
                if writer != NONE && writer != latest {
                    after_writer(scene, judge, writer, instance);
                    latest = writer;
                }
                let mut entry = std::mem::replace(&mut self.lists[cell as usize], NONE);
                while let Some(&(id, next)) = self.entries.get(entry as usize) {
                    if std::mem::replace(&mut self.groups[id as usize].last_writer, instance) != instance {
                        self.after_readers(scene, judge, id, base, instance);
                    }
                    entry = next;
                }
            }
        }
        self.ranges = ranges;
    }

    fn after_readers(&mut self, scene: &Scene<'_>, judge: &mut Judge<'_>, id: u32, base: ClockId, instance: u32) {
        let mut readers = std::mem::take(&mut self.groups[id as usize].readers);
        if self.groups[id as usize].reduced != readers.len() {
            self.reduce(&mut readers);
        }
        let known = self.groups[id as usize].after_readers == base;
        let by_base = known || require_all(scene, judge, &readers, instance);
        let group = &mut self.groups[id as usize];
        group.closed = true;
        group.reduced = readers.len();
        group.readers = readers;
        if by_base {
            group.after_readers = base;
        }
    }

    /// Outputs are written, and values that outlive the step have their bytes.
    fn end_of_step(&mut self, scene: &Scene<'_>, judge: &mut Judge<'_>) {
        for &id in scene.buffers {
            let buffer = &judge.program.buffers[id.index()];
            if matches!(buffer.kind, BufferKind::Activation | BufferKind::Local) {
                continue;
            }
            self.grid.whole(buffer, &mut self.ranges);
            for &(start, end) in &self.ranges {
                for cell in start..end {
                    let writer = self.writers[cell as usize];
                    if end_of_cell(scene, judge, &self.grid, (id, buffer), cell, writer) {
                        return;
                    }
                }
            }
        }
    }
}

/// Checks a cell at the end of a step; returns whether it is wrong.
fn end_of_cell(
    scene: &Scene<'_>,
    judge: &mut Judge<'_>,
    grid: &Grid,
    (id, buffer): (BufferId, &Buffer),
    cell: u32,
    writer: u32,
) -> bool {
    let position = scene.position();
    if writer == NONE {
        if buffer.kind == BufferKind::Output {
            let elements = grid.elements(cell, buffer.shape.len()).unwrap_or_default();
            judge.note(Violation::OutputNotWritten { buffer: id, elements, position, given: None });
        }
        return writer == NONE && buffer.kind == BufferKind::Output;
    }
    let write = scene.event(writer).access.party(0);
    if write.buffer != id {
        judge.note(Violation::SharedPlace { buffer: id, other: write.buffer, write: Some(write), position });
    }
    write.buffer != id
}

/// Whether a cell last written by `writer` has the value that the read `instance` expects.
fn is_defined(judge: &Judge<'_>, scene: &Scene<'_>, instance: u32, writer: u32) -> bool {
    let read = scene.event(instance);
    let kept = match judge.program.buffers[read.access.operand.buffer.index()].kind {
        BufferKind::Activation | BufferKind::Output | BufferKind::Local => false,
        BufferKind::Weight | BufferKind::Input | BufferKind::State => true,
    };
    if writer == NONE {
        return kept;
    }
    let write = scene.event(writer);
    (kept || write.step == read.step) && write.access.operand.buffer == read.access.operand.buffer
}

fn report_undefined(judge: &mut Judge<'_>, scene: &Scene<'_>, grid: &Grid, instance: u32, cell: u32, writer: u32) {
    let read = scene.event(instance);
    // Each later step is the first of another launch.
    if read.step > 0 {
        return;
    }
    let buffer = read.access.operand.buffer;
    let position = scene.position();
    let before = &scene.accesses[..instance as usize % scene.accesses.len()];
    let written = before.iter().any(|access| access.operand.buffer == buffer && access.operand.access.writes());
    if writer != NONE && (written || judge.program.buffers[buffer.index()].kind == BufferKind::State) {
        let write = scene.event(writer).access.party(0);
        judge.note(Violation::Overwritten { read: read.access.party(0), write, position });
        return;
    }
    let rank = judge.program.buffers[buffer.index()].shape.len();
    let elements = grid.elements(cell, rank).unwrap_or_else(|| read.access.elements(position));
    let after = &scene.accesses[instance as usize % scene.accesses.len()..];
    let later = after.iter().find(|access| access.operand.buffer == buffer && access.operand.access.writes());
    let later = later.map(|access| access.site.task);
    judge.note(Violation::Uninitialised { site: read.access.site, elements, position, later, given: None });
}

/// The order of two writes to a cell.
fn after_writer(scene: &Scene<'_>, judge: &mut Judge<'_>, writer: u32, instance: u32) {
    let (first, second) = (scene.event(writer), scene.event(instance));
    let same_step = first.step == second.step;
    if scene.storage.packet && same_step {
        let position = scene.position();
        // Once is enough: the second step is the first of another launch.
        if first.step == 0 {
            judge.note(Violation::PacketTwice {
                first: first.access.party(0),
                second: second.access.party(0),
                position,
            });
        }
    } else if !(same_step && first.access.task() == second.access.task()) {
        judge.require(first, second, scene.position());
    }
}

/// Requires that everything in a list come before `instance`. Returns whether its clock alone shows
/// that.
fn require_all(scene: &Scene<'_>, judge: &mut Judge<'_>, list: &[(Place, u32)], instance: u32) -> bool {
    let second = scene.event(instance);
    let (task, step) = (second.access.task(), second.step);
    let (at, base) = (judge.clocks.place(task, step), judge.clocks.base(task, step));
    let mut by_base = true;
    for &(place, earlier) in list {
        if judge.clocks.in_base(place, base) {
            continue;
        }
        by_base = false;
        if judge.clocks.reaches(place, base, at) {
            continue;
        }
        let first = scene.event(earlier);
        if first.step != step || first.access.task() != task {
            judge.require(first, second, scene.position());
        }
    }
    by_base
}
