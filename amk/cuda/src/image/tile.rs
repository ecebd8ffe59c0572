//! Generic tasks in the image: for each call the tiles of its operands, then its parameters.

use super::abi::{
    LOCAL, LOGITS, OPERAND_WORDS, PACKETS_BF16, PACKETS_F32, PACKETS_U32, PLAIN_BF16, PLAIN_F32, STATE_F32, STREAM,
    TOKEN, TileWords,
};
use crate::plan::{Generic, Plan, Sequence, View};
use crate::tape::{Piece, WeightRows};
use amk::rows::PAGE;
use amk_ir::program::{BufferKind, Param};
use amk_ir::rows::PageGroups;
use amk_ir::{BufferId, Call, CallRows, DType, Exchange, Operand, Region};
use std::collections::HashMap;

/// Alignment of buffers in the plain memory, in bytes.
const ALIGN: u64 = 256;

/// The data of generic tasks and its layout.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    /// The tasks' tiles and parameters.
    pub words: Vec<u32>,
    /// Weights, inputs and states in plain memory, each with its first byte.
    pub buffers: Vec<(BufferId, u64)>,
    /// Size of the plain memory in bytes. With rows, the pages of the states follow it.
    pub bytes: u64,
    /// With rows, the states, each with its first byte in a page of its group.
    pub states: Vec<(BufferId, u64)>,
    /// The bytes of a page of each group; 0 without rows.
    pub pages: Vec<u64>,
    /// Maximum floats in which a task lays out its inputs and outputs.
    pub scratch: u32,
    /// Memory kind and start of each buffer.
    places: HashMap<BufferId, (u32, u64)>,
    /// With rows, the groups of the states.
    groups: Option<PageGroups>,
}

impl Plain {
    /// Places every buffer that a generic task of the plan touches.
    pub(super) fn place(plan: &Plan, packet_at: &HashMap<BufferId, u32>) -> Self {
        let groups = plan.rows().map(|_| PageGroups::of(&plan.program));
        let mut plain = Self { groups, pages: vec![0; plan.groups.len()], ..Self::default() };
        for task in plan.phases_of::<Generic>().flat_map(|generic| tasks(plan, generic)) {
            for (operand, view) in task.operands() {
                if matches!(view, View::Buffer | View::Packets) {
                    plain.place_buffer(plan, packet_at, operand);
                }
            }
            plain.scratch = plain.scratch.max(plain.locals(&task).1);
        }
        plain
    }

    /// Whether weights, inputs and states are placed as in another image.
    pub(super) fn places_as(&self, other: &Self) -> bool {
        (&self.buffers, self.bytes) == (&other.buffers, other.bytes)
            && (&self.states, &self.pages) == (&other.states, &other.pages)
    }

    /// The group of a state.
    fn group(&self, id: BufferId) -> usize {
        self.groups.as_ref().and_then(|groups| groups.group(id)).unwrap_or(0)
    }

