// Short convolutions for all rows of a step, a pair of channels of a row a thread. What the rows
// before it in the step append is their input, which all have.
#pragma once
#include "../linear/rows.cuh"
#include "fused.cuh"

#if AMK_ROWS && AMK_CONVS
AMK_DEVICE void convolve_rows(Worker& w, const Record& r) {
    const u32 pairs = r.units * AMK_UNIT / 2;
    for (u32 i = w.thread(); i < pairs * stored_rows(w); i += AMK_WARPS * 32) {
        const u32 row = i / pairs, pair = i % pairs, at = r.row / 2 + pair;
        u32* const to = pair_at(w, r.output, pair, row);
        if (row >= w.p.row_count) {
            put_word(w, to, 0, false);
            continue;
        }
        const u32 pos = w.s.rows[row].pos, pages = w.s.rows[row].pages;
        const auto inputs = [&](u32 before) {
            return inputs_at(w, w.p.page_tables + pages, r.layer, pos - before) + at;
        };
        PairOfSums sums(w, r, pair);
        u32 x = 0;
#pragma unroll
        for (u32 tap = 0; tap < AMK_TAPS; tap++) { // no branches around what waits
            const u32 before = min(AMK_TAPS - 1 - tap, pos);
            const bool here = row >= before && w.s.rows[row - before].pages == pages;
            const u32* of_step = pair_at(w, r.input, at, here ? row - before : row);
            x = read_word(w, here ? of_step : inputs(before));
            sums.add(tap, before == AMK_TAPS - 1 - tap ? x : 0);
        }
        store_relaxed_u32(inputs(0), x);
        const u32 gate = read_word(w, pair_at(w, r.aux, at, row));
        put_word(w, to, sums.times(gate), true);
    }
    w.sync(); // lanes went through the loop apart
}
#endif
