//! User-defined instructions, each with a Rust reference, a formula and a CUDA body, two of them in
//! a decoder whose other ops are built in.
//!
//! The function [`decode`] runs eagerly, on the CPU VM and on the GPU. On the GPU the built-in ops
//! remain fused as in any decoder, and each call of [`relu_squared_mul`] and [`scale_by`] becomes
//! tasks that run the body of its `.cuh` file.

mod affine;
mod model;
mod relu_squared;
mod scale;
mod softcap;

pub use affine::affine;
pub use model::{Cache, Caches, DECODE, Decoder, Layer, decode};
pub use relu_squared::relu_squared_mul;
pub use scale::scale_by;
pub use softcap::softcap;
