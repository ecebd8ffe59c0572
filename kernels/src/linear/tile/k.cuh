// The scales of blocks of 256 codes: small integers for a tile, times a binary16 for a pack, by
// which only the sums of a pack are multiplied.
#pragma once
#include "tile.cuh"

// `d * scale * code - dmin * min`: d and dmin, then scale and min of each tile.
template <class C> struct GroupScaled {
    using Coding = C;
    static constexpr u32 GROUPS = 8, HEAD = 4, TAIL = 2, ALIKE = 1;
    static constexpr int OFF = -(int)C::ADDED;
    static constexpr bool SUMS = true, SHIFTS = true, HALVES = false;

    AMK_DEVICE static float taken(const ScaleWords&) { return -OFF; }
    AMK_DEVICE static float scale(const ScaleWords& s, bool, u32 at) {
        return low_half(s.first) * byte_of(s.own, at);
    }
    AMK_DEVICE static float shift(const ScaleWords& s, u32 at) {
        return -(high_half(s.first) * byte_of(s.own, at + 1));
    }
    struct Total {
        float y = 0, products = 0, mins = 0;
        AMK_DEVICE void add(const ScaleWords& s, u32 at, float even, float odd, float sum) {
            products = fmaf(byte_of(s.own, at), even + odd, products);
            mins = fmaf(byte_of(s.own, at + 1), sum, mins);
        }
        AMK_DEVICE void end_pack(const ScaleWords& s) {
            y = fmaf(low_half(s.first), products, fmaf(-high_half(s.first), mins, y));
            products = mins = 0;
        }
    };
};

// `d * scale * (code - 32)`: d, then the signed scales of the halves of each tile.
struct HalfScaled {
    using Coding = Codes<6>;
    static constexpr u32 GROUPS = 8, HEAD = 2, TAIL = 2, ALIKE = 1;
    static constexpr int OFF = 0;
    static constexpr bool SUMS = false, SHIFTS = false, HALVES = true;

    // A signed byte is 128 less than the byte with its sign changed.
    AMK_DEVICE static float half_scale(const ScaleWords& s, u32 at) {
        return byte_of(s.own ^ 0x80808080, at, -128);
    }
    AMK_DEVICE static float taken(const ScaleWords&) { return 0; }
    AMK_DEVICE static float scale(const ScaleWords& s, bool odd, u32 at) {
        return low_half(s.first) * half_scale(s, at + odd);
    }
    AMK_DEVICE static float shift(const ScaleWords&, u32) { return 0; }
    struct Total {
        float y = 0, products = 0;
        AMK_DEVICE void add(const ScaleWords& s, u32 at, float even, float odd, float) {
            products = fmaf(half_scale(s, at), even, fmaf(half_scale(s, at + 1), odd, products));
        }
        AMK_DEVICE void end_pack(const ScaleWords& s) {
            y = fmaf(low_half(s.first), products, y), products = 0;
        }
    };
};

using Q4_K = GroupScaled<Codes<4>>;
using Q5_K = GroupScaled<Codes<5>>;
using Q6_K = HalfScaled;
