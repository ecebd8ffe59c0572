// A decode step as a chain of kernels, each launched while the one before it runs (programmatic
// dependent launch): it fetches what no kernel of the step writes (weights, cached keys and
// values), then waits, then reads activations. bf16 weights, f32 sums, batch 1.
//
// Every thread of every kernel waits before it reads an activation or writes anything: so when a
// kernel is complete, all before it are. Activations are read around L1, which may hold the lines
// of an earlier kernel.
//
// Defined by who compiles it: DIM (elements of a head), GROUP (query heads a key head), WARPS and
// DEPTH (of a projection, and the pairs of 16 bytes in flight a thread), AHEAD (pairs fetched into
// L2 besides), CACHE_DEPTH (as DEPTH, of attention).
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define DEVICE __device__ __forceinline__
#define THREADS (WARPS * 32)
#define CACHE_WARPS 8
#define CACHE_THREADS (CACHE_WARPS * 32)
#define LANES (DIM / 8)
#define OUTSIDE -3e38f // the score of no position, below every largest one

DEVICE void launch_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Copies 16 bytes to shared memory, zeros if not `inside`.
DEVICE void copy16(uint4* to, const uint4* from, bool inside) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
DEVICE void prefetch(const uint4* from, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float wide(u16 x) { return __uint_as_float((u32)x << 16); }
DEVICE u16 narrow(float x) {
    const u32 bits = __float_as_uint(x);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
DEVICE u32 narrow2(float x, float y) { return narrow(x) | (u32)narrow(y) << 16; }
DEVICE void widen(float* out, uint4 in) {
    out[0] = low(in.x), out[1] = high(in.x), out[2] = low(in.y), out[3] = high(in.y);
    out[4] = low(in.z), out[5] = high(in.z), out[6] = low(in.w), out[7] = high(in.w);
}
DEVICE float warp_sum(float x) {
    for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
    return x;
}

// What a pair of rows becomes.
enum Epilogue { STORE, RESIDUAL, GATE, LOGITS };

struct Gemv {
    const uint4* weight; // bf16 [2 * pairs, 8 * pieces]
    const uint4* in;     // [8 * pieces], f32 with a norm, else bf16
    const uint4* norm;   // bf16 [8 * pieces] of the RMS norm of the input, or null
    const u32* bias;     // bf16 [2 * pairs], or null
    void* out; // STORE, LOGITS: f32 [2 * pairs]; RESIDUAL: as they, added to; GATE: bf16 [pairs]
    u64* best; // LOGITS: the largest, as `best_key`
    u32 pairs, pieces;
    u32 slices, steps; // warps that share a row, and the pieces of each lane of them
    u32 epilogue;
    float eps;
};

// Ordered as logits are, the lower row first among equals.
DEVICE u64 best_key(float logit, u32 row) {
    const u32 bits = __float_as_uint(logit);
    return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | ~row;
}

// The pieces of weights that a lane reads, in order: a piece of both rows of a pair at a time. Rows
// i and pairs + i are a pair of GATE.
struct Weights {
    const Gemv& g;
    u32 from, pair, step;

    DEVICE bool inside() const { return pair < g.pairs && from + step * 32 < g.pieces; }
    DEVICE const uint4* row(u32 half) const {
        const u64 index = g.epilogue == GATE ? pair + (u64)half * g.pairs : 2 * (u64)pair + half;
        return inside() ? g.weight + index * g.pieces + from + step * 32 : g.weight;
    }
    DEVICE void next() {
        if (++step == g.steps) step = 0, pair += gridDim.x * (WARPS / g.slices);
    }
    DEVICE void fetch(uint4* slot) {
        copy16(slot, row(0), inside()), copy16(slot + THREADS, row(1), inside());
        commit_copies();
        next();
    }
};

// The input times the weight of its norm to shared memory, where that weight is, and the sum of the
// input's squares.
DEVICE float load_input(const Gemv& g, uint4* x) {
    float squares = 0;
    for (u32 i = threadIdx.x; i < g.pieces; i += THREADS) {
        if (!g.norm) {
            x[i] = __ldcg(g.in + i);
            continue;
        }
        const uint4 a = __ldcg(g.in + 2 * i), b = __ldcg(g.in + 2 * i + 1);
        const u32 bits[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        float v[8], w[8];
        widen(w, x[i]);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] = __uint_as_float(bits[e]), squares += v[e] * v[e], v[e] *= w[e];
        x[i] = make_uint4(narrow2(v[0], v[1]), narrow2(v[2], v[3]), narrow2(v[4], v[5]),
                          narrow2(v[6], v[7]));
    }
    return warp_sum(squares);
}

DEVICE void multiply(float2& first, float2& second, uint4 a, uint4 b, uint4 x) {
    float p[8], q[8], v[8];
    widen(p, a), widen(q, b), widen(v, x);
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
        first.x += p[e] * v[e], first.y += p[e + 1] * v[e + 1];
        second.x += q[e] * v[e], second.y += q[e + 1] * v[e + 1];
    }
}

DEVICE void finish(const Gemv& g, u32 pair, float2 sum, u64& best) {
    if (g.bias) sum.x += low(g.bias[pair]), sum.y += high(g.bias[pair]);
    if (g.epilogue == GATE) {
        ((u16*)g.out)[pair] = narrow(sum.x / (1 + __expf(-sum.x)) * sum.y);
        return;
    }
    ((float2*)g.out)[pair] = sum;
    if (g.epilogue == LOGITS)
        best = max(best, max(best_key(sum.x, 2 * pair), best_key(sum.y, 2 * pair + 1)));
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) gemv(const __grid_constant__ Gemv g) {
    extern __shared__ uint4
        shared[]; // DEPTH pairs of each thread, then the input as bf16 [slices * steps * 32 * 8]
    __shared__ float squares[WARPS];
    __shared__ float2 sums[2][WARPS];
    __shared__ u64 top;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % g.slices,
              first = gridDim.x * (warp / g.slices);
    uint4 *ring = shared + threadIdx.x, *x = shared + DEPTH * 2 * THREADS;
    Weights w = {g, slice * g.steps * 32 + lane, blockIdx.x + first, 0};
    launch_next();
    for (int i = 0; i < DEPTH; i++) w.fetch(ring + i * 2 * THREADS);
    Weights later = w;
    for (int i = 0; i < AHEAD; i++, later.next()) {
        const u32 piece = later.from + later.step * 32;
        if (lane || !later.inside()) continue;
        for (u32 half = 0; half < 2; half++)
            prefetch(later.row(half), min(32u, g.pieces - piece) * 16);
    }
    for (u32 i = threadIdx.x; i < g.slices * g.steps * 32; i += THREADS) {
        x[i] = g.norm && i < g.pieces ? g.norm[i] : make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) top = 0;

    wait_previous();
    const float square = load_input(g, x);
    if (lane == 0) squares[warp] = square;
    __syncthreads();
    const float mean = warp_sum(lane < WARPS ? squares[lane] : 0) / (8 * g.pieces);
    const float scale = g.norm ? rsqrtf(mean + g.eps) : 1;
    u64 best = 0;
    u32 slot = 0, round = 0;
    for (u32 base = blockIdx.x; base < g.pairs;
         base += gridDim.x * (WARPS / g.slices), round ^= 1) {
        const u32 pair = base + first;
        const bool ends = lane == 0 && slice == 0 && pair < g.pairs;
        float2 before = make_float2(0, 0), a = before, b = before;
        if (ends && g.epilogue == RESIDUAL) before = __ldcg((const float2*)g.out + pair);
        for (u32 step = 0; step < g.steps; step++) {
            wait_copies<DEPTH - 1>();
            uint4* at = ring + slot * 2 * THREADS;
            multiply(a, b, at[0], at[THREADS], x[w.from + step * 32]);
            w.fetch(at);
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
        }
        float2 sum = make_float2(warp_sum(a.x + a.y), warp_sum(b.x + b.y));
        if (g.slices > 1) {
            if (lane == 0) sums[round][warp] = sum;
            __syncthreads();
            for (u32 i = 1; ends && i < g.slices; i++)
                sum.x += sums[round][warp + i].x, sum.y += sums[round][warp + i].y;
        }
        if (ends)
            finish(g, pair, make_float2(before.x + scale * sum.x, before.y + scale * sum.y), best);
    }
    if (g.epilogue != LOGITS) return;
    if (lane == 0) atomicMax(&top, best);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(g.best, top);
}

struct Embed {
    const u16* table;       // bf16 [.., hidden]
    const long long* token; // [1]
    float* x;               // [hidden]
    u64* best;              // of the step's logits, cleared
    u32 hidden;
};

extern "C" __global__ void embed(const __grid_constant__ Embed p) {
    launch_next();
    wait_previous();
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) *p.best = 0;
    if (i < p.hidden) p.x[i] = wide(p.table[*p.token * p.hidden + i]);
}

