// Tiles of a projection's weights: 8 rows x 32 columns, decoded to one A fragment of mma.
//
// A tile of bf16 is a fragment: rows 0-7 hold the even half of the columns, rows 8-15 the odd half.
// Other tiles have codes of 4 to 8 bits and, for each row, the data of its scales. Codes become
// numbers that bf16 holds exactly, so a product of a tile is exact but for the sum in fp32; scales
// are applied to that, in fp32. What a fragment's numbers have above their codes is a multiple of
// the sum of the inputs, and comes off in fp32.
//
// The low byte of a bf16 is an integer in steps of 2^-133, those of the subnormal numbers and of
// the first normal ones: a code of 4 or 8 bits is a number where it lies, with a mask alone. Such
// numbers, and floats whose exponents have fewer bits, are smaller by 2^DOWN. Inputs are larger by
// 2^LIFT instead, which is exact for all below 2^(128 - LIFT), whose squares fp32 holds; sums of
// products are smaller by the rest. An addition to them may lose 2^-149 of that, 2^-80 of a result
// at most. Tensor cores take subnormal numbers as they are (Fasi, Higham, Mikaitis, Pranesh:
// "Numerical behavior of NVIDIA tensor cores", 2021).
#pragma once
#include "../../../../amk/cuda/device/ptx.cuh"

struct Fragment {
    u32 b0, b1;
};

// Byte `at` of a word and an integer, exactly, with fewer instructions than a conversion takes: a
// mantissa of 2^23.
AMK_DEVICE float byte_of(u32 word, u32 at, float added = 0) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 | at)) - (8388608.0f - added);
}

constexpr u32 BF16_128 = 0x43004300; // a pair
constexpr int LIFT = 64;
constexpr u32 BF16_LIFT = 0x5f805f80; // a pair of 2^LIFT
constexpr int STEPS = 133;            // DOWN of integers in the low byte

constexpr float power_of_two(int exponent) {
    float power = 1;
    for (; exponent > 0; exponent--) power *= 2;
    for (; exponent < 0; exponent++) power /= 2;
    return power;
}

// A pair of 2^exponent, for exponents of normal numbers.
constexpr u32 bf16_power(int exponent) { return (u32)(exponent + 127) * 0x00800080; }
// A pair of a float that bf16 holds exactly.
AMK_DEVICE u32 bf16_exact(float x) {
    return __byte_perm(__float_as_uint(x), __float_as_uint(x), 0x3232);
}
// A float as the sum of two bf16, each as a pair.
struct Bf16Twice {
    u32 high, low;
    AMK_DEVICE explicit Bf16Twice(float x) {
        high = pack_bf16(x, x);
        const float rest = x - bf16_low(high);
        low = pack_bf16(rest, rest);
    }
};

// A tile of bf16, as a lane has it. In memory its rows are swizzled lines of 64 bytes, each the k
// of two products of `wgmma`, which can take eight of them as they are.
struct BF16Tile {
    static constexpr u32 BYTES = AMK_TILE;
    static constexpr bool SUMS = false; // whether products need the sums of the inputs
    static constexpr bool DECODES = false;
    uint4 a = {0, 0, 0, 0};

    // Offset in a tile of the row that a lane names for `ldmatrix`.
    AMK_DEVICE static u32 named(u32 lane) {
        const u32 row = lane & 7, piece = (lane >> 4 & 1) | (lane >> 2 & 2);
        return row * 64 + ((piece ^ row >> 1) & 3) * 16;
    }
    // Shared address from which the tiles of a block from number `first` on are loaded.
    AMK_DEVICE static u32 place(u32 block, u32 first, u32 named) {
        return block + first * AMK_TILE + named;
    }
    // Loads tile `first + j`, one of DEPTH.
    template <int DEPTH> AMK_DEVICE void load(u32 place, u32, u32 j, u32) {
        a = load_matrices(place + j * AMK_TILE);
    }
    // Makes an input ready for products: with its sum, where they need it.
    AMK_DEVICE static void prepare(Fragment&, float&) {}
    // The elements, rounded to bf16, in the places of this tile's.
    AMK_DEVICE uint4 decoded() const { return a; }
    // The rows' products with the fragments `x(j)`.
    template <int DEPTH, class X, class S>
    AMK_DEVICE static float product(const BF16Tile (&tiles)[DEPTH], X x, S) {
        float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0}; // two chains
#pragma unroll
        for (int j = 0; j < DEPTH; j++) mma(j & 1 ? e : d, tiles[j].a, x(j).b0, x(j).b1);
        return (d[0] + e[0]) + (d[3] + e[3]);
    }
};

