//! Decodes the records of projections.

use crate::abi::{
    GEMV_BIAS, GEMV_DEPTH_BIT, GEMV_FLAGS_BIT, GEMV_FUNCTION_BIT, GEMV_INPUT_BIT, GEMV_NORM, GEMV_OUTPUT_BIT,
    GEMV_TILE_BIT, GEMV_TILES, IN_EMBEDDING, IN_PACKETS, IN_SUM, MOST_DEPTH, OUT_GATED, OUT_LOGITS, OUT_RESIDUAL,
    OUT_STORE, TILE_K, most_own_rows,
};
use crate::fused::Shared;
use crate::linear::phase::Gemv as Phase;
use crate::linear::source;
use crate::residual::lookup;
use crate::rms_norm::LastSum;
use amk::ir::Param;
use amk_cuda::image::Record;
use amk_cuda::image::abi::{UNIT, WARPS};
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, WorkerState, early, only, read, write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use amk_cuda::tape::{Piece, WeightRows};
use std::slice::from_ref;

/// Records of projections.
pub(crate) const GEMV: RecordKind = RecordKind {
    dispatch: of_rows,
    feed: projection_feed,
    projects: true,
    reads_all: source::adds_up,
    awaits: Plan::is_wide, // its weights do not wait
    ..RecordKind::new("GEMV", decode)
};

/// With rows, a projection is a record as any other.
fn of_rows(plan: &Plan) -> Option<String> {
    plan.rows().map(|_| "project(w, r)".to_owned())
}

fn projection_feed(plan: &Plan) -> Option<String> {
    let of = plan.phases_of::<Phase>().next().filter(|_| !plan.is_wide());
    of.map(|_| "gemv_feed(r, feed)".to_owned())
}

/// The decoded shape of a record.
struct Shape {
    k: u32,
    /// Number of the kind of tiles.
    tiles: usize,
    input: u32,
    output: u32,
    norm: bool,
    bias: bool,
    /// Number of the element-wise function. 0 means none.
    function: u32,
}

impl Shape {
    fn new(record: &Record) -> Result<Self, Refusal> {
        let word = record.shape;
        let (k, flags) = ((word & GEMV_TILES) * TILE_K, word >> GEMV_FLAGS_BIT);
        let depth = word >> GEMV_DEPTH_BIT & 15;
        let fail = |what: String| Err(Refusal::new("shape", what));
        if k == 0 {
            return fail("has an input of 0 elements".to_owned());
        }
        // Tiles per warp and pass, computed as in the device's loader.
        let deep = (k / TILE_K).div_ceil(WARPS);
        let passes = deep.div_ceil(MOST_DEPTH);
        if depth != deep.div_ceil(passes) {
            return fail(format!("has {depth} tiles a pass, the device {}", deep.div_ceil(passes)));
        }
        let (input, output) = (word >> GEMV_INPUT_BIT & 3, word >> GEMV_OUTPUT_BIT & 3);
        let shape = Self {
            k,
            tiles: (word >> GEMV_TILE_BIT & 31) as usize,
            input,
            output,
            norm: flags & GEMV_NORM != 0,
            bias: flags & GEMV_BIAS != 0,
            function: flags >> GEMV_FUNCTION_BIT,
        };
        if shape.bias && ![OUT_STORE, OUT_RESIDUAL].contains(&output) {
            return fail("has a bias, which only stored and added results get".to_owned());
        }
        if shape.function == 0 && output == OUT_GATED {
            return fail(format!("has function {} of the output {output}", shape.function));
        }
        Ok(shape)
    }
}

fn decode<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "input", "output", "shape", "row", "norm", "bias", "partial", "tape"])?;
    let shape = Shape::new(record)?;
    let piece = state.take(&places.image.pieces)?;
    check_piece(record, &shape, piece, places)?;
    let mut gemv = Gemv { record, places, shape, piece, calls: Vec::new(), locals: 0 };
    let x = gemv.input(state)?;
    match gemv.shape.output {
        OUT_STORE if gemv.shape.function != 0 => gemv.mapped(&x)?,
        OUT_STORE => gemv.store(&x)?,
        OUT_RESIDUAL => gemv.residual(&x)?,
        OUT_GATED => gemv.gated(&x)?,
        OUT_LOGITS => {
            gemv.logits(&x)?;
            state.computed(record.row..record.row + piece.rows());
        }
        output => return Err(Refusal::new("shape", format!("has the output {output}"))),
    }
    Ok(gemv.calls)
}

