// Norms of vectors of the rows of a step. In a narrow step a worker reads the vectors of all rows
// and delivers its part of each, as with one row. In a wide step that would be too much to read: a
// worker has whole vectors of some rows, and another task adds the results to the residual.
#pragma once
#include "../linear/wide.cuh"
#include "fused.cuh"

#if AMK_ROWS
constexpr u32 NORM_THREADS = AMK_WARPS * 32;

#if AMK_WIDE
template <class N> AMK_DEVICE NormScale row_scale(const Worker&, const Record&, u32) {
    return {0, 1}; // see `norm_whole`
}

// The sum of all threads' values. `buffer`: what the next sum may not use.
AMK_DEVICE float sum_of_worker(Worker& w, float sum, u32 buffer) {
    sum = sum_of_warp(sum);
    if (w.lane == 0) w.s.squares[buffer][w.warp] = sum;
    w.sync();
    float all = 0;
    for (u32 warp = 0; warp < AMK_WARPS; warp++) all += w.s.squares[buffer][warp];
    return all;
}

// Norms whole vectors of a record's rows, one after the other.
template <class N> AMK_DEVICE void norm_whole(Worker& w, const Record& r) {
    const u32 len = N::centred() ? r.shape & NORM_LENGTH : r.shape, pairs = len / 2,
              end = min(r.aux + r.units, w.p.row_count);
#pragma unroll 1
    for (u32 row = r.aux; row < end; row++) {
        float sum = 0, mean = 0;
        if constexpr (N::centred()) {
            for (u32 i = w.thread(); i < pairs; i += NORM_THREADS) {
                const u32 x = load_relaxed_u32(pair_at(w, r.input, i, row));
                sum += bf16_low(x) + bf16_high(x);
            }
            mean = sum_of_worker(w, sum, 1) * __fdividef(1.0f, len), sum = 0;
        }
        for (u32 i = w.thread(); i < pairs; i += NORM_THREADS) {
            const u32 x = load_relaxed_u32(pair_at(w, r.input, i, row));
            if constexpr (N::centred()) {
                const float a = bf16_low(x) - mean, b = bf16_high(x) - mean;
                sum += fmaf(a, a, b * b);
            } else
                sum += square_of(x);
        }
        const float all = sum_of_worker(w, sum, 0);
        const float scale = rsqrt_fast(all * __fdividef(1.0f, len) + w.p.eps);
        for (u32 i = w.thread(); i < pairs; i += NORM_THREADS) {
            const u32 x = load_relaxed_u32(pair_at(w, r.input, i, row));
            float2 y = make_float2(
                N::apart(bf16_low(x), mean) * scale * constant(w.p.constants, r.norm + 2 * i),
                N::apart(bf16_high(x), mean) * scale * constant(w.p.constants, r.norm + 2 * i + 1));
            if (N::centred() && (r.shape & NORM_BIASED))
                y.x += constant(w.p.constants, r.bias + 2 * i),
                    y.y += constant(w.p.constants, r.bias + 2 * i + 1);
            *pair_at(w, r.output, i, row) = pack_bf16(y.x, y.y);
        }
        w.sync(); // the next row reuses the sums
    }
    fence_copies(); // other workers copy what was stored
}
#else
constexpr u32 ROW_SHARES = AMK_WARPS / (4 * SETS); // warps of a row

// Four words of a row's vector, once they are there.
AMK_DEVICE uint4 row_words(const Worker& w, const Record& r, u32 row, u32 load) {
    const u64* from = w.words(r.input, row) + 2 * load;
    uint4 x = load_relaxed(from);
#if AMK_ROW_PACKETS
    while ((x.x == ABSENT || x.y == ABSENT || x.z == ABSENT || x.w == ABSENT) &&
           w.lacks((const u32*)from))
        x = load_relaxed(from);
#endif
    return x;
}
// Stores the shares of the rows' vectors, each of some warps.
template <class N> AMK_DEVICE void row_shares(Worker& w, const Record& r) {
    const u32 row = w.warp / ROW_SHARES, share = w.warp % ROW_SHARES,
              loads = (r.shape & NORM_LENGTH) / 8;
    float sum = 0;
    Moments moments;
    if (any(row < w.p.row_count)) {
#pragma unroll 4
        for (u32 i = share * 32 + w.lane; i < loads; i += ROW_SHARES * 32) {
            const uint4 x = row_words(w, r, row, i);
            if constexpr (N::centred()) {
                const u32 pair[4] = {x.x, x.y, x.z, x.w};
                moments.join(Moments::of(pair, 4));
            } else
                sum += (square_of(x.x) + square_of(x.y)) + (square_of(x.z) + square_of(x.w));
        }
    }
    if constexpr (N::centred()) {
        moments.join_warp();
        if (w.lane == 0)
            w.s.row_squares[2 * share][row] = moments.mean,
                                w.s.row_squares[2 * share + 1][row] = moments.squares;
    } else {
        sum = sum_of_warp(sum);
        if (w.lane == 0) w.s.row_squares[share][row] = sum;
    }
    w.sync();
}
template <class N> AMK_DEVICE NormScale row_scale(const Worker& w, const Record& r, u32 row) {
    if (!(r.shape & NORM_COMPUTED)) return {0, 1};
    if constexpr (N::centred())
        return Centred::join<ROW_SHARES>(w, r, 8, [&](u32 share) {
            return make_float2(w.s.row_squares[2 * share][row],
                               w.s.row_squares[2 * share + 1][row]);
        });
    float sum = 0;
#pragma unroll
    for (u32 share = 0; share < ROW_SHARES; share++) sum += w.s.row_squares[share][row];
    return {0, norm_scale(w, r, sum)};
}
#endif

// Delivers a worker's part of the vectors of all rows, two elements a thread.
template <class N> AMK_DEVICE void norm_rows(Worker& w, const Record& r) {
    const u32 pairs = r.units * AMK_UNIT / 2;
    const bool computed = r.shape & NORM_COMPUTED, added = r.shape & NORM_ADDED;
#if !AMK_WIDE
    if (any(computed)) row_shares<N>(w, r);
#endif
    for (u32 i = w.thread(); i < pairs * stored_rows(w); i += NORM_THREADS) {
        const u32 row = i / pairs, pair = i % pairs, at = r.row + 2 * pair;
        u32* const to = pair_at(w, r.output, pair, row);
        if (row >= w.p.row_count) {
            put_word(w, to, 0, false);
            continue;
        }
        const u32 x = read_word(w, pair_at(w, r.input, at / 2, row));
        const NormScale by = row_scale<N>(w, r, row);
        float2 y = make_float2(N::apart(bf16_low(x), by.mean) * by.scale,
                               N::apart(bf16_high(x), by.mean) * by.scale);
        if (computed)
            y.x *= constant(w.p.constants, r.norm + at),
                y.y *= constant(w.p.constants, r.norm + at + 1);
        if (N::centred() && (r.shape & NORM_BIASED))
            y.x += constant(w.p.constants, r.bias + at),
                y.y += constant(w.p.constants, r.bias + at + 1);
        if (added) {
            float2& held = *(float2*)(w.s.residual + row * OWN_ROWS + 2 * pair);
            y.x += held.x, y.y += held.y, held = y;
        }
        put_word(w, to, pack_bf16(y.x, y.y), true);
    }
#if AMK_WIDE
    fence_copies(); // other workers copy what was stored
#endif
    w.sync(); // the next task reads the residual, or reuses the sums
}
#endif
