// y = W x over rows of W that stream through the ring in tile order, fused with the ops around it
// in a decoder: RMSNorm of the input, bias, an element-wise function, and one of four ways to
// deliver the output.
//
// A tile is 8 rows x 32 k, one mma A fragment (tile.cuh): rows 0-7 hold the even half of k, rows
// 8-15 the odd half. B therefore needs two columns, and a row is D[r][0] + D[r+8][1], both in one
// lane. Each warp has some tiles of k.
//
// A small model's step consists mostly of the time between the last packet and the delivery, so
// everything else is done before. The code is specialised by depth only (input tiles that a warp
// holds in registers), and only where depth matters: a layer's code must fit the instruction cache
// (32 KiB), or every phase stalls on fetches.
#pragma once
#include "../abi.cuh"
#include "../../../amk/cuda/device/loader.cuh"
#include "tile/tile.cuh"

constexpr u32 GEMV_INPUT = GEMV_NORM << GEMV_FLAGS_BIT | 31u << GEMV_TILE_BIT |
                           GEMV_TILES; // the bits that select the function

// Generated: the element-wise functions of the program by number, of one product and of two.
AMK_DEVICE float map_product(u32 function, float x);
AMK_DEVICE float gate_products(u32 function, float x, float y);
// Generated: the bytes of the program's kinds of tiles, by number.
AMK_DEVICE u32 tile_bytes(u32 kind);
AMK_DEVICE u32 tile_pack(u32 kind);

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

// The delivery of a group of units: each thread sums a share of the warps' partials of a row pair,
// four lanes per pair. Everything that does not depend on the product is computed before, while the
// inputs are in flight; where codes take the registers, all but what takes few instructions.
struct Delivery {
    static constexpr bool LATE = AMK_CODED;
    u32 partial, squares; // shared addresses of its shares
    u32 row;              // within the task
    u64* to;
    float2 before; // the residual, unless it is late, or the bias
#if AMK_SUMMANDS
    float2 bias; // of what is added to the residual, or stored
#endif
    float part; // for the mean of squares: 1 / k
    u32 roles;  // of this lane, as bits in one register:
    // It has a row pair, publishes it, keeps it as the residual; publishes it as an addend, takes a
    // helper's addend.
    static constexpr u32 MINE = 1, PUBLISHES = 2, KEEPS = 4, GIVES = 8, TAKES = 16;

