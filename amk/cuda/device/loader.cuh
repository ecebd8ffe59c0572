// The loader warp walks the same records as the consumers and keeps the ring full. It never waits
// for another worker, only for a free slot, and keeps at most AMK_IN_FLIGHT chunks in flight so
// that the small packets do not queue behind them.
//
// The scout warp walks the records as well. While the ring is full because the consumers wait for
// packets, it prefetches the following bytes into the L2, up to AMK_LOOKAHEAD bytes. Memory keeps
// streaming, and the ring refills sooner.
#pragma once
#include "worker.cuh"

// A vote of the lanes that load, which tells the compiler that they agree: see the votes in
// ptx.cuh.
constexpr u32 LOADING = __CUDA_ARCH__ >= 900 ? 1 : ~0u;
AMK_DEVICE bool agreed(bool x) { return __any_sync(LOADING, x); }
AMK_DEVICE u32 agreed(u32 x) { return __shfl_sync(LOADING, x, 0); }

// Limits the loader to the worker's share of the memory bandwidth, so that requests do not queue up
// ahead of the packets. What is urgent does not wait for it.
struct Pace {
    u32 due;     // clock before which nothing more is requested
    u32 unpaced; // bytes exempt from the pace

    template <typename Urgent> AMK_DEVICE void wait(u32 bytes, Urgent urgent) {
        if (agreed(unpaced >= bytes)) {
            unpaced -= bytes, due = clock_low();
            return;
        }
        u32 now;
        do now = clock_low();
        while (agreed((int)(now - due) < 0) && !urgent());
        due = now + bytes / 64 * AMK_PACE / 64;
    }
};

// The stream of a record: contiguous segments in order, each cut into pieces of a slot.
struct Feed {
    const u8* from;
    u32 left, slot; // bytes of the segment that have not been asked for, 0: there are no more; what
                    // a slot takes of them
    u32 at, pass;   // a projection: units that are done with, passes over the next ones; attention:
                    // first position, segments
};

struct Scout {
    const Params& p;
    Shared& s;
    u32 lane;
    Pace pace;
    u32 pos, record;
    u32 asked; // chunks requested so far, in units of 16 bytes, as `Shared::taken`

    AMK_DEVICE bool issue(const u8* source, u32 bytes) {
        asked += bytes / 16;
        for (u32 at = 0; at < bytes;) {
            if ((int)(s.taken - asked) >= 0) return true; // the ring was faster
            if (!s.ring_full || (int)(asked - s.taken) > AMK_LOOKAHEAD / 16) {
                if (load_shared_atomic(&s.done)) return false;
                __nanosleep(40);
                continue;
            }
            const u32 now = bytes - at < AMK_SCOUT ? bytes - at : AMK_SCOUT;
            pace.wait(now, [] { return false; });
#if __CUDA_ARCH__ >= 900
            prefetch_bytes(source + at, now);
#else
            for (u32 line = lane * 128; line < now; line += 4096) prefetch_line(source + at + line);
#endif
            at += now;
        }
        if (lane == 0) s.asked = asked;
        return true;
    }
    AMK_DEVICE void await_appended() {}
    AMK_DEVICE void issued(bool) {}
    AMK_DEVICE void drain() {}
};

struct Loader {
    const Params& p;
    Shared& s;
    u32 lane, data;
    u32 slot, parity; // next slot to fill
    u32 flying;       // chunks that may still be in flight, those before `slot`
    u32 pos, record;
    u32 taken;    // chunks requested so far, in units of 16 bytes
    u32 appended; // keys and values that must be in the caches
    Pace pace;
    u32 full, landing, paced; // clocks waited, for traces

    // Waits for the oldest chunk in flight.
    AMK_DEVICE void land() {
        const bool wraps = slot < flying;
        const u32 oldest = slot - flying + (wraps ? AMK_SLOTS : 0);
        while (!agreed(barrier_passed(shared_address(s.full) + 8 * oldest, parity ^ 1 ^ wraps))) {
        }
        --flying;
    }
    // Whether at most AMK_LOW slots are full or in flight: slots become free in order, so the last
    // one that must be free tells.
    AMK_DEVICE bool runs_low() {
        if (AMK_LOW == 0) return false;
        const u32 at = slot + AMK_SLOTS - 1 - AMK_LOW;
        const bool wraps = at >= AMK_SLOTS;
        return agreed(barrier_has_passed(
            shared_address(s.empty) + 8 * (wraps ? at - AMK_SLOTS : at), parity ^ wraps));
    }
    // Copies up to a slot's bytes (a multiple of 16). Returns false if the consumers have left.
    AMK_DEVICE bool issue(const u8* source, u32 bytes) {
        {
            const Timed timed(full);
            if (!agreed(barrier_passed(shared_address(s.empty) + 8 * slot, parity))) {
                if (AMK_LOOKAHEAD && lane == 0) s.ring_full = 1;
                do
                    if (agreed(load_shared_atomic(&s.done) ||
                               (s.abandoned && stalled(s, AMK_WARPS, FAULT_RING_EMPTY, pos - p.pos,
                                                       p.records[record].task, slot, 0))))
                        return false;
                while (!agreed(barrier_passed(shared_address(s.empty) + 8 * slot, parity)));
                if (AMK_LOOKAHEAD && lane == 0) s.ring_full = 0;
            }
        }
        taken += bytes / 16;
        if (!AMK_LOOKAHEAD || (int)(s.asked - taken) < 0) {
            const Timed timed(paced);
            pace.wait(bytes, [&] { return runs_low(); });
        }
        if (agreed(flying >= AMK_IN_FLIGHT)) {
            const Timed timed(landing);
            land();
        }
        ++flying;
        u32 bar = shared_address(s.full) + 8 * slot, to = data + slot * AMK_SLOT_BYTES;
#if __CUDA_ARCH__ >= 900
        u64 policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        barrier_expect(bar, bytes);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_"
                     "hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(source), "r"(bytes), "r"(bar), "l"(policy)
                     : "memory");
#else
        for (u32 at = lane * 16; at < bytes; at += 512)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at),
                         "l"(source + at)
                         : "memory");
        arrive_after_copies(bar);
#endif
        if (AMK_LOOKAHEAD && lane == 0) s.taken = taken;
        if (++slot == AMK_SLOTS) slot = 0, parity ^= 1;
        return true;
    }
    AMK_DEVICE void drain() {
        while (agreed(flying)) land();
    }
    // Waits until one more key and value of the previous step are in their cache, or the consumers
    // have left. This blocks only if a step has fewer chunks than the ring has slots.
    AMK_DEVICE void await_appended() {
        appended += 2;
        while (agreed((int)(load_shared_atomic(&s.appended) - appended) < 0))
            if (agreed(load_shared_atomic(&s.done) || s.abandoned)) return;
        __threadfence_block();
    }
    // All bytes of a record are requested.
    AMK_DEVICE void issued(bool traced) {
#if AMK_TRACE
        u64* to = p.trace + (u64)record * TRACE_WORDS;
        if (p.trace && traced && lane == 0)
            to[TRACE_FULL] = full, to[TRACE_LANDING] = landing, to[TRACE_PACED] = paced,
            to[TRACE_ISSUED] = now_clock();
        full = landing = paced = 0;
#endif
    }
};
