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

// Maximum rows of the residual that a worker owns.
constexpr int MAX_OWN_ROWS = 512;
// Maximum elements of an attention head.
constexpr int MAX_HEAD_DIM = 128;
// Stride between the queries of two heads, in elements: the fragments of four heads hit all
// banks.
constexpr int QUERY_PITCH = 144;
// Bits of the input length in a projection's shape.
constexpr u32 GEMV_K = 1048575;
// First of the two `GemvInput` bits in a projection's shape.
constexpr u32 GEMV_INPUT_BIT = 20;
// First of the two `GemvOutput` bits in a projection's shape.
constexpr u32 GEMV_OUTPUT_BIT = 22;
// First of the four bits for the input tiles per warp and pass in a projection's shape.
constexpr u32 GEMV_DEPTH_BIT = 24;
// First of the four flag bits in a projection's shape.
constexpr u32 GEMV_FLAGS_BIT = 28;
// Projection flag: the input is normalised.
constexpr u32 GEMV_NORM = 1;
// Projection flag: a bias is added.
constexpr u32 GEMV_BIAS = 2;
// First of the two bits in a projection's flags that number the element-wise function of its
// results. 0 means none.
constexpr u32 GEMV_FUNCTION_BIT = 2;

// Source of a projection's input.
enum GemvInput {
    IN_PACKETS,
    IN_EMBEDDING,
};

// Destination of a projection's output.
enum GemvOutput {
    OUT_STORE,
    OUT_RESIDUAL,
    OUT_GATED,
    OUT_LOGITS,
};
