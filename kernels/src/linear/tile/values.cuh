// Codes of other sorts: unsigned bytes, floats of 8 and of 4 bits, numbers in a table.
#pragma once
#include "tile.cuh"

struct Bytes {
    static constexpr u32 BITS = 8;
    static constexpr int DOWN = STEPS;
    static constexpr float ADDED = 0, ODD = 1;
    uint2 all = {0, 0};

    AMK_DEVICE void take(const u32* words) { all = {words[0], words[1]}; }
    AMK_DEVICE static uint4 fragment(uint2 bytes) {
        return make_uint4(bytes.x & 0x00ff00ff, permute(bytes.x, 0, 0x4341), bytes.y & 0x00ff00ff,
                          permute(bytes.y, 0, 0x4341));
    }
    AMK_DEVICE uint4 fragment() const { return fragment(all); }
};

// e4m3: a sign, four bits of exponent and three of mantissa. The first of the two codes of a half
// word is where bf16 has it. In the gaps are the second one's upper three bits of exponent, its
// sign and, at the end, the other four bits.
struct E4m3 {
    static constexpr u32 BITS = 8;
    static constexpr int DOWN = 120;
    static constexpr float ADDED = 0, ODD = 1;
    uint2 all = {0, 0};

    AMK_DEVICE void take(const u32* words) { all = {words[0], words[1]}; }
    AMK_DEVICE static u32 first(u32 word) { return word & 0x87f087f0; }
    AMK_DEVICE static u32 second(u32 word) {
        return masked<0x80f080f0>(word << 4, word >> 4 & 0x07000700);
    }
    AMK_DEVICE uint4 fragment() const {
        return make_uint4(first(all.x), second(all.x), first(all.y), second(all.y));
    }
};

// e2m1: a sign, two bits of exponent and one of mantissa. Those of three of four codes are as far
// from each other as in bf16.
struct E2m1 {
    static constexpr u32 BITS = 4;
    static constexpr int DOWN = 126;
    static constexpr float ADDED = 0, ODD = 1;
    u32 low = 0;

    AMK_DEVICE void take(const u32* words) { low = words[0]; }
    AMK_DEVICE uint4 fragment() const {
        constexpr u32 PLACE = 0x81c081c0;
        const u32 last =
            masked<0x80008000>(low << 1, masked<0x01800180>(low >> 3, low >> 7 & 0x00400040));
        return make_uint4(low & PLACE, low << 3 & PLACE, low << 6 & PLACE, last);
    }
};

// The values of IQ4_NL (`kvalues_iq4nl` of GGML) and 128, as bytes: those of even numbers, then
// those of odd ones. A selector above 7 gives 255 for a byte above 127, which inverts the other
// table's, and 0 for others.
struct Nonlinear {
    static constexpr u32 BITS = 4;
    static constexpr int DOWN = STEPS;
    static constexpr float ADDED = 0, ODD = 1;
    u32 low = 0;

    AMK_DEVICE void take(const u32* words) { low = words[0]; }
    // Two pairs: of the even half in the even bytes.
    AMK_DEVICE static u32 bytes(u32 even, u32 odd) {
        return permute(0x6a4f2d01, 0xd9b59981, even) ^ permute(0x765d3f18, 0x0e3a5972, odd);
    }
    AMK_DEVICE uint4 fragment() const {
        const u32 odd = low ^ 0x88888888;
        return Bytes::fragment({bytes(low, odd), bytes(low >> 16, odd >> 16)});
    }
};