    // Whether this warp takes part in it.
    AMK_DEVICE static bool due(const Worker& w, u32 units) {
        return any(w.delivery_index() / 32 * 8 < units * 4);
    }
    AMK_DEVICE void prepare(const Worker& w, const Record& r, const GemvShape& g, u32 first_unit,
                            u32 units) {
        const u32 pair = w.delivery_index() >> 2, quarter = w.lane & 3;
        const bool mine = quarter == 0 && w.delivery_index() < units * 16;
        roles = mine ? MINE : 0;
        if (mine && g.output != OUT_LOGITS && !(g.output == OUT_GATED && w.lane & 4))
            roles |= PUBLISHES;
        if (mine && g.output == OUT_RESIDUAL) roles |= KEEPS;
        row = first_unit * AMK_UNIT + 2 * pair;
#if AMK_SPLIT_K
        if (r.op == OP_ADDENDS)
            roles = mine ? GIVES : 0;
        else if (pair + 4 >= units * 4 && pair < units * 4 && quarter < r.layer >> 8)
            roles |= TAKES;
#endif
        partial =
            shared_address(w.partial() + quarter * (AMK_WARPS / 4) * PARTIAL_PITCH + 2 * pair);
        squares = shared_address(w.s.squares[w.buffer] + quarter * (AMK_WARPS / 2));
        to = w.p.packets + (r.output + (g.output == OUT_GATED ? row / 2 : row) / AMK_PER_PACKET);
#if AMK_SPLIT_K
        if (r.op == OP_ADDENDS) to = w.p.packets + (r.output + row);
#endif
        before = make_float2(0, 0);
        if (!LATE && g.output == OUT_RESIDUAL)
            before = residual(w);
        else if (AMK_BIASES && !AMK_SUMMANDS && (g.flags & GEMV_BIAS))
            before = bias_of(w, r);
#if AMK_SUMMANDS
        bias = make_float2(0, 0);
        if (g.flags & GEMV_BIAS) bias = bias_of(w, r);
        asm volatile("" : "+f"(bias.x), "+f"(bias.y));
#endif
        part = __fdividef(1.0f, g.k);
        asm volatile("" : "+r"(partial), "+l"(to), "+r"(roles));
        if (!LATE || AMK_BIASES) asm volatile("" : "+f"(before.x), "+f"(before.y));
        if (!LATE) asm volatile("" : "+r"(squares), "+f"(part));
    }
    AMK_DEVICE float2 residual(const Worker& w) const {
        return *(const float2*)(w.s.residual + row);
    }
    AMK_DEVICE float2 bias_of(const Worker& w, const Record& r) const {
        return make_float2(constant(w.p.constants, r.bias + row),
                           constant(w.p.constants, r.bias + row + 1));
    }
    AMK_DEVICE void deliver(Worker& w, const Record& r, const GemvShape& g) const {
#if AMK_SPLIT_K
        const float2 addend = take_addend(w, r);
#endif
        float2 y = load_shared_pair(partial), v[AMK_WARPS / 4];
        const uint4 a = load_shared(squares), b = load_shared(squares + 16);
#pragma unroll
        for (int i = 1; i < AMK_WARPS / 4; i++)
            v[i] = load_shared_pair(partial + i * PARTIAL_PITCH * 4);
#pragma unroll
        for (int i = 1; i < AMK_WARPS / 4; i++) y.x += v[i].x, y.y += v[i].y;
#if AMK_SPLIT_K
        y.x += addend.x, y.y += addend.y;
#endif
        float sum = ((__uint_as_float(a.x) + __uint_as_float(a.y)) +
                     (__uint_as_float(a.z) + __uint_as_float(a.w))) +
                    ((__uint_as_float(b.x) + __uint_as_float(b.y)) +
                     (__uint_as_float(b.z) + __uint_as_float(b.w)));
#pragma unroll
        for (int m = 1; m <= 2; m *= 2) {
            y.x += __shfl_xor_sync(~0u, y.x, m), y.y += __shfl_xor_sync(~0u, y.y, m);
            sum += __shfl_xor_sync(~0u, sum, m);
        }
        if (AMK_EMBEDDING_SCALED || (g.flags & GEMV_NORM)) {
            float scale = g.scale(sum, part, w.p.eps);
#if AMK_SUMS
            if (any(g.is_sum())) scale = add_residual(w, y);
#endif
            y.x *= scale, y.y *= scale;
        }
        if (g.output == OUT_GATED) {
            const float h = gate_products(g.function(), y.x, y.y); // rows are (gate, up) pairs
            y = make_float2(h, __shfl_down_sync(~0u, h, 4));
        }
#if AMK_SUMMANDS
        y.x += bias.x, y.y += bias.y;
#else
        y.x += before.x, y.y += before.y;
#endif
#if AMK_MAPS
        if (any(g.output != OUT_GATED && g.function()))
            y = make_float2(map_product(g.function(), y.x), map_product(g.function(), y.y));
#endif
#if AMK_SUMMANDS
        y.x += before.x, y.y += before.y;
#endif
        if (LATE && (roles & KEEPS)) {
            const float2 held = residual(w);
            y.x += held.x, y.y += held.y;
        }
        if (roles & PUBLISHES) w.publish(to, pack_bf16(y.x, y.y));
#if AMK_SPLIT_K
        if (roles & GIVES)
            w.publish(to, __float_as_uint(y.x)), w.publish(to + 1, __float_as_uint(y.y));
#endif
        if (roles & KEEPS) *(float2*)(w.s.residual + row) = y;
        if ((roles & MINE) && g.output == OUT_LOGITS) logits(w, r, y);
    }
#if AMK_SPLIT_K
    // Waits for what a helper adds to this lane's row pair. Others take part in the votes. Warps of
    // other units publish before: what comes next reads this unit's packets too.
    AMK_DEVICE float2 take_addend(Worker& w, const Record& r) const {
        if (!any(roles & TAKES)) return make_float2(0, 0);
        const u32 pair = w.delivery_index() >> 2, quarter = w.lane & 3;
        const u32 at = r.partial + quarter * AMK_UNIT + 2 * (pair & 3);
        uint4 v = make_uint4(0, w.epoch, 0, w.epoch);
        do
            if (roles & TAKES) v = load_relaxed(w.p.packets + at);
        while (any((v.y ^ w.epoch | v.w ^ w.epoch) &&
                   w.missing(at + (v.y == w.epoch), v.y == w.epoch ? v.w : v.y)));
        return make_float2(__uint_as_float(v.x), __uint_as_float(v.z));
    }
#endif
#if AMK_SUMS
    // Makes products of the summand those of the sum, but for a factor, which is returned.
    AMK_DEVICE float add_residual(const Worker& w, float2& y) const {
        const u32 quarter = w.lane & 3;
        const u32 other = partial + (w.buffer ? -4 : 4) * SUM_FLOATS,
                  products = shared_address(w.s.squares[0]) + quarter * (AMK_WARPS / 4) * 16;
        float2 x = make_float2(0, 0);
        float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < AMK_WARPS / 4; i++) {
            const float2 v = load_shared_pair(other + i * PARTIAL_PITCH * 4);
            const uint4 its = load_shared(products + 16 * i);
            x.x += v.x, x.y += v.y;
            sums.x += __uint_as_float(its.x), sums.y += __uint_as_float(its.y);
            sums.z += __uint_as_float(its.z), sums.w += __uint_as_float(its.w);
        }
#pragma unroll
        for (int m = 1; m <= 2; m *= 2) {
            x.x += __shfl_xor_sync(~0u, x.x, m), x.y += __shfl_xor_sync(~0u, x.y, m);
            sums.x += __shfl_xor_sync(~0u, sums.x, m), sums.y += __shfl_xor_sync(~0u, sums.y, m);
            sums.z += __shfl_xor_sync(~0u, sums.z, m), sums.w += __shfl_xor_sync(~0u, sums.w, m);
        }
        const SumScale by(sums, part, w.p.eps);
        if (w.delivery_index() == 0) w.s.inner = by.inner;
        y = make_float2(fmaf(y.x, by.inner, x.x), fmaf(y.y, by.inner, x.y));
        return by.outer;
    }
