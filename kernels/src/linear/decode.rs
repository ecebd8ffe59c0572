//! Decodes the records of projections.

use crate::abi::{
    BLOCK_ROWS, GEMV_BIAS, GEMV_DEPTH_BIT, GEMV_FLAGS_BIT, GEMV_FUNCTION_BIT, GEMV_INPUT_BIT, GEMV_NORM,
    GEMV_OUTPUT_BIT, GEMV_TILE_BIT, GEMV_TILES, HELD_IN_SHARED, IN_EMBEDDING, IN_PACKETS, IN_SHARE, IN_SUM, MOST_DEPTH,
    OUT_GATED, OUT_LOGITS, OUT_RESIDUAL, OUT_STORE, TILE_K,
};
use crate::fused::Shared;
use crate::linear::blocks::{blocks, check_held};
use crate::linear::decode_columns::{Sums, decode_share};
use crate::linear::phase::Gemv as Phase;
use crate::linear::source;
use crate::linear::split_k::MOST_HELPERS;
use crate::linear::tile::TileKind;
use crate::residual::lookup;
use crate::rms_norm::LastSum;
use amk::ir::{BufferId, Param};
use amk_cuda::image::Record;
use amk_cuda::image::abi::{GROUP_UNITS, UNIT, WARPS};
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, WorkerState, early, for_rows, only, read, region,
    write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use amk_cuda::tape::{Piece, WeightRows};
use std::ops::Range;
use std::slice::from_ref;

/// Records of projections.
pub(crate) const GEMV: RecordKind = RecordKind {
    dispatch: of_rows,
    feed: projection_feed,
    projects: true,
    reads_all: source::reads_all,
    awaits: Plan::is_wide, // its weights do not wait
    ..RecordKind::new("GEMV", decode)
};

/// Records of the helpers of split units.
pub(crate) const ADDENDS: RecordKind = RecordKind {
    feed: |plan| source::splits(plan).then(|| "addends_feed(l, r, feed)".to_owned()),
    projects: true,
    ..RecordKind::new("ADDENDS", decode_addends)
};

/// With rows, the record of a projection is like any other.
fn of_rows(plan: &Plan) -> Option<String> {
    plan.rows().map(|_| "project(w, r)".to_owned())
}

fn projection_feed(plan: &Plan) -> Option<String> {
    let of = plan.phases_of::<Phase>().next().filter(|_| !plan.is_wide());
    of.map(|_| "gemv_feed(r, feed)".to_owned())
}

/// The decoded shape of a record.
pub(super) struct Shape {
    pub(super) k: u32,
    /// Number of the kind of tiles.
    pub(super) tiles: usize,
    /// The kind; none that the image does not have.
    pub(super) kind: Option<&'static TileKind>,
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) norm: bool,
    pub(super) bias: bool,
    /// Number of the element-wise function. 0 means none.
    pub(super) function: u32,
}

impl Shape {
    fn new(record: &Record, places: &Places<'_>) -> Result<Self, Refusal> {
        let mut shape = Self::of(record.shape);
        shape.kind = Shared::of(places.image).tiles.get(shape.tiles).copied();
        let (depth, output) = (record.shape >> GEMV_DEPTH_BIT & 15, shape.output);
        let fail = |what: String| Err(Refusal::new("shape", what));
        if shape.k == 0 {
            return fail("has an input of 0 elements".to_owned());
        }
        if depth != shape.cut().0 {
            return fail(format!("has {depth} tiles a pass, the device {}", shape.cut().0));
        }
        if shape.bias && ![OUT_STORE, OUT_RESIDUAL].contains(&output) {
            return fail("has a bias, which only stored and added results get".to_owned());
        }
        if shape.function == 0 && output == OUT_GATED {
            return fail(format!("has function {} of the output {output}", shape.function));
        }
        Ok(shape)
    }

    fn of(word: u32) -> Self {
        let flags = word >> GEMV_FLAGS_BIT;
        Self {
            k: (word & GEMV_TILES) * TILE_K,
            tiles: (word >> GEMV_TILE_BIT & 31) as usize,
            kind: None,
            input: word >> GEMV_INPUT_BIT & 3,
            output: word >> GEMV_OUTPUT_BIT & 3,
            norm: flags & GEMV_NORM != 0,
            bias: flags & GEMV_BIAS != 0,
            function: flags >> GEMV_FUNCTION_BIT,
        }
    }

