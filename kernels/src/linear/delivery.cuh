// How a wide projection delivers a group of units: from shared memory where several teams share its
// sums, else from registers.
#pragma once
#include "stages.cuh"

#if AMK_WIDE
// Shared address of the columns' scales.
AMK_DEVICE u32 wide_scales(const Worker& w, const WideGroup& c) { return w.data + c.scales_at(); }

// Whether an output is a residual whose norm may be deferred.
template <u32 OUTPUT> constexpr bool HAS_SQUARES = AMK_DEFERRED_NORMS && OUTPUT == OUT_RESIDUAL;

#if AMK_DEFERRED_NORMS
// Whether the norm of a record's input is deferred: its products lack the norm's scale.
AMK_DEVICE bool lacks_scale(const Record& r, const GemvShape& g) {
    return r.more && g.output != OUT_RESIDUAL;
}
// Computes the scales of `count` columns from the squares of all parts of their rows: a warp adds
// up those of some columns, two a lane and load. `row_of`: the row of the step of a column.
template <class F>
AMK_DEVICE void scale_columns(Worker& w, const Record& r, const GemvShape& g, u32 count, F row_of) {
    constexpr u32 COLUMNS = (AMK_ROWS + AMK_WARPS - 1) / AMK_WARPS, LOADS = 3; // at once
    const u32 parts = r.norm;
    const float of_len = __fdividef(1.0f, g.k);
    float sum[COLUMNS] = {};
#pragma unroll 1
    for (u32 from = 0; from < parts; from += 64 * LOADS) {
        uint2 x[COLUMNS][LOADS];
        const auto part = [&](u32 j) { return from + 64 * j + 2 * w.lane; };
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++) {
            const u32 row = row_of(min(w.warp + i * AMK_WARPS, count - 1));
#pragma unroll
            for (u32 j = 0; j < LOADS; j++) {
                x[i][j] = make_uint2(0, 0);
                if (part(j) < parts)
                    x[i][j] = load_relaxed_one((const u64*)element_at(w, 0, r.more + part(j), row));
            }
        }
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++)
#pragma unroll
            for (u32 j = 0; j < LOADS; j++) {
                sum[i] += __uint_as_float(x[i][j].x);
                if (part(j) + 1 < parts) sum[i] += __uint_as_float(x[i][j].y);
            }
    }
#pragma unroll
    for (u32 m = 16; m > 0; m /= 2)
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++) sum[i] += __shfl_xor_sync(~0u, sum[i], m);
#pragma unroll
    for (u32 i = 0; i < COLUMNS; i++) {
        const u32 column = w.warp + i * AMK_WARPS;
        store_shared(shared_address(w.s.column_scales + column),
                     rsqrt_fast(sum[i] * of_len + w.p.eps), w.lane == 0 && column < count);
    }
}
// The weights of a record's deferred norm for two rows of the residual.
AMK_DEVICE float2 norm_weights(const Worker& w, const Record& r, u32 row) {
    if (!r.more) return make_float2(1, 1);
    return make_float2(constant(w.p.constants, r.norm + row),
                       constant(w.p.constants, r.norm + row + 1));
}
// Loads all of them, before the inputs of a task are there.
AMK_DEVICE void load_norm_weights(Worker& w, const Record& r) {
    const u32 row = 2 * w.thread();
    if (row < r.units * AMK_UNIT) *(float2*)(w.s.norm_weights + row) = norm_weights(w, r, row);
}
// Stores the sum of the squares that so many neighbouring lanes have of a row of the step, `here`
// if it has the row. They have all of a worker's part of the residual.
AMK_DEVICE void store_squares(const Worker& w, const Record& r, u32 lanes, u32 row, bool here,
                              float squares) {
    static_assert(AMK_ROWS <= HELD_IN_SHARED && MAX_STEP_OWN <= 64, "two elements a lane");
#pragma unroll 1
    for (u32 m = lanes / 2; m > 0; m /= 2) squares += __shfl_xor_sync(~0u, squares, m);
    if (here && r.more && (w.lane & (lanes - 1)) == 0)
        *(float*)element_at(w, 0, r.more, row) = squares;
}
#endif

