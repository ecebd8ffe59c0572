//! Which program buffer lies where on the device.

use super::call::{Place, Refusal};
use crate::image::{Fixed, Image};
use crate::plan::{Body, Plan, Sequence};
use amk_ir::text::Shown;
use amk_ir::{Buffer, BufferId, Call, DType, Exchange, Program};
use std::collections::HashMap;
use std::ops::Range;

/// The instructions of which the program says what an attention leaves to the image.
const COMBINE: &str = "amk_kernels::combine_splits";
const ATTEND: [&str; 2] = ["amk_kernels::attention_split", "amk_kernels::normed_attention_split"];

/// How a record's code reads packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Two bf16 elements.
    Pairs,
    /// One element of 32 bits.
    Words,
    /// Likewise, in two slots by the parity of the step.
    TwoSlots,
}

/// Which program buffer lies where.
pub(super) struct Places<'p> {
    pub(super) image: &'p Image,
    pub(super) program: &'p Program,
    pub(super) bodies: &'p [Body],
    pub(super) sequences: &'p [Sequence],
    /// First packets of buffers, ascending.
    packets: Vec<(u32, BufferId)>,
    /// First elements of constants, ascending.
    constants: Vec<(u32, BufferId)>,
    /// By the buffer of split results: what they are combined into.
    combined: HashMap<BufferId, BufferId>,
    /// By the buffer of split results: their log-sum-exps, which travel in its packets.
    lse: HashMap<BufferId, BufferId>,
    /// By the buffer of split results: the keys of the attention.
    keys: HashMap<BufferId, BufferId>,
    /// By op: the first packet that its tasks publish.
    first: Vec<Option<u32>>,
    /// By event: signals in a step.
    pub(super) fan_in: Vec<u32>,
}

/// The log-sum-exps of each buffer of split results: they have no packets of their own, but travel
/// in those of the results, one for two dims.
pub(super) fn travelling(program: &Program) -> HashMap<BufferId, BufferId> {
    let path = |call: &Call| program.instructions.get(call.instruction.index()).map_or("", |known| &known.path);
    let attentions = program.tasks.iter().flat_map(|task| &task.calls).filter(|call| ATTEND.contains(&path(call)));
    let pairs = attentions.filter_map(|call| match &call.operands[..] {
        [.., partial, lse] => Some((partial.buffer, lse.buffer)),
        _ => None,
    });
    pairs.collect()
}

impl<'p> Places<'p> {
    pub(super) fn new(image: &'p Image, program: &'p Program, plan: &'p Plan) -> Result<Self, Refusal> {
        let mut packets: Vec<(u32, BufferId)> = image.packet_at.iter().map(|(&id, &at)| (at, id)).collect();
        packets.sort_unstable_by_key(|&(at, id)| (at, id.0));
        let mut constants: Vec<(u32, BufferId)> = image.constants.iter().map(|&(id, at)| (at, id)).collect();
        constants.sort_unstable_by_key(|&(at, id)| (at, id.0));
        let mut places = Self {
            image,
            program,
            bodies: &plan.bodies,
            sequences: &plan.sequences,
            packets,
            constants,
            combined: HashMap::new(),
            lse: travelling(program),
            keys: HashMap::new(),
            first: vec![None; program.ops.len()],
            fan_in: vec![0; program.events.len()],
        };
        places.read_program();
        Ok(places)
    }

    fn read_program(&mut self) {
        for task in &self.program.tasks {
            for signal in &task.signals {
                if let Some(count) = self.fan_in.get_mut(signal.event.index()) {
                    *count += 1;
                }
            }
            for call in &task.calls {
                let path = self.program.instructions.get(call.instruction.index()).map_or("", |known| &known.path);
                match (&call.operands[..], ATTEND.contains(&path)) {
                    ([partial, _, attended], _) if path == COMBINE => {
                        self.combined.insert(partial.buffer, attended.buffer);
                    }
                    ([.., keys, _, partial, _], true) => {
                        self.keys.insert(partial.buffer, keys.buffer);
                    }
                    _ => {}
                }
                let written = call.operands.iter().filter(|operand| operand.access.writes());
                let at = written.filter_map(|operand| self.image.packet_at.get(&operand.buffer)).min().copied();
                if let (Some(at), Some(first)) = (at, task.op.and_then(|op| self.first.get_mut(op.index()))) {
                    *first = Some(first.map_or(at, |first| first.min(at)));
                }
            }
        }
    }

