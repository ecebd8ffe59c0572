//! The image: the device's encoding of a program. `encode` makes it from a plan. `decode` reads it
//! back independently of the encoder and compares it with the verified program.

pub mod abi;
pub mod declare;
pub mod decode;
mod encode;
mod event;
mod tile;

pub use abi::Record;
pub use encode::Encoder;
pub use tile::Plain;
pub(crate) use tile::{GenericTask, has_strides};

use super::error::CudaError;
use super::pages::Pools;
use super::plan::{Plan, Unsupported};
use super::tape::Piece;
use crate::extensions::Extensions;
use crate::set::{SharedMemory, body_sets};
use amk_ir::verify::Verified;
use amk_ir::{Buffer, BufferId, BufferKind, DType, Exchange, Program};
use std::collections::HashMap;

/// The device's encoding of a program.
#[derive(Clone, Debug)]
pub struct Image {
    /// The records, worker by worker.
    pub records: Vec<Record>,
    /// First record and number of records of each worker.
    pub record_at: Vec<u32>,
    /// First byte of each worker's tape, and the total size.
    pub tape_at: Vec<u64>,
    /// Packets of all buffers and of the counters that follow.
    pub packets: u32,
    /// With rows, the number of 8-byte words of the values of one row, instead of packets.
    pub row_words: u32,
    /// Packet offsets by buffer.
    pub packet_at: HashMap<BufferId, u32>,
    /// Constants in order, each with its buffer and its offset in elements.
    pub constants: Vec<(BufferId, u32)>,
    /// Total elements of the constants.
    pub constant_len: u32,
    /// The pieces of each worker's tape.
    pub pieces: Vec<Vec<Piece>>,
    /// Generic tasks.
    pub plain: Plain,
    /// The pages of the states, by group.
    pub pools: Pools,
    /// Packet offsets of the events' counters.
    pub events: Vec<u32>,
    /// Number of logits.
    pub vocab: u32,
    /// The logits buffer.
    pub logits: BufferId,
    /// The token buffer, one token per worker.
    pub token: BufferId,
    /// State shared by the fused tasks.
    pub shared: Extensions,
}

/// Alignment in packets of buffers and counters: an L2 line.
const LINE: u32 = 16;

impl Image {
    /// Encodes a verified program, decodes the image and compares the two.
    ///
    /// # Errors
    /// [`CudaError::Image`] if the decoded image differs from the program.
    pub fn build(verified: &Verified, plan: &Plan) -> Result<Self, CudaError> {
        let other = |what: &str| CudaError::Image { at: "the plan".to_owned(), what: what.to_owned() };
        if verified.program() != &plan.program {
            return Err(other("belongs to another program than the verified one"));
        }
        let amk_ir::Queues::Static(queues) = &plan.program.queues else {
            return Err(other("has queues that are not static"));
        };
        let words = u64::from(Self::row_words(plan)) * u64::from(blocks(&plan.program));
        if plan.rows().is_some() && words >= u64::from(u32::MAX / 2) {
            let what = format!("the values of {} rows take {} GiB", plan.rows().unwrap_or(0), words >> 27);
            return Err(Unsupported { what, at: plan.program.name.clone() }.into());
        }
        let mut image = Self::places(plan);
        let plain = std::mem::take(&mut image.plain);
        let mut encoder = Encoder::new(plan, &image.packet_at, &image.constants, plain);
        for queue in queues {
            let mut tape = 0u64;
            let mut pieces = Vec::new();
            for &id in queue {
                let Some((phase, _, work)) = plan.tasks.get(id.index()) else { continue };
                let mut record = encoder.encode(*phase, work);
                record.task = id.0;
                encode::counters(&image.events, &plan.program.tasks[id.index()], &mut record);
                tape += u64::from(record.tape);
                pieces.extend(plan.phases[*phase].kind().piece(plan, work));
                image.records.push(record);
            }
            image.pieces.push(pieces);
            image.record_at.push(image.records.len() as u32);
            image.tape_at.push(image.tape_at.last().copied().unwrap_or(0) + tape);
        }
        image.plain = encoder.finish();
        image.check(verified, plan)?;
        Ok(image)
    }

