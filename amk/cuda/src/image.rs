//! The image: what the device reads of a program. Layouts mirror `vm/image.cuh` field by field.

mod event;
mod tile;

pub use event::{Event, Events};
pub use tile::Plain;

use super::choose::{Choosing, ROUNDS};
use super::error::CudaError;
use super::plan::{Gemv, Input, Output, Phase, Plan, UNIT, Work};
use super::source::{DeviceOp, FIRST_BODY, cut, input_shape};
use super::tape;
use amk_ir::verify::Verified;
use amk_ir::{BufferId, DType, Exchange};
use std::collections::HashMap;
use std::ops::Range;

/// One task of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    op: u16,
    units: u16,
    input: u32,
    output: u32,
    shape: u32,
    row: u32,
    norm: u32,
    bias: u32,
    task: u32,
    layer: u32,
    aux: u32,
    partial: u32,
    tape: u32,
    signal: u32,
    wait: u32,
    arrivals: u32,
    reserved: u32,
}

/// A projection's part of a tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The phase.
    pub(super) phase: usize,
    /// Units of the phase's rows.
    pub(super) units: Range<u32>,
}

/// What the device reads of a program.
#[derive(Clone, Debug)]
pub struct Image {
    /// The records, worker by worker.
    pub records: Vec<Record>,
    /// First record of each worker, and their number.
    pub record_at: Vec<u32>,
    /// First byte of each worker's tape, and the bytes of all.
    pub tape_at: Vec<u64>,
    /// Packets of all buffers.
    pub packets: u32,
    /// Packet offsets by buffer.
    pub(super) packet_at: HashMap<BufferId, u32>,
    /// Constants in order: buffer and offset in elements.
    pub(super) constants: Vec<(BufferId, u32)>,
    /// Elements of the constants.
    pub(super) constant_len: u32,
    /// The pieces of each worker's tape.
    pub(super) pieces: Vec<Vec<Piece>>,
    /// Generic tasks.
    pub plain: Plain,
    /// What tasks wait for besides packets.
    pub events: Events,
}

/// Of a projection's flags.
const BIAS: u32 = 2;
/// Packets at whose multiples buffers begin: a line of the L2.
const ALIGN: u32 = 16;

impl Image {
    /// Encodes a verified program, decodes the image again and compares.
    ///
    /// # Errors
    /// [`CudaError::Image`] where the decoded image is not the program.
    pub fn build(verified: &Verified, plan: &Plan) -> Result<Self, CudaError> {
        if verified.program() != &plan.program {
            return Err(CudaError::Image { task: 0, what: "the plan is not that of the verified program" });
        }
        let mut image = Self::empty(plan.schedule.workers as usize);
        image.place_packets(plan);
        image.events = Events::place(plan, &mut image.packets);
        let constants = image.place_constants(plan);
        image.plain = Plain::place(plan, &image.packet_at);
        let amk_ir::Queues::Static(queues) = &plan.program.queues else {
            return Err(CudaError::Image { task: 0, what: "the queues are not static" });
        };
        for (worker, queue) in queues.iter().enumerate() {
            let mut tape = 0u64;
            let mut before = 0;
            for &id in queue {
                let Some((phase, _, work)) = plan.tasks.get(id.index()) else { continue };
                let mut record = match tile::call_of(plan, *phase, work) {
                    Some((body, call)) => generic(body, image.plain.encode(plan, call)),
                    None => image.encode(plan, &constants, *phase, work),
                };
                record.task = id.0;
                image.events.encode(plan, *phase, &mut before, &mut record);
                tape += u64::from(record.tape);
                if let Some(Phase::Gemv(gemv)) = plan.phases.get(*phase)
                    && let Work::Rows(rows) = work
                {
                    image.pieces[worker].push(Piece { phase: *phase, units: units(gemv, rows) });
                }
                image.records.push(record);
            }
            image.record_at.push(image.records.len() as u32);
            image.tape_at.push(image.tape_at.last().copied().unwrap_or(0) + tape);
        }
        if !plan.layers.is_empty() && !plan.fills_the_ring() {
            return Err(CudaError::Image { task: 0, what: "a worker's tape for a step is shorter than the ring" });
        }
        image.check(plan, &constants, queues)?;
        image.check_events(plan)?;
        Ok(image)
    }

