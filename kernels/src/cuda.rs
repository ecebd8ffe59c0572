//! The device code of the instruction set.

use amk::vm::cuda::DeviceCode;

/// The device VM and the instructions' CUDA bodies, in the order in which they include one another.
pub const DEVICE: DeviceCode = DeviceCode {
    files: &[
        ("vm/ptx.cuh", include_str!("../vm/ptx.cuh")),
        ("vm/image.cuh", include_str!("../vm/image.cuh")),
        ("vm/random.cuh", include_str!("../vm/random.cuh")),
        ("vm/search.cuh", include_str!("../vm/search.cuh")),
        ("vm/worker.cuh", include_str!("../vm/worker.cuh")),
        ("vm/task.cuh", include_str!("../vm/task.cuh")),
        ("vm/exchange.cuh", include_str!("../vm/exchange.cuh")),
        ("vm/loader.cuh", include_str!("../vm/loader.cuh")),
        ("gemv.cuh", include_str!("gemv.cuh")),
        ("sample.cuh", include_str!("sample.cuh")),
        ("turns.cuh", include_str!("turns.cuh")),
        ("attention.cuh", include_str!("attention.cuh")),
        ("vm/vm.cuh", include_str!("../vm/vm.cuh")),
    ],
};

/// The bare ring, which tells the rate at which a GPU reads at best.
pub const CEILING: DeviceCode = DeviceCode {
    files: &[("vm/ptx.cuh", include_str!("../vm/ptx.cuh")), ("vm/ceiling.cuh", include_str!("../vm/ceiling.cuh"))],
};
