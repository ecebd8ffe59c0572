//! Decodes generic tasks: for each call the tiles of its operands, then its parameters.

use super::call::{DecodedCall, DecodedOperand, Place, Refusal, only};
use super::places::{Format, Places};
use super::worker::{ARGUMENT_WORDS, WorkerState};
use crate::image::abi::{
    CHUNK, FIRST_BODY, LOCAL, LOGITS, MAX_RANK, OPERAND_WORDS, PACKETS_BF16, PACKETS_F32, PACKETS_U32, PLAIN_BF16,
    PLAIN_F32, Record, STATE_F32, STREAM, TOKEN, TileWords,
};
use crate::plan::{Body, Sequence, Step, View};
use crate::tape::{Piece, WeightRows};
use amk_ir::program::{BufferKind, Param};
use amk_ir::signature::ParamKind;
use amk_ir::{Access, Bound, BufferId, DType, Interval, Region};
use std::ops::Range;

pub(super) fn decode<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let rows = rows(record, places)?;
    let number = usize::from(record.op) - FIRST_BODY as usize;
    let sequence = places.sequences.get(number);
    let sequence = sequence.ok_or_else(|| Refusal::new("op", format!("names sequence {number} of bodies")))?;
    let piece = piece(record, places, state, sequence)?;
    if record.input != state.arguments {
        let what = format!("is word {}, the next is {}", record.input, state.arguments);
        return Err(Refusal::new("input", what));
    }
    let words = Words { words: &places.image.plain.words, at: record.input };
    let mut task = Task { places, piece, words, room: 0, locals: Vec::new() };
    let mut calls: Vec<DecodedCall<'p>> =
        sequence.steps.iter().map(|step| task.call(state, step)).collect::<Result<_, _>>()?;
    task.check_locals()?;
    state.arguments = task.words.at;
    for call in &mut calls {
        (call.rows, call.wanted) = (rows.clone(), record.aux == 1);
    }
    Ok(calls)
}

/// The rows of a step that a record is for; `None` in a program without rows.
fn rows(record: &Record, places: &Places<'_>) -> Result<Option<Range<u32>>, Refusal> {
    let Some(most) = places.program.rows else {
        only(record, &["input", "shape", "tape"])?;
        return Ok(None);
    };
    only(record, &["units", "input", "shape", "row", "aux", "tape"])?;
    if record.aux > 1 {
        return Err(Refusal::new("aux", format!("is {}, expected 0 or 1", record.aux)));
    }
    let end = record.row.checked_add(u32::from(record.units)).filter(|&end| end > record.row && end <= most);
    let end = end.ok_or_else(|| {
        let what = format!("give {} rows from {} on, a step has {most}", record.units, record.row);
        Refusal::new("units, row", what)
    })?;
    Ok(Some(record.row..end))
}

/// Decodes the task's piece of its worker's tape: rows of one weight in the layout of its stream.
fn piece<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &mut WorkerState,
    sequence: &Sequence,
) -> Result<Option<&'p Piece>, Refusal> {
    let Some(stream) = sequence.stream else {
        only(record, &["units", "input", "row", "aux"])?;
        return Ok(None);
    };
    let piece = state.take(&places.image.pieces)?;
    if piece.layout != stream.layout || piece.interleaved || piece.parts.len() != 1 {
        return Err(Refusal::new("piece", "is not rows of one weight in the layout of the task's stream"));
    }
    let (block, bytes) = ((stream.block)(piece.k), piece.bytes());
    if record.shape != block || block == 0 || block > CHUNK || !block.is_multiple_of(16) {
        return Err(Refusal::new("shape", format!("has blocks of {} bytes, the stream {block}", record.shape)));
    }
    if u64::from(record.tape) != bytes || !bytes.is_multiple_of(u64::from(block)) {
        let what = format!("is {} bytes, the piece has {bytes} in blocks of {block}", record.tape);
        return Err(Refusal::new("tape", what));
    }
    Ok(Some(piece))
}

