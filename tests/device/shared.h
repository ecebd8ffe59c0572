// What the bodies of attention and norms keep in shared memory, and their worker.
#pragma once
#include "worker.h"

struct Shared : Kept {
    alignas(16) float scratch[SCRATCH_FLOATS];
    RowWords rows[(AMK_ROWS + 3) / 4 * 4 + 1];
    u32 appended, token;
};
static_assert(sizeof(Shared) <= RING, "the ring lies behind it");
static Shared& shared = *(Shared*)arena;

struct Worker {
    const Params& p;
    Shared& s;
    u32 data, warp, lane, epoch, released, buffer, late;

    u32 thread() const { return warp * 32 + lane; }
    u32 pos() const { return p.pos; }
    u32 delivery_index() const { return (AMK_WARPS - 1 - warp) * 32 + lane; }
    void sync() const { of_block.wait(); }
    void end_task(bool) const { of_block.wait(); }
    u32 acquire(u32 ahead = 0) const { return data + (released + ahead) * AMK_SLOT_BYTES; }
    void release() { released++; }
    void publish(u64* to, u32 value) const { *to = (u64)epoch << 32 | value; }
    void publish(u32 offset, u32 value) const { publish(p.packets + offset, value); }
    void publish_wide(u32 offset, u32 x, u32 y, u32 z) const { p.packets[offset] = (u64)y << 32 | x, publish(offset + 1, z); }
    bool missing(u32 offset, u32 got) const {
        if (got == epoch) return true;
        exit(printf("packet %u never came\n", offset));
    }
    bool dropped() const { return false; }
    void delay() const {}
    bool lacks(const u32* at) const { exit(printf("word %td never came\n", at - (const u32*)p.packets)); }
    u32 first_row() const { return AMK_ROW_PACKETS ? AMK_ROWS : 0; }
    u64* words(u32 offset, u32 row) const { return p.packets + (offset + (u64)(row + first_row()) * AMK_ROW_WORDS); }
    float* partial() const { return s.scratch; }
    float* logits() const { return p.logits; }
    u32 read(u32 offset) const { return (u32)p.packets[offset]; }
    template <class F> void for_own_rows(const Record& r, F f) const {
        for (u32 i = 2 * thread(); i < r.units * AMK_UNIT; i += 2 * THREADS) f(i, true), f(i + 1, true);
    }
    void* memory(u32 at) const { return __cvta_shared_to_generic(data + at); }
    u32 row_scratch() const { return data + AMK_SLOTS * AMK_SLOT_BYTES; }
    void stamp(int) const {}
    bool abandoned() const { return false; }
    void stamp_first(int) const {}
};
static void (*when_awaited)() = [] {};
static void await_by_warp(Worker&, const Record&) { when_awaited(); }
static void signal(Worker&, const Record&) {}
static void signal_nothing(Worker&, const Record&) {}
#if AMK_WIDE
constexpr u32 WIDE_MEMORY = AMK_SLOTS * AMK_CHUNK;
static void next_turn() { next(); }
#include "barriers.h"
static void before_task(Worker&, const Record&) { when_awaited(); }
static void await_inputs(const Worker& w, const Record&) {
    if (w.thread() == 0) barrier_arrive(shared_address(&shared.inputs));
}
static u32 counted(const u32& counter) { return next_turn(), counter; }
static void __nanosleep(u32) {}
static void count_by(u32& counter, u32 number) { counter += number; }
// A copying warp, as far as attention has it.
struct Copier {
    const Params& p;
    Shared& s;
    u32 data, warp, lane, tasks;

    template <class F> bool await(F passed) const {
        while (!passed()) {}
        return true;
    }
    bool await_memory() const { return true; }
    bool await_inputs() const {
        return await([&] { return barrier_passed(shared_address(&s.inputs), tasks & 1); });
    }
};
template <class To, class From> static void copy_runs(u32 lane, u32 count, u32 bytes, u32, To to, From from) {
    for (u32 k = lane; k < count; k += 32) memcpy(arena + to(k), from(k), bytes);
}
static void await_own_copies() {}
static void copy_4(u32 to, const void* from) { memcpy(arena + to, from, 4); }
#endif
static Params params;
static Record record;
// A worker for what all of them see alike.
static Worker any_worker() { return {params, shared, RING, 0, 0, 7, 0, 0, 0}; }
// Runs a body with a record.
template <void (*BODY)(Worker&, const Record&)> static void by_all(const Record& of) {
    record = of;
    run([](u32 thread) {
        Worker w = {params, shared, RING, thread / 32, thread % 32, 7, 0, 0, 0};
        BODY(w, record);
    });
}
