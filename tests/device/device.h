// A multiprocessor without a GPU: its shared memory, numbers and tensor cores.
#pragma once
#include "coroutines.h"

#define AMK_UNIT 8
#define AMK_GROUP_UNITS 16
#ifndef AMK_ROW_UNITS
#define AMK_ROW_UNITS (AMK_ROWS ? 8 : AMK_GROUP_UNITS)
#endif
#define AMK_PER_PACKET 2
#define AMK_CHUNK 32768
#define AMK_SLOTS 6
#ifndef AMK_SLOT_BYTES
#define AMK_SLOT_BYTES AMK_CHUNK
#endif
#define AMK_NARROW_ROWS 8
#ifndef AMK_WIDE
#define AMK_WIDE (AMK_ROWS > AMK_NARROW_ROWS)
#endif
#define AMK_ROW_WORDS 16384
#ifndef AMK_ROW_SCRATCH
#define AMK_ROW_SCRATCH 32768
#endif
#define AMK_LAYERS 2
#ifndef AMK_GROUPS
#define AMK_GROUPS 1
#endif
#ifndef AMK_ROW_PACKETS
#define AMK_ROW_PACKETS 0
#endif
#ifndef AMK_CACHE_BYTES
#define AMK_CACHE_BYTES 2
#endif
#ifndef AMK_PAGED
#define AMK_PAGED 0
#endif
constexpr u32 BF16_ONES = 0x3f803f80;
constexpr float LOG2_E = 1.44269504f;

// ---- shared memory: an arena of which addresses are offsets ----
constexpr u32 RING = 1 << 16; // descriptions of matrices have 18 bits of an address
alignas(1024) static u8 arena[RING + 64 * AMK_CHUNK + (1 << 18)];
static u32 shared_address(const void* p) { return (const u8*)p - arena; }
static void* __cvta_shared_to_generic(u32 at) { return arena + at; }
template <class T> static T shared_at(u32 at) {
    T v;
    if (at % sizeof(T)) exit(printf("a shared address is not aligned: %u of %zu bytes\n", at, sizeof(T)));
    memcpy(&v, arena + at, sizeof(T));
    return v;
}
static uint4 load_shared(u32 at) { return shared_at<uint4>(at); }
static uint2 load_shared_two(u32 at) { return shared_at<uint2>(at); }
static float2 load_shared_pair(u32 at) { return shared_at<float2>(at); }
static float load_shared_one(u32 at) { return shared_at<float>(at); }
static void store_shared(u32 at, float value, bool mine) {
    if (mine) memcpy(arena + at, &value, 4);
}
static void store_shared(u32 at, const uint4& value) {
    if (at % sizeof(value)) exit(printf("a shared address is not aligned: %u\n", at));
    memcpy(arena + at, &value, sizeof(value));
}

static void prefetch_line(const void*) {}

// ---- numbers ----
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static float rounded(float x) { return __uint_as_float(to_bf16(x) << 16); }
static float rsqrt_fast(float x) { return 1 / sqrtf(x); }
static float rsqrtf(float x) { return 1 / sqrtf(x); }
static float exp2_fast(float x) { return exp2f(x); }
#define __log2f log2f
static float __fdividef(float a, float b) { return a / b; }
static u32 __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
static uint4 load_relaxed_wide(const u64* p) { return load_relaxed(p); }
static void __threadfence_block() {}
static void atomicAdd(u32* to, u32 by) { *to += by; }

static u32 permute(u32 a, u32 b, u32 selectors) {
    u32 r = 0;
    for (u32 i = 0; i < 4; i++) {
        const u32 from = selectors >> 4 * i & 7;
        r |= ((from & 4 ? b : a) >> 8 * (from & 3) & 255) << 8 * i;
    }
    return r;
}
static u32 multiply_bf16(u32 pair, u32 other) {
    return pack_bf16(bf16_low(pair) * bf16_low(other), bf16_high(pair) * bf16_high(other));
}

