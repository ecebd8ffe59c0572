// Prepared once per step for the attention of all layers.
#pragma once
#include "../../../amk/cuda/device/worker.cuh"

// Computes cosine and sine of the step's position.
AMK_DEVICE void begin_rotation(Worker& w) {
    if (w.thread() < w.p.rotary) {
        float sine, cosine;
        sincosf((float)w.pos() * w.p.inv_freq[w.thread()], &sine, &cosine);
        w.s.rope[w.thread()] = make_float2(cosine * w.p.rope_scale, sine * w.p.rope_scale);
    }
}

AMK_DEVICE void begin_fresh(Shared& s) {
    for (u32 i = threadIdx.x; i < sizeof(s.fresh) / 4; i += AMK_BLOCK_WARPS * 32)
        ((u32*)s.fresh)[i] = 0;
}