    /// The shape of a record that only delivers: its output and flags, and the input length if its
    /// norm is deferred.
    pub(super) fn of_delivery(record: &Record) -> Result<Self, Refusal> {
        let (word, shape) = (record.shape, Self::of(record.shape));
        let len = if record.more != 0 && shape.output != OUT_RESIDUAL { GEMV_TILES } else { 0 };
        let delivery =
            len | (3 << GEMV_OUTPUT_BIT) | (GEMV_BIAS << GEMV_FLAGS_BIT) | (!0 << (GEMV_FLAGS_BIT + GEMV_FUNCTION_BIT));
        if word & !delivery != 0 || ![OUT_STORE, OUT_RESIDUAL].contains(&shape.output) {
            return Err(Refusal::new("shape", "is of more than a delivery of stored or added results"));
        }
        Ok(shape)
    }

    /// The tiles of a warp in a pass, and the passes over the columns.
    fn cut(&self) -> (u32, u32) {
        let (tiles, most) = (self.k / TILE_K, MOST_DEPTH * WARPS);
        let passes = tiles.div_ceil(most);
        let is_half_full = passes > 1 && 2 * (tiles - (passes - 1) * most) >= most;
        let even = tiles.div_ceil(WARPS).div_ceil(passes);
        (if is_half_full && self.kind.is_some_and(|kind| kind.deep) { MOST_DEPTH } else { even }, passes)
    }

    fn passes(&self) -> u32 {
        self.cut().1
    }

    /// The first column of a pass.
    fn column(&self, pass: u32) -> u32 {
        (pass * self.cut().0 * WARPS * TILE_K).min(self.k)
    }

    /// Whether its code processes the columns pass by pass, so that it may omit some.
    fn splits(&self) -> bool {
        let (depth, passes) = self.cut();
        passes > 1 && !self.norm && depth * passes > source::MOST_HELD
    }
}

fn decode<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(
        record,
        &["units", "input", "output", "shape", "row", "norm", "bias", "layer", "aux", "partial", "tape", "more"],
    )?;
    match (record.units, record.shape) {
        (0, 0) if places.is_wide => return pass_by(record, places, state),
        (0, _) | (_, 0) => return Err(Refusal::new("units, shape", "are of no product, or only one of them is")),
        _ => {}
    }
    let shape = Shape::new(record, places)?;
    if shape.input == IN_SHARE {
        return decode_share(record, &shape, places, state);
    }
    if places.program.rows.is_some() && record.layer != 0 {
        return decode_block(record, shape, places, state);
    }
    if record.aux != 0 {
        return Err(Refusal::new("layer, aux", "name pieces, and the record is for all rows"));
    }
    let piece = state.take(&places.image.pieces)?.clone();
    check_taken(record, &piece)?;
    check_piece(record, &shape, &piece, places)?;
    let split = Split::of(record, &shape, &piece, places)?;
    products(record, shape, places, state, piece, split)
}

/// Decodes a product for some rows of a step, whose weights are on the tapes of several workers.
fn decode_block<'p>(
    record: &Record,
    shape: Shape,
    places: &Places<'p>,
    state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let rows = places.block_rows(record)?;
    let several = blocks(places.program.rows) > 1;
    let fits = several && rows.as_ref().is_some_and(|rows| rows.len() <= BLOCK_ROWS as usize);
    if !fits || shape.output == OUT_LOGITS {
        return Err(Refusal::new("layer, shape", "are not of one of several blocks of rows, or of its logits"));
    }
    let piece = named(record, places, state)?;
    check_piece(record, &shape, &piece, places)?;
    Ok(for_rows(products(record, shape, places, state, piece, None)?, rows.as_ref()))
}

