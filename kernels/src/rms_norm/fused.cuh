// A part of the norm of a vector that comes in packets, stored or added to the residual. Every
// worker reads the whole vector, as the one hop that is needed is then the only one.
#pragma once
#include "../linear/fused.cuh"

// What is subtracted from all elements of a vector, and what they are multiplied by.
struct NormScale {
    float mean, scale;
};

// The two rows of a group that a thread delivers: the ones whose residual it holds.
template <class N> struct NormPair {
    u32 row, packet; // within the part; of the vector
    bool own;
    uint2 value;
    float2 gamma, before;

    AMK_DEVICE NormPair(const Worker& w, const Record& r, u32 first) {
        constexpr u32 GROUP = AMK_GROUP_UNITS * AMK_UNIT;
        row = first + w.delivery_index() / 2;
        own = w.delivery_index() < 2 * GROUP && !(w.lane & 3) && row < r.units * AMK_UNIT;
        if (!own) row = 0;
        packet = r.input + (r.row + row) / AMK_PER_PACKET;
        value = make_uint2(0, w.epoch);
        if (any(own)) ask(w);
        gamma = make_float2(1, 1), before = make_float2(0, 0);
        if (r.shape & NORM_COMPUTED)
            gamma = make_float2(constant(w.p.constants, r.norm + r.row + row),
                                constant(w.p.constants, r.norm + r.row + row + 1));
        if (own && (r.shape & NORM_ADDED)) before = *(const float2*)(w.s.residual + row);
        if (N::centred() && (r.shape & NORM_BIASED))
            before.x += constant(w.p.constants, r.bias + r.row + row),
                before.y += constant(w.p.constants, r.bias + r.row + row + 1);
    }
    AMK_DEVICE void ask(const Worker& w) { value = load_relaxed_one(w.p.packets + packet); }
    AMK_DEVICE bool late(const Worker& w) const { return value.y != w.epoch; }
    AMK_DEVICE void deliver(Worker& w, const Record& r, NormScale by) {
        while (any(late(w) && w.missing(packet, value.y))) ask(w);
        const float2 y =
            make_float2(fmaf(N::apart(bf16_low(value.x), by.mean) * by.scale, gamma.x, before.x),
                        fmaf(N::apart(bf16_high(value.x), by.mean) * by.scale, gamma.y, before.y));
        if (own) w.publish(r.output + row / AMK_PER_PACKET, pack_bf16(y.x, y.y));
        if (own && (r.shape & NORM_ADDED)) *(float2*)(w.s.residual + row) = y;
    }
};

AMK_DEVICE float square_of(u32 pair) {
    return fmaf(bf16_low(pair), bf16_low(pair), bf16_high(pair) * bf16_high(pair));
}

#define NORM_HELD 2 // loads of two packets of a vector that a thread has at a time

// Loads of a vector, of `each` elements.
AMK_DEVICE u32 norm_loads(const Record& r, u32 each) { return (r.shape & NORM_LENGTH) / each; }

// Calls `add` with a thread's share of a vector, as its packets come, and the load it begins with.
// Past the end are zeros. Waits for the pair as well: it would cost a load after the last packet.
template <class P, class F>
AMK_DEVICE void read_vector(Worker& w, const Record& r, P& pair, F add) {
    constexpr int HELD = NORM_HELD;
    const u32 loads = norm_loads(r, 2 * AMK_PER_PACKET);
#pragma unroll 1
    for (u32 first = w.thread(); any(first < loads); first += HELD * AMK_WARPS * 32) {
        uint4 v[HELD];
        const auto at = [&](u32 j) { return r.input + 2 * (first + j * (AMK_WARPS * 32)); };
        const auto load = [&](u32 j) { return load_relaxed(w.p.packets + at(j)); };
        const auto late = [&](u32 j) { return (v[j].y ^ w.epoch) | (v[j].w ^ w.epoch); };
#pragma unroll
        for (u32 j = 0; j < HELD; j++) {
            v[j] = make_uint4(0, w.epoch, 0, w.epoch);
            if (first + j * (AMK_WARPS * 32) < loads) v[j] = load(j);
        }
        const Timed timed(w.late);
        for (;;) {
            u32 found = pair.value.y, where = pair.packet; // the last late packet
#pragma unroll
            for (u32 j = 0; j < HELD; j++)
                if (late(j)) {
                    const bool second = v[j].y == w.epoch;
                    found = second ? v[j].w : v[j].y, where = at(j) + second;
                }
            if (!any(found != w.epoch) || !any(w.missing(where, found))) break;
#pragma unroll
            for (u32 j = 0; j < HELD; j++)
                if (late(j)) v[j] = load(j);
            if (any(pair.late(w))) pair.ask(w);
        }
        add(v, first);
    }
}