#endif
    AMK_DEVICE void logits(Worker& w, const Record& r, float2 y) const {
        const u32 index = r.row + row, pair = w.delivery_index() >> 2;
        if (w.p.logits) *(float2*)(w.logits() + index) = y;
        if (!filtering(w)) consider(w, pair, y.x, index), consider(w, pair, y.y, index + 1);
    }
};

// The partition of a projection's tape. Units are taken in groups, a group in passes over k of at
// most `depth` tiles per warp. A block is the data of one unit in one pass. A ring slot holds whole
// blocks of one pass, so no block is split.
struct GemvCut {
    u32 tiles, depth, passes;

    AMK_DEVICE explicit GemvCut(u32 k) : tiles(k / AMK_TILE_K) {
        const u32 deep = (tiles + AMK_WARPS - 1) / AMK_WARPS; // tiles per warp
        passes = (deep + AMK_DEPTH - 1) / AMK_DEPTH;
        depth = quotient(deep + passes - 1, passes);
    }
    AMK_DEVICE u32 first(u32 pass) const { return pass * (depth * AMK_WARPS); }
    AMK_DEVICE u32 count(u32 pass) const {
        return pass + 1 < passes ? depth * AMK_WARPS : tiles - first(pass);
    }
    // Blocks of so many tiles in a slot.
    AMK_DEVICE static u32 blocks(u32 count, u32 tile) { return quotient(AMK_CHUNK / tile, count); }
    // For small numbers. The half keeps the quotient off integer boundaries.
    AMK_DEVICE static u32 quotient(u32 a, u32 b) { return u32(__fdividef(a + 0.5f, b)); }
};
AMK_DEVICE u32 group_units(const Record& r, u32 first) {
    return r.units - first < AMK_GROUP_UNITS ? r.units - first : AMK_GROUP_UNITS;
}

