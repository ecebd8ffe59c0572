// Runs the choice of rows' tokens (kernels/src/choose/rows.cuh) without a GPU. Standard input: cases of `rows vocab words`, then the words
// of the choices and their changes as the host has them, then the bits of the logits. Standard output: a line of words for each case, the
// token of each row.
#define AMK_WARPS 2
#include "coroutines.h"

#define AMK_UNIT 8
#define AMK_GROUP_UNITS 16
#define AMK_WIDE 0
#define AMK_PAGED 0
#define static_assert(...) extern int unused // sizes of a whole worker
constexpr int SCRATCH_FLOATS = 4352;
enum { TRACE_INPUTS };

// ---- the worker, as far as the code names it ----
struct Record { u32 units, row, input, output, partial, layer; };
struct RowWords { u32 wanted; };
#include "rows.inc"

int main() {
    u32 words;
    while (scanf("%u %u %u", &params.row_count, &params.vocab, &words) == 3) {
        std::vector<u64> choices((words + 1) / 2), logits(params.row_count * params.vocab / 2);
        for (u32 i = 0; i < words; i++)
            if (scanf("%u", (u32*)choices.data() + i) != 1) return 1;
        for (u32 i = 0; i < params.row_count * params.vocab; i++)
            if (scanf("%u", (u32*)logits.data() + i) != 1) return 1;
        std::vector<u32> chosen(params.row_count, 7);
        params.logits = (float*)logits.data(), params.logit_stride = params.vocab;
        params.choices = (const RowChoice*)choices.data(), params.chosen = chosen.data();
        // The logits of the rows lie in the opposite order.
        for (u32 i = 0; i < params.row_count; i++) shared.rows[i].wanted = params.row_count - i;
        run([](u32 thread) {
            Worker w = {params, shared, thread / 32, thread % 32, 0};
            choose_rows(w, {params.row_count, 0, 0, 0, 0, 0});
        });
        for (u32 i = 0; i < params.row_count; i++) printf("%u ", chosen[i]);
        printf("\n");
    }
}
