//! Adversarial programs that search for a forgotten case: pipelined, with moving tiles that cross
//! several writers' tiles, and workers that run ahead of one another.
//!
//! Buffers are cut into pieces by bounds, some of which move with the position, and every piece has
//! its writer; so whatever a later task reads is written, but by other tasks at other positions.
//! Fences keep some workers from overtaking some others.

use super::sync::Closing;
use super::{Draft, Rng, Size};
use amk_ir::{
    Access, Bound, Buffer, BufferId, BufferKind, Call, DType, Exchange, Interval, Operand, Program, Region, Steps, Task,
};

/// The forgotten case to search for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Aim {
    /// Moving tiles that cross several writers' tiles.
    Moving,
    /// The same of packets, of 1 to 3 slots.
    Packets,
    /// Chains of workers, each ahead of the next.
    Ahead,
    /// Up to 12 positions.
    Deep,
    /// States with tiles at other offsets in each task.
    States,
    /// Moving tiles of buffers that share bytes.
    Shared,
    /// Chains that order two tasks across steps.
    Relay,
    /// A little of all.
    Mixed,
    /// Buffers of up to four dimensions, whose tiles move in several.
    Boxes,
    /// Buffers of every kind in one arena.
    Arena,
}

impl Aim {
    /// All aims.
    pub const ALL: [Self; 10] = [
        Self::Moving,
        Self::Packets,
        Self::Ahead,
        Self::Deep,
        Self::States,
        Self::Shared,
        Self::Relay,
        Self::Mixed,
        Self::Boxes,
        Self::Arena,
    ];

    fn positions(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Ahead if rng.chance(50) => 1,
            Self::Deep => rng.between(5, 12),
            Self::Boxes => rng.between(2, 4),
            Self::Arena => rng.between(1, 3),
            _ => rng.between(2, 5),
        }
    }

    /// The kind of a buffer, and whether it is exchanged by packets.
    fn buffer(self, rng: &mut Rng) -> (BufferKind, bool) {
        let (packets, states, outputs) = match self {
            Self::Moving => (25, 20, 5),
            Self::Packets => (80, 5, 5),
            Self::Ahead => (60, 20, 0),
            Self::Deep | Self::Relay | Self::Mixed => (40, 30, 5),
            Self::Boxes => (25, 35, 5),
            Self::States => (20, 70, 0),
            Self::Shared => (5, 5, 0),
            Self::Arena => (6, 22, 22),
        };
        match rng.below(100) {
            n if n < packets => (BufferKind::Activation, true),
            n if n < packets + states => (BufferKind::State, false),
            n if n < packets + states + outputs => (BufferKind::Output, rng.chance(30)),
            _ => (BufferKind::Activation, false),
        }
    }
}

/// Draws a program.
pub fn program(rng: &mut Rng, aim: Aim) -> Program {
    let careless = rng.chance(30);
    let positions = aim.positions(rng);
    let pipelined = if aim == Aim::Arena { 50 } else { 97 };
    let steps = if rng.chance(pipelined) { Steps::Pipelined } else { Steps::Barrier };
    let program = Program { name: "drawn".into(), positions, steps, ..Program::default() };
    let mut draft = Draft { rng, program, written: Vec::new(), size: Size::SMALL, careless };
    if aim == Aim::Relay {
        draft.relay();
        return draft.program;
    }
    let most = if matches!(aim, Aim::Mixed | Aim::Arena) { 4 } else { 3 };
    for _ in 0..draft.rng.between(1, most) {
        draft.stage(aim);
    }
    if aim == Aim::Arena {
        draft.in_one_arena();
    }
    if aim == Aim::Shared || draft.rng.chance(10) {
        draft.share_memory();
    }
    if draft.program.tasks.is_empty() {
        draft.program.tasks.push(Task::default());
    }
    let workers = if aim == Aim::Ahead { draft.rng.between(3, 6) } else { draft.rng.between(2, 4) };
    let ticket = draft.rng.chance(8);
    draft.queues(ticket, workers);
    let closing = [Closing::Open, Closing::Whole, Closing::Fences, Closing::Fences, Closing::Fences];
    let closing = *draft.rng.pick(&closing).unwrap_or(&Closing::Fences);
    draft.synchronise(closing, &[]);
    draft.program
}

