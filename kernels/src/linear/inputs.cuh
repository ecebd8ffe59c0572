// The inputs of a projection of one row: its shape, packets in flight with the norm's weights, the
// fragments of B that they become, and their sums of squares.
#pragma once
#include "../abi.cuh"
#include "../../../amk/cuda/device/loader.cuh"
#include "tile/tile.cuh"

constexpr u32 GEMV_INPUT = GEMV_NORM << GEMV_FLAGS_BIT | 31u << GEMV_TILE_BIT |
                           GEMV_TILES; // the bits that select the function

// Generated: the element-wise functions of the program by number, of one product and of two.
AMK_DEVICE float map_product(u32 function, float x);
AMK_DEVICE float gate_products(u32 function, float x, float y);
// Generated, by the number of a kind of tiles: its bytes, the tiles of a pack, and those that a
// team multiplies at once.
AMK_DEVICE u32 tile_bytes(u32 kind);
AMK_DEVICE u32 tile_pack(u32 kind);
AMK_DEVICE u32 tile_teams(u32 kind);

// What the embedding is multiplied by: its products and their sums of squares are instead.
#define AMK_EMBEDDING_SCALED (AMK_EMBEDDING_SCALE != 1.0f)

struct GemvShape {
    u32 k, kind, input, output, flags; // kind: of the weights' tiles
    u32 depth;                         // input tiles that a warp multiplies in one pass
    AMK_DEVICE explicit GemvShape(u32 word)
        : k((word & GEMV_TILES) * AMK_TILE_K), kind(word >> GEMV_TILE_BIT & 31),
          input(word >> GEMV_INPUT_BIT & 3), output(word >> GEMV_OUTPUT_BIT & 3),
          flags(word >> GEMV_FLAGS_BIT), depth(word >> GEMV_DEPTH_BIT & 15) {}
    AMK_DEVICE u32 tiles() const { return k / AMK_TILE_K; }
    AMK_DEVICE u32 function() const { return flags >> GEMV_FUNCTION_BIT; }
    // Whether the input is a sum of two vectors of packets, and whether it is not the embedding.
    AMK_DEVICE bool is_sum() const { return AMK_SUMS && input == IN_SUM; }
    AMK_DEVICE bool comes() const { return AMK_SUMS ? input != IN_EMBEDDING : input == IN_PACKETS; }
    // What the products of an input are multiplied by, whose squares have this sum. `part`: 1 / k.
    AMK_DEVICE float scale(float squares, float part, float eps) const {
        const float by = input == IN_EMBEDDING ? AMK_EMBEDDING_SCALE : 1.0f;
        return flags & GEMV_NORM ? by * rsqrt_fast(squares * (by * by) * part + eps) : by;
    }
};

// Neighbouring tiles of an input in one load of all lanes. B has eight columns, of which a tile
// takes two, in lanes 8 i to 8 i + 7: where weights are decoded, each of four tiles has its own
// (see `LaneTile`). Tiles of bf16 would gain nothing, and a sum needs columns for its two vectors.
constexpr u32 ACROSS = AMK_ACROSS;
static_assert(ACROSS == 1 || AMK_DEPTH <= ACROSS, "a load has the tiles of a pass");
AMK_DEVICE constexpr int loads_of(int tiles) { return (tiles + ACROSS - 1) / ACROSS; }

