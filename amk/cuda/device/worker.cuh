// A worker: a thread block with AMK_WARPS consumer warps, a loader warp and a watchdog warp.
#pragma once
#include "image.cuh"

constexpr int PARTIAL_PITCH =
    AMK_GROUP_UNITS * AMK_UNIT + 2; // +2: the epilogue's reads fall in distinct banks

#if AMK_ROWS
// The rows of a step; zeros past the last.
#if AMK_ROWS > AMK_ROWS_IN_SHARED
struct StepRows {
    const RowWords* rows;
    u32 count;

    AMK_DEVICE void begin(const Params& p) {
        if (threadIdx.x == 0) rows = p.rows, count = p.row_count;
    }
    AMK_DEVICE RowWords operator[](u32 row) const { return row < count ? rows[row] : RowWords{}; }
};
#else
struct StepRows {
    RowWords rows[(AMK_ROWS + 7) / 8 * 8];

    AMK_DEVICE void begin(const Params& p) {
        if (threadIdx.x < sizeof(rows) / sizeof(RowWords))
            rows[threadIdx.x] = threadIdx.x < p.row_count ? p.rows[threadIdx.x] : RowWords{};
    }
    AMK_DEVICE const RowWords& operator[](u32 row) const { return rows[row]; }
};
#endif
#endif

// `Kept` is generated: the shared memory of the registered bodies.
struct Shared : Kept {
    u64 full[AMK_SLOTS], empty[AMK_SLOTS];
    volatile u32 abandoned; // the launch is being abandoned: no wait blocks any more; behind the
                            // barriers, see `Worker::abandoned`
    alignas(16) float scratch[AMK_WIDE ? 32 : SCRATCH_FLOATS];
    u32 token, leave;
#if AMK_ROWS
    StepRows rows;
#endif
    alignas(16) uint4 waiting[AMK_WARPS + 1]; // what a warp waited for when the launch was
                                              // abandoned: kind and step, task, where, got
    u32 done;                                 // the consumers have left; accessed atomically
    u32 appended; // rows that the consumers have appended to states in this launch; likewise
    volatile u32 asked,
        taken;              // of the stream, by the scout and by the loader, in units of 16 bytes
    volatile u32 ring_full; // the loader waits for a free slot
    u32 progress; // in wide steps, of the consumers: beginnings of steps, and records that have
                  // ended. Others read it by `counted`.
#if AMK_TRACE
    u64 stamps[TRACE_OF_TASK]; // of the current task
#endif
};
static_assert(2 * AMK_WARPS * PARTIAL_PITCH <= SCRATCH_FLOATS,
              "the partial sums must fit the scratch");

// Records a wait that failed once. Returns true if the launch is being abandoned. The worker then
// continues with whatever data it has, so that every warp still reaches every barrier, and leaves
// after the step. The results of such a step are discarded.
AMK_DEVICE bool stalled(Shared& s, u32 warp, FaultKind kind, u32 step, u32 task, u32 where,
                        u32 got) {
    if (!s.abandoned) return false;
    if ((s.waiting[warp].x & 3) == FAULT_NONE)
        s.waiting[warp] = make_uint4(kind | step << 2, task, where, got);
    return true;
}

// Adds the clocks of its lifetime to a sum, if tasks are traced.
struct Timed {
#if AMK_TRACE
    u32& sum;
    u32 begin;
    AMK_DEVICE explicit Timed(u32& sum) : sum(sum), begin((u32)now_clock()) {}
    AMK_DEVICE ~Timed() { sum += (u32)now_clock() - begin; }
#else
    AMK_DEVICE explicit Timed(u32&) {}
#endif
};

// Reports to the host the wait of this worker when the launch was abandoned. The first task in its
// queue counts, and a missing packet explains an idle ring, not vice versa.
AMK_DEVICE void report_fault(const Params& p, const Shared& s) {
    uint4 first = make_uint4(FAULT_NONE, 0, 0, 0);
    for (int i = 0; i <= AMK_WARPS; i++) {
        const uint4 w = s.waiting[i];
        if ((w.x & 3) == FAULT_NONE) continue;
        const u64 now = (u64)(w.x >> 2) << 32 | w.y, then = (u64)(first.x >> 2) << 32 | first.y;
        if ((first.x & 3) == FAULT_NONE || now < then || (now == then && (w.x & 3) == FAULT_PACKET))
            first = w;
    }
    Fault& to = p.fault[1 + blockIdx.x];
    to.kind = first.x & 3, to.step = first.x >> 2, to.task = first.y, to.place = first.z,
    to.got = first.w;
}

// The watchdog warp: ends the launch at the deadline, or after another worker has ended it, and
// reports the pending waits.
AMK_DEVICE void watch(const Params& p, Shared& s) {
    const u64 deadline = now_ns() + p.budget_ns;
    while (!load_shared_atomic(&s.done)) {
        __nanosleep(2000);
        if (s.abandoned || (!load_relaxed_u32(&p.fault->abort) && now_ns() < deadline)) continue;
        atomicExch(&p.fault->abort, 1u);
        s.abandoned = 1;
        const u64 heard = now_ns() + 20000; // by then every waiting thread has seen it
        while (now_ns() < heard) __nanosleep(1000);
        __threadfence_block();
        report_fault(p, s);
    }
}

