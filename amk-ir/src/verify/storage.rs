//! Memory accesses: the accesses of each storage in eager order.
//!
//! A storage is a buffer, or a set of buffers each of which shares bytes of the arena with another.

use super::budget::Budget;
use super::sync::Rows;
use super::violation::{Party, Site, TooMuch};
use crate::{Buffer, BufferId, BufferKind, Exchange, Interval, Operand, Program, TaskId};
use core::ops::Range;

/// An access with its place in the program.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) site: Site,
    pub(super) operand: Operand,
}

impl Access {
    pub(super) fn task(&self) -> u32 {
        self.site.task.0
    }

    /// Start and end in each dimension at a position.
    pub(super) fn elements(&self, position: u32) -> Vec<(u64, u64)> {
        let intervals = self.operand.region.intervals().iter();
        intervals.map(|i| (i.lo.at(position.into()), i.hi.at(position.into()))).collect()
    }

    pub(super) fn party(&self, step: u32) -> Party {
        let Operand { buffer, region, access, .. } = self.operand;
        Party { site: self.site, access, buffer, region, step }
    }
}

/// Properties of a storage's accesses.
#[derive(Clone, Copy, Default)]
pub(super) struct Storage {
    /// Several buffers in shared bytes.
    pub(super) shared: bool,
    /// Steps until the memory is used again: the slots of a packet buffer.
    pub(super) stride: u32,
    pub(super) packet: bool,
    /// Whether some access writes.
    pub(super) written: bool,
    /// Whether some bound moves with the position.
    pub(super) moves: bool,
    /// Private to a task.
    pub(super) local: bool,
    /// Defined before a step, as far as it is one buffer: a state.
    pub(super) kept: bool,
    /// Whether a table decides some tile.
    pub(super) routed: bool,
}

/// Reusable memory of the accesses.
#[derive(Default)]
pub(super) struct Storages {
    every_position: bool,
    /// The storage of each buffer; `NONE` if no order matters.
    of: Vec<u32>,
    pub(super) kinds: Vec<Storage>,
    pub(super) buffers: Rows<BufferId>,
    starts: Vec<u32>,
    accesses: Vec<Access>,
    /// The places of the accesses, and the place of the next one of each storage.
    sites: Vec<Site>,
    next: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// Limit on the pairs of a fixed and a moving bound of a dimension to compare.
const MOST_MEETINGS: usize = 1 << 16;
/// Maximum number of positions at which moving tiles of buffers that share bytes are followed one
/// by one.
pub(super) const MOST_SHARED_POSITIONS: u32 = 4096;

impl Storages {
    pub(super) fn compile(&mut self, program: &Program, every_position: bool) {
        self.every_position = every_position;
        self.group_buffers(program);
        self.starts.clear();
        self.starts.resize(self.kinds.len() + 1, 0);
        self.for_each(program, |this, storage, _, operand| {
            let kind = &mut this.kinds[storage];
            kind.written |= operand.access.writes();
            kind.routed |= operand.routed.is_some();
            kind.moves |= operand.region.intervals().iter().any(Interval::moves);
            this.starts[storage + 1] += 1;
        });
        for n in 1..self.starts.len() {
            self.starts[n] += self.starts[n - 1];
        }
        let total = self.starts.last().map_or(0, |&total| total as usize);
        let nowhere = Site { task: TaskId(0), call: 0, operand: 0 };
        self.sites.clear();
        self.sites.resize(total, nowhere);
        self.next.clone_from(&self.starts);
        // Placed by counting, so that each storage has its accesses together and in eager order.
        self.for_each(program, |this, storage, site, _| {
            let next = &mut this.next[storage];
            this.sites[*next as usize] = site;
            *next += 1;
        });
        self.accesses.clear();
        self.accesses.extend(self.sites.iter().filter_map(|&site| Some(Access { site, operand: *site.of(program)? })));
    }

    fn for_each(&mut self, program: &Program, mut visit: impl FnMut(&mut Self, usize, Site, &Operand)) {
        for (t, task) in program.tasks.iter().enumerate() {
            for (c, call) in task.calls.iter().enumerate() {
                for (o, operand) in call.operands.iter().enumerate() {
                    let storage = self.of[operand.buffer.index()];
                    if storage != NONE {
                        let site = Site { task: TaskId::from(t), call: c as u32, operand: o as u32 };
                        visit(self, storage as usize, site, operand);
                    }
                }
            }
        }
    }

    /// Assigns a storage to each buffer that can be written, and a common one to buffers that share
    /// bytes.
    fn group_buffers(&mut self, program: &Program) {
        self.of.clear();
        self.of.resize(program.buffers.len(), NONE);
        self.kinds.clear();
        self.buffers.clear();
        let mut placed: Vec<(Range<u64>, usize)> = Vec::new();
        for (n, buffer) in program.buffers.iter().enumerate() {
            match buffer.place {
                Some(_) => placed.push((bytes(buffer), n)),
                None if can_be_written(buffer) => self.add(program, &[n]),
                None => {}
            }
        }
        placed.sort_unstable_by_key(|(bytes, n)| (bytes.start, *n));
        let mut group: Vec<usize> = Vec::new();
        let mut end = 0;
        for (bytes, n) in placed {
            if bytes.start >= end {
                self.add(program, &group);
                group.clear();
            }
            end = end.max(bytes.end);
            group.push(n);
        }
        self.add(program, &group);
    }

