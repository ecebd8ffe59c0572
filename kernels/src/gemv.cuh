// y = W x over rows of W that stream through the ring in tile order, with what surrounds it in a decoder folded in:
// RMSNorm of the input, bias, and one of four ways to deliver the output.
//
// A bf16 tile is 8 rows x 32 k in the order of one mma A fragment: rows 0-7 hold the even half of k, rows 8-15 the odd half, so
// B needs two columns and a row is D[r][0] + D[r+8][1]: both in one lane. k is split over the warps tile by tile.
//
// The code is specialised by depth (input tiles a warp holds in registers) alone: a small loop body stays in the instruction
// cache, a copy for every shape does not.
#pragma once
#include "../vm/worker.cuh"

enum GemvOutput { OUT_STORE, OUT_RESIDUAL, OUT_GATED, OUT_LOGITS };
enum GemvInput { IN_PACKETS, IN_EMBEDDING };
constexpr u32 GEMV_NORM = 1, GEMV_BIAS = 2;

struct GemvShape {
    u32 k, input, output, flags;
    AMK_DEVICE explicit GemvShape(u32 word) : k(word & 0xfffff), input(word >> 20 & 3), output(word >> 22 & 63), flags(word >> 28) {}
};

#if AMK_F32
struct Fragment { float4 v; };
constexpr int WORDS = 2; // 16-byte loads per lane and tile
#else
struct Fragment { u32 b0, b1; };
constexpr int WORDS = 1;
#endif
constexpr int TILE_STRIDE = AMK_WARPS * AMK_TILE_K; // k between two tiles of a warp

// Input values on their way: packets (or the embedding row) and norm weights of tiles `first + j * AMK_WARPS`, as loaded.
template <int DEPTH> struct Pending {
    uint4 v[DEPTH * WORDS];
#if AMK_F32
    float4 gamma[DEPTH];
#else
    uint2 gamma[DEPTH];
#endif
    u32 first;

    AMK_DEVICE u32 k0(const Worker& w) const { return first * AMK_TILE_K + 4 * (AMK_F32 ? w.lane & 3 : w.lane & 7); }
    AMK_DEVICE void packets(const Worker& w, const Record& r, u32 tiles) {
        const u64* source = w.p.packets + r.in + k0(w) / AMK_PER_PACKET;
#pragma unroll
        for (int j = 0; j < DEPTH * WORDS; j++)
            if (first + (j / WORDS) * AMK_WARPS < tiles) v[j] = load_relaxed(source + (j / WORDS) * (TILE_STRIDE / AMK_PER_PACKET) + (j % WORDS) * 2);
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
        const Elem* row = w.p.embedding + (u64)w.token * w.p.hidden + k0(w);
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            if (first + j * AMK_WARPS >= tiles) continue;
#if AMK_F32
            float4 e = *(const float4*)(row + j * TILE_STRIDE);
            v[2 * j] = make_uint4(__float_as_uint(e.x), 0, __float_as_uint(e.y), 0);
            v[2 * j + 1] = make_uint4(__float_as_uint(e.z), 0, __float_as_uint(e.w), 0);
#else
            uint2 e = *(const uint2*)(row + j * TILE_STRIDE);
            v[j] = make_uint4(e.x, 0, e.y, 0);
#endif
        }
    }
    // Waits until every packet is of this step.
    AMK_DEVICE void arrive(Worker& w, const Record& r, const GemvShape& g, u32 tiles) {
        if (g.input != IN_PACKETS) return;
        for (;;) {
            u32 late = 0;
#pragma unroll
            for (int j = 0; j < DEPTH * WORDS; j++)
                if (first + (j / WORDS) * AMK_WARPS < tiles) late |= (v[j].y ^ w.epoch) | (v[j].w ^ w.epoch);
            if (__all_sync(~0u, late == 0) || !w.missing(r.in + k0(w) / AMK_PER_PACKET, w.epoch ^ late)) return;
            packets(w, r, tiles);
        }
    }
    // The B fragments, with the norm's weight (not its scale, which the output applies); adds up the squares.
    AMK_DEVICE void fragments(const GemvShape& g, u32 tiles, Fragment (&x)[DEPTH], float& squares) const {
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            if (first + j * AMK_WARPS >= tiles) continue;
#if AMK_F32
            float4 f = make_float4(__uint_as_float(v[2 * j].x), __uint_as_float(v[2 * j].z), __uint_as_float(v[2 * j + 1].x), __uint_as_float(v[2 * j + 1].z));
            if (g.flags & GEMV_NORM) {
                squares += f.x * f.x + f.y * f.y + f.z * f.z + f.w * f.w;
                f = make_float4(f.x * gamma[j].x, f.y * gamma[j].y, f.z * gamma[j].z, f.w * gamma[j].w);
            }
            x[j].v = f;
#else
            x[j].b0 = v[j].x, x[j].b1 = v[j].z;
            if (g.flags & GEMV_NORM) {
                float a = bf16_low(v[j].x), b = bf16_high(v[j].x), c = bf16_low(v[j].z), d = bf16_high(v[j].z);
                squares += a * a + b * b + c * c + d * d;
                x[j].b0 = pack_bf16(a * bf16_low(gamma[j].x), b * bf16_high(gamma[j].x));
                x[j].b1 = pack_bf16(c * bf16_low(gamma[j].y), d * bf16_high(gamma[j].y));
            }
#endif
        }
    }
};

