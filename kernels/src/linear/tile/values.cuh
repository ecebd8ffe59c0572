// Codes of values: floats of 8 and of 4 bits, and numbers in a table.
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

// e2m1: a sign, two bits of exponent and one of mantissa, as e4m3 with 2^126. The bits of three of
// four codes are as far from each other as in bf16.
struct E2m1 {
    static constexpr u32 BITS = 4;
    static constexpr float ADDED = 0;
    u32 low = 0;

    AMK_DEVICE void load(u32 tile, u32 lane) { low = load_shared_word(tile + lane * 4); }
    AMK_DEVICE static u32 pair(u32 bits) { return multiply_bf16(bits, 0x7e807e80); }
    AMK_DEVICE uint4 fragment() const {
        constexpr u32 PLACE = 0x81c081c0;
        const u32 last =
            masked<0x80008000>(low << 1, masked<0x01800180>(low >> 3, low >> 7 & 0x00400040));
        return make_uint4(pair(low & PLACE), pair(low << 3 & PLACE), pair(low << 6 & PLACE),
                          pair(last));
    }
};

// The values of IQ4_NL, signed bytes (`kvalues_iq4nl` of GGML): those of even numbers, then those
// of odd ones. A selector above 7 gives 255 for a negative byte, which inverts the other table's,
// and 0 for others.
struct Nonlinear {
    static constexpr u32 BITS = 4;
    static constexpr float ADDED = 0;
    u32 low = 0;

    AMK_DEVICE void load(u32 tile, u32 lane) { low = load_shared_word(tile + lane * 4); }
    // Two pairs: of the even half in the even bytes.
    AMK_DEVICE static u32 bytes(u32 even, u32 odd) {
        return permute(0xeacfad81, 0x59351901, even) ^ permute(0x09224067, 0x7145260d, odd);
    }
    AMK_DEVICE uint4 fragment() const {
        const u32 odd = low ^ 0x88888888;
        return Codes<8>::fragment({bytes(low, odd), bytes(low >> 16, odd >> 16)});
    }
};
