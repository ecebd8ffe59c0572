// Projections of wide steps over coded weights, without a GPU: copying warps bring the stages of
// units and inputs, and warps deliver products of all columns, or the sums of shares of them.
#define AMK_WARPS 16
#include "passes.h"
#include "copying.h"
#define AMK_PACE 3
#define AMK_SHARED_BYTES 0
#include "device.h"

#include "barriers.h"
static void copy_16(u32 to, const void* from) { memcpy(arena + to, from, 16); }
static void copy_4(u32 to, const void* from) { memcpy(arena + to, from, 4); }

#include "coded.h"
static u32 fma_bf16(u32 a, u32 b, u32 c) {
    return pack_bf16(fmaf(bf16_low(a), bf16_low(b), bf16_low(c)), fmaf(bf16_high(a), bf16_high(b), bf16_high(c)));
}

// ---- the kind of tiles that runs ----
static u32 bytes_of_tile, tiles_of_pack, tiles_of_team;
static u32 tile_bytes(u32) { return bytes_of_tile; }
static u32 tile_pack(u32) { return tiles_of_pack; }
static u32 tile_teams(u32) { return tiles_of_team; }
static float map_product(u32, float x) { return x; }
static float gate_products(u32, float x, float) { return x; }
constexpr bool HAS_WGMMA = true;
struct Shared;
struct Params;
struct Worker;
static void before_task(Worker&, const struct Record&);
#define asm
#define volatile(...)
#include "wide.inc"
#undef asm
#undef volatile
static void before_task(Worker&, const Record&) {}
AMK_DEVICE bool copy_other(Copier&, const Record&) { return true; }
AMK_DEVICE u32 memory_of(const Record&) { return 0; }

// ---- a launch of some records ----
static Params params;
static std::vector<Record> records;
static std::vector<u64> packets((u64)8192 * AMK_ROWS);
static std::vector<Elem> constants(1 << 15);
static void (*project)(Worker&, const Record&);
constexpr u32 INPUT = 0, OUTPUT = 4096, SUMS = 4608, NORM = 16, SQUARES = 8000, PARTS = 133;
// What of the norm of the inputs a projection computes.
enum Norm { NONE, ALL, SCALE };

static void launch(const std::vector<u8>& tape, u32 columns) {
    static u64 tape_at[2];
    static u32 record_at[2];
    record_at[1] = records.size(), tape_at[1] = tape.size();
    params.tape = tape.data(), params.tape_at = tape_at, params.records = records.data(), params.record_at = record_at;
    params.row_count = columns, params.steps = 1, turns = 0;
    memset(arena, 0, sizeof arena);
    begin_stages(shared);
    run([](u32 thread) {
        const u32 warp = thread / 32, lane = thread % 32;
        if (warp >= AMK_WARPS) return copy_stages(params, shared, RING, warp - AMK_WARPS, lane);
        Worker w = {params, shared, RING, warp, lane, 0};
        w.progress();
        for (const Record& r : records) project(w, r), w.sync(), w.progress();
    }, COROUTINES);
}

static void close(const char* what, u32 at, double found, double right) { near(what, at, found, right, 0.01 * (1 + std::fabs(right))); }

