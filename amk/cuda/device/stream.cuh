// Generic tasks whose weight streams through the ring, in a tile layout of its crate.
//
//   AMK_DEVICE void project(Task& t, const Input& x, Stream& w, const Pairs& y) {
//       uint4 v[2];
//       const auto first = [&](u32 i) { return 8 * t.lane() + 4 * i; };
//       x.ask(v, first);                                   // packets on their way to registers
//       x.await(v, first);
//       for (u32 block = 0; block < w.blocks(); block++) {
//           const u32 at = w.acquire();
//           ... load_shared(at + ..) ...
//           w.release();
//       }
//       t.sync();
//       ... y.set(row, a, b) ...
//   }
//
// A block is what the crate's `Stream` says: the loader copies the task's part of the tape in
// blocks, in order. Every warp acquires and releases every block. Tasks that stream begin and end
// without a barrier, so that a warp asks for its inputs as soon as it can: the body calls
// `t.sync()` before it first writes to `t.shared()`, which threads may still read for the task
// before.
#pragma once
#include "loader.cuh"
#include "task.cuh"

#define AMK_STREAMS 1 // bodies that take a `Stream` can be compiled

// The rows of a weight that are the task's.
class Stream {
    Worker& w;
    u32 data, full, slot, parity; // the worker's place in the ring
    u32 height, width, bytes;

public:
    AMK_DEVICE Stream(Worker& w, const Tile& t, u32 block)
        : w(w), data(w.data), full(w.full), slot(w.slot), parity(w.parity),
          height(shared_by_lanes(t.extent(0))), width(shared_by_lanes(t.extent(1))), bytes(block) {}
    AMK_DEVICE u32 rows() const { return height; }
    AMK_DEVICE u32 columns() const { return width; }
    AMK_DEVICE u32 blocks() const { return height * width * (u32)sizeof(Elem) / bytes; }
    AMK_DEVICE u32 block() const { return bytes; }
    // Waits for the next block; gives its shared address. Every lane of the warp calls it.
    AMK_DEVICE u32 acquire() const {
        const Timed timed(w.starved);
        while (!all(barrier_passed(full + 8 * slot, parity)))
            if (any(stalled(w.s, w.warp, FAULT_RING_FULL, w.step(), w.task, slot, 0))) break;
        return data + slot * AMK_SLOT_BYTES;
    }
    // The warp has read the block: its values are in registers.
    AMK_DEVICE void release() {
        barrier_arrive(full + 8 * (AMK_SLOTS + slot));
        if (++slot == AMK_SLOTS) slot = 0, parity ^= 1;
    }
    // The task is done with its part of the ring.
    AMK_DEVICE void leave() const { w.slot = slot, w.parity = parity; }
};
AMK_DEVICE Stream stream_of(const Task& t, const Record& r, u32 n) {
    return Stream(t.w, t.tile(n), r.shape);
}

// The loader's side: the task's part of the tape, a block a slot.
AMK_DEVICE void block_feed(const Record& r, Feed& feed) {
    if (feed.pass) return;
    feed.pass = 1, feed.left = r.tape, feed.slot = r.shape;
}

// An activation that the body takes from the packets straight into registers, as bf16. A piece is
// four elements: two pairs, in `x` and `z`.
class Input {
    Worker& w;
    u32 packet, count;

    AMK_DEVICE bool late(uint4 v) const { return (v.y ^ w.epoch) | (v.w ^ w.epoch); }
    AMK_DEVICE const u64* at(u32 first) const { return w.p.packets + (packet + first / 2); }

public:
    AMK_DEVICE Input(Worker& w, const Tile& t) : w(w), packet((u32)t.at()), count(t.len()) {}
    AMK_DEVICE u32 len() const { return count; }
    // Asks for a lane's pieces: piece `i` begins at element `first(i)`, a multiple of 4. Those past
    // the end are zeros. Nothing is waited for.
    template <u32 N, class F> AMK_DEVICE void ask(uint4 (&v)[N], F first) const {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            v[i] = make_uint4(0, w.epoch, 0, w.epoch);
            if (first(i) < count) v[i] = load_relaxed(at(first(i)));
        }
    }
    // Waits until the warp's pieces, asked for with the same `first`, have arrived. Every lane
    // calls it.
    template <u32 N, class F> AMK_DEVICE void await(uint4 (&v)[N], F first) const {
        const Timed timed(w.late);
        for (;;) {
            bool waits = false;
#pragma unroll
            for (u32 i = 0; i < N; i++) waits |= late(v[i]);
            if (!any(waits)) return w.stamp_first(TRACE_INPUTS);
            if (any(w.abandoned())) return missing<N>(first);
#pragma unroll
            for (u32 i = 0; i < N; i++)
                if (late(v[i])) v[i] = load_relaxed(at(first(i)));
        }
    }

private:
    // The launch is being abandoned: tells what has not come.
    template <u32 N, class F> AMK_DEVICE void missing(F first) const {
#pragma unroll 1
        for (u32 i = 0; i < N; i++) {
            if (first(i) >= count) continue;
            const uint4 found = load_relaxed(at(first(i)));
            const bool second = found.y == w.epoch;
            w.missing(packet + first(i) / 2 + second, second ? found.w : found.y);
        }
    }
};
AMK_DEVICE Input input_of(const Task& t, u32 n) { return Input(t.w, t.tile(n)); }

// A result of a body that streams, set in pairs of elements: published at once where its packets
// are pairs of bf16 that other tasks wait for, else kept until the task ends.
class Pairs {
    const Worker& w;
    u32 packet, count;
    float* data;

public:
    // `kept`: room for all elements.
    AMK_DEVICE Pairs(const Worker& w, const Tile& t, float* kept)
        : w(w), packet((u32)t.at() + t.lo[0] / 2), count(t.len()),
          data(t.kind() == PACKETS_BF16 ? nullptr : kept) {}
    AMK_DEVICE u32 len() const { return count; }
    // Elements `i` and `i + 1`; `i` is even. One thread sets them, once.
    AMK_DEVICE void set(u32 i, float a, float b) const {
        if (i + 1 >= count) return;
        if (!data)
            w.publish(packet + i / 2, pack_bf16(a, b));
        else
            data[i] = a, data[i + 1] = b;
    }
    AMK_DEVICE const float* kept() const { return data; }
};
AMK_DEVICE Pairs pairs_of(Task& t, u32 n) {
    const Tile tile = t.tile(n);
    return Pairs(t.w, tile, t.room(tile.len()));
}
AMK_DEVICE Pairs local_pairs_of(const Task& t, u32 n) {
    const Tile tile = t.tile(n);
    return Pairs(t.w, tile, t.local(tile));
}
AMK_DEVICE void deliver_pairs(const Task& t, u32 n, const Pairs& y) {
    if (!any(y.kept() != nullptr)) return;
    t.sync();
    deliver_tile(t.w, t.tile(n), y.kept());
}