// Norm, rotary embedding and append of the new key, and attention over a part of the cache: a block
// of [splits, key heads]. The last block of a key head to be ready puts the parts together.
struct Attention {
    const float* qkv;                 // [(GROUP + 2) * key heads, DIM]
    uint4 *keys, *values;             // bf16 [key heads, context, DIM]
    const u16 *cosine, *sine;         // bf16 [context, DIM]
    const u16 *query_norm, *key_norm; // bf16 [DIM], or null
    const long long* position;        // [1]
    u16* out;                         // bf16 [GROUP * key heads, DIM]
    float* parts;                     // [key heads, splits, GROUP, DIM + 2]
    u32* arrived;                     // [key heads], 0 between kernels
    u32 context;
    float eps;
};

// Softmax of a stream of positions so far: of each query head the largest score (of base 2), the
// sum of weights, the weighted values.
struct Softmax {
    float top[GROUP], total[GROUP], sum[GROUP][8];

    DEVICE void add(const float (&query)[GROUP][8], const float (&key)[8], const float (&value)[8],
                    bool inside) {
        float score[GROUP];
        bool grows = false;
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
            score[h] = 0;
#pragma unroll
            for (int e = 0; e < 8; e++) score[h] += query[h][e] * key[e];
#pragma unroll
            for (int apart = LANES / 2; apart; apart /= 2)
                score[h] += __shfl_xor_sync(~0u, score[h], apart);
            if (!inside) score[h] = OUTSIDE;
            grows |= score[h] > top[h];
        }
        if (grows) rescale(score);
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
            const float p = exp2f(score[h] - top[h]);
            total[h] += p;
#pragma unroll
            for (int e = 0; e < 8; e++) sum[h][e] += p * value[e];
        }
    }
    DEVICE void rescale(const float (&score)[GROUP]) {
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
            const float larger = fmaxf(top[h], score[h]), by = exp2f(top[h] - larger);
            top[h] = larger, total[h] *= by;
#pragma unroll
            for (int e = 0; e < 8; e++) sum[h][e] *= by;
        }
    }
    // With the warp's other positions, then to `part` [GROUP, DIM + 2].
    DEVICE void store(float* part, u32 lane) {
#pragma unroll
        for (int apart = LANES; apart < 32; apart *= 2) {
            float theirs[GROUP];
            for (int h = 0; h < GROUP; h++) theirs[h] = __shfl_xor_sync(~0u, top[h], apart);
            rescale(theirs);
            for (int h = 0; h < GROUP; h++) {
                total[h] += __shfl_xor_sync(~0u, total[h], apart);
                for (int e = 0; e < 8; e++) sum[h][e] += __shfl_xor_sync(~0u, sum[h][e], apart);
            }
        }
#pragma unroll
        for (int h = 0; h < GROUP; h++, part += DIM + 2) {
            if (lane == 0) part[DIM] = top[h], part[DIM + 1] = total[h];
            for (int e = 0; e < 8 && lane < LANES; e++) part[lane * 8 + e] = sum[h][e];
        }
    }
};