/// Takes the piece of the worker's own tape, if it has one there, and returns the piece that the
/// record names: its units of pieces that are consecutive on the tapes of several workers.
pub(super) fn named(record: &Record, places: &Places<'_>, state: &mut WorkerState) -> Result<Piece, Refusal> {
    if record.tape != 0 {
        check_taken(record, state.take(&places.image.pieces)?)?;
    }
    let (pieces, before) = (record.aux & 0xffff, (record.aux >> 16) * UNIT);
    let end = before + u32::from(record.units) * UNIT;
    let words = state.arguments(&places.image.plain.words, record.partial, pieces * 2)?;
    let mut joined: Option<Piece> = None;
    for &[at, of] in words.as_chunks().0 {
        let piece = piece_at(places, of & 0xffff, u64::from(at) * 16)?;
        if piece.rows().div_ceil(UNIT) != of >> 16 {
            return Err(Refusal::new("aux, partial", "name a piece of other units"));
        }
        joined = Some(match joined {
            Some(joined) if joined.rows() < end => join(joined, piece)?,
            None if before < piece.rows() => piece.clone(),
            _ => return Err(Refusal::new("units, aux, partial", "name a piece that has none of the units")),
        });
    }
    let piece = joined.ok_or_else(|| Refusal::new("aux", "is 0, and the record needs pieces"))?;
    let piece = cut_out(piece, before, end - before);
    if piece.rows().div_ceil(UNIT) != u32::from(record.units) {
        let what = format!("are of {} units, and the pieces have {} rows of them", record.units, piece.rows());
        return Err(Refusal::new("units, aux, partial", what));
    }
    Ok(piece)
}

/// Joins the rows of two pieces; the first must have whole units.
fn join(mut before: Piece, piece: &Piece) -> Result<Piece, Refusal> {
    let alike = (before.k, before.interleaved, before.layout) == (piece.k, piece.interleaved, piece.layout);
    if !alike || !before.rows().is_multiple_of(UNIT) || (before.interleaved && before.parts.len() != piece.parts.len())
    {
        return Err(Refusal::new("aux, partial", "name pieces that are not alike"));
    }
    for (number, part) in piece.parts.iter().enumerate() {
        let last = if before.interleaved { before.parts.get_mut(number) } else { before.parts.last_mut() };
        match last {
            Some(last) if last.weight == part.weight && last.rows.end == part.rows.start => {
                last.rows.end = part.rows.end;
            }
            _ if before.interleaved => return Err(Refusal::new("aux, partial", "name pieces that are not neighbours")),
            _ => before.parts.push(part.clone()),
        }
    }
    Ok(before)
}

/// Decodes a record of a worker that has no block, and only skips its piece of the tape.
fn pass_by<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["tape"])?;
    check_taken(record, state.take(&places.image.pieces)?)?;
    Ok(Vec::new())
}

/// The rows of a piece after the first `before`: `len` of them, or as many as there are.
fn cut_out(mut piece: Piece, before: u32, len: u32) -> Piece {
    let woven = if piece.interleaved { piece.parts.len().max(1) as u32 } else { 1 };
    let (mut before, mut len) = (before / woven, len / woven);
    for part in &mut piece.parts {
        let rows = &mut part.rows;
        let skipped = before.min(rows.end - rows.start);
        rows.start += skipped;
        rows.end = rows.end.min(rows.start.saturating_add(len));
        if !piece.interleaved {
            (before, len) = (before - skipped, len - (rows.end - rows.start));
        }
    }
    piece.parts.retain(|part| !part.rows.is_empty());
    piece
}

/// Decodes the product of a piece.
fn products<'p>(
    record: &Record,
    shape: Shape,
    places: &Places<'p>,
    state: &mut WorkerState,
    piece: Piece,
    split: Option<Split>,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let part = |part: WeightRows| Part { weight: Some(part.weight), rows: part.rows };
    let parts = piece.parts.into_iter().map(part).collect();
    let mut gemv = Gemv { split, ..Gemv::new(record, places, shape, parts) };
    gemv.x = Some(gemv.input(state)?);
    gemv.deferred()?;
    gemv.deliver()?;
    if gemv.shape.output == OUT_LOGITS {
        state.computed(record.row..record.row + gemv.rows());
    }
    Ok(gemv.calls)
}

/// Checks the bytes of a worker's tape that a record takes.
fn check_taken(record: &Record, piece: &Piece) -> Result<(), Refusal> {
    if u64::from(record.tape) == piece.bytes() {
        return Ok(());
    }
    Err(Refusal::new("tape", format!("is {} bytes, the piece has {}", record.tape, piece.bytes())))
}

