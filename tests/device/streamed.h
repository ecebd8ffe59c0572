// A worker of one row whose weights come through a ring, without a GPU: a slot is filled again as soon as all of its threads have released it.
#pragma once
#include "worker.h"

struct Shared : Kept {
    alignas(16) float scratch[SCRATCH_FLOATS];
    u32 token;
};
static_assert(sizeof(Shared) <= RING, "the ring lies behind it");
static Shared& shared = *(Shared*)arena;

struct Ring {
    struct Piece { const u8* from; u32 bytes; };
    std::vector<Piece> pieces;
    std::vector<u32> released; // threads that have released each piece
    u32 filled = 0;

    void start(std::vector<Piece> of) { pieces = of, released.assign(pieces.size(), 0), filled = 0; }
    bool holds(u32 piece) {
        if (piece >= pieces.size()) exit(printf("a slot behind the last\n"));
        for (; filled <= piece; filled++) {
            if (filled >= AMK_SLOTS && released[filled - AMK_SLOTS] < THREADS) return false;
            u8* const slot = arena + RING + filled % AMK_SLOTS * AMK_SLOT_BYTES;
            memset(slot, 0xff, AMK_SLOT_BYTES), memcpy(slot, pieces[filled].from, pieces[filled].bytes);
        }
        return true;
    }
};
static Ring ring;

struct Worker {
    const Params& p;
    Shared& s;
    u32 warp, lane, epoch, piece, slot, buffer, late, first;

    u32 thread() const { return warp * 32 + lane; }
    u32 delivery_index() const { return (AMK_WARPS - 1 - warp) * 32 + lane; }
    void sync() const { of_block.wait(); }
    void end_task(bool) const { of_block.wait(); }
    void look_ahead() const {}
    void stamp(int) const {}
    bool abandoned() const { return false; }
    bool missing(u32 offset, u32) const { exit(printf("packet %u never came\n", offset)); }
    u32 acquire(u32 ahead = 0) const {
        while (!ring.holds(piece + ahead)) next();
        return RING + (piece + ahead) % AMK_SLOTS * AMK_SLOT_BYTES;
    }
    void release() { ring.released[piece++]++, slot = piece % AMK_SLOTS; }
    void publish(u64* to, u32 value) const { *to = (u64)epoch << 32 | value; }
    float* partial() const { return s.scratch + buffer * (SCRATCH_FLOATS / 2); }
    float* logits() const { return p.logits; }
};

static bool filtering(Worker&) { return false; }
static void consider(Worker&, u32, float, u32) {}