struct Merged {
    float top, total, sum;
};

// Element `d` of head `h` of `count` parts [GROUP, DIM + 2], in their order; in shared or, from
// other blocks, in global memory.
template <bool GLOBAL> DEVICE Merged merge(const float* parts, u32 count, u32 h, u32 d) {
    Merged all = {-1e30f, 0, 0};
    for (u32 base = 0; base < count; base += 16) {
        float top[16], total[16], sum[16], larger = all.top;
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            const float* part = parts + ((u64)(base + i) * GROUP + h) * (DIM + 2);
            const bool inside = base + i < count;
            auto read = [&](u32 at, float outside) {
                return !inside ? outside : GLOBAL ? __ldcg(part + at) : part[at];
            };
            top[i] = read(DIM, OUTSIDE), total[i] = read(DIM + 1, 0), sum[i] = read(d, 0);
        }
        for (int i = 0; i < 16; i++) larger = fmaxf(larger, top[i]);
        const float by = exp2f(all.top - larger);
        all.top = larger, all.total *= by, all.sum *= by;
        for (int i = 0; i < 16; i++) {
            const float p = exp2f(top[i] - larger);
            all.total += p * total[i], all.sum += p * sum[i];
        }
    }
    return all;
}

// The new rows in shared memory: the queries times the factor of the scores, and the key; normed
// and rotated, a row a warp.
DEVICE void rotate(const Attention& p, const float* queries, const float* key, float (*rows)[DIM],
                   u64 position, u32 lane, u32 warp) {
    for (u32 row = warp; row <= GROUP; row += CACHE_WARPS) {
        const float* in = row < GROUP ? queries + row * DIM : key;
        const u16* norm = row < GROUP ? p.query_norm : p.key_norm;
        float square = 0, scale = row < GROUP ? rsqrtf((float)DIM) * 1.44269504f : 1;
        float2 x[DIM / 64];
        for (u32 i = 0; i < DIM / 64; i++) {
            const u32 d = lane + i * 32;
            x[i] = make_float2(__ldcg(in + d), __ldcg(in + d + DIM / 2));
            square += x[i].x * x[i].x + x[i].y * x[i].y;
            if (norm) x[i].x *= wide(norm[d]), x[i].y *= wide(norm[d + DIM / 2]);
        }
        if (norm) scale *= rsqrtf(warp_sum(square) / DIM + p.eps);
        for (u32 i = 0; i < DIM / 64; i++) {
            const u32 d = lane + i * 32;
            const float c = wide(p.cosine[position * DIM + d]),
                        s = wide(p.sine[position * DIM + d]);
            rows[row][d] = scale * (x[i].x * c - x[i].y * s),
            rows[row][d + DIM / 2] = scale * (x[i].y * c + x[i].x * s);
        }
    }
}

