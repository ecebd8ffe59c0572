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

// Input values on their way: packets (or the embedding row) and norm weights of tiles `first + j * AMK_WARPS`, as loaded.
template <int DEPTH> struct Pending {
    uint4 v[DEPTH];
    uint2 gamma[DEPTH];
    u32 first;

    AMK_DEVICE u32 k0(const Worker& w) const { return first * AMK_TILE_K + 4 * (w.lane & 7); }
    AMK_DEVICE void packets(const Worker& w, const Record& r, u32 tiles) {
        const u64* source = w.p.packets + r.in + k0(w) / AMK_PER_PACKET;
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (first + j * AMK_WARPS < tiles) v[j] = load_relaxed(source + j * (TILE_STRIDE / AMK_PER_PACKET));
    }
    // Starts the loads; nothing is waited for.
    AMK_DEVICE void issue(const Worker& w, const Record& r, const GemvShape& g, u32 from, u32 tiles) {
        first = from;
        if (g.flags & GEMV_NORM) {
            const Elem* weight = w.p.constants + r.norm + k0(w);
#pragma unroll
            for (int j = 0; j < DEPTH; j++)
                if (first + j * AMK_WARPS < tiles) gamma[j] = *(decltype(&gamma[0]))(weight + j * TILE_STRIDE);
        }
        if (g.input == IN_PACKETS) return packets(w, r, tiles);
        const Elem* row = w.p.embedding + (u64)w.s.token * w.p.hidden + k0(w);
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            if (first + j * AMK_WARPS >= tiles) continue;
            uint2 e = *(const uint2*)(row + j * TILE_STRIDE);
            v[j] = make_uint4(e.x, 0, e.y, 0);
        }
    }
    // Waits until every packet is of this step.
    AMK_DEVICE void arrive(Worker& w, const Record& r, const GemvShape& g, u32 tiles) {
        if (g.input != IN_PACKETS) return;
        for (;;) {
            u32 late = 0;
#pragma unroll
            for (int j = 0; j < DEPTH; j++)
                if (first + j * AMK_WARPS < tiles) late |= (v[j].y ^ w.epoch) | (v[j].w ^ w.epoch);
            if (__all_sync(~0u, late == 0)) return;
            if (w.s.gone) {
#pragma unroll
                for (int j = 0; j < DEPTH; j++) {
                    if (first + j * AMK_WARPS >= tiles) continue;
                    const u32 at = r.in + (k0(w) + j * TILE_STRIDE) / AMK_PER_PACKET;
                    w.missing(at, v[j].y), w.missing(at + 1, v[j].w);
                }
                return;
            }
            packets(w, r, tiles);
        }
    }
    // The B fragments, with the norm's weight (not its scale, which the output applies); adds up the squares.
    AMK_DEVICE void fragments(const GemvShape& g, u32 tiles, Fragment (&x)[DEPTH], float& squares) const {
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            x[j].b0 = x[j].b1 = 0;
            if (first + j * AMK_WARPS >= tiles) continue;
            x[j].b0 = v[j].x, x[j].b1 = v[j].z;
            if (g.flags & GEMV_NORM) {
                const float a = bf16_low(v[j].x), b = bf16_high(v[j].x), c = bf16_low(v[j].z), d = bf16_high(v[j].z);
                squares += a * a + b * b + c * c + d * d;
                x[j].b0 = multiply_bf16(v[j].x, gamma[j].x), x[j].b1 = multiply_bf16(v[j].z, gamma[j].y);
            }
        }
    }
};

// Sums the warps' partials of `units` units and delivers the rows; row pairs are spread over threads, four lanes a pair.
AMK_DEVICE void gemv_output(Worker& w, const Record& r, const GemvShape& g, u32 first_unit, u32 units, float inverse_k) {
    if (w.warp * 8 >= units * 4) return;
    const float* partial = w.partial();
    const u32 pair = w.thread() >> 2, quarter = w.lane & 3;
    const bool norm = g.flags & GEMV_NORM;
    const u32 row = first_unit * AMK_UNIT + 2 * pair; // within the task
    const bool mine = quarter == 0 && pair < units * 4;
    float2 y = make_float2(0, 0);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < AMK_WARPS / 4; i++) {
        const int from = quarter * (AMK_WARPS / 4) + i;
        float2 v = *(const float2*)(partial + from * PARTIAL_PITCH + 2 * pair);
        y.x += v.x, y.y += v.y;
        squares += w.s.squares[w.buffer][from];
    }
