//! The kinds of expressions in a body, and the destinations of their values.

use amk_ir::ValueId;
use amk_ir::expr::Expr;
use amk_ir::layout::{FieldPath, Layout};

/// The kinds of expressions.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Item {
    /// A tensor or token of this step.
    Value(ValueId),
    /// A weight, state, table or float parameter.
    Leaf(FieldPath),
    /// A flag.
    Flag(FieldPath),
    /// A struct of a layout.
    Struct(FieldPath, Layout),
    /// A `Vec` of a layout: its path, without the index, the element and the length.
    List(FieldPath, Layout, Expr),
    /// An unsigned integer over dims and loop indices.
    Int(Expr),
    /// A number.
    Float(f32),
    /// The position of the step.
    Pos,
    /// Several.
    Tuple(Vec<Self>),
    /// `()`
    Unit,
    /// Something that was reported.
    Unknown,
}

impl Item {
    /// Returns its kind, for messages.
    pub(super) const fn what(&self) -> &'static str {
        match self {
            Self::Value(_) => "a tensor of this step",
            Self::Leaf(_) => "a field of the weights",
            Self::Flag(_) => "a flag",
            Self::Struct(..) => "a struct",
            Self::List(..) => "a `Vec` of structs",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Pos => "the position",
            Self::Tuple(_) => "a tuple",
            Self::Unit => "nothing",
            Self::Unknown => "something else",
        }
    }
}

/// Where the value of an expression goes.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Dest {
    /// Into a new value, named after the op.
    Temp,
    /// Into a new value of this name.
    Named(String),
    /// Into this value.
    Value(ValueId),
    /// The elements of a tuple each go somewhere.
    Tuple(Vec<Self>),
    /// Where the other branch of an `if` puts its own: a number in `Lowering::joins`.
    Join(usize),
    /// Nowhere: the expression is a statement.
    Nothing,
}
