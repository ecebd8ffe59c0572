//! Operands of instructions: activations, weights, states, tokens and positions.
//!
//! | type | holds | element type |
//! |---|---|---|
//! | [`Tensor`] | the result of an instruction, or an input | f32 |
//! | [`Weight`] | a checkpoint's tensor, shared and read-only | any [`Encoding`](crate::Encoding) |
//! | [`State`] | data kept from step to step, such as a KV cache | f32, possibly rounded to bf16 or e4m3 |
//! | [`Token`] | a token id | u32 |
//!
//! All are row-major and have at most [`amk_ir::MAX_RANK`] dimensions. In a VM an instruction gets
//! *views* of these types on the tile of its task; to the function they are indistinguishable from
//! whole tensors.

mod cells;
mod dense;
pub mod e4m3;
mod inputs;
mod shape;
mod state;
mod token;
mod weight;

pub(crate) use cells::Cells;
pub use dense::Tensor;
pub use inputs::{Inputs, Q8Block};
pub(crate) use shape::Shape;
pub use shape::ShapeError;
pub use state::{RowMut, State};
pub use token::{Pos, Token};
pub use weight::{Row, Weight, WeightError, WeightOwner};