/// Checks that consumers and loader take the same piece: the number of units and the row length.
pub(super) fn check_piece(record: &Record, shape: &Shape, piece: &Piece, places: &Places<'_>) -> Result<(), Refusal> {
    let units = u32::from(record.units);
    if units != piece.rows().div_ceil(UNIT) {
        return Err(Refusal::new("units", format!("is {units}, the tape has {} rows", piece.rows())));
    }
    check_padding(shape, piece, places)?;
    if piece.k != shape.k {
        let what = format!("has an input of {} elements, the rows of the tape have {}", shape.k, piece.k);
        return Err(Refusal::new("shape", what));
    }
    if shape.kind.is_none_or(|kind| piece.layout != kind.layout) {
        let what = format!("has tiles number {}, the piece {:?}", shape.tiles, piece.layout.encoding);
        return Err(Refusal::new("shape", what));
    }
    let interleaved = shape.output == OUT_GATED;
    if piece.interleaved != interleaved {
        return Err(Refusal::new("piece", "weaves rows of several weights where the record does not, or does not"));
    }
    Ok(())
}

/// A last unit may lack rows if nothing is stored after their results: with a single weight, for
/// all of its last rows, and without a bias.
fn check_padding(shape: &Shape, piece: &Piece, places: &Places<'_>) -> Result<(), Refusal> {
    let last = |part: &WeightRows| places.shape(part.weight).first() == Some(&part.rows.end);
    let alone = matches!(&piece.parts[..], [part] if last(part));
    let pads = alone && !shape.bias && [OUT_STORE, OUT_LOGITS].contains(&shape.output);
    if pads || piece.rows().is_multiple_of(UNIT) {
        return Ok(());
    }
    Err(Refusal::new("piece", format!("has {} rows, which are no whole units", piece.rows())))
}

/// The split of the last unit of a record, as its owner's code and loader read it.
#[derive(Clone)]
struct Split {
    /// Columns of the kept passes.
    columns: u32,
    /// Where the addends are, and each helper's.
    place: Place,
    addends: Vec<Range<u32>>,
}

impl Split {
    fn of(record: &Record, shape: &Shape, piece: &Piece, places: &Places<'_>) -> Result<Option<Self>, Refusal> {
        if record.layer == 0 {
            return Ok(None);
        }
        let (kept, helpers) = (record.layer & 255, record.layer >> 8);
        let fail = |what: String| Err(Refusal::new("layer", what));
        let whole = piece.rows().is_multiple_of(UNIT) && u32::from(record.units) <= GROUP_UNITS;
        if !shape.splits() || places.program.rows.is_some() || !whole {
            return fail("splits a unit of a product whose columns cannot be".to_owned());
        }
        if ![OUT_STORE, OUT_RESIDUAL].contains(&shape.output) || shape.input != IN_PACKETS || piece.parts.len() != 1 {
            return fail("splits a unit of a product that is not delivered by itself".to_owned());
        }
        if !(1..shape.passes()).contains(&kept) || !(1..=MOST_HELPERS).contains(&helpers) {
            return fail(format!("keeps {kept} of {} passes, with {helpers} helpers", shape.passes()));
        }
        let (place, elements) = places.elements("layer, partial", record.partial, helpers * UNIT, Format::Words)?;
        let of_helper = |helper: u32| elements.start + helper * UNIT..elements.start + (helper + 1) * UNIT;
        Ok(Some(Self { columns: shape.column(kept), place, addends: (0..helpers).map(of_helper).collect() }))
    }
}

/// Decodes what a helper multiplies: passes over the columns of the last unit of a piece of another
/// worker's tape.
fn decode_addends<'p>(
    record: &Record,
    places: &Places<'p>,
    _state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "layer", "aux"])?;
    let shape = Shape::new(record, places)?;
    let fail = |field: &'static str, what: &str| Err(Refusal::new(field, what));
    let plain = shape.input == IN_PACKETS && shape.output == OUT_STORE && !shape.bias && shape.function == 0;
    if !plain || !shape.splits() || places.program.rows.is_some() {
        return fail("shape", "belongs to a product whose columns cannot be split");
    }
    let (first, end, owner) = (record.layer & 255, record.layer >> 8 & 255, record.layer >> 16);
    if first >= end || end > shape.passes() {
        return fail("layer", "has other passes than the product");
    }
    let piece = piece_at(places, owner, u64::from(record.aux) * 16)?;
    let units = u32::from(record.units);
    let whole = piece.rows() == units * UNIT && (1..=GROUP_UNITS).contains(&units) && !piece.interleaved;
    let ([part], true) = (&piece.parts[..], whole) else {
        return fail("units, layer, aux", "name a piece that is not one group of whole units of one weight");
    };
    if piece.k != shape.k || shape.kind.is_none_or(|kind| piece.layout != kind.layout) {
        return fail("shape, layer, aux", "is not the shape of the owner's piece");
    }
    let columns = shape.column(first)..shape.column(end);
    let (x, _) = places.elements("input", record.input, shape.k, Format::Pairs)?;
    places.begins("input", record.input, Format::Pairs)?;
    let (to, elements) = places.elements("output", record.output, UNIT, Format::Words)?;
    let rows = part.rows.end - UNIT..part.rows.end;
    let operands = vec![
        read("input", x, from_ref(&columns)),
        early("aux", Place::Buffer(part.weight), &[rows, columns.clone()]),
        write("output", to, &[elements]),
    ];
    Ok(vec![DecodedCall::new("amk_kernels::linear", operands)])
}

