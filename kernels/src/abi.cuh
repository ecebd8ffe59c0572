// What the records of the built-in bodies and their code agree on, generated from `abi.rs` here. Do
// not edit: `AMK_BLESS=1 cargo test -p amk-tests image::` writes it.
#pragma once

// The kinds of records.
enum DeviceOp {
    OP_EMBED,
    OP_ATTEND,
    OP_COMBINE,
    OP_BEST,
    OP_PROBE,
    OP_GEMV,
    OP_CHOOSE,
    OP_ADOPT,
};

// Rows of the residual that a worker owns at most.
constexpr int MAX_OWN_ROWS = 512;
// Elements of an attention head at most.
constexpr int MAX_HEAD_DIM = 128;
// Elements from one head's query to the next: the fragments of four heads lie in all banks.
constexpr int QUERY_PITCH = 144;
// Of a projection's shape: the bits of its input length.
constexpr u32 GEMV_K = 1048575;
// Of a projection's shape: the first of two bits, a `GemvInput`.
constexpr u32 GEMV_INPUT_BIT = 20;
// Of a projection's shape: the first of two bits, a `GemvOutput`.
constexpr u32 GEMV_OUTPUT_BIT = 22;
// Of a projection's shape: the first of four bits, the input tiles of a warp in one pass.
constexpr u32 GEMV_DEPTH_BIT = 24;
// Of a projection's shape: the first of four flags.
constexpr u32 GEMV_FLAGS_BIT = 28;
// Flag of a projection: its input is normed.
constexpr u32 GEMV_NORM = 1;
// Flag of a projection: a bias is added.
constexpr u32 GEMV_BIAS = 2;
// Of a projection's flags: the first of two bits, the number of the element-wise function that
// its results go through; 0: none.
constexpr u32 GEMV_FUNCTION_BIT = 2;

// Where a projection's input comes from.
enum GemvInput {
    IN_PACKETS,
    IN_EMBEDDING,
};

// How a projection delivers its output.
enum GemvOutput {
    OUT_STORE,
    OUT_RESIDUAL,
    OUT_GATED,
    OUT_LOGITS,
};
