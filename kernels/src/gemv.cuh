// y = W x over rows of W that stream through the ring in tile order, with what surrounds it in a decoder folded in:
// RMSNorm of the input, bias, and one of four ways to deliver the output.
//
// A bf16 tile is 8 rows x 32 k in the order of one mma A fragment: rows 0-7 hold the even half of k, rows 8-15 the odd half, so
// B needs two columns and a row is D[r][0] + D[r+8][1]: both in one lane. k is split over the warps tile by tile.
//
// The code is specialised by depth (input tiles a warp holds in registers) alone: a small loop body stays in the instruction
// cache, a copy for every shape does not.
#pragma once
#include "../vm/loader.cuh"

enum GemvOutput { OUT_STORE, OUT_RESIDUAL, OUT_GATED, OUT_LOGITS };
enum GemvInput { IN_PACKETS, IN_EMBEDDING };
constexpr u32 GEMV_NORM = 1, GEMV_BIAS = 2;

struct GemvShape {
    u32 k, input, output, flags;
    AMK_DEVICE explicit GemvShape(u32 word) : k(word & 0xfffff), input(word >> 20 & 3), output(word >> 22 & 63), flags(word >> 28) {}
};

struct Fragment { u32 b0, b1; };
constexpr int TILE_STRIDE = AMK_WARPS * AMK_TILE_K; // k between two tiles of a warp

// Input values on their way: packets and norm weights of tiles `first + j * AMK_WARPS`, as loaded. Tiles past the end are zeros that
// have arrived.
template <int DEPTH> struct Pending {
    uint4 v[DEPTH];
    uint2 gamma[DEPTH];
    u32 first;

    AMK_DEVICE u32 k0(const Worker& w) const { return first * AMK_TILE_K + 4 * (w.lane & 7); }
    AMK_DEVICE const u64* source(const Worker& w, const Record& r) const {
        const u64* at = w.p.packets + (r.in + k0(w) / AMK_PER_PACKET);
        asm volatile("" : "+l"(at)); // worked out once, not for each tile
        return at;
    }
    AMK_DEVICE static u64 step(int j) { return j * (TILE_STRIDE / AMK_PER_PACKET); }
    // Starts the loads; nothing is waited for.
    AMK_DEVICE void issue(const Worker& w, const Record& r, const GemvShape& g, u32 from, u32 tiles) {
        first = from;
        const u64* packets = source(w, r);
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            v[j] = make_uint4(0, w.epoch, 0, w.epoch);
            if (g.input == IN_PACKETS && first + j * AMK_WARPS < tiles) v[j] = load_relaxed(packets + step(j));
        }
        if (!(g.flags & GEMV_NORM)) return;
        const Elem* weight = w.p.constants + (r.norm + k0(w));
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            gamma[j] = make_uint2(0, 0);
            if (first + j * AMK_WARPS < tiles) gamma[j] = *(const uint2*)(weight + j * TILE_STRIDE);
        }
    }
    // Waits until every packet is of this step; those that are late are asked for again.
    AMK_DEVICE void arrive(Worker& w, const Record& r, const GemvShape& g, u32 tiles) {
        if (g.input != IN_PACKETS) return embedding(w, tiles);
        const u64* packets = source(w, r);
        u32 gone = 0;
        for (;;) {
            u32 late = 0;
#pragma unroll
            for (int j = 0; j < DEPTH; j++) late |= (v[j].y ^ w.epoch) | (v[j].w ^ w.epoch);
            if (__all_sync(~0u, late == 0)) return;
            if (gone) return missing(w, packets, tiles);
#pragma unroll
            for (int j = 0; j < DEPTH; j++)
                if ((v[j].y ^ w.epoch) | (v[j].w ^ w.epoch)) v[j] = load_relaxed(packets + step(j));
            gone = w.s.gone; // while they are on their way
        }
    }
    // The launch is being abandoned: tells what has not come.
    AMK_DEVICE void missing(Worker& w, const u64* packets, u32 tiles) const {
#pragma unroll 1
        for (int j = 0; j < DEPTH && first + j * AMK_WARPS < tiles; j++) {
            const uint4 found = load_relaxed(packets + step(j));
            const u32 second = found.y == w.epoch;
            w.missing(u32(packets - w.p.packets) + step(j) + second, second ? found.w : found.y);
        }
    }
    // The row of this step's token.
    AMK_DEVICE void embedding(const Worker& w, u32 tiles) {
        const Elem* row = w.p.embedding + ((u64)w.s.token * w.p.hidden + k0(w));
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            if (first + j * AMK_WARPS >= tiles) continue;
            const uint2 e = *(const uint2*)(row + j * TILE_STRIDE);
            v[j].x = e.x, v[j].z = e.y;
        }
    }
    // The B fragments, with the norm's weight (not its scale, which the output applies); adds up the squares.
    AMK_DEVICE void fragments(const GemvShape& g, Fragment (&x)[DEPTH], float& squares) const {
#pragma unroll
        for (int j = 0; j < DEPTH; j++) x[j].b0 = v[j].x, x[j].b1 = v[j].z;
        if (!(g.flags & GEMV_NORM)) return;
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            const float a = bf16_low(v[j].x), b = bf16_high(v[j].x), c = bf16_low(v[j].z), d = bf16_high(v[j].z);
            squares += a * a + b * b + c * c + d * d;
            x[j].b0 = multiply_bf16(v[j].x, gamma[j].x), x[j].b1 = multiply_bf16(v[j].z, gamma[j].y);
        }
    }
};