// How many units from `first` on are reduced together: a group, or else whole slots of the ring,
// within a group if there are several passes over it.
AMK_DEVICE u32 units_together(const Record& r, u32 kind, const GemvCut& cut, u32 first) {
    if (AMK_ROW_UNITS == AMK_GROUP_UNITS) return group_units(r, first);
    const u32 slot = cut.blocks(cut.count(0), tile_bytes(kind)),
              most =
                  slot < AMK_ROW_UNITS ? cut.quotient(AMK_ROW_UNITS, slot) * slot : AMK_ROW_UNITS,
              begin = first / AMK_GROUP_UNITS * AMK_GROUP_UNITS;
    const u32 end = cut.passes > 1 ? begin + group_units(r, begin) : r.units;
    return min(end - first, most);
}

// The same partition for the loader. A segment is one pass over units that are reduced together;
// the tape has each pass over a whole group.
AMK_DEVICE void gemv_feed(const Record& r, Feed& feed) {
    static_assert(AMK_DEPTH * AMK_WARPS * AMK_TILE <= AMK_CHUNK, "a block must fit a slot");
    const GemvShape g(r.shape);
    const GemvCut cut(g.k);
    const u32 tile = tile_bytes(g.kind), units = units_together(r, g.kind, cut, feed.at),
              count = cut.count(feed.pass), block = count * tile;
    if (AMK_ROW_UNITS < AMK_GROUP_UNITS && cut.passes > 1) {
        const u32 begin = feed.at / AMK_GROUP_UNITS * AMK_GROUP_UNITS, before = feed.at - begin,
                  group = group_units(r, begin), last = cut.passes - 1;
        if (feed.pass) // behind the units in the pass before
            feed.from +=
                (group - before - units) * cut.count(feed.pass - 1) * tile + before * block;
        else if (before) // behind those before these, in the last pass
            feed.from +=
                before * block - (u64)(group * cut.first(last) + before * cut.count(last)) * tile;
    }
#if AMK_SPLIT_K
    // Helpers read the further passes of a split unit.
    if (const u32 kept = r.layer & 255) {
        if (feed.pass > kept) feed.from += cut.depth * AMK_WARPS * tile;
        if (units && feed.pass >= kept)
            feed.left = (units - 1) * block;
        else
            feed.left = units * block;
    } else
#endif
        feed.left = units * block;
    feed.slot = cut.blocks(count, tile) * block;
    if (++feed.pass == cut.passes) feed.pass = 0, feed.at += units;
}
#if AMK_SPLIT_K
// Passes over the columns of the last of another worker's units, from its tape: see `GemvCut`.
template <class L> AMK_DEVICE void addends_feed(L& l, const Record& r, Feed& feed) {
    const GemvShape g(r.shape);
    const GemvCut cut(g.k);
    const u32 tile = tile_bytes(g.kind), units = r.units;
    const u32 first = r.layer & 255, end = r.layer >> 8 & 255;
    if (!feed.at) {
        feed.at = 1, feed.pass = first;
        feed.from = l.p.tape + (l.p.tape_at[r.layer >> 16] + (u64)r.aux * 16) +
                    cut.first(first) * (units * tile);
    }
    if (feed.pass == end) return;
    const u32 block = cut.count(feed.pass++) * tile;
    feed.from += (units - 1) * block;
    feed.left = feed.slot = block;
}
#endif

// A group of a projection's units in progress, shared between the code for its input shape and the
// code for all shapes.
//
// Code common to all shapes exists once, so that a layer's code stays in the instruction cache (32
// KiB). Input requests are also common if the depths are nearly equal (AMK_SHARED). Otherwise all
// shapes would pay for the registers of the deepest.
struct Group {
    const GemvShape g;
    Pending<AMK_SHARED ? AMK_MOST : 1, 1> input; // if it is shared
    u32 units, squares_at, named;                // the last: see `BF16Tile::named`
    float squares[4];
#if AMK_SPLIT_K
    u32 first, end; // passes of its last unit, the only one that may lack some

    AMK_DEVICE void split(const Record& r) {
        if (r.op == OP_ADDENDS)
            first = r.layer & 255, end = r.layer >> 8 & 255;
        else
            first = 0, end = r.layer ? r.layer & 255 : ~0u;
    }
    AMK_DEVICE void begin(const Worker& w, const Record& r) {
        units = r.op == OP_ADDENDS ? 1 : group_units(r, w.first);
    }
    // One past its last pass.
    AMK_DEVICE u32 last(u32 passes) const { return units == 1 ? min(end, passes) : passes; }
    // Units in a pass.
    AMK_DEVICE u32 in_pass(u32 pass) const { return units - (pass >= end); }
#else
    enum : u32 { first }; // a variable would be in the cubin