/// Returns the piece of a worker's tape that begins at a byte.
fn piece_at<'p>(places: &Places<'p>, worker: u32, byte: u64) -> Result<&'p Piece, Refusal> {
    let nothing = || Refusal::new("layer, aux", format!("names byte {byte} of worker {worker}'s tape, no piece of it"));
    let mut at = 0;
    for piece in places.image.pieces.get(worker as usize).ok_or_else(nothing)? {
        if at == byte {
            return Ok(piece);
        }
        at += piece.bytes();
    }
    Err(nothing())
}

/// Rows of a projection.
#[derive(Clone)]
pub(super) struct Part {
    /// Their weight; `None`: the sums of their products are already available.
    pub(super) weight: Option<BufferId>,
    /// The rows: of the weight, or of all.
    pub(super) rows: Range<u32>,
}

impl Part {
    fn len(&self) -> u32 {
        self.rows.end - self.rows.start
    }
}

pub(super) struct Gemv<'c, 'p> {
    record: &'c Record,
    places: &'c Places<'p>,
    shape: Shape,
    parts: Vec<Part>,
    /// The input.
    x: Option<DecodedOperand>,
    split: Option<Split>,
    /// The sums of squares of a deferred norm: all of those of its input, or the one of its output.
    squares: Option<(Place, Range<u32>)>,
    /// The sums of each share of its columns.
    pub(super) sums: Option<Sums>,
    pub(super) calls: Vec<DecodedCall<'p>>,
    locals: usize,
}

impl<'c, 'p> Gemv<'c, 'p> {
    pub(super) fn new(record: &'c Record, places: &'c Places<'p>, shape: Shape, parts: Vec<Part>) -> Self {
        Self {
            record,
            places,
            shape,
            parts,
            x: None,
            split: None,
            squares: None,
            sums: None,
            calls: Vec::new(),
            locals: 0,
        }
    }

    fn rows(&self) -> u32 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Decodes the output of the record.
    pub(super) fn deliver(&mut self) -> Result<(), Refusal> {
        match self.shape.output {
            OUT_STORE if self.shape.function != 0 => self.mapped(),
            OUT_STORE => self.store(),
            OUT_RESIDUAL => self.residual(),
            OUT_GATED => self.gated(),
            OUT_LOGITS => self.logits(),
            output => Err(Refusal::new("shape", format!("has the output {output}"))),
        }
    }

    pub(super) fn local(&mut self) -> Place {
        self.locals += 1;
        Place::Local(self.locals - 1)
    }

    pub(super) fn call(&mut self, path: &'p str, operands: Vec<DecodedOperand>) {
        self.calls.push(DecodedCall::new(path, operands));
    }