// Sums the warps' partials of `units` units and delivers the rows; row pairs are spread over threads, four lanes a pair.
AMK_DEVICE void gemv_output(Worker& w, const Record& r, const GemvShape& g, u32 first_unit, u32 units) {
    const float* partial = w.partial();
    const u32 pair = w.thread() >> 2, quarter = w.lane & 3;
    const bool norm = g.flags & GEMV_NORM;
    const u32 row = first_unit * AMK_UNIT + 2 * pair; // within the task
    const bool mine = quarter == 0 && pair < units * 4;
    const u32 from = quarter * (AMK_WARPS / 4);
    float2 y = *(const float2*)(partial + from * PARTIAL_PITCH + 2 * pair);
    float squares = w.s.squares[w.buffer][from];
#pragma unroll
    for (int i = 1; i < AMK_WARPS / 4; i++) {
        const float2 v = *(const float2*)(partial + (from + i) * PARTIAL_PITCH + 2 * pair);
        y.x += v.x, y.y += v.y;
        squares += w.s.squares[w.buffer][from + i];
    }
#pragma unroll
    for (int m = 1; m <= 2; m *= 2) {
        y.x += __shfl_xor_sync(~0u, y.x, m), y.y += __shfl_xor_sync(~0u, y.y, m);
        squares += __shfl_xor_sync(~0u, squares, m);
    }
    if (norm) {
        const float scale = rsqrt_fast(__fdividef(squares, g.k) + w.p.eps);
        y.x *= scale, y.y *= scale;
    }
    if (g.flags & GEMV_BIAS && mine) y.x += constant(w.p.constants, r.bias + row), y.y += constant(w.p.constants, r.bias + row + 1);
    u32 to = r.out + row / AMK_PER_PACKET;
    bool publish = mine;
    if (g.output == OUT_GATED) {
        const float h = __fdividef(y.x, 1.0f + __expf(-y.x)) * y.y; // rows come as (gate, up) pairs
        y = make_float2(h, __shfl_down_sync(~0u, h, 4));
        to = r.out + row / 2 / AMK_PER_PACKET;
        publish = mine && !(pair & 1);
    }
    if (!publish) return;
    if (g.output == OUT_LOGITS) {
        const u32 index = r.row + row;
        if (w.p.logits) *(float2*)(w.logits() + index) = y;
        if (!w.filtering()) w.consider(pair, y.x, index), w.consider(pair, y.y, index + 1);
        return;
    }
    if (g.output == OUT_RESIDUAL) {
        float2* x = (float2*)(w.s.residual + row);
        y.x += x->x, y.y += x->y;
        *x = y;
    }
    w.publish(to, pack_bf16(y.x, y.y));
}

// How a projection's tape is cut. Units are taken in groups, a group in passes over k of at most DEPTH tiles a warp; a block is
// what one pass reads of one unit. A ring slot holds whole blocks of one pass, so no block is cut.
template <int DEPTH> struct GemvCut {
    u32 tiles, passes;

    AMK_DEVICE explicit GemvCut(const GemvShape& g) : tiles(g.k / AMK_TILE_K), passes((tiles + DEPTH * AMK_WARPS - 1) / (DEPTH * AMK_WARPS)) {}
    AMK_DEVICE u32 first(u32 pass) const { return pass * (DEPTH * AMK_WARPS); }
    AMK_DEVICE u32 count(u32 pass) const { return pass + 1 < passes ? DEPTH * AMK_WARPS : tiles - first(pass); }
    AMK_DEVICE static u32 blocks(u32 count) { return AMK_CHUNK / AMK_TILE / count; } // of a slot
};
AMK_DEVICE u32 group_units(const Record& r, u32 first) { return r.units - first < AMK_GROUP_UNITS ? r.units - first : AMK_GROUP_UNITS; }

