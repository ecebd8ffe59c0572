//! The ABI between the records of the built-in bodies and their CUDA code.

use amk_cuda::image::declare::{Struct, items};
use amk_cuda::{device_constants, device_enumerations, device_structs};

device_constants! {
    /// Maximum input tiles that a warp multiplies in one pass.
    MOST_DEPTH = 4 => "#define AMK_DEPTH";
    /// Bytes of a weight tile in bf16: 16 for each lane of a warp.
    TILE = 512 => "#define AMK_TILE";
    /// Input elements of a weight tile, whose output rows are a unit.
    TILE_K = 32 => "#define AMK_TILE_K";
    /// Maximum rows of the residual that a worker owns.
    MAX_OWN_ROWS = 512 => "constexpr int MAX_OWN_ROWS =";
    /// Maximum rows of the residual that a worker owns for each row of a step.
    MAX_STEP_OWN = 64 => "constexpr u32 MAX_STEP_OWN =";
    /// Rows of a block, for which a worker multiplies the weights of some neighbours: the columns
    /// of a product of the tensor cores.
    BLOCK_ROWS = 128 => "constexpr u32 BLOCK_ROWS =";
    /// Rows of a step up to which the residual is in the shared memory.
    HELD_IN_SHARED = 64 => "#define HELD_IN_SHARED";
    /// Maximum stages of a wide step's projection in memory.
    WIDE_STAGES = 16 => "constexpr u32 WIDE_STAGES =";
    /// Units of weights that a wide step multiplies together.
    WIDE_UNITS = 32 => "constexpr u32 WIDE_UNITS =";
    /// Columns of a wide step up to which codes are multiplied as they are.
    CODED_COLUMNS = 32 => "constexpr u32 CODED_COLUMNS =";
    /// Tiles of which a share of a wide step's columns has multiples, if it is not the last.
    SHARE_TILES = 8 => "constexpr u32 SHARE_TILES =";
    /// Maximum passes over the columns of a wide step's weights.
    WIDE_PASSES = 28 => "constexpr u32 WIDE_PASSES =";
    /// Elements between the queries of two heads, in addition to their own: the fragments of four
    /// heads hit all banks.
    QUERY_GAP = 16 => "constexpr int QUERY_GAP =";
    /// Bits of the input length in a projection's shape, in tiles.
    GEMV_TILES = 0x7fff => "constexpr u32 GEMV_TILES =";
    /// First of the five bits for the kind of its weights' tiles in a projection's shape.
    GEMV_TILE_BIT = 15 => "constexpr u32 GEMV_TILE_BIT =";
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
    /// Bits of the length in a norm's shape, in elements.
    NORM_LENGTH = 0xff_ffff => "constexpr u32 NORM_LENGTH =";
    /// Bit of a norm's shape: the values are normalised; else they are passed on as they are.
    NORM_COMPUTED = 0x100_0000 => "constexpr u32 NORM_COMPUTED =";
    /// Bit of a norm's shape: the result is added to the residual.
    NORM_ADDED = 0x200_0000 => "constexpr u32 NORM_ADDED =";
    /// Bit of a norm's shape: the values are normalised by their distance from the mean.
    NORM_CENTRED = 0x400_0000 => "#define NORM_CENTRED";
    /// Bit of a norm's shape: a bias is added.
    NORM_BIASED = 0x800_0000 => "#define NORM_BIASED";
    /// Bit of a norm's shape: the worker's last projection of a sum has left the vector's scale.
    NORM_KNOWN = 0x1000_0000 => "#define NORM_KNOWN";
    /// Row pairs of a group of units, each with a place in the race of the logits.
    TOPS = 64 => "constexpr u32 TOPS =";
    /// Rounds of probes in a filtered draw.
    ROUNDS = 6 => "#define AMK_ROUNDS";
    /// Levels of a probe.
    LEVELS = 8 => "#define AMK_LEVELS";
    /// Words that a worker publishes per level.
    FIELDS = 5 => "#define AMK_FIELDS";
    /// Words of the search state of a worker.
    SEARCH = 30 => "#define AMK_SEARCH";
    /// Words that a worker publishes with its best logit under a filter.
    SHARES = 3 => "constexpr u32 SHARES =";
}

device_structs! {
    /// Parameters of the tasks of a decoder.
    struct DecoderParams {
        /// The embedding table `[.., hidden]`.
        embedding: u64 as "const Elem*",
        /// The caches of fused attention.
        kv: u64 as "u8*",
        /// Rotary frequencies `[rotary]`.
        inv_freq: u64 as "const float*",
        /// Elements of a row of the embedding table.
        hidden: u32,
        /// Blocks of 64 positions in a kv head's cache of a layer.
        kv_blocks: u32,
        /// Scale of rotated values.
        rope_scale: f32,
        /// Epsilon of every norm of a fused task.
        eps: f32,
        /// Scale of the attention scores.
        score_scale: f32,
        /// Entries of inv_freq.
        rotary: u32,
    }
    /// Parameters of the choice of tokens.
    struct DrawParams {
        /// Seed of the draws.
        seed: u64,
        /// Inverse of the temperature; 0: greedy.
        inv_temperature: f32,
        /// Index of the draw of step 0; it wraps.
        draw: u32,
        /// 1: draws are filtered, and `logits` is not null.
        filter: u32,
        /// Tokens that the filter keeps; 0: all.
        top_k: u32,
        /// Probability mass that the filter keeps.
        top_p: f32,
        /// Logarithm of min-p, see search.cuh.
        min_log: f32,
    }
}

/// The parameters of a launch, in the order in which they are bound.
pub(crate) const PARAMS: &[Struct] = STRUCTS;

device_enumerations! {
    /// Source of a projection's input.
    enum GemvInput {
        IN_PACKETS,
        IN_EMBEDDING,
        IN_SUM,
        IN_SHARE,
    }
    /// Destination of a projection's output.
    enum GemvOutput {
        OUT_STORE,
        OUT_RESIDUAL,
        OUT_GATED,
        OUT_LOGITS,
    }
}

/// Maximum number of rows of the residual that a worker owns, in programs with rows for each row of
/// a step.
pub(crate) fn most_own_rows(rows: Option<u32>) -> u32 {
    if rows.is_some() { MAX_STEP_OWN } else { MAX_OWN_ROWS }
}

/// The split of a row that the tasks of a column attend to, in steps of up to `rows` rows.
pub(crate) fn split_of(column: u32, row: u32, splits: u32, rows: u32) -> u32 {
    (column + row * (splits / rows.max(1)).max(1)) % splits.max(1)
}

/// Renders the same declarations as C++.
pub(crate) fn text() -> String {
    items(CONSTANTS, ENUMERATIONS)
}

#[cfg(test)]
mod tests {
    use super::split_of;

    /// The splits of each row are shared out over the columns, and the first ones evenly.
    #[test]
    fn the_splits_of_all_rows_are_spread_over_the_columns() {
        for (splits, rows, active) in [(44, 8, 5), (44, 4, 5), (16, 8, 1), (16, 8, 5), (33, 8, 4), (5, 8, 5), (1, 8, 1)]
        {
            let of_column =
                |column| (0..rows).filter(|&row| split_of(column, row, splits, rows) < active).count() as u32;
            let counts: Vec<u32> = (0..splits).map(of_column).collect();
            assert_eq!(counts.iter().sum::<u32>(), rows * active, "each split of each row once");
            let even = (rows * active).div_ceil(splits);
            assert!(counts.iter().all(|&count| count <= even + 1), "{splits} splits: {counts:?}");
        }
    }
}
