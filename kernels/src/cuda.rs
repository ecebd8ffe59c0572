//! The device code of the instruction set.

use amk_cuda::DeviceCode;

/// The instructions' fused CUDA bodies, in the order in which they include one another.
pub const DEVICE: DeviceCode = DeviceCode {
    files: &[
        ("gemv.cuh", include_str!("gemv.cuh")),
        ("sample.cuh", include_str!("sample.cuh")),
        ("turns.cuh", include_str!("turns.cuh")),
        ("attention.cuh", include_str!("attention.cuh")),
    ],
};