// The codes of a lane: columns 4q..4q+3 of both halves of its row, for quad q. Fragment i has two
// neighbours: 0 and 2 of the even half, 1 and 3 of the odd half. Its numbers are the codes and
// ADDED, divided by 2^DOWN; ODD times those of the odd half are.
template <u32 BITS> struct Codes;

template <> struct Codes<4> {
    static constexpr u32 BITS = 4;
    static constexpr int DOWN = STEPS;
    static constexpr float ADDED = 0, ODD = 0.0625f;
    u32 low = 0;

    AMK_DEVICE void load(u32 tile, u32 lane) { low = load_shared_word(tile + lane * 4); }
    AMK_DEVICE uint4 fragment() const {
        const u32 next = low >> 8;
        return make_uint4(low & 0x000f000f, low & 0x00f000f0, next & 0x000f000f, next & 0x00f000f0);
    }
};

// The low four bits of codes as mantissas: numbers of 128 + them.
struct Mantissas {
    static constexpr int DOWN = 0;
    static constexpr float ADDED = 128, ODD = 1;
    u32 low = 0;

    AMK_DEVICE void load(u32 tile, u32 lane) { low = load_shared_word(tile + lane * 4); }
    AMK_DEVICE u32 pair(int i) const { return masked<0x000f000f>(low >> (4 * i), BF16_128); }
};

template <> struct Codes<5> : Mantissas {
    static constexpr u32 BITS = 5;
    u32 high = 0; // a bit for each code, the second ones of the pairs from bit 16 on

    AMK_DEVICE void load(u32 tile, u32 lane) {
        Mantissas::load(tile, lane);
        high = load_shared_byte(tile + 128 + lane);
    }
    AMK_DEVICE uint4 fragment() const {
        const u32 bits = high | high << 12;
        const auto pair = [&](int i) {
            return masked<0x00100010>(bits << (4 - i), Mantissas::pair(i));
        };
        return make_uint4(pair(0), pair(1), pair(2), pair(3));
    }
};

// 32 is taken off each code: these tiles have two scales a row, so sums of both halves would be
// needed.
template <> struct Codes<6> : Mantissas {
    static constexpr u32 BITS = 6;
    static constexpr float ADDED = -32;
    u32 high = 0; // two bits for each code

    AMK_DEVICE void load(u32 tile, u32 lane) {
        Mantissas::load(tile, lane);
        high = load_shared_half(tile + 128 + lane * 2);
    }
    AMK_DEVICE uint4 fragment() const {
        const u32 bits = high | high << 8;
        const auto pair = [&](int i) {
            const u32 upper = i < 3 ? bits << (4 - 2 * i) : bits >> 2;
            return fma_bf16(masked<0x00300030>(upper, Mantissas::pair(i)), BF16_ONES, 0xc320c320);
        };
        return make_uint4(pair(0), pair(1), pair(2), pair(3));
    }
};

// Signed bytes: the codes from 0 to 255 less 128. The low seven bits give 128 + them, the sign bit
// 128 or 256, which is taken off.
template <> struct Codes<8> {
    static constexpr u32 BITS = 8;
    static constexpr int DOWN = 0;
    static constexpr float ADDED = -128, ODD = 1;
    uint2 all = {0, 0};

    AMK_DEVICE void load(u32 tile, u32 lane) { all = load_shared_two(tile + lane * 8); }
    AMK_DEVICE static u32 pair(u32 bytes) {
        return fma_bf16(masked<0x00800080>(bytes, BF16_128), 0xbf80bf80,
                        masked<0x007f007f>(bytes, BF16_128));
    }
    AMK_DEVICE uint4 fragment() const {
        return make_uint4(pair(all.x), pair(all.x >> 8), pair(all.y), pair(all.y >> 8));
    }
};

// The sum of the inputs of a tile.
AMK_DEVICE float sum_of(const Fragment& x) {
    float d[4] = {0, 0, 0, 0};
    mma(d, make_uint4(BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES), x.b0, x.b1);
    return d[0] + d[3];
}

