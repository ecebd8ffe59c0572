// Elements of keys and values as caches have them: bf16, or e4m3 with AMK_CACHE_BYTES 1. Both lie
// in the same order; products have bf16, which every e4m3 is exactly.
//
// In a wide step all warps of a worker read the same tiles at about the same time, through the L1
// cache: the L2 cache would give less than half as many. All of a launch are written before the
// worker reads the first.
#pragma once
#include "../abi.cuh"
#include "../../../amk/cuda/device/ptx.cuh"

// Bytes of an A fragment, and of a lane's part of it. No variables: these would be in the cubin.
enum : u32 { CACHE_TILE = AMK_TILE / 2 * AMK_CACHE_BYTES, CACHE_LANE = CACHE_TILE / 32 };

#if AMK_CACHE_BYTES == 1
typedef u8 CacheElem;
typedef u16 CachePair;

// The nearest e4m3 of two numbers, of two the even one; the largest for anything beyond, and for
// NaN.
AMK_DEVICE u32 pack_e4m3(float low, float high) {
    const auto bounded = [](float x) {
        x = x < 448.0f ? x : 448.0f; // NaN is not below it
        return x > -448.0f ? x : -448.0f;
    };
    low = bounded(low), high = bounded(high);
#if __CUDA_ARCH__ >= 890
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    const auto code = [](float x) {
        const u32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffff;
        // Below 1/64 the steps are 1/512, as those of f32 are above 16384. Others lose bits of
        // mantissa; a carry goes to the exponent.
        const u32 small = __float_as_uint(__uint_as_float(magnitude) + 16384.0f) - 0x46800000u,
                  rounded = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120u << 3);
        return (magnitude < 0x3c800000u ? small : rounded) | (bits >> 24 & 0x80);
    };
    return code(low) | code(high) << 8;
#endif
}
// Four e4m3 as two pairs of bf16: exponent and mantissa one behind the other are those of a number
// that is smaller by 2^120.
AMK_DEVICE u32 widen_pair(u32 bytes) { // in the high bytes of two halves
    return multiply_bf16((bytes & 0x80008000u) | (bytes >> 4 & 0x07f007f0u), 0x7b807b80u);
}
AMK_DEVICE uint4 widen(uint2 v) {
    return make_uint4(widen_pair(permute(v.x, 0, 0x1404)), widen_pair(permute(v.x, 0, 0x3424)),
                      widen_pair(permute(v.y, 0, 0x1404)), widen_pair(permute(v.y, 0, 0x3424)));
}
AMK_DEVICE u32 pack_cache(float low, float high) { return pack_e4m3(low, high); }
// A pair of a query, or else of a key or a value.
AMK_DEVICE u32 pack_staged(bool query, float low, float high) {
    return query ? pack_bf16(low, high) : pack_e4m3(low, high);
}
AMK_DEVICE uint4 load_shared_tile(u32 at) { return widen(load_shared_two(at)); }
AMK_DEVICE uint4 load_tile(const u8* at) {
    return widen(AMK_WIDE ? load_cached_one((const u64*)at) : load_relaxed_one((const u64*)at));
}
#else
typedef u16 CacheElem;
typedef u32 CachePair;
AMK_DEVICE u32 pack_cache(float low, float high) { return pack_bf16(low, high); }
AMK_DEVICE u32 pack_staged(bool, float low, float high) { return pack_bf16(low, high); }
AMK_DEVICE uint4 load_shared_tile(u32 at) { return load_shared(at); }
AMK_DEVICE uint4 load_tile(const u8* at) {
    return AMK_WIDE ? load_cached((const u64*)at) : load_relaxed((const u64*)at);
}
#endif

// Offset in bytes of an element whose offset is `of_bf16` among elements of bf16.
AMK_DEVICE constexpr u32 cache_offset(u32 of_bf16) {
    return AMK_CACHE_BYTES == 2 ? of_bf16 : of_bf16 / 2;
}
AMK_DEVICE CacheElem low_element(u32 pair) { return (CacheElem)pair; }
AMK_DEVICE CacheElem high_element(u32 pair) { return (CacheElem)(pair >> 8 * AMK_CACHE_BYTES); }
