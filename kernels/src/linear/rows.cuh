// y = W x for all rows of a step, over the same tape as for one row.
//
// The two columns of B that a row needs (see fused.cuh) are an eighth of the lanes twice, so a set
// of four rows takes one product: lane l holds the input of row l / 8 and of the output the
// products of row l % 4. Each row has its own columns, partial sums and delivery, so its bits
// depend neither on other rows nor on their number.
#pragma once
#include "fused.cuh"

#if AMK_ROWS
constexpr u32 SETS = (AMK_ROWS + 3) / 4;
// Of the residual, per row of the step.
constexpr u32 OWN_ROWS =
    AMK_WIDE ? MAX_WIDE_OWN / AMK_ROWS / AMK_UNIT * AMK_UNIT : MAX_OWN_ROWS / (4 * SETS);
#endif

#if AMK_ROWS && !AMK_WIDE
static_assert(AMK_GROUP_UNITS * AMK_WARPS * SETS * 128 <= AMK_ROW_SCRATCH,
              "the partial sums must fit the scratch");

// The input of a row, of step rows that there are.
AMK_DEVICE const Elem* row_input(const Worker& w, const Record& r, const GemvShape& g, u32 row) {
    return g.input == IN_PACKETS ? (const Elem*)w.words(r.input, row)
                                 : w.p.embedding + (u64)w.s.rows[row].token * w.p.hidden;
}

// The input of a warp's tiles of a pass, as loaded. Rows and tiles that there are not are zeros.
template <int DEPTH> struct RowInputs {
    uint2 v[DEPTH][SETS], gamma[DEPTH];

    AMK_DEVICE void load(const Worker& w, const Record& r, const GemvShape& g, u32 first) {
        const u32 mine = g.tiles() - min(g.tiles(), first);
        const u32 k0 = first * AMK_TILE_K + 4 * (w.lane & 7);
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            const u32 row = 4 * set + (w.lane >> 3);
            const bool here = row < w.p.row_count;
            const Elem* from = row_input(w, r, g, here ? row : 0) + k0;
#pragma unroll
            for (u32 j = 0; j < DEPTH; j++) {
                v[j][set] = make_uint2(0, 0);
                if (here && j < mine)
                    v[j][set] = load_relaxed_one((const u64*)(from + j * AMK_TILE_K));
            }
        }
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            gamma[j] = make_uint2(BF16_ONES, BF16_ONES);
            if ((g.flags & GEMV_NORM) && j < mine)
                gamma[j] = *(const uint2*)(w.p.constants + r.norm + k0 + j * AMK_TILE_K);
        }
    }
    AMK_DEVICE void fragments(Fragment (&x)[DEPTH][SETS]) const {
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++)
#pragma unroll
            for (u32 set = 0; set < SETS; set++)
                x[j][set].b0 = multiply_bf16(v[j][set].x, gamma[j].x),
                x[j][set].b1 = multiply_bf16(v[j][set].y, gamma[j].y);
    }
    AMK_DEVICE void add_squares(float (&squares)[SETS]) const {
        const auto add = [](float& sum, u32 pair) {
            sum = fmaf(bf16_low(pair), bf16_low(pair), sum);
            sum = fmaf(bf16_high(pair), bf16_high(pair), sum);
        };
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++)
#pragma unroll
            for (u32 set = 0; set < SETS; set++)
                add(squares[set], v[j][set].x), add(squares[set], v[j][set].y);
    }
};

// Stores a warp's sums of squares, a row for each eighth of the lanes.
AMK_DEVICE void store_squares(Worker& w, float (&squares)[SETS]) {
#pragma unroll
    for (u32 set = 0; set < SETS; set++) {
#pragma unroll
        for (int m = 1; m <= 4; m *= 2) squares[set] += __shfl_xor_sync(~0u, squares[set], m);
        if ((w.lane & 7) == 0) w.s.row_squares[w.warp][4 * set + (w.lane >> 3)] = squares[set];
    }
}

// Multiplies a pass over a group of units. Sums of the first pass are stored, later ones added:
// each lane has its own place.
template <bool FIRST, int DEPTH, bool EVEN, class T>
AMK_DEVICE void times_rows(Worker& w, Blocks<DEPTH, EVEN, T>& blocks,
                           const Fragment (&x)[DEPTH][SETS], const float (&sums)[DEPTH][SETS],
                           u32 units) {
    u32 to = w.row_scratch() + (w.warp * SETS * 32 + w.lane) * 4, left = blocks.slot;
#pragma unroll 1
    for (u32 unit = 0; unit < units; unit++, to += AMK_WARPS * SETS * 128) {
        float y[SETS];
#pragma unroll
        for (u32 set = 0; set < SETS; set++)
            y[set] = T::product(
                blocks.a, [&](int j) { return x[j][set]; }, [&](int j) { return sums[j][set]; });
        if (unit + 1 == units)
            w.release();
        else if (--left)
            blocks.next(w);
        else
            w.release(), left = blocks.slot, blocks.enter(w);
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            if (!FIRST) y[set] += load_shared_one(to + set * 128);
            store_shared(to + set * 128, y[set], true);
        }
    }
}

