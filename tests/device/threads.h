// A worker's threads without a GPU: coroutines that take turns at barriers and shuffles. The including file defines AMK_WARPS, and has
// its own `Worker`.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 Elem;
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct dim { u32 x; };

#define AMK_DEVICE inline
#define __device__
#define __noinline__
constexpr u32 THREADS = AMK_WARPS * 32;

// ---- coroutines ----
static ucontext_t contexts[THREADS], outside;
static std::vector<char> stacks(THREADS << 16);
static u32 running, left;
static void (*body)(u32 thread);

static void next() {
    const u32 from = running;
    do running = (running + 1) % THREADS;
    while (!contexts[running].uc_link);
    if (running != from) swapcontext(&contexts[from], &contexts[running]);
}
static void enter() {
    body(running);
    contexts[running].uc_link = nullptr; // has ended
    if (--left) {
        do running = (running + 1) % THREADS;
        while (!contexts[running].uc_link);
        setcontext(&contexts[running]);
    }
    setcontext(&outside);
}
static void run(void (*of)(u32)) {
    body = of, running = 0, left = THREADS;
    for (u32 i = 0; i < THREADS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = &stacks[i << 16], contexts[i].uc_stack.ss_size = 1 << 16, contexts[i].uc_link = &outside;
        makecontext(&contexts[i], enter, 0);
    }
    swapcontext(&outside, &contexts[0]);
}

struct Barrier {
    u32 size, arrived, generation;
    void wait() {
        const u32 before = generation;
        if (++arrived == size) arrived = 0, generation++;
        while (generation == before) next();
    }
};
static Barrier of_block = {THREADS, 0, 0}, of_warp[AMK_WARPS];
static const bool warps_ready = [] {
    for (Barrier& barrier : of_warp) barrier = {32, 0, 0};
    return true;
}();
static u64 exchanged[THREADS];

// The value of another lane.
template <class T> static T from_lane(T value, u32 lane) {
    T other;
    memcpy(&exchanged[running], &value, sizeof(T));
    of_warp[running / 32].wait();
    memcpy(&other, &exchanged[running / 32 * 32 + lane % 32], sizeof(T));
    of_warp[running / 32].wait();
    return other;
}
template <class T> static T __shfl_xor_sync(u32, T value, int mask) { return from_lane(value, running ^ mask); }
template <class T> static T __shfl_sync(u32, T value, u32 lane) { return from_lane(value, lane); }
template <class T> static T __shfl_down_sync(u32, T value, u32 by) { return from_lane(value, running + by); }
static void __syncwarp() { of_warp[running / 32].wait(); }
static bool any(bool x) { return x; } // all lanes have the same
static u32 __float_as_uint(float x) { u32 v; memcpy(&v, &x, 4); return v; }
static float __uint_as_float(u32 v) { float x; memcpy(&x, &v, 4); return x; }
static u32 min(u32 a, u32 b) { return a < b ? a : b; }
static uint4 load_relaxed(const u64* p) { uint4 v; memcpy(&v, p, 16); return v; }
static uint2 load_relaxed_one(const u64* p) { uint2 v; memcpy(&v, p, 8); return v; }
static u32 load_relaxed_u32(const u32* p) { return *p; }