/// A task being decoded from the words of its arguments.
struct Task<'c, 'p> {
    places: &'c Places<'p>,
    piece: Option<&'p Piece>,
    words: Words<'c>,
    /// Floats laid out by the device from the start of its scratch.
    room: u64,
    /// Values passed between its calls: first float and number of elements.
    locals: Vec<(u64, u64)>,
}

impl<'p> Task<'_, 'p> {
    fn call(&mut self, state: &mut WorkerState, step: &Step) -> Result<DecodedCall<'p>, Refusal> {
        let of_another = || Refusal::new("op", "names a body of another instruction");
        let body = self.places.bodies.get(step.body).ok_or_else(of_another)?;
        let instruction = self.places.program.instructions.get(body.instruction.index());
        let instruction = instruction.filter(|known| known.path == body.signature.path).ok_or_else(of_another)?;
        let mut operands = Vec::with_capacity(instruction.operands.len());
        for (spec, view) in instruction.operands.iter().zip(&step.views) {
            let tile = self.words.tile()?;
            operands.push(match view {
                View::Local => self.local(&tile, spec.access)?,
                View::Stream => self.streamed(&tile)?,
                View::Buffer | View::Packets => self.in_buffer(state, &tile, spec.access, *view)?,
            });
        }
        let params = params(&mut self.words, body)?;
        self.words.end()?;
        Ok(DecodedCall { params, ..DecodedCall::new(&instruction.path, operands) })
    }

    fn in_buffer(
        &mut self,
        state: &mut WorkerState,
        tile: &TileWords,
        access: Access,
        view: View,
    ) -> Result<DecodedOperand, Refusal> {
        let decoded = operand(self.places, state, tile, access)?;
        let kind = tile.form & 255;
        if view == View::Packets {
            let whole = Region::full(&[tile.outermost]) == decoded.region;
            if kind != PACKETS_BF16 || !whole || !tile.outermost.is_multiple_of(8) {
                return Err(Refusal::new("tile", "does not arrive as all elements of a vector of bf16 pairs"));
            }
        } else if matches!(kind, PACKETS_F32 | PACKETS_BF16 | PACKETS_U32 | LOGITS) {
            self.room += decoded.region.len_at(0).next_multiple_of(4);
        }
        Ok(decoded)
    }

    /// Decodes a value passed between calls. Its tile holds its first float in the scratch.
    fn local(&mut self, tile: &TileWords, access: Access) -> Result<DecodedOperand, Refusal> {
        if tile.form & 255 != LOCAL {
            return Err(Refusal::new("tile", "is in memory, expected a value of the task"));
        }
        let extents = tile.hi.get(..(tile.form >> 8 & 255) as usize);
        let extents = extents.ok_or_else(|| Refusal::new("tile", "of a value of the task has another rank"))?;
        let region = region(extents, extents.first().copied(), "a value of the task", tile)?;
        if region != Region::full(extents) {
            return Err(Refusal::new("tile", "of a value of the task is not all of it"));
        }
        let (at, len) = (place(tile), region.len_at(0));
        if access.writes() {
            self.locals.push((at, len));
        }
        let number = self.locals.iter().position(|local| *local == (at, len));
        let what = || format!("reads {len} floats at {at} of the scratch, where the task has written none");
        let number = number.ok_or_else(|| Refusal::new("tile", what()))?;
        Ok(DecodedOperand { field: "tile", place: Place::Local(number), region, access, early: false })
    }

    /// Values of the task follow everything it lays out, in the order of their writes.
    fn check_locals(&self) -> Result<(), Refusal> {
        let mut end = self.room;
        for &(at, len) in &self.locals {
            if at != end {
                return Err(Refusal::new("tile", format!("has a value of the task at {at}, expected {end}")));
            }
            end += len.next_multiple_of(4);
        }
        if end > u64::from(self.places.image.plain.scratch) {
            return Err(Refusal::new("scratch", format!("has no room for {end} floats")));
        }
        Ok(())
    }

    /// Returns the rows of the weight in the task's part of the tape.
    fn streamed(&self, tile: &TileWords) -> Result<DecodedOperand, Refusal> {
        let Some(Piece { parts, k, .. }) = self.piece else {
            return Err(Refusal::new("tile", "streams, and the task takes nothing from the tape"));
        };
        let WeightRows { weight, rows } = &parts[0];
        if tile.form & 255 != STREAM || place(tile) != 0 {
            return Err(Refusal::new("tile", "is in memory, expected a weight that streams"));
        }
        let shape = self.places.shape(*weight);
        let region = region(shape, shape.first().copied(), &self.places.name(*weight), tile)?;
        let expected = [rows.clone(), 0..*k];
        let fixed = |interval: &Interval| (!interval.moves()).then_some(interval.lo.base..interval.hi.base);
        if !region.intervals().iter().map(fixed).eq(expected.into_iter().map(Some)) {
            return Err(Refusal::new("tile", format!("is {region}, the tape has the rows {rows:?}")));
        }
        Ok(DecodedOperand { field: "tile", place: Place::Buffer(*weight), region, access: Access::Read, early: true })
    }
}

