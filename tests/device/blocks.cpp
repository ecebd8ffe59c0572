// Blocks of bf16 from the slots of a ring, without a GPU: a warp takes each block and releases each
// slot once, whatever the rows.
#define AMK_WARPS 16
#define AMK_TILE 512
#define AMK_PASSES 16 // of wide steps
#include "passes.h"
#include "worker.h"

constexpr int PARTIAL_PITCH = 132;
struct CopyList {}; // of wide steps

#include "coded.h"
#include "stored.h"

#define asm
#define volatile(...)
#include "blocks.inc"
#undef asm
#undef volatile

AMK_DEVICE u32 tile_bytes(u32) { return AMK_TILE; }

// A tile that is a number.
struct Numbered {
    static constexpr u32 BYTES = AMK_TILE;
    static constexpr bool DECODES = false, APART = false;
    float number = 0;

    struct Place {
        u32 at;
        Place() = default;
        Place(u32 first, u32, u32) : at(first * BYTES) {}
        void advance(u32 by) { at += by; }
    };
    template <int DEPTH> static void load(Numbered (&tiles)[DEPTH], const Place& from, u32, u32, u32 count) {
        for (u32 j = 0; j < DEPTH && j < count; j++) tiles[j].number = shared_at<float>(from.at + j * BYTES);
    }
    template <int DEPTH, class X, class S> static float product(const Numbered (&tiles)[DEPTH], X, S) {
        float sum = 0;
        for (const Numbered& tile : tiles) sum += tile.number;
        return sum;
    }
    static void prepare(Fragment&, float&) {}
    static u32 named(u32) { return 0; }
};

static u32 tiles, units, passes;
static u32 slot_blocks() { return units > 1 ? GemvCut::blocks(tiles, AMK_TILE) : 1; }
static float number_of(u32 pass, u32 unit, u32 tile) { return 1 + 64 * (unit + 16 * pass) + tile; }

template <int DEPTH, bool EVEN> static void take(Worker& w) {
    for (u32 pass = 0; pass < passes; pass++) {
#if AMK_ROWS
        const RowPass of = {pass, units, tiles, slot_blocks()};
        RowProducts<DEPTH, EVEN, Numbered> products;
        products.begin(w, of);
        products.multiply(w, of);
#else
        Blocks<DEPTH, EVEN, Numbered> blocks;
        blocks.begin_with(w, tiles, slot_blocks(), 0, units);
        const Inputs<DEPTH, Numbered> inputs = {};
        if (pass)
            blocks.template times<false>(w, inputs);
        else
            blocks.template times<true>(w, inputs);
#endif
    }
}
// The sum that a warp has stored of a unit.
static float found(u32 warp, u32 unit) {
#if AMK_ROWS
    return row_sums[(unit * AMK_WARPS + warp) * UNIT_SUMS / 4];
#else
    return shared.scratch[warp * PARTIAL_PITCH + unit * AMK_UNIT];
#endif
}

template <int DEPTH, bool EVEN> static void check() {
    static const Params params = {};
    const u32 slot = slot_blocks(), bytes = tiles * AMK_TILE;
    std::vector<u8> tape(passes * units * bytes);
    std::vector<Ring::Piece> pieces;
    for (u32 pass = 0; pass < passes; pass++)
        for (u32 unit = 0; unit < units; unit++) {
            u8* const block = tape.data() + (pass * units + unit) * bytes;
            for (u32 tile = 0; tile < tiles; tile++) {
                const float number = number_of(pass, unit, tile);
                memcpy(block + tile * AMK_TILE, &number, 4);
            }
            if (unit % slot == 0) pieces.push_back({block, min(slot, units - unit) * bytes});
        }
    ring.start(pieces);
#if AMK_ROWS
    row_sums.assign(units * AMK_WARPS * UNIT_SUMS / 4, 0);
#endif
    run([](u32 thread) {
        Worker w = {params, shared, thread / 32, thread % 32, 0, 0, 0, 0, 0, 0};
        take<DEPTH, EVEN>(w);
        const size_t slots = ring.pieces.size();
        if (w.piece != slots)
            exit(printf("%u tiles, %u units: %u of %zu slots are released\n", tiles, units, w.piece, slots));
    });
    for (u32 warp = 0; warp < AMK_WARPS; warp++)
        for (u32 unit = 0; unit < units; unit++) {
            float expected = 0;
            for (u32 pass = 0; pass < passes; pass++)
                for (u32 tile = warp * DEPTH; tile < min((warp + 1) * DEPTH, tiles); tile++)
                    expected += number_of(pass, unit, tile);
            const float sum = found(warp, unit);
            if (sum != expected)
                exit(printf("%u tiles, unit %u of %u, warp %u: %g, not %g\n", tiles, unit, units, warp, sum, expected));
        }
}

int main() {
    for (u32 count : {1, 2, 3, 4, 5, 7, 8, 16})
        for (u32 of : {1, 2, 3}) {
            units = count, passes = of;
            tiles = 9, check<1, false>();
            tiles = 16, check<1, true>();
            tiles = 18, check<2, false>();
            tiles = 32, check<2, true>();
            tiles = 48, check<3, true>();
            tiles = 61, check<4, false>();
            tiles = 64, check<4, true>();
        }
    printf("ok\n");
}
