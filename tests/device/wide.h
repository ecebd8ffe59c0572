// A worker of a wide step, without a GPU.
#pragma once

struct Params : VmParams, DecoderParams {};
struct Shared : Kept {
    RowWords rows[AMK_ROWS];
    u32 progress, done;
    bool abandoned;
};
static_assert(sizeof(Shared) <= RING, "the ring lies behind it");
static Shared& shared = *(Shared*)arena;

struct Worker {
    const Params& p;
    Shared& s;
    u32 data, warp, lane, filled;

    u32 thread() const { return warp * 32 + lane; }
    u32 first_row() const { return 0; }
    u64* words(u32 offset, u32 row) const { return p.packets + (offset + (u64)row * AMK_ROW_WORDS); }
    void sync() const { of_block.wait(); }
    bool abandoned() const { return false; }
    void stamp(int) const {}
    void progress() const {
        if (thread() == 0) count_up(s.progress);
    }
};
AMK_DEVICE float constant(const Elem* c, u32 i) { return __uint_as_float((u32)c[i] << 16); }