    AMK_DEVICE void split(const Record&) {}
    AMK_DEVICE void begin(const Worker& w, const Record& r) { units = group_units(r, w.first); }
    AMK_DEVICE u32 last(u32 passes) const { return passes; }
    AMK_DEVICE u32 in_pass(u32) const { return units; }
#endif
    // The first tile of a warp, of so many in a pass.
    AMK_DEVICE u32 first_tile(const Worker& w, u32 depth) const {
        return (first * AMK_WARPS + w.warp) * depth;
    }
};

// The inputs of a warp's tiles of a pass, as products with tiles T need them.
template <int DEPTH, class T> struct Inputs {
    Fragment x[DEPTH];
    float sums[DEPTH];

    // `loads`: fragments as loaded, see ACROSS.
    AMK_DEVICE void take(const Worker& w, const Fragment* loads) {
        Fragment all = loads[0];
        if constexpr (T::APART) T::prepare(all, sums[0]);
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            x[j] = loads[ACROSS == 1 ? j : 0];
            if constexpr (T::APART) {
                const bool own = w.lane >> 3 == j;
                x[j] = {own ? all.b0 : 0, own ? all.b1 : 0};
            } else if constexpr (ACROSS > 1) {
                const u32 from = 8 * j + (w.lane & 7);
                x[j] = {__shfl_sync(~0u, all.b0, from), __shfl_sync(~0u, all.b1, from)};
            }
            if constexpr (!T::APART) T::prepare(x[j], sums[j]);
        }
    }
};

// A pass over the blocks of a group in the ring, of tiles T.
template <int DEPTH, bool EVEN, class T> struct Pass {
    u32 mine;             // tiles of a block from this warp's first on
    u32 bytes, slot;      // bytes of a block; blocks of a slot
    typename T::Place at; // of its first tile in the current block
    u32 partial;          // shared address of its row in this warp's partials of the first unit
#if AMK_SUMS
    u32 further; // 1: lanes next to those of the rows have the sums of another column
#endif

    // Waits for the first block. `named`: see `BF16Tile::named`.
    AMK_DEVICE void begin_with(Worker& w, u32 tiles, u32 its_slot, u32 named) {
        slot = its_slot;
        mine = tiles - min(tiles, w.warp * DEPTH);
        bytes = tiles * T::BYTES;
#if AMK_SUMS
        float* const partials = partial_of_column(w, w.lane & 1);
#else
        float* const partials = w.partial();
#endif
        partial = shared_address(partials + w.warp * PARTIAL_PITCH + (w.lane >> 2));
        asm volatile("" : "+r"(slot), "+r"(bytes), "+r"(partial)); // now, while there is time
        at = typename T::Place(w.warp * DEPTH, w.lane, named);
        at.advance(w.acquire());
    }
    AMK_DEVICE void load(const Worker& w, T (&tiles)[DEPTH], const typename T::Place& from) const {
        T::template load<DEPTH>(tiles, from, w.warp * DEPTH, w.lane, EVEN ? DEPTH : mine);
    }
    // Releases the slot, and goes on to the first block of the next one, `by` bytes behind it.
    AMK_DEVICE void next_slot(Worker& w, u32 by) {
        w.release();
        w.acquire();
        const u32 one = w.slot ? AMK_CHUNK : AMK_CHUNK - AMK_SLOTS * AMK_CHUNK;
        at.advance(one - by);
    }
    // This warp's share of the rows of a unit; where tiles are apart, that of the lane's tile.
    AMK_DEVICE static float product(const T (&tiles)[DEPTH], const Inputs<DEPTH, T>& inputs) {
        return T::product(
            tiles, [&](int j) { return inputs.x[j]; }, [&](int j) { return inputs.sums[j]; });
    }
    // Stores sums of the first pass in the partials, or adds later ones.
    template <bool FIRST> AMK_DEVICE static void keep(u32 to, float y, bool mine) {
        if (!FIRST && mine) y += load_shared_one(to);
        store_shared(to, y, mine);
    }
    AMK_DEVICE bool has_sum(const Worker& w) const {
#if AMK_SUMS
        return (w.lane & 3) <= further;
#else
        return !(w.lane & 3);
#endif
    }
};