    fn empty(workers: usize) -> Self {
        Self {
            records: Vec::new(),
            record_at: vec![0],
            tape_at: vec![0],
            packets: 0,
            packet_at: HashMap::new(),
            constants: Vec::new(),
            constant_len: 0,
            pieces: vec![Vec::new(); workers],
            plain: Plain::default(),
            events: Events::default(),
        }
    }

    /// Whether weights, states and caches are where another image of the same phases has them.
    pub(super) fn places_as(&self, other: &Self) -> bool {
        (&self.tape_at, &self.pieces, &self.constants, &self.plain.buffers)
            == (&other.tape_at, &other.pieces, &other.constants, &other.plain.buffers)
    }

    fn place_packets(&mut self, plan: &Plan) {
        for (id, buffer) in plan.program.buffers.iter().enumerate() {
            let Exchange::Packet { slots } = buffer.exchange else { continue };
            if plan.travels(BufferId::from(id)) {
                continue;
            }
            let words = buffer.len() as u32 / if buffer.dtype == DType::BF16 { 2 } else { 1 };
            self.packet_at.insert(BufferId::from(id), self.packets);
            self.packets += (words * u32::from(slots)).next_multiple_of(ALIGN);
        }
    }

    /// Offsets of norms and biases; the biases of one projection follow one another.
    fn place_constants(&mut self, plan: &Plan) -> HashMap<BufferId, u32> {
        let mut placed = HashMap::new();
        let of_gemvs = plan.projections().flat_map(|gemv| gemv.norm.iter().chain(gemv.biases.iter().flatten()));
        let heads = plan.layers.iter().flat_map(|layer| layer.head_norms.iter().flatten());
        for &id in of_gemvs.chain(heads) {
            placed.entry(id).or_insert_with(|| {
                let at = self.constant_len;
                self.constants.push((id, at));
                self.constant_len += plan.extent(id);
                at
            });
        }
        placed
    }

    fn packet(&self, buffer: BufferId) -> u32 {
        self.packet_at.get(&buffer).copied().unwrap_or(u32::MAX)
    }