    fn add(&mut self, program: &Program, group: &[usize]) {
        let Some(&first) = group.first() else { return };
        let buffer = &program.buffers[first];
        if group.len() == 1 && !can_be_written(buffer) {
            return;
        }
        for &n in group {
            self.of[n] = self.kinds.len() as u32;
            self.buffers.push(BufferId::from(n));
        }
        self.buffers.end_row();
        let (packet, stride) = match buffer.exchange {
            Exchange::Packet { slots } => (true, u32::from(slots)),
            Exchange::Counter => (false, 1),
        };
        let local = buffer.kind == BufferKind::Local;
        let kept = group.iter().all(|&n| program.buffers[n].kind == BufferKind::State);
        self.kinds.push(Storage { shared: group.len() > 1, stride, packet, local, kept, ..Storage::default() });
    }

    /// The storage of a buffer that some task can write.
    pub(super) fn of(&self, buffer: BufferId) -> Option<usize> {
        self.of.get(buffer.index()).filter(|&&storage| storage != NONE).map(|&storage| storage as usize)
    }

    pub(super) fn accesses(&self, storage: usize) -> &[Access] {
        &self.accesses[self.starts[storage] as usize..self.starts[storage + 1] as usize]
    }

    /// A packet buffer with a tile that moves.
    pub(super) fn moving_packets(&self) -> Option<BufferId> {
        let moving = self.kinds.iter().position(|kind| kind.packet && kind.moves)?;
        self.buffers.row(moving as u32).first().copied()
    }

    /// Positions that represent all launches of `steps` steps: between two of them the bounds of
    /// the storage keep their order in each step. `None` if there are more than `most`, or too many
    /// to check.
    pub(super) fn positions(
        &self,
        program: &Program,
        storage: usize,
        steps: u32,
        most: usize,
        budget: &mut Budget,
    ) -> Option<Vec<u32>> {
        let last = program.positions - 1;
        if self.kinds[storage].shared || self.every_position {
            return Some((0..program.positions.min(MOST_SHARED_POSITIONS)).collect());
        }
        let (buffer, steps) = (self.buffers.row(storage as u32)[0], if program.positions > 1 { steps } else { 1 });
        const PER_POSITION: u64 = 30;
        let mut positions = vec![0, last];
        for dim in 0..crate::MAX_RANK {
            let (fixed, moving) = self.bounds(program, storage, dim);
            if fixed.len() * moving.len() > MOST_MEETINGS {
                let meetings = fixed.len() as u64 * moving.len() as u64;
                // A storage that needs no replay is compared pair by pair instead.
                if !self.kinds[storage].kept {
                    budget.spend(u64::MAX, TooMuch::Positions { buffer, positions: meetings });
                }
                return None;
            }
            for &moving in &moving {
                let from = fixed.partition_point(|&fixed| fixed < moving);
                // At most 32 bits, as both are.
                let meets = fixed[from..].iter().map(|&fixed| u32::try_from(fixed - moving).unwrap_or(u32::MAX));
                for meet in meets.take_while(|meet| meet.saturating_sub(steps) <= last) {
                    let around = meet.saturating_sub(steps)..=meet.saturating_add(1).min(last);
                    let work = u64::from(around.end() - around.start() + 1) * PER_POSITION;
                    let what = TooMuch::Positions { buffer, positions: positions.len() as u64 };
                    if positions.len() > most || !budget.spend(work, what) {
                        return None;
                    }
                    positions.extend(around);
                }
            }
        }
        positions.sort_unstable();
        positions.dedup();
        Some(positions)
    }

    /// Fixed and moving bounds of a dimension of a storage of one buffer, in order; for moving
    /// bounds, their lines at position 0. A bound `max(0, pos - c)` stays at 0, a fixed bound,
    /// until its line passes it.
    fn bounds(&self, program: &Program, storage: usize, dim: usize) -> (Vec<i64>, Vec<i64>) {
        let intervals = self.accesses(storage).iter().filter_map(|a| a.operand.region.intervals().get(dim));
        let mut fixed: Vec<i64> = Vec::new();
        let mut moving: Vec<i64> = Vec::new();
        for bound in intervals.flat_map(|interval| [interval.lo, interval.hi]) {
            if bound.pos { moving.push(bound.offset()) } else { fixed.push(bound.offset()) }
        }
        for &buffer in self.buffers.row(storage as u32) {
            fixed.extend([0, program.buffers[buffer.index()].shape.get(dim).copied().unwrap_or(0).into()]);
        }
        for bounds in [&mut fixed, &mut moving] {
            bounds.sort_unstable();
            bounds.dedup();
        }
        (fixed, moving)
    }
}

fn can_be_written(buffer: &Buffer) -> bool {
    !matches!(buffer.kind, BufferKind::Weight | BufferKind::Input)
}

/// The bytes of the arena that a placed buffer occupies.
pub(super) fn bytes(buffer: &Buffer) -> Range<u64> {
    let slots = match buffer.exchange {
        Exchange::Packet { slots } => u64::from(slots),
        Exchange::Counter => 1,
    };
    let start = buffer.place.unwrap_or(0);
    start..start.saturating_add(buffer.bytes().saturating_mul(slots))
}
