//! Generic tasks in the image: the tiles of a call's operands, then its parameters. Mirrors `Tile` of `vm/task.cuh`.

use crate::plan::{Body, Generic, Phase, Plan, Work};
use amk_ir::program::{BufferKind, Param};
use amk_ir::signature::ParamKind;
use amk_ir::{Bound, BufferId, Call, DType, Exchange, Interval, Operand, Region};
use std::collections::HashMap;

/// Words of a tile.
const TILE_WORDS: usize = 16;
/// Bytes at whose multiples buffers begin in the plain memory.
const ALIGN: u64 = 256;
const RANK: usize = 4;

/// Where a tile's buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
enum Kind {
    PacketsF32,
    PacketsBF16,
    PacketsU32,
    PlainF32,
    PlainBF16,
    State,
    Token,
    Logits,
}

/// What generic tasks read and write, and where.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    /// The tasks' tiles and parameters.
    pub words: Vec<u32>,
    /// Weights, inputs and states in plain memory, with their first bytes.
    pub buffers: Vec<(BufferId, u64)>,
    /// Bytes of the plain memory.
    pub bytes: u64,
    /// Floats that a task lays out its inputs and outputs in, at most.
    pub scratch: u32,
    places: HashMap<BufferId, (Kind, u64)>,
    known: HashMap<(Kind, u64), BufferId>,
}

impl Plain {
    /// Places for every buffer that a generic task of the plan touches.
    pub(super) fn place(plan: &Plan, packet_at: &HashMap<BufferId, u32>) -> Self {
        let mut plain = Self::default();
        let phases = plan.phases.iter().filter_map(|phase| if let Phase::Generic(g) = phase { Some(g) } else { None });
        for call in phases.flat_map(|generic| &generic.tiles) {
            for operand in &call.operands {
                plain.place_buffer(plan, packet_at, operand.buffer);
            }
            plain.scratch = plain.scratch.max(plain.scratch_of(call));
        }
        plain
    }

    fn place_buffer(&mut self, plan: &Plan, packet_at: &HashMap<BufferId, u32>, id: BufferId) {
        if self.places.contains_key(&id) {
            return;
        }
        let Some(buffer) = plan.program.buffers.get(id.index()) else { return };
        let place = match (buffer.exchange, buffer.kind) {
            (Exchange::Packet { .. }, _) => {
                let kind = match buffer.dtype {
                    DType::BF16 => Kind::PacketsBF16,
                    DType::U32 => Kind::PacketsU32,
                    _ => Kind::PacketsF32,
                };
                (kind, u64::from(packet_at.get(&id).copied().unwrap_or(u32::MAX)))
            }
            (_, BufferKind::Output) => (Kind::Logits, 0),
            _ if id == plan.token => (Kind::Token, 0),
            (_, kind) => {
                let kind = match (kind, buffer.dtype) {
                    (BufferKind::State, _) => Kind::State,
                    (_, DType::BF16) => Kind::PlainBF16,
                    _ => Kind::PlainF32,
                };
                let at = self.bytes;
                self.bytes = (at + buffer.bytes()).next_multiple_of(ALIGN);
                self.buffers.push((id, at));
                (kind, at)
            }
        };
        self.places.insert(id, place);
        self.known.insert(place, id);
    }

    fn kind(&self, id: BufferId) -> Option<Kind> {
        self.places.get(&id).map(|(kind, _)| *kind)
    }

    /// Floats that the device lays out for a call: each activation on its own, in whole fours.
    fn scratch_of(&self, call: &Call) -> u32 {
        let laid_out = |operand: &&Operand| {
            let kind = self.kind(operand.buffer);
            matches!(kind, Some(Kind::PacketsF32 | Kind::PacketsBF16 | Kind::PacketsU32 | Kind::Logits))
        };
        call.operands.iter().filter(laid_out).map(|o| (o.region.len_at(0) as u32).next_multiple_of(4)).sum()
    }

    /// Appends a call; gives its first word.
    pub(super) fn encode(&mut self, plan: &Plan, call: &Call) -> u32 {
        let at = self.words.len() as u32;
        for operand in &call.operands {
            let tile = self.tile(plan, operand.buffer, &operand.region);
            self.words.extend(tile);
        }
        for param in &call.params {
            self.words.push(match param {
                Param::F32(value) => value.to_bits(),
                Param::U32(value) => *value,
                Param::Pos => 0,
            });
        }
        // The next call's tiles are read 16 bytes at a time.
        self.words.resize(self.words.len().next_multiple_of(4), 0);
        at
    }

