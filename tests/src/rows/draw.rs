//! Random small programs with rows: ops on one row, cut into blocks of rows, listed op by op or
//! block by block.

use crate::generate::{self, Rng};
use amk_ir::{
    Access, Bound, Buffer, BufferId, BufferKind, Call, CallRows, DType, Exchange, Interval, Operand, Program, Region,
    Task,
};
use std::collections::BTreeSet;

/// A random program with rows, about half of them safe.
pub fn program(rng: &mut Rng) -> Program {
    let rows = *rng.pick(&[1, 2, 2, 2, 3, 3, 3, 4]).unwrap_or(&2);
    let positions = if rng.chance(85) { rng.between(rows, 4.max(rows)) } else { rng.between(1, 4) };
    let careless = rng.chance(35);
    let program = Program { name: "rows".into(), positions, rows: Some(rows), ..Program::default() };
    let (values, moving, states) = (Vec::new(), BTreeSet::new(), Vec::new());
    let tangled = rng.chance(4);
    let mut draw = Draw { rng, program, rows, careless, tangled, values, moving, states };
    draw.declare();
    let mut segments: Vec<Segment> = Vec::new();
    for _ in 0..draw.rng.between(1, 3) {
        let segment = draw.segment();
        segments.push(segment);
    }
    draw.finish(&mut segments);
    draw.want(&mut segments);
    for (at, segment) in segments.iter().enumerate() {
        let others = segments.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, other)| &other.ops);
        let read = others.flat_map(|op| &op.touches).map(|touch| touch.buffer).collect();
        draw.list(segment, &read);
    }
    if draw.tangled || draw.rng.chance(15) {
        draw.reuse();
    } else if draw.rng.chance(8) {
        draw.side_by_side();
    }
    let (ticket, workers) = (draw.rng.chance(12), draw.rng.between(1, 3));
    let Draw { rng, program, careless, .. } = draw;
    generate::ordered(rng, program, ticket, workers, careless)
}

/// An op's access to a buffer for one row: a tile relative to the row's position, without the
/// dimension of rows.
#[derive(Clone)]
struct Touch {
    buffer: BufferId,
    tile: Vec<Interval>,
    access: Access,
    early: bool,
}

#[derive(Clone, Default)]
struct Op {
    touches: Vec<Touch>,
    wanted: bool,
    /// Two tasks, each for a column of what is written.
    split: bool,
}

/// Ops with the same blocks of rows.
struct Segment {
    ops: Vec<Op>,
    blocks: Vec<CallRows>,
    listing: Listing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    ByOp,
    ByBlock,
    /// All ops of a block in one task.
    Fused,
}

struct Draw<'a> {
    rng: &'a mut Rng,
    program: Program,
    rows: u32,
    careless: bool,
    /// Values move with the position, and share an arena anyhow.
    tangled: bool,
    /// Activations and inputs that have been written.
    values: Vec<BufferId>,
    /// Those of which a row has a column a position.
    moving: BTreeSet<BufferId>,
    states: Vec<State>,
}

/// A state, and its dimension of positions if it has one.
#[derive(Clone, Copy)]
struct State {
    buffer: BufferId,
    dim: Option<usize>,
}