extern "C" __global__ void __launch_bounds__(CACHE_THREADS, 1)
    attention(const __grid_constant__ Attention p) {
    extern __shared__ uint4
        shared[]; // CACHE_DEPTH pairs of each thread, then [CACHE_WARPS, GROUP, DIM + 2]
    __shared__ float rows[GROUP + 1][DIM];
    __shared__ u32 before;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, piece = lane % LANES,
              head = blockIdx.y;
    const u32 splits = gridDim.x, position = (u32)*p.position,
              part = (position + splits - 1) / splits;
    const u32 from = min(position, blockIdx.x * part), to = min(position, from + part),
              streams = CACHE_THREADS / LANES;
    const u64 cache = (u64)head * p.context * LANES + piece;
    uint4* ring = shared + threadIdx.x;
    u32 next = from + threadIdx.x / LANES;
    auto fetch = [&](uint4* slot) {
        const u64 at = cache + (next < to ? next : 0) * LANES;
        copy16(slot, p.keys + at, next < to),
            copy16(slot + CACHE_THREADS, p.values + at, next < to);
        commit_copies();
        next += streams;
    };
    launch_next();
    for (int i = 0; i < CACHE_DEPTH; i++) fetch(ring + i * 2 * CACHE_THREADS);

    wait_previous();
    const float *queries = p.qkv + head * GROUP * DIM,
                *key = p.qkv + (GROUP * gridDim.y + head) * DIM, *value = key + gridDim.y * DIM;
    rotate(p, queries, key, rows, position, lane, warp);
    __syncthreads();
    float query[GROUP][8], k[8], v[8];
    Softmax softmax;
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        softmax.top[h] = -1e30f, softmax.total[h] = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) query[h][e] = rows[h][piece * 8 + e], softmax.sum[h][e] = 0;
    }
    u32 slot = 0;
    for (u32 base = from; base < to; base += streams) {
        wait_copies<CACHE_DEPTH - 1>();
        uint4* at = ring + slot * 2 * CACHE_THREADS;
        widen(k, at[0]), widen(v, at[CACHE_THREADS]);
        softmax.add(query, k, v, base + threadIdx.x / LANES < to);
        fetch(at);
        slot = slot + 1 == CACHE_DEPTH ? 0 : slot + 1;
    }
    if (blockIdx.x == splits - 1 && warp == 0) {
        for (int e = 0; e < 8; e++)
            k[e] = rows[GROUP][piece * 8 + e], v[e] = __ldcg(value + piece * 8 + e);
        softmax.add(query, k, v, lane < LANES);
        if (lane < LANES) {
            const u64 at = cache + (u64)position * LANES;
            p.keys[at] = make_uint4(narrow2(k[0], k[1]), narrow2(k[2], k[3]), narrow2(k[4], k[5]),
                                    narrow2(k[6], k[7]));
            p.values[at] = make_uint4(narrow2(v[0], v[1]), narrow2(v[2], v[3]), narrow2(v[4], v[5]),
                                      narrow2(v[6], v[7]));
        }
    }
    wait_copies<0>();
    __syncthreads();
    float* merged = (float*)shared;
    softmax.store(merged + warp * GROUP * (DIM + 2), lane);
    __syncthreads();

    float* mine = p.parts + (u64)head * splits * GROUP * (DIM + 2);
    for (u32 i = threadIdx.x; i < GROUP * DIM; i += CACHE_THREADS) {
        const u32 h = i / DIM, d = i % DIM;
        const Merged all = merge<false>(merged, CACHE_WARPS, h, d);
        if (splits == 1) {
            p.out[head * GROUP * DIM + i] = narrow(all.sum / all.total);
            continue;
        }
        float* own = mine + ((u64)blockIdx.x * GROUP + h) * (DIM + 2);
        own[d] = all.sum;
        if (d == 0) own[DIM] = all.top, own[DIM + 1] = all.total;
    }
    if (splits == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) before = atomicInc(p.arrived + head, splits - 1);
    __syncthreads();
    if (before != splits - 1) return;
    __threadfence();
    for (u32 i = threadIdx.x; i < GROUP * DIM; i += CACHE_THREADS) {
        const Merged all = merge<true>(mine, splits, i / DIM, i % DIM);
        p.out[head * GROUP * DIM + i] = narrow(all.sum / all.total);
    }
}