/// Returns where the buffer of a tile begins.
fn place(tile: &TileWords) -> u64 {
    u64::from(tile.at_high) << 32 | u64::from(tile.at_low)
}

fn params(words: &mut Words<'_>, body: &Body) -> Result<Vec<Param>, Refusal> {
    let scalars = body.signature.params.iter().filter(|param| !matches!(param.kind, ParamKind::Tensor { .. }));
    scalars
        .map(|param| {
            let word = words.next()?;
            match param.kind {
                ParamKind::Float => Ok(Param::F32(f32::from_bits(word))),
                ParamKind::Pos if word == 0 => Ok(Param::Pos),
                ParamKind::Pos => Err(Refusal::new("arguments", "have a position that is not 0")),
                _ => Ok(Param::U32(word)),
            }
        })
        .collect()
}

/// The words of a call.
struct Words<'w> {
    words: &'w [u32],
    at: u32,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u32, Refusal> {
        let word = self.words.get(self.at as usize).copied();
        self.at += 1;
        word.ok_or_else(|| Refusal::new("arguments", "end within a call"))
    }

    fn four(&mut self) -> Result<[u32; MAX_RANK as usize], Refusal> {
        Ok([self.next()?, self.next()?, self.next()?, self.next()?])
    }

    fn tile(&mut self) -> Result<TileWords, Refusal> {
        const { assert!(MAX_RANK == 4 && OPERAND_WORDS == 16) };
        Ok(TileWords {
            at_low: self.next()?,
            at_high: self.next()?,
            form: self.next()?,
            lo: self.four()?,
            hi: self.four()?,
            stride: self.four()?,
            outermost: self.next()?,
        })
    }

    /// Skips to the first word of the next call.
    fn end(&mut self) -> Result<(), Refusal> {
        while !self.at.is_multiple_of(ARGUMENT_WORDS) {
            if self.next()? != 0 {
                return Err(Refusal::new("arguments", "have a word between calls that is not 0"));
            }
        }
        Ok(())
    }
}

fn operand(
    places: &Places<'_>,
    state: &mut WorkerState,
    tile: &TileWords,
    access: Access,
) -> Result<DecodedOperand, Refusal> {
    let id = buffer(places, tile)?;
    let shape = places.lies_as(id);
    let outermost = match tile.form & 255 {
        STATE_F32 if places.program.rows.is_some() => places.group(id).map(|group| group as u32),
        _ => shape.first().copied(),
    };
    let region = region(&shape, outermost, &places.name(id), tile)?;
    let fixed = |interval: &Interval| interval.lo.base..interval.hi.base;
    match (tile.form & 255, region.intervals()) {
        // The device has a single token, or one a row, and ignores the position in the buffer.
        (TOKEN, [own]) if fixed(own) != places.program.rows.map_or(state.row(), |_| 0..1) => {
            return Err(Refusal::new("tile", format!("is the token of {own}, expected the only one")));
        }
        (LOGITS, [rows]) => state.computed(fixed(rows)),
        _ => {}
    }
    let early = places.buffer(id).is_some_and(|buffer| buffer.kind == BufferKind::Weight);
    Ok(DecodedOperand { field: "tile", place: Place::Buffer(id), region, access, early })
}