impl Draw<'_> {
    fn declare(&mut self) {
        let columns = self.columns();
        let input = self.buffer(BufferKind::Input, vec![self.rows, columns]);
        self.values.push(input);
        for _ in 0..self.rng.between(1, 2) {
            let extent = self.program.positions + self.rng.below(2);
            let (shape, dim) = match self.rng.below(100) {
                0..50 => (vec![extent], Some(0)),
                50..65 => (vec![extent, 2], Some(0)),
                65..80 => (vec![2, extent], Some(1)),
                _ => (vec![self.rng.between(1, 2)], None),
            };
            let buffer = self.buffer(BufferKind::State, shape);
            self.states.push(State { buffer, dim });
        }
        if self.rng.chance(30) {
            let shape = vec![self.program.positions, 1];
            self.buffer(BufferKind::Weight, shape);
        }
    }

    fn columns(&mut self) -> u32 {
        1 + u32::from(self.rng.chance(30))
    }

    fn buffer(&mut self, kind: BufferKind, shape: Vec<u32>) -> BufferId {
        let id = BufferId::from(self.program.buffers.len());
        let packet = kind == BufferKind::Activation && self.rng.chance(4);
        let exchange = if packet { Exchange::Packet { slots: 1 } } else { Exchange::Counter };
        let name = format!("m{}", id.0);
        self.program.buffers.push(Buffer { name, kind, dtype: DType::F32, shape, exchange, place: None });
        id
    }

    fn segment(&mut self) -> Segment {
        let single = self.rng.chance(30);
        let blocks = self.blocks(single);
        let listing = match self.rng.below(100) {
            0..45 => Listing::ByOp,
            45..75 => Listing::ByBlock,
            _ => Listing::Fused,
        };
        let ops = (0..self.rng.between(1, 3)).map(|_| self.op()).collect();
        Segment { ops, blocks, listing }
    }

    fn blocks(&mut self, single: bool) -> Vec<CallRows> {
        let (mut blocks, mut first) = (Vec::new(), 0);
        let whole = self.rng.chance(45);
        while first < self.rows {
            let end = if single {
                first + 1
            } else if whole {
                self.rows
            } else {
                self.rng.between(first + 1, self.rows)
            };
            blocks.push(CallRows { first, end, wanted: false });
            first = end;
        }
        blocks
    }

    /// An op that reads values, and writes one or changes a state.
    fn op(&mut self) -> Op {
        let mut op = Op::default();
        for _ in 0..self.rng.below(3) {
            self.read_value(&mut op);
        }
        let state = self.rng.pick(&self.states).copied();
        match (self.rng.below(100), state) {
            (0..35, Some(state)) => {
                let tile = self.append(state);
                let access = if self.rng.chance(60) { Access::Write } else { Access::Update };
                op.touches.push(Touch { buffer: state.buffer, tile, access, early: false });
            }
            (35..75, Some(state)) => {
                let tile = self.attend(state);
                let early = self.rng.chance(3);
                op.touches.push(Touch { buffer: state.buffer, tile, access: Access::Read, early });
                self.write_value(&mut op, BufferKind::Activation);
            }
            _ => self.write_value(&mut op, BufferKind::Activation),
        }
        op
    }

    fn read_value(&mut self, op: &mut Op) {
        let weights = (0..self.program.buffers.len()).map(BufferId::from);
        let weight = weights.into_iter().find(|&id| self.program.buffers[id.index()].kind == BufferKind::Weight);
        let positions = self.program.positions;
        if let Some(buffer) = weight.filter(|_| self.rng.chance(30)) {
            let at = if self.rng.chance(50) { Interval::fixed(0, positions) } else { moving(0, 1) };
            let tile = vec![at, Interval::fixed(0, 1)];
            op.touches.push(Touch { buffer, tile, access: Access::Read, early: self.rng.chance(50) });
        } else if let Some(&buffer) = self.rng.pick(&self.values) {
            let tile = vec![self.part(buffer)];
            let known = |touch: &Touch| touch.buffer == buffer;
            if !op.touches.iter().any(known) {
                op.touches.push(Touch { buffer, tile, access: Access::Read, early: false });
            }
        }
    }

    /// The columns of a value that are read: mostly all.
    fn part(&mut self, buffer: BufferId) -> Interval {
        if self.moving.contains(&buffer) {
            return moving(0, 1);
        }
        let columns = self.program.buffers[buffer.index()].shape[1];
        let at = self.rng.below(columns);
        if self.rng.chance(20) { Interval::fixed(at, at + 1) } else { Interval::fixed(0, columns) }
    }

    fn write_value(&mut self, op: &mut Op, kind: BufferKind) {
        let moves = kind == BufferKind::Activation && self.rng.chance(if self.tangled { 60 } else { 8 });
        let columns = if moves { self.program.positions } else { self.columns() };
        let buffer = self.buffer(kind, vec![self.rows, columns]);
        let tile = vec![if moves { moving(0, 1) } else { Interval::fixed(0, columns) }];
        op.touches.push(Touch { buffer, tile, access: Access::Write, early: false });
        op.split = !moves && columns == 2 && self.rng.chance(40);
        if moves {
            self.moving.insert(buffer);
        }
        if kind == BufferKind::Activation {
            self.values.push(buffer);
        }
    }

    fn append(&mut self, state: State) -> Vec<Interval> {
        let odd = self.rng.chance(if self.careless { 25 } else { 8 });
        self.state_tile(state, |draw, extent| match draw.rng.below(4) {
            _ if !odd => moving(0, 1),
            0 if extent > draw.program.positions => moving(1, 2),
            1 if extent > draw.program.positions => moving(0, 2),
            2 => Interval { lo: Bound::fixed(0), hi: Bound::at_pos(1) },
            _ => Interval { lo: Bound::at_pos(0), hi: Bound::fixed(extent) },
        })
    }

    fn attend(&mut self, state: State) -> Vec<Interval> {
        let odd = self.rng.chance(30);
        self.state_tile(state, |draw, extent| match draw.rng.below(8) {
            0..3 if !odd => Interval { lo: Bound::behind(draw.rng.between(1, 3)), hi: Bound::at_pos(1) },
            _ if !odd => Interval { lo: Bound::fixed(0), hi: Bound::at_pos(1) },
            0 if extent > draw.program.positions => moving(1, 2),
            1 if extent > draw.program.positions => moving(0, 2),
            2 if draw.program.positions > 1 => Interval { lo: Bound::fixed(0), hi: Bound::at_pos(0) },
            3 => Interval::fixed(0, extent),
            4 => Interval { lo: Bound::at_pos(0), hi: Bound::fixed(extent) },
            5 => Interval::fixed(0, 1),
            6 => Interval { lo: Bound::behind(draw.rng.between(1, 3)), hi: Bound::at_pos(0) },
            _ => moving(0, 1),
        })
    }

    /// A tile of a state, with `of` in the dimension of positions if it has one.
    fn state_tile(&mut self, state: State, of: impl Fn(&mut Self, u32) -> Interval) -> Vec<Interval> {
        let shape = self.program.buffers[state.buffer.index()].shape.clone();
        let mut tile: Vec<Interval> = shape.iter().map(|&extent| Interval::fixed(0, extent)).collect();
        if let Some(dim) = state.dim {
            let other = 1 - dim.min(1);
            if shape.len() == 2 && self.rng.chance(25) {
                let at = self.rng.below(shape[other]);
                tile[other] = Interval::fixed(at, at + 1);
            }
            tile[dim] = of(self, shape[dim]);
        }
        tile
    }

    /// The last op writes an output.
    fn finish(&mut self, segments: &mut Vec<Segment>) {
        let mut op = Op::default();
        for _ in 0..self.rng.between(1, 2) {
            self.read_value(&mut op);
        }
        if let Some(&state) = self.states.first().filter(|_| self.rng.chance(35)) {
            let tile = self.attend(state);
            op.touches.push(Touch { buffer: state.buffer, tile, access: Access::Read, early: false });
        }
        self.write_value(&mut op, BufferKind::Output);
        match segments.last_mut().filter(|_| self.rng.chance(35)) {
            Some(last) => last.ops.push(op),
            None => {
                let single = self.rng.chance(30);
                let blocks = self.blocks(single);
                segments.push(Segment { ops: vec![op], blocks, listing: Listing::ByOp });
            }
        }
    }

    /// Marks ops whose results reach outputs alone, most of the time.
    fn want(&mut self, segments: &mut [Segment]) {
        let mark = self.rng.chance(70);
        let mut needed: Vec<BufferId> = self.states.iter().map(|state| state.buffer).collect();
        for op in segments.iter_mut().flat_map(|segment| &mut segment.ops).rev() {
            let kept = op.touches.iter().any(|touch| touch.access.writes() && needed.contains(&touch.buffer));
            if kept {
                needed.extend(op.touches.iter().map(|touch| touch.buffer));
            }
            let mistaken = self.careless && self.rng.chance(6);
            op.wanted = mark && (!kept || mistaken) && self.rng.chance(90);
            // What is read by rows that need not be wanted is needed for them.
            if !op.wanted {
                needed.extend(op.touches.iter().map(|touch| touch.buffer));
            }
        }
    }

    /// The tasks of a segment; others read some buffers.
    fn list(&mut self, segment: &Segment, read: &BTreeSet<BufferId>) {
        match segment.listing {
            Listing::ByOp => {
                for op in &segment.ops {
                    segment.blocks.iter().for_each(|&rows| self.tasks(op, rows));
                }
            }
            Listing::ByBlock => {
                for &rows in &segment.blocks {
                    segment.ops.iter().for_each(|op| self.tasks(op, rows));
                }
            }
            Listing::Fused => segment.blocks.iter().for_each(|&rows| self.fused(&segment.ops, rows, read)),
        }
    }

    fn tasks(&mut self, op: &Op, rows: CallRows) {
        for column in 0..1 + u32::from(op.split) {
            let mut part = op.clone();
            for touch in part.touches.iter_mut().filter(|touch| op.split && touch.access.writes()) {
                touch.tile[0] = Interval::fixed(column, column + 1);
            }
            let calls = self.call(&part, rows).into_iter().collect();
            self.program.tasks.push(Task { calls, ..Task::default() });
        }
    }

    /// One task for all; some of what passes between its calls is in locals.
    fn fused(&mut self, ops: &[Op], rows: CallRows, read: &BTreeSet<BufferId>) {
        let mut ops = ops.to_vec();
        let local = self.rng.chance(60);
        for at in 0..ops.len() {
            let written = ops[at].touches.iter().find(|touch| touch.access.writes()).map(|touch| touch.buffer);
            let Some(buffer) = written.filter(|id| self.program.buffers[id.index()].kind == BufferKind::Activation)
            else {
                continue;
            };
            let read_here = ops[at + 1..].iter().flat_map(|op| &op.touches).any(|touch| touch.buffer == buffer);
            if !(local && read_here) || read.contains(&buffer) {
                continue;
            }
            let columns = self.program.buffers[buffer.index()].shape[1];
            let own = self.buffer(BufferKind::Local, vec![rows.len(), columns]);
            let touches = ops.iter_mut().flat_map(|op| &mut op.touches);
            touches.filter(|touch| touch.buffer == buffer).for_each(|touch| touch.buffer = own);
        }
        let calls = ops.iter().filter_map(|op| self.call(op, rows)).collect();
        self.program.tasks.push(Task { calls, ..Task::default() });
    }

    /// Puts buffers in one arena, each when the one before it is no longer read.
    fn reuse(&mut self) {
        let mut end = 0;
        for id in 0..self.program.buffers.len() {
            let uses = |task: &Task| {
                task.calls.iter().flat_map(|call| &call.operands).any(|operand| operand.buffer.index() == id)
            };
            let (first, last) = (self.program.tasks.iter().position(uses), self.program.tasks.iter().rposition(uses));
            let (Some(first), Some(last)) = (first, last) else { continue };
            let buffer = &mut self.program.buffers[id];
            let can = matches!(buffer.kind, BufferKind::Activation | BufferKind::Output);
            if !can || buffer.exchange != Exchange::Counter {
                continue;
            }
            let anyhow = if self.tangled { 60 } else { 30 };
            if first >= end || (self.careless || self.tangled) && self.rng.chance(anyhow) {
                let most = if self.careless || self.tangled { 16 } else { 3 };
                buffer.place = Some(u64::from(self.rng.below(most)) * 4);
                end = last + 1;
            }
        }
    }

    /// Puts buffers in one arena, each behind the one before.
    fn side_by_side(&mut self) {
        let mut end = 0;
        let can = |buffer: &&mut Buffer| buffer.kind != BufferKind::Local && buffer.exchange == Exchange::Counter;
        for buffer in self.program.buffers.iter_mut().filter(can) {
            buffer.place = Some(end);
            end += buffer.bytes();
        }
    }

    /// The call of an op for some rows.
    fn call(&mut self, op: &Op, rows: CallRows) -> Option<Call> {
        let mut operands = Vec::new();
        for touch in &op.touches {
            let tile = Region::new(&touch.tile)?;
            let lifted = |first| Region::new(&[&[first], tile.intervals()].concat());
            let region = match self.program.buffers[touch.buffer.index()].kind {
                BufferKind::Weight => tile,
                BufferKind::State => rows.hull(&tile)?,
                BufferKind::Local => lifted(Interval::fixed(0, rows.len()))?,
                _ => lifted(Interval::fixed(rows.first, rows.end))?,
            };
            let Touch { buffer, access, early, .. } = *touch;
            operands.push(Operand { buffer, region, access, early, routed: None });
        }
        operands.sort_by_key(|operand| match operand.access {
            Access::Read => 0,
            Access::Update => 1,
            Access::Write => 2,
        });
        let accesses: Vec<Access> = operands.iter().map(|operand| operand.access).collect();
        let instruction = generate::instruction(&mut self.program, &accesses);
        let rows = CallRows { wanted: op.wanted, ..rows };
        Some(Call { instruction, operands, params: Vec::new(), rows: Some(rows) })
    }
}

/// `pos+lo..pos+hi`.
fn moving(lo: u32, hi: u32) -> Interval {
    Interval { lo: Bound::at_pos(lo), hi: Bound::at_pos(hi) }
}
