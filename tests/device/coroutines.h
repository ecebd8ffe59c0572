// Device code on the CPU: the threads of a worker are coroutines that take turns at barriers and
// shuffles. The including file defines AMK_WARPS before, and has its own `Worker`.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 Elem;
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct dim { u32 x; };

#define AMK_DEVICE inline
#define __device__
#define __noinline__
#define __forceinline__
#ifndef AMK_COPIERS
#define AMK_COPIERS 0
#endif
constexpr u32 THREADS = AMK_WARPS * 32, COROUTINES = THREADS + AMK_COPIERS * 32; // copying warps included

// ---- coroutines ----
// A context begins a thread; from then on jumps go to and fro, which need no system calls.
static ucontext_t contexts[COROUTINES], outside;
static std::vector<char> stacks(COROUTINES << 16);
static void* places[COROUTINES][5];
static bool started[COROUTINES], ended[COROUTINES];
static u32 running, left, all_threads;
static void (*body)(u32 thread);

__attribute__((noinline)) static void go_on() {
    do running = (running + 1) % all_threads;
    while (ended[running]);
    if (started[running]) __builtin_longjmp(places[running], 1);
    started[running] = true;
    setcontext(&contexts[running]);
}
static void next() {
    if (!__builtin_setjmp(places[running])) go_on();
}
static void enter() {
    body(running);
    ended[running] = true;
    if (--left) go_on();
    setcontext(&outside);
}
static void run(void (*of)(u32), u32 threads = THREADS) {
    body = of, running = 0, left = all_threads = threads;
    for (u32 i = 0; i < threads; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = &stacks[i << 16], contexts[i].uc_stack.ss_size = 1 << 16;
        makecontext(&contexts[i], enter, 0);
        started[i] = i == 0, ended[i] = false;
    }
    swapcontext(&outside, &contexts[0]);
}

struct Barrier {
    u32 size = 32, arrived = 0, generation = 0;
    void wait() {
        const u32 before = generation;
        if (++arrived == size) arrived = 0, generation++;
        while (generation == before) next();
    }
};
static Barrier of_block = {THREADS, 0, 0}, of_warp[COROUTINES / 32];
static u64 exchanged[COROUTINES];

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
static u32 __ballot_sync(u32, bool x) {
    u32 votes = 0;
    for (u32 lane = 0; lane < 32; lane++) votes |= (u32)from_lane(x, lane) << lane;
    return votes;
}
static u32 __popc(u32 x) { return __builtin_popcount(x); }
static void __syncwarp() { of_warp[running / 32].wait(); }
static bool any(bool x) { return x; } // all lanes have the same
static bool all(bool x) { return x; }
static u32 shared_by_lanes(u32 x) { return x; }
static bool any_lane(bool x) { return __ballot_sync(~0u, x); }
static u32 __umulhi(u32 a, u32 b) { return (u64)a * b >> 32; }
static u32 __float_as_uint(float x) { u32 v; memcpy(&v, &x, 4); return v; }
static float __uint_as_float(u32 v) { float x; memcpy(&x, &v, 4); return x; }
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
static float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
static u32 to_bf16(float x) {
    const u32 v = __float_as_uint(x);
    return (v + 0x7fff + (v >> 16 & 1)) >> 16;
}
static u32 pack_bf16(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __fadd_rn(float a, float b) { return a + b; }
static u32 min(u32 a, u32 b) { return a < b ? a : b; }
static u32 max(u32 a, u32 b) { return a < b ? b : a; }
static void atomicOr(u32* to, u32 bits) { *to |= bits; }
static uint4 load_relaxed(const u64* p) { uint4 v; memcpy(&v, p, 16); return v; }
static uint4 load_cached(const u64* p) { return load_relaxed(p); }
static u32 load_relaxed_u32(const u32* p) { return *p; }
static void store_relaxed_u32(u32* p, u32 value) { *p = value; }
static uint2 load_relaxed_one(const u64* p) { uint2 v; memcpy(&v, p, 8); return v; }
static uint2 load_cached_one(const u64* p) { return load_relaxed_one(p); }
static void fence_copies() {}
static void fence_shared_copies() {}
static dim gridDim = {1}, blockIdx = {0};
