// Projections of one row over coded weights, without a GPU: from packets and a ring to the packets of the output.
#define AMK_WARPS 16
#define AMK_TILE 512
#define AMK_ROWS 0
#include "passes.h"
#include "worker.h"

constexpr int PARTIAL_PITCH = 132;
constexpr u32 INPUT = 0, OUTPUT = 1 << 14, NORM = 16, EPOCH = 7;

#include "coded.h"
#include "stored.h"

static u32 bytes_of_tile; // of the kind that runs
#define asm
#define volatile(...)
#include "products.inc"
#undef asm
#undef volatile

AMK_DEVICE u32 tile_bytes(u32) { return bytes_of_tile; }

static std::vector<u64> packets(1 << 15);
static std::vector<Elem> constants(1 << 15);
static Params params;
static Record record;
static void (*project)(Worker&, const Record&);

template <class B, int DEPTH, int PASSES, bool EVEN> static void check(u32 k, u32 units, bool normed) {
    using T = CodedTile<B>;
    bytes_of_tile = T::BYTES;
    const u32 flags = normed ? GEMV_NORM : 0;
    record = {units, INPUT, OUTPUT, k / 32 | IN_PACKETS << GEMV_INPUT_BIT | OUT_STORE << GEMV_OUTPUT_BIT | flags << GEMV_FLAGS_BIT | DEPTH << GEMV_DEPTH_BIT, 0, NORM, 0, 0, 0, 0, 0};
    const std::vector<u8> tape = drawn_tape<T>(units * k / 32);

    std::vector<float> x(k);
    double squares = 0;
    for (u32 i = 0; i < k; i++) {
        const float value = rounded(drawn());
        u64& packet = packets[INPUT + i / 2];
        packet = (u64)EPOCH << 32 | (i % 2 ? (u32)packet & 0xffff : 0) | to_bf16(value) << 16 * (i % 2);
        constants[NORM + i] = to_bf16(1 + drawn() / 2);
        squares += value * value;
        x[i] = normed ? rounded(value * constant(constants.data(), NORM + i)) : value;
    }
    const double scale = normed ? 1 / std::sqrt(squares / k + params.eps) : 1;

    std::vector<Ring::Piece> pieces;
    std::vector<double> expected(units * 8);
    const GemvCut cut(GemvShape(record.shape));
    Feed feed = {tape.data(), 0, 0, 0, 0};
    for (gemv_feed(record, feed); feed.left; gemv_feed(record, feed))
        while (feed.left) {
            const u32 bytes = min(feed.left, feed.slot);
            pieces.push_back({feed.from, bytes});
            feed.from += bytes, feed.left -= bytes;
        }
    const u8* from = tape.data();
    for (u32 first = 0; first < units; first += AMK_GROUP_UNITS)
        for (u32 pass = 0; pass < cut.passes; pass++)
            for (u32 unit = first; unit < min(first + AMK_GROUP_UNITS, units); unit++, from += cut.count(pass) * T::BYTES)
                for_elements<T>(from, cut.count(pass), [&](u32 row, u32 column, double w) {
                    expected[unit * 8 + row] += w * x[cut.first(pass) * 32 + column];
                });

    ring.start(pieces);
    project = [](Worker& w, const Record& r) {
        for (w.first = 0; w.first < r.units; w.first += AMK_GROUP_UNITS)
            gemv(w, r, [&](Group& group, auto prepare) { multiply<DEPTH, PASSES, EVEN, CodedTile<B>>(w, r, group, prepare); });
    };
    run([](u32 thread) {
        Worker w = {params, shared, thread / 32, thread % 32, EPOCH, 0, 0, 0, 0, 0};
        project(w, record);
        if (w.piece != ring.pieces.size()) exit(printf("%u of %zu pieces are released\n", w.piece, ring.pieces.size()));
    });
    for (u32 row = 0; row < units * 8; row++) {
        const u32 pair = (u32)packets[OUTPUT + row / 2];
        const float y = row % 2 ? bf16_high(pair) : bf16_low(pair), right = expected[row] * scale;
        if (std::fabs(y - right) <= 0.005 * (1 + std::fabs(right))) continue;
        exit(printf("k %u, %u units, %d passes, row %u: %g, not %g\n", k, units, PASSES, row, y, right));
    }
}

// Passes that wait once: with a load for each tile, one alone.
constexpr int held(int passes) { return ACROSS > 1 ? passes : 0; }

int main() {
    params.packets = packets.data(), params.constants = constants.data(), params.eps = 1e-5f;
    for (u32 units : {1, 2, 3, 4, 5, 19})
        for (bool normed : {false, true}) {
            using Group = Scaled<Codes<4>, 8, F16Scale, 128>;
            check<Q4_0<8>, 4, 1, true>(2048, units, normed);
            check<Q4_0<8>, 4, held(2), true>(4096, units, normed);
            check<Q4_0<8>, 4, 0, true>(4096, units, normed);
            check<Q4_0<8>, 4, held(3), false>(5632, units, normed);
            check<Q4_0<8>, 4, 0, false>(5632, units, normed);
            check<Q4_0<8>, 3, 1, true>(1536, units, normed);
            check<Q4_0<8>, 2, 1, false>(768, units, normed);
            check<Q8_0<8>, 4, held(2), true>(4096, units, normed);
            check<Group, 4, held(2), true>(4096, units, normed);
        }
    printf("ok\n");
}
