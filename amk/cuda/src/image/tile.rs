//! Generic tasks in the image: the tiles of a call's operands, then its parameters.

use super::abi::{
    LOGITS, OPERAND_WORDS, PACKETS_BF16, PACKETS_F32, PACKETS_U32, PLAIN_BF16, PLAIN_F32, STATE_F32, TOKEN, TileWords,
};
use crate::plan::{Generic, Plan};
use amk_ir::program::{BufferKind, Param};
use amk_ir::{BufferId, Call, DType, Exchange, Operand, Region};
use std::collections::HashMap;

/// Bytes at whose multiples buffers begin in the plain memory.
const ALIGN: u64 = 256;

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
    /// By buffer: the kind of its memory, and where it begins there.
    places: HashMap<BufferId, (u32, u64)>,
}

impl Plain {
    /// Places for every buffer that a generic task of the plan touches.
    pub(super) fn place(plan: &Plan, packet_at: &HashMap<BufferId, u32>) -> Self {
        let mut plain = Self::default();
        for call in plan.phases_of::<Generic>().flat_map(|generic| &generic.tiles) {
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
                    DType::BF16 => PACKETS_BF16,
                    DType::U32 => PACKETS_U32,
                    _ => PACKETS_F32,
                };
                (kind, u64::from(packet_at.get(&id).copied().unwrap_or(u32::MAX)))
            }
            (_, BufferKind::Output) => (LOGITS, 0),
            _ if id == plan.token => (TOKEN, 0),
            (_, kind) => {
                let kind = match (kind, buffer.dtype) {
                    (BufferKind::State, _) => STATE_F32,
                    (_, DType::BF16) => PLAIN_BF16,
                    _ => PLAIN_F32,
                };
                let at = self.bytes;
                self.bytes = (at + buffer.bytes()).next_multiple_of(ALIGN);
                self.buffers.push((id, at));
                (kind, at)
            }
        };
        self.places.insert(id, place);
    }

    fn kind(&self, id: BufferId) -> Option<u32> {
        self.places.get(&id).map(|(kind, _)| *kind)
    }

    /// Floats that the device lays out for a call: each activation on its own, in whole fours.
    fn scratch_of(&self, call: &Call) -> u32 {
        let laid_out = |operand: &&Operand| {
            let kind = self.kind(operand.buffer);
            matches!(kind, Some(PACKETS_F32 | PACKETS_BF16 | PACKETS_U32 | LOGITS))
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

    fn tile(&self, plan: &Plan, id: BufferId, region: &Region) -> [u32; OPERAND_WORDS as usize] {
        let mut tile = TileWords::default();
        let Some(&(kind, at)) = self.places.get(&id) else { return words(&tile) };
        let shape = plan.shape(id);
        (tile.at_low, tile.at_high) = (at as u32, (at >> 32) as u32);
        tile.form = kind | (shape.len() as u32) << 8;
        let mut stride = 1;
        for (d, (interval, &extent)) in region.intervals().iter().zip(shape).enumerate().rev() {
            tile.form |= u32::from(interval.lo.pos) << (16 + d) | u32::from(interval.hi.pos) << (20 + d);
            (tile.lo[d], tile.hi[d], tile.stride[d]) = (interval.lo.base, interval.hi.base, stride);
            stride *= extent;
        }
        tile.outermost = shape.first().copied().unwrap_or(0);
        words(&tile)
    }
}

/// A tile as the words of the arguments.
fn words(tile: &TileWords) -> [u32; OPERAND_WORDS as usize] {
    let mut words = [0; OPERAND_WORDS as usize];
    (words[0], words[1], words[2]) = (tile.at_low, tile.at_high, tile.form);
    words[3..7].copy_from_slice(&tile.lo);
    words[7..11].copy_from_slice(&tile.hi);
    words[11..15].copy_from_slice(&tile.stride);
    words[15] = tile.outermost;
    words
}
