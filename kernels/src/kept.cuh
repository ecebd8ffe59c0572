// For projections.
alignas(16) float squares[2][2 * AMK_WARPS];
float residual[MAX_OWN_ROWS]; // fp32 residual of the rows this worker owns
// For attention.
float2 rope[MAX_HEAD_DIM / 2]; // cos, sin of this step's position
alignas(16) u16 query[8 * QUERY_PITCH];
alignas(16) u8 fresh[MAX_HEAD_DIM * 64]; // the step's own key and value as a cache group; only
                                         // position 0 is written
float2 running[AMK_WARPS][8];            // maximum and sum, per warp and head
// For the choice of a token.
float best_value[AMK_WARPS];
u32 best_index[AMK_WARPS];
float top_value[TOPS]; // running argmax of the logits: a place for each row pair of a group
u32 top_index[TOPS];
Search search;
Found found[AMK_WARPS];