// Sums the warps' shares of a group and delivers: a warp takes the sets of some units, each lane a
// row of the unit and a row of the step.
AMK_DEVICE void deliver_rows(Worker& w, const Record& r, const GemvShape& g, u32 first, u32 units) {
    const u32 set = w.warp % SETS, row = 4 * set + (w.lane & 3);
    const bool here = row < w.p.row_count;
    float sum = 0;
    if (g.flags & GEMV_NORM) {
#pragma unroll
        for (u32 warp = 0; warp < AMK_WARPS; warp++) sum += w.s.row_squares[warp][row];
    }
    const float scale = g.scale(sum, __fdividef(1.0f, g.k), w.p.eps);
    const u32 wanted = w.s.rows[row].wanted;
#pragma unroll 1
    for (u32 unit = w.warp / SETS; unit < units; unit += AMK_WARPS / SETS) {
        const u32 from = w.row_scratch() + ((unit * AMK_WARPS * SETS + set) * 32 + w.lane) * 4;
        float y = 0;
#pragma unroll
        for (u32 warp = 0; warp < AMK_WARPS; warp++) y += load_shared_one(from + warp * SETS * 128);
        y *= scale;
        const u32 at = (first + unit) * AMK_UNIT + (w.lane >> 2); // within the task
        if (g.output == OUT_LOGITS) {
#if AMK_MAPS
            if (g.function()) y = map_product(g.function(), y);
#endif
            if (here && wanted) w.p.logits[(u64)(wanted - 1) * w.p.logit_stride + r.row + at] = y;
            continue;
        }
        if (g.flags & GEMV_BIAS) y += constant(w.p.constants, r.bias + at);
        if (g.output == OUT_RESIDUAL) {
            float& held = w.s.residual[row * OWN_ROWS + at];
            y += held, held = y;
        }
#if AMK_MAPS
        if (g.output == OUT_STORE && g.function()) y = map_product(g.function(), y);
#endif
        u32 apart = 4;             // lanes between neighbouring elements
        if (g.output == OUT_GATED) // rows are (gate, up) pairs
            y = gate_products(g.function(), y, __shfl_down_sync(~0u, y, 4)), apart = 8;
        const float next = __shfl_down_sync(~0u, y, apart);
        if (here && (w.lane >> 2) % (apart / 2) == 0) {
            const u32 element = g.output == OUT_GATED ? at / 2 : at;
            *(u32*)((Elem*)w.words(r.output, row) + element) = pack_bf16(y, next);
        }
    }
}

// Runs a projection, DEPTH tiles per warp and pass.
template <int DEPTH, bool EVEN, class T> AMK_DEVICE void gemv_rows(Worker& w, const Record& r) {
    if (r.units == 0) return;
    const GemvShape g(r.shape);
    const GemvCut cut(g.k);
    RowInputs<DEPTH> input;
    input.load(w, r, g, w.warp * DEPTH);
    float squares[SETS] = {};
    Fragment x[DEPTH][SETS];
    float sums[DEPTH][SETS];
#pragma unroll 1
    for (u32 first = 0; first < r.units; first += AMK_GROUP_UNITS) {
        const u32 units = group_units(r, first);
        const bool last = first + units == r.units;
#pragma unroll 1
        for (u32 pass = 0; pass < cut.passes; pass++) {
            Blocks<DEPTH, EVEN, T> blocks;
            blocks.begin(w, cut.count(pass), units, T::named(w.lane));
            if (first == 0) input.add_squares(squares);
            input.fragments(x);
#pragma unroll
            for (u32 j = 0; j < DEPTH; j++) prepare_tiles<T>(x[j], sums[j]);
            if (first == 0 && pass == 0) w.stamp(TRACE_INPUTS);
            const bool ends = pass + 1 == cut.passes;
            if (cut.passes > 1 && !(last && ends))
                input.load(w, r, g, cut.first(ends ? 0 : pass + 1) + w.warp * DEPTH);
            if (pass == 0)
                times_rows<true>(w, blocks, x, sums, units);
            else
                times_rows<false>(w, blocks, x, sums, units);
        }
        if (first == 0 && (g.flags & GEMV_NORM)) store_squares(w, squares);
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        deliver_rows(w, r, g, first, units);
        // The next group reuses the scratch; so does the next task, which comes after a signal.
        if (!(last && r.signal)) w.sync();
    }
}
#endif
