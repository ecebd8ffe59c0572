// The scales of blocks of 32 codes and of groups of 32, 64 and 128: of a row and a pack. An element
// is `scale * (number - taken) + shift`.
#pragma once
#include "values.cuh"

// Types of scales, in the low bytes of a word.
struct F16Scale {
    static constexpr u32 BYTES = 2;
    AMK_DEVICE static float of(u32 word) { return low_half(word); }
};
struct BF16Scale {
    static constexpr u32 BYTES = 2;
    AMK_DEVICE static float of(u32 word) { return bf16_low(word); }
};
struct F32Scale {
    static constexpr u32 BYTES = 4;
    AMK_DEVICE static float of(u32 word) { return __uint_as_float(word); }
};

// `d * (code - ZERO)`.
template <class C, int ZERO, class S = F16Scale, u32 LEN = 32> struct Scaled {
    using Coding = C;
    static constexpr u32 GROUPS = LEN / 32, SCALES = S::BYTES, ALIKE = GROUPS;
    static constexpr bool SUMS = C::ADDED + ZERO != 0, SHIFTS = false;
    u32 d = 0;

    AMK_DEVICE void load(u32 side, u32) {
        d = S::BYTES == 4 ? load_shared_word(side) : load_shared_half(side);
    }
    AMK_DEVICE float taken() const { return C::ADDED + ZERO; }
    AMK_DEVICE float scale(bool) const { return S::of(d); }
    AMK_DEVICE float shift() const { return 0; }
    AMK_DEVICE float add(float y, float even, float odd, float sum) const {
        const float product = even + odd;
        return fmaf(S::of(d), SUMS ? fmaf(-(C::ADDED + ZERO), sum, product) : product, y);
    }
};

// `d * (code - zero)`: the zero is the byte after the scale.
template <class C, class S, u32 LEN> struct Zeroed {
    using Coding = C;
    static constexpr u32 GROUPS = LEN / 32, SCALES = 2 * S::BYTES, ALIKE = GROUPS;
    static constexpr bool SUMS = true, SHIFTS = false;
    u32 d = 0, zero = 0; // bytes beside them are not cleared

    AMK_DEVICE void load(u32 side, u32) {
        if (S::BYTES == 4) {
            const uint2 both = load_shared_two(side);
            d = both.x, zero = both.y;
        } else
            d = zero = load_shared_word(side);
    }
    AMK_DEVICE float taken() const { return byte_of(zero, S::BYTES % 4, C::ADDED); }
    AMK_DEVICE float scale(bool) const { return S::of(d); }
    AMK_DEVICE float shift() const { return 0; }
    AMK_DEVICE float add(float y, float even, float odd, float sum) const {
        return fmaf(S::of(d), fmaf(-taken(), sum, even + odd), y);
    }
};

// `d * code + m`.
template <class C> struct Shifted {
    using Coding = C;
    static constexpr u32 GROUPS = 1, SCALES = 4, ALIKE = 1;
    static constexpr bool SUMS = true, SHIFTS = true;
    u32 dm = 0;

    AMK_DEVICE void load(u32 side, u32) { dm = load_shared_word(side); }
    AMK_DEVICE float taken() const { return C::ADDED; }
    AMK_DEVICE float scale(bool) const { return low_half(dm); }
    AMK_DEVICE float shift() const { return high_half(dm); }
    AMK_DEVICE float add(float y, float even, float odd, float sum) const {
        return fmaf(low_half(dm), fmaf(-C::ADDED, sum, even + odd), fmaf(high_half(dm), sum, y));
    }
};

using Q4_0 = Scaled<Codes<4>, 8>;
using Q4_1 = Shifted<Codes<4>>;
using Q5_0 = Scaled<Codes<5>, 16>;
using Q5_1 = Shifted<Codes<5>>;
using Q8_0 = Scaled<Codes<8>, 128>;
using IQ4_NL = Scaled<Nonlinear, 128>;
using MXFP4 = Scaled<E2m1, 0, BF16Scale>;
