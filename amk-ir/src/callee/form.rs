//! The part of a call that is visible to its function.

use crate::expr::{Expr, Op};
use crate::schedule::CACHES;
use crate::signature::TensorClass;
use crate::{
    Bound, Buffer, BufferKind, Call, CallRows, DType, Interval, Operand, Param, Program, Region, Routed, TableId,
};

/// The part of a call that is visible to its function; most calls of an instruction share one form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    /// `None` if the program has no such buffer.
    pub(super) operands: Vec<Option<Tile>>,
    pub(super) params: Vec<Given>,
}

impl Form {
    /// The form of a call.
    pub fn of(program: &Program, call: &Call) -> Self {
        let tile = |operand: &Operand| {
            let buffer = program.buffers.get(operand.buffer.index())?;
            match call.rows {
                Some(rows) => Some(Tile::of_row(buffer, operand, rows)),
                None => Some(Tile::of(buffer, &operand.region, &buffer.shape, operand.routed)),
            }
        };
        Self { operands: call.operands.iter().map(tile).collect(), params: call.params.iter().map(Given::of).collect() }
    }
}

/// A parameter, as far as it can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Given {
    Float,
    Dim(u32),
    Pos,
}

impl Given {
    fn of(param: &Param) -> Self {
        match *param {
            Param::F32(_) => Self::Float,
            Param::U32(value) => Self::Dim(value),
            Param::Pos => Self::Pos,
        }
    }

    pub(super) const fn described(self) -> &'static str {
        match self {
            Self::Float => "a float",
            Self::Dim(_) => "an unsigned integer",
            Self::Pos => "the position",
        }
    }
}

/// The tile of an operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Tile {
    /// The class as which a function can take the operand, or the element type that no class
    /// supports.
    pub(super) class: Result<TensorClass, DType>,
    lengths: Vec<Length>,
}

impl Tile {
    /// The tile that a function gets of one of a call's rows.
    fn of_row(buffer: &Buffer, operand: &Operand, rows: CallRows) -> Self {
        let (region, shape) = (&operand.region, buffer.shape.as_slice());
        match buffer.kind {
            BufferKind::Weight => Self::of(buffer, region, shape, operand.routed),
            // The verifier refuses a tile that is before its position.
            BufferKind::State => Self::of(buffer, &rows.region(region).unwrap_or(*region), shape, operand.routed),
            _ => {
                let row = Region::new(region.intervals().get(1..).unwrap_or_default()).unwrap_or(*region);
                Self::of(buffer, &row, shape.get(1..).unwrap_or_default(), operand.routed)
            }
        }
    }

    fn of(buffer: &Buffer, region: &Region, shape: &[u32], routed: Option<Routed>) -> Self {
        let dims = region.intervals().iter().zip(shape);
        let mut lengths: Vec<Length> = dims.map(|(&interval, &whole)| Length::of(interval, whole)).collect();
        if let (Some(first), Some(routed)) = (lengths.first_mut(), routed) {
            *first = match routed {
                Routed::Pick { .. } | Routed::Row { .. } => Length::Fixed(1),
                Routed::Group { table, group } => Length::Rows(table, group),
            };
        }
        let single = lengths.iter().all(|&length| matches!(length, Length::Fixed(1)));
        Self { class: class(buffer, single), lengths }
    }

    /// The extents that a function gets.
    pub(super) fn argument(&self) -> impl ExactSizeIterator<Item = Expr> {
        self.lengths.iter().map(|length| match *length {
            Length::Moving { whole, .. } => Expr::Const(whole.into()),
            other => other.exact(),
        })
    }

    /// The extents that a function must return.
    pub(super) fn result(&self) -> impl ExactSizeIterator<Item = Expr> {
        self.lengths.iter().map(|length| length.exact())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Length {
    Fixed(u32),
    /// A bound moves with the position.
    Moving {
        interval: Interval,
        whole: u32,
    },
    /// The rows of a group.
    Rows(TableId, u32),
}

impl Length {
    fn of(interval: Interval, whole: u32) -> Self {
        match interval.moves() {
            true => Self::Moving { interval, whole },
            false => Self::Fixed(interval.hi.base.saturating_sub(interval.lo.base)),
        }
    }

    fn exact(self) -> Expr {
        match self {
            Self::Fixed(length) => Expr::Const(length.into()),
            Self::Moving { interval: Interval { lo, hi }, .. } => {
                if lo.behind || hi.behind {
                    return Expr::binary(Op::Sub, value(hi), value(lo));
                }
                let base = Expr::Const(hi.offset() - lo.offset());
                match (lo.pos, hi.pos) {
                    (false, true) => Expr::binary(Op::Add, Expr::name("pos"), base),
                    (true, false) => Expr::binary(Op::Sub, base, Expr::name("pos")),
                    _ => base,
                }
            }
            // Not a name that a signature can have.
            Self::Rows(table, group) => Expr::name(format!("rows {table}[{group}]")),
        }
    }
}

/// A bound at any position.
fn value(bound: Bound) -> Expr {
    let constant = Expr::Const(bound.base.into());
    match (bound.pos, bound.behind) {
        (false, _) => constant,
        (true, false) => Expr::binary(Op::Add, Expr::name("pos"), constant),
        (true, true) => Expr::binary(Op::Max, Expr::Const(0), Expr::binary(Op::Sub, Expr::name("pos"), constant)),
    }
}

/// The class as which a function can take a tile; `single`: the tile is one element. Functions
/// compute in f32, and a VM rounds results when it stores them to a bf16 buffer.
fn class(buffer: &Buffer, single: bool) -> Result<TensorClass, DType> {
    match (buffer.kind, buffer.dtype) {
        (BufferKind::Weight, _) => Ok(TensorClass::Weight),
        (BufferKind::State, dtype) if CACHES.contains(&dtype) => Ok(TensorClass::State),
        (_, DType::F32 | DType::BF16) => Ok(TensorClass::Tensor),
        (_, DType::U32) if single => Ok(TensorClass::Token),
        (_, other) => Err(other),
    }
}