// The blocks of a pass one by one. The next one is in registers.
template <int DEPTH, bool EVEN, class T> struct Blocks : Pass<DEPTH, EVEN, T> {
    T a[DEPTH]; // this warp's tiles of a block, zeros past its end

    AMK_DEVICE void begin(Worker& w, const Group& group, u32 tiles, u32) {
#if AMK_SUMS
        this->further = group.g.is_sum();
#endif
        begin_with(w, tiles, group.units > 1 ? GemvCut::blocks(tiles, T::BYTES) : 1, group.named);
    }
    AMK_DEVICE void begin_with(Worker& w, u32 tiles, u32 slot, u32 named) {
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (!EVEN) a[j] = T();
        Pass<DEPTH, EVEN, T>::begin_with(w, tiles, slot, named);
        load(w);
    }
    AMK_DEVICE void load(const Worker& w) { Pass<DEPTH, EVEN, T>::load(w, a, this->at); }
    // Goes on to the next block of the slot.
    AMK_DEVICE void next(const Worker& w) { this->at.advance(this->bytes), load(w); }
    AMK_DEVICE void next_slot(Worker& w) {
        Pass<DEPTH, EVEN, T>::next_slot(w, (this->slot - 1) * this->bytes), load(w);
    }
    // Multiplies by the fragments into this warp's partials.
    template <bool FIRST>
    AMK_DEVICE void times(Worker& w, const Inputs<DEPTH, T>& inputs, u32 units) {
        u32 to = this->partial, left = this->slot; // of this slot
        const auto product = [&] {
            float y = this->product(a, inputs);
            if constexpr (T::APART) {
                y += __shfl_xor_sync(~0u, y, 1), y += __shfl_xor_sync(~0u, y, 2);
                y *= T::UP;
            }
            return y;
        };
#pragma unroll 1
        for (; --units; to += AMK_UNIT * 4) {
            const float y = product();
            if (--left)
                next(w);
            else
                left = this->slot, next_slot(w);
            this->template keep<FIRST>(to, y, this->has_sum(w));
        }
        this->template keep<FIRST>(to, product(), this->has_sum(w)); // no next block to load
        w.release();
    }
};

// The blocks of a pass, COUNT of a slot at once or what is left of it: the instructions of one fill
// the waits of others, and fewer of them go from block to block. The next ones are in registers.
template <int DEPTH, bool EVEN, class T, int COUNT> struct SlotBlocks : Pass<DEPTH, EVEN, T> {
    using Base = Pass<DEPTH, EVEN, T>;
    T a[COUNT][DEPTH];
    u32 count, left; // of the current blocks; of the slot from them on

    AMK_DEVICE void begin(Worker& w, const Group& group, u32 tiles, u32 units) {
        Base::begin_with(w, tiles, EVEN ? 0 : blocks_of(tiles), group.named);
        if (EVEN) this->slot = blocks_of(WHOLE), this->bytes = WHOLE * T::BYTES; // constants
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int j = 0; j < DEPTH; j++)
                if (!EVEN) a[i][j] = T();
        left = this->slot;
        load(w, units);
    }
    static constexpr u32 WHOLE = DEPTH * AMK_WARPS; // tiles of a block of all warps' tiles
    AMK_DEVICE static u32 blocks_of(u32 tiles) {
        return tiles == WHOLE ? AMK_CHUNK / (WHOLE * T::BYTES) : GemvCut::blocks(tiles, T::BYTES);
    }
    AMK_DEVICE void load(const Worker& w, u32 units) {
        count = min(min(units, left), COUNT);
        typename T::Place from = this->at;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++, from.advance(this->bytes))
            if (i < count) Base::load(w, a[i], from);
    }
    template <bool FIRST>
    AMK_DEVICE void times(Worker& w, const Inputs<DEPTH, T>& inputs, u32 units) {
        u32 to = this->partial;
#pragma unroll 1
        for (;;) {
            float y[COUNT];
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                y[i] = 0;
                if (i == 0 || any(i < count)) y[i] = this->product(a[i], inputs);
            }
            const u32 ready = count;
            units -= ready;
            if (units) {
                if (left -= ready)
                    this->at.advance(ready * this->bytes);
                else
                    this->next_slot(w, (this->slot - ready) * this->bytes), left = this->slot;
                load(w, units);
            }
            store<FIRST>(w, to, y, ready);
            if (!units) break;
            to += ready * (AMK_UNIT * 4);
        }
        w.release();
    }
    // Stores or adds the sums of the first `ready` blocks.
    template <bool FIRST>
    AMK_DEVICE void store(const Worker& w, u32 to, const float (&y)[COUNT], u32 ready) const {
        if constexpr (T::APART) {
            // Lanes that are 1 and 2 apart add up, and lane l has block l % 4 in the end.
            const u32 own = w.lane & 3;
            float sum = of_pair<0>(y, own & 1);
            if constexpr (COUNT > 2) {
                const float others = of_pair<2>(y, own & 1);
                const bool upper = own & 2;
                sum = (upper ? others : sum) + __shfl_xor_sync(~0u, upper ? sum : others, 2);
            } else
                sum += __shfl_xor_sync(~0u, sum, 2);
            Base::template keep<FIRST>(to + own * AMK_UNIT * 4, sum * T::UP, own < ready);
        } else {
#pragma unroll
            for (u32 i = 0; i < COUNT; i++)
                Base::template keep<FIRST>(to + i * AMK_UNIT * 4, y[i],
                                           i < ready && this->has_sum(w));
        }
    }
    // Adds up the sums of two lanes, of block FIRST for the even one and of the next for the other.
    template <int FIRST> AMK_DEVICE static float of_pair(const float (&y)[COUNT], bool odd) {
        const float first = y[FIRST], second = FIRST + 1 < COUNT ? y[FIRST + 1] : 0;
        return (odd ? second : first) + __shfl_xor_sync(~0u, odd ? first : second, 1);
    }
};

