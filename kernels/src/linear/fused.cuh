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

// Input values in flight: packets and norm weights of a warp's tiles, as loaded, at most HELD.
// Tiles past the end are zeros that count as arrived.
template <int HELD> struct Pending {
    uint4 v[HELD];
    uint2 gamma[HELD];
    const u64* packets; // of the first tile
    u32 first;

    // The warp's j-th tile, counted from its first, when it has DEPTH per pass.
    template <int DEPTH> AMK_DEVICE static constexpr u32 tile(u32 j) {
        return j < DEPTH ? j : j + DEPTH * (AMK_WARPS - 1);
    }
    template <int DEPTH> AMK_DEVICE static constexpr u64 step(u32 j) {
        return tile<DEPTH>(j) * (AMK_TILE_K / AMK_PER_PACKET);
    }
    // Issues the loads from tile `from`: `depth` tiles of a pass, at most DEPTH. Does not wait.
    template <int DEPTH, bool EVEN>
    AMK_DEVICE void issue(const Worker& w, const Record& r, const GemvShape& g, u32 from,
                          u32 depth) {
        first = from;
        const u32 k0 = first * AMK_TILE_K + 4 * (w.lane & 7);
        const auto left = [&](u32 from) {
            return EVEN ? depth : min(g.tiles() - min(g.tiles(), from), depth);
        };
        const u32 mine = left(first),
                  next = left(first + DEPTH * AMK_WARPS); // of this pass and the next
        const u32 asked = g.comes() ? mine : 0, beyond = g.comes() ? next : 0;
        const u32 input = g.is_sum() && of_residual(w) ? r.partial : r.input;
        packets = w.p.packets + (input + k0 / AMK_PER_PACKET);
        asm volatile("" : "+l"(packets)); // computed once, not per tile
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            v[j] = make_uint4(0, w.epoch, 0, w.epoch);
            if (j < DEPTH ? j < asked : j - DEPTH < beyond)
                v[j] = load_relaxed(packets + step<DEPTH>(j));
        }
        if (any(!g.comes())) { // the row of this step's token
            const Elem* row = w.p.embedding + ((u64)w.s.token * w.p.hidden + k0);
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                if (j < DEPTH ? j >= mine : j - DEPTH >= next) continue;
                const uint2 e = *(const uint2*)(row + tile<DEPTH>(j) * AMK_TILE_K);
                v[j].x = e.x, v[j].z = e.y;
            }
        }
        // Unconditional: the compiler would keep a conditionally set value in registers across
        // tasks.
#pragma unroll
        for (int j = 0; j < HELD; j++) gamma[j] = make_uint2(BF16_ONES, BF16_ONES);
        if (!(g.flags & GEMV_NORM)) return;
        const Elem* weight = w.p.constants + ((is_added(w, g) ? r.bias : r.norm) + k0);
