// Runs norms of whole vectors without a GPU, of one row or with AMK_ROWS of several: every worker's part, stored or added to the residual,
// against the sums in double precision.
#define AMK_WARPS 16
#include "worker.h"

struct Worker;
struct Delivery {
    static bool due(const Worker&, u32) { return true; }
};

#include "norm.inc"

constexpr u32 LEN = 2624, INPUT = 0, OUTPUT = 4096, NORMED = 8192;
static std::vector<u64> packets(1 << 16);
static std::vector<Elem> constants(2 * LEN + 16);
constexpr u32 BIAS = LEN + 16;
static std::vector<std::vector<float>> x, residual;

static void close(const char* what, u32 at, double found, double expected) { near(what, at, found, expected, 0.005 * (1 + std::fabs(expected))); }
static u32 rows() { return AMK_ROWS ? AMK_ROWS - 1 : 1; }
static double expected(u32 row, u32 i, u32 shape) {
    double squares = 0, mean = 0, y = x[row][i];
    for (float v : x[row]) mean += shape & NORM_CENTRED ? (double)v / LEN : 0;
    for (float v : x[row]) squares += (v - mean) * (v - mean);
    if (shape & NORM_COMPUTED) y = (y - mean) * constant(constants.data(), 16 + i) / sqrt(squares / LEN + params.eps);
    if (shape & NORM_BIASED) y += constant(constants.data(), BIAS + i);
    return y + (shape & NORM_ADDED ? residual[row][i] : 0);
}
#if AMK_ROWS
static u32* place(u32 offset, u32 pair, u32 row) {
    const Worker w = any_worker();
    return pair_at(w, offset, pair, row);
}
static void put(u32 row, u32 pair, u32 value) { *place(INPUT, pair, row) = value; }
static u32 output(u32 row, u32 pair) {
#if AMK_ROW_PACKETS
    const Worker w = any_worker();
    for (u32 any = 0; any < AMK_ROWS; any++)
        if (*of_next_step(w, place(OUTPUT, pair, any)) != ABSENT) exit(printf("pair %u is not cleared\n", pair));
#endif
    return *place(OUTPUT, pair, row);
}
static float& held(u32 row, u32 i) {
    const Worker w = any_worker();
    return held_at(w, row, i);
}
constexpr u32 PER_PLACE = 4;
template <class N> constexpr auto PART = norm_rows<N>;
#else
static void put(u32, u32 pair, u32 value) { packets[INPUT + pair] = (u64)7 << 32 | value; }
static u32 output(u32, u32 pair) {
    if (packets[OUTPUT + pair] >> 32 != 7) exit(printf("pair %u is not published\n", pair));
    return packets[OUTPUT + pair];
}
static float& held(u32, u32 i) { return shared.residual[i]; }
constexpr u32 PER_PLACE = 2;
template <class N> constexpr auto PART = norm<N>;
#endif

// All parts, in pieces of several lengths; `of` is what a phase before has computed.
template <class N> static void check(u32 input, u32 shape, u32 of = 0) {
    const bool added = shape & NORM_ADDED;
    u32 first = 0;
    for (u32 units = 1; first < LEN; units = AMK_ROWS ? units % 3 + 1 : units * 3 % 37 + 1) {
        const u32 part = min(units * 8, LEN - first);
        for (u32 row = 0; row < rows(); row++)
            for (u32 i = 0; i < part; i++) held(row, i) = residual[row][first + i];
        by_all<PART<N>>({part / 8, input, OUTPUT + first / PER_PLACE, LEN | shape, first, shape & NORM_COMPUTED ? 16u : 0, shape & NORM_BIASED ? BIAS : 0, 0, 0, 0});
        for (u32 row = 0; row < rows(); row++)
            for (u32 i = 0; added && i < part; i++) close("a residual", first + i, held(row, i), expected(row, first + i, of | shape));
        first += part;
    }
    for (u32 row = 0; row < rows(); row++)
        for (u32 i = 0; i < LEN; i++) {
            const u32 pair = output(row, i / 2);
            close("an output", i, i % 2 ? bf16_high(pair) : bf16_low(pair), expected(row, i, of | shape));
        }
}

int main() {
    params = {packets.data(), nullptr, constants.data(), nullptr, nullptr, 0, 0, 0, rows(), 0, 0, 1e-5f};
    if (AMK_ROWS) packets.resize((u64)AMK_ROW_WORDS * AMK_ROWS * (1 + AMK_ROW_PACKETS) + (1 << 16)), params.packets = packets.data();
    for (u32 i = 0; i < LEN; i++) constants[16 + i] = to_bf16(1 + drawn() / 2), constants[BIAS + i] = to_bf16(drawn());
    for (u32 row = 0; row < rows(); row++) {
        x.emplace_back(LEN), residual.emplace_back(LEN);
        for (float& v : x[row]) v = rounded(drawn() * (1 + row) + 3 * row);
        for (float& v : residual[row]) v = drawn();
        for (u32 i = 0; i < LEN / 2; i++) put(row, i, pack_bf16(x[row][2 * i], x[row][2 * i + 1]));
    }
    check<RootMean>(INPUT, 0), check<RootMean>(INPUT, NORM_ADDED);
    constexpr u32 CENTRED = NORM_COMPUTED | NORM_CENTRED, BIASED = CENTRED | NORM_BIASED;
#if AMK_WIDE
    for (u32 first = 0; first < AMK_ROWS; first += 5) by_all<norm_whole<RootMean>>({5, INPUT, NORMED, LEN, 0, 16, 0, 0, first, 0});
    check<RootMean>(NORMED, NORM_ADDED, NORM_COMPUTED);
    for (u32 of : {CENTRED, BIASED}) {
        const u32 bias = of == BIASED ? BIAS : 0;
        for (u32 first = 0; first < AMK_ROWS; first += 5) by_all<norm_whole<Centred>>({5, INPUT, NORMED, LEN | (of & ~NORM_COMPUTED), 0, 16, bias, 0, first, 0});
        check<RootMean>(NORMED, 0, of);
    }
#else
    check<RootMean>(INPUT, NORM_COMPUTED), check<RootMean>(INPUT, NORM_COMPUTED | NORM_ADDED);
    check<Centred>(INPUT, CENTRED), check<Centred>(INPUT, BIASED), check<Centred>(INPUT, BIASED | NORM_ADDED);
#endif
#if AMK_SUMS
    double squares = 0;
    for (float v : x[0]) squares += v * v;
    shared.inner = 1 / std::sqrt(squares / LEN + params.eps); // as a projection leaves it
    check<RootMean>(INPUT, NORM_COMPUTED | NORM_ADDED | NORM_KNOWN);
#endif
    printf("ok\n");
}
