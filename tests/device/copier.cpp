// The stages that the copying warps of wide steps bring, without a GPU: all of a launch's
// projections, in their order, while one coroutine stands for the consumers. A task that uses the
// ring's memory finds nobody else in it.
#define AMK_WARPS 16
#include "passes.h"
#include "copying.h"

#define AMK_SLOTS 7
#define AMK_SLOT_BYTES 32768
#undef AMK_COPIERS // threads of consumers stand for them
#define AMK_COPIERS 3
#define AMK_ROW_PACKETS 0
#define AMK_PACE 3
#define AMK_SHARED_BYTES 0
// Ends the process by a coroutine, whose stack is static data.
[[noreturn]] static void fail(const char* what, u32 record = 0, u32 stage = 0) {
    printf("%s: record %u, stage %u\n", what, record, stage);
    fflush(stdout);
    _Exit(1);
}

// ---- shared memory: an arena of which addresses are offsets ----
constexpr u32 RING = 1 << 15, MEMORY = AMK_SLOTS * 32768;
alignas(1024) static u8 arena[RING + MEMORY];
static u32 shared_address(const void* p) { return (const u8*)p - arena; }
static void copy_16(u32 to, const void* from) { memcpy(arena + to, from, 16); }
static void copy_4(u32 to, const void* from) { memcpy(arena + to, from, 4); }

#include "barriers.h"
static u32 __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
static float __fdividef(float a, float b) { return a / b; }
static float rsqrt_fast(float x) { return 1 / sqrtf(x); }

static const u32 BYTES[] = {512, 288};
static u32 tile_bytes(u32 kind) { return BYTES[kind]; }
static u32 tile_pack(u32) { return 1; }
static u32 tile_teams(u32 kind) { return 2 * kind; }
constexpr bool HAS_WGMMA = true;
struct Shared;
struct Params;
struct Worker;
#include "copier.inc"
AMK_DEVICE bool copy_other(Copier&, const Record&) { return true; }
AMK_DEVICE u32 memory_of(const Record& r) { return r.op == OP_APPEND ? MEMORY * 2 / 3 : 0; }

// ---- a launch ----
static Shared& shared = *(Shared*)arena;
static Params params;
static std::vector<Record> records;
static std::vector<u8> tape;
static std::vector<u64> packets;
static std::vector<Elem> constants;

// Copying warps that do not wait where they have to come here meanwhile.
static void pause() {
    for (u32 i = 0; i < 600; i++) next_turn();
}
// Where a tile of a unit is: a tape has each pass over a whole group of units.
static const u8* tile_at(const u8* piece, const Record& r, const GemvShape& g, u32 unit, u32 tile) {
    const GemvCut cut(g);
    const u32 pass = tile / cut.count(0), begin = unit / AMK_GROUP_UNITS * AMK_GROUP_UNITS,
              group = min(r.units - begin, AMK_GROUP_UNITS);
    const u32 before = begin * g.tiles() + group * cut.first(pass) +
                       (unit - begin) * cut.count(pass) + tile - cut.first(pass);
    return piece + before * tile_bytes(g.kind);
}
static void check_stage(const u8* piece, u32 number, const GemvShape& g, const WideGroup& c, u32 n,
                        u32 at) {
    const Record& r = records[number];
    const u32 here = min(c.step, c.tiles - n * c.step);
    for (u32 unit = 0; unit < c.units; unit++)
        for (u32 j = 0; j < here; j++)
            if (memcmp(arena + at + (unit * c.step + j) * c.tile,
                       tile_at(piece, r, g, c.first + unit, n * c.step + j), c.tile))
                fail("a tile", number, n);
    for (u32 line = 0; line < (here + 1) / 2; line++) {
        const u32 of_row = r.input + (n * c.step / 2 + line) * 16;
        const u8* const from =
            (const u8*)(packets.data() + (u64)of_row * AMK_ROWS) + c.column * LINE;
        if (memcmp(arena + c.inputs(at) + line * c.block, from, c.columns * LINE))
            fail("a line of inputs", number, n);
    }
    if (c.norms &&
        memcmp(arena + c.gamma(at), &constants[r.norm + n * c.step * AMK_TILE_K], here * 64))
        fail("a norm's weights", number, n);
}
// Uses the memory from an address on.
static void use_memory(u32 number, u32 from) {
    memset(arena + RING + from, 0xdd, MEMORY - from);
    pause();
    for (u32 i = from; i < MEMORY; i++)
        if (arena[RING + i] != 0xdd) fail("a copy into memory in use", number, i);
}
// Stages until the launch is abandoned.
static u32 left_stages;
// Takes the stages of a projection as the consumers do.
static void project(const u8* piece, u32 number, std::vector<u32>& filled) {
    const Record& r = records[number];
    const GemvShape g(r.shape);
    WideGroups groups{params, shared, r, g};
    pause();
    for (u64& word : packets)
        word =
            word * 6364136223846793005ull + 1442695040888963407ull; // only now the inputs are there
    barrier_arrive(shared_address(&shared.inputs));
    while (!groups.ended()) {
        const WideGroup c = groups.group();
        for (u32 n = 0; n < c.count(); n++) {
            if (left_stages-- == 0) shared.abandoned = true;
            if (shared.abandoned) return;
            const u32 slot = n % c.stages;
            while (!barrier_passed(shared_address(shared.stage_full + slot), filled[slot] & 1)) {
            }
            filled[slot]++;
            for (u32 warp = 0; warp < AMK_WARPS; warp++) {
                if (warp + 1 == AMK_WARPS && params.row_count < AMK_ROWS) pause(); // it is late
                check_stage(piece, number, g, c, n, RING + slot * c.bytes);
                barrier_arrive(shared_address(shared.stage_empty + slot));
            }
        }
        use_memory(number, c.left()); // by sums
        groups.number++;
        if (!groups.ended()) count_up(shared.groups);
    }
}
static void consume() {
    std::vector<u32> filled(WIDE_STAGES);
    for (u32 step = 0; step < params.steps; step++) {
        count_up(shared.progress);
        const u8* piece = tape.data();
        for (u32 i = 0; i < records.size(); i++) {
            if (records[i].op == OP_GEMV) project(piece, i, filled);
            if (shared.abandoned) return;
            if (records[i].op == OP_APPEND || records[i].op == OP_ATTEND_ROWS)
                use_memory(i, memory_of(records[i]));
            piece += records[i].tape;
            count_up(shared.progress);
        }
    }
    shared.done = 1;
}
static Record projection(u32 tiles, u32 units, u32 kind, bool norm, u32 input, bool deep = false) {
    const u32 flags = norm ? GEMV_NORM << GEMV_FLAGS_BIT : 0;
    Record r = {};
    r.op = OP_GEMV, r.units = units, r.input = input,
    r.shape = tiles | kind << GEMV_TILE_BIT | flags | (deep ? 4 : even_depth(tiles)) << GEMV_DEPTH_BIT;
    r.norm = 64, r.tape = units * tiles * tile_bytes(kind);
    return r;
}
static Record task(u32 op) {
    Record r = {};
    r.op = op;
    return r;
}