#pragma unroll
        for (int j = 0; j < HELD && j < DEPTH; j++) // with two passes held, norm weights are not
            if (j < mine) gamma[j] = *(const uint2*)(weight + j * AMK_TILE_K);
    }
    // Of a sum's columns of B, two and two: the summand, the residual, the summand for its squares,
    // and none. The summand has the weight of its own norm, and that of the sum's in other lanes.
    AMK_DEVICE static bool of_residual(const Worker& w) { return w.lane & 8; }
    AMK_DEVICE static bool is_added(const Worker& w, const GemvShape& g) {
        return g.is_sum() && !of_residual(w);
    }
    template <int TILES> AMK_DEVICE bool arrived(const Worker& w) const {
        u32 late = 0;
#pragma unroll
        for (int j = 0; j < TILES; j++) late |= (v[j].y ^ w.epoch) | (v[j].w ^ w.epoch);
        return late == 0;
    }
    // Waits until every packet is of this step. Late ones are requested again.
    template <int DEPTH, int TILES> AMK_DEVICE void arrive(Worker& w, u32 tiles) {
        const Timed timed(w.late);
        while (!all(arrived<TILES>(w))) {
#pragma unroll
            for (int j = 0; j < TILES; j++)
                if ((v[j].y ^ w.epoch) | (v[j].w ^ w.epoch))
                    v[j] = load_relaxed(packets + step<DEPTH>(j));
            if (!any(w.abandoned())) continue; // read while in flight
            missing<DEPTH, TILES>(w, tiles);
            break;
        }
    }
    // Reports the packets that are missing when the launch is being aborted.
    template <int DEPTH, int TILES> AMK_DEVICE void missing(Worker& w, u32 tiles) const {
#pragma unroll 1
        for (u32 j = 0; j < TILES && first + tile<DEPTH>(j) < tiles; j++) {
            const uint4 found = load_relaxed(packets + step<DEPTH>(j));
            const u32 second = found.y == w.epoch;
            w.missing(u32(packets - w.p.packets) + step<DEPTH>(j) + second,
                      second ? found.w : found.y);
        }
    }
    // Builds the B fragments with the norm's weight (its scale is applied to the output). The
    // tensor cores sum the squares: with x as both operands, D[0][0] is the sum over the even half
    // of k, in lane 0, and D[1][1] the sum over the odd half, in lane 4. Without a norm the weights
    // are ones: both cases share one path, and the fragments are in the registers that the products
    // need.
    template <int TILES>
    AMK_DEVICE void fragments(const Worker& w, const GemvShape& g, Fragment (&x)[TILES],
                              float (&squares)[4]) const {
        uint2 of_squares[TILES];
#pragma unroll
        for (int j = 0; j < TILES; j++) {
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
        for (int j = 0; j < TILES; j++) {
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
    store_shared(to, w.lane ? squares[1] : squares[0], (w.lane & 27) == 0);
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

// The same partition for the loader. A segment is one pass over a group.
AMK_DEVICE void gemv_feed(const Record& r, Feed& feed) {
    static_assert(AMK_DEPTH * AMK_WARPS * AMK_TILE <= AMK_CHUNK, "a block must fit a slot");
    const GemvShape g(r.shape);
    const GemvCut cut(g.k);
    const u32 tile = tile_bytes(g.kind), units = group_units(r, feed.at),
              count = cut.count(feed.pass), block = count * tile;
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
    Pending<AMK_SHARED ? AMK_MOST : 1> input; // if it is shared
    u32 units, squares_at, named;             // the last: see `BF16Tile::named`
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

// The blocks of one pass over a group from the ring, of tiles T. The next one is in registers.
template <int DEPTH, bool EVEN, class T> struct Blocks {
    T a[DEPTH];           // this warp's tiles of a block, zeros past its end
    u32 mine;             // tiles from its first on
    u32 bytes, slot;      // bytes of a block; blocks of a slot
    typename T::Place at; // of its first tile in the current block
    u32 partial;          // shared address of its row in this warp's partials of the first unit
#if AMK_SUMS
    u32 further; // 1: lanes next to those of the rows have the sums of another column
#endif

    AMK_DEVICE void begin(Worker& w, const Group& group, u32 tiles) {
        u32 slot = 1;
        if (group.units > 1) slot = GemvCut::blocks(tiles, T::BYTES);
#if AMK_SUMS
        further = group.g.is_sum();
#endif
        begin_with(w, tiles, slot, group.named);
    }
    // `named`: see `BF16Tile::named`.
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
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (!EVEN) a[j] = T();
        at = typename T::Place(w.warp * DEPTH, w.lane, named);
        at.advance(w.acquire());
        load(w);
    }
    AMK_DEVICE void load(const Worker& w) {
        T::template load<DEPTH>(a, at, w.warp * DEPTH, w.lane, EVEN ? DEPTH : mine);
    }
    // Goes on to the next block of the slot.
    AMK_DEVICE void next(const Worker& w) { at.advance(bytes), load(w); }
    // Releases the slot, and goes on to the first block of the next one.
    AMK_DEVICE void next_slot(Worker& w) {
        w.release();
        w.acquire();
        const u32 one = w.slot ? AMK_CHUNK : AMK_CHUNK - AMK_SLOTS * AMK_CHUNK;
        at.advance(one - (slot - 1) * bytes), load(w);
    }
    // This warp's share of the rows of a unit.
    AMK_DEVICE float product(const Fragment* x, const float* sums) const {
        return T::product(a, [&](int j) { return x[j]; }, [&](int j) { return sums[j]; });
    }
    // Stores sums of the first pass in the partials, or adds later ones.
    template <bool FIRST> AMK_DEVICE void keep(const Worker& w, u32 to, float y) const {
        if (!FIRST && has_sum(w)) y += load_shared_one(to);
        store_shared(to, y, has_sum(w));
    }
    AMK_DEVICE bool has_sum(const Worker& w) const {
#if AMK_SUMS
        return (w.lane & 3) <= further;
#else
        return !(w.lane & 3);
#endif
    }
    // Multiplies by the fragments into this warp's partials.
    template <bool FIRST>
    AMK_DEVICE void times(Worker& w, const Fragment* x, const float* sums, u32 units) {
        u32 to = partial, left = slot; // of this slot
#pragma unroll 1
        for (; --units; to += AMK_UNIT * 4) {
            const float y = product(x, sums);
            if (--left)
                next(w);
            else
                left = slot, next_slot(w);
            keep<FIRST>(w, to, y);
        }
        keep<FIRST>(w, to, product(x, sums)); // no next block to load
        w.release();
    }
};

// Makes the inputs ready for products with tiles T.
template <class T, int TILES>
AMK_DEVICE void prepare_tiles(Fragment (&x)[TILES], float (&sums)[TILES]) {
#pragma unroll
    for (int j = 0; j < TILES; j++) T::prepare(x[j], sums[j]);
}

// Computes the products of an input that fits the registers: PASSES passes behind one wait.
template <int DEPTH, int PASSES, bool EVEN, class T, int HELD>
AMK_DEVICE void multiply_whole(Worker& w, Group& group, Pending<HELD>& input) {
    const u32 tiles = group.g.tiles(), early = PASSES == 1 ? tiles : DEPTH * AMK_WARPS;
    Blocks<DEPTH, EVEN, T> blocks;
    blocks.begin(w, group, early); // before the inputs: it may have arrived already
    input.template arrive<DEPTH, DEPTH * PASSES>(w, tiles);
    if (w.first == 0) w.stamp(TRACE_INPUTS);
    Fragment x[DEPTH * PASSES];
    input.fragments(w, group.g, x, group.squares);
    float sums[DEPTH * PASSES];
    prepare_tiles<T>(x, sums);
    blocks.template times<true>(w, x, sums, group.units);
#pragma unroll
    for (int pass = 1; pass < PASSES; pass++) {
        blocks.begin(w, group, tiles - early);
        blocks.template times<false>(w, x + pass * DEPTH, sums + pass * DEPTH, group.units);
    }
}

// Computes the products of a longer input: the packets of a pass are requested while the previous
// pass is multiplied.
template <int DEPTH, bool EVEN, class T, int HELD>
AMK_DEVICE void multiply_long(Worker& w, const Record& r, Group& group, Pending<HELD>& input) {
    const GemvCut cut(group.g.k);
    Fragment x[DEPTH];
    float sums[DEPTH];
    const u32 first = group.first, end = group.last(cut.passes);
#pragma unroll 1
    for (u32 pass = first; pass < end; pass++) {
        Blocks<DEPTH, EVEN, T> blocks;
        blocks.begin(w, group, cut.count(pass)); // before the inputs: it may have arrived already
        input.template arrive<DEPTH, DEPTH>(w, cut.tiles);
        if (w.first == 0 && pass == first) w.stamp(TRACE_INPUTS);
        input.fragments(w, group.g, x, group.squares);
        prepare_tiles<T>(x, sums);
        if (pass + 1 < end)
            input.template issue<HELD, EVEN>(w, r, group.g, cut.first(pass + 1) + w.warp * DEPTH,
                                             DEPTH);
        const u32 units = group.in_pass(pass);
        if (pass == first)
            blocks.template times<true>(w, x, sums, units);
        else
            blocks.template times<false>(w, x, sums, units);
    }
}

// Runs a group with the code for its input shape, DEPTH tiles per pass: PASSES passes behind one
// wait or, with 0, any number of passes, each with its own wait.
template <int DEPTH, int PASSES, bool EVEN, class T, class F>
AMK_DEVICE void multiply(Worker& w, const Record& r, Group& group, F prepare) {
    const auto run = [&](auto& input) {
        if constexpr (PASSES == 0)
            multiply_long<DEPTH, EVEN, T>(w, r, group, input);
        else
            multiply_whole<DEPTH, PASSES, EVEN, T>(w, group, input);
    };
    if constexpr (AMK_SHARED)
        run(group.input);
    else {
        Pending<DEPTH*(PASSES ? PASSES : 1)> input;
        input.template issue<DEPTH, EVEN>(w, r, group.g, group.first_tile(w, DEPTH), DEPTH);
        prepare();
        run(input);
    }
    if (PASSES < 2 && (group.g.flags & GEMV_NORM))
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
        group.input.template issue<AMK_MOST, AMK_EVEN>(
            w, r, group.g, group.first_tile(w, group.g.depth), group.g.depth);
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