// Input values in flight: packets and norm weights of a warp's tiles, as loaded, DEPTH per pass.
// Tiles past the end are zeros that count as arrived.
template <int DEPTH, int PASSES> struct Pending {
    static constexpr int EACH = loads_of(DEPTH), LOADS = EACH * PASSES,
                         NORMED = PASSES <= AMK_NORMED_PASSES ? LOADS : 0;
    uint4 v[LOADS];
    uint2 gamma[LOADS];
    const u64* packets; // of the lane's first tile
    u32 first;

    // The lane's tile of a pass in the j-th load, and tiles from its first to that of the j-th.
    AMK_DEVICE static u32 in_pass(const Worker& w, u32 j) {
        return j % EACH * ACROSS + (ACROSS > 1 ? w.lane >> 3 : 0);
    }
    AMK_DEVICE static constexpr u32 tile(u32 j) {
        return j % EACH * ACROSS + j / EACH * (DEPTH * AMK_WARPS);
    }
    AMK_DEVICE static constexpr u64 step(u32 j) { return tile(j) * (AMK_TILE_K / AMK_PER_PACKET); }
    // Issues the loads from tile `from`: `depth` tiles of a pass, at most DEPTH. Does not wait.
    template <bool EVEN>
    AMK_DEVICE void issue(const Worker& w, const Record& r, const GemvShape& g, u32 from,
                          u32 depth) {
        first = from;
        const u32 k0 = (first + in_pass(w, 0)) * AMK_TILE_K + 4 * (w.lane & 7);
        u32 there[PASSES], asked[PASSES]; // tiles of each pass
#pragma unroll
        for (u32 pass = 0; pass < PASSES; pass++) {
            const u32 at = first + pass * (DEPTH * AMK_WARPS);
            there[pass] = EVEN ? depth : min(g.tiles() - min(g.tiles(), at), depth);
            asked[pass] = g.comes() ? there[pass] : 0;
        }
        const u32 input = g.is_sum() && of_residual(w) ? r.partial : r.input;
        packets = w.p.packets + (input + k0 / AMK_PER_PACKET);
        asm volatile("" : "+l"(packets)); // computed once, not per tile
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            v[j] = make_uint4(0, w.epoch, 0, w.epoch);
            if (in_pass(w, j) < asked[j / EACH]) v[j] = load_relaxed(packets + step(j));
        }
        if (any(!g.comes())) { // the row of this step's token
            const Elem* row = w.p.embedding + ((u64)w.s.token * w.p.hidden + k0);
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                if (in_pass(w, j) >= there[j / EACH]) continue;
                const uint2 e = *(const uint2*)(row + tile(j) * AMK_TILE_K);
                v[j].x = e.x, v[j].z = e.y;
            }
        }
        // Unconditional: the compiler would keep a conditionally set value in registers across
        // tasks.
#pragma unroll
        for (int j = 0; j < LOADS; j++) gamma[j] = make_uint2(BF16_ONES, BF16_ONES);
        if (!(g.flags & GEMV_NORM)) return;
        const Elem* weight = w.p.constants + ((is_added(w, g) ? r.bias : r.norm) + k0);
#pragma unroll
        for (int j = 0; j < NORMED; j++)
            if (in_pass(w, j) < there[j / EACH])
                gamma[j] = *(const uint2*)(weight + tile(j) * AMK_TILE_K);
    }
    // Of a sum's columns of B, two and two: the summand, the residual, the summand for its squares,
    // and none. The summand has the weight of its own norm, and that of the sum's in other lanes.
    AMK_DEVICE static bool of_residual(const Worker& w) { return w.lane & 8; }
    AMK_DEVICE static bool is_added(const Worker& w, const GemvShape& g) {
        return g.is_sum() && !of_residual(w);
    }
    template <int HERE> AMK_DEVICE bool arrived(const Worker& w) const {
        u32 late = 0;
#pragma unroll
        for (int j = 0; j < HERE; j++) late |= (v[j].y ^ w.epoch) | (v[j].w ^ w.epoch);
        return late == 0;
    }
    // Waits until every packet of the first HERE loads is of this step. Late ones are requested
    // again.
    template <int HERE> AMK_DEVICE void arrive(Worker& w, u32 tiles) {
        const Timed timed(w.late);
        while (!all(arrived<HERE>(w))) {
#pragma unroll
            for (int j = 0; j < HERE; j++)
                if ((v[j].y ^ w.epoch) | (v[j].w ^ w.epoch)) v[j] = load_relaxed(packets + step(j));
            if (!any(w.abandoned())) continue; // read while in flight
            missing<HERE>(w, tiles);
            break;
        }
    }
    // Reports the packets that are missing when the launch is being aborted.
    template <int HERE> AMK_DEVICE void missing(Worker& w, u32 tiles) const {
#pragma unroll 1
        for (u32 j = 0; j < HERE && first + in_pass(w, 0) + tile(j) < tiles; j++) {
            const uint4 found = load_relaxed(packets + step(j));
            const u32 second = found.y == w.epoch;
            w.missing(u32(packets - w.p.packets) + step(j) + second, second ? found.w : found.y);
        }
    }
    // Builds the B fragments with the norm's weight (its scale is applied to the output). The
    // tensor cores sum the squares: with x as both operands, D[i][i] is the sum over column i of B,
    // a half of the k of a tile. Without a norm the weights are ones: both cases share one path,
    // and the fragments are in the registers that the products need.
    template <int HERE>
    AMK_DEVICE void fragments(const Worker& w, const GemvShape& g, Fragment (&x)[HERE],
                              float (&squares)[4]) const {
        uint2 of_squares[HERE];
#pragma unroll
        for (int j = 0; j < HERE; j++) {
            uint2 y = make_uint2(v[j].x, v[j].z), by = gamma[j];
            of_squares[j] = y;
#if AMK_SUMS
            if (is_added(w, g)) y = make_uint2(multiply_bf16(y.x, by.x), multiply_bf16(y.y, by.y));
            if (w.lane & 16) of_squares[j] = y;
            by.x = __shfl_sync(~0u, by.x, w.lane | 8), by.y = __shfl_sync(~0u, by.y, w.lane | 8);
#endif
            x[j].b0 = multiply_bf16(y.x, by.x), x[j].b1 = multiply_bf16(y.y, by.y);
        }
        if (!(g.flags & GEMV_NORM)) return;
        float odd[4] = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < HERE; j++) {
            const uint2 y = of_squares[j];
            mma(j & 1 ? odd : squares, make_uint4(y.x, y.x, y.y, y.y), y.x, y.y);
        }
        squares[0] += odd[0], squares[1] += odd[1];
    }
};