#pragma unroll
    for (int m = 1; m <= 2; m *= 2) {
        y.x += __shfl_xor_sync(~0u, y.x, m), y.y += __shfl_xor_sync(~0u, y.y, m);
        squares += __shfl_xor_sync(~0u, squares, m);
    }
    if (norm) {
        float scale = rsqrt_fast(squares * inverse_k + w.p.eps);
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

// One pass over a group: blocks from the ring times the fragments, into this warp's partials.
template <int DEPTH> AMK_DEVICE void gemv_pass(Worker& w, const Fragment (&x)[DEPTH], u32 units, u32 count, u32 slot, bool first) {
    u32 at[DEPTH]; // of this warp's tiles in a block; past the end any tile does, its fragment is 0
#pragma unroll
    for (int j = 0; j < DEPTH; j++) {
        const u32 tile = j * AMK_WARPS + w.warp;
        at[j] = (tile < count ? tile : count - 1) * AMK_TILE + w.lane * 16;
    }
    const u32 bytes = count * AMK_TILE;
    float* to = w.partial() + w.warp * PARTIAL_PITCH + (w.lane >> 2);
    u32 data = 0;
#pragma unroll 1
    for (u32 u = 0, held = 0; u < units; u++, to += AMK_UNIT) {
        if (held == 0) data = w.acquire();
        uint4 a[DEPTH];
#pragma unroll
        for (int j = 0; j < DEPTH; j++) a[j] = load_shared(data + at[j]);
        float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < DEPTH; j++) mma(j & 1 ? e : d, a[j], x[j].b0, x[j].b1);
        data += bytes;
        if (++held == slot || u + 1 == units) w.release(), held = 0;
        float y = (d[0] + e[0]) + (d[3] + e[3]);
        if ((w.lane & 3) == 0) *to = first ? y : *to + y;
    }
}

template <int DEPTH> AMK_DEVICE void gemv(Worker& w, const Record& r) {
    if (r.units == 0) return;
    const GemvShape g(r.shape);
    const GemvCut<DEPTH> cut(g);
    Pending<DEPTH> next;
    next.issue(w, r, g, w.warp, cut.tiles);
    const float inverse_k = 1.0f / g.k;
    const u32 last_slot = cut.blocks(cut.count(cut.passes - 1));
    Fragment x[DEPTH];
    float squares = 0;
#pragma unroll 1
    for (u32 first = 0; first < r.units; first += AMK_GROUP_UNITS) {
        const u32 units = group_units(r, first);
#pragma unroll 1
        for (u32 pass = 0; pass < cut.passes; pass++) {
            if (cut.passes > 1 || first == 0) {
                if (pass == 0) squares = 0;
                {
                    const Timed timed(w.late);
                    next.arrive(w, r, g, cut.tiles);
                }
                if (first == 0 && pass == 0) w.stamp(TRACE_INPUTS);
                next.fragments(g, cut.tiles, x, squares);
                if (cut.passes > 1) next.issue(w, r, g, (pass + 1 < cut.passes ? cut.first(pass + 1) : 0) + w.warp, cut.tiles);
            }
            gemv_pass<DEPTH>(w, x, units, cut.count(pass), pass + 1 == cut.passes ? last_slot : cut.blocks(DEPTH * AMK_WARPS), pass == 0);
        }
        if (g.flags & GEMV_NORM) {
            float total = squares;
#pragma unroll
            for (int m = 1; m < 8; m *= 2) total += __shfl_xor_sync(~0u, total, m);
            if (w.lane == 0) w.s.squares[w.buffer][w.warp] = total;
        }
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        gemv_output(w, r, g, first, units, inverse_k);
        w.buffer ^= 1;
    }
}
