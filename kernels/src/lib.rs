//! The amk instruction set: the ops of a decoder, each a reference in Rust beside its CUDA body.
//!
//! | op | instructions |
//! |---|---|
//! | embedding | [`embed`] |
//! | projections | [`linear`], [`add_bias`] |
//! | norms | [`rms_norm`], [`head_norm`] |
//! | attention | [`rope`], [`kv_append`], [`attention`] |
//! | MLP | [`silu_mul`], [`gelu_mul`] |
//! | residual | [`add`] |
//! | choice | [`argmax`] |
//!
//! An instruction is an ordinary function over whole tensors. A task of a program is a call of it on the task's tiles, so each
//! computes an element the same way in any tile, with f32 accumulation. Functions panic when shapes do not fit: `#[megakernel]`
//! has checked them before.

mod add;
mod argmax;
mod attention;
pub mod cuda;
mod dot;
mod embed;
mod formula;
mod gate;
mod gemv_tile;
mod kv_append;
mod rms_norm;
mod rope;
#[cfg(test)]
mod testing;

pub use add::{add, add_bias};
pub use argmax::argmax;
pub use attention::attention;
pub use embed::embed;
pub use gate::{gelu_mul, silu_mul};
pub use gemv_tile::linear;
pub use kv_append::kv_append;
pub use rms_norm::{head_norm, rms_norm};
pub use rope::rope;

/// Keeps this crate, and with it its instructions, in a binary that names none of them.
pub fn link() {}
