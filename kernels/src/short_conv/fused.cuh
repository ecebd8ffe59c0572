// A short convolution over the positions, channel by channel, with the append of the newest inputs
// and the factor of the result. The inputs of all positions lie in bf16 behind the keys and values:
// behind those of all blocks, or of a page. A thread has a pair of channels, at each position the
// same one, so that it finds what it has written itself.
#pragma once
#include "../../../amk/cuda/device/task.cuh"

#if AMK_CONVS
// Where the inputs of a position are, by the page tables of their sequence, if it has any.
AMK_DEVICE u32* inputs_at(const Worker& w, const u32* pages, u32 number, u32 pos) {
    constexpr u64 POSITION = AMK_CONV_LEN * sizeof(Elem);
#if AMK_ROWS || AMK_PAGED
    const u64 in_page = AMK_CACHE_PAGE + (number * 64 + pos % 64) * POSITION;
    const u64 page = pages[pos / 64 * AMK_GROUPS + AMK_CONV_GROUP];
    return (u32*)(w.p.kv + page * AMK_KV_PAGE + in_page);
#else
    const u64 behind = (u64)w.p.kv_blocks * AMK_CACHE_PAGE;
    return (u32*)(w.p.kv + behind + ((u64)number * w.p.kv_blocks * 64 + pos) * POSITION);
#endif
}

// The sums of a pair of channels so far.
struct PairOfSums {
    const Elem* weights; // of the first channel; the other's follow
    float2 sum;

    AMK_DEVICE PairOfSums(const Worker& w, const Record& r, u32 pair)
        : weights(w.p.constants + (r.norm + 2 * pair * AMK_TAPS)), sum(make_float2(0, 0)) {}
    AMK_DEVICE void add(u32 tap, u32 inputs) {
        sum.x = fmaf(constant(weights, tap), bf16_low(inputs), sum.x);
        sum.y = fmaf(constant(weights, AMK_TAPS + tap), bf16_high(inputs), sum.y);
    }
    AMK_DEVICE u32 times(u32 gate) const {
        return pack_bf16(bf16_low(gate) * sum.x, bf16_high(gate) * sum.y);
    }
};

AMK_DEVICE void convolve(Worker& w, const Record& r) {
    const u32 pairs = r.units * AMK_UNIT / 2, pos = w.pos();
#pragma unroll 1
    for (u32 first = 0; first < pairs; first += AMK_WARPS * 32) {
        const u32 own = first + w.thread(), pair = own < pairs ? own : 0, at = r.row / 2 + pair;
        const auto inputs = [&](u32 before) {
            return inputs_at(w, w.p.page_tables, r.layer, pos - before) + at;
        };
        PairOfSums sums(w, r, pair);
#pragma unroll
        for (u32 before = AMK_TAPS - 1; before > 0; before--)
            if (pos >= before) sums.add(AMK_TAPS - 1 - before, load_relaxed_u32(inputs(before)));
        const u32 x = w.read(r.input + at), gate = w.read(r.aux + at);
        w.stamp(TRACE_INPUTS);
        sums.add(AMK_TAPS - 1, x);
        if (own >= pairs) continue;
        store_relaxed_u32(inputs(0), x);
        w.publish(r.output + pair, sums.times(gate));
    }
    __syncwarp();
}
#endif