AMK_DEVICE float sum_of_warp(float sum) {
#pragma unroll
    for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
    return sum;
}

// The factor of a sum of squares of a vector's elements, or of their distances from the mean.
AMK_DEVICE float norm_scale(const Worker& w, const Record& r, float squares) {
    return rsqrt_fast(squares * __fdividef(1.0f, r.shape & NORM_LENGTH) + w.p.eps);
}

// By the root of the mean square. A warp's share of a vector is a sum of squares.
struct RootMean {
    AMK_DEVICE static constexpr bool centred() { return false; }
    AMK_DEVICE static float apart(float x, float) { return x; }

    // Stores a warp's share in shared memory.
    template <class P> AMK_DEVICE static void share(Worker& w, const Record& r, P& pair, u32 to) {
        float mine = 0;
        read_vector(w, r, pair, [&](const uint4(&v)[NORM_HELD], u32) {
#pragma unroll
            for (u32 j = 0; j < NORM_HELD; j++) mine += square_of(v[j].x) + square_of(v[j].z);
        });
        const float sum = sum_of_warp(mine);
        w.stamp(TRACE_INPUTS);
        store_shared(to + 4 * w.warp, sum, w.lane == 0);
    }
    AMK_DEVICE static NormScale of(const Worker& w, const Record& r, u32 shares) {
        float all = 0;
#pragma unroll
        for (u32 warp = 0; warp < AMK_WARPS; warp++) all += load_shared_one(shares + 4 * warp);
        return {0, norm_scale(w, r, all)};
    }
};

// The mean of some elements, and the sum of the squares of their distances from it: the difference
// of two sums would lose all digits where the mean is large.
struct Moments {
    float count = 0, mean = 0, squares = 0;

    // Those of `count` pairs; behind them are zeros.
    template <u32 MOST> AMK_DEVICE static Moments of(const u32 (&pair)[MOST], u32 count) {
        Moments m;
        m.count = 2 * count;
#pragma unroll
        for (u32 i = 0; i < MOST; i++) m.mean += bf16_low(pair[i]) + bf16_high(pair[i]);
        if (count) m.mean = __fdividef(m.mean, m.count);
#pragma unroll
        for (u32 i = 0; i < MOST; i++) {
            const float a = bf16_low(pair[i]) - m.mean, b = bf16_high(pair[i]) - m.mean;
            if (i < count) m.squares += fmaf(a, a, b * b);
        }
        return m;
    }
    AMK_DEVICE void join(const Moments& its) {
        if (its.count == 0) return;
        const float all = count + its.count, part = __fdividef(its.count, all),
                    apart = its.mean - mean;
        mean = fmaf(apart, part, mean), count = all;
        squares += its.squares + apart * apart * its.count * (1 - part);
    }
    // Joins the sums of all lanes.
    AMK_DEVICE void join_warp() {
        const float all = sum_of_warp(count), sum = sum_of_warp(count * mean),
                    common = all > 0 ? __fdividef(sum, all) : 0, apart = mean - common;
        squares = sum_of_warp(fmaf(count * apart, apart, squares));
        mean = common, count = all;
    }
};