    fn encode(&self, plan: &Plan, constants: &HashMap<BufferId, u32>, phase: usize, work: &Work) -> Record {
        let constant = |id: Option<BufferId>| id.and_then(|id| constants.get(&id)).copied().unwrap_or(0);
        match (&plan.phases[phase], work) {
            (Phase::Embed { .. }, Work::Rows(rows)) => of_rows(DeviceOp::Embed, rows),
            (&Phase::Adopt { from, number, .. }, Work::Rows(rows)) => {
                // 1: pairs; the device has no need of the number, decoding has.
                let pairs = plan.program.buffers.get(from.index()).is_some_and(|from| from.dtype == DType::BF16);
                let (input, shape, layer) = (self.packet(from), u32::from(pairs), number);
                Record { input, shape, layer, ..of_rows(DeviceOp::Adopt, rows) }
            }
            (Phase::Gemv(gemv), Work::Rows(rows)) => {
                self.encode_gemv(gemv, rows, constant(gemv.norm), constant(gemv.biases[0]))
            }
            (&Phase::Attend { layer }, &Work::Split { head, split }) => {
                let buffers = &plan.layers[layer];
                Record {
                    op: DeviceOp::Attend as u16,
                    units: 1,
                    input: self.packet(buffers.qkv[0]),
                    output: self.packet(buffers.attended),
                    row: head,
                    norm: constant(buffers.head_norms.map(|norms| norms[0])),
                    bias: constant(buffers.head_norms.map(|norms| norms[1])),
                    layer: layer as u32,
                    aux: split,
                    partial: self.packet(buffers.partial),
                    ..Record::default()
                }
            }
            (&Phase::Combine { layer }, Work::Rows(slices)) => {
                let buffers = &plan.layers[layer];
                Record {
                    op: DeviceOp::Combine as u16,
                    units: (slices.end - slices.start) as u16,
                    output: self.packet(buffers.attended),
                    row: slices.start,
                    layer: layer as u32,
                    partial: self.packet(buffers.partial),
                    ..Record::default()
                }
            }
            (Phase::Best, Work::Rows(rows)) => Record {
                output: self.packet(plan.choosing.best),
                partial: self.packet(plan.choosing.shares),
                ..of_rows(DeviceOp::Best, rows)
            },
            (&Phase::Probe { round }, Work::Rows(rows)) => {
                let Choosing { best, shares, found, .. } = &plan.choosing;
                let (input, partial) = match round.checked_sub(1) {
                    None => (self.packet(*best), self.packet(*shares)),
                    Some(before) => (self.packet(found[before]), 0),
                };
                let (output, layer) = (self.packet(found[round]), round as u32);
                Record { input, output, partial, layer, ..of_rows(DeviceOp::Probe, rows) }
            }
            _ => Record {
                op: DeviceOp::Choose as u16,
                input: self.packet(plan.choosing.best),
                partial: self.packet(plan.choosing.found[ROUNDS - 1]),
                ..Record::default()
            },
        }
    }

    fn encode_gemv(&self, gemv: &Gemv, rows: &Range<u32>, norm: u32, bias: u32) -> Record {
        let units = units(gemv, rows);
        let (kind, to) = match &gemv.output {
            Output::Store(outputs) => (0, outputs.first().copied()),
            Output::Residual { packets, .. } => (1, Some(*packets)),
            Output::Gated(to) => (2, Some(*to)),
            Output::Logits(_) => (3, None),
        };
        let (input, from) = match gemv.input {
            Input::Packets(buffer) => (self.packet(buffer), 0),
            Input::Embedding => (0, 1),
        };
        let has_bias = gemv.biases.iter().all(Option::is_some);
        let flags = if has_bias { BIAS } else { 0 };
        Record {
            op: DeviceOp::Gemv as u16,
            units: (units.end - units.start) as u16,
            input,
            output: to.map_or(0, |to| self.packet(to) + rows.start / 2),
            row: rows.start,
            norm,
            bias: if has_bias { bias + rows.start } else { 0 },
            tape: tape::packed_bytes(gemv.k, units.end - units.start),
            shape: input_shape(gemv) | from << 20 | kind << 22 | cut(gemv.k).0 << 24 | flags << 28,
            ..Record::default()
        }
    }

    /// Decodes every record and compares the task it means with that of the program.
    fn check(
        &self,
        plan: &Plan,
        constants: &HashMap<BufferId, u32>,
        queues: &[Vec<amk_ir::TaskId>],
    ) -> Result<(), CudaError> {
        let mut scratch = plan.clone();
        let fused = |phase: &usize| !matches!(plan.phases[*phase], Phase::Generic(_));
        let starts: HashMap<Record, usize> =
            (0..plan.phases.len()).filter(fused).map(|phase| (self.key(plan, constants, phase), phase)).collect();
        for (worker, queue) in queues.iter().enumerate() {
            let records = &self.records[self.record_at[worker] as usize..self.record_at[worker + 1] as usize];
            if records.len() != queue.len() {
                return Err(CudaError::Image { task: 0, what: "a worker has another number of tasks" });
            }
            for (record, &id) in records.iter().zip(queue) {
                let fail = |what| CudaError::Image { task: id.0, what };
                let task = plan.program.tasks.get(id.index()).ok_or_else(|| fail("the task does not exist"))?;
                if let Some(body) = record.op.checked_sub(FIRST_BODY) {
                    let body = plan.bodies.get(usize::from(body)).ok_or_else(|| fail("there is no such body"))?;
                    let call =
                        self.plain.decode(plan, body, record.input).ok_or_else(|| fail("a tile is of no buffer"))?;
                    if record.task != id.0 || task.calls != [call] {
                        return Err(fail("the decoded record is another task"));
                    }
                    continue;
                }
                let (key, work) = record.decode();
                let &phase = starts.get(&key).ok_or_else(|| fail("the record belongs to no phase"))?;
                let decoded = scratch.calls(phase, worker as u32, &work);
                if record.task != id.0 || !plan.same_calls(&scratch, &decoded, &task.calls) {
                    return Err(fail("the decoded record is another task"));
                }
                scratch.program.buffers.truncate(plan.program.buffers.len());
            }
        }
        Ok(())
    }

