//! The device code of the built-in fused bodies.

use amk_cuda::DeviceCode;

/// The types of the data that the bodies keep in a worker's shared memory.
pub(crate) const TYPES: DeviceCode = DeviceCode {
    files: &[
        ("choose/random.cuh", include_str!("choose/random.cuh")),
        ("choose/search.cuh", include_str!("choose/search.cuh")),
        ("linear/copies.cuh", include_str!("linear/copies.cuh")),
    ],
};

/// The fused CUDA bodies in inclusion order.
pub(crate) const DEVICE: DeviceCode = DeviceCode {
    files: &[
        ("choose/race.cuh", include_str!("choose/race.cuh")),
        ("residual/fused.cuh", include_str!("residual/fused.cuh")),
        ("linear/tile/tile.cuh", include_str!("linear/tile/tile.cuh")),
        ("linear/tile/pairs.cuh", include_str!("linear/tile/pairs.cuh")),
        ("linear/inputs.cuh", include_str!("linear/inputs.cuh")),
        ("linear/partials.cuh", include_str!("linear/partials.cuh")),
        ("linear/cut.cuh", include_str!("linear/cut.cuh")),
        ("linear/fused.cuh", include_str!("linear/fused.cuh")),
        ("rms_norm/fused.cuh", include_str!("rms_norm/fused.cuh")),
        ("choose/fused.cuh", include_str!("choose/fused.cuh")),
        ("attention/begin.cuh", include_str!("attention/begin.cuh")),
        ("attention/cache.cuh", include_str!("attention/cache.cuh")),
        ("attention/turns.cuh", include_str!("attention/turns.cuh")),
        ("attention/fused.cuh", include_str!("attention/fused.cuh")),
        ("linear/rows.cuh", include_str!("linear/rows.cuh")),
        ("linear/wgmma.cuh", include_str!("linear/wgmma.cuh")),
        ("linear/stages.cuh", include_str!("linear/stages.cuh")),
        ("linear/boxes.cuh", include_str!("linear/boxes.cuh")),
        ("linear/copier.cuh", include_str!("linear/copier.cuh")),
        ("linear/delivery.cuh", include_str!("linear/delivery.cuh")),
        ("linear/wide.cuh", include_str!("linear/wide.cuh")),
        ("rms_norm/rows.cuh", include_str!("rms_norm/rows.cuh")),
        ("residual/rows.cuh", include_str!("residual/rows.cuh")),
        ("short_conv/fused.cuh", include_str!("short_conv/fused.cuh")),
        ("short_conv/rows.cuh", include_str!("short_conv/rows.cuh")),
        ("attention/rows.cuh", include_str!("attention/rows.cuh")),
        ("attention/wide.cuh", include_str!("attention/wide.cuh")),
        ("attention/blocks.cuh", include_str!("attention/blocks.cuh")),
        ("attention/prompts.cuh", include_str!("attention/prompts.cuh")),
    ],
};

/// The CUDA bodies that only programs with rows have.
pub(crate) const ROW_DEVICE: DeviceCode = DeviceCode { files: &[("choose/rows.cuh", include_str!("choose/rows.cuh"))] };
