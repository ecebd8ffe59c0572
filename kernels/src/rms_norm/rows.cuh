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

// Rows that a worker norms at a time, each by some of its warps.
constexpr u32 NORM_ROWS_EACH = (AMK_ROWS + AMK_WORKERS - 1) / AMK_WORKERS,
              NORM_TOGETHER = NORM_ROWS_EACH > 8   ? 16
                              : NORM_ROWS_EACH > 4 ? 8
                              : NORM_ROWS_EACH > 2 ? 4
                                                   : NORM_ROWS_EACH,
              NORM_SHARES = AMK_WARPS / NORM_TOGETHER;
// Pieces of a row that a thread requests together: it has many where it has few neighbours.
constexpr u32 NORM_PIECES = NORM_SHARES <= 2 ? 4 : 1;
static_assert(NORM_TOGETHER <= AMK_WARPS, "a warp has one row at a time");

// A thread's share of a row's vector: pieces of 16 bytes, four pairs each.
struct NormShare {
    const Worker& w;
    const Record& r;
    u32 row, first, pieces; // pieces: of the row, or 0 for a row that is not normed here

    AMK_DEVICE NormShare(const Worker& w, const Record& r, u32 row, u32 end)
        : w(w), r(r), row(row), first(w.warp % NORM_SHARES * 32 + w.lane),
          pieces(row < end ? (r.shape & NORM_LENGTH) / 8 : 0) {}
    AMK_DEVICE uint4 load(u32 piece) const {
        return load_relaxed((const u64*)piece_at(w, r.input, piece, row));
    }
    // Calls `f` with each piece's number and its words. So many pieces are requested together; if
    // several, all lanes of a warp go through the loop as often: else the compiler spills
    // registers.
    template <u32 TOGETHER, class F> AMK_DEVICE void each(F f) const {
        constexpr u32 APART = NORM_SHARES * 32;
#pragma unroll 1
        for (u32 piece = first; TOGETHER > 1 ? any(piece < pieces) : piece < pieces;
             piece += TOGETHER * APART) {
            const auto has = [&](u32 j) { return TOGETHER == 1 || piece + j * APART < pieces; };
            uint4 x[TOGETHER];
#pragma unroll
            for (u32 j = 0; j < TOGETHER; j++) {
                x[j] = make_uint4(0, 0, 0, 0);
                if (has(j)) x[j] = load(piece + j * APART);
            }
#pragma unroll
            for (u32 j = 0; j < TOGETHER; j++)
                if (has(j)) f(piece + j * APART, x[j]);
        }
    }
    // The sum of `f` of all words of the row. `buffer`: what the next sum may not use.
    template <class F> AMK_DEVICE float sum(Worker& w, u32 buffer, F f) const {
        float mine = 0;
        each<NORM_PIECES>(
            [&](u32, const uint4& x) { mine += (f(x.x) + f(x.y)) + (f(x.z) + f(x.w)); });
        mine = sum_of_warp(mine);
        if (w.lane == 0) w.s.squares[buffer][w.warp] = mine;
        w.sync();
        float all = 0;
#pragma unroll
        for (u32 i = 0; i < NORM_SHARES; i++)
            all += w.s.squares[buffer][w.warp / NORM_SHARES * NORM_SHARES + i];
        return all;
    }
};

// Norms whole vectors of a record's rows.
template <class N> AMK_DEVICE void norm_whole(Worker& w, const Record& r) {
    const u32 end = min(r.aux + r.units, w.p.row_count);
    const float of_len = __fdividef(1.0f, r.shape & NORM_LENGTH);
#pragma unroll 1
    for (u32 first = r.aux; first < end; first += NORM_TOGETHER) {
        const NormShare share(w, r, first + w.warp / NORM_SHARES, end);
        float mean = 0;
        if constexpr (N::centred())
            mean = of_len * share.sum(w, 1, [](u32 x) { return bf16_low(x) + bf16_high(x); });
        const float all = share.sum(w, 0, [&](u32 x) {
            const float a = N::apart(bf16_low(x), mean), b = N::apart(bf16_high(x), mean);
            return fmaf(a, a, b * b);
        });
        const float scale = rsqrt_fast(all * of_len + w.p.eps);
        share.template each<(NORM_PIECES + 1) / 2>([&](u32 piece, const uint4& x) {
            const auto normed = [&](u32 word, u32 n) {
                const u32 i = 2 * pair_of(piece, n);
                float2 y = make_float2(N::apart(bf16_low(word), mean) * scale *
                                           constant(w.p.constants, r.norm + i),
                                       N::apart(bf16_high(word), mean) * scale *
                                           constant(w.p.constants, r.norm + i + 1));
                if (N::centred() && (r.shape & NORM_BIASED))
                    y.x += constant(w.p.constants, r.bias + i),
                        y.y += constant(w.p.constants, r.bias + i + 1);
                return pack_bf16(y.x, y.y);
            };
            *piece_at(w, r.output, piece, share.row) =
                make_uint4(normed(x.x, 0), normed(x.y, 1), normed(x.z, 2), normed(x.w, 3));
        });
        w.sync(); // the next rows reuse the sums
    }
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
    for (u32 i = w.thread(); i < pairs * step_rows(r, stored_rows(w)); i += NORM_THREADS) {
        const u32 row = step_row(r) + i / pairs, pair = i % pairs, at = r.row + 2 * pair;
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
            float2& held = *(float2*)&held_at(w, row, 2 * pair);
            y.x += held.x, y.y += held.y, held = y;
        }
        put_word(w, to, pack_bf16(y.x, y.y), true);
    }
    w.sync(); // the next task reads the residual, or reuses the sums
}
#endif