// The loader's side: the same cut.
template <int DEPTH, class L> AMK_DEVICE bool gemv_load(L& l, const Record& r, const u8* tape) {
    static_assert(DEPTH * AMK_WARPS * AMK_TILE <= AMK_CHUNK, "a block must fit a slot");
    const GemvCut<DEPTH> cut{GemvShape(r.shape)};
    for (u32 first = 0; first < r.units; first += AMK_GROUP_UNITS)
        for (u32 pass = 0; pass < cut.passes; pass++) {
            const u32 count = cut.count(pass), slot = cut.blocks(count);
            for (u32 left = group_units(r, first); left;) {
                const u32 blocks = left < slot ? left : slot, bytes = blocks * count * AMK_TILE;
                if (!l.issue(tape, bytes)) return false;
                tape += bytes, left -= blocks;
            }
        }
    return true;
}

// The blocks of one pass over a group as they come from the ring; the next one is in registers.
template <int DEPTH> struct Blocks {
    uint4 a[DEPTH];  // this warp's tiles of a block; zeros past its end
    u32 mine;        // how many they are
    u32 bytes, slot; // of a block; blocks of a slot
    u32 at;          // shared address of this lane's part of the first tile

    AMK_DEVICE void begin(Worker& w, u32 tiles, u32 units) {
        mine = (tiles + AMK_WARPS - 1 - w.warp) / AMK_WARPS;
        bytes = tiles * AMK_TILE;
        slot = 1;
        if (units > 1) slot = u32(__fdividef(AMK_CHUNK / AMK_TILE + 0.5f, tiles)); // the half keeps it off whole numbers
        asm volatile("" : "+r"(slot), "+r"(bytes));                                // now, while there is time
#pragma unroll
        for (int j = 0; j < DEPTH; j++) a[j] = make_uint4(0, 0, 0, 0);
        enter(w);
    }
    AMK_DEVICE void enter(Worker& w) {
        at = w.acquire() + w.thread() * 16;
        load();
    }
    AMK_DEVICE void load() {
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (j < mine) a[j] = load_shared(at + j * (AMK_WARPS * AMK_TILE));
    }
    // Times the fragments, into this warp's partials.
    AMK_DEVICE void times(Worker& w, const Fragment (&x)[DEPTH], u32 units, bool first) {
        const bool holds = (w.lane & 3) == 0, adds = holds && !first;
        float* to = w.partial() + w.warp * PARTIAL_PITCH + (w.lane >> 2);
        u32 left = min(slot, units); // of this slot
#pragma unroll 1
        for (;; to += AMK_UNIT) {
            float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0}, y = 0;
            if (adds) y = *to;
#pragma unroll
            for (int j = 0; j < DEPTH; j++) mma(j & 1 ? e : d, a[j], x[j].b0, x[j].b1);
            if (--left) at += bytes, load();
            else {
                w.release();
                units -= min(slot, units), left = min(slot, units);
                if (units) enter(w);
            }
            y += (d[0] + e[0]) + (d[3] + e[3]);
            if (holds) *to = y;
            if (units == 0) return;
        }
    }
};

template <int DEPTH> AMK_DEVICE void gemv(Worker& w, const Record& r) {
    if (r.units == 0) return;
    const GemvShape g(r.shape);
    const GemvCut<DEPTH> cut(g);
    Pending<DEPTH> next;
    next.issue(w, r, g, w.warp, cut.tiles);
    Fragment x[DEPTH];
    float squares = 0;
#pragma unroll 1
    for (u32 first = 0; first < r.units; first += AMK_GROUP_UNITS) {
        const u32 units = group_units(r, first);
        const bool end = first + AMK_GROUP_UNITS >= r.units;
#pragma unroll 1
        for (u32 pass = 0; pass < cut.passes; pass++) {
            Blocks<DEPTH> blocks;
            blocks.begin(w, cut.count(pass), units); // before the inputs: it may be there already
            if (cut.passes > 1 || first == 0) {
                if (pass == 0) squares = 0;
                {
                    const Timed timed(w.late);
                    next.arrive(w, r, g, cut.tiles);
                }
                if (first == 0 && pass == 0) w.stamp(TRACE_INPUTS);
                next.fragments(g, x, squares);
                const u32 following = pass + 1 < cut.passes ? pass + 1 : 0;
                if (following || (cut.passes > 1 && !end)) next.issue(w, r, g, cut.first(following) + w.warp, cut.tiles);
            }
            if (g.flags & GEMV_NORM && pass + 1 == cut.passes) {
                float total = squares;
#pragma unroll
                for (int m = 1; m < 8; m *= 2) total += __shfl_xor_sync(~0u, total, m);
                if (w.lane == 0) w.s.squares[w.buffer][w.warp] = total;
            }
            blocks.times(w, x, units, pass == 0);
        }
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        const bool delivers = w.warp * 8 < units * 4;
        if (delivers) gemv_output(w, r, g, first, units);
        if (end) w.end_task(delivers);
        w.buffer ^= 1;
    }
}
