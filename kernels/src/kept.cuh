// For projections.
alignas(16) float squares[2][2 * AMK_WARPS];
float residual[MAX_OWN_ROWS]; // fp32 residual of the rows this worker owns
// For attention.
#if AMK_ROWS
float row_squares[AMK_WARPS][(AMK_ROWS + 3) / 4 * 4];
float2 rope[AMK_ROWS][MAX_HEAD_DIM / 2]; // cos, sin of each row's position
float2 shares[4 * AMK_ROWS][8];          // maximum and sum, per share of a row and head
#else
float2 rope[MAX_HEAD_DIM / 2]; // cos, sin of this step's position
#endif
alignas(16) u16 query[8 * QUERY_PITCH];
// The step's own key and value as a cache group; only position 0 is written.
alignas(16) u8 fresh[AMK_ROWS ? 16 : MAX_HEAD_DIM * 64];
float2 running[AMK_WARPS][8]; // maximum and sum, per warp and head
// For the choice of a token.
float best_value[AMK_WARPS];
u32 best_index[AMK_WARPS];
float top_value[TOPS]; // running argmax of the logits: a place for each row pair of a group
u32 top_index[TOPS];
Search search;
Found found[AMK_WARPS];