/// Checks that consumers and loader take the same piece: the number of units and the row length.
fn check_piece(record: &Record, shape: &Shape, piece: &Piece, places: &Places<'_>) -> Result<(), Refusal> {
    let tiles = &Shared::of(places.image).tiles;
    let units = u32::from(record.units);
    if units == 0 || units != piece.rows().div_ceil(UNIT) {
        return Err(Refusal::new("units", format!("is {units}, the tape has {} rows", piece.rows())));
    }
    check_padding(shape, piece, places)?;
    if piece.k != shape.k {
        let what = format!("has an input of {} elements, the rows of the tape have {}", shape.k, piece.k);
        return Err(Refusal::new("shape", what));
    }
    if u64::from(record.tape) != piece.bytes() {
        return Err(Refusal::new("tape", format!("is {} bytes, the piece has {}", record.tape, piece.bytes())));
    }
    if tiles.get(shape.tiles).is_none_or(|kind| piece.layout != kind.layout) {
        let what = format!("has tiles number {}, the piece {:?}", shape.tiles, piece.layout.encoding);
        return Err(Refusal::new("shape", what));
    }
    let interleaved = shape.output == OUT_GATED;
    if piece.interleaved != interleaved {
        return Err(Refusal::new("piece", "weaves rows of several weights where the record does not, or does not"));
    }
    Ok(())
}

/// A last unit may lack rows where nothing lies behind their results: of one weight and all of its
/// last rows, without a bias.
fn check_padding(shape: &Shape, piece: &Piece, places: &Places<'_>) -> Result<(), Refusal> {
    let last = |part: &WeightRows| places.shape(part.weight).first() == Some(&part.rows.end);
    let alone = matches!(&piece.parts[..], [part] if last(part));
    let pads = alone && !shape.bias && [OUT_STORE, OUT_LOGITS].contains(&shape.output);
    if pads || piece.rows().is_multiple_of(UNIT) {
        return Ok(());
    }
    Err(Refusal::new("piece", format!("has {} rows, which are no whole units", piece.rows())))
}

struct Gemv<'c, 'p> {
    record: &'c Record,
    places: &'c Places<'p>,
    shape: Shape,
    piece: &'p Piece,
    calls: Vec<DecodedCall<'p>>,
    locals: usize,
}