// Sums the warps' partials of `units` units and delivers the rows; row pairs are spread over threads, four lanes a pair.
AMK_DEVICE void gemv_output(Worker& w, const Record& r, const GemvShape& g, u32 first_unit, u32 units) {
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
        float scale = rsqrtf(squares / g.k + w.p.eps);
        y.x *= scale, y.y *= scale;
    }
    if (g.flags & GEMV_BIAS && mine) y.x += constant(w.p.constants, r.bias + row), y.y += constant(w.p.constants, r.bias + row + 1);
    u32 to = r.out + row / AMK_PER_PACKET;
    bool publish = mine;
    if (g.output == OUT_GATED) {
        float h = y.x / (1.0f + __expf(-y.x)) * y.y; // rows come as (gate, up) pairs
        y = make_float2(h, __shfl_down_sync(~0u, h, 4));
        to = r.out + row / 2 / AMK_PER_PACKET;
        if (!AMK_F32) publish = mine && !(pair & 1);
        if (AMK_F32 && publish) w.publish(to, __float_as_uint(h));
        if (AMK_F32) return;
    }
    if (!publish) return;
    if (g.output == OUT_LOGITS) {
        const u32 index = r.row + row;
        if (w.p.logits) *(float2*)(w.p.logits + (u64)w.step * w.p.vocab + index) = y;
        w.consider(y.x, index), w.consider(y.y, index + 1);
        return;
    }
    if (g.output == OUT_RESIDUAL) {
        float2* x = (float2*)(w.s.residual + row);
        y.x += x->x, y.y += x->y;
        *x = y;
    }
#if AMK_F32
    w.publish(to, __float_as_uint(y.x)), w.publish(to + 1, __float_as_uint(y.y));
#else
    w.publish(to, pack_bf16(y.x, y.y));
#endif
}

template <int DEPTH> AMK_DEVICE void gemv(Worker& w, const Record& r) {
    constexpr int CHUNK_TILES = AMK_CHUNK / AMK_TILE;
    if (r.units == 0) return;
    const GemvShape g(r.shape);
    const u32 tiles = g.k / AMK_TILE_K, passes = (tiles + DEPTH * AMK_WARPS - 1) / (DEPTH * AMK_WARPS);
    Pending<DEPTH> next;
    next.issue(w, r, g, w.warp, tiles);
    Fragment x[DEPTH];
    float squares = 0;
    u32 data = 0;
    int base = 0; // first tile of the unit, counted from the start of the current chunk
#pragma unroll 1
    for (u32 first = 0; first < r.units; first += AMK_GROUP_UNITS) {
        const u32 units = r.units - first < AMK_GROUP_UNITS ? r.units - first : AMK_GROUP_UNITS;
#pragma unroll 1
        for (u32 pass = 0; pass < passes; pass++) {
            const u32 before = pass * (DEPTH * AMK_WARPS), count = pass + 1 < passes ? DEPTH * AMK_WARPS : tiles - before;
            if (passes > 1 || first == 0) {
                if (pass == 0) squares = 0;
                next.arrive(w, r, g, tiles);
                next.fragments(g, tiles, x, squares);
                if (passes > 1) next.issue(w, r, g, (pass + 1 < passes ? before + DEPTH * AMK_WARPS : 0) + w.warp, tiles);
                w.stamp(1);
            }
            if (first + pass == 0) data = w.acquire();
#pragma unroll 1
            for (u32 u = 0; u < units; u++) {
                float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
#pragma unroll
                for (int j = 0; j < DEPTH; j++) {
                    const u32 tile = j * AMK_WARPS + w.warp;
                    if (tile >= count) continue;
                    while (base + (int)tile >= CHUNK_TILES) {
                        w.release();
                        data = w.acquire();
                        base -= CHUNK_TILES;
                    }
                    uint4 a = load_shared(data + (base + tile) * AMK_TILE + w.lane * 16);
#if AMK_F32
                    d[j & 3] += __uint_as_float(a.x) * x[j].v.x + __uint_as_float(a.y) * x[j].v.y + __uint_as_float(a.z) * x[j].v.z + __uint_as_float(a.w) * x[j].v.w;
#else
                    if (j & 1) mma(e, a, x[j].b0, x[j].b1);
                    else mma(d, a, x[j].b0, x[j].b1);
#endif
                }
                base += count;
#if AMK_F32
                float y = (d[0] + d[1]) + (d[2] + d[3]);
                y += __shfl_xor_sync(~0u, y, 1), y += __shfl_xor_sync(~0u, y, 2);
#else
                float y = (d[0] + e[0]) + (d[3] + e[3]);
#endif
                if ((w.lane & 3) == 0) {
                    float* to = w.partial() + w.warp * PARTIAL_PITCH + u * AMK_UNIT + (w.lane >> 2);
                    *to = pass ? *to + y : y;
                }
            }
        }
        if (first + units == r.units) {
            while (base > CHUNK_TILES) w.release(), w.acquire(), base -= CHUNK_TILES;
            w.release();
        }
        if (g.flags & GEMV_NORM) {
            float total = squares;
#pragma unroll
            for (int m = 1; m < (AMK_F32 ? 4 : 8); m *= 2) total += __shfl_xor_sync(~0u, total, m);
            if (w.lane == 0) w.s.squares[w.buffer][w.warp] = total;
        }
        w.stamp(2);
        w.sync();
        gemv_output(w, r, g, first, units);
        w.buffer ^= 1;
    }
}