impl Draft<'_> {
    /// A buffer, the tasks that write it, and tasks that read it.
    fn stage(&mut self, aim: Aim) {
        let (kind, packet) = aim.buffer(self.rng);
        let extent = self.program.positions + self.rng.below(3) + u32::from(aim == Aim::Ahead);
        let mut shape = vec![extent];
        if aim == Aim::Boxes {
            shape = self.box_shape();
        } else if self.rng.chance(12) {
            shape.push(self.rng.between(1, 2));
        }
        let slots = *self.rng.pick(&[1, 1, 1, 2, 2, 3]).unwrap_or(&1);
        let exchange = if packet { Exchange::Packet { slots } } else { Exchange::Counter };
        let dtype = *self.rng.pick(&[DType::F32, DType::F32, DType::F16, DType::U8]).unwrap_or(&DType::F32);
        let buffer = self.add(Buffer { name: String::new(), kind, dtype, shape, exchange, place: None });
        let state = kind == BufferKind::State;
        for region in self.written_tiles(buffer, state, aim) {
            self.write(Operand { buffer, region, access: Access::Write, early: false, routed: None });
        }
        for _ in 0..self.rng.between(u32::from(kind != BufferKind::Output), 2) {
            let read = self.used(buffer, Access::Read);
            let early = state && self.rng.chance(12);
            let before = state && self.rng.chance(50);
            self.anywhere(Operand { early, ..read }, before);
        }
        if !packet && self.rng.chance(15) {
            let again = self.used(buffer, Access::Write);
            let access = if self.rng.chance(60) { Access::Write } else { Access::Update };
            let again = Operand { access, ..again };
            let before = state && self.rng.chance(50);
            self.anywhere(again, before);
        }
    }

    /// The tiles that the writers of a buffer have.
    fn written_tiles(&mut self, buffer: BufferId, state: bool, aim: Aim) -> Vec<Region> {
        if aim == Aim::Boxes {
            return self.slabs(buffer, state);
        }
        let extent = self.program.buffers[buffer.index()].shape[0];
        let pieces = self.pieces(extent, state);
        pieces.into_iter().map(|piece| self.operand(buffer, piece, Access::Write).region).collect()
    }

    /// A tile that moves in the first dimension; of a buffer of several wide ones in any.
    pub(super) fn used(&mut self, buffer: BufferId, access: Access) -> Operand {
        let shape = &self.program.buffers[buffer.index()].shape;
        let (extent, narrow) = (shape[0], shape[1..].iter().product::<u32>() <= 2);
        if !narrow || extent < self.program.positions {
            return self.moving_box(buffer, access);
        }
        let tile = self.moving(extent);
        self.operand(buffer, tile, access)
    }

    /// Cuts `0..extent` where some bounds follow the position; of a state not all pieces have a
    /// writer.
    pub(super) fn pieces(&mut self, extent: u32, state: bool) -> Vec<Interval> {
        let mut cuts = vec![Bound::fixed(0)];
        for _ in 0..self.rng.below(4) {
            let cut = self.bound(extent);
            if cuts.last().is_some_and(|last| ordered(*last, cut, self.program.positions)) {
                cuts.push(cut);
            }
        }
        cuts.push(Bound::fixed(extent));
        let mut pieces: Vec<Interval> = cuts.windows(2).map(|pair| Interval { lo: pair[0], hi: pair[1] }).collect();
        let last = u64::from(self.program.positions - 1);
        pieces.retain(|piece| piece.len_at(0) + piece.len_at(last) > 0);
        let forgotten = if state { 40 } else { 4 * u32::from(self.careless) };
        pieces.retain(|_| !self.rng.chance(forgotten));
        pieces
    }

    fn bound(&mut self, extent: u32) -> Bound {
        let ahead = extent + 1 - self.program.positions;
        match self.rng.below(100) {
            0..45 => Bound::at_pos(self.rng.below(ahead + 1)),
            45..65 => Bound::behind(self.rng.between(1, self.program.positions)),
            _ => Bound::fixed(self.rng.below(extent)),
        }
    }

    /// An interval of `0..extent` that is not empty at some position: mostly one element or all
    /// before it.
    pub(super) fn moving(&mut self, extent: u32) -> Interval {
        let positions = self.program.positions;
        let offset = self.rng.below(extent + 1 - positions);
        for _ in 0..8 {
            let interval = match self.rng.below(100) {
                0..32 => Interval { lo: Bound::at_pos(offset), hi: Bound::at_pos(offset + 1) },
                32..40 => Interval { lo: Bound::behind(self.rng.between(1, positions)), hi: Bound::at_pos(offset + 1) },
                40..55 => Interval { lo: Bound::fixed(0), hi: Bound::at_pos(offset + 1) },
                55..65 => Interval { lo: Bound::at_pos(offset), hi: Bound::fixed(extent) },
                65..72 => Interval { lo: Bound::fixed(0), hi: Bound::at_pos(0) },
                72..80 => Interval::fixed(0, extent),
                _ => Interval { lo: self.bound(extent), hi: self.bound(extent) },
            };
            let lengths = interval.len_at(0) + interval.len_at(u64::from(positions - 1));
            if ordered(interval.lo, interval.hi, positions) && lengths > 0 {
                return interval;
            }
        }
        Interval::fixed(0, extent)
    }

    pub(super) fn operand(&self, buffer: BufferId, first: Interval, access: Access) -> Operand {
        let mut region = Region::full(&self.program.buffers[buffer.index()].shape);
        region.intervals_mut().iter_mut().take(1).for_each(|interval| *interval = first);
        Operand { buffer, region, access, early: false, routed: None }
    }

    /// A task that writes a piece of a buffer; now and then the last task does, and often it reads
    /// something first.
    fn write(&mut self, write: Operand) {
        let buffer = write.buffer;
        let mut calls = if self.rng.chance(20) { self.program.tasks.pop() } else { None }.unwrap_or_default().calls;
        let mut operands = Vec::new();
        if buffer.0 > 0 && self.rng.chance(55) {
            let earlier = BufferId(self.rng.below(buffer.0));
            let read = self.used(earlier, Access::Read);
            if self.rng.chance(30) {
                self.push(&mut calls, vec![read]);
            } else {
                operands.push(read);
            }
        }
        operands.push(write);
        self.push(&mut calls, operands);
        self.program.tasks.push(Task { calls, ..Task::default() });
    }

    /// A separate task, or a call of the last one; `early`: anywhere among the tasks, not only at
    /// the end.
    pub(super) fn anywhere(&mut self, operand: Operand, early: bool) {
        let mut calls: Vec<Call> = Vec::new();
        if early {
            self.push(&mut calls, vec![operand]);
            let at = self.rng.below(self.program.tasks.len() as u32 + 1) as usize;
            self.program.tasks.insert(at, Task { calls, ..Task::default() });
            return;
        }
        if self.rng.chance(25) {
            calls = self.program.tasks.pop().unwrap_or_default().calls;
        }
        self.push(&mut calls, vec![operand]);
        self.program.tasks.push(Task { calls, ..Task::default() });
    }
}

/// Whether one bound is not behind another at any position.
fn ordered(lo: Bound, hi: Bound, positions: u32) -> bool {
    [0, u64::from(positions - 1)].into_iter().all(|at| lo.at(at) <= hi.at(at))
}