// ---- tensor cores ----
struct Fragments { u32 word[6]; };
static Fragments fragments[COROUTINES];
static float element(u32 pair, u32 odd) { return odd ? bf16_high(pair) : bf16_low(pair); }
static void mma(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
    const u32 lane = running % 32, warp = running - lane;
    fragments[running] = {{a.x, a.y, a.z, a.w, b0, b1}};
    __syncwarp();
    for (u32 i = 0; i < 4; i++) {
        const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (u32 k = 0; k < 16; k++) {
            const u32 of_a = warp + row % 8 * 4 + k % 8 / 2, of_b = warp + column * 4 + k % 8 / 2;
            d[i] += element(fragments[of_a].word[row / 8 + k / 8 * 2], k % 2) * element(fragments[of_b].word[4 + k / 8], k % 2);
        }
    }
    __syncwarp();
}
// Products of a warpgroup: a warp has 16 rows of A. Functions in wgmma.cuh describe matrices: pieces
// of 16 bytes by themselves, or in lines of 64 or 128 bytes, in which they change places.
static float of_matrices(u64 described, u32 row, u32 k) {
    const u32 first = (described & 0x3fff) + row / 8 * (described >> 32 & 0x3fff), swizzle = described >> 62;
    if (!swizzle) return element(shared_at<u16>((first + k / 8 * (described >> 16 & 0x3fff)) * 16 + row % 8 * 16 + k % 8 * 2), 0);
    const u32 line = swizzle == 1 ? 128 : 64, at = first * 16 + row % 8 * line + k * 2;
    return element(shared_at<u16>(at ^ (at / 128 % (line / 16)) * 16), 0);
}
template <int N, class A> static void add_products(float (&d)[N][4], A a, u64 b) {
    const u32 lane = running % 32;
    for (u32 n = 0; n < N; n++)
        for (u32 i = 0; i < 4; i++) {
            const u32 row = lane / 4 + i / 2 * 8, column = 8 * n + lane % 4 * 2 + i % 2;
            for (u32 k = 0; k < 16; k++) d[n][i] += a(row, k) * of_matrices(b, column, k);
        }
}
template <bool ADD = true, int N> static void wgmma(float (&d)[N][4], u64 a, u64 b) {
    if (!ADD) memset(d, 0, sizeof d);
    add_products(d, [&](u32 row, u32 k) { return of_matrices(a, running / 32 % 4 * 16 + row, k); }, b);
}
template <bool ADD = true, int N> static void wgmma(float (&d)[N][4], const uint4& a, u64 b) {
    if (!ADD) memset(d, 0, sizeof d);
    const u32 warp = running / 32 * 32;
    fragments[running] = {{a.x, a.y, a.z, a.w}};
    __syncwarp();
    const auto of_fragments = [&](u32 row, u32 k) {
        const u32 lane = row % 8 * 4 + k % 8 / 2;
        return element(fragments[warp + lane].word[row / 8 + k / 8 * 2], k % 2);
    };
    add_products(d, of_fragments, b);
    __syncwarp();
}
static void wgmma_begin() {}
static void wgmma_issue() {}
template <u32 = 0> static void wgmma_end() {}
template <int N> static void wgmma_settle(float (&)[N][4]) {}
// Stores four matrices of 8 rows, each row named by a lane.
static void store_matrices(u32 row, const uint4& v) {
    const u32 lane = running % 32, warp = running - lane;
    fragments[running] = {{v.x, v.y, v.z, v.w, row}};
    __syncwarp();
    for (u32 i = 0; i < 4; i++) memcpy(arena + row + i * 4, &fragments[warp + lane % 8 * 4 + i].word[lane / 8], 4);
    __syncwarp();
}
// Four matrices of 8 rows, each named by a lane.
static uint4 load_matrices(u32 row) {
    const u32 lane = running % 32, warp = running - lane;
    fragments[running].word[0] = row;
    __syncwarp();
    u32 words[4];
    for (u32 m = 0; m < 4; m++) words[m] = shared_at<u32>(fragments[warp + m * 8 + lane / 4].word[0] + lane % 4 * 4);
    __syncwarp();
    return {words[0], words[1], words[2], words[3]};
}
static u32 transpose_8x8(u32 v) {
    const u32 lane = running % 32, warp = running - lane;
    fragments[running].word[0] = v;
    __syncwarp();
    const auto at = [&](u32 row, u32 column) { return fragments[warp + row * 4 + column / 2].word[0] >> column % 2 * 16 & 0xffff; };
    const u32 turned = at(lane % 4 * 2, lane / 4) | at(lane % 4 * 2 + 1, lane / 4) << 16;
    __syncwarp();
    return turned;
}

// Small numbers, the same in each run.
static float drawn() {
    static u32 state = 1;
    state = state * 1664525 + 1013904223;
    return (float)(state >> 8) / (1 << 23) - 1;
}
static void near(const char* what, u32 at, double found, double expected, double most) {
    if (!(std::fabs(found - expected) <= most)) exit(printf("%s[%u] is %g, expected %g\n", what, at, found, expected));
}
