// Runs fused short convolutions without a GPU, of one row, with AMK_PAGED over pages, or with AMK_ROWS of rows of several sequences over pages: position after
// position against the sums in double precision. Two convolutions keep their inputs behind what else a page has.
#define AMK_WARPS 16
#include "worker.h"

constexpr u32 LEN = AMK_CONV_LEN, TAPS = AMK_TAPS, CONTEXT = 256, BLOCKS = CONTEXT / 64, SEQUENCES = 3, PAGES = SEQUENCES * BLOCKS;
constexpr u32 X = 0, GATE = 2048, OUTPUT = 4096, WEIGHT = 16, FIRST = 24, UNITS = 3; // a worker's channels: FIRST and those behind

#include "convolve.inc"

typedef std::vector<float> Vector;
static std::vector<u64> packets(1 << 16);
static std::vector<u8> memory((u64)PAGES * AMK_KV_PAGE);
static std::vector<Elem> constants(WEIGHT + 2 * LEN * TAPS);
static u32 tables[SEQUENCES * BLOCKS * AMK_GROUPS];
static Vector inputs[2][SEQUENCES]; // of each convolution and sequence, by position

static float weight(u32 number, u32 channel, u32 tap) { return constant(constants.data(), WEIGHT + (number * LEN + channel) * TAPS + tap); }
static double expected(u32 number, u32 sequence, u32 pos, u32 channel, float gate) {
    double y = 0;
    for (u32 tap = 0; tap < TAPS; tap++)
        if (pos + 1 + tap >= TAPS) y += (double)weight(number, channel, tap) * inputs[number][sequence][(pos + 1 + tap - TAPS) * LEN + channel];
    return gate * y;
}
static Record record_of(u32 number) {
    const u32 weights = WEIGHT + (number * LEN + FIRST) * TAPS, apart = AMK_ROWS ? 4 : 2;
    return {UNITS, X, OUTPUT + FIRST / apart, 0, FIRST, weights, 0, number, GATE, 0};
}
// The first position that a step at `pos` reads.
static u32 first_read(u32 pos) { return pos + 1 > TAPS ? pos + 1 - TAPS : 0; }
static Vector drawn_vector() {
    Vector v(LEN);
    for (float& x : v) x = rounded(drawn());
    return v;
}

#if AMK_ROWS
static void put(u32 offset, u32 row, const Vector& v) {
    const Worker w = any_worker();
    for (u32 i = 0; i < LEN; i += 2) *pair_at(w, offset, i / 2, row) = pack_bf16(v[i], v[i + 1]);
}
static void step(u32 number, const u32 (&rows)[SEQUENCES]) {
    std::vector<u32> of_row;
    Vector gates[AMK_ROWS];
    for (u32 n = 0; n < SEQUENCES; n++)
        for (u32 i = 0; i < rows[n]; i++) {
            const u32 row = of_row.size();
            Vector& all = inputs[number][n];
            shared.rows[row] = {0, (u32)(all.size() / LEN), n * BLOCKS * AMK_GROUPS, 0};
            const Vector x = drawn_vector();
            all.insert(all.end(), x.begin(), x.end()), gates[row] = drawn_vector();
            put(X, row, x), put(GATE, row, gates[row]), of_row.push_back(n);
        }
    params.row_count = of_row.size();
    std::vector<std::unique_ptr<Holes>> holes;
    for (u32 n = 0; n < SEQUENCES; n++) holes.push_back(std::make_unique<Holes>(tables + n * BLOCKS * AMK_GROUPS, BLOCKS, AMK_CONV_GROUP, first_read(inputs[number][n].size() / LEN - rows[n])));
    by_all<convolve_rows>(record_of(number));
    const Worker w = any_worker();
    for (u32 row = 0; row < of_row.size(); row++)
        for (u32 i = FIRST; i < FIRST + 8 * UNITS; i++) {
            const u32 pair = *pair_at(w, OUTPUT, i / 2, row);
            const double y = expected(number, of_row[row], shared.rows[row].pos, i, gates[row][i]);
            near("an output", row * LEN + i, i % 2 ? bf16_high(pair) : bf16_low(pair), y, 0.02);
        }
#if AMK_ROW_PACKETS
    for (u32 row = 0; row < AMK_ROWS; row++)
        for (u32 i = FIRST; i < FIRST + 8 * UNITS; i += 2)
            if (*of_next_step(w, pair_at(w, OUTPUT, i / 2, row)) != ABSENT) exit(printf("pair %u is not cleared\n", i / 2));
#endif
}
#else
static void step(u32 number, u32 sequence) {
    Vector& all = inputs[number][sequence];
    params.pos = all.size() / LEN, params.page_tables = tables + sequence * BLOCKS * AMK_GROUPS;
    const Vector x = drawn_vector(), gate = drawn_vector();
    all.insert(all.end(), x.begin(), x.end());
    for (u32 i = 0; i < LEN; i += 2)
        packets[X + i / 2] = (u64)7 << 32 | pack_bf16(x[i], x[i + 1]), packets[GATE + i / 2] = (u64)7 << 32 | pack_bf16(gate[i], gate[i + 1]);
    const Holes holes(tables + sequence * BLOCKS * AMK_GROUPS, BLOCKS, AMK_CONV_GROUP, first_read(params.pos));
    by_all<convolve>(record_of(number));
    for (u32 i = FIRST; i < FIRST + 8 * UNITS; i++) {
        const u64 found = packets[OUTPUT + i / 2];
        if (found >> 32 != 7) exit(printf("pair %u is not published\n", i / 2));
        near("an output", i, i % 2 ? bf16_high((u32)found) : bf16_low((u32)found), expected(number, sequence, params.pos, i, gate[i]), 0.02);
    }
    for (u32 i = 0; i < LEN / 2; i++) packets[OUTPUT + i] = 0;
}
#endif

int main() {
    params = {packets.data(), memory.data(), constants.data(), nullptr, tables, 0, BLOCKS, 0, 0, 0, 0, 1e-5f};
    if (AMK_ROWS) packets.resize((u64)AMK_ROW_WORDS * AMK_ROWS * (1 + AMK_ROW_PACKETS) + (1 << 16)), params.packets = packets.data();
    for (Elem& x : constants) x = to_bf16(drawn());
    for (u32 i = 0; i < PAGES * AMK_GROUPS; i++) tables[i] = (i / AMK_GROUPS * 5 + 2) % PAGES;
#if AMK_ROWS
    const u32 steps[][SEQUENCES] = {{1, 0, 2}, {3, 1, 1}, {0, 1, 6}, {2, 2, 2}, {1, 1, 1}};
    for (u32 n = 0; n < 90; n++) step(n % 2, steps[n / 2 % 5]);
#else
    for (u32 n = 0; n < 300; n++) step(n % 2, AMK_PAGED ? n / 2 % 2 : 0);
#endif
    // Nothing else was written.
    for (u32 page = 0; page < (AMK_ROWS || AMK_PAGED ? PAGES : 1); page++)
        for (u32 i = 0; i < AMK_CACHE_PAGE; i++)
            if (memory[page * AMK_KV_PAGE + i]) exit(printf("byte %u of page %u is written\n", i, page));
    printf("ok\n");
}
