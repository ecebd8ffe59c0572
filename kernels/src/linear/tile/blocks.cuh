// The scales of blocks of 32 codes and of groups of 32, 64 and 128: of a row and a pack, or of each
// tile of a pack of several blocks. An element is `scale * (number - taken) + shift`. OFF: what is
// added to each number, where it is the same for all.
#pragma once
#include "values.cuh"

// Types of scales, from byte `at` of a word on.
struct F16Scale {
    static constexpr u32 BYTES = 2;
    AMK_DEVICE static float of(u32 word, u32 at) { return at ? high_half(word) : low_half(word); }
};
struct BF16Scale {
    static constexpr u32 BYTES = 2;
    AMK_DEVICE static float of(u32 word, u32 at) { return at ? bf16_high(word) : bf16_low(word); }
};
struct F32Scale {
    static constexpr u32 BYTES = 4;
    AMK_DEVICE static float of(u32 word, u32) { return __uint_as_float(word); }
};

// Packs of TILES tiles with BYTES of scales for LEN columns, which are the pack or a tile.
template <u32 BYTES, u32 LEN, u32 TILES> struct Packs {
    static constexpr bool WHOLE = LEN == 32 * TILES;
    static_assert(WHOLE || LEN == 32, "scales of a pack or of a tile");
    static constexpr u32 GROUPS = TILES, HEAD = WHOLE ? BYTES : 0, TAIL = WHOLE ? 0 : BYTES,
                         ALIKE = LEN / 32;
    AMK_DEVICE static u32 word(const ScaleWords& s) { return WHOLE ? s.first : s.own; }
};

// `d * (code - ZERO)`.
template <class C, int ZERO, class S = F16Scale, u32 LEN = 32, u32 TILES = LEN / 32>
struct Scaled : Packs<S::BYTES, LEN, TILES> {
    using Coding = C;
    static constexpr int OFF = -((int)C::ADDED + ZERO);
    static constexpr bool SUMS = OFF != 0, SHIFTS = false, HALVES = false;

    AMK_DEVICE static float taken(const ScaleWords&) { return -OFF; }
    AMK_DEVICE static float scale(const ScaleWords& s, bool, u32 at = 0) {
        return S::of(Scaled::word(s), at);
    }
    AMK_DEVICE static float shift(const ScaleWords&, u32) { return 0; }
    struct Total {
        float y = 0;
        AMK_DEVICE void add(const ScaleWords& s, u32 at, float even, float odd, float) {
            y = fmaf(S::of(Scaled::word(s), at), even + odd, y);
        }
        AMK_DEVICE void end_pack(const ScaleWords&) {}
    };
};

// `d * (code - zero)`: the zero is the byte after the scale.
template <class C, class S, u32 LEN> struct Zeroed : Packs<2 * S::BYTES, LEN, LEN / 32> {
    using Coding = C;
    static constexpr int OFF = 0; // each row's own
    static constexpr bool SUMS = true, SHIFTS = false, HALVES = false;

    AMK_DEVICE static float taken(const ScaleWords& s) {
        return byte_of(S::BYTES == 4 ? s.second : s.first, S::BYTES % 4, C::ADDED);
    }
    AMK_DEVICE static float scale(const ScaleWords& s, bool, u32 = 0) { return S::of(s.first, 0); }
    AMK_DEVICE static float shift(const ScaleWords&, u32) { return 0; }
    struct Total {
        float y = 0;
        AMK_DEVICE void add(const ScaleWords& s, u32, float even, float odd, float sum) {
            y = fmaf(scale(s, false), fmaf(-taken(s), sum, even + odd), y);
        }
        AMK_DEVICE void end_pack(const ScaleWords&) {}
    };
};

// `d * code + m`.
template <class C, u32 TILES = 1> struct Shifted : Packs<4, 32, TILES> {
    using Coding = C;
    static constexpr int OFF = -(int)C::ADDED;
    static constexpr bool SUMS = true, SHIFTS = true, HALVES = false;

    AMK_DEVICE static float taken(const ScaleWords&) { return -OFF; }
    AMK_DEVICE static float scale(const ScaleWords& s, bool, u32 = 0) {
        return low_half(Shifted::word(s));
    }
    AMK_DEVICE static float shift(const ScaleWords& s, u32 = 0) {
        return high_half(Shifted::word(s));
    }
    struct Total {
        float y = 0;
        AMK_DEVICE void add(const ScaleWords& s, u32, float even, float odd, float sum) {
            y = fmaf(scale(s, false), even + odd, fmaf(shift(s), sum, y));
        }
        AMK_DEVICE void end_pack(const ScaleWords&) {}
    };
};

template <u32 TILES> using Q4_0 = Scaled<Codes<4>, 8, F16Scale, 32, TILES>;
template <u32 TILES> using Q4_1 = Shifted<Codes<4>, TILES>;
template <u32 TILES> using Q5_0 = Scaled<Codes<5>, 16, F16Scale, 32, TILES>;
template <u32 TILES> using Q5_1 = Shifted<Codes<5>, TILES>;
template <u32 TILES> using Q8_0 = Scaled<Bytes, 128, F16Scale, 32, TILES>;
template <u32 TILES> using IQ4_NL = Scaled<Nonlinear, 128, F16Scale, 32, TILES>;
template <u32 TILES> using MXFP4 = Scaled<E2m1, 0, BF16Scale, 32, TILES>;
