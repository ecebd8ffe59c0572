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

// The inputs of a tile for eight rows of a step. The tiles of two units that have the same columns
// are the A fragments, even and odd halves apart, and each row is a column of B: lane l has
// products with rows 2 (l % 4) and the next one, of row l / 4 of the first unit and of the second.
struct RowFragment {
    Fragment even, odd;

    AMK_DEVICE void add_even(float (&d)[4], const uint4& first, const uint4& second) const {
        mma(d, make_uint4(first.x, second.x, first.z, second.z), even.b0, even.b1);
    }
    AMK_DEVICE void add_odd(float (&d)[4], const uint4& first, const uint4& second) const {
        mma(d, make_uint4(first.y, second.y, first.w, second.w), odd.b0, odd.b1);
    }
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
// A pair of an integer of up to eight bits, or of so many steps of 2^-133.
constexpr u32 integer_pair(int n, bool steps) {
    const u32 sign = n < 0 ? 0x8000 : 0;
    u32 size = n < 0 ? -n : n, exponent = 127 + 7;
    if (steps || size == 0) return (sign | size) * 0x10001;
    for (; size < 128; exponent--) size *= 2;
    return (sign | exponent << 7 | (size - 128)) * 0x10001;
}
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
    static constexpr bool DECODES = false, APART = false, LIFTS = false;
    static constexpr u32 IN_TEAMS = 0; // see `CodedTile`
    uint4 a = {0, 0, 0, 0};

    // Offset in a tile of the row that a lane names for `ldmatrix`.
    AMK_DEVICE static u32 named(u32 lane) {
        const u32 row = lane & 7, piece = (lane >> 4 & 1) | (lane >> 2 & 2);
        return row * 64 + ((piece ^ row >> 1) & 3) * 16;
    }
    // Where a lane finds the tiles of a block from number `first` on.
    struct Place {
        u32 address = 0;
        AMK_DEVICE Place() {}
        AMK_DEVICE Place(u32 first, u32, u32 named) : address(first * AMK_TILE + named) {}
        AMK_DEVICE void advance(u32 bytes) { address += bytes; }
    };
    // Loads the first `count` tiles.
    template <int DEPTH>
    AMK_DEVICE static void load(BF16Tile (&tiles)[DEPTH], const Place& at, u32, u32, u32 count) {
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++)
            if (j < count) tiles[j].a = load_matrices(at.address + j * AMK_TILE);
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

    AMK_DEVICE void take(const u32* words) { low = words[0]; }
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

    AMK_DEVICE void take(const u32* words) { low = words[0]; }
    AMK_DEVICE u32 pair(int i) const { return masked<0x000f000f>(low >> (4 * i), BF16_128); }
};

template <> struct Codes<5> : Mantissas {
    static constexpr u32 BITS = 5;
    u32 high = 0; // a bit for each code, the second ones of the pairs from bit 16 on

    AMK_DEVICE void load_upper(u32 at) { high = load_shared_byte(at); }
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

    AMK_DEVICE void load_upper(u32 at) { high = load_shared_half(at); }
    AMK_DEVICE uint4 fragment() const {
        const u32 bits = high | high << 8;
        const auto pair = [&](int i) {
            const u32 upper = i < 3 ? bits << (4 - 2 * i) : bits >> 2;
            return fma_bf16(masked<0x00300030>(upper, Mantissas::pair(i)), BF16_ONES, 0xc320c320);
        };
        return make_uint4(pair(0), pair(1), pair(2), pair(3));
    }
};

// The sum of the inputs of a tile.
AMK_DEVICE float sum_of(const Fragment& x) {
    float d[4] = {0, 0, 0, 0};
    mma(d, make_uint4(BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES), x.b0, x.b1);
    return d[0] + d[3];
}

