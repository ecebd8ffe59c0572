// Prepared once per step for the attention of all layers.
#pragma once
#include "../../../amk/cuda/device/worker.cuh"

// Computes cosine and sine of the step's position, or of each row's.
AMK_DEVICE void begin_rotation(Worker& w) {
#if AMK_OWN_TURNS
    // Each task computes its rows' turns.
#elif AMK_ROWS
    for (u32 i = w.thread(); i < w.p.rotary * w.p.row_count; i += AMK_WARPS * 32) {
        const u32 row = i / w.p.rotary, at = i % w.p.rotary;
        float sine, cosine;
        sincosf((float)w.s.rows[row].pos * w.p.inv_freq[at], &sine, &cosine);
        const float scale = AMK_TURN_SCALE(w.p, at);
        w.s.rope[row][at] = make_float2(cosine * scale, sine * scale);
    }
#else
    if (w.thread() < w.p.rotary) {
        float sine, cosine;
        sincosf((float)w.pos() * w.p.inv_freq[w.thread()], &sine, &cosine);
        const float scale = AMK_TURN_SCALE(w.p, w.thread());
        w.s.rope[w.thread()] = make_float2(cosine * scale, sine * scale);
    }
#endif
}

// Lists the rows whose logits are wanted.
AMK_DEVICE void begin_order(Worker& w) {
#if AMK_WIDE
    if (w.thread() == 0) w.s.wanted = 0;
    w.sync();
    for (u32 row = w.thread(); row < w.p.row_count; row += AMK_WARPS * 32) {
        const u32 wanted = w.s.rows[row].wanted;
        if (wanted) w.s.order[wanted - 1] = row, atomicMax(&w.s.wanted, wanted);
    }
#endif
}

AMK_DEVICE void begin_stages(Shared& s) {
#if AMK_WIDE
    if (threadIdx.x != 0) return;
    for (u32 i = 0; i < WIDE_STAGES; i++) {
        barrier_init(shared_address(s.stage_full + i), 33);
        barrier_init(shared_address(s.stage_empty + i), AMK_WARPS);
        barrier_init(shared_address(s.cache_full + i), 33);
        s.cache_ready[i] = s.cache_read[i] = 0;
    }
    barrier_init(shared_address(&s.inputs), 1);
    barrier_init(shared_address(&s.copiers), AMK_COPIERS);
    s.groups = 0, s.cache_blocks = 0, s.copies.bytes = 0;
#endif
}

AMK_DEVICE void begin_fresh(Shared& s) {
    for (u32 i = threadIdx.x; i < sizeof(s.fresh) / 4; i += AMK_BLOCK_WARPS * 32)
        ((u32*)s.fresh)[i] = 0;
}