struct Worker {
    const Params& p;
    Shared& s;
    u32 data, full;   // shared addresses of the ring and of its barriers
    u32 slot, parity; // this warp's position in the ring
    u32 warp, lane;
    u32 epoch;
    u32 task;
    u32 first; // of a projection's units, those done with: it takes a turn of the loop over records
               // for each group
    u32 buffer;                // which half of the GEMV partials
    u32 upcoming;              // index of the next record
    u32 next;                  // this lane's word of the next record, as loaded
    u32 record, starved, late; // index, clocks: for traces
    const u8* tape;            // with rows, where the record's piece begins
    u32 filled;                // parities of the barriers of wide steps' stages

    AMK_DEVICE u32 thread() const { return warp * 32 + lane; }
#if AMK_ROWS
    // Words of a value of a row of the step.
    AMK_DEVICE u64* words(u32 offset, u32 row) const {
        static_assert(2ull * AMK_ROWS * AMK_ROW_WORDS < 1ull << 32, "words have 32 bits");
        return p.packets + (offset + (row + first_row()) * AMK_ROW_WORDS);
    }
    // With packets, steps use two halves of the memory in turn.
    AMK_DEVICE u32 first_row() const { return AMK_ROW_PACKETS ? (epoch & 1) * AMK_ROWS : 0; }
    // Returns whether to keep waiting for a word of a row's value.
    AMK_DEVICE bool lacks(const u32* at) const {
        return !stalled(s, warp, FAULT_PACKET, step(), task, (u32)((const u64*)at - p.packets), 0);
    }
    // The memory of the ring, for bodies of wide steps.
    AMK_DEVICE void* memory(u32 at) const { return __cvta_shared_to_generic(data + at); }
    // Shared address of AMK_ROW_SCRATCH bytes behind the ring.
    AMK_DEVICE u32 row_scratch() const { return data + AMK_SLOTS * AMK_SLOT_BYTES; }
#endif
    // Threads in the order in which they deliver. Those of the last warp come first, since they
    // wait for inputs only if an input is long.
    AMK_DEVICE u32 delivery_index() const { return (AMK_WARPS - 1 - warp) * 32 + lane; }
    AMK_DEVICE u32 step() const { return epoch - p.epoch; }
    AMK_DEVICE u32 pos() const { return p.pos + step(); }
    // All threads have come here: one more beginning of a step, or end of a record.
    AMK_DEVICE void progress() const {
        if (thread() == 0) count_up(s.progress);
    }
    AMK_DEVICE void sync() const {
        asm volatile("bar.sync 1, %0;" ::"n"(AMK_WARPS * 32) : "memory");
    }
    // Called once per iteration after requesting the inputs. There is one record more than there
    // are tasks.
    AMK_DEVICE void look_ahead() {
        next = ((const u32*)(p.records + upcoming))[lane % RECORD_WORDS];
    }
    // Ends a task. Loads of the other warps for the next task would delay the few stores of the
    // delivering warps, so the latter arrive and continue, and the others wait for them.
    AMK_DEVICE void end_task(bool delivers) const {
        __syncwarp(); // lanes diverge where some have nothing to deliver
        if (delivers && !AMK_NO_ARRIVALS)
            asm volatile("bar.arrive 2, %0;" ::"n"(AMK_WARPS * 32) : "memory");
        else
            asm volatile("bar.sync 2, %0;" ::"n"(AMK_WARPS * 32) : "memory");
    }
    AMK_DEVICE float* partial() const { return s.scratch + buffer * (AMK_WARPS * PARTIAL_PITCH); }

