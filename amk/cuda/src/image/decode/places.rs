//! Maps device memory to the buffers of the program.

use super::call::{Place, Refusal};
use crate::extensions::Extensions;
use crate::image::Image;
use crate::image::abi::Record;
use crate::plan::{Body, Plan, Sequence};
use crate::set::{RecordKind, record_kinds};
use amk::rows::PAGE;
use amk_ir::lower::lift::has_rows;
use amk_ir::rows::PageGroups;
use amk_ir::text::Shown;
use amk_ir::{Buffer, BufferId, DType, Exchange, Program};
use std::collections::HashMap;
use std::ops::Range;

/// The format in which a record's code reads packets, or with rows words of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Two bf16 elements; four in a word.
    Pairs,
    /// One element of 32 bits; two in a word.
    Words,
    /// One element of 32 bits, in two slots by the parity of the step.
    TwoSlots,
}

/// The map from device memory to the buffers of the program.
pub struct Places<'p> {
    /// The image.
    pub image: &'p Image,
    /// The verified program.
    pub program: &'p Program,
    /// Facts about the program as a whole, gathered from its calls.
    pub survey: Survey,
    /// Whether its steps are wide.
    pub is_wide: bool,
    pub(super) kinds: Vec<&'static RecordKind>,
    pub(super) bodies: &'p [Body],
    pub(super) sequences: &'p [Sequence],
    /// First packets of buffers, ascending.
    packets: Vec<(u32, BufferId)>,
    /// First elements of constants, ascending.
    constants: Vec<(u32, BufferId)>,
    /// With rows, the dimension of positions of each state.
    positions: HashMap<BufferId, usize>,
    /// With rows, the groups of the states.
    groups: Option<PageGroups>,
    /// By op, the first packet that its tasks publish.
    first: Vec<Option<u32>>,
    /// By event, the signals in a step.
    pub(super) fan_in: Vec<u32>,
}

/// Facts about a program as a whole, gathered from its calls by the kinds of records.
#[derive(Default)]
pub struct Survey {
    /// Buffers without packets, each with the buffer whose packets carry its elements.
    pub carried: HashMap<BufferId, BufferId>,
    /// Further facts, by type.
    pub notes: Extensions,
}

impl Survey {
    /// The survey of all registered kinds.
    pub(super) fn new(program: &Program) -> Self {
        let mut survey = Self::default();
        record_kinds().into_iter().for_each(|kind| (kind.survey)(program, &mut survey));
        survey
    }
}

