// Decodes and multiplies tiles of a projection's weights (kernels/src/linear/tile) without a GPU. Standard input: the number of a kind,
// tiles, the bytes of two units of 8 rows, eight vectors of bf16. Standard output: the decoded rows, the same rounded to bf16, then for one to four
// tiles a warp and pass the products of the rows with each vector: of one unit and four vectors at once, and, where tiles are decoded, of both units
// and all vectors, of tiles in lanes of their own, and of both units and 16 columns.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
#define AMK_DEVICE inline
#define AMK_TILE 512
struct uint2 {
    u32 x, y;
};
struct uint4 {
    u32 x, y, z, w;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static float __uint_as_float(u32 bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static u32 __float_as_uint(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}

// ---- what ptx.cuh has ----
static std::vector<u8> memory; // shared memory from address 0 on
template <class T> static T loaded(u32 address) {
    T x;
    if (address % sizeof x || address + sizeof x > memory.size()) exit(printf("a load of %zu bytes at %u\n", sizeof x, address));
    memcpy(&x, &memory[address], sizeof x);
    return x;
}
static uint4 load_shared(u32 address) { return loaded<uint4>(address); }
static uint2 load_shared_two(u32 address) {
    if (address % 8) exit(printf("a load of 8 bytes at %u\n", address));
    return loaded<uint2>(address);
}
static u32 load_shared_word(u32 address) { return loaded<u32>(address); }
static u32 load_shared_half(u32 address) { return loaded<u16>(address); }
static u32 load_shared_byte(u32 address) { return loaded<u8>(address); }
template <u32 MASK> static u32 masked(u32 x, u32 bits) { return (x & MASK) | bits; }
static u32 permute(u32 a, u32 b, u32 selectors) {
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        const u32 selector = selectors >> (4 * i) & 15, from = selector & 4 ? b : a, byte = from >> (8 * (selector & 3)) & 255;
        r |= (selector & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * i);
    }
    return r;
}
static u32 __byte_perm(u32 a, u32 b, u32 selectors) { return permute(a, b, selectors); }
static float low_half(u32 pair) {
    const u32 exponent = pair >> 10 & 31, mantissa = pair & 1023;
    const float x = exponent ? ldexpf(1024 + mantissa, (int)exponent - 25) : ldexpf(mantissa, -24);
    return pair & 0x8000 ? -x : x;
}
static float high_half(u32 pair) { return low_half(pair >> 16); }
static constexpr u32 BF16_ONES = 0x3f803f80;
static float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
static float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
static u32 to_bf16(double x) {
    if (x != x) return 0x7fff;
    const u32 bits = __float_as_uint((float)x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static u32 pack_bf16(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
static u32 fma_bf16(u32 a, u32 b, u32 c) {
    const auto one = [](float a, float b, float c) { return to_bf16((double)a * b + c); };
    return one(bf16_low(a), bf16_low(b), bf16_low(c)) | one(bf16_high(a), bf16_high(b), bf16_high(c)) << 16;
}
static u32 multiply_bf16(u32 pair, u32 other) { return fma_bf16(pair, other, 0x80008000u); }

// Operands of the products of a warp. The lanes run one after the other, twice: first their operands are recorded, which do not depend on
// results.
struct Operands {
    uint4 a;
    u32 b0, b1;
};
static std::vector<Operands> recorded[32];
static u32 lane_now, product_now;
static bool recording;
static uint4 load_matrices(u32 row);
static void mma(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
    if (recording) return recorded[lane_now].push_back({a, b0, b1});
    const u32 row = lane_now / 4, at = product_now++;
    for (u32 i = 0; i < 4; i++) { // rows row, row, row + 8, row + 8
        const u32 column = lane_now % 4 * 2 + i % 2;
        double sum = d[i];
        for (u32 quad = 0; quad < 4; quad++) {
            const uint4& a = recorded[row * 4 + quad][at].a;
            const Operands& b = recorded[column * 4 + quad][at];
            const u32 first = i < 2 ? a.x : a.y, second = i < 2 ? a.z : a.w;
            sum += (double)bf16_low(first) * bf16_low(b.b0) + (double)bf16_high(first) * bf16_high(b.b0);
            sum += (double)bf16_low(second) * bf16_low(b.b1) + (double)bf16_high(second) * bf16_high(b.b1);
        }
        d[i] = sum;
    }
}
#include "tiles.inc"

// A lane gets the words of rows that other lanes name: of the same tile, since all load one.
static uint4 load_matrices(u32 row) {
    const u32 tile = row / AMK_TILE * AMK_TILE;
    const auto named = [&](u32 lane) { return tile + BF16Tile::Place(0, lane, BF16Tile::named(lane)).address; };
    const auto word = [&](u32 matrix) { return load_shared_word(named(matrix * 8 + lane_now / 4) + lane_now % 4 * 4); };
    if (row != named(lane_now)) exit(printf("a row of a matrix at %u\n", row));
    return make_uint4(word(0), word(1), word(2), word(3));
}

struct Exact {
    static float value(const BF16Tile&, float x, bool) { return x; }
    // The product with an input of 1.
    template <class B> static float value(const CodedTile<B>& tile, float x, bool odd) {
        using T = CodedTile<B>;
        if (B::Coding::DOWN) x *= power_of_two(LIFT);
        typename B::Total total;
        T::add(total, tile.scales, 0, odd ? 0 : x, odd ? x * B::Coding::ODD : 0, T::SMALLER);
        total.end_pack(tile.scales);
        return total.y / T::SMALLER;
    }
    static uint4 fragment(const BF16Tile& tile) { return tile.a; }
    template <class B> static uint4 fragment(const CodedTile<B>& tile) { return tile.codes.fragment(); }
};
struct Rounded {
    template <class T> static float value(const T&, float x, bool) { return x; }
    template <class T> static uint4 fragment(const T& tile) { return tile.decoded(); }
};

static void put(float x) { fwrite(&x, 4, 1, stdout); }

// The place of a unit's tiles from number `first` on.
template <class T> static typename T::Place place_of(u32 unit, u32 tiles, u32 first) {
    typename T::Place place(first, lane_now, T::named(lane_now));
    place.advance(unit * tiles * T::BYTES);
    return place;
}
template <class T, class By> static void decode(u32 tiles) {
    std::vector<float> rows(16 * 32 * tiles);
    for (u32 lane = 0; lane < 32; lane++)
        for (u32 of = 0; of < 2 * tiles; of++) {
            const u32 unit = of / tiles, at = of % tiles;
            lane_now = lane;
            T one[1];
            T::template load<1>(one, place_of<T>(unit, tiles, at), at, lane, 1);
            const T& tile = one[0];
            const uint4 a = By::fragment(tile);
            const u32 pairs[4] = {a.x, a.y, a.z, a.w};
            for (u32 i = 0; i < 8; i++) {
                const bool odd = i / 2 % 2;
                const u32 column = lane % 4 * 4 + i / 4 * 2 + i % 2 + 16 * odd, pair = pairs[i / 2];
                rows[((unit * 8 + lane / 4) * tiles + at) * 32 + column] = By::value(tile, i % 2 ? bf16_high(pair) : bf16_low(pair), odd);
            }
        }
    for (const float x : rows) put(x);
}

// Runs `f` for the tiles of each pass, for all lanes: first to record the operands of products, then with these.
template <int DEPTH, class F> static void by_passes(u32 tiles, F f) {
    for (u32 first = 0; first < tiles; first += DEPTH) {
        for (auto& lane : recorded) lane.clear();
        for (int pass = 0; pass < 2; pass++)
            for (lane_now = 0; lane_now < 32; lane_now++) recording = pass == 0, product_now = 0, f(first, tiles - first);
    }
}
// Four columns of a vector's tile from `column` on.
static Fragment four(const std::vector<u16>& x, u32 tiles, u32 vector, u32 tile, u32 column) {
    const u16* from = &x[(vector * tiles + tile) * 32 + column];
    return {from[0] | (u32)from[1] << 16, from[2] | (u32)from[3] << 16};
}

// As linear/rows.cuh for one unit: lane l has the input of vector l / 8 and the products of vector l % 4, of 4 from number 4 `set` on.
template <class T, int DEPTH> static void multiply(u32 tiles, const std::vector<u16>& x, u32 unit, u32 set, std::vector<float>& products) {
    by_passes<DEPTH>(tiles, [&](u32 first, u32 count) {
        T a[DEPTH];
        Fragment inputs[DEPTH] = {};
        float sums[DEPTH];
        T::template load<DEPTH>(a, place_of<T>(unit, tiles, first), first, lane_now, count);
        for (u32 j = 0; j < DEPTH && j < count; j++) inputs[j] = four(x, tiles, 4 * set + lane_now / 8, first + j, lane_now % 8 * 4);
        for (int j = 0; j < DEPTH; j++) T::prepare(inputs[j], sums[j]);
        float product = T::template product<DEPTH>(a, [&](int j) { return inputs[j]; }, [&](int j) { return sums[j]; });
        if constexpr (T::DECODES) product *= T::UP;
        products[(8 * unit + lane_now / 4) * 8 + 4 * set + lane_now % 4] += product;
    });
}
template <class T> static Fragment lifted(const Fragment& x, bool odd) {
    if (!T::LIFTS) return x;
    return {multiply_bf16(x.b0, T::lift(odd)), multiply_bf16(x.b1, T::lift(odd))};
}
// As for two units: lane l has the input of vector l / 4 and the products of vectors 2 (l % 4) and the next one. The second eight columns are
// for the vectors behind these, whose products have to be the same.
template <class T, int DEPTH> static void multiply_both(u32 tiles, const std::vector<u16>& x, std::vector<float>& products) {
    std::vector<float> others(products.size());
    by_passes<DEPTH>(tiles, [&](u32 first, u32 count) {
        T a[DEPTH], b[DEPTH];
        RowFragment inputs[DEPTH][2] = {};
        typename T::RowSums sums[DEPTH][2];
        T::template load<DEPTH>(a, place_of<T>(0, tiles, first), first, lane_now, count);
        T::template load<DEPTH>(b, place_of<T>(1, tiles, first), first, lane_now, count);
        const u32 row = lane_now / 4, quad = lane_now % 4;
        for (u32 n = 0; n < 2; n++) {
            const u32 of = (row + n) % 8;
            for (u32 j = 0; j < DEPTH && j < count; j++)
                inputs[j][n] = {lifted<T>(four(x, tiles, of, first + j, 4 * quad), false), lifted<T>(four(x, tiles, of, first + j, 16 + 4 * quad), true)};
        }
        T::prepare(inputs, sums);
        const typename T::template UnitProducts<DEPTH, 2> both(a, b, inputs, sums);
        for (u32 n = 0; n < 2; n++) {
            const float4 y = both.shares(a, b, sums, n);
            float *const of_row = &(n ? others : products)[row * 8], *const next = of_row + 64;
            const u32 one = (2 * quad + n) % 8, two = (2 * quad + 1 + n) % 8;
            of_row[one] += T::UP * y.x, of_row[two] += T::UP * y.y, next[one] += T::UP * y.z, next[two] += T::UP * y.w;
        }
    });
    if (memcmp(products.data(), others.data(), 4 * products.size())) exit(printf("the products of a vector depend on its column\n"));
}
// As linear/fused.cuh for a vector and a unit: lane l has the input of tile l / 8 and the products of tile l % 4.
template <int DEPTH, class B> static void multiply_apart(CodedTile<B>, u32 tiles, const std::vector<u16>& x, u32 unit, u32 vector, std::vector<float>& products) {
    by_passes<DEPTH>(tiles, [&](u32 first, u32 count) {
        using T = LaneTile<B>;
        T a[DEPTH];
        const u32 own = lane_now / 8;
        Fragment input = {};
        float sum;
        T::template load<DEPTH>(a, place_of<T>(unit, tiles, first), first, lane_now, count);
        if (own < DEPTH && own < count) input = four(x, tiles, vector, first + own, lane_now % 8 * 4);
        T::prepare(input, sum);
        const auto fragment = [&](u32 j) { return j == own ? input : Fragment{}; };
        products[(8 * unit + lane_now / 4) * 8 + vector] += T::UP * T::template product<DEPTH>(a, fragment, [&](int) { return sum; });
    });
}
// As linear/wide.cuh for two units and 16 columns: of the first eight lane l has the input of vector l / 4 and the products of vectors
// 2 (l % 4) and the next one. The other eight are for the vectors behind these, whose products have to be the same.
template <int DEPTH, class B> static void multiply_pairs(CodedTile<B>, u32 tiles, const std::vector<u16>& x, std::vector<float>& products) {
    using T = CodedTile<B>;
    std::vector<float> others(products.size());
    by_passes<DEPTH>(tiles, [&](u32 first, u32) {
        T a[DEPTH], b[DEPTH];
        CodedPair<B> pairs[DEPTH];
        T::template load<DEPTH>(a, place_of<T>(0, tiles, first), first, lane_now, DEPTH);
        T::template load<DEPTH>(b, place_of<T>(1, tiles, first), first, lane_now, DEPTH);
        for (u32 j = 0; j < DEPTH; j++) pairs[j] = {a[j], b[j], T::template own_at<DEPTH>(j)};
        const u32 row = lane_now / 4, quad = lane_now % 4, next = (row + 1) % 8;
        PairInputs inputs[DEPTH];
        for (u32 j = 0; j < DEPTH; j++) {
            const auto of_half = [&](u32 column) {
                const Fragment one = four(x, tiles, row, first + j, column), two = four(x, tiles, next, first + j, column);
                return make_uint4(one.b0, one.b1, two.b0, two.b1);
            };
            inputs[j] = {of_half(4 * quad), of_half(16 + 4 * quad)};
        }
        float sums[2][4] = {};
        PairProducts<B, DEPTH>(pairs, inputs).add_to(sums, pairs);
        for (u32 i = 0; i < 4; i++) {
            const u32 at = (8 * (i / 2) + row) * 8, vector = 2 * quad + i % 2;
            products[at + vector] += sums[0][i], others[at + (vector + 1) % 8] += sums[1][i];
        }
    });
    if (memcmp(products.data(), others.data(), 4 * products.size())) exit(printf("the products of a vector depend on its column\n"));
}
template <class T, int DEPTH> static void multiply_all(u32 tiles, const std::vector<u16>& x) {
    std::vector<float> one(128), both(128), apart(128), pairs(128);
    for (u32 i = 0; i < 4; i++) multiply<T, DEPTH>(tiles, x, i / 2, i % 2, one);
    if constexpr (T::DECODES) {
        multiply_both<T, DEPTH>(tiles, x, both);
        for (u32 i = 0; i < 16; i++) multiply_apart<DEPTH>(T(), tiles, x, i / 8, i % 8, apart);
        multiply_pairs<DEPTH>(T(), tiles, x, pairs);
    } else
        both = apart = pairs = one;
    for (const auto& products : {one, both, apart, pairs})
        for (const float y : products) put(y);
}

template <class T> static void run(u32 tiles) {
    memory.resize(2 * tiles * T::BYTES);
    std::vector<u16> x(8 * 32 * tiles);
    if (fread(&memory[0], 1, memory.size(), stdin) != memory.size() || fread(&x[0], 2, x.size(), stdin) != x.size()) exit(2);
    decode<T, Exact>(tiles), decode<T, Rounded>(tiles);
    multiply_all<T, 1>(tiles, x), multiply_all<T, 2>(tiles, x), multiply_all<T, 3>(tiles, x), multiply_all<T, 4>(tiles, x);
}

int main() {
    for (u32 head[2]; fread(head, 4, 2, stdin) == 2;) by_kind(head[0], [&](auto tile) { run<decltype(tile)>(head[1]); });
}