// Loads the words that BYTES bytes fill, or one that they begin.
template <u32 BYTES> AMK_DEVICE void load_words(u32 address, u32 (&words)[4]) {
    static_assert(BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16, "one load");
    if (BYTES == 2) words[0] = load_shared_half(address);
    if (BYTES == 4) words[0] = load_shared_word(address);
    if (BYTES == 8) {
        const uint2 v = load_shared_two(address);
        words[0] = v.x, words[1] = v.y;
    }
    if (BYTES == 16) {
        const uint4 v = load_shared(address);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    }
}
AMK_DEVICE constexpr u32 least(u32 a, u32 b) { return a < b ? a : b; }

// The scales of a row of a tile, as loaded: the pack's, and in `own` the tile's.
struct ScaleWords {
    u32 first = 0, second = 0, own = 0;
};

// A tile of blocks B: codes B::Coding, of B::GROUPS neighbouring tiles in a pack. Codes lie as
// lanes load them, up to 16 bytes at once: those of RUN tiles side by side, then their upper bits
// tile by tile. Behind all codes are B::HEAD bytes of scales of each row for the pack, then
// B::TAIL for each tile of a row. B::ALIKE tiles from a multiple of it on have the same scales.
template <class B> struct CodedTile {
    using Block = B;
    using Coding = typename B::Coding;
    static constexpr u32 GROUPS = B::GROUPS, HEAD = B::HEAD, TAIL = B::TAIL;
    // Bytes of a lane's codes in a tile, and of their upper bits.
    static constexpr u32 LOW = Coding::BITS == 8 ? 8 : 4,
                         UPPER = Coding::BITS == 8 ? 0 : Coding::BITS - 4;
    static constexpr u32 CODES = 32 * Coding::BITS, RUN = least(GROUPS, 16 / LOW),
                         HEADS = GROUPS * CODES, TAILS = HEADS + 8 * HEAD,
                         PACK = TAILS + 8 * GROUPS * TAIL, BYTES = PACK / GROUPS;
    static constexpr bool SUMS = B::SUMS, DECODES = true;
    // Tiles that a team of warps multiplies at once, or 0 where registers have no room for the sums
    // of inputs or of halves.
    static constexpr u32 IN_TEAMS = B::SHIFTS || B::HALVES ? 0 : GROUPS % 4 ? 2 : 4;
    static constexpr bool APART = false; // whether lanes of a quad have products of other tiles
    // What sums of products are smaller by.
    static constexpr float SMALLER = power_of_two(Coding::DOWN ? LIFT - Coding::DOWN : 0),
                           UP = 1 / SMALLER;
    static_assert(PACK % 16 == 0 && PACK % GROUPS == 0, "copies are of 16 bytes");
    Coding codes;
    ScaleWords scales;

    // Where a lane finds what it loads of tile `first` of a block.
    struct Place {
        u32 block = 0, low = 0, upper = 0, head = 0, tail = 0;
        AMK_DEVICE Place() {}
        AMK_DEVICE Place(u32 first, u32 lane, u32) {
            const u32 group = first % GROUPS, pack = first / GROUPS * PACK, row = lane >> 2,
                      run = pack + group / RUN * (RUN * CODES), in = group % RUN;
            low = run + (lane * RUN + in) * LOW;
            upper = run + RUN * 32 * LOW + (in * 32 + lane) * UPPER;
            head = pack + HEADS + row * HEAD;
            tail = pack + TAILS + (row * GROUPS + group) * TAIL;
        }
        AMK_DEVICE void advance(u32 bytes) {
            block += bytes, low += bytes, upper += bytes, head += bytes, tail += bytes;
        }
        // Of another tile of the block.
        AMK_DEVICE Place of(u32 tile, u32 lane) const {
            Place other(tile, lane, 0);
            other.advance(block);
            return other;
        }
    };
    // Whether DEPTH tiles from a multiple of DEPTH on lie alike in every block and for every warp.
    template <int DEPTH> static constexpr bool STEADY = DEPTH % GROUPS == 0 || GROUPS % DEPTH == 0;
    // How many of them are in a pack.
    template <int DEPTH> static constexpr u32 NEAR = STEADY<DEPTH> ? least(DEPTH, GROUPS) : 1;
    // How many have their own scales in the words of one load.
    template <int DEPTH> static constexpr u32 OWN = TAIL ? least(NEAR<DEPTH>, 16 / TAIL) : 1;

    // Loads the first `count` tiles, from number `first` of the block on.
    template <int DEPTH>
    AMK_DEVICE static void load(CodedTile (&tiles)[DEPTH], const Place& at, u32 first, u32 lane,
                                u32 count) {
        by_places(tiles, at, first, lane, count, [](auto& near, const Place& place, u32 some) {
            codes_near(near, place, some), scales_near(near, place, some);
        });
    }
    // The same in two parts.
    template <class T, int DEPTH>
    AMK_DEVICE static void load_codes(T (&tiles)[DEPTH], const Place& at, u32 first, u32 lane,
                                      u32 count) {
        by_places(tiles, at, first, lane, count,
                  [](auto& near, const Place& place, u32 some) { codes_near(near, place, some); });
    }
    template <int DEPTH>
    AMK_DEVICE static void load_scales(CodedTile (&tiles)[DEPTH], const Place& at, u32 first,
                                       u32 lane, u32 count) {
        by_places(tiles, at, first, lane, count,
                  [](auto& near, const Place& place, u32 some) { scales_near(near, place, some); });
    }
    // Calls `f` with the tiles, of which some are there, and their place, or one by one where the
    // places of others do not follow from one.
    template <class T, int DEPTH, class F>
    AMK_DEVICE static void by_places(T (&tiles)[DEPTH], const Place& at, u32 first, u32 lane,
                                     u32 count, F f) {
        if constexpr (STEADY<DEPTH>)
            f(tiles, at, count);
        else {
#pragma unroll
            for (u32 j = 0; j < DEPTH; j++)
                if (j < count) f(*(T(*)[1])(tiles + j), at.of(first + j, lane), 1);
        }
    }
    template <class T, int DEPTH>
    AMK_DEVICE static void codes_near(T (&tiles)[DEPTH], const Place& at, u32 count) {
        constexpr u32 STEP = least(RUN, DEPTH);
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            if (j >= count) continue;
            const u32 run = j / GROUPS * PACK + j % GROUPS / RUN * (RUN * CODES);
            if (j % STEP == 0) {
                u32 words[4];
                load_words<STEP * LOW>(at.low + run, words);
#pragma unroll
                for (u32 i = 0; i < STEP; i++) tiles[j + i].codes.take(words + i * (LOW / 4));
            }
            if constexpr (UPPER != 0)
                tiles[j].codes.load_upper(at.upper + run + j % RUN * (32 * UPPER));
        }
    }
    template <int DEPTH>
    AMK_DEVICE static void scales_near(CodedTile (&tiles)[DEPTH], const Place& at, u32 count) {
        constexpr u32 OWNS = OWN<DEPTH>;
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            if (j >= count) continue;
            const u32 pack = j / GROUPS * PACK;
            if constexpr (HEAD != 0) {
                if (j % GROUPS == 0)
                    load_head(tiles[j].scales, at.head + pack);
                else {
                    tiles[j].scales.first = tiles[j - 1].scales.first;
                    tiles[j].scales.second = tiles[j - 1].scales.second;
                }
            }
            if constexpr (TAIL != 0)
                if (j % OWNS == 0) {
                    u32 words[4];
                    load_words<OWNS * TAIL>(at.tail + pack + j % GROUPS * TAIL, words);
#pragma unroll
                    for (u32 i = 0; i < OWNS; i++) tiles[j + i].scales.own = words[i * TAIL / 4];
                }
        }
    }
    AMK_DEVICE static void load_head(ScaleWords& scales, u32 at) {
        u32 words[4];
        load_words<HEAD>(at, words);
        scales.first = words[0];
        if (HEAD == 8) scales.second = words[1];
    }
    // The first byte of a tile's own scales in their word.
    template <int DEPTH> AMK_DEVICE static constexpr u32 own_at(u32 j) {
        return j % OWN<DEPTH> * TAIL % 4;
    }
    // The tiles of a run, of a warp's DEPTH: they have the same scales.
    template <int DEPTH> AMK_DEVICE static constexpr int run() {
        int run = B::ALIKE;
        while (DEPTH % run) run /= 2;
        return run;
    }
    AMK_DEVICE static u32 named(u32) { return 0; }
    AMK_DEVICE static void prepare(Fragment& x, float& sum) {
        if (SUMS) sum = sum_of(x) * SMALLER;
        if (Coding::DOWN) x = {multiply_bf16(x.b0, BF16_LIFT), multiply_bf16(x.b1, BF16_LIFT)};
    }
    // The elements, of a tile that was loaded by itself. Scales are two bf16, so an element is
    // rounded once, with a shift twice.
    AMK_DEVICE uint4 decoded() const {
        const uint4 a = numbers();
        const Elements even(scales, false), odd(scales, true);
        return make_uint4(even.of(a.x), odd.of(a.y), even.of(a.z), odd.of(a.w));
    }
    // The elements without shifts, divided by their `element_scale`: exactly the codes without what
    // comes off.
    AMK_DEVICE uint4 numbers() const {
        static_assert(Coding::ODD == 1 || Coding::ODD == 0.0625f, "see `odd`");
        const uint4 a = codes.fragment();
        const u32 taken = bf16_exact(-B::taken(scales) * power_of_two(UP_TO - Coding::DOWN)),
                  even = bf16_power(UP_TO), odd = bf16_power(UP_TO - (Coding::ODD < 1 ? 4 : 0));
        return make_uint4(fma_bf16(a.x, even, taken), fma_bf16(a.y, odd, taken),
                          fma_bf16(a.z, even, taken), fma_bf16(a.w, odd, taken));
    }
    static constexpr int UP_TO = least(Coding::DOWN, 127); // the largest power of two in bf16
    AMK_DEVICE static float element_scale(const ScaleWords& s, bool odd, u32 at = 0) {
        return B::scale(s, odd, at) * power_of_two(Coding::DOWN - UP_TO);
    }
    // Makes elements of the pairs of numbers.
    struct Elements {
        Bf16Twice scale, shift;

        AMK_DEVICE Elements(const ScaleWords& s, bool odd)
            : scale(element_scale(s, odd)), shift(B::shift(s, 0)) {}
        AMK_DEVICE u32 of(u32 pair) const {
            if (!B::SHIFTS) return fma_bf16(pair, scale.high, multiply_bf16(pair, scale.low));
            const u32 low = fma_bf16(pair, scale.low, shift.low);
            return fma_bf16(BF16_ONES, low, fma_bf16(pair, scale.high, shift.high));
        }
    };
    // Adds products of the halves of k, and takes off what is the same for all numbers. `sum`: of
    // the inputs.
    AMK_DEVICE static void add(typename B::Total& total, const ScaleWords& scales, u32 at,
                               float even, float odd, float sum) {
        if (B::OFF != 0) even = fmaf(B::OFF, sum, even + odd), odd = -0.0f;
        total.add(scales, at, even, odd, sum);
    }
    // The rows' products with the fragments `x(j)`, not yet multiplied by UP.
    template <int DEPTH, class X, class S>
    AMK_DEVICE static float product(const CodedTile (&tiles)[DEPTH], X x, S sum) {
        constexpr int TILES = run<DEPTH>();
        typename B::Total total;
#pragma unroll
        for (int j = 0; j < DEPTH; j += TILES) {
            float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0}, inputs = SUMS ? sum(j) : 0;
#pragma unroll
            for (int i = j; i < j + TILES; i++) { // two chains
                mma((i - j) & 1 ? e : d, tiles[i].codes.fragment(), x(i).b0, x(i).b1);
                if (SUMS && i > j) inputs += sum(i);
            }
            if (TILES > 1) d[0] += e[0], d[3] += e[3];
            add(total, tiles[j].scales, own_at<DEPTH>(j), d[0], d[3] * Coding::ODD, inputs);
            if ((j + TILES) % NEAR<DEPTH> == 0) total.end_pack(tiles[j].scales);
        }
        return total.y;
    }
    // Powers of two by which inputs of rows are larger, for columns of the even and the odd half.
    static constexpr bool LIFTS = Coding::DOWN != 0;
    AMK_DEVICE static u32 lift(bool odd) {
        return odd && Coding::ODD < 1 ? bf16_power(LIFT - 4) : BF16_LIFT;
    }
    // Sums of the inputs of a run of tiles, kept with its first one, laid out like the products of
    // two units and as much smaller.
    struct RowSums {
        float own[2] = {};   // where each row of weights has a zero or a shift of its own
        float start[4] = {}; // times OFF: products begin with it
    };
    // Which of them there are: registers have no room for both.
    static constexpr bool BEGINS = B::OFF != 0 && !B::SHIFTS, OWN_SUMS = SUMS && !BEGINS;
    static_assert(!SUMS || Coding::DOWN == 0 || Coding::DOWN == STEPS, "see `integer_pair`");
    // A tile whose codes are all the same, its numbers divided by 2^DOWN or not.
    AMK_DEVICE static uint4 all(int code, bool down) {
        const bool steps = down && Coding::DOWN != 0;
        const u32 even = integer_pair(code, steps),
                  odd = integer_pair(code * (int)(1 / Coding::ODD), steps);
        return make_uint4(even, odd, even, odd);
    }
    // With inputs that have been lifted.
    template <int DEPTH, u32 EIGHTS>
    AMK_DEVICE static void prepare(const RowFragment (&x)[DEPTH][EIGHTS],
                                   RowSums (&sums)[DEPTH][EIGHTS]) {
        constexpr int TILES = run<DEPTH>();
        const uint4 off = all(B::OFF, true);
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
#pragma unroll
            for (u32 n = 0; n < EIGHTS; n++) {
                RowSums& to = sums[j / TILES * TILES][n];
                if (BEGINS)
                    x[j][n].add_even(to.start, off, off), x[j][n].add_odd(to.start, off, off);
                if (OWN_SUMS) add_sum(x[j][n], to.own);
            }
    }
    AMK_DEVICE static void add_sum(const RowFragment& x, float (&to)[2]) {
        constexpr float SHRINK = power_of_two(-Coding::DOWN);
        const uint4 ones = all(1, false);
        float d[4] = {};
        x.add_even(d, ones, ones), x.add_odd(d, ones, ones);
        // By a product in fp32: while it is an accumulator, a sum holds four registers.
        to[0] = fmaf(d[0], SHRINK, to[0]), to[1] = fmaf(d[1], SHRINK, to[1]);
    }
    // The products of two units with the inputs of rows, see `RowFragment`: sums of the numbers of
    // each run of tiles, apart for the halves of k where these have scales of their own, and then
    // the rows' shares, not yet multiplied by UP. Other codes may be loaded in between.
    template <int DEPTH, u32 EIGHTS> struct UnitProducts {
        static constexpr int TILES = run<DEPTH>(), RUNS = DEPTH / TILES, HALVES = B::HALVES ? 2 : 1;
        float d[RUNS][HALVES][EIGHTS][4];

        AMK_DEVICE UnitProducts(const CodedTile (&first)[DEPTH], const CodedTile (&second)[DEPTH],
                                const RowFragment (&x)[DEPTH][EIGHTS],
                                const RowSums (&sums)[DEPTH][EIGHTS]) {
#pragma unroll
            for (int run = 0; run < RUNS; run++) {
                const int at = run * TILES;
#pragma unroll
                for (u32 n = 0; n < EIGHTS; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        d[run][HALVES - 1][n][i] = 0;
                        d[run][0][n][i] = sums[at][n].start[i];
                    }
#pragma unroll
                for (int i = at; i < at + TILES; i++) {
                    const uint4 a = first[i].codes.fragment(), b = second[i].codes.fragment();
#pragma unroll
                    for (u32 n = 0; n < EIGHTS; n++) {
                        x[i][n].add_even(d[run][0][n], a, b);
                        x[i][n].add_odd(d[run][HALVES - 1][n], a, b);
                    }
                }
            }
        }
        AMK_DEVICE float4 shares(const CodedTile (&first)[DEPTH], const CodedTile (&second)[DEPTH],
                                 const RowSums (&sums)[DEPTH][EIGHTS], u32 n) const {
            typename B::Total total[4];
#pragma unroll
            for (int run = 0; run < RUNS; run++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int tile = run * TILES;
                    const ScaleWords& scales = (i < 2 ? first : second)[tile].scales;
                    const float even = d[run][0][n][i], odd = HALVES == 2 ? d[run][1][n][i] : -0.0f;
                    const u32 at = own_at<DEPTH>(tile);
                    // Some products have begun with what comes off.
                    if (BEGINS)
                        total[i].add(scales, at, even, odd, 0);
                    else
                        add(total[i], scales, at, even, odd, sums[tile][n].own[i % 2]);
                    if ((tile + TILES) % NEAR<DEPTH> == 0) total[i].end_pack(scales);
                }
            return make_float4(total[0].y, total[1].y, total[2].y, total[3].y);
        }
    };
};

