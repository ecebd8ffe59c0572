// Codes that are no integers: floats of 8 bits.
#pragma once
#include "tile.cuh"

// e4m3: a sign, four bits of exponent and three of mantissa. Where bf16 has them the exponent is
// 120 too small, that of subnormals, too: the product with 2^120 is exact.
struct E4m3 {
    static constexpr u32 BITS = 8;
    static constexpr float ADDED = 0;
    uint2 all = {0, 0};

    AMK_DEVICE void load(u32 tile, u32 lane) { all = load_shared_two(tile + lane * 8); }
    AMK_DEVICE static u32 pair(u32 sign, u32 others) {
        return multiply_bf16(masked<0x80008000>(sign, others & 0x07f007f0), 0x7b807b80);
    }
    AMK_DEVICE uint4 fragment() const {
        return make_uint4(pair(all.x << 8, all.x << 4), pair(all.x, all.x >> 4),
                          pair(all.y << 8, all.y << 4), pair(all.y, all.y >> 4));
    }
};
