// The scales of blocks of 32 codes: binary16, of a row and a tile.
#pragma once
#include "tile.cuh"

// `d * (code - ZERO)`.
template <u32 BITS_, int ZERO> struct Scaled {
    static constexpr u32 BITS = BITS_, GROUPS = 1, SCALES = 2;
    u32 d = 0;

    AMK_DEVICE void load(u32 side, u32) { d = load_shared_half(side); }
    AMK_DEVICE float add(float y, float even, float odd, float sum, float added) const {
        const float product = even + odd;
        return fmaf(low_half(d), added + ZERO ? fmaf(-(added + ZERO), sum, product) : product, y);
    }
};

// `d * code + m`.
template <u32 BITS_> struct Shifted {
    static constexpr u32 BITS = BITS_, GROUPS = 1, SCALES = 4;
    u32 dm = 0;

    AMK_DEVICE void load(u32 side, u32) { dm = load_shared_word(side); }
    AMK_DEVICE float add(float y, float even, float odd, float sum, float added) const {
        return fmaf(low_half(dm), fmaf(-added, sum, even + odd), fmaf(high_half(dm), sum, y));
    }
};

using Q4_0 = Scaled<4, 8>;
using Q4_1 = Shifted<4>;
using Q5_0 = Scaled<5, 16>;
using Q5_1 = Shifted<5>;
using Q8_0 = Scaled<8, 0>;