    pub(super) fn fixed(&self) -> &'p Fixed {
        &self.image.fixed
    }

    pub(super) fn buffer(&self, id: BufferId) -> Option<&'p Buffer> {
        self.program.buffers.get(id.index())
    }

    pub(super) fn name(&self, id: BufferId) -> String {
        self.buffer(id).map_or("a buffer that does not exist".to_owned(), |buffer| format!("`{}`", Shown(&buffer.name)))
    }

    pub(super) fn shape(&self, id: BufferId) -> &'p [u32] {
        self.buffer(id).map_or(&[], |buffer| &buffer.shape)
    }

    /// The buffer that holds packet `at`, of which the field points at one, and the packet's
    /// place in it.
    fn holder(&self, field: &'static str, at: u32, format: Format) -> Result<(BufferId, u32), Refusal> {
        let after = self.packets.partition_point(|&(first, _)| first <= at);
        let nowhere = || Refusal::new(field, format!("points at packet {at}, which no buffer has"));
        let &(first, id) = after.checked_sub(1).and_then(|before| self.packets.get(before)).ok_or_else(nowhere)?;
        let buffer = self.buffer(id).ok_or_else(nowhere)?;
        let found = match (buffer.dtype, buffer.exchange) {
            (DType::BF16, Exchange::Packet { slots: 1 }) => Format::Pairs,
            (_, Exchange::Packet { slots: 1 }) => Format::Words,
            (DType::U32 | DType::F32, Exchange::Packet { slots: 2 }) => Format::TwoSlots,
            _ => return Err(nowhere()),
        };
        if found != format {
            return Err(Refusal::new(field, format!("points at {}, whose packets have another format", self.name(id))));
        }
        Ok((id, at - first))
    }

    /// The buffer and its elements behind `len` elements from packet `at` on.
    pub(super) fn elements(
        &self,
        field: &'static str,
        at: u32,
        len: u32,
        format: Format,
    ) -> Result<(Place, Range<u32>), Refusal> {
        let (id, packet) = self.holder(field, at, format)?;
        let first = packet * if format == Format::Pairs { 2 } else { 1 };
        let elements = self.buffer(id).map_or(0, Buffer::len);
        if u64::from(first) + u64::from(len) > elements || self.shape(id).len() != 1 {
            let what = format!("points at {}[{first}], from where {len} elements do not fit", self.name(id));
            return Err(Refusal::new(field, what));
        }
        Ok((Place::Buffer(id), first..first + len))
    }

    /// The buffer that begins at packet `at`.
    pub(super) fn begins(&self, field: &'static str, at: u32, format: Format) -> Result<BufferId, Refusal> {
        match self.holder(field, at, format)? {
            (id, 0) => Ok(id),
            (id, packet) => Err(Refusal::new(field, format!("points at packet {packet} of {}", self.name(id)))),
        }
    }

    /// The buffer of a shape that begins at packet `at`.
    pub(super) fn whole(
        &self,
        field: &'static str,
        at: u32,
        shape: &[u32],
        format: Format,
    ) -> Result<BufferId, Refusal> {
        let id = self.begins(field, at, format)?;
        if self.shape(id) != shape {
            let what = format!("points at {}{:?}, expected a buffer {shape:?}", self.name(id), self.shape(id));
            return Err(Refusal::new(field, what));
        }
        Ok(id)
    }

    /// The constant and its elements behind `len` elements from element `at` on.
    pub(super) fn constant(&self, field: &'static str, at: u32, len: u32) -> Result<(Place, Range<u32>), Refusal> {
        let after = self.constants.partition_point(|&(first, _)| first <= at);
        let nowhere = || Refusal::new(field, format!("points at constant {at}, which no buffer has"));
        let &(start, id) = after.checked_sub(1).and_then(|before| self.constants.get(before)).ok_or_else(nowhere)?;
        let first = at - start;
        if u64::from(first) + u64::from(len) > self.buffer(id).map_or(0, Buffer::len) {
            let what = format!("points at {}[{first}], from where {len} elements do not fit", self.name(id));
            return Err(Refusal::new(field, what));
        }
        Ok((Place::Buffer(id), first..first + len))
    }

    /// What the program combines split results into.
    pub(super) fn combined(&self, partial: BufferId) -> Option<BufferId> {
        self.combined.get(&partial).copied()
    }

    /// The log-sum-exps of split results.
    pub(super) fn lse(&self, partial: BufferId) -> Result<BufferId, Refusal> {
        let none =
            || Refusal::new("partial", format!("points at {}, whose log-sum-exps no task writes", self.name(partial)));
        self.lse.get(&partial).copied().ok_or_else(none)
    }

    /// The layer of the attention that gives split results, in the order of the caches.
    pub(super) fn layer(&self, partial: BufferId) -> Option<u32> {
        let keys = self.keys.get(&partial)?;
        self.fixed().caches.iter().position(|[known, _]| known == keys).map(|layer| layer as u32)
    }

    /// The first packet that the tasks of the same op as a task publish.
    pub(super) fn first(&self, task: u32) -> Option<u32> {
        let op = self.program.tasks.get(task as usize)?.op?;
        self.first.get(op.index()).copied().flatten()
    }
}