// The elements that the lanes of warp `share` of `shares` have of a vector's loads, dealt in turn.
AMK_DEVICE float share_of_vector(u32 loads, u32 each, u32 share, u32 shares) {
    const u32 round = 32 * shares, rest = loads % round, before = 32 * share;
    return each * (loads / round * 32 + min(rest - min(rest, before), 32u));
}

// By the distance from the mean. A warp's share of a vector is its moments.
struct Centred {
    AMK_DEVICE static constexpr bool centred() { return true; }
    AMK_DEVICE static float apart(float x, float mean) { return x - mean; }

    template <class P> AMK_DEVICE static void share(Worker& w, const Record& r, P& pair, u32 to) {
        const u32 loads = norm_loads(r, 2 * AMK_PER_PACKET);
        Moments mine;
        read_vector(w, r, pair, [&](const uint4(&v)[NORM_HELD], u32 first) {
            u32 values[2 * NORM_HELD], count = 0;
#pragma unroll
            for (u32 j = 0; j < NORM_HELD; j++) {
                values[2 * j] = v[j].x, values[2 * j + 1] = v[j].z;
                if (first + j * (AMK_WARPS * 32) < loads) count += 2;
            }
            mine.join(Moments::of(values, count));
        });
        mine.join_warp();
        w.stamp(TRACE_INPUTS);
        store_shared(to + 8 * w.warp, mine.mean, w.lane == 0);
        store_shared(to + 8 * w.warp + 4, mine.squares, w.lane == 0);
    }
    // Of all shares, the mean and the squares of which `part` loads.
    template <u32 SHARES, class F>
    AMK_DEVICE static NormScale join(const Worker& w, const Record& r, u32 each, F part) {
        const u32 loads = norm_loads(r, each);
        float sum = 0, squares = 0;
#pragma unroll
        for (u32 i = 0; i < SHARES; i++) sum += share_of_vector(loads, each, i, SHARES) * part(i).x;
        const float mean = sum * __fdividef(1.0f, r.shape & NORM_LENGTH);
#pragma unroll
        for (u32 i = 0; i < SHARES; i++) {
            const float2 its = part(i);
            const float apart = its.x - mean;
            squares += fmaf(share_of_vector(loads, each, i, SHARES) * apart, apart, its.y);
        }
        return {mean, norm_scale(w, r, squares)};
    }
    AMK_DEVICE static NormScale of(const Worker& w, const Record& r, u32 shares) {
        return join<AMK_WARPS>(w, r, 2 * AMK_PER_PACKET,
                               [&](u32 warp) { return load_shared_pair(shares + 8 * warp); });
    }
};

// One copy of the code for all groups of rows: a layer's code must fit the instruction cache.
template <class N> AMK_DEVICE void norm(Worker& w, const Record& r) {
    constexpr u32 GROUP = AMK_GROUP_UNITS * AMK_UNIT;
    NormScale by = {0, 1};
#if AMK_SUMS
    const bool known = r.shape & NORM_KNOWN;
    if (any(known)) by.scale = w.s.inner;
    const bool computed = (r.shape & NORM_COMPUTED) && !known;
#else
    const bool computed = r.shape & NORM_COMPUTED;
#endif
#pragma unroll 1
    for (u32 first = 0; any(first < r.units * AMK_UNIT || first == 0); first += GROUP) {
        NormPair<N> pair(w, r, first); // asked for before the vector
        if (any(computed && first == 0)) {
            const u32 shares = shared_address(w.s.squares[w.buffer]);
            N::share(w, r, pair, shares);
            w.sync();
            w.stamp(TRACE_GATHERED);
            by = N::of(w, r, shares);
            w.buffer ^= 1; // the next task's shares may come while these are read
        }
        pair.deliver(w, r, by);
    }
    if (any(computed)) w.end_task(Delivery::due(w, r.units));
}
