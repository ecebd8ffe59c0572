// Sets the residual of the rows of the model that a worker owns, for all rows of a step.
#pragma once
#include "../linear/rows.cuh"

#if AMK_ROWS
// Calls `f` with a row of the step, the index of an own row, and its place in the residual.
template <class F> AMK_DEVICE void for_own(Worker& w, const Record& r, F f) {
    const u32 own = r.units * AMK_UNIT, rows = step_rows(r, w.p.row_count);
    for (u32 i = w.thread(); i < own * rows; i += AMK_WARPS * 32) {
        const u32 row = step_row(r) + i / own;
        f(row, i % own, held_at(w, row, i % own));
    }
    w.sync();
}
// Publishes the own rows of the residual.
AMK_DEVICE void publish_own(Worker& w, const Record& r) {
    const u32 pairs = r.units * AMK_UNIT / 2;
    for (u32 i = w.thread(); i < pairs * step_rows(r, stored_rows(w)); i += AMK_WARPS * 32) {
        const u32 row = step_row(r) + i / pairs, pair = i % pairs;
        const bool here = row < w.p.row_count;
        const float* own = &held_at(w, here ? row : 0, 2 * pair);
        put_word(w, pair_at(w, r.output, pair, row), pack_bf16(own[0], own[1]), here);
    }
}
template <bool PUBLISHED> AMK_DEVICE void embed_rows(Worker& w, const Record& r) {
    for_own(w, r, [&](u32 row, u32 i, float& to) {
        to = constant(w.p.embedding + (u64)w.s.rows[row].token * w.p.hidden, r.row + i) *
             AMK_EMBEDDING_SCALE;
    });
    if (PUBLISHED) publish_own(w, r);
}
AMK_DEVICE void adopt_rows(Worker& w, const Record& r) {
    for_own(w, r, [&](u32 row, u32 i, float& to) {
        const u32 at = r.row + i;
        const u32* from =
            r.shape ? pair_at(w, r.input, at / 2, row) : element_at(w, r.input, at, row);
        const u32 pair = read_word(w, from);
        to = !r.shape ? __uint_as_float(pair) : at % 2 ? bf16_high(pair) : bf16_low(pair);
    });
}
#endif
