//! Two instructions of one's own, each a Rust reference beside its CUDA body, in a decoder whose
//! other ops are amk's.
//!
//! The function [`decode`] runs eagerly, on the CPU VM and on the GPU. There amk's own ops stay the
//! fused fast tasks that they are in any decoder, and each call of [`relu_squared_mul`] and
//! [`scale_by`] becomes tasks with the body of its `.cuh` file.

mod model;
mod relu_squared;
mod scale;

pub use model::{Cache, Caches, DECODE, Decoder, Layer, decode};
pub use relu_squared::relu_squared_mul;
pub use scale::scale_by;