    /// Decodes the input as the products read it.
    fn input(&mut self, state: &mut WorkerState) -> Result<DecodedOperand, Refusal> {
        let k = self.shape.k;
        let mut x = match self.shape.input {
            IN_PACKETS => {
                let (place, elements) = self.places.elements("input", self.record.input, k, Format::Pairs)?;
                read("input", place, &[elements])
            }
            IN_EMBEDDING if self.record.input == 0 => {
                let unscaled = Shared::of(self.places.image).embedding_scale.map(|_| self.local());
                let to = self.local();
                self.calls.extend(lookup(self.places, state, 0..k, unscaled, write("shape", to, &[0..k]))?);
                read("shape", to, &[0..k])
            }
            IN_EMBEDDING => return Err(Refusal::new("input", "is not 0, and the input is the embedding")),
            IN_SUM => self.sum(state)?,
            input => return Err(Refusal::new("shape", format!("has the input {input}"))),
        };
        if self.shape.norm {
            x = self.normed(x, "norm", self.record.norm)?;
        } else if self.record.norm != 0 && self.record.more == 0 {
            return Err(Refusal::new("norm, more", "name the weight of a norm, and there is none"));
        }
        let sum = self.shape.input == IN_SUM;
        if !self.shape.bias && !sum && self.record.bias != 0 {
            return Err(Refusal::new("bias", "is not 0, and there is no bias"));
        }
        let block = self.places.program.rows.is_some() && self.record.layer != 0;
        if !sum && self.split.is_none() && !block && self.record.partial != 0 {
            return Err(Refusal::new("layer, partial", "name addends, and no unit is split"));
        }
        Ok(x)
    }

    /// Decodes the place of the sums of squares of a deferred norm.
    pub(super) fn deferred(&mut self) -> Result<(), Refusal> {
        let Record { more, norm, .. } = *self.record;
        if more == 0 {
            return Ok(());
        }
        if !self.places.is_wide || self.places.program.rows > Some(HELD_IN_SHARED) {
            let what = format!("is of a deferred norm, which wide steps of up to {HELD_IN_SHARED} rows have");
            return Err(Refusal::new("more", what));
        }
        if self.shape.norm || self.shape.input != IN_PACKETS {
            return Err(Refusal::new("more, shape", "are of a deferred norm, and the input is not of plain packets"));
        }
        let (first, count) = if self.shape.output == OUT_RESIDUAL { (more % 2, 1) } else { (0, norm) };
        let (place, elements) = self.places.elements("norm, more", more / 2, first + count, Format::Words)?;
        self.squares = Some((place, elements.start + first..elements.end));
        if self.shape.output == OUT_RESIDUAL {
            return Ok(());
        }
        let whole = self.places.begins("more", more / 2, Format::Words)?;
        if more % 2 != 0 || self.places.shape(whole) != [norm] || self.shape.k == 0 {
            return Err(Refusal::new("norm, more, shape", "are not of all sums of squares of a vector"));
        }
        Ok(())
    }

    /// Decodes the norm of a vector. The field `field` gives the place of its weight.
    fn normed(&mut self, x: DecodedOperand, field: &'static str, weight: u32) -> Result<DecodedOperand, Refusal> {
        let k = self.shape.k;
        let (weight, elements) = self.places.constant(field, weight, k)?;
        let to = self.local();
        let operands = vec![x, early(field, weight, &[elements]), write("shape", to, &[0..k])];
        let params = vec![Param::F32(Shared::of(self.places.image).eps)];
        self.calls.push(DecodedCall { params, ..DecodedCall::new("amk_kernels::rms_norm", operands) });
        Ok(read("shape", to, &[0..k]))
    }

    /// Decodes the sum of the residual and of the norm of a vector. Its code multiplies only norms,
    /// of one row, and has the norm's weight where others have a bias.
    fn sum(&mut self, state: &mut WorkerState) -> Result<DecodedOperand, Refusal> {
        if !self.shape.norm || self.shape.bias || self.places.program.rows.is_some() {
            return Err(Refusal::new("shape", "has a sum as the input, with rows, with a bias, or without a norm"));
        }
        let k = self.shape.k;
        *state.own.entry() = Some(LastSum { vector: self.record.input, len: k });
        let [vector, residual] = [("input", self.record.input), ("partial", self.record.partial)].map(|(field, at)| {
            let (place, elements) = self.places.elements(field, at, k, Format::Pairs)?;
            Ok(read(field, place, &[elements]))
        });
        let normed = self.normed(vector?, "bias", self.record.bias)?;
        let x = self.local();
        self.call("amk_kernels::add", vec![residual?, normed, write("shape", x, &[0..k])]);
        Ok(read("shape", x, &[0..k]))
    }

    /// Decodes rows of a product.
    fn linear(&mut self, part: &Part, to: DecodedOperand) {
        let Some((place, squares)) = self.squares.clone().filter(|_| self.shape.output != OUT_RESIDUAL) else {
            return self.unscaled(part, to);
        };
        let (y, len) = (self.local(), part.len());
        self.unscaled(part, write("piece", y, &[0..len]));
        let operands = vec![read("piece", y, &[0..len]), read("more", place, &[squares]), to];
        let params = vec![Param::U32(self.shape.k), Param::F32(Shared::of(self.places.image).eps)];
        self.calls.push(DecodedCall { params, ..DecodedCall::new("amk_kernels::scale_by_squares", operands) });
    }

