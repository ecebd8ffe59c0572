//! Two user-defined instructions, each with a Rust reference and a CUDA body, in a decoder whose
//! other ops are built in.
//!
//! The function [`decode`] runs eagerly, on the CPU VM and on the GPU. On the GPU the built-in ops
//! remain fused as in any decoder, and each call of [`relu_squared_mul`] and [`scale_by`] becomes
//! tasks that run the body of its `.cuh` file.

mod model;
mod relu_squared;
mod scale;

pub use model::{Cache, Caches, DECODE, Decoder, Layer, decode};
pub use relu_squared::relu_squared_mul;
pub use scale::scale_by;