// The sums of two neighbouring rows of the weights for a row of the step.
AMK_DEVICE float2 wide_pair(const Worker& w, const WideGroup& c, u32 column, u32 at, float scale) {
    float2 y = make_float2(0, 0);
    for (u32 share = 0; share < c.shares; share++) {
        const float2 more = load_shared_pair(w.data + c.scratch_at() +
                                             4 * ((share * c.columns + column) * c.pitch() + at));
        y.x += more.x, y.y += more.y;
    }
    return make_float2(y.x * scale, y.y * scale);
}

// Beside the outputs of a record's shape: sums of a share of the columns.
constexpr u32 OUT_SUMS = OUT_LOGITS + 1;
// Where the sums of units from `at` on are, for two neighbouring rows of the weights and a row of
// the step. Of each unit and row of the step they lie together.
AMK_DEVICE float* sums_at(const Worker& w, u32 at, u32 row, u32 of) {
    return (float*)(w.p.packets + (u64)at * AMK_ROWS) +
           (u64)(row / AMK_UNIT * AMK_ROWS + of) * AMK_UNIT + row % AMK_UNIT;
}

// What a record delivers for two neighbouring rows of its weights, from `row` on, and a column of
// the step, `of`, or one that is a multiple of 8 further.
template <u32 OUTPUT> struct PairOutput {
    const GemvShape& g;
    float2 bias = {};
    float* held = nullptr;  // the residual
    float* plain = nullptr; // logits or sums, as they are
    float2 weight = {1, 1}; // of the residual's norm, if it is deferred
    u64 stride = 0;         // from one column's to the next
    static constexpr bool PLAIN = OUTPUT == OUT_LOGITS || OUTPUT == OUT_SUMS;

    AMK_DEVICE PairOutput(Worker& w, const Record& r, const GemvShape& g, u32 row, u32 of) : g(g) {
        if (OUTPUT != OUT_SUMS && (g.flags & GEMV_BIAS))
            bias = make_float2(constant(w.p.constants, r.bias + row),
                               constant(w.p.constants, r.bias + row + 1));
        if (OUTPUT == OUT_RESIDUAL) held = &held_at(w, of, row);
        if (OUTPUT == OUT_SUMS) stride = AMK_UNIT, plain = sums_at(w, r.output, row, of);
        if (OUTPUT != OUT_LOGITS) return;
        stride = w.p.logit_stride, plain = w.p.logits + of * stride + r.row + row;
    }
    AMK_DEVICE float2 residual(u32 by) const { return *(const float2*)(held + by * HELD_APART); }
    // The elements of the products `y`, but for gates, which take pairs. `before`: the residual.
    AMK_DEVICE float2 finish(u32 by, float2 y, float2 before) const {
        if (OUTPUT != OUT_SUMS && (g.flags & GEMV_BIAS)) y.x += bias.x, y.y += bias.y;
#if AMK_MAPS
        const bool maps =
            OUTPUT == OUT_RESIDUAL ? AMK_SUMMANDS : OUTPUT != OUT_GATED && OUTPUT != OUT_SUMS;
        if (maps && g.function())
            y = make_float2(map_product(g.function(), y.x), map_product(g.function(), y.y));
#endif
        if (OUTPUT == OUT_RESIDUAL) {
            y.x += before.x, y.y += before.y;
            *(float2*)(held + by * HELD_APART) = y;
        }
        if (PLAIN) *(float2*)(plain + by * stride) = y;
        return y;
    }
    // The word that is published of the elements.
    AMK_DEVICE u32 word(float2 y) const {
        return HAS_SQUARES<OUTPUT> ? pack_bf16(y.x * weight.x, y.y * weight.y)
                                   : pack_bf16(y.x, y.y);
    }
    // Rows are (gate, up) pairs.
    AMK_DEVICE float gated(float2 y) const { return gate_products(g.function(), y.x, y.y); }
};
// Words from the output of one column to the next.
constexpr u32 COLUMN_WORDS = LINE / 4;