// Multiplies `units` units of `tiles` tiles by `columns` columns, with the weights' columns in
// `shares` shares.
template <class T> static void check(u32 tiles, u32 units, u32 columns, Norm norm, u32 shares) {
    const bool normed = norm == ALL;
    bytes_of_tile = T::BYTES, tiles_of_pack = T::GROUPS, tiles_of_team = T::IN_TEAMS;
    const u32 k = tiles * AMK_TILE_K, rows = units * AMK_UNIT;
    const std::vector<u8> tape = drawn_tape<T>(units * tiles);
    std::vector<std::vector<float>> x(columns, std::vector<float>(k));
    std::vector<double> scale(columns, 1);
    const Worker of_all = {params, shared, RING, 0, 0, 0};
    for (u32 i = 0; i < k; i++) constants[NORM + i] = to_bf16(1 + drawn() / 2);
    for (u32 column = 0; column < columns; column++) {
        double squares = 0;
        for (u32 i = 0; i < k; i += 2) {
            const u32 pair = pack_bf16(drawn(), drawn());
            *pair_at(of_all, INPUT, i / 2, column) = pair;
            for (u32 odd = 0; odd < 2; odd++) {
                const float value = element(pair, odd);
                squares += value * value;
                x[column][i + odd] = normed ? rounded(value * constant(constants.data(), NORM + i + odd)) : value;
            }
        }
        if (norm == SCALE) {
            squares = 0;
            for (u32 part = 0; part < PARTS; part++) {
                const float of_part = 1 + drawn();
                memcpy(element_at(of_all, SQUARES, part, column), &of_part, 4);
                squares += of_part;
            }
        }
        if (norm != NONE) scale[column] = 1 / std::sqrt(squares / k + params.eps);
    }
    const u32 shape = tiles | even_depth(tiles) << GEMV_DEPTH_BIT;
    const GemvCut cut{GemvShape(shape)};
    // Expected: of each share, row and column.
    const u32 each = (tiles + SHARE_TILES - 1) / SHARE_TILES;
    const auto begin = [&](u32 share) { return min(each * share / shares * SHARE_TILES, tiles); };
    std::vector<double> expected(shares * rows * columns);
    const u8* from = tape.data();
    for (u32 first = 0; first < units; first += AMK_GROUP_UNITS)
        for (u32 pass = 0; pass < cut.passes; pass++)
            for (u32 unit = first; unit < min(first + AMK_GROUP_UNITS, units); unit++, from += cut.count(pass) * T::BYTES)
                for_elements<T>(from, cut.count(pass), [&](u32 row, u32 at, double w) {
                    at += cut.first(pass) * AMK_TILE_K;
                    u32 share = 0;
                    while (at / AMK_TILE_K >= begin(share + 1)) share++;
                    for (u32 column = 0; column < columns; column++)
                        expected[(share * rows + unit * AMK_UNIT + row) * columns + column] += w * x[column][at];
                });
    records.clear();
    for (u32 share = 0; share < shares; share++) {
        Record r = {};
        const u32 flags = normed ? GEMV_NORM : 0, input = shares > 1 ? IN_SHARE : IN_PACKETS;
        r.op = OP_GEMV, r.units = units, r.input = INPUT, r.output = shares > 1 ? SUMS + share * rows / 2 : OUTPUT, r.norm = NORM;
        if (norm == SCALE) r.norm = PARTS, r.more = 2 * SQUARES;
        r.shape = shape | input << GEMV_INPUT_BIT | OUT_STORE << GEMV_OUTPUT_BIT | flags << GEMV_FLAGS_BIT;
        if (shares > 1) r.row = begin(share) | begin(share + 1) << 16;
        records.push_back(r);
    }
    project = [](Worker& w, const Record& r) {
        gemv_wide(w, r, [&](const GemvShape&, WideGroups& groups) { multiply_wide<T>(w, groups); });
    };
    launch(tape, columns);
    for (u32 at = 0; at < expected.size(); at++) {
        const u32 share = at / columns / rows, row = at / columns % rows, column = at % columns;
        if (shares > 1) {
            const float* sums = sums_at(of_all, records[share].output, row, column);
            close("a sum", at, *sums, expected[at]);
        } else
            close("a product", at, element(*pair_at(of_all, OUTPUT, row / 2, column), row % 2), expected[at] * scale[column]);
    }
}

template <class T> static void check_all() {
    for (u32 units : {1, 4, 5, 28, 37})
        for (Norm norm : {NONE, ALL, SCALE}) check<T>(units == 28 ? 64 : 40, units, AMK_ROWS - (units == 5), norm, 1);
    for (u32 units : {1, 4, 15, 16, 32}) check<T>(units < 16 ? 112 : 40, units, AMK_ROWS - 3, NONE, units % 2 ? 3 : 4);
}

int main() {
    params.packets = packets.data(), params.constants = constants.data(), params.eps = 1e-5f;
    check_all<CodedTile<Q4_0<1>>>();
    check_all<CodedTile<Q8_0<4>>>();
    check_all<CodedTile<Scaled<Codes<4>, 8, F16Scale, 128>>>();
    check_all<CodedTile<Q4_1<4>>>();
    printf("ok\n");
}