impl<'p> Places<'p> {
    pub(super) fn new(image: &'p Image, program: &'p Program, plan: &'p Plan, survey: Survey) -> Result<Self, Refusal> {
        let mut packets: Vec<(u32, BufferId)> = image.packet_at.iter().map(|(&id, &at)| (at, id)).collect();
        packets.sort_unstable_by_key(|&(at, id)| (at, id.0));
        let mut constants: Vec<(u32, BufferId)> = image.constants.iter().map(|&(id, at)| (at, id)).collect();
        constants.sort_unstable_by_key(|&(at, id)| (at, id.0));
        let mut places = Self {
            image,
            program,
            is_wide: plan.is_wide(),
            bodies: &plan.bodies,
            sequences: &plan.sequences,
            packets,
            constants,
            survey,
            kinds: record_kinds(),
            positions: HashMap::new(),
            groups: program.rows.map(|_| PageGroups::of(program)),
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
                for operand in call.operands.iter().filter(|_| self.program.rows.is_some()) {
                    let moving = operand.region.intervals().iter().position(|interval| interval.hi.pos);
                    self.positions.extend(moving.map(|dim| (operand.buffer, dim)));
                }
                let written = call.operands.iter().filter(|operand| operand.access.writes());
                let at = written.filter_map(|operand| self.image.packet_at.get(&operand.buffer)).min().copied();
                if let (Some(at), Some(first)) = (at, task.op.and_then(|op| self.first.get_mut(op.index()))) {
                    *first = Some(first.map_or(at, |first| first.min(at)));
                }
            }
        }
    }

    /// Returns a buffer of the program.
    pub fn buffer(&self, id: BufferId) -> Option<&'p Buffer> {
        self.program.buffers.get(id.index())
    }

    /// Returns a buffer's name for messages.
    pub fn name(&self, id: BufferId) -> String {
        self.buffer(id).map_or("a buffer that does not exist".to_owned(), |buffer| format!("`{}`", Shown(&buffer.name)))
    }

    /// Returns the shape of a buffer, per row if it has rows.
    pub fn shape(&self, id: BufferId) -> &'p [u32] {
        let Some(buffer) = self.buffer(id) else { return &[] };
        match self.program.rows {
            Some(_) if has_rows(buffer.kind) => buffer.shape.get(1..).unwrap_or(&[]),
            _ => &buffer.shape,
        }
    }

    /// Returns the shape in which a buffer is stored: per row, and for a paged state the shape of
    /// its part of a page; its positions are the dimension in which its tiles move.
    pub(super) fn lies_as(&self, id: BufferId) -> Vec<u32> {
        let mut shape = self.shape(id).to_vec();
        let of_positions = self.positions.get(&id).and_then(|&dim| shape.get_mut(dim));
        of_positions.into_iter().for_each(|extent| *extent = PAGE as u32);
        shape
    }

    /// Returns the group of a state that is stored in pages of rows.
    pub(super) fn group(&self, state: BufferId) -> Option<usize> {
        self.groups.as_ref()?.group(state)
    }

    /// Returns the elements of a packet, or with rows of a word.
    pub fn per_place(&self, format: Format) -> u32 {
        let of_packet = if format == Format::Pairs { 2 } else { 1 };
        if self.program.rows.is_some() { 2 * of_packet } else { of_packet }
    }

    /// Returns the buffer that contains packet `at`, and the packet's index in it.
    fn holder(&self, field: &'static str, at: u32, format: Format) -> Result<(BufferId, u32), Refusal> {
        let after = self.packets.partition_point(|&(first, _)| first <= at);
        let nowhere = || Refusal::new(field, format!("points at packet {at}, which no buffer has"));
        let &(first, id) = after.checked_sub(1).and_then(|before| self.packets.get(before)).ok_or_else(nowhere)?;
        let buffer = self.buffer(id).ok_or_else(nowhere)?;
        let found = match (buffer.dtype, buffer.exchange) {
            (DType::BF16, Exchange::Counter) if self.program.rows.is_some() => Format::Pairs,
            (DType::F32 | DType::U32, Exchange::Counter) if self.program.rows.is_some() => Format::Words,
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

    /// Returns the buffer that contains packet `at`, the packet's first element in it, and the
    /// elements of the buffer.
    fn element(&self, field: &'static str, at: u32, format: Format) -> Result<(BufferId, u32, u64), Refusal> {
        let (id, packet) = self.holder(field, at, format)?;
        let elements = self.shape(id).iter().map(|&extent| u64::from(extent)).product();
        Ok((id, packet.saturating_mul(self.per_place(format)), elements))
    }

    /// Returns the buffer of packet `at` and the range of `len` elements from there.
    ///
    /// # Errors
    /// If there is none; names the field.
    pub fn elements(
        &self,
        field: &'static str,
        at: u32,
        len: u32,
        format: Format,
    ) -> Result<(Place, Range<u32>), Refusal> {
        let (id, first, elements) = self.element(field, at, format)?;
        if u64::from(first) + u64::from(len) > elements || self.shape(id).len() != 1 {
            let what = format!("points at {}[{first}], from where {len} elements do not fit", self.name(id));
            return Err(Refusal::new(field, what));
        }
        Ok((Place::Buffer(id), first..first + len))
    }

    /// Returns the number of elements of a buffer from packet `at` on.
    ///
    /// # Errors
    /// If there are none; names the field.
    pub fn room(&self, field: &'static str, at: u32, format: Format) -> Result<u32, Refusal> {
        let (id, first, elements) = self.element(field, at, format)?;
        match elements.saturating_sub(u64::from(first)) {
            0 => Err(Refusal::new(field, format!("points behind {}", self.name(id)))),
            room => Ok(u32::try_from(room).unwrap_or(u32::MAX)),
        }
    }

    /// Returns the buffer that begins at packet `at`.
    ///
    /// # Errors
    /// If there is none; names the field.
    pub fn begins(&self, field: &'static str, at: u32, format: Format) -> Result<BufferId, Refusal> {
        match self.holder(field, at, format)? {
            (id, 0) => Ok(id),
            (id, packet) => Err(Refusal::new(field, format!("points at packet {packet} of {}", self.name(id)))),
        }
    }

    /// Returns the buffer of a given shape that begins at packet `at`.
    ///
    /// # Errors
    /// If there is none; names the field.
    pub fn whole(&self, field: &'static str, at: u32, shape: &[u32], format: Format) -> Result<BufferId, Refusal> {
        let id = self.begins(field, at, format)?;
        if self.shape(id) != shape {
            let what = format!("points at {}{:?}, expected a buffer {shape:?}", self.name(id), self.shape(id));
            return Err(Refusal::new(field, what));
        }
        Ok(id)
    }

    /// Returns the rows of a wide step that a record's `layer` names; `None`: all. They begin at a
    /// multiple of 8, as pieces of lines change places by row.
    ///
    /// # Errors
    /// If the step has no such rows.
    pub fn block_rows(&self, record: &Record) -> Result<Option<Range<u32>>, Refusal> {
        let (first, end) = (record.layer & 0xffff, record.layer >> 16);
        if record.layer == 0 {
            return Ok(None);
        }
        let most = self.program.rows.unwrap_or(0);
        if self.is_wide && first < end && end <= most && first.is_multiple_of(8) {
            return Ok(Some(first..end));
        }
        Err(Refusal::new("layer", format!("names the rows {first}..{end} of steps of {most}")))
    }

    /// Returns the constant of element `at` and the range of `len` elements from there.
    ///
    /// # Errors
    /// If there is none; names the field.
    pub fn constant(&self, field: &'static str, at: u32, len: u32) -> Result<(Place, Range<u32>), Refusal> {
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

    /// Returns the first packet published by the tasks of the same op as a task.
    pub fn first(&self, task: u32) -> Option<u32> {
        let op = self.program.tasks.get(task as usize)?.op?;
        self.first.get(op.index()).copied().flatten()
    }
}
