// Runs the choice of rows' tokens (kernels/src/choose/rows.cuh) without a GPU. The threads of the worker are coroutines that take turns
// at barriers and shuffles. Standard input: cases of `rows vocab words`, then the words of the choices and their changes as the
// host has them, then the bits of the logits. Standard output: a line of words for each case, the token of each row.
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
#define AMK_WARPS 2
#define AMK_UNIT 8
#define AMK_GROUP_UNITS 16
#define AMK_WIDE 0
#define static_assert(...) extern int unused // sizes of a whole worker
constexpr int SCRATCH_FLOATS = 4352;
constexpr u32 THREADS = AMK_WARPS * 32;
enum { TRACE_INPUTS };

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
static Barrier of_block = {THREADS, 0, 0}, of_warp[AMK_WARPS] = {{32, 0, 0}, {32, 0, 0}};
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

// ---- the worker, as far as the code names it ----
struct Record { u32 units, row, input, output, partial, layer; };
struct RowWords { u32 wanted; };
#include "rows.inc"

int main() {
    u32 words;
    while (scanf("%u %u %u", &params.row_count, &params.vocab, &words) == 3) {
        std::vector<u64> choices((words + 1) / 2), logits(params.row_count * params.vocab / 2);
        for (u32 i = 0; i < words; i++)
            if (scanf("%u", (u32*)choices.data() + i) != 1) return 1;
        for (u32 i = 0; i < params.row_count * params.vocab; i++)
            if (scanf("%u", (u32*)logits.data() + i) != 1) return 1;
        std::vector<u32> chosen(params.row_count, 7);
        params.logits = (float*)logits.data(), params.logit_stride = params.vocab;
        params.choices = (const RowChoice*)choices.data(), params.chosen = chosen.data();
        // The logits of the rows lie in the opposite order.
        for (u32 i = 0; i < params.row_count; i++) shared.rows[i].wanted = params.row_count - i;
        run([](u32 thread) {
            Worker w = {params, shared, thread / 32, thread % 32, 0};
            choose_rows(w, {params.row_count, 0, 0, 0, 0, 0});
        });
        for (u32 i = 0; i < params.row_count; i++) printf("%u ", chosen[i]);
        printf("\n");
    }
}