// A tile of blocks B: codes B::Coding, of B::GROUPS neighbouring tiles in a pack, which ends with
// B::SCALES bytes for each row. B::ALIKE tiles from a multiple of it on have the same scales.
template <class B> struct CodedTile {
    static constexpr u32 CODES = 32 * B::Coding::BITS, PACK = B::GROUPS * CODES + 8 * B::SCALES,
                         BYTES = PACK / B::GROUPS;
    static constexpr bool SUMS = B::SUMS, DECODES = true;
    // What sums of products are smaller by.
    static constexpr float SMALLER = power_of_two(B::Coding::DOWN ? LIFT - B::Coding::DOWN : 0);
    static_assert(PACK % 16 == 0 && PACK % B::GROUPS == 0, "copies are of 16 bytes");
    typename B::Coding codes;
    B scales; // of the first tile of a run

    // The tiles of a run, of a warp's DEPTH: they have the same scales.
    template <int DEPTH> AMK_DEVICE static constexpr int run() {
        int run = B::ALIKE;
        while (DEPTH % run) run /= 2;
        return run;
    }
    AMK_DEVICE static u32 named(u32) { return 0; }
    AMK_DEVICE static u32 place(u32 block, u32, u32) { return block; }
    template <int DEPTH> AMK_DEVICE void load(u32 place, u32 first, u32 j, u32 lane) {
        const u32 group = (first + j) % B::GROUPS, pack = place + (first + j) / B::GROUPS * PACK;
        codes.load(pack + group * CODES, lane);
        if (j % run<DEPTH>() == 0)
            scales.load(pack + B::GROUPS * CODES + (lane >> 2) * B::SCALES, group);
    }
    AMK_DEVICE static void prepare(Fragment& x, float& sum) {
        if (SUMS) sum = sum_of(x) * SMALLER;
        if (B::Coding::DOWN) x = {multiply_bf16(x.b0, BF16_LIFT), multiply_bf16(x.b1, BF16_LIFT)};
    }
    // What comes off the codes comes off exactly. Scales are two bf16, so an element is rounded
    // once, with a shift twice.
    AMK_DEVICE uint4 decoded() const {
        const uint4 a = codes.fragment();
        const Elements even(scales, false), odd(scales, true);
        return make_uint4(even.of(a.x), odd.of(a.y), even.of(a.z), odd.of(a.w));
    }
    // Makes elements of the pairs of a fragment.
    struct Elements {
        static constexpr int DOWN = B::Coding::DOWN, UP = DOWN < 127 ? DOWN : 127;
        u32 factor, taken;
        Bf16Twice scale, shift;

        AMK_DEVICE Elements(const B& scales, bool odd)
            : factor(bf16_power(odd && B::Coding::ODD < 1 ? UP - 4 : UP)),
              taken(bf16_exact(-scales.taken() * power_of_two(UP - DOWN))),
              scale(scales.scale(odd) * power_of_two(DOWN - UP)), shift(scales.shift()) {
            static_assert(B::Coding::ODD == 1 || B::Coding::ODD == 0.0625f, "see `factor`");
        }
        AMK_DEVICE u32 of(u32 pair) const {
            const u32 code = fma_bf16(pair, factor, taken);
            if (!B::SHIFTS) return fma_bf16(code, scale.high, multiply_bf16(code, scale.low));
            const u32 low = fma_bf16(code, scale.low, shift.low);
            return fma_bf16(BF16_ONES, low, fma_bf16(code, scale.high, shift.high));
        }
    };
    template <int DEPTH, class X, class S>
    AMK_DEVICE static float product(const CodedTile (&tiles)[DEPTH], X x, S sum) {
        constexpr int RUN = run<DEPTH>();
        float y = 0;
#pragma unroll
        for (int j = 0; j < DEPTH; j += RUN) {
            float d[4] = {0, 0, 0, 0}, inputs = SUMS ? sum(j) : 0;
#pragma unroll
            for (int i = j; i < j + RUN; i++) {
                mma(d, tiles[i].codes.fragment(), x(i).b0, x(i).b1);
                if (SUMS && i > j) inputs += sum(i);
            }
            y = tiles[j].scales.add(y, d[0], d[3] * B::Coding::ODD, inputs);
        }
        return y * (1 / SMALLER);
    }
};
