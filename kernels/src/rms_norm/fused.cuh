// A part of the norm of a vector that comes in packets, stored or added to the residual. Every
// worker reads the whole vector, as the one hop that is needed is then the only one.
#pragma once
#include "../linear/fused.cuh"

// The two rows of a group that a thread delivers: those of the residual that it holds.
struct NormPair {
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
        value = load_relaxed_one(w.p.packets + packet);
        gamma = make_float2(1, 1), before = make_float2(0, 0);
        if (r.shape & NORM_COMPUTED)
            gamma = make_float2(constant(w.p.constants, r.norm + r.row + row),
                                constant(w.p.constants, r.norm + r.row + row + 1));
        if (own && (r.shape & NORM_ADDED)) before = *(const float2*)(w.s.residual + row);
    }
    AMK_DEVICE void deliver(Worker& w, const Record& r, float scale) {
        while (any(value.y != w.epoch && w.missing(packet, value.y)))
            value = load_relaxed_one(w.p.packets + packet);
        const float2 y = make_float2(fmaf(bf16_low(value.x) * scale, gamma.x, before.x),
                                     fmaf(bf16_high(value.x) * scale, gamma.y, before.y));
        if (own) w.publish(r.output + row / AMK_PER_PACKET, pack_bf16(y.x, y.y));
        if (own && (r.shape & NORM_ADDED)) *(float2*)(w.s.residual + row) = y;
    }
};

AMK_DEVICE float square_of(u32 pair) {
    return fmaf(bf16_low(pair), bf16_low(pair), bf16_high(pair) * bf16_high(pair));
}

// A thread's share of the sum of squares of a vector, as its packets come.
AMK_DEVICE float norm_squares(Worker& w, const Record& r) {
    constexpr int HELD = 4; // loads of two packets at a time
    const u32 loads = (r.shape & NORM_LENGTH) / (2 * AMK_PER_PACKET);
    float sum = 0;
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
            u32 found = w.epoch, where = at(0); // the last late packet
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
        }
#pragma unroll
        for (u32 j = 0; j < HELD; j++) sum += square_of(v[j].x) + square_of(v[j].z);
    }
    return sum;
}

AMK_DEVICE float sum_of_warp(float sum) {
#pragma unroll
    for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
    return sum;
}

AMK_DEVICE void norm(Worker& w, const Record& r) {
    constexpr u32 GROUP = AMK_GROUP_UNITS * AMK_UNIT;
    NormPair pair(w, r, 0); // asked for before the vector
    float scale = 1;
    const bool computed = r.shape & NORM_COMPUTED;
    if (any(computed)) {
        const u32 squares = shared_address(w.s.squares[w.buffer]);
        const float sum = sum_of_warp(norm_squares(w, r));
        w.stamp(TRACE_INPUTS);
        store_shared(squares + 4 * w.warp, sum, w.lane == 0);
        w.sync();
        w.stamp(TRACE_GATHERED);
        float all = 0;
#pragma unroll
        for (u32 warp = 0; warp < AMK_WARPS; warp++) all += load_shared_one(squares + 4 * warp);
        scale = rsqrt_fast(all * __fdividef(1.0f, r.shape & NORM_LENGTH) + w.p.eps);
        w.buffer ^= 1; // the next task's sums may come while these are read
    }
    pair.deliver(w, r, scale);
#pragma unroll 1
    for (u32 first = GROUP; first < r.units * AMK_UNIT; first += GROUP)
        NormPair(w, r, first).deliver(w, r, scale);
    if (any(computed)) w.end_task(Delivery::due(w, r.units));
}
