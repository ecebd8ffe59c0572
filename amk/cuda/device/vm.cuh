// The kernel: every worker runs its records for `steps` steps. The generated source that includes
// this file defines
//   void project(Worker&, const Record&)       the projections of the program, specialised
//   AMK_PROJECTS(op)                           whether a record is one of these
//   AMK_READS_ALL                              whether these need more than a record's first words
//   void dispatch(Worker&, const Record&)      its other instructions
//   AMK_AWAITS(op)                             whether its body calls `before_task` itself
//   AMK_SIGNALS(op)                            whether its body gives its signal itself
//   AMK_SKIPS(w, op), AMK_SKIPPED              whether this step skips so many records after this
//   one
//   void bodies_begin_launch(Shared&), bodies_begin_step(Worker&)
//   void bodies_copy(const Params&, Shared&, data, warp, lane)  run by copying warps of wide steps
//   void bodies_see_logits(Worker&, values, first, len)   generic tasks call it with logits
//   void dispatch_feed(L&, const Record&, Feed&)  the next segment of what the loader and the scout
//   fetch for them
#pragma once
#include "exchange.cuh"
#include "loader.cuh"

template <class L> AMK_DEVICE void load(const Params& p, L& l, u32 worker) {
    const u32 begin = p.record_at[worker], end = p.record_at[worker + 1];
    for (l.pos = p.pos; agreed(l.pos < p.pos + p.steps); l.pos++) {
        const u8* tape = p.tape + p.tape_at[worker];
        for (l.record = begin; agreed(l.record < end); l.record++) {
            const Record& words = p.records[l.record];
            Record r = {};
            r.op = agreed((u32)words.op), r.units = agreed((u32)words.units),
            r.shape = agreed(words.shape), r.row = agreed(words.row);
            r.layer = agreed(words.layer), r.aux = agreed(words.aux), r.tape = agreed(words.tape);
            Feed feed = {tape};
            for (;;) {
                if (agreed(!feed.left)) dispatch_feed(l, r, feed);
                if (agreed(!feed.left)) break;
                const u32 bytes = min(feed.left, feed.slot);
                if (!l.issue(feed.from, bytes)) return l.drain();
                feed.from += bytes, feed.left -= bytes;
            }
            l.issued(l.pos + 1 == p.pos + p.steps);
            tape += r.tape;
        }
    }
    l.drain();
}

AMK_DEVICE void begin_step(Worker& w) {
    bodies_begin_step(w);
    w.sync();
    if (AMK_WIDE) w.progress();
}

AMK_DEVICE void consume(Worker& w) {
    const u32 worker = blockIdx.x, begin = w.p.record_at[worker], end = w.p.record_at[worker + 1];
    for (w.epoch = w.p.epoch; w.step() < w.p.steps; w.epoch++) {
        begin_step(w);
        // The next record is held in the lanes of the warp, one word each.
        u32 left = end - begin;
        w.upcoming = begin;
        w.look_ahead();
#if AMK_ROWS
        w.tape = w.p.tape + w.p.tape_at[worker];
#endif
        while (any(left)) {
            // Zeros for words that a projection lacks: the compiler treats values set in only some
            // branches as divergent.
            union {
                Record record;
                u32 word[RECORD_WORDS];
            } r = {};
#pragma unroll
            for (int k = 0; k < HOT_WORDS; k++) r.word[k] = __shfl_sync(~0u, w.next, k);
            w.record = end - left;
            const bool projects = AMK_PROJECTS(r.record.op);
            u32 records = 1;
            if (AMK_EXCHANGE || AMK_READS_ALL || !projects) {
#pragma unroll
                for (int k = HOT_WORDS; k < AMK_USED_WORDS; k++)
                    r.word[k] = __shfl_sync(~0u, w.next, k);
                // Skips the following records that are inactive in this step. A trace needs their
                // timestamps.
                if (!AMK_TRACE && AMK_SKIPS(w, r.record.op)) records += AMK_SKIPPED;
            }
            // A projection with more units than a group repeats this loop.
            const bool more = projects && r.record.units > w.first + AMK_GROUP_UNITS;
            if (!more) left -= records, w.upcoming += records;
            // Keeps values that the bodies derive from these from being hoisted out of this loop,
            // where they would only spill.
            asm volatile("" : "+r"(w.lane), "+r"(w.warp));
            w.task = r.record.task;
            if (w.first == 0) w.stamp(TRACE_START);
            if (w.first == 0 && !AMK_AWAITS(r.record.op)) before_task(w, r.record);
            if (projects)
                project(w, r.record);
            else
                w.look_ahead(), dispatch(w, r.record);
            if (!more) after_task(w, r.record), w.stamp(TRACE_END);
#if AMK_ROWS
            w.tape += r.record.tape;
#endif
            w.first = more ? w.first + AMK_GROUP_UNITS : 0;
        }
        if (w.s.leave) break;
    }
    w.tell_end();
    if (w.thread() == 0) atomicExch(&w.s.done, 1u);
}

extern "C" __global__ void __launch_bounds__(AMK_BLOCK_WARPS * 32, 1)
    amk_vm(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) u8 ring[];
    __shared__ Shared s;
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread)); // else it is reloaded in every task
    const u32 warp = __shfl_sync(~0u, thread / 32, 0), lane = thread % 32;
    bodies_begin_launch(s);
#if AMK_ROWS
    s.rows.begin(p);
#endif
    if (threadIdx.x == 0) {
        for (int i = 0; i < AMK_SLOTS; i++) {
            barrier_init(shared_address(s.full + i), __CUDA_ARCH__ >= 900 ? 1 : 32);
            barrier_init(shared_address(s.empty + i), AMK_WARPS * 32);
        }
        for (int i = 0; i <= AMK_WARPS; i++) s.waiting[i] = make_uint4(FAULT_NONE, 0, 0, 0);
#if AMK_TRACE
        for (int i = 0; i < TRACE_OF_TASK; i++) s.stamps[i] = 0;
#endif
        s.done = 0, s.appended = 0, s.abandoned = 0, s.leave = 0, s.asked = 0, s.taken = 0,
        s.ring_full = 0, s.progress = 0, s.token = AMK_ROWS ? 0 : p.forced[0];
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
    const u32 data = shared_address(ring);
    if (warp >= AMK_WARPS) {
        give_registers();
        if (warp == AMK_WARPS + 1) {
            if (lane == 0) watch(p, s);
            return;
        }
#if AMK_WIDE
        bodies_copy(p, s, data, warp == AMK_WARPS ? 0 : warp - AMK_WARPS - 1, lane);
        return;
#endif
        if (__CUDA_ARCH__ >= 900 && lane != 0) return;
        const Pace pace = {clock_low(), 0};
        if (warp == AMK_WARPS) {
            Loader l = {p, s, lane, data, 0, 1, 0, 0, 0, 0, 0, pace, 0, 0, 0};
            load(p, l, blockIdx.x);
        } else if (AMK_LOOKAHEAD && warp == AMK_WARPS + 2) {
            Scout l = {p, s, lane, pace, 0, 0, 0};
            load(p, l, blockIdx.x);
        }
    } else {
        take_registers();
        u32 ring_at = data, full = shared_address(s.full);
        asm volatile("" : "+r"(ring_at), "+r"(full)); // kept, not recomputed
        Worker w = {p, s, ring_at, full, 0, 0, warp, lane, p.epoch};
        consume(w);
    }
}
