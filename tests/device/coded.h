// Codes, without a GPU: numbers, and tapes of tiles with the values of their elements.
#pragma once
#include "device.h"

static u32 load_shared_word(u32 at) { return shared_at<u32>(at); }
static u32 load_shared_half(u32 at) { return shared_at<u16>(at); }
static u32 load_shared_byte(u32 at) { return shared_at<u8>(at); }
static u32 __byte_perm(u32 a, u32 b, u32 selectors) { return permute(a, b, selectors); }
template <u32 MASK> static u32 masked(u32 x, u32 bits) { return (x & MASK) | bits; }
static float low_half(u32 pair) { // of a normal number
    return ldexpf(1024 + (pair & 1023), (int)(pair >> 10 & 31) - 25);
}
static float high_half(u32 pair) { return low_half(pair >> 16); }

// Codes of all values, and scales between 1/32 and 1/16.
template <class T> static std::vector<u8> drawn_tape(u32 tiles) {
    std::vector<u8> tape(tiles * T::BYTES);
    for (u32 at = 0; at < tape.size(); at++) {
        const u32 in = at % T::PACK;
        tape[at] = (u32)(drawn() * 128 + 128) & 255;
        if (in >= T::HEADS && in % 2) tape[at] = 0x28 | (tape[at] & 3);
    }
    return tape;
}
// Calls `f` with the elements of some tiles of a unit: row, column and value.
template <class T, class F> static void for_elements(const u8* from, u32 tiles, F f) {
    using B = typename T::Block;
    memcpy(arena + RING, from, tiles * T::BYTES);
    for (u32 tile = 0; tile < tiles; tile++)
        for (u32 lane = 0; lane < 32; lane++) {
            T one[1];
            typename T::Place place(tile, lane, 0);
            place.advance(RING);
            T::template load<1>(one, place, tile, lane, 1);
            const uint4 a = one[0].codes.fragment();
            const u32 pairs[4] = {a.x, a.y, a.z, a.w};
            for (u32 i = 0; i < 8; i++) {
                const bool odd = i / 2 % 2;
                const double code = std::ldexp(odd ? T::Coding::ODD : 1.0, T::Coding::DOWN) * element(pairs[i / 2], i % 2);
                const double shift = B::shift(one[0].scales, 0), w = B::scale(one[0].scales, odd, 0) * (code - B::taken(one[0].scales));
                f(lane / 4, tile * 32 + lane % 4 * 4 + i / 4 * 2 + i % 2 + 16 * odd, w + shift);
            }
        }
}