    // The launch is being abandoned: `Shared::abandoned`, read by an address that is in a register
    // anyway.
    AMK_DEVICE bool abandoned() const {
        u32 v;
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(full + 16 * AMK_SLOTS));
        return v;
    }
    // Waits until the loader has filled the current slot, or the one `ahead` of it. Returns its
    // shared address.
    AMK_DEVICE u32 acquire(u32 ahead = 0) {
        const Timed timed(starved);
        const bool wraps = ahead && slot + ahead >= AMK_SLOTS;
        const u32 at = slot + ahead - (wraps ? AMK_SLOTS : 0);
        while (!all(barrier_passed(full + 8 * at, parity ^ wraps)))
            if (any(stalled(s, warp, FAULT_RING_FULL, step(), task, at, 0))) break;
        return data + at * AMK_SLOT_BYTES;
    }
    // Releases the current slot. This warp has loaded its values: arriving is ordered behind that.
    AMK_DEVICE void release() {
        barrier_arrive(full + 8 * (AMK_SLOTS + slot)); // each lane for its own reads
        if (++slot == AMK_SLOTS) slot = 0, parity ^= 1;
    }
    AMK_DEVICE void publish(u32 offset, u32 value) const { publish(p.packets + offset, value); }
    AMK_DEVICE void publish(u64* to, u32 value) const {
        if (dropped()) return;
        delay();
        store_relaxed(to, value, epoch);
    }
    // A packet of 16 bytes, which occupies two places.
    AMK_DEVICE void publish_wide(u32 offset, u32 x, u32 y, u32 z) const {
        if (dropped()) return;
        delay();
        store_relaxed_wide(p.packets + offset, x, y, z, epoch);
    }
    // Injects faults, for tests: a packet of this task is lost or late.
    AMK_DEVICE bool dropped() const {
#ifdef AMK_DROP_TASK
        return task == AMK_DROP_TASK && pos() == AMK_DROP_POSITION;
#else
        return false;
#endif
    }
    AMK_DEVICE void delay() const {
#ifdef AMK_DELAY
        __nanosleep(clock_low() * 2654435761u % AMK_DELAY);
#endif
    }
    // Returns whether to keep waiting for a packet. `got` is the epoch found; it may be the
    // expected one if another lane is still waiting.
    AMK_DEVICE bool missing(u32 offset, u32 got) {
        return got == epoch ? !s.abandoned
                            : !stalled(s, warp, FAULT_PACKET, step(), task, offset, got);
    }
    // Visits the rows of a task, for a projection each by the thread that delivers it, so that
    // their residuals need no barrier. Every lane calls `f`, with a row and whether it owns it.
    template <class F> AMK_DEVICE void for_own_rows(const Record& r, F f) const {
        constexpr u32 GROUP = AMK_GROUP_UNITS * AMK_UNIT;
        const u32 len = r.units * AMK_UNIT;
        for (u32 first = 0; first < len; first += GROUP) {
            const u32 i = first + delivery_index() / 2;
            const bool own = delivery_index() < 2 * GROUP && !(lane & 3) && i < len;
            f(own ? i : 0, own), f(own ? i + 1 : 0, own);
        }
        __syncwarp(); // neighbouring lanes read the owner's rows, too, before a delivery
    }
    // Waits for one packet per lane. Every lane must call it.
    AMK_DEVICE u32 read(u32 offset) {
        uint2 v;
        do v = load_relaxed_one(p.packets + offset);
        while (any(v.y != epoch && missing(offset, v.y)));
        return v.x;
    }
    AMK_DEVICE float* logits() const { return p.logits + (u64)step() * p.logit_stride; }
    // START: the task is next. INPUTS: its (first) inputs and its first block have arrived.
    // PRODUCT: the first warp has computed. GATHERED: all warps have. END: the task is done. Stamps
    // stay in shared memory until END, since global stores would disturb the timing.
    AMK_DEVICE void stamp(TraceWord which) {
#if AMK_TRACE
        if (which <= TRACE_INPUTS) starved = late = 0;
        if (thread() == 0) s.stamps[which] = now_clock();
        if (thread() == 0 && which == TRACE_START) s.stamps[TRACE_TIMER] = now_ns();
        if (which == TRACE_END && warp == 0) tell_stamps();
#endif
    }
    // Likewise, unless the task already has a stamp.
    AMK_DEVICE void stamp_first(TraceWord which) {
#if AMK_TRACE
        if (thread() == 0 && s.stamps[which] == 0) s.stamps[which] = now_clock();
#endif
    }
#if AMK_TRACE
    // By the first warp: writes the stamps of the last step to the host. Stamps that a body does
    // not set are 0.
    AMK_DEVICE void tell_stamps() {
        if (lane == 0) s.stamps[TRACE_STARVED] = starved, s.stamps[TRACE_LATE] = late;
        __syncwarp();
        if (lane < TRACE_OF_TASK) {
            if (p.trace && step() + 1 == p.steps)
                p.trace[(u64)record * TRACE_WORDS + lane] = s.stamps[lane];
            s.stamps[lane] = 0;
        }
        __syncwarp();
    }
#endif
    // All tasks are done: writes the clock and the timer.
    AMK_DEVICE void tell_end() const {
#if AMK_TRACE
        if (!p.trace || thread() != 0) return;
        u64* to =
            p.trace + (u64)p.record_at[gridDim.x] * TRACE_WORDS + blockIdx.x * TRACE_WORKER_WORDS;
        const u64 clock = now_clock(), ns = now_ns();
        to[0] = clock, to[1] = ns;
#endif
    }
};

AMK_DEVICE float constant(const Elem* c, u32 i) { return __uint_as_float((u32)c[i] << 16); }

// ---- registers: the loader's warpgroup releases registers for the consumers ----
AMK_DEVICE void give_registers() {
#if __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(32));
#endif
}
AMK_DEVICE void take_registers() {
#if __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(AMK_WARPS == 16 ? 112 : 208));
#endif
}
