// embed: the step's token becomes the residual of the rows this worker owns. best, choose: argmax over all workers in one hop;
// every worker reads every worker's best and so knows the next token at once.
#pragma once
#include "../vm/worker.cuh"

AMK_DEVICE void embed(Worker& w, const Record& r) {
    const Elem* row = w.p.embedding + (u64)w.token * w.p.hidden;
    for (u32 i = w.thread(); i < r.units * AMK_UNIT; i += AMK_WARPS * 32) w.s.residual[i] = constant(row, r.row + i);
}

AMK_DEVICE void better(float& value, u32& index, float v, u32 i) {
    if (v > value || (v == value && i < index)) value = v, index = i;
}
AMK_DEVICE void best_of_warp(float& value, u32& index) {
#pragma unroll
    for (int m = 16; m; m /= 2) better(value, index, __shfl_xor_sync(~0u, value, m), __shfl_xor_sync(~0u, index, m));
}
// Two slots by the parity of the epoch: a worker may publish the next step's best while another still reads this one's.
AMK_DEVICE u32 best_slot(const Worker& w, u32 offset) { return offset + (w.epoch & 1) * gridDim.x * 2; }

AMK_DEVICE void best(Worker& w, const Record& r) {
    best_of_warp(w.best_value, w.best_index);
    if (w.lane == 0) w.s.best_value[w.warp] = w.best_value, w.s.best_index[w.warp] = w.best_index;
    w.sync();
    if (w.warp != 0) return;
    float value = __uint_as_float(0xff800000u);
    u32 index = ~0u;
    if (w.lane < AMK_WARPS) value = w.s.best_value[w.lane], index = w.s.best_index[w.lane];
    best_of_warp(value, index);
    const u32 to = best_slot(w, r.out) + 2 * blockIdx.x;
    if (w.lane == 0) w.publish(to, __float_as_uint(value)), w.publish(to + 1, index);
}

AMK_DEVICE void choose(Worker& w, const Record& r) {
    if (w.warp == 0) {
        const u32 slot = best_slot(w, r.in);
        float value = __uint_as_float(0xff800000u);
        u32 index = ~0u;
        for (u32 from = w.lane; from < gridDim.x; from += 32) {
            u32 v = w.read(slot + 2 * from), i = w.read(slot + 2 * from + 1);
            better(value, index, __uint_as_float(v), i);
        }
        __syncwarp();
        w.stamp(TRACE_INPUTS);
        best_of_warp(value, index);
        if (w.lane == 0) {
            bool leave = w.s.gone;
            if (index >= w.p.vocab) index = 0; // every logit was NaN
            if (blockIdx.x == 0 && w.p.tokens && !leave) *(volatile u32*)(w.p.tokens + w.step) = index + 1;
            if (w.step + 1 < w.p.forced_count) index = w.p.forced[w.step + 1];
            else for (u32 i = 0; i < w.p.stop_count; i++) leave |= index == w.p.stops[i];
            w.s.token = index, w.s.leave = leave;
        }
    }
    w.sync();
    w.token = w.s.token;
}
