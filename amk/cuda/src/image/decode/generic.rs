//! Generic tasks: the tiles of a call's operands, then its parameters.

use super::call::{DecodedCall, DecodedOperand, Place, Refusal, only};
use super::places::{Format, Places};
use super::worker::WorkerState;
use crate::image::abi::{
    FIRST_BODY, LOGITS, MAX_RANK, OPERAND_WORDS, PACKETS_BF16, PACKETS_F32, PACKETS_U32, PLAIN_BF16, PLAIN_F32, Record,
    STATE_F32, TOKEN, TileWords,
};
use crate::plan::Body;
use amk_ir::program::{BufferKind, Param};
use amk_ir::signature::ParamKind;
use amk_ir::{Access, Bound, BufferId, DType, Interval, Region};

/// Words at whose multiples calls begin: the device reads four at a time.
const ALIGN: u32 = 4;

pub(super) fn decode<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["input"])?;
    let number = usize::from(record.op) - FIRST_BODY as usize;
    let body = places.bodies.get(number).ok_or_else(|| Refusal::new("op", format!("names body {number}")))?;
    let instruction = places.program.instructions.get(body.instruction.index());
    let instruction = instruction.filter(|known| known.path == body.signature.path);
    let instruction = instruction.ok_or_else(|| Refusal::new("op", "names a body of another instruction"))?;
    if record.input != state.arguments {
        let what = format!("is word {}, the next is {}", record.input, state.arguments);
        return Err(Refusal::new("input", what));
    }
    let mut words = Words { words: &places.image.plain.words, at: record.input };
    let mut operands = Vec::with_capacity(instruction.operands.len());
    let mut scratch = 0;
    for spec in &instruction.operands {
        let tile = words.tile()?;
        let decoded = operand(places, state, &tile, spec.access)?;
        if matches!(tile.form & 255, PACKETS_F32 | PACKETS_BF16 | PACKETS_U32 | LOGITS) {
            scratch += u64::from((decoded.region.len_at(0) as u32).next_multiple_of(4));
        }
        operands.push(decoded);
    }
    if scratch > u64::from(places.image.plain.scratch) {
        return Err(Refusal::new("scratch", format!("has no room for {scratch} floats")));
    }
    let params = params(&mut words, body)?;
    state.arguments = words.end()?;
    Ok(vec![DecodedCall { path: &instruction.path, operands, params }])
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

    /// The first word of the next call.
    fn end(mut self) -> Result<u32, Refusal> {
        while !self.at.is_multiple_of(ALIGN) {
            if self.next()? != 0 {
                return Err(Refusal::new("arguments", "have a word between calls that is not 0"));
            }
        }
        Ok(self.at)
    }
}

fn operand(
    places: &Places<'_>,
    state: &mut WorkerState,
    tile: &TileWords,
    access: Access,
) -> Result<DecodedOperand, Refusal> {
    let id = buffer(places, tile)?;
    let region = region(places, id, tile)?;
    let fixed = |interval: &Interval| interval.lo.base..interval.hi.base;
    match (tile.form & 255, region.intervals()) {
        // The device has one token and does not look where in the buffer it is.
        (TOKEN, [own]) if fixed(own) != state.row() => {
            return Err(Refusal::new("tile", format!("is the token of {own}, expected the worker's own")));
        }
        (LOGITS, [rows]) => state.computed(fixed(rows)),
        _ => {}
    }
    let early = places.buffer(id).is_some_and(|buffer| buffer.kind == BufferKind::Weight);
    Ok(DecodedOperand { field: "tile", place: Place::Buffer(id), region, access, early })
}

/// The buffer that a tile is of.
fn buffer(places: &Places<'_>, tile: &TileWords) -> Result<BufferId, Refusal> {
    let (kind, at) = (tile.form & 255, u64::from(tile.at_high) << 32 | u64::from(tile.at_low));
    let nowhere = || Refusal::new("tile", format!("begins at {at} of memory {kind}, where no buffer does"));
    let packets = |format| {
        let at = u32::try_from(at).map_err(|_| nowhere())?;
        places.begins("tile", at, format)
    };
    let plain = || places.image.plain.buffers.iter().find(|&&(_, first)| first == at).map(|&(id, _)| id);
    let id = match kind {
        PACKETS_BF16 => packets(Format::Pairs)?,
        PACKETS_F32 | PACKETS_U32 => packets(Format::Words)?,
        PLAIN_F32 | PLAIN_BF16 | STATE_F32 => plain().ok_or_else(nowhere)?,
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

/// The region of a tile, whose strides and extent must be those of its buffer.
fn region(places: &Places<'_>, id: BufferId, tile: &TileWords) -> Result<Region, Refusal> {
    let shape = places.shape(id);
    let fail = |what: &str| Err(Refusal::new("tile", format!("of {} has {what}", places.name(id))));
    let rank = shape.len();
    if (tile.form >> 8 & 255) as usize != rank || rank > MAX_RANK as usize {
        return fail("another rank");
    }
    if Some(&tile.outermost) != shape.first() {
        return fail("another outermost extent");
    }
    let moves = tile.form >> 16;
    let bit = |of: u32, d: usize| moves >> of >> d & 1 == 1;
    let mut intervals = Vec::with_capacity(rank);
    for d in 0..MAX_RANK as usize {
        if d >= rank {
            if [tile.lo[d], tile.hi[d], tile.stride[d]] != [0; 3] || bit(0, d) || bit(4, d) {
                return fail("bounds beyond its rank");
            }
            continue;
        }
        if tile.stride[d] != shape[d + 1..].iter().product::<u32>() {
            return fail("another stride");
        }
        let (lo, hi) = (Bound { base: tile.lo[d], pos: bit(0, d) }, Bound { base: tile.hi[d], pos: bit(4, d) });
        intervals.push(Interval { lo, hi });
    }
    if moves >> 8 != 0 {
        return fail("bits that mean nothing");
    }
    Region::new(&intervals).ok_or_else(|| Refusal::new("tile", "has too many dimensions"))
}
