// Adds up the warps' partial sums of one row, with the addends of helpers, and delivers them.
#pragma once
#include "inputs.cuh"

// The delivery of a group of units: each thread sums a share of the warps' partials of a row pair,
// four lanes per pair. Everything that does not depend on the product is computed before, while the
// inputs are in flight; where codes take the registers, all but what takes few instructions.
struct Delivery {
    static constexpr bool LATE = AMK_CODED;
    u32 partial, squares; // shared addresses of its shares
    u32 row;              // within the task
    u64* to;
    float2 before; // the residual, unless it is late, or the bias
#if AMK_SUMMANDS
    float2 bias; // of what is added to the residual, or stored
#endif
    float part; // for the mean of squares: 1 / k
    u32 roles;  // of this lane, as bits in one register:
    // It has a row pair, publishes it, keeps it as the residual; publishes it as an addend, takes a
    // helper's addend.
    static constexpr u32 MINE = 1, PUBLISHES = 2, KEEPS = 4, GIVES = 8, TAKES = 16;

    // Whether this warp takes part in it.
    AMK_DEVICE static bool due(const Worker& w, u32 units) {
        return any(w.delivery_index() / 32 * 8 < units * 4);
    }
    AMK_DEVICE void prepare(const Worker& w, const Record& r, const GemvShape& g, u32 first_unit,
                            u32 units) {
        const u32 pair = w.delivery_index() >> 2, quarter = w.lane & 3;
        const bool mine = quarter == 0 && w.delivery_index() < units * 16;
        roles = mine ? MINE : 0;
        if (mine && g.output != OUT_LOGITS && !(g.output == OUT_GATED && w.lane & 4))
            roles |= PUBLISHES;
        if (mine && g.output == OUT_RESIDUAL) roles |= KEEPS;
        row = first_unit * AMK_UNIT + 2 * pair;
#if AMK_SPLIT_K
        if (r.op == OP_ADDENDS)
            roles = mine ? GIVES : 0;
        else if (pair + 4 >= units * 4 && pair < units * 4 && quarter < r.layer >> 8)
            roles |= TAKES;
#endif
        partial =
            shared_address(w.partial() + quarter * (AMK_WARPS / 4) * PARTIAL_PITCH + 2 * pair);
        squares = shared_address(w.s.squares[w.buffer] + quarter * (AMK_WARPS / 2));
        to = w.p.packets + (r.output + (g.output == OUT_GATED ? row / 2 : row) / AMK_PER_PACKET);
#if AMK_SPLIT_K
        if (r.op == OP_ADDENDS) to = w.p.packets + (r.output + row);
#endif
        before = make_float2(0, 0);
        if (!LATE && g.output == OUT_RESIDUAL)
            before = residual(w);
        else if (AMK_BIASES && !AMK_SUMMANDS && (g.flags & GEMV_BIAS))
            before = bias_of(w, r);
#if AMK_SUMMANDS
        bias = make_float2(0, 0);
        if (g.flags & GEMV_BIAS) bias = bias_of(w, r);
        asm volatile("" : "+f"(bias.x), "+f"(bias.y));
#endif
        part = __fdividef(1.0f, g.k);
        asm volatile("" : "+r"(partial), "+l"(to), "+r"(roles));
        if (!LATE || AMK_BIASES) asm volatile("" : "+f"(before.x), "+f"(before.y));
        if (!LATE) asm volatile("" : "+r"(squares), "+f"(part));
    }
    AMK_DEVICE float2 residual(const Worker& w) const {
        return *(const float2*)(w.s.residual + row);
    }
    AMK_DEVICE float2 bias_of(const Worker& w, const Record& r) const {
        return make_float2(constant(w.p.constants, r.bias + row),
                           constant(w.p.constants, r.bias + row + 1));
    }
    AMK_DEVICE void deliver(Worker& w, const Record& r, const GemvShape& g) const {
#if AMK_SPLIT_K
        const float2 addend = take_addend(w, r);
#endif
        float2 y = load_shared_pair(partial), v[AMK_WARPS / 4];
        const uint4 a = load_shared(squares), b = load_shared(squares + 16);
#pragma unroll
        for (int i = 1; i < AMK_WARPS / 4; i++)
            v[i] = load_shared_pair(partial + i * PARTIAL_PITCH * 4);
#pragma unroll
        for (int i = 1; i < AMK_WARPS / 4; i++) y.x += v[i].x, y.y += v[i].y;
#if AMK_SPLIT_K
        y.x += addend.x, y.y += addend.y;
#endif
        float sum = ((__uint_as_float(a.x) + __uint_as_float(a.y)) +
                     (__uint_as_float(a.z) + __uint_as_float(a.w))) +
                    ((__uint_as_float(b.x) + __uint_as_float(b.y)) +
                     (__uint_as_float(b.z) + __uint_as_float(b.w)));
#pragma unroll
        for (int m = 1; m <= 2; m *= 2) {
            y.x += __shfl_xor_sync(~0u, y.x, m), y.y += __shfl_xor_sync(~0u, y.y, m);
            sum += __shfl_xor_sync(~0u, sum, m);
        }
        if (AMK_EMBEDDING_SCALED || (g.flags & GEMV_NORM)) {
            float scale = g.scale(sum, part, w.p.eps);
#if AMK_SUMS
            if (any(g.is_sum())) scale = add_residual(w, y);
#endif
            y.x *= scale, y.y *= scale;
        }
        if (g.output == OUT_GATED) {
            const float h = gate_products(g.function(), y.x, y.y); // rows are (gate, up) pairs
            y = make_float2(h, __shfl_down_sync(~0u, h, 4));
        }
#if AMK_SUMMANDS
        y.x += bias.x, y.y += bias.y;
#else
        y.x += before.x, y.y += before.y;
#endif
#if AMK_MAPS
        if (any(g.output != OUT_GATED && g.function()))
            y = make_float2(map_product(g.function(), y.x), map_product(g.function(), y.y));
#endif
#if AMK_SUMMANDS
        y.x += before.x, y.y += before.y;
#endif
        if (LATE && (roles & KEEPS)) {
            const float2 held = residual(w);
            y.x += held.x, y.y += held.y;
        }
        if (roles & PUBLISHES) w.publish(to, pack_bf16(y.x, y.y));
#if AMK_SPLIT_K
        if (roles & GIVES)
            w.publish(to, __float_as_uint(y.x)), w.publish(to + 1, __float_as_uint(y.y));
#endif
        if (roles & KEEPS) *(float2*)(w.s.residual + row) = y;
        if ((roles & MINE) && g.output == OUT_LOGITS) logits(w, r, y);
    }
#if AMK_SPLIT_K
    // Waits for what a helper adds to this lane's row pair. Others take part in the votes. Warps of
    // other units publish before: what comes next reads this unit's packets too.
    AMK_DEVICE float2 take_addend(Worker& w, const Record& r) const {
        if (!any(roles & TAKES)) return make_float2(0, 0);
        const u32 pair = w.delivery_index() >> 2, quarter = w.lane & 3;
        const u32 at = r.partial + quarter * AMK_UNIT + 2 * (pair & 3);
        uint4 v = make_uint4(0, w.epoch, 0, w.epoch);
        do
            if (roles & TAKES) v = load_relaxed(w.p.packets + at);
        while (any((v.y ^ w.epoch | v.w ^ w.epoch) &&
                   w.missing(at + (v.y == w.epoch), v.y == w.epoch ? v.w : v.y)));
        return make_float2(__uint_as_float(v.x), __uint_as_float(v.z));
    }
#endif
#if AMK_SUMS
    // Turns products of the summand into the sum's, but for a factor, which is returned.
    AMK_DEVICE float add_residual(const Worker& w, float2& y) const {
        const u32 quarter = w.lane & 3;
        const u32 other = partial + (w.buffer ? -4 : 4) * SUM_FLOATS,
                  products = shared_address(w.s.squares[0]) + quarter * (AMK_WARPS / 4) * 16;
        float2 x = make_float2(0, 0);
        float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < AMK_WARPS / 4; i++) {
            const float2 v = load_shared_pair(other + i * PARTIAL_PITCH * 4);
            const uint4 its = load_shared(products + 16 * i);
            x.x += v.x, x.y += v.y;
            sums.x += __uint_as_float(its.x), sums.y += __uint_as_float(its.y);
            sums.z += __uint_as_float(its.z), sums.w += __uint_as_float(its.w);
        }
#pragma unroll
        for (int m = 1; m <= 2; m *= 2) {
            x.x += __shfl_xor_sync(~0u, x.x, m), x.y += __shfl_xor_sync(~0u, x.y, m);
            sums.x += __shfl_xor_sync(~0u, sums.x, m), sums.y += __shfl_xor_sync(~0u, sums.y, m);
            sums.z += __shfl_xor_sync(~0u, sums.z, m), sums.w += __shfl_xor_sync(~0u, sums.w, m);
        }
        const SumScale by(sums, part, w.p.eps);
        if (w.delivery_index() == 0) w.s.inner = by.inner;
        y = make_float2(fmaf(y.x, by.inner, x.x), fmaf(y.y, by.inner, x.y));
        return by.outer;
    }
#endif
    AMK_DEVICE void logits(Worker& w, const Record& r, float2 y) const {
        const u32 index = r.row + row, pair = w.delivery_index() >> 2;
        if (w.p.logits) *(float2*)(w.logits() + index) = y;
        if (!filtering(w)) consider(w, pair, y.x, index), consider(w, pair, y.y, index + 1);
    }
};