// How many blocks of tiles T a warp multiplies at once.
template <class T> AMK_DEVICE constexpr int blocks_at_once(int depth) {
    const int slot = AMK_CHUNK / (depth * AMK_WARPS * T::BYTES);
    return ACROSS == 1 || !T::DECODES ? 1 : slot < 4 ? slot : 4;
}
template <int DEPTH, bool EVEN, class T>
using BlocksOf = typename Either<blocks_at_once<T>(DEPTH) == 1, Blocks<DEPTH, EVEN, T>,
                                 SlotBlocks<DEPTH, EVEN, T, blocks_at_once<T>(DEPTH)>>::Type;

// Computes the products of an input that fits the registers: PASSES passes behind one wait.
template <int DEPTH, int PASSES, bool EVEN, class T, class P>
AMK_DEVICE void multiply_whole(Worker& w, Group& group, P& input) {
    const u32 tiles = group.g.tiles(), early = PASSES == 1 ? tiles : DEPTH * AMK_WARPS;
    constexpr int LOADS = loads_of(DEPTH);
    BlocksOf<DEPTH, EVEN, T> blocks;
    blocks.begin(w, group, early, group.units); // before the inputs: it may have arrived already
    input.template arrive<LOADS * PASSES>(w, tiles);
    if (w.first == 0) w.stamp(TRACE_INPUTS);
    Fragment x[LOADS * PASSES];
    input.fragments(w, group.g, x, group.squares);
    Inputs<DEPTH, T> inputs[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) inputs[pass].take(w, x + pass * LOADS);
    blocks.template times<true>(w, inputs[0], group.units);
#pragma unroll
    for (int pass = 1; pass < PASSES; pass++) {
        blocks.begin(w, group, tiles - early, group.units);
        blocks.template times<false>(w, inputs[pass], group.units);
    }
}

// The same, where a pass takes one load: one pass after the other by the same code.
template <int DEPTH, int PASSES, bool EVEN, class T, class P>
AMK_DEVICE void multiply_held(Worker& w, Group& group, P& input) {
    const GemvCut cut(group.g.k);
    BlocksOf<DEPTH, EVEN, T> blocks;
    blocks.begin(w, group, cut.count(0), group.units);
    input.template arrive<PASSES>(w, cut.tiles);
    if (w.first == 0) w.stamp(TRACE_INPUTS);
    Fragment x[PASSES];
    input.fragments(w, group.g, x, group.squares);
    Inputs<DEPTH, T> inputs;
    inputs.take(w, x);
    blocks.template times<true>(w, inputs, group.units);
#pragma unroll 1
    for (u32 pass = 1; pass < PASSES; pass++) {
#pragma unroll
        for (int i = 0; i + 1 < PASSES; i++) x[i] = x[i + 1];
        blocks.begin(w, group, cut.count(pass), group.units);
        inputs.take(w, x);
        blocks.template times<false>(w, inputs, group.units);
    }
}