// Runs a launch, which is abandoned after so many stages.
static void launch(u32 rows, u32 stages) {
    memset(arena, 0, sizeof arena);
    params.row_count = rows, left_stages = stages, turns = 0;
    begin_stages(shared);
    run([](u32 thread) {
        if (thread / 32 < AMK_COPIERS) copy_stages(params, shared, RING, thread / 32, thread % 32);
        if (thread == AMK_COPIERS * 32) consume();
    });
}

static u32 state = 1;
static u32 drawn(u32 below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}
// Whatever may follow each other.
static std::vector<Record> random_records() {
    const u32 others[] = {OP_APPEND, OP_ATTEND_ROWS, OP_NORM, OP_REDUCE};
    std::vector<Record> of = {task(OP_EMBED)};
    for (u32 i = 0; i < 5; i++) {
        const u32 tiles = 2 * drawn(60) + 2, units = drawn(40) + 1, kind = drawn(2);
        const bool norm = drawn(2), deep = tiles > 64 && drawn(2);
        of.push_back(projection(tiles, units, kind, norm, 16 * drawn(256), deep));
        for (u32 more = drawn(3); more; more--) of.push_back(task(others[drawn(4)]));
    }
    return of;
}
// Makes a tape for these records.
static void load(const std::vector<Record>& of) {
    static u64 tape_at[2];
    static u32 record_at[2];
    records = of;
    u32 bytes = 64;
    for (const Record& r : records) bytes += r.tape;
    while (tape.size() < bytes) tape.push_back(drawn(256));
    tape_at[1] = bytes - 64, record_at[1] = records.size();
    params.tape = tape.data(), params.tape_at = tape_at;
    params.records = records.data(), params.record_at = record_at;
}

int main() {
    for (u32 i = 0; i < (4096 + 256 * 16) * AMK_ROWS; i++) packets.push_back(drawn(1 << 24));
    for (u32 i = 0; i < 256 * AMK_TILE_K + 64; i++) constants.push_back(drawn(1 << 16));
    params.packets = packets.data(), params.constants = constants.data(), params.steps = 2;
    load({task(OP_EMBED), projection(32, 40, 0, true, 0), task(OP_APPEND), task(OP_ATTEND_ROWS),
          projection(18, 5, 0, false, 4096), task(OP_NORM), projection(256, 9, 1, false, 0),
          task(OP_APPEND), projection(6, 1, 0, false, 0), task(OP_REDUCE),
          projection(64, 33, 1, true, 16)});
    for (const u32 rows : {1, 13, AMK_ROWS}) launch(rows, ~0u);
    if (!shared.done) fail("the launch did not end");
    for (u32 stages = 0; stages < 150; stages += 7)
        launch(AMK_ROWS, stages); // the copying warps leave, too
    for (u32 program = 0; program < 6; program++) {
        load(random_records());
        launch(program % 2 ? AMK_ROWS : drawn(AMK_ROWS) + 1, ~0u);
        if (!shared.done) fail("the launch did not end", program);
    }
    printf("ok\n");
}