    /// Returns an image without records, with places for all buffers and events of a plan.
    fn places(plan: &Plan) -> Self {
        let (packet_at, mut packets) = place_packets(plan);
        let row_words = plan.rows().map_or(0, |_| packets);
        packets *= blocks(&plan.program);
        let events = event::place(&plan.program, &mut packets);
        let (constants, constant_len) = place_constants(plan);
        let mut shared = Extensions::default();
        body_sets().into_iter().for_each(|set| set.shared.place(plan, &mut shared));
        let mut image = Self {
            records: Vec::new(),
            record_at: vec![0],
            tape_at: vec![0],
            packets,
            row_words,
            plain: Plain::place(plan, &packet_at),
            pools: Pools::default(),
            packet_at,
            constants,
            constant_len,
            pieces: Vec::new(),
            events,
            vocab: plan.sizes.vocab,
            logits: plan.logits,
            token: plan.token,
            shared,
        };
        image.pools = Pools::place(&plan.groups, &image.page_sizes());
        image
    }

    /// The bytes that a page of each group has in each memory with states.
    pub(super) fn page_sizes(&self) -> Vec<Vec<u64>> {
        let of_sets = self.memories().into_iter().map(|memory| memory.pages);
        of_sets.chain([self.plain.pages.clone()]).collect()
    }

    /// The words of 8 bytes of the values of one row of a plan with rows.
    pub(super) fn row_words(plan: &Plan) -> u32 {
        place_packets(plan).1
    }

    /// The bytes that a page of each group has of the states of generic tasks.
    pub(super) fn page_bytes(plan: &Plan) -> Vec<u64> {
        Plain::place(plan, &place_packets(plan).0).pages
    }

    /// Whether weights, states and caches are placed as in another image of the function.
    pub fn places_as(&self, other: &Self) -> bool {
        (&self.tape_at, &self.pieces, &self.constants) == (&other.tape_at, &other.pieces, &other.constants)
            && self.plain.places_as(&other.plain)
            && (self.memories(), &self.pools) == (other.memories(), &other.pools)
    }

    /// The memories that the registered bodies share.
    pub(super) fn memories(&self) -> Vec<SharedMemory> {
        body_sets().into_iter().flat_map(|set| set.shared.memories(self)).collect()
    }
}

/// The number of consecutive blocks of values: with rows, one per row. With packets there are two
/// halves of them, because a step writes one and clears the other for the next step.
pub(super) fn blocks(program: &Program) -> u32 {
    let halves = if program.has_packets() { 2 } else { 1 };
    program.rows.map_or(1, |rows| rows * halves)
}

/// Returns the offsets of packet buffers, and the number of packets.
fn place_packets(plan: &Plan) -> (HashMap<BufferId, u32>, u32) {
    let mut placed = HashMap::new();
    let mut packets = 0;
    let carried = plan.carried();
    if plan.rows().is_some() {
        return place_row(plan);
    }
    for (id, buffer) in plan.program.buffers.iter().enumerate() {
        let Exchange::Packet { slots } = buffer.exchange else { continue };
        if carried.contains(&BufferId::from(id)) {
            continue;
        }
        let words = (buffer.len() as u32).div_ceil(if buffer.dtype == DType::BF16 { 2 } else { 1 });
        placed.insert(BufferId::from(id), packets);
        packets += (words * u32::from(slots)).next_multiple_of(LINE);
    }
    (placed, packets)
}

/// Returns the offsets of the values of a row, in words of 8 bytes, and the words of a row. Other
/// rows follow.
fn place_row(plan: &Plan) -> (HashMap<BufferId, u32>, u32) {
    let mut placed = HashMap::new();
    let mut words = 0;
    for (id, buffer) in plan.program.buffers.iter().enumerate() {
        let id = BufferId::from(id);
        if plan.exchanged.contains(&id) && buffer.kind == BufferKind::Activation {
            placed.insert(id, words);
            words += row_words(buffer).next_multiple_of(LINE);
        }
    }
    (placed, words)
}

/// The words of 8 bytes of one row of a buffer with rows.
fn row_words(buffer: &Buffer) -> u32 {
    let rows = u64::from(buffer.shape.first().copied().unwrap_or(1).max(1));
    (buffer.bytes() / rows).div_ceil(8) as u32
}

/// Returns the offsets of the rank-1 weights that records name, and their total elements. Weights
/// of one phase are contiguous.
fn place_constants(plan: &Plan) -> (Vec<(BufferId, u32)>, u32) {
    let mut constants: Vec<(BufferId, u32)> = Vec::new();
    let mut next = 0;
    for id in plan.phases.iter().flat_map(|phase| phase.kind().constants(plan)) {
        if constants.iter().all(|&(known, _)| known != id) {
            constants.push((id, next));
            next += plan.program.buffers.get(id.index()).map_or(0, |buffer| buffer.len() as u32);
        }
    }
    (constants, next)
}