    /// Decodes rows of a product as it is: the sum over its shares, or for a split unit the columns
    /// of the kept passes, to which the helpers' addends are added.
    fn unscaled(&mut self, Part { weight, rows }: &Part, to: DecodedOperand) {
        let (Some(weight), Some(x)) = (weight.map(Place::Buffer), self.x.clone()) else {
            return self.add_up(rows, to);
        };
        let Some(split) = self.split.clone() else {
            let weight = early("piece", weight, &[rows.clone(), 0..self.shape.k]);
            return self.call("amk_kernels::linear", vec![x, weight, to]);
        };
        let first = to.region.intervals().first().map_or(0, |interval| interval.lo.base);
        let (last, end) = (rows.end - UNIT, first + rows.end - rows.start);
        if rows.start < last {
            let to = write(to.field, to.place, &[first..end - UNIT]);
            let weight = early("piece", weight, &[rows.start..last, 0..self.shape.k]);
            self.call("amk_kernels::linear", vec![x.clone(), weight, to]);
        }
        let mut y = self.local();
        let columns = 0..split.columns;
        let from = x.region.intervals().first().map_or(0, |interval| interval.lo.base);
        let x = DecodedOperand { region: region(&[from..from + split.columns]), ..x.clone() };
        let weight = early("layer", weight, &[last..rows.end, columns]);
        self.call("amk_kernels::linear", vec![x, weight, write("layer", y, &[0..UNIT])]);
        for (number, elements) in split.addends.iter().enumerate() {
            let more = number + 1 < split.addends.len();
            let sum = if more { self.local() } else { to.place };
            let into = if more { 0..UNIT } else { end - UNIT..end };
            let addend = read("partial", split.place, from_ref(elements));
            let operands = vec![read("layer", y, &[0..UNIT]), addend, write(to.field, sum, &[into])];
            self.call("amk_kernels::add", operands);
            y = sum;
        }
    }

    /// Decodes the `len` output elements that start at `before` in the task.
    fn published(&self, before: u32, len: u32) -> Result<DecodedOperand, Refusal> {
        let at = self.record.output.saturating_add(before / self.places.per_place(Format::Pairs));
        // If `aux` selects the pieces of tapes that the rows come from, these may be wrong.
        let field = if self.record.aux == 0 { "output" } else { "output, aux" };
        let (place, elements) = self.places.elements(field, at, len, Format::Pairs)?;
        Ok(write(field, place, &[elements]))
    }

    /// Checks the row of the output, which only traces and messages use.
    fn check_row(&self) -> Result<(), Refusal> {
        let first = self.places.first(self.record.task);
        let each = self.places.per_place(Format::Pairs);
        let row =
            first.and_then(|first| self.record.output.checked_sub(first)).and_then(|place| place.checked_mul(each));
        if row == Some(self.record.row) {
            return Ok(());
        }
        let what = format!("are not of one row: {} and {row:?}", self.record.row);
        Err(Refusal::new("row, output", what))
    }

    /// Decodes one result per weight, with its bias.
    fn store(&mut self) -> Result<(), Refusal> {
        self.check_row()?;
        let mut before = 0;
        for part in &self.parts.clone() {
            let len = part.len();
            let to = self.published(before, len)?;
            if self.shape.bias {
                let (bias, elements) = self.places.constant("bias", self.record.bias + before, len)?;
                let y = self.local();
                self.linear(part, write("piece", y, &[0..len]));
                let operands = vec![read("piece", y, &[0..len]), early("bias", bias, &[elements]), to];
                self.call("amk_kernels::add_bias", operands);
            } else {
                self.linear(part, to);
            }
            before += len;
        }
        Ok(())
    }

    fn only_part(&self) -> Result<Part, Refusal> {
        match &self.parts[..] {
            [part] => Ok(part.clone()),
            parts => Err(Refusal::new("piece", format!("has {} parts, expected one", parts.len()))),
        }
    }

