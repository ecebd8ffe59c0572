//! The amk instruction set: references in Rust beside their CUDA bodies
