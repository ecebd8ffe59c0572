//! The device code of the built-in fused bodies.

use amk_cuda::DeviceCode;

/// The fused CUDA bodies in inclusion order.
pub(crate) const DEVICE: DeviceCode = DeviceCode {
    files: &[
        ("residual/fused.cuh", include_str!("residual/fused.cuh")),
        ("linear/fused.cuh", include_str!("linear/fused.cuh")),
        ("choose/fused.cuh", include_str!("choose/fused.cuh")),
        ("attention/begin.cuh", include_str!("attention/begin.cuh")),
        ("attention/turns.cuh", include_str!("attention/turns.cuh")),
        ("attention/fused.cuh", include_str!("attention/fused.cuh")),
    ],
};