/// Returns the buffer of a tile.
fn buffer(places: &Places<'_>, tile: &TileWords) -> Result<BufferId, Refusal> {
    let (kind, at) = (tile.form & 255, place(tile));
    let nowhere = || Refusal::new("tile", format!("begins at {at} of memory {kind}, where no buffer does"));
    let packets = |format| {
        let at = u32::try_from(at).map_err(|_| nowhere())?;
        places.begins("tile", at, format)
    };
    let plain = &places.image.plain;
    let find = |buffers: &[(BufferId, u64)], at: u64| {
        let found = buffers.iter().find(|&&(_, first)| first == at);
        found.map(|&(id, _)| id).ok_or_else(nowhere)
    };
    let id = match kind {
        PACKETS_BF16 => packets(Format::Pairs)?,
        PACKETS_F32 | PACKETS_U32 => packets(Format::Words)?,
        // The states of sequences are paged; the first page follows the other buffers.
        STATE_F32 if places.program.rows.is_some() => {
            let in_page = at.checked_sub(plain.bytes).ok_or_else(nowhere)?;
            let of_group = |id| places.group(id) == Some(tile.outermost as usize);
            let found = plain.states.iter().find(|&&(id, first)| first == in_page && of_group(id));
            found.map(|&(id, _)| id).ok_or_else(nowhere)?
        }
        PLAIN_F32 | PLAIN_BF16 | STATE_F32 => find(&plain.buffers, at)?,
        TOKEN if at == 0 => places.image.token,
        LOGITS if at == 0 => places.image.logits,
        _ => return Err(nowhere()),
    };
    let known = places.buffer(id).ok_or_else(nowhere)?;
    let state = known.kind == BufferKind::State;
    let fits = match kind {
        PACKETS_F32 | LOGITS => known.dtype == DType::F32,
        PACKETS_U32 => known.dtype == DType::U32,
        PLAIN_F32 => known.dtype == DType::F32 && !state,
        PLAIN_BF16 => known.dtype == DType::BF16 && !state,
        STATE_F32 => known.dtype == DType::F32 && state,
        _ => true,
    };
    if fits { Ok(id) } else { Err(Refusal::new("tile", format!("takes {} for memory {kind}", places.name(id)))) }
}

/// Returns the region of a tile, whose strides and outermost extent, or group, must match its
/// buffer.
fn region(shape: &[u32], outermost: Option<u32>, name: &str, tile: &TileWords) -> Result<Region, Refusal> {
    let fail = |what: &str| Err(Refusal::new("tile", format!("of {name} has {what}")));
    let rank = shape.len();
    if (tile.form >> 8 & 255) as usize != rank || rank > MAX_RANK as usize {
        return fail("another rank");
    }
    if Some(tile.outermost) != outermost {
        return fail("another outermost extent or group");
    }
    let moves = tile.form >> 16;
    let bit = |of: u32, d: usize| moves >> of >> d & 1 == 1;
    let mut intervals = Vec::with_capacity(rank);
    for d in 0..MAX_RANK as usize {
        if d >= rank {
            let bits = [0, 4, 8, 12].map(|of| bit(of, d));
            if [tile.lo[d], tile.hi[d], tile.stride[d]] != [0; 3] || bits != [false; 4] {
                return fail("bounds beyond its rank");
            }
            continue;
        }
        let behind = shape[d + 1..].iter().try_fold(1u32, |len, &extent| len.checked_mul(extent));
        if behind != Some(tile.stride[d]) {
            return fail("another stride");
        }
        let bound = |base: u32, pos: bool, behind: bool| match (pos, behind) {
            (false, false) => Ok(Bound::fixed(base)),
            (true, false) => Ok(Bound::at_pos(base)),
            (true, true) if base > 0 => Ok(Bound::behind(base)),
            (_, true) => Err(Refusal::new("tile", format!("of {name} has a bound behind no position"))),
        };
        let (lo, hi) = (bound(tile.lo[d], bit(0, d), bit(8, d))?, bound(tile.hi[d], bit(4, d), bit(12, d))?);
        intervals.push(Interval { lo, hi });
    }
    Region::new(&intervals).ok_or_else(|| Refusal::new("tile", "has too many dimensions"))
}
