// Generic tasks whose weight streams through the ring, in a tile layout of its crate.
//
//   AMK_DEVICE void project(Task& t, const Input& x, Stream& w, Out y) {
//       x.window(0, x.len(), t.shared());
//       for (u32 block = 0; block < w.blocks(); block++) {
//           const u32 at = w.acquire();
//           ... load_shared(at + ..) ...
//           w.release();
//       }
//   }
//
// A block is what the crate's `Stream` says: the loader copies the task's part of the tape in
// blocks, in order. Every warp acquires and releases every block.
#pragma once
#include "loader.cuh"
#include "task.cuh"

#define AMK_STREAMS 1 // bodies that take a `Stream` can be compiled

// The rows of a weight that are the task's.
class Stream {
    Worker& w;
    u32 data, full, slot, parity; // the worker's place in the ring
    u32 height, width, count, bytes;

public:
    AMK_DEVICE Stream(Worker& w, const Tile& t, u32 block)
        : w(w), data(w.data), full(w.full), slot(w.slot), parity(w.parity), height(t.extent(0)),
          width(t.extent(1)), count(height * width * (u32)sizeof(Elem) / block), bytes(block) {}
    AMK_DEVICE u32 rows() const { return height; }
    AMK_DEVICE u32 columns() const { return width; }
    AMK_DEVICE u32 blocks() const { return count; }
    AMK_DEVICE u32 block() const { return bytes; }
    // Waits for the next block; gives its shared address. Every lane of the warp calls it.
    AMK_DEVICE u32 acquire() const {
        const Timed timed(w.starved);
        while (!all(barrier_passed(full + 8 * slot, parity)))
            if (any(stalled(w.s, w.warp, FAULT_RING_FULL, w.step(), w.task, slot, 0))) break;
        return data + slot * AMK_CHUNK;
    }
    // The warp has read the block: its values are in registers.
    AMK_DEVICE void release() {
        barrier_arrive(full + 8 * (AMK_SLOTS + slot));
        if (++slot == AMK_SLOTS) slot = 0, parity ^= 1;
    }
    AMK_DEVICE u32 ring() const { return slot << 1 | parity; }
};
AMK_DEVICE Stream stream_of(const Task& t, const Record& r, u32 n) {
    return Stream(t.w, t.tile(n), r.shape);
}

// The task is done with its part of the ring.
AMK_DEVICE void enter_ring(Worker& w, u32 ring) { w.slot = ring >> 1, w.parity = ring & 1; }

// The loader's side: the task's part of the tape, a block a slot.
AMK_DEVICE void block_feed(const Record& r, Feed& feed) {
    if (feed.pass) return;
    feed.pass = 1, feed.left = r.tape, feed.slot = r.shape;
}

// An activation that the body brings into shared memory as bf16.
class Input {
    Worker& w;
    u32 packet, count;

public:
    AMK_DEVICE Input(Worker& w, const Tile& t) : w(w), packet((u32)t.at()), count(t.len()) {}
    AMK_DEVICE u32 len() const { return count; }
    // Waits for elements `first..first + len` and lays them out at `to` in shared memory. Every
    // thread calls it; it begins when all have come and ends when all elements are there. `first`
    // and `len` are multiples of 8, `to` is aligned to 16 bytes.
    AMK_DEVICE void window(u32 first, u32 len, void* to) const {
        constexpr u32 BATCH = 2, STEP = AMK_WARPS * 32; // loads of two packets, four elements
        const u32 at = packet + first / 2, loads = len / 4, mine = w.thread(), epoch = w.epoch;
        const u64* from = w.p.packets + at;
        const u32 target = shared_address(to);
        w.sync();
        for (u32 begin = 0; begin < loads; begin += BATCH * STEP) {
            uint4 v[BATCH];
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                const u32 i = begin + b * STEP + mine;
                v[b] = make_uint4(0, epoch, 0, epoch);
                if (i < loads) v[b] = load_relaxed(from + 2 * i);
            }
            arrive<BATCH>(v, from, at, begin + mine, loads);
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                const u32 i = begin + b * STEP + mine;
                if (i < loads)
                    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(target + 8 * i),
                                 "r"(v[b].x), "r"(v[b].z)
                                 : "memory");
            }
        }
        w.sync();
    }

private:
    // Asks again for what is late.
    template <u32 BATCH>
    AMK_DEVICE void arrive(uint4 (&v)[BATCH], const u64* from, u32 at, u32 i, u32 loads) const {
        const Timed timed(w.late);
        const u32 epoch = w.epoch;
        for (;;) {
            u32 late = 0;
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) late |= (v[b].y ^ epoch) | (v[b].w ^ epoch);
            if (all(late == 0)) return;
            const bool gone = any(w.gone());
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                const u32 n = i + b * AMK_WARPS * 32;
                if (!((v[b].y ^ epoch) | (v[b].w ^ epoch))) continue;
                if (gone)
                    w.missing(at + 2 * n + (v[b].y == epoch), v[b].y == epoch ? v[b].w : v[b].y);
                else
                    v[b] = load_relaxed(from + 2 * n);
            }
            if (gone) return;
        }
    }
};
AMK_DEVICE Input input_of(const Task& t, u32 n) { return Input(t.w, t.tile(n)); }
