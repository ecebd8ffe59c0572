// Device code on the CPU: the threads of a worker are coroutines that take turns at barriers and shuffles. A file that includes this
// defines AMK_WARPS before.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
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
// A context begins a thread; from then on jumps go to and fro, which need no system calls.
static ucontext_t contexts[THREADS], outside;
static std::vector<char> stacks(THREADS << 16);
static void* places[THREADS][5];
static bool started[THREADS], ended[THREADS];
static u32 running, left;
static void (*body)(u32 thread);

__attribute__((noinline)) static void go_on() {
    do running = (running + 1) % THREADS;
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
static void run(void (*of)(u32)) {
    body = of, running = 0, left = THREADS;
    for (u32 i = 0; i < THREADS; i++) {
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
static Barrier of_block = {THREADS, 0, 0}, of_warp[AMK_WARPS];
static u64 exchanged[THREADS];

template <class T> static T __shfl_xor_sync(u32, T value, int mask) {
    T other;
    memcpy(&exchanged[running], &value, sizeof(T));
    of_warp[running / 32].wait();
    memcpy(&other, &exchanged[running ^ mask], sizeof(T));
    of_warp[running / 32].wait();
    return other;
}
static void __syncwarp() { of_warp[running / 32].wait(); }
static bool any(bool x) { return x; }
static u32 __umulhi(u32 a, u32 b) { return (u64)a * b >> 32; }
static u32 __float_as_uint(float x) { u32 v; memcpy(&v, &x, 4); return v; }
static float __uint_as_float(u32 v) { float x; memcpy(&x, &v, 4); return x; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __fadd_rn(float a, float b) { return a + b; }
static u32 min(u32 a, u32 b) { return a < b ? a : b; }
static void atomicOr(u32* to, u32 bits) { *to |= bits; }
static uint4 load_relaxed(const u64* p) { uint4 v; memcpy(&v, p, 16); return v; }
static uint2 load_relaxed_one(const u64* p) { uint2 v; memcpy(&v, p, 8); return v; }
static dim gridDim = {1}, blockIdx = {0};
