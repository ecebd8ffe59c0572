// How tasks wait for one another besides the packets, which say themselves whether they are there. With counters a task adds one to
// its phase's counter when it has published, and a task begins when the counter of the last phase it reads is full: what earlier ones
// published it still looks for as packets. With barriers all workers meet after every phase that publishes, and each packet is there at
// the first look.
//
// Counters lie behind the packets. They are never cleared: epoch n is the n-th step since the packets were cleared, so in it a counter is
// full at n times its arrivals. The looks of a filtered draw are left out by most steps; they keep to packets.
#pragma once
#include "worker.cuh"

#if AMK_EXCHANGE
constexpr u32 COUNTER_STRIDE = 16; // packets: a line of the L2 each

AMK_DEVICE u32 load_acquire(const u64* p) {
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
AMK_DEVICE void add_release(u64* p) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory"); }

// Every packet of the worker is published.
AMK_DEVICE void arrive(Worker& w, u32 counter) {
    w.sync();
    if (w.thread() == 0) add_release(w.p.packets + counter);
}
// Everything that those who arrived have published can be read.
AMK_DEVICE void await_full(Worker& w, u32 counter, u32 arrivals) {
    if (w.thread() == 0) {
        u32 got;
        while ((int)((got = load_acquire(w.p.packets + counter)) - arrivals * w.epoch) < 0) {
            if (!w.s.gone) continue;
            // For every warp: this explains the packets that they will miss.
            for (u32 warp = 0; warp < AMK_WARPS; warp++) stalled(w.s, warp, FAULT_PACKET, w.step(), w.task, counter, got);
            break;
        }
    }
    w.sync();
}
#endif

AMK_DEVICE void before_task(Worker& w, const Record& r) {
#if AMK_EXCHANGE == AMK_COUNTERS
    if (r.wait) await_full(w, r.wait, r.arrivals);
#elif AMK_EXCHANGE == AMK_BARRIER
    if (r.wait)
        for (u32 counter = r.signal; counter <= r.wait; counter += COUNTER_STRIDE) arrive(w, counter), await_full(w, counter, r.arrivals);
#endif
}

AMK_DEVICE void after_task(Worker& w, const Record& r) {
#if AMK_EXCHANGE == AMK_COUNTERS
    if (r.signal && !w.dropped()) arrive(w, r.signal);
#endif
}