// Adds the shares and delivers, two elements a thread: lanes have neighbouring pairs of a column.
// Where they add up squares, all lanes of a warp go through the loops as often.
template <u32 OUTPUT>
AMK_DEVICE void deliver_shares(Worker& w, const Record& r, const GemvShape& g, const WideGroup& c) {
    // Residuals that are loaded together. The code of a group runs once: it would rather be short.
    constexpr u32 AT_ONCE = OUTPUT == OUT_RESIDUAL && AMK_ROWS > HELD_IN_SHARED ? 4 : 1;
    constexpr bool GATED = OUTPUT == OUT_GATED, SQUARES = HAS_SQUARES<OUTPUT>;
    const u32 each = GATED ? 4 : 2, pairs = c.units * AMK_UNIT / each,
              log = min(32u - __clz(pairs - 1), 5u), apart = THREADS >> log,
              own = w.thread() >> log;
    for (u32 pair = w.lane & ((1 << log) - 1); SQUARES ? any(pair < pairs) : pair < pairs;
         pair += 1 << log) {
        const u32 at = (SQUARES ? min(pair, pairs - 1) : pair) * each,
                  row = c.first * AMK_UNIT + at, of = c.column + own;
        PairOutput<OUTPUT> output(w, r, g, row, of);
#if AMK_DEFERRED_NORMS
        if (SQUARES) output.weight = *(const float2*)(w.s.norm_weights + row);
#endif
        u32* to = output.PLAIN ? nullptr : pair_at(w, r.output, row / each, of);
#pragma unroll 1
        for (u32 first = 0; (SQUARES ? 0 : own) + first < c.columns; first += AT_ONCE * apart) {
            float2 held[AT_ONCE] = {};
            const auto here = [&](u32 j) {
                return own + first + j * apart < c.columns && (!SQUARES || pair < pairs);
            };
            if (OUTPUT == OUT_RESIDUAL)
#pragma unroll
                for (u32 j = 0; j < AT_ONCE; j++)
                    if (here(j)) held[j] = output.residual(first + j * apart);
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++) {
                if (!SQUARES && !here(j)) break;
                const u32 by = first + j * apart, column = own + by;
                float2 y = make_float2(0, 0);
                if (here(j)) {
                    const float scale = load_shared_one(wide_scales(w, c) + 4 * column);
                    y = output.finish(by, wide_pair(w, c, column, at, scale), held[j]);
                    if (GATED)
                        y = make_float2(output.gated(y),
                                        output.gated(wide_pair(w, c, column, at + 2, scale)));
                    if (!output.PLAIN) to[by * COLUMN_WORDS] = output.word(y);
                }
#if AMK_DEFERRED_NORMS
                if (SQUARES)
                    store_squares(w, r, 1 << log, c.column + column, column < c.columns,
                                  fmaf(y.x, y.x, y.y * y.y));
#endif
            }
        }
    }
}

