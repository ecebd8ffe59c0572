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
    OP_ADDENDS,
    OP_CHOOSE,
    OP_ADOPT,
    OP_APPEND,
    OP_PARTS,
    OP_JOIN_PARTS,
    OP_ATTEND_ROWS,
    OP_BLOCK_PARTS,
    OP_JOIN_ROWS,
    OP_NORM,
    OP_NORM_ROWS,
    OP_CONVOLVE,
    OP_REDUCE,
};

// Maximum input tiles that a warp multiplies in one pass.
#define AMK_DEPTH 4
// Bytes of a weight tile in bf16: 16 for each lane of a warp.
#define AMK_TILE 512
// Input elements of a weight tile, whose output rows are a unit.
#define AMK_TILE_K 32
// Maximum rows of the residual that a worker owns.
constexpr int MAX_OWN_ROWS = 512;
// Maximum rows of the residual that a worker owns for each row of a step.
constexpr u32 MAX_STEP_OWN = 64;
// Rows of a block, for which a worker multiplies the weights of some neighbours: the columns
// of a product of the tensor cores.
constexpr u32 BLOCK_ROWS = 128;
// Rows of a step up to which the residual is in the shared memory.
#define HELD_IN_SHARED 64
// Maximum stages of a wide step's projection in memory.
constexpr u32 WIDE_STAGES = 16;
// Units of weights that a wide step multiplies together.
constexpr u32 WIDE_UNITS = 32;
// Columns of a wide step up to which codes are multiplied as they are.
constexpr u32 CODED_COLUMNS = 32;
// Tiles of which a share of a wide step's columns has multiples, if it is not the last.
constexpr u32 SHARE_TILES = 8;
// Maximum passes over the columns of a wide step's weights.
constexpr u32 WIDE_PASSES = 28;
// Elements between the queries of two heads, in addition to their own: the fragments of four
// heads hit all banks.
constexpr int QUERY_GAP = 16;
// Bits of the input length in a projection's shape, in tiles.
constexpr u32 GEMV_TILES = 32767;
// First of the five bits for the kind of its weights' tiles in a projection's shape.
constexpr u32 GEMV_TILE_BIT = 15;
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
// Bits of the length in a norm's shape, in elements.
constexpr u32 NORM_LENGTH = 16777215;
// Bit of a norm's shape: the values are normalised; else they are passed on as they are.
constexpr u32 NORM_COMPUTED = 16777216;
// Bit of a norm's shape: the result is added to the residual.
constexpr u32 NORM_ADDED = 33554432;
// Bit of a norm's shape: the values are normalised by their distance from the mean.
#define NORM_CENTRED 67108864
// Bit of a norm's shape: a bias is added.
#define NORM_BIASED 134217728
// Bit of a norm's shape: the worker's last projection of a sum has left the vector's scale.
#define NORM_KNOWN 268435456
// Row pairs of a group of units, each with a place in the race of the logits.
constexpr u32 TOPS = 64;
// Rounds of probes in a filtered draw.
#define AMK_ROUNDS 6
// Levels of a probe.
#define AMK_LEVELS 8
// Words that a worker publishes per level.
#define AMK_FIELDS 5
// Words of the search state of a worker.
#define AMK_SEARCH 30
// Words that a worker publishes with its best logit under a filter.
constexpr u32 SHARES = 3;

// Source of a projection's input.
enum GemvInput {
    IN_PACKETS,
    IN_EMBEDDING,
    IN_SUM,
    IN_SHARE,
};

// Destination of a projection's output.
enum GemvOutput {
    OUT_STORE,
    OUT_RESIDUAL,
    OUT_GATED,
    OUT_LOGITS,
};

// Parameters of the tasks of a decoder.
struct DecoderParams {
    // The embedding table `[.., hidden]`.
    const Elem* embedding;
    // The caches of fused attention.
    u8* kv;
    // Rotary frequencies `[rotary]`.
    const float* inv_freq;
    // Elements of a row of the embedding table.
    u32 hidden;
    // Blocks of 64 positions in a kv head's cache of a layer.
    u32 kv_blocks;
    // Scale of rotated values.
    float rope_scale;
    // Epsilon of every norm of a fused task.
    float eps;
    // Scale of the attention scores.
    float score_scale;
    // Entries of inv_freq.
    u32 rotary;
};
static_assert(sizeof(DecoderParams) == 48, "as the host has it");

// Parameters of the choice of tokens.
struct DrawParams {
    // Seed of the draws.
    u64 seed;
    // Inverse of the temperature; 0: greedy.
    float inv_temperature;
    // Index of the draw of step 0; it wraps.
    u32 draw;
    // 1: draws are filtered, and `logits` is not null.
    u32 filter;
    // Tokens that the filter keeps; 0: all.
    u32 top_k;
    // Probability mass that the filter keeps.
    float top_p;
    // Logarithm of min-p, see search.cuh.
    float min_log;
};
static_assert(sizeof(DrawParams) == 32, "as the host has it");

// How the token after a row is chosen.
struct RowChoice {
    // Its draw.
    DrawParams draw;
    // 0: the host chooses by the logits.
    u32 asked;
    // First of the changes of its logits.
    u32 first_change;
    // The changes.
    u32 change_count;
    // Padding, zero.
    u32 reserved;
};
static_assert(sizeof(RowChoice) == 48, "as the host has it");

// The effect of penalties and biases on a logit.
struct LogitWords {
    // The token.
    u32 token;
    // A logit of 0 or more is divided by it, a negative one multiplied.
    float repetition;
    // Added then.
    float penalty;
    // Added last.
    float bias;
};
static_assert(sizeof(LogitWords) == 16, "as the host has it");

// Parameters of the choice of the rows' tokens.
struct RowParams {
    // By row of the step `[row_count]`. The changes of all rows follow.
    const RowChoice* choices;
    // Mapped host memory: the token after each row that asks for one.
    u32* chosen;
};
static_assert(sizeof(RowParams) == 16, "as the host has it");
