// Prepared once per step for the attention of all layers.
#pragma once
#include "../../../amk/cuda/device/worker.cuh"

// Computes cosine and sine of the step's position, or of each row's.
AMK_DEVICE void begin_rotation(Worker& w) {
#if AMK_ROWS
    for (u32 i = w.thread(); i < w.p.rotary * w.p.row_count; i += AMK_WARPS * 32) {
        const u32 row = i / w.p.rotary, at = i % w.p.rotary;
        float sine, cosine;
        sincosf((float)w.s.rows[row].pos * w.p.inv_freq[at], &sine, &cosine);
        w.s.rope[row][at] = make_float2(cosine * w.p.rope_scale, sine * w.p.rope_scale);
    }
#else
    if (w.thread() < w.p.rotary) {
        float sine, cosine;
        sincosf((float)w.pos() * w.p.inv_freq[w.thread()], &sine, &cosine);
        w.s.rope[w.thread()] = make_float2(cosine * w.p.rope_scale, sine * w.p.rope_scale);
    }
#endif
}

AMK_DEVICE void begin_fresh(Shared& s) {
    for (u32 i = threadIdx.x; i < sizeof(s.fresh) / 4; i += AMK_BLOCK_WARPS * 32)
        ((u32*)s.fresh)[i] = 0;
}