// Delivers a warp's sums from its registers. Lanes that have neighbouring rows of two columns
// exchange sums, so that each has two rows of a column.
template <u32 COLUMNS> struct WideDelivery {
    static constexpr u32 AT_ONCE = 4; // eights of columns whose residuals are loaded together
    Worker& w;
    const Record& r;
    const GemvShape& g;
    const WideGroup& c;
    u32 unit; // the first of two

    template <u32 OUTPUT> AMK_DEVICE void deliver(float (&d)[COLUMNS / 8][4]) const {
        // This lane's column of each eight, and its first row of each unit.
        const u32 column = 2 * (w.lane & 3) + (w.lane >> 2 & 1), of = c.column + column,
                  row = (c.first + unit) * AMK_UNIT + (w.lane >> 3) * 2;
        const bool second = unit + 1 < c.units;
        const PairOutput<OUTPUT> one(w, r, g, row, of),
            two(w, r, g, row + (second ? AMK_UNIT : 0), of);
        // The lanes of later rows store for the second unit.
        constexpr bool GATED = OUTPUT == OUT_GATED;
        const bool later = w.lane & (GATED ? 8 : 16);
        const u32 pair = GATED ? (row - (later ? 2 : 0)) / 4 : row / 2;
        u32* to = one.PLAIN ? nullptr : pair_at(w, r.output, pair + (later ? 2 : 0), of);
        const float scale = g.scale(0, 0, 0);
        const u32 stored = later && !second ? 0 : c.columns;
#pragma unroll 1
        for (u32 first = 0; first < c.columns; first += 8 * AT_ONCE) {
            float2 held[AT_ONCE][2] = {};
            if (OUTPUT == OUT_RESIDUAL)
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++)
                    if (column + first + 8 * i < c.columns)
                        held[i][0] = one.residual(first + 8 * i),
                        held[i][1] = two.residual(first + 8 * i);
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                const u32 by = first + 8 * i;
                const bool here = column + by < c.columns;
                float2 y = two_rows(d[i][0], d[i][1], scale), z = two_rows(d[i][2], d[i][3], scale);
                if (here) y = one.finish(by, y, held[i][0]);
                if (here && second) z = two.finish(by, z, held[i][1]);
                if (one.PLAIN) continue;
                const bool stores = column + by < stored;
                if (GATED) {
                    const float a = one.gated(y), b = one.gated(z),
                                got = __shfl_xor_sync(~0u, later ? a : b, 8);
                    const u32 word = later ? pack_bf16(got, b) : pack_bf16(a, got);
                    if (stores) to[by * COLUMN_WORDS] = word;
                } else { // pairs that are two apart are neighbours in the memory
                    const u32 a = pack_bf16(y.x, y.y), b = pack_bf16(z.x, z.y),
                              got = __shfl_xor_sync(~0u, later ? a : b, 16);
                    const uint2 words = later ? make_uint2(got, b) : make_uint2(a, got);
                    if (stores) *(uint2*)(to + by * COLUMN_WORDS) = words;
                }
            }
#pragma unroll
            for (u32 b = 0; b + AT_ONCE < COLUMNS / 8; b++)
#pragma unroll
                for (u32 k = 0; k < 4; k++) d[b][k] = d[b + AT_ONCE][k];
        }
    }
    // The sums of two rows and this lane's column, from the lanes that have a row and two columns.
    AMK_DEVICE float2 two_rows(float even, float odd, float scale) const {
        const bool upper = w.lane & 4;
        const float got = __shfl_xor_sync(~0u, upper ? even : odd, 4);
        return make_float2((upper ? got : even) * scale, (upper ? odd : got) * scale);
    }
};

template <u32 OUTPUT> struct OutputKind {
    static constexpr u32 kind = OUTPUT;
};
// Calls `f` with the kind of a record's output.
template <class F> AMK_DEVICE void by_output(const GemvShape& g, F f) {
#if AMK_SHARED_COLUMNS
    if (g.input == IN_SHARE) return f(OutputKind<OUT_SUMS>());
#endif
    if (g.output == OUT_GATED)
        f(OutputKind<OUT_GATED>());
    else if (g.output == OUT_RESIDUAL)
        f(OutputKind<OUT_RESIDUAL>());
    else if (g.output == OUT_LOGITS)
        f(OutputKind<OUT_LOGITS>());
    else
        f(OutputKind<OUT_STORE>());
}

