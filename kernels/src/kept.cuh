// For projections.
alignas(16) float squares[2][2 * AMK_WARPS];
#if AMK_SUMS
float inner; // the scale of the vector of the last sum
#endif
#if AMK_WIDE
// fp32 residual of the rows this worker owns, for each row of the step; see `held_at`
alignas(8) float residual[AMK_ROWS > HELD_IN_SHARED ? 2 : AMK_ROWS * MAX_STEP_OWN];
u64 stage_full[WIDE_STAGES], stage_empty[WIDE_STAGES];
u64 inputs, copiers; // barriers of a task's inputs, and of the copying warps
u32 groups; // the consumers count groups of units that others follow, when done with the memory
CopyList copies;                     // what the copying warps copy
u64 tile_at[AMK_PASSES][WIDE_UNITS]; // where the tiles of each pass over a unit are
u16 order[AMK_ROWS];                 // rows of the step whose logits are wanted,
u32 wanted;                          // and their number
// The places of caches' blocks in memory: barriers of copies, how many blocks have been laid out
// there so far, and by how many warps they have been read.
u64 cache_full[WIDE_STAGES];
u32 cache_ready[WIDE_STAGES], cache_read[WIDE_STAGES];
u32 cache_blocks; // of the tasks before
#if AMK_DEFERRED_NORMS
float column_scales[AMK_ROWS];               // of a projection whose input's norm is deferred
alignas(8) float norm_weights[MAX_STEP_OWN]; // of the deferred norm of a residual
#endif
#else
// fp32 residual of the rows this worker owns
alignas(8) float residual[AMK_ROWS * MAX_STEP_OWN > MAX_OWN_ROWS ? AMK_ROWS * MAX_STEP_OWN
                                                                 : MAX_OWN_ROWS];
#endif
// For attention.
#if AMK_ROWS && !AMK_WIDE
float row_squares[AMK_WARPS][(AMK_ROWS + 7) / 8 * 8];
float2 shares[32][8]; // maximum and sum, per share of a row and head
#endif
#if AMK_OWN_TURNS
float2 rope[1];
#elif AMK_ROWS
float2 rope[AMK_ROWS][AMK_TURNS]; // cos, sin of each row's position
#else
float2 rope[AMK_TURNS]; // cos, sin of this step's position, of all kinds of attention
#endif
alignas(16) u16 query[8 * (AMK_HEAD_DIM + QUERY_GAP)];
// The step's own key and value as a cache group; only position 0 is written. See `OwnGroup`.
alignas(16) u8 fresh[AMK_ROWS             ? 16
                     : AMK_HEAD_DIM > 128 ? AMK_HEAD_DIM * 12 + 16
                                          : AMK_HEAD_DIM * 64];
float2 running[AMK_WARPS][8]; // maximum and sum, per warp and head
// For the choice of a token.
float best_value[AMK_WARPS];
u32 best_index[AMK_WARPS];
float top_value[TOPS]; // running argmax of the logits: a place for each row pair of a group
u32 top_index[TOPS];
Search search;
Found found[AMK_WARPS];