#if AMK_SUMS
// The input x = r + s (gamma y), with s the scale of the norm of y, is two columns of B: a product
// is that of r and s times that of gamma y, and nothing waits for s. The square of x, which the
// norm of x needs, is one of the sums r r + 2 s (r gamma y) + s s (gamma y)(gamma y).
//
// The second column has the half of the partials that otherwise the next task has, and the sums of
// both tasks' squares: deliveries of two tasks must not overlap (AMK_NO_ARRIVALS).
constexpr u32 SUM_FLOATS = AMK_WARPS * PARTIAL_PITCH; // of a half

// The half of a column's partials.
AMK_DEVICE float* partial_of_column(const Worker& w, u32 column) {
    return w.s.scratch + (w.buffer ^ column) * SUM_FLOATS;
}
// Stores a warp's sums of y y, r r, r (gamma y) and (gamma y)(gamma y): on the diagonal, but the
// third, each over the even half of k and, in the next row, over the odd one.
AMK_DEVICE void tell_products(const Worker& w, const float (&squares)[4]) {
    const float half = w.lane & 4 ? squares[1] : squares[0];
    const float sum = half + __shfl_down_sync(~0u, half, 4);
    const bool has = w.lane == 0 || w.lane == 9 || w.lane == 17 || w.lane == 18;
    const u32 number = (w.lane >> 3) + (w.lane == 18);
    store_shared(shared_address(w.s.squares[0]) + 16 * w.warp + 4 * number, sum, has);
}
// What the products of the residual and of the summand are multiplied by.
struct SumScale {
    float outer, inner;

    // `sums`: of all warps.
    AMK_DEVICE SumScale(float4 sums, float part, float eps) {
        inner = rsqrt_fast(sums.x * part + eps);
        const float squares = fmaf(inner, fmaf(inner, sums.w, 2 * sums.z), sums.y);
        outer = rsqrt_fast(fmaxf(squares, 0.0f) * part + eps);
    }
};
#endif

// Shared address of a warp's two sums of squares, from lanes 0 and 4.
AMK_DEVICE u32 squares_address(const Worker& w) {
    return shared_address(w.s.squares[w.buffer] + 2 * w.warp + (w.lane >> 2));
}
AMK_DEVICE void tell_squares(const Worker& w, const GemvShape& g, u32 to,
                             const float (&squares)[4]) {
#if AMK_SUMS
    if (any(g.is_sum())) return tell_products(w, squares);
#endif
    if (ACROSS == 1) return store_shared(to, w.lane ? squares[1] : squares[0], (w.lane & 27) == 0);
    // The diagonal: lanes 0, 9, 18 and 27 have the even columns, lanes 4, 13, 22 and 31 odd ones.
    float sum = w.lane & 4 ? squares[1] : squares[0];
    sum += __shfl_down_sync(~0u, sum, 9), sum += __shfl_down_sync(~0u, sum, 18);
    store_shared(to, sum, (w.lane & 27) == 0);
}