    /// Decodes a product with its bias.
    fn product(&mut self, part: &Part, len: u32) -> Result<Place, Refusal> {
        let y = self.local();
        self.linear(part, write("piece", y, &[0..len]));
        if !self.shape.bias {
            return Ok(y);
        }
        let (bias, elements) = self.places.constant("bias", self.record.bias, len)?;
        let biased = self.local();
        let to = write("piece", biased, &[0..len]);
        self.call("amk_kernels::add_bias", vec![read("piece", y, &[0..len]), early("bias", bias, &[elements]), to]);
        Ok(biased)
    }

    /// Decodes the sum with the worker's residual, which is also published.
    fn residual(&mut self) -> Result<(), Refusal> {
        self.check_row()?;
        let (part, len, row) = (self.only_part()?, self.rows(), self.record.row);
        check_held(self.record, self.places, len)?;
        let mut y = self.product(&part, len)?;
        if self.shape.function != 0 {
            let mapped = self.local();
            self.function(vec![read("piece", y, &[0..len]), write("piece", mapped, &[0..len])])?;
            y = mapped;
        }
        let end = row.checked_add(len).ok_or_else(|| Refusal::new("row", format!("is {row}, with {len} rows")))?;
        let held = row..end;
        let published = self.published(0, len)?;
        let squares = self.squares.clone();
        let sum = squares.as_ref().map_or(published.clone(), |_| write("more", self.local(), &[0..len]));
        for to in [write("row", Place::Kept("residual"), from_ref(&held)), sum.clone()] {
            let operands = vec![read("row", Place::Kept("residual"), from_ref(&held)), read("piece", y, &[0..len]), to];
            self.call("amk_kernels::add", operands);
        }
        let Some((place, part)) = squares else { return Ok(()) };
        let (weight, elements) = self.places.constant("norm", self.record.norm, len)?;
        let x = read("more", sum.place, &[0..len]);
        self.call("amk_kernels::weigh", vec![x.clone(), early("norm", weight, &[elements]), published]);
        self.call("amk_kernels::sum_squares", vec![x, write("more", place, &[part])]);
        Ok(())
    }

    /// Decodes gate and up, whose rows alternate.
    fn gated(&mut self) -> Result<(), Refusal> {
        self.check_row()?;
        let [gate, up] = &self.parts.clone()[..] else {
            return Err(Refusal::new("piece", format!("has {} parts, expected two", self.parts.len())));
        };
        let len = self.rows() / 2;
        let mut operands = Vec::new();
        for part in [gate, up] {
            let y = self.local();
            self.linear(part, write("piece", y, &[0..len]));
            operands.push(read("piece", y, &[0..len]));
        }
        operands.push(self.published(0, len)?);
        self.function(operands)
    }

    /// Decodes a function of each element of one product, with its bias.
    fn mapped(&mut self) -> Result<(), Refusal> {
        self.check_row()?;
        let (part, len) = (self.only_part()?, self.rows());
        let y = self.product(&part, len)?;
        let operands = vec![read("piece", y, &[0..len]), self.published(0, len)?];
        self.function(operands)
    }

    /// Decodes the call of the function that the record names.
    fn function(&mut self, operands: Vec<DecodedOperand>) -> Result<(), Refusal> {
        let functions = &Shared::of(self.places.image).functions;
        let number = self.shape.function as usize;
        let function = number.checked_sub(1).and_then(|at| functions.get(at));
        let function = function.ok_or_else(|| Refusal::new("shape", format!("has function {number}")))?;
        let params = function.params.clone();
        self.calls.push(DecodedCall { params, ..DecodedCall::new(&function.path, operands) });
        Ok(())
    }

    fn logits(&mut self) -> Result<(), Refusal> {
        if self.record.output != 0 {
            return Err(Refusal::new("output", "is not 0, and the output is the logits"));
        }
        let (part, row) = (self.only_part()?, self.record.row);
        let end = row.checked_add(self.rows()).ok_or_else(|| Refusal::new("row", "is out of range"))?;
        let to = write("row", Place::Buffer(self.places.image.logits), &[row..end]);
        if self.shape.function == 0 {
            self.linear(&part, to);
        } else {
            let (y, len) = (self.local(), self.rows());
            self.linear(&part, write("piece", y, &[0..len]));
            self.function(vec![read("piece", y, &[0..len]), to])?;
        }
        self.calls.iter_mut().last().into_iter().for_each(|call| call.wanted = true);
        Ok(())
    }
}