    fn place_buffer(&mut self, plan: &Plan, packet_at: &HashMap<BufferId, u32>, operand: &Operand) {
        let id = operand.buffer;
        if self.places.contains_key(&id) {
            return;
        }
        let Some(buffer) = plan.program.buffers.get(id.index()) else { return };
        let in_rows = plan.rows().is_some() && buffer.kind == BufferKind::Activation;
        let place = match (buffer.exchange, buffer.kind) {
            (exchange, _) if exchange != Exchange::Counter || in_rows => {
                let kind = match buffer.dtype {
                    DType::BF16 => PACKETS_BF16,
                    DType::U32 => PACKETS_U32,
                    _ => PACKETS_F32,
                };
                (kind, u64::from(packet_at.get(&id).copied().unwrap_or(u32::MAX)))
            }
            (_, BufferKind::Output) => (LOGITS, 0),
            _ if id == plan.token => (TOKEN, 0),
            (_, BufferKind::State) if plan.rows().is_some() => {
                let elements: u64 = shape(plan, operand).iter().copied().map(u64::from).product();
                let group = self.group(id);
                let end = &mut self.pages[group];
                let at = *end;
                *end = (at + elements * u64::from(buffer.dtype.bytes())).next_multiple_of(ALIGN);
                self.states.push((id, at));
                (STATE_F32, at)
            }
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

    /// Returns the floats laid out for an operand, rounded up to a multiple of four.
    fn room(&self, operand: &Operand, view: View) -> u32 {
        let laid_out = match view {
            View::Buffer => {
                matches!(self.kind(operand.buffer), Some(PACKETS_F32 | PACKETS_BF16 | PACKETS_U32 | LOGITS))
            }
            View::Local => operand.access.writes(),
            View::Stream | View::Packets => false,
        };
        if laid_out { (operand.region.len_at(0) as u32).next_multiple_of(4) } else { 0 }
    }

    /// Returns the first float of each value passed between the calls of a task, after its other
    /// operands in the scratch, and the total floats.
    fn locals(&self, task: &GenericTask<'_>) -> (HashMap<BufferId, u32>, u32) {
        let of = |local: bool| task.operands().filter(move |(_, view)| (*view == View::Local) == local);
        let mut end = of(false).map(|(operand, view)| self.room(operand, view)).sum();
        let mut locals = HashMap::new();
        for (operand, view) in of(true).filter(|(operand, _)| operand.access.writes()) {
            locals.insert(operand.buffer, end);
            end += self.room(operand, view);
        }
        (locals, end)
    }

    /// The kind of memory that holds a buffer, and the buffer's place in it: for a paged state, in
    /// page 0.
    fn first(&self, plan: &Plan, id: BufferId) -> (u32, u64) {
        let (kind, at) = self.places.get(&id).copied().unwrap_or((u32::MAX, 0));
        (kind, if kind == STATE_F32 && plan.rows().is_some() { self.bytes + at } else { at })
    }

    /// Adds words and returns the place of the first one.
    pub(super) fn extend(&mut self, words: impl IntoIterator<Item = u32>) -> u32 {
        let at = self.words.len() as u32;
        self.words.extend(words);
        self.pad();
        at
    }

    /// Fills up the words, which are read 16 bytes at a time.
    fn pad(&mut self) {
        self.words.resize(self.words.len().next_multiple_of(4), 0);
    }

    /// Appends the calls of a task and returns their first word.
    pub(super) fn encode(&mut self, plan: &Plan, task: &GenericTask<'_>) -> u32 {
        let at = self.words.len() as u32;
        let (locals, _) = self.locals(task);
        for (call, step) in task.calls.iter().zip(&task.sequence.steps) {
            for (operand, view) in call.operands.iter().zip(&step.views) {
                let place = match view {
                    View::Local => (LOCAL, locals.get(&operand.buffer).copied().unwrap_or(u32::MAX).into()),
                    View::Stream => (STREAM, 0),
                    View::Buffer | View::Packets => self.first(plan, operand.buffer),
                };
                let mut tile = tile(place, &shape(plan, operand), &operand.region);
                if place.0 == STATE_F32 && plan.rows().is_some() {
                    tile.outermost = self.group(operand.buffer) as u32;
                }
                self.words.extend(words(&tile));
            }
            for param in &call.params {
                self.words.push(match param {
                    Param::F32(value) => value.to_bits(),
                    Param::U32(value) => *value,
                    Param::Pos => 0,
                });
            }
            self.pad();
        }
        at
    }
}

/// The shape in which an operand's buffer is stored: with rows, the value of one row, and for a
/// state its part of a page.
fn shape(plan: &Plan, operand: &Operand) -> Vec<u32> {
    let mut shape = plan.row_shape(operand.buffer).to_vec();
    let state = plan.program.buffers.get(operand.buffer.index()).is_some_and(|buffer| buffer.kind == BufferKind::State);
    if state && plan.rows().is_some() {
        let moving = operand.region.intervals().iter().position(|interval| interval.hi.pos);
        moving.and_then(|dim| shape.get_mut(dim)).into_iter().for_each(|extent| *extent = PAGE as u32);
    }
    shape
}

/// Returns the distance in elements between neighbours of each dimension; `None` if a word is too
/// small for one.
fn strides(shape: &[u32]) -> Option<Vec<u32>> {
    let inner = (1..=shape.len()).map(|d| &shape[d..]);
    inner.map(|inner| inner.iter().try_fold(1u32, |len, &extent| len.checked_mul(extent))).collect()
}

/// Whether the words of a tile can state the distances between an operand's elements.
pub(crate) fn has_strides(plan: &Plan, operand: &Operand) -> bool {
    strides(&shape(plan, operand)).is_some()
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

/// Returns the tile of a region of a buffer, whose memory kind and place are known.
fn tile((kind, at): (u32, u64), shape: &[u32], region: &Region) -> TileWords {
    let mut tile = TileWords { at_low: at as u32, at_high: (at >> 32) as u32, ..TileWords::default() };
    tile.form = kind | (shape.len() as u32) << 8;
    for (d, (interval, stride)) in region.intervals().iter().zip(strides(shape).unwrap_or_default()).enumerate() {
        tile.form |= u32::from(interval.lo.pos) << (16 + d) | u32::from(interval.hi.pos) << (20 + d);
        tile.form |= u32::from(interval.lo.behind) << (24 + d) | u32::from(interval.hi.behind) << (28 + d);
        (tile.lo[d], tile.hi[d], tile.stride[d]) = (interval.lo.base, interval.hi.base, stride);
    }
    tile.outermost = shape.first().copied().unwrap_or(0);
    tile
}

/// A generic task of a plan.
pub(crate) struct GenericTask<'p> {
    /// Index of its sequence.
    pub(super) number: usize,
    sequence: &'p Sequence,
    calls: &'p [Call],
}

impl<'p> GenericTask<'p> {
    /// A tile of a phase.
    pub(crate) fn of(plan: &'p Plan, generic: &'p Generic, tile: u32) -> Option<Self> {
        let sequence = plan.sequences.get(generic.sequence)?;
        let calls = generic.tiles.get(tile as usize)?;
        Some(Self { number: generic.sequence, sequence, calls })
    }

    fn operands(&self) -> impl Iterator<Item = (&'p Operand, View)> {
        let steps = self.calls.iter().zip(&self.sequence.steps);
        steps.flat_map(|(call, step)| call.operands.iter().zip(step.views.iter().copied()))
    }

    /// The rows of a step that it is for.
    pub(super) fn rows(&self) -> Option<CallRows> {
        self.calls.first().and_then(|call| call.rows)
    }

    /// The bytes that one `acquire` of its stream returns, for rows of `k` elements.
    pub(super) fn block(&self, k: u32) -> u32 {
        self.sequence.stream.map_or(0, |stream| (stream.block)(k))
    }

    /// Its piece of its worker's tape.
    pub(crate) fn piece(&self) -> Option<Piece> {
        let stream = self.sequence.stream?;
        let (weight, _) = self.operands().find(|(_, view)| *view == View::Stream)?;
        let &[rows, columns] = weight.region.intervals() else { return None };
        let parts = vec![WeightRows { weight: weight.buffer, rows: rows.lo.base..rows.hi.base }];
        Some(Piece { k: columns.hi.base, interleaved: false, layout: stream.layout, parts })
    }
}

/// Returns the tasks of a phase.
fn tasks<'p>(plan: &'p Plan, generic: &'p Generic) -> impl Iterator<Item = GenericTask<'p>> {
    (0..generic.tiles.len() as u32).filter_map(move |tile| GenericTask::of(plan, generic, tile))
}
