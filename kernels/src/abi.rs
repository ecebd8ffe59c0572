//! What the records of the built-in bodies and their CUDA code agree on.

use amk_cuda::image::declare::items;
use amk_cuda::{device_constants, device_enumerations};

device_constants! {
    /// Rows of the residual that a worker owns at most.
    MAX_OWN_ROWS = 512 => "constexpr int MAX_OWN_ROWS =";
    /// Elements of an attention head at most.
    MAX_HEAD_DIM = 128 => "constexpr int MAX_HEAD_DIM =";
    /// Elements from one head's query to the next: the fragments of four heads lie in all banks.
    QUERY_PITCH = 144 => "constexpr int QUERY_PITCH =";
    /// Of a projection's shape: the bits of its input length.
    GEMV_K = 0xfffff => "constexpr u32 GEMV_K =";
    /// Of a projection's shape: the first of two bits, a `GemvInput`.
    GEMV_INPUT_BIT = 20 => "constexpr u32 GEMV_INPUT_BIT =";
    /// Of a projection's shape: the first of two bits, a `GemvOutput`.
    GEMV_OUTPUT_BIT = 22 => "constexpr u32 GEMV_OUTPUT_BIT =";
    /// Of a projection's shape: the first of four bits, the input tiles of a warp in one pass.
    GEMV_DEPTH_BIT = 24 => "constexpr u32 GEMV_DEPTH_BIT =";
    /// Of a projection's shape: the first of four flags.
    GEMV_FLAGS_BIT = 28 => "constexpr u32 GEMV_FLAGS_BIT =";
    /// Flag of a projection: its input is normed.
    GEMV_NORM = 1 => "constexpr u32 GEMV_NORM =";
    /// Flag of a projection: a bias is added.
    GEMV_BIAS = 2 => "constexpr u32 GEMV_BIAS =";
    /// Of a projection's flags: the first of two bits, the number of the element-wise function that
    /// its results go through; 0: none.
    GEMV_FUNCTION_BIT = 2 => "constexpr u32 GEMV_FUNCTION_BIT =";
}

device_enumerations! {
    /// Where a projection's input comes from.
    enum GemvInput {
        IN_PACKETS,
        IN_EMBEDDING,
    }
    /// How a projection delivers its output.
    enum GemvOutput {
        OUT_STORE,
        OUT_RESIDUAL,
        OUT_GATED,
        OUT_LOGITS,
    }
}

/// The same as C++.
pub(crate) fn text() -> String {
    items(CONSTANTS, ENUMERATIONS)
}