    fn tile(&self, plan: &Plan, id: BufferId, region: &Region) -> [u32; TILE_WORDS] {
        let mut words = [0; TILE_WORDS];
        let Some(&(kind, at)) = self.places.get(&id) else { return words };
        let shape = plan.shape(id);
        (words[0], words[1]) = (at as u32, (at >> 32) as u32);
        words[2] = kind as u32 | (shape.len() as u32) << 8;
        let mut stride = 1;
        for (d, (interval, &extent)) in region.intervals().iter().zip(shape).enumerate().rev() {
            words[2] |= u32::from(interval.lo.pos) << (16 + d) | u32::from(interval.hi.pos) << (20 + d);
            (words[3 + d], words[3 + RANK + d]) = (interval.lo.base, interval.hi.base);
            words[3 + 2 * RANK + d] = stride;
            stride *= extent;
        }
        words[15] = shape.first().copied().unwrap_or(0);
        words
    }

    /// The call that a body computes on the tiles at word `at`; `None` where they are none.
    pub(super) fn decode(&self, plan: &Plan, body: &Body, at: u32) -> Option<Call> {
        let specs = &plan.program.instructions.get(body.instruction.index())?.operands;
        let mut words = self.words.get(at as usize..)?;
        let mut operands = Vec::with_capacity(specs.len());
        for spec in specs {
            let (tile, rest) = words.split_at_checked(TILE_WORDS)?;
            words = rest;
            let (buffer, region) = self.decode_tile(plan, tile)?;
            let early = plan.program.buffers.get(buffer.index())?.kind == BufferKind::Weight;
            operands.push(Operand { buffer, region, access: spec.access, early, routed: None });
        }
        let scalars = body.signature.params.iter().filter(|param| !matches!(param.kind, ParamKind::Tensor { .. }));
        let params = scalars
            .zip(words)
            .map(|(param, &word)| match param.kind {
                ParamKind::Float => Param::F32(f32::from_bits(word)),
                ParamKind::Pos => Param::Pos,
                _ => Param::U32(word),
            })
            .collect();
        Some(Call { instruction: body.instruction, operands, params })
    }

    fn decode_tile(&self, plan: &Plan, words: &[u32]) -> Option<(BufferId, Region)> {
        const KINDS: [Kind; 8] = [
            Kind::PacketsF32,
            Kind::PacketsBF16,
            Kind::PacketsU32,
            Kind::PlainF32,
            Kind::PlainBF16,
            Kind::State,
            Kind::Token,
            Kind::Logits,
        ];
        let form = words[2];
        let kind = *KINDS.get((form & 255) as usize)?;
        let id = *self.known.get(&(kind, u64::from(words[1]) << 32 | u64::from(words[0])))?;
        let rank = (form >> 8 & 255) as usize;
        let bound = |at: usize, bit: usize| Bound { base: words[at], pos: form >> bit & 1 == 1 };
        let intervals: Vec<Interval> = (0..rank.min(RANK))
            .map(|d| Interval { lo: bound(3 + d, 16 + d), hi: bound(3 + RANK + d, 20 + d) })
            .collect();
        let region = Region::new(&intervals)?;
        // Strides and extents are the buffer's.
        (self.tile(plan, id, &region) == words).then_some((id, region))
    }

    /// Bytes of weights that the generic tasks of a step read; of a table from which a token takes a row, that row.
    pub fn weight_bytes(plan: &Plan) -> u64 {
        let of = |generic: &Generic| -> u64 {
            let gathers = generic.tiles.iter().any(|call| call.operands.iter().any(|o| o.buffer == plan.token));
            let bytes = |operand: &&Operand| {
                let dtype = plan.program.buffers[operand.buffer.index()].dtype;
                operand.region.len_at(0) * u64::from(dtype.bytes())
            };
            let weights = generic.tiles.iter().flat_map(|call| &call.operands).filter(|operand| operand.early);
            if gathers { 0 } else { weights.map(|operand| bytes(&operand)).sum() }
        };
        plan.phases.iter().map(|phase| if let Phase::Generic(generic) = phase { of(generic) } else { 0 }).sum()
    }
}

/// The call of a generic task.
pub(super) fn call_of<'p>(plan: &'p Plan, phase: usize, work: &Work) -> Option<(usize, &'p Call)> {
    match (plan.phases.get(phase)?, work) {
        (Phase::Generic(generic), &Work::Tile(tile)) => Some((generic.body, generic.tiles.get(tile as usize)?)),
        _ => None,
    }
}
