// Tiles in codes of two units, 16 rows, times the inputs of 16 columns: for steps of so many rows
// that inputs are in the shared memory as they are.
#pragma once
#include "tile.cuh"

// A tile of two units: numbers as fragments of A, for each half of k, and what makes elements of
// them.
template <class B> struct CodedPair {
    static constexpr int HALVES = B::HALVES ? 2 : 1; // with scales of their own
    uint4 even, odd;
    float scale[HALVES][2], shift[2]; // by unit

    AMK_DEVICE CodedPair() {}
    // `at`: the first byte of the tile's own scales in their word.
    AMK_DEVICE CodedPair(const CodedTile<B>& one, const CodedTile<B>& two, u32 at) {
        const uint4 a = one.numbers(), b = two.numbers();
        even = make_uint4(a.x, b.x, a.z, b.z), odd = make_uint4(a.y, b.y, a.w, b.w);
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            scale[half][0] = CodedTile<B>::element_scale(one.scales, half, at);
            scale[half][1] = CodedTile<B>::element_scale(two.scales, half, at);
        }
        shift[0] = B::shift(one.scales, at), shift[1] = B::shift(two.scales, at);
    }
};

// The inputs of a tile for 16 columns: fragments of B, for each half of k.
struct PairInputs {
    uint4 even, odd;
};

// The products of neighbouring tiles, apart where these have scales of their own. Different tiles
// and columns do not wait for each other.
template <class B, int TILES> struct PairProducts {
    static constexpr int HALVES = CodedPair<B>::HALVES, APART = B::ALIKE % TILES ? TILES : 1;
    // By eight columns: of the numbers, and sums of the inputs.
    float d[APART][2][HALVES][4] = {}, x[APART][2][4] = {};

    AMK_DEVICE PairProducts(const CodedPair<B> (&tiles)[TILES], const PairInputs (&inputs)[TILES]) {
        multiply(0, [&](int i) { return tiles[i].even; }, [&](int i) { return inputs[i].even; });
        multiply(
            HALVES - 1, [&](int i) { return tiles[i].odd; }, [&](int i) { return inputs[i].odd; });
    }
    template <class A, class X> AMK_DEVICE void multiply(int half, A numbers, X inputs) {
        const uint4 ones = make_uint4(BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const uint4 a = numbers(i), in = inputs(i);
            const int to = i % APART;
            mma(d[to][0][half], a, in.x, in.y), mma(d[to][1][half], a, in.z, in.w);
            if (B::SHIFTS) mma(x[to][0], ones, in.x, in.y), mma(x[to][1], ones, in.z, in.w);
        }
    }
    // Adds them to the sums of eight columns and the next eight.
    AMK_DEVICE void add_to(float (*sums)[4], const CodedPair<B> (&tiles)[TILES]) const {
#pragma unroll
        for (int at = 0; at < APART * 2 * 4; at++) {
            const int tile = at / 8, columns = at / 4 % 2, i = at % 4, unit = i / 2;
            float& sum = sums[columns][i];
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                sum = fmaf(tiles[tile].scale[half][unit], d[tile][columns][half][i], sum);
            if (B::SHIFTS) sum = fmaf(tiles[tile].shift[unit], x[tile][columns][i], sum);
        }
    }
};
