// Waits and signals in addition to the packets, which carry their epochs. If the program has
// events, a task waits until the counter in its record is full, and increments its own counter
// after publishing. Both are 0 if the program has no events. The program decides which to use: with
// counters a task waits for the last phase that it reads from, with barriers for the last phase
// that publishes. Results of other phases still arrive as packets.
//
// Counters follow the packets in memory. They are never cleared: epoch n is the n-th step since the
// packets were cleared, so a counter is full at n times its arrivals. The probes of a filtered draw
// are skipped in most steps, so they use packets only.
#pragma once
#include "worker.cuh"

#if AMK_EXCHANGE
AMK_DEVICE u32 load_acquire(const u64* p) {
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
AMK_DEVICE void add_release(u64* p) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}
AMK_DEVICE void add_relaxed(u64* p) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}

// All packets of the worker are published.
AMK_DEVICE void arrive(Worker& w, u32 counter) {
    w.sync();
    if (w.thread() == 0) add_release(w.p.packets + counter);
}
// Makes everything published before the arrivals visible to a thread, and what comes after it.
AMK_DEVICE void await_full(Worker& w, u32 counter, u32 arrivals) {
    u32 got;
    while ((int)((got = load_acquire(w.p.packets + counter)) - arrivals * w.epoch) < 0) {
        if (!w.s.abandoned) continue;
        // Recorded for every warp: it explains the packets that they will miss.
#pragma unroll 1
        for (u32 warp = 0; warp < AMK_WARPS; warp++)
            stalled(w.s, warp, FAULT_PACKET, w.step(), w.task, counter, got);
        break;
    }
}
#endif

AMK_DEVICE void before_task(Worker& w, const Record& r) {
#if AMK_EXCHANGE
    if (!r.wait) return;
    if (w.thread() == 0) await_full(w, r.wait, r.arrivals);
    w.sync();
#endif
}
// Waits as `before_task`, for the loads of one warp.
AMK_DEVICE void await_by_warp(Worker& w, const Record& r) {
#if AMK_EXCHANGE
    if (w.lane == 0) await_full(w, r.wait, r.arrivals);
    __syncwarp();
#endif
}

// Signals what the task has published.
AMK_DEVICE void signal(Worker& w, const Record& r) {
#if AMK_EXCHANGE
    if (r.signal && !w.dropped()) arrive(w, r.signal);
#endif
}
// Signals for a task that has stored nothing: without the wait for stores that are on their way.
AMK_DEVICE void signal_nothing(Worker& w, const Record& r) {
#if AMK_EXCHANGE
    if (r.signal && !w.dropped() && w.thread() == 0) add_relaxed(w.p.packets + r.signal);
#endif
}
AMK_DEVICE void after_task(Worker& w, const Record& r) {
    const bool signals = AMK_SIGNALS(r.op);
    if (!signals) signal(w, r);
#if AMK_WIDE
    // Copies that come now would delay the signal.
    if (signals || !r.signal || w.dropped()) w.sync();
    w.progress();
#endif
}
