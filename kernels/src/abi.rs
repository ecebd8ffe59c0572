//! The ABI between the records of the built-in bodies and their CUDA code.

use amk_cuda::image::declare::items;
use amk_cuda::{device_constants, device_enumerations};

device_constants! {
    /// Maximum rows of the residual that a worker owns.
    MAX_OWN_ROWS = 512 => "constexpr int MAX_OWN_ROWS =";
    /// Maximum elements of an attention head.
    MAX_HEAD_DIM = 128 => "constexpr int MAX_HEAD_DIM =";
    /// Stride between the queries of two heads, in elements: the fragments of four heads hit all
    /// banks.
    QUERY_PITCH = 144 => "constexpr int QUERY_PITCH =";
    /// Bits of the input length in a projection's shape.
    GEMV_K = 0xfffff => "constexpr u32 GEMV_K =";
    /// First of the two `GemvInput` bits in a projection's shape.
    GEMV_INPUT_BIT = 20 => "constexpr u32 GEMV_INPUT_BIT =";
    /// First of the two `GemvOutput` bits in a projection's shape.
    GEMV_OUTPUT_BIT = 22 => "constexpr u32 GEMV_OUTPUT_BIT =";
    /// First of the four bits for the input tiles per warp and pass in a projection's shape.
    GEMV_DEPTH_BIT = 24 => "constexpr u32 GEMV_DEPTH_BIT =";
    /// First of the four flag bits in a projection's shape.
    GEMV_FLAGS_BIT = 28 => "constexpr u32 GEMV_FLAGS_BIT =";
    /// Projection flag: the input is normalised.
    GEMV_NORM = 1 => "constexpr u32 GEMV_NORM =";
    /// Projection flag: a bias is added.
    GEMV_BIAS = 2 => "constexpr u32 GEMV_BIAS =";
    /// First of the two bits in a projection's flags that number the element-wise function of its
    /// results. 0 means none.
    GEMV_FUNCTION_BIT = 2 => "constexpr u32 GEMV_FUNCTION_BIT =";
}

device_enumerations! {
    /// Source of a projection's input.
    enum GemvInput {
        IN_PACKETS,
        IN_EMBEDDING,
    }
    /// Destination of a projection's output.
    enum GemvOutput {
        OUT_STORE,
        OUT_RESIDUAL,
        OUT_GATED,
        OUT_LOGITS,
    }
}

/// Renders the same declarations as C++.
pub(crate) fn text() -> String {
    items(CONSTANTS, ENUMERATIONS)
}
