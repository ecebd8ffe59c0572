//! The signature of an instruction: operands with symbolic shapes, and the tiles that a task reads
//! and writes.
//!
//! A task is a call of the instruction's function on sub-tensors: a dimension with a fixed interval
//! is restricted to it, and a dimension whose interval depends on `pos` is passed whole.

use crate::expr::Expr;
use crate::{Access, DType};
use serde::{Deserialize, Serialize};

/// The signature of a function with `#[instruction]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The function's name.
    pub name: String,
    /// The function's full path, which is the key in the registry.
    pub path: String,
    /// The op's name: `linear`.
    pub op: String,
    /// `file:line` of the function, for messages.
    pub declared_at: String,
    /// The parameters in order.
    pub params: Vec<ParamSig>,
    /// The results, in order.
    pub results: Vec<ResultSig>,
    /// Tile sizes a schedule may set.
    #[serde(default)]
    pub tiles: Vec<TileSig>,
    /// Iteration variables of the task grid, outermost first; none: one task.
    #[serde(default)]
    pub grid: Vec<GridSig>,
    /// Constraints on the dims: the left side is a multiple of the right side.
    #[serde(default)]
    pub multiples: Vec<(Expr, Expr)>,
    /// File name of the CUDA body, in the same folder as the function's file.
    #[serde(default)]
    pub cuda: Option<String>,
}

/// A parameter of an instruction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamSig {
    /// The parameter's name.
    pub name: String,
    /// The kind of parameter.
    pub kind: ParamKind,
}

/// The kinds of parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum ParamKind {
    /// A tensor: activation, weight or state.
    Tensor {
        /// Its permitted sources.
        class: TensorClass,
        /// How the function accesses its region.
        access: Access,
        /// The shape in the instruction's own dims.
        shape: Vec<Expr>,
        /// The region of a task.
        region: Vec<Span>,
    },
    /// A 32-bit float.
    Float,
    /// An unsigned integer that is a dim of the instruction: its value binds the expression.
    Dim(Expr),
    /// The position of the step.
    Pos,
}

/// The permitted sources of a tensor operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TensorClass {
    /// `&Tensor`: computed in this step.
    Tensor,
    /// `&Weight`: a checkpoint's tensor.
    Weight,
    /// `&State` or `&mut State`: kept from step to step.
    State,
    /// `Token` or `&Token`: a token id, u32, shape `[1]`.
    Token,
}

impl TensorClass {
    /// The class in words.
    pub(crate) const fn described(self) -> &'static str {
        match self {
            Self::Tensor => "a tensor of this step",
            Self::Weight => "a weight",
            Self::State => "a state",
            Self::Token => "a token",
        }
    }
}

/// A result of an instruction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultSig {
    /// The name in the shape clause.
    pub name: String,
    /// Element type: f32 for tensors, u32 for tokens.
    pub dtype: DType,
    /// The shape in the instruction's own dims.
    pub shape: Vec<Expr>,
    /// The region a task writes.
    pub region: Vec<Span>,
}

/// A tile size that a schedule may set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileSig {
    /// The name in the task clause.
    pub name: String,
    /// The default value; also the unit in which an extent is divided among workers.
    pub default: Expr,
}

/// An iteration variable: `var in 0..extent step step`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridSig {
    /// The variable; its values are `0, step, 2*step, ..` below the extent.
    pub var: String,
    /// One past the last value.
    pub extent: Expr,
    /// The step between values: a tile's name, a dim or a number.
    pub step: Expr,
}

/// The interval `lo..hi` in one dimension of a region, or the whole dimension.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Span {
    /// `..`
    Full,
    /// `lo..hi` over grid variables, tiles, dims and `pos`.
    Range {
        /// The first element.
        lo: Expr,
        /// One past the last element.
        hi: Expr,
    },
}