#if AMK_SHARED_COLUMNS
// Adds up what others have multiplied, each some columns, and delivers four rows a thread. Where
// they add up squares, all lanes of a warp go through the loops as often.
template <u32 OUTPUT> AMK_DEVICE void reduce_to(Worker& w, const Record& r, const GemvShape& g) {
    constexpr u32 AT_ONCE = 4; // shares that are loaded together
    constexpr bool SQUARES = HAS_SQUARES<OUTPUT>;
    const u32 quads = r.units * AMK_UNIT / 4, log = min(32u - __clz(quads - 1), 5u),
              apart = THREADS >> log, own = w.thread() >> log, of = step_row(r) + own,
              rows = step_rows(r, w.p.row_count);
    const u64 share = (u64)r.partial * AMK_ROWS; // floats of one
#if AMK_DEFERRED_NORMS
    const bool scales = any(lacks_scale(r, g));
    if (scales) {
        scale_columns(w, r, g, w.p.row_count, [](u32 column) { return column; });
        w.sync();
    }
#endif
    for (u32 quad = w.lane & ((1 << log) - 1); SQUARES ? any(quad < quads) : quad < quads;
         quad += 1 << log) {
        const u32 row = 4 * (SQUARES ? min(quad, quads - 1) : quad);
        PairOutput<OUTPUT> one(w, r, g, row, of), two(w, r, g, row + 2, of);
#if AMK_DEFERRED_NORMS
        if (SQUARES) one.weight = norm_weights(w, r, row), two.weight = norm_weights(w, r, row + 2);
#endif
        u32 *first = pair_at(w, r.output, row / 2, of),
            *second = pair_at(w, r.output, row / 2 + 1, of);
        const float* from = sums_at(w, r.input, row, of);
#pragma unroll 1
        for (u32 by = 0; (SQUARES ? 0 : own) + by < rows; by += apart) {
            const bool here = !SQUARES || (own + by < rows && quad < quads);
            float2 y = make_float2(0, 0), z = make_float2(0, 0);
            const float* next = from + by * AMK_UNIT;
#pragma unroll 1
            for (u32 i = 0; here && i < r.aux; i += AT_ONCE, next += AT_ONCE * share) {
                uint4 v[AT_ONCE];
#pragma unroll
                for (u32 j = 0; j < AT_ONCE; j++) {
                    v[j] = make_uint4(0, 0, 0, 0);
                    if (i + j < r.aux) v[j] = load_relaxed((const u64*)(next + j * share));
                }
#pragma unroll
                for (u32 j = 0; j < AT_ONCE; j++) {
                    y.x += __uint_as_float(v[j].x), y.y += __uint_as_float(v[j].y);
                    z.x += __uint_as_float(v[j].z), z.y += __uint_as_float(v[j].w);
                }
            }
#if AMK_DEFERRED_NORMS
            if (OUTPUT != OUT_RESIDUAL && scales) {
                const float scale = w.s.column_scales[own + by];
                y.x *= scale, y.y *= scale, z.x *= scale, z.y *= scale;
            }
#endif
            if (here) {
                constexpr bool ADDS = OUTPUT == OUT_RESIDUAL;
                y = one.finish(by, y, ADDS ? one.residual(by) : make_float2(0, 0));
                z = two.finish(by, z, ADDS ? two.residual(by) : make_float2(0, 0));
                first[by * COLUMN_WORDS] = one.word(y);
                second[by * COLUMN_WORDS] = two.word(z);
            }
#if AMK_DEFERRED_NORMS
            if (SQUARES)
                store_squares(w, r, 1 << log, of + by, own + by < rows,
                              fmaf(y.x, y.x, y.y * y.y) + fmaf(z.x, z.x, z.y * z.y));
#endif
        }
    }
    w.sync(); // the next task reads the residual
}
AMK_DEVICE void reduce(Worker& w, const Record& r) {
    const GemvShape g(r.shape);
    if (g.output == OUT_RESIDUAL)
        reduce_to<OUT_RESIDUAL>(w, r, g);
    else
        reduce_to<OUT_STORE>(w, r, g);
}
#endif
#endif