    /// What all records of a phase have in common: that of a task that starts at row 0.
    fn key(&self, plan: &Plan, constants: &HashMap<BufferId, u32>, phase: usize) -> Record {
        let work = match plan.phases[phase] {
            Phase::Attend { .. } => Work::Split { head: 0, split: 0 },
            Phase::Choose => Work::Own,
            _ => Work::Rows(0..0),
        };
        self.encode(plan, constants, phase, &work).decode().0
    }
}

impl Record {
    /// The packet offset of the counter that it signals, of that it waits for, and the arrivals there a step; 0: none. At a barrier it
    /// passes all from the first to the second.
    pub fn counters(&self) -> (u32, u32, u32) {
        (self.signal, self.wait, self.arrivals)
    }

    /// The record without what differs between the tasks of a phase, and that: the part of the phase.
    fn decode(mut self) -> (Self, Work) {
        let (row, units) = (self.row, u32::from(self.units));
        let work = match self.op {
            op if op == DeviceOp::Attend as u16 => Work::Split { head: row, split: self.aux },
            op if op == DeviceOp::Choose as u16 => Work::Own,
            op if op == DeviceOp::Best as u16 || op == DeviceOp::Probe as u16 => Work::Rows(row..row + units * UNIT),
            op if op == DeviceOp::Combine as u16 => Work::Rows(row..row + units),
            op if op == DeviceOp::Embed as u16 || op == DeviceOp::Adopt as u16 => Work::Rows(row..row + units * UNIT),
            _ => {
                let (kind, flags) = (self.shape >> 22 & 3, self.shape >> 28);
                self.output -= if kind == 3 { 0 } else { row / 2 };
                self.bias -= if flags & BIAS == 0 { 0 } else { row };
                Work::Rows(row..row + units * UNIT / if kind == 2 { 2 } else { 1 })
            }
        };
        (self.units, self.row, self.aux, self.tape, self.task) = (0, 0, 0, 0, 0);
        (self.signal, self.wait, self.arrivals) = (0, 0, 0);
        (self, work)
    }
}

impl std::hash::Hash for Record {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.op, self.input, self.output, self.norm, self.layer, self.shape, self.partial).hash(state);
    }
}

/// The record of a generic task whose tiles begin at word `at`.
fn generic(body: usize, at: u32) -> Record {
    Record { op: FIRST_BODY + body as u16, input: at, ..Record::default() }
}

/// A record that says which rows a task has.
fn of_rows(op: DeviceOp, rows: &Range<u32>) -> Record {
    Record { op: op as u16, units: ((rows.end - rows.start) / UNIT) as u16, row: rows.start, ..Record::default() }
}

/// The units of the device's rows behind the elements `rows` of a phase's output.
fn units(gemv: &Gemv, rows: &Range<u32>) -> Range<u32> {
    let fold = if matches!(gemv.output, Output::Gated(_)) { 2 } else { 1 };
    rows.start * fold / UNIT..rows.end * fold / UNIT
}