// Computes the products of a longer input: the packets of a pass are requested while the previous
// pass is multiplied.
template <int DEPTH, bool EVEN, class T, class P>
AMK_DEVICE void multiply_long(Worker& w, const Record& r, Group& group, P& input) {
    const GemvCut cut(group.g.k);
    Inputs<DEPTH, T> inputs;
    const u32 first = group.first, end = group.last(cut.passes);
#pragma unroll 1
    for (u32 pass = first; pass < end; pass++) {
        const u32 units = group.in_pass(pass);
        BlocksOf<DEPTH, EVEN, T> blocks;
        blocks.begin(w, group, cut.count(pass), units); // before the inputs: it may have arrived
        input.template arrive<loads_of(DEPTH)>(w, cut.tiles);
        if (w.first == 0 && pass == first) w.stamp(TRACE_INPUTS);
        Fragment x[loads_of(DEPTH)];
        input.fragments(w, group.g, x, group.squares);
        inputs.take(w, x);
        if (pass + 1 < end)
            input.template issue<EVEN>(w, r, group.g, cut.first(pass + 1) + w.warp * DEPTH, DEPTH);
        if (pass == first)
            blocks.template times<true>(w, inputs, units);
        else
            blocks.template times<false>(w, inputs, units);
    }
}

// Runs a group with the code for its input shape, DEPTH tiles per pass: PASSES passes behind one
// wait or, with 0, any number of passes, each with its own wait.
template <int DEPTH, int PASSES, bool EVEN, class T, class F>
AMK_DEVICE void multiply(Worker& w, const Record& r, Group& group, F prepare) {
    using Tile = typename Either<ACROSS == 1, T, typename LaneTiles<T, DEPTH>::Type>::Type;
    const auto run = [&](auto& input) {
        if constexpr (PASSES == 0)
            multiply_long<DEPTH, EVEN, Tile>(w, r, group, input);
        else if constexpr (PASSES > 1 && ACROSS > 1)
            multiply_held<DEPTH, PASSES, EVEN, Tile>(w, group, input);
        else
            multiply_whole<DEPTH, PASSES, EVEN, Tile>(w, group, input);
    };
    if constexpr (AMK_SHARED)
        run(group.input);
    else {
        Pending<DEPTH, PASSES ? PASSES : 1> input;
        input.template issue<EVEN>(w, r, group.g, group.first_tile(w, DEPTH), DEPTH);
        prepare();
        run(input);
    }
    if (PASSES <= AMK_NORMED_PASSES && (group.g.flags & GEMV_NORM))
        tell_squares(w, group.g, group.squares_at, group.squares);
}

// Runs a projection. `by` multiplies a group with the code for its input shape.
template <class F> AMK_DEVICE void gemv(Worker& w, const Record& r, F by) {
    if (r.units == 0) return w.look_ahead();
    Group group = {GemvShape(r.shape)};
    group.split(r);
    bool delivers; // whether this warp delivers
    Delivery delivery;
    const auto prepare = [&] { // while the inputs are in flight
        w.look_ahead();
        group.begin(w, r);
        group.squares_at = squares_address(w);
        group.named = BF16Tile::named(w.lane);
        asm volatile("" : "+r"(group.units), "+r"(group.squares_at), "+r"(group.named));
        delivers = Delivery::due(w, group.units);
        delivery = {};
        if (delivers) delivery.prepare(w, r, group.g, w.first, group.units);
    };
    if constexpr (AMK_SHARED) {
        group.input.template issue<AMK_EVEN>(w, r, group.g, group.first_tile(w, group.g.depth),
                                             group.g.depth);
        prepare();
    }
    by(group, prepare);
    w.stamp(TRACE_PRODUCT);
    w.sync();
    w.stamp(TRACE_GATHERED);
    if (delivers) delivery.deliver(w, r, group.g);
    w.buffer ^= 1;
    w.end_task(delivers);
}