impl<'p> Gemv<'_, 'p> {
    fn local(&mut self) -> Place {
        self.locals += 1;
        Place::Local(self.locals - 1)
    }

    fn call(&mut self, path: &'p str, operands: Vec<DecodedOperand>) {
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
        } else if self.record.norm != 0 {
            return Err(Refusal::new("norm", "is not 0, and the input is not normed"));
        }
        let sum = self.shape.input == IN_SUM;
        if !self.shape.bias && !sum && self.record.bias != 0 {
            return Err(Refusal::new("bias", "is not 0, and there is no bias"));
        }
        if !sum && self.record.partial != 0 {
            return Err(Refusal::new("partial", "is not 0, and the input is not a sum"));
        }
        Ok(x)
    }

    /// Decodes the norm of a vector. The field `field` says where its weight is.
    fn normed(&mut self, x: DecodedOperand, field: &'static str, weight: u32) -> Result<DecodedOperand, Refusal> {
        let k = self.shape.k;
        let (weight, elements) = self.places.constant(field, weight, k)?;
        let to = self.local();
        let operands = vec![x, early(field, weight, &[elements]), write("shape", to, &[0..k])];
        let params = vec![Param::F32(Shared::of(self.places.image).eps)];
        self.calls.push(DecodedCall { params, ..DecodedCall::new("amk_kernels::rms_norm", operands) });
        Ok(read("shape", to, &[0..k]))
    }

    /// Decodes the sum of the residual and of the norm of a vector. Its code multiplies nothing but
    /// norms, of one row, and has the weight where others have a bias.
    fn sum(&mut self, state: &mut WorkerState) -> Result<DecodedOperand, Refusal> {
        if !self.shape.norm || self.shape.bias || self.places.program.rows.is_some() {
            return Err(Refusal::new("shape", "has a sum as the input, with rows, with a bias, or without a norm"));
        }
        let k = self.shape.k;
        state.own.set(LastSum { vector: self.record.input, len: k });
        let [vector, residual] = [("input", self.record.input), ("partial", self.record.partial)].map(|(field, at)| {
            let (place, elements) = self.places.elements(field, at, k, Format::Pairs)?;
            Ok(read(field, place, &[elements]))
        });
        let normed = self.normed(vector?, "bias", self.record.bias)?;
        let x = self.local();
        self.call("amk_kernels::add", vec![residual?, normed, write("shape", x, &[0..k])]);
        Ok(read("shape", x, &[0..k]))
    }

    fn linear(&mut self, x: &DecodedOperand, WeightRows { weight, rows }: &WeightRows, to: DecodedOperand) {
        let weight = early("piece", Place::Buffer(*weight), &[rows.clone(), 0..self.shape.k]);
        self.call("amk_kernels::linear", vec![x.clone(), weight, to]);
    }

    /// Decodes the `len` output elements that start at `before` in the task.
    fn published(&self, before: u32, len: u32) -> Result<DecodedOperand, Refusal> {
        let at = self.record.output.saturating_add(before / self.places.per_place(Format::Pairs));
        let (place, elements) = self.places.elements("output", at, len, Format::Pairs)?;
        Ok(write("output", place, &[elements]))
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
    fn store(&mut self, x: &DecodedOperand) -> Result<(), Refusal> {
        self.check_row()?;
        let mut before = 0;
        for part in &self.piece.parts {
            let len = part.rows.end - part.rows.start;
            let to = self.published(before, len)?;
            if self.shape.bias {
                let (bias, elements) = self.places.constant("bias", self.record.bias + before, len)?;
                let y = self.local();
                self.linear(x, part, write("piece", y, &[0..len]));
                let operands = vec![read("piece", y, &[0..len]), early("bias", bias, &[elements]), to];
                self.call("amk_kernels::add_bias", operands);
            } else {
                self.linear(x, part, to);
            }
            before += len;
        }
        Ok(())
    }

    fn only_part(&self) -> Result<&'p WeightRows, Refusal> {
        match &self.piece.parts[..] {
            [part] => Ok(part),
            parts => Err(Refusal::new("piece", format!("has {} parts, expected one", parts.len()))),
        }
    }

    /// Decodes a product with its bias.
    fn product(&mut self, x: &DecodedOperand, part: &WeightRows, len: u32) -> Result<Place, Refusal> {
        let y = self.local();
        self.linear(x, part, write("piece", y, &[0..len]));
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
    fn residual(&mut self, x: &DecodedOperand) -> Result<(), Refusal> {
        self.check_row()?;
        let (part, len, row) = (self.only_part()?, self.piece.rows(), self.record.row);
        if len > most_own_rows(self.places.program.rows) {
            return Err(Refusal::new("units", format!("give {len} rows, which a worker cannot hold")));
        }
        let mut y = self.product(x, part, len)?;
        if self.shape.function != 0 {
            let mapped = self.local();
            self.function(vec![read("piece", y, &[0..len]), write("piece", mapped, &[0..len])])?;
            y = mapped;
        }
        let held = row..row + len;
        let published = self.published(0, len)?;
        for to in [write("row", Place::Kept("residual"), from_ref(&held)), published] {
            let operands = vec![read("row", Place::Kept("residual"), from_ref(&held)), read("piece", y, &[0..len]), to];
            self.call("amk_kernels::add", operands);
        }
        Ok(())
    }

    /// Decodes gate and up, whose rows alternate.
    fn gated(&mut self, x: &DecodedOperand) -> Result<(), Refusal> {
        self.check_row()?;
        let [gate, up] = &self.piece.parts[..] else {
            return Err(Refusal::new("piece", format!("has {} parts, expected two", self.piece.parts.len())));
        };
        let len = self.piece.rows() / 2;
        let mut operands = Vec::new();
        for part in [gate, up] {
            let y = self.local();
            self.linear(x, part, write("piece", y, &[0..len]));
            operands.push(read("piece", y, &[0..len]));
        }
        operands.push(self.published(0, len)?);
        self.function(operands)
    }

    /// Decodes a function of each element of one product, with its bias.
    fn mapped(&mut self, x: &DecodedOperand) -> Result<(), Refusal> {
        self.check_row()?;
        let (part, len) = (self.only_part()?, self.piece.rows());
        let y = self.product(x, part, len)?;
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

    fn logits(&mut self, x: &DecodedOperand) -> Result<(), Refusal> {
        if self.record.output != 0 {
            return Err(Refusal::new("output", "is not 0, and the output is the logits"));
        }
        let (part, row) = (self.only_part()?, self.record.row);
        let end = row.checked_add(self.piece.rows()).ok_or_else(|| Refusal::new("row", "is out of range"))?;
        let to = write("row", Place::Buffer(self.places.image.logits), &[row..end]);
        if self.shape.function == 0 {
            self.linear(x, part, to);
        } else {
            let (y, len) = (self.local(), self.piece.rows());
            self.linear(x, part, write("piece", y, &[0..len]));
            self.function(vec![read("piece", y, &[0..len]), to])?;
        }
        self.calls.iter_mut().last().into_iter().for_each(|call| call.wanted = true);
        Ok(())
    }
}