template <bool IS, class A, class B> struct Either {
    using Type = A;
};
template <class A, class B> struct Either<false, A, B> {
    using Type = B;
};

// Neighbouring tiles of blocks B, at most four, whose scales differ. Each has two columns of B to
// itself, and zeros in the others, so their products add up in one fragment of sums, lane l has the
// product of tile l % 4, and has only that tile's scales to apply: once, not once a tile.
template <class B> struct LaneTile : CodedTile<B> {
    using Tile = CodedTile<B>;
    static constexpr bool APART = true;

    // As for a tile, but with the scales of the lane's own.
    struct Place : Tile::Place {
        AMK_DEVICE Place() {}
        AMK_DEVICE Place(u32 first, u32 lane, u32 named) : Tile::Place(first, lane, named) {
            const typename Tile::Place own(first + (lane & 3), lane, named);
            this->head = own.head, this->tail = own.tail;
        }
    };
    template <int DEPTH>
    AMK_DEVICE static void load(LaneTile (&tiles)[DEPTH], const Place& at, u32 first, u32 lane,
                                u32 count) {
        static_assert(DEPTH <= 4, "two columns of B each");
        Tile::load_codes(tiles, at, first, lane, count);
        if ((lane & 3) >= least(count, DEPTH)) return;
        u32 words[4];
        if constexpr (Tile::HEAD != 0) Tile::load_head(tiles[0].scales, at.head);
        if constexpr (Tile::TAIL != 0)
            load_words<Tile::TAIL>(at.tail, words), tiles[0].scales.own = words[0];
    }
    // The rows' products with the fragments `x(j)`, of the lane's tile and not yet multiplied by
    // UP. `sum`: of its inputs.
    template <int DEPTH, class X, class S>
    AMK_DEVICE static float product(const LaneTile (&tiles)[DEPTH], X x, S sum) {
        float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0}; // two chains
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            mma(j & 1 ? e : d, tiles[j].codes.fragment(), x(j).b0, x(j).b1);
        d[0] += e[0], d[3] += e[3];
        typename B::Total total;
        Tile::add(total, tiles[0].scales, 0, d[0], d[3] * Tile::Coding::ODD,
                  Tile::SUMS ? sum(0) : 0);
        total.end_pack(tiles[0].scales);
        return total.y;
    }
};
// The tiles as which one row reads DEPTH tiles T, where each may have columns of B to itself.
template <class T, int DEPTH> struct LaneTiles {
    using Type = T;
};
template <class B, int DEPTH> struct LaneTiles<CodedTile<B>, DEPTH> {
    // Adding up the lanes' products takes as long as applying a scale to two.
    static constexpr bool PAYS = CodedTile<B>::template run<DEPTH>() * 2 < DEPTH;
    using Type = typename Either<PAYS, LaneTile<B>, CodedTile<B>>::Type;
};
