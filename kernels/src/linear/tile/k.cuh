// The scales of blocks of 256 codes: small integers for a tile, times a binary16 for a pack.
#pragma once
#include "tile.cuh"

// `d * scale * code - dmin * min`: 4 bytes of d and dmin, then scale and min of each tile.
template <class C> struct GroupScaled {
    using Coding = C;
    static constexpr u32 GROUPS = 8, SCALES = 20, ALIKE = 1;
    static constexpr bool SUMS = true, SHIFTS = true;
    u32 d = 0, both = 0;

    AMK_DEVICE void load(u32 side, u32 group) {
        d = load_shared_word(side);
        both = load_shared_half(side + 4 + group * 2);
    }
    AMK_DEVICE float taken() const { return C::ADDED; }
    AMK_DEVICE float scale(bool) const { return low_half(d) * byte_of(both, 0); }
    AMK_DEVICE float shift() const { return -(high_half(d) * byte_of(both, 1)); }
    AMK_DEVICE float add(float y, float even, float odd, float sum) const {
        const float factor = scale(false), min = high_half(d) * byte_of(both, 1);
        return fmaf(factor, fmaf(-C::ADDED, sum, even + odd), fmaf(-min, sum, y));
    }
};

// `d * scale * (code - 32)`: d, then the scales of the halves of each tile, signed.
struct HalfScaled {
    using Coding = Codes<6>;
    static constexpr u32 GROUPS = 8, SCALES = 18, ALIKE = 1;
    static constexpr bool SUMS = false, SHIFTS = false;
    u32 d = 0, both = 0;

    AMK_DEVICE void load(u32 side, u32 group) {
        d = load_shared_half(side);
        both = load_shared_half(side + 2 + group * 2) ^ 0x8080;
    }
    AMK_DEVICE float taken() const { return 0; }
    AMK_DEVICE float scale(bool odd) const { return low_half(d) * byte_of(both, odd, -128); }
    AMK_DEVICE float shift() const { return 0; }
    AMK_DEVICE float add(float y, float even, float odd, float) const {
        const float of_even = byte_of(both, 0, -128), of_odd = byte_of(both, 1, -128);
        return fmaf(low_half(d), fmaf(of_even, even, of_odd * odd), y);
    }
};

using Q4_K = GroupScaled<Codes<4>>;
using Q5_K = GroupScaled<Codes<5>>;
using Q6_K = HalfScaled;
