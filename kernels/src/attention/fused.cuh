// Attention of one kv head's query group over one split of the KV cache, with q/k-norm, rotary
// embedding and the append of the new key and value. Splits take runs of blocks in turn, so a block
// has one permanent owner. The worker that appends to a block also reads it, and the loader may
// prefetch it as soon as the previous step has appended to it.
//
// The cache of a (layer, kv head) is a list of blocks of 64 positions. A block has four groups of
// 16 positions. A group has the A fragments of K (16 positions x 16 dims per tile), followed by the
// A fragments of V transposed (16 dims x 16 positions per tile).
#pragma once
#include "../../../amk/cuda/device/loader.cuh"
#include "cache.cuh"
#include "turns.cuh"

constexpr int QUERY_PITCH = AMK_HEAD_DIM + QUERY_GAP; // between the queries of two heads

// Norms a head's vector. Pairs that a lane does not have are 0.
template <class A>
AMK_DEVICE void norm_head(const Worker& w, const u16 (&gamma)[A::PER_LANE][2],
                          float2 (&x)[A::PER_LANE]) {
    constexpr int N = A::PER_LANE;
    float squares = 0;
#pragma unroll
    for (int j = 0; j < N; j++) squares += x[j].x * x[j].x + x[j].y * x[j].y;
#pragma unroll
    for (int m = 16; m; m /= 2) squares += __shfl_xor_sync(~0u, squares, m);
    float scale = rsqrtf(squares * (1.0f / A::HEAD_DIM) + w.p.eps);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j].x *= scale * bf16_low(gamma[j][0]), x[j].y *= scale * bf16_low(gamma[j][1]);
}
// The cosines and sines of a lane's pairs, and the rotation by them, if there is one.
template <class A> struct Rotation {
    static constexpr int N = A::PER_LANE;
    // Whether a lane has the partner of each element, or the one half a warp away has it.
    static constexpr bool WHOLE = A::TURNED == A::HEAD_DIM && A::PAIRS % 32 == 0;
    static constexpr u32 HALF = A::TURNED / 4; // pairs of half of the rotated elements
    static constexpr int TURNS = WHOLE ? (N + 1) / 2 : N;
    static_assert(A::TURNED == 0 || WHOLE || N <= 2, "a partner is looked for in two pairs");
    float2 turn[2 * TURNS];

    AMK_DEVICE Rotation(const Worker& w, const float2* turns) {
        if constexpr (A::TURNED > 0)
#pragma unroll
            for (int j = 0; j < TURNS; j++) {
                const u32 pair = w.lane + 32 * j, of = WHOLE ? (N == 1 ? w.lane & 15 : pair)
                                                       : pair < 2 * HALF ? pair % HALF
                                                                         : 0;
                turn[2 * j] = turns[2 * of], turn[2 * j + 1] = turns[2 * of + 1];
            }
    }
    AMK_DEVICE void rotate(const Worker& w, float2 (&x)[N]) const {
        if constexpr (A::TURNED == 0) {
        } else if constexpr (!WHOLE) { // the partner dim is in any lane
            float2 y[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                const u32 pair = w.lane + 32 * j, other = pair < HALF ? pair + HALF : pair - HALF;
                const float2 low = shuffle(x[0], other), high = shuffle(x[N - 1], other),
                             with = other & 32 ? high : low, a = turn[2 * j], b = turn[2 * j + 1];
                const float sign = pair < HALF ? -1.0f : 1.0f;
                y[j] = x[j];
                if (pair < 2 * HALF)
                    y[j] = make_float2(x[j].x * a.x + sign * with.x * a.y,
                                       x[j].y * b.x + sign * with.y * b.y);
            }
#pragma unroll
            for (int j = 0; j < N; j++) x[j] = y[j];
        } else if constexpr (N == 1) { // half a warp away
            const float2 other = make_float2(__shfl_xor_sync(~0u, x[0].x, 16),
                                             __shfl_xor_sync(~0u, x[0].y, 16)),
                         a = turn[0], b = turn[1];
            float sign = w.lane < 16 ? -1.0f : 1.0f;
            x[0].x = x[0].x * a.x + sign * other.x * a.y,
            x[0].y = x[0].y * b.x + sign * other.y * b.y;
        } else {
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                const float2 a = turn[2 * j], b = turn[2 * j + 1], lo = x[j], hi = x[j + N / 2];
                x[j] = make_float2(lo.x * a.x - hi.x * a.y, lo.y * b.x - hi.y * b.y);
                x[j + N / 2] = make_float2(hi.x * a.x + lo.x * a.y, hi.y * b.x + lo.y * b.y);
            }
        }
    }
    AMK_DEVICE static float2 shuffle(float2 x, u32 lane) {
        return make_float2(__shfl_sync(~0u, x.x, lane), __shfl_sync(~0u, x.y, lane));
    }
};

// The vector of one row, requested at the start of the task.
template <class A> struct HeadVector {
    static constexpr int N = A::PER_LANE;
    u32 in;
    uint2 v[N];
    u16 gamma[N][2]; // the norm's weights as loaded: converting them waits for the loads

    AMK_DEVICE void issue(const Worker& w, u32 from, bool norm, u32 weight) {
        in = from + w.lane;
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = load_relaxed_one(w.p.packets + in + A::apart(w.lane, j));
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                gamma[j][i] =
                    norm ? w.p.constants[weight + 2 * A::apart(w.lane, j) + 2 * w.lane + i] : 0;
    }
    // Waits for the vector, and norms and rotates it.
    AMK_DEVICE void arrive(Worker& w, bool norm, bool rotate, float2 (&x)[N]) {
        const Rotation<A> rotation(w, w.s.rope + A::FIRST_TURN);
#pragma unroll
        for (int j = 0; j < N; j++) {
            while (any(v[j].y != w.epoch && w.missing(in + A::apart(w.lane, j), v[j].y)))
                v[j] = load_relaxed_one(w.p.packets + in + A::apart(w.lane, j));
            x[j] = make_float2(bf16_low(v[j].x), bf16_high(v[j].x));
            if (!A::has(w.lane, j)) x[j] = make_float2(0, 0);
        }
        if (any(norm)) norm_head<A>(w, gamma, x);
        if (any(rotate)) rotation.rotate(w, x);
    }
};

// Offsets in a block of the pair of K dims (d, d+1) and of V dim d at position `at`.
template <class A> AMK_DEVICE u32 key_offset(u32 at, u32 d) {
    u32 r = at % 16, c = d % 16;
    return at / 16 * A::GROUP_BYTES + d / 16 * CACHE_TILE +
           cache_offset(((r % 8) * 4 + c / 4) * 16) + cache_offset((r / 8 + (c % 4) / 2 * 2) * 4);
}
template <class A> AMK_DEVICE u32 value_offset(u32 at, u32 d) {
    u32 r = at % 16,
        c = d %
            16; // dims 2i and 2i + 1 are rows i and i + 8 of the fragment, so that a lane has both
    return at / 16 * A::GROUP_BYTES + A::GROUP_BYTES / 2 + d / 16 * CACHE_TILE +
           cache_offset((c / 2 * 4 + r % 8 / 2) * 16) + cache_offset((c % 2 + r / 8 * 2) * 4) +
           cache_offset(r % 2 * 2);
}

// The step's own group as it is kept: only position 0 is not 0, whose words few lanes have. Compact
// groups have these lanes' parts of each tile, and a part of zeros for all others.
template <class A> struct OwnGroup {
    static constexpr u32 KEYS = A::COMPACT ? 4 * CACHE_LANE : CACHE_TILE,
                         VALUES = A::COMPACT ? 8 * CACHE_LANE : CACHE_TILE,
                         ZEROS = A::TILES * (KEYS + VALUES); // bytes of a tile; of all tiles

    // Offsets of the pair of K dims (d, d+1) and of V dim d.
    AMK_DEVICE static u32 key(u32 d) {
        return A::COMPACT ? d / 16 * KEYS + key_offset<A>(0, d % 16) : key_offset<A>(0, d);
    }
    AMK_DEVICE static u32 value(u32 d) {
        const u32 c = d % 16;
        return A::COMPACT ? A::TILES * KEYS + d / 16 * VALUES + cache_offset(c / 2 * 16) +
                                cache_offset(c % 2 * 4)
                          : value_offset<A>(0, d);
    }
};

// Shared addresses of a lane's parts of the tiles of a group.
template <class A> struct GroupTiles {
    u32 keys, values, of_key, of_value; // of the first tiles; bytes to the next

    AMK_DEVICE GroupTiles(const Worker& w, u32 group) {
        keys = group + w.lane * CACHE_LANE, of_key = CACHE_TILE;
        values = keys + A::GROUP_BYTES / 2, of_value = CACHE_TILE;
        if constexpr (A::COMPACT) {
            using O = OwnGroup<A>;
            const u32 own = shared_address(w.s.fresh);
            if (group == own) {
                keys = own + (w.lane < 4 ? w.lane * CACHE_LANE : O::ZEROS),
                of_key = w.lane < 4 ? O::KEYS : 0;
                const bool has = w.lane % 4 == 0;
                values = own + (has ? A::TILES * O::KEYS + w.lane / 4 * CACHE_LANE : O::ZEROS),
                of_value = has ? O::VALUES : 0;
            }
        }
        if (A::TEAM > 1) values += w.warp % A::TEAM * A::OUT_TILES * of_value;
    }
    AMK_DEVICE uint4 key(u32 j) const {
        return load_shared_tile(keys + j * (A::COMPACT ? of_key : CACHE_TILE));
    }
    AMK_DEVICE uint4 value(u32 j) const {
        return load_shared_tile(values + j * (A::COMPACT ? of_value : CACHE_TILE));
    }
};

// A score times LOG2_E, of an inner product.
template <class A> AMK_DEVICE float score(const Worker& w, float product) {
    if constexpr (A::CAP == 0) return product * (LOG2_E * w.p.score_scale);
    const float cap = __uint_as_float(A::CAP);
    // tanh(x) = 1 - 2 / (exp(2 x) + 1)
    const float power = exp2_fast(product * (2 * LOG2_E * w.p.score_scale / cap));
    return LOG2_E * cap * (1 - __fdividef(2.0f, power + 1));
}

// Online softmax state of a warp: two heads per lane.
template <class A> struct Flash {
    float o[A::OUT_TILES][4], sum[4]; // sum: as if V had a column of ones
    float max0, max1;

    AMK_DEVICE void clear() {
#pragma unroll
        for (int j = 0; j < A::OUT_TILES; j++) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;
        max0 = max1 = -1e30f, sum[0] = sum[1] = sum[2] = sum[3] = 0;
    }
    // Whether a position is before a head's limit and in the window that ends with `end`.
    AMK_DEVICE static bool has(u32 position, u32 limit, u32 end) {
        return position < limit && (A::WINDOW == 0 || position + A::WINDOW >= end);
    }
    // Adds a group of 16 positions from `first`, of which those below a head's limit count, with
    // products `c` of keys and queries and tiles of values. `had`: there was a group before.
    // `end`: one past the position of a head's query.
    template <class V>
    AMK_DEVICE void add(const Worker& w, bool had, const float (&c)[4], u32 first, uint2 limit,
                        uint2 end, V value) {
        const float none = __uint_as_float(0xff800000u);
        const u32 low = first + (w.lane >> 2), high = low + 8;
        float s0 = has(low, limit.x, end.x) ? score<A>(w, c[0]) : none,
              s1 = has(low, limit.y, end.y) ? score<A>(w, c[1]) : none,
              s2 = has(high, limit.x, end.x) ? score<A>(w, c[2]) : none,
              s3 = has(high, limit.y, end.y) ? score<A>(w, c[3]) : none;
        float m0 = fmaxf(s0, s2), m1 = fmaxf(s1, s3);
#pragma unroll
        for (int m = 4; m <= 16; m *= 2)
            m0 = fmaxf(m0, __shfl_xor_sync(~0u, m0, m)),
            m1 = fmaxf(m1, __shfl_xor_sync(~0u, m1, m));
        m0 = fmaxf(m0, max0), m1 = fmaxf(m1, max1);
        if (any(had)) {
            const float a0 = exp2_fast(max0 - m0), a1 = exp2_fast(max1 - m1);
            sum[0] *= a0, sum[1] *= a1;
#pragma unroll
            for (int j = 0; j < A::OUT_TILES; j++)
                o[j][0] *= a0, o[j][1] *= a1, o[j][2] *= a0, o[j][3] *= a1;
        }
        max0 = m0, max1 = m1;
        const float p0 = exp2_fast(s0 - m0), p1 = exp2_fast(s1 - m1), p2 = exp2_fast(s2 - m0),
                    p3 = exp2_fast(s3 - m1);
        const u32 b0 = transpose_8x8(pack_bf16(p0, p1)), b1 = transpose_8x8(pack_bf16(p2, p3));
        mma(sum, make_uint4(BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES), b0, b1);
#pragma unroll
        for (int j = 0; j < A::OUT_TILES; j++) mma(o[j], value(j), b0, b1);
    }
};

constexpr int AT_ONCE = 4; // tiles loaded before the first is multiplied

// The first keys of a group, loaded into registers before the query arrives. None if registers are
// short: the code of a second kind takes some, too.
template <class A> struct Keys {
#if __CUDA_ARCH_FEAT_SM90_ALL
    static constexpr int EARLY = A::TEAM > 1 || AMK_KINDS > 1 ? 0
                                 : A::TILES < AT_ONCE         ? A::TILES
                                                              : AT_ONCE;
#else
    static constexpr int EARLY = 0;
#endif
    uint4 tile[AT_ONCE];

    AMK_DEVICE void load(const Worker& w, u32 group) {
        const GroupTiles<A> tiles(w, group);
#pragma unroll
        for (int j = 0; j < EARLY; j++) tile[j] = tiles.key(j);
    }
};

// Processes the group of 16 positions from `first`, of which positions below `limit` count. `had`
// means that this warp has processed a group before. `group` is the shared address.
template <class A>
AMK_DEVICE void flash(Worker& w, Flash<A>& f, bool had, const Keys<A>& early, u32 first, u32 limit,
                      u32 group) {
    // Columns past the last head repeat it: broadcasting the same words costs nothing. Reloaded for
    // each group because registers are short.
    const u32 query =
        shared_address(w.s.query + min(w.lane >> 2, A::GROUP - 1) * QUERY_PITCH + 4 * (w.lane & 3));
    const GroupTiles<A> tiles(w, group);
    float c[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0}; // two chains, if there are many products
    constexpr bool LONG = A::TILES > AT_ONCE;
#pragma unroll
    for (int from = 0; from < A::TILES; from += AT_ONCE) {
        uint2 q[AT_ONCE];
        uint4 key[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (from + j < A::TILES)
                key[j] = from < early.EARLY ? early.tile[j] : tiles.key(from + j),
                q[j] = load_shared_two(query + 32 * (from + j));
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (from + j < A::TILES) mma(LONG && j & 1 ? e : c, key[j], q[j].x, q[j].y);
    }
#pragma unroll
    for (int i = 0; LONG && i < 4; i++) c[i] += e[i];
    uint4 v[AT_ONCE]; // loaded while the maxima are found
#pragma unroll
    for (int j = 0; j < AT_ONCE && j < A::OUT_TILES; j++) v[j] = tiles.value(j);
    const u32 end = w.pos() + 1;
    f.add(w, had, c, first, make_uint2(limit, limit), make_uint2(end, end),
          [&](int j) { return j < AT_ONCE ? v[j] : tiles.value(j); });
}

// Warps that stage the new key and value: the first warps have the query's heads, and the last ones
// deliver the previous task.
constexpr u32 KEY_WARP = AMK_WARPS - 4, VALUE_WARP = KEY_WARP + 1;
AMK_DEVICE bool appends(const Worker& w, bool owns) {
    return any(owns && (w.warp == KEY_WARP || w.warp == VALUE_WARP));
}

// Stages q and, if this split owns the position, k and v in shared memory. A warp stages one
// vector.
template <class A> struct Stage {
    const bool query, key, due; // due: this warp has a vector
    HeadVector<A> vector;

    AMK_DEVICE Stage(const Worker& w, const Record& r, bool owns)
        : query(w.warp < A::GROUP), key(w.warp == KEY_WARP), due(any(query) || appends(w, owns)) {
        constexpr int PER_HEAD = A::HEAD_DIM / AMK_PER_PACKET;
        const u32 head = query ? r.row * A::GROUP + w.warp
                               : A::key_head(r.row) + (w.warp - KEY_WARP) * A::to_value();
        if (due)
            vector.issue(w, r.input + head * PER_HEAD, A::NORM && (query || key),
                         key ? r.bias : r.norm);
    }
    AMK_DEVICE void store(Worker& w) {
        if (!due) return;
        float2 x[A::PER_LANE];
        vector.arrive(w, A::NORM && (query || key), query || key, x);
#pragma unroll
        for (int j = 0; j < A::PER_LANE; j++) {
            if (!A::has(w.lane, j)) continue;
            const u32 d = 64 * j + 2 * w.lane, pair = pack_staged(query, x[j].x, x[j].y);
            if (query)
                *(u32*)(w.s.query + w.warp * QUERY_PITCH + d) = pair;
            else if (key)
                *(CachePair*)(w.s.fresh + OwnGroup<A>::key(d)) = (CachePair)pair;
            else
                *(CacheElem*)(w.s.fresh + OwnGroup<A>::value(d)) = low_element(pair),
                                          *(CacheElem*)(w.s.fresh + OwnGroup<A>::value(d + 1)) =
                                              high_element(pair);
        }
    }
};

// Appends the new key and value to the cache, by the warps that staged them. The loader reads them
// in the next step.
template <class A> AMK_DEVICE void attention_append(const Worker& w, const Record& r) {
    u8* block = w.p.kv + A::block(w.p, r.layer, r.row, w.pos() / 64);
    const u32 at = w.pos() % 64;
#pragma unroll
    for (int j = 0; j < A::PER_LANE; j++) {
        if (!A::has(w.lane, j)) continue;
        const u32 d = 64 * j + 2 * w.lane;
        if (w.warp == KEY_WARP)
            *(CachePair*)(block + key_offset<A>(at, d)) =
                *(const CachePair*)(w.s.fresh + OwnGroup<A>::key(d));
        else
#pragma unroll
            for (u32 i = d; i < d + 2; i++)
                *(CacheElem*)(block + value_offset<A>(at, i)) =
                    *(const CacheElem*)(w.s.fresh + OwnGroup<A>::value(i));
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::
                     : "memory"); // makes the writes visible to bulk copies
#endif
    __syncwarp();
    __threadfence_block();
    if (w.lane == 0) atomicAdd(&w.s.appended, 1u);
}

// Sum of shares of an output, each with its maximum and sum: two dims per lane, relative to `top`.
struct Merged {
    float top, sum;
    float2 o;

    AMK_DEVICE Merged() : top(-1e30f), sum(0), o(make_float2(0, 0)) {}
    // What a result is multiplied by. All positions of a split may lie before a window.
    template <class A> AMK_DEVICE float scale() const {
        return A::WINDOW && sum == 0 ? 0 : __fdividef(1.0f, sum);
    }
    // Rescales to `highest`, which is at least `top`.
    AMK_DEVICE void raise(float highest) {
        const float by = exp2_fast(top - highest);
        top = highest, sum *= by, o.x *= by, o.y *= by;
    }
    // Adds a share whose maximum is at most `top`.
    AMK_DEVICE void join(float maximum, float its_sum, float2 its) {
        const float weight = exp2_fast(maximum - top);
        sum += weight * its_sum, o.x += weight * its.x, o.y += weight * its.y;
    }
};

// Sums the outputs of the first teams, at most MOST, and publishes: the result itself with one
// active split, else this split's share and its log-sum-exp.
template <class A, int MOST>
AMK_DEVICE void attention_output(Worker& w, const Record& r, bool whole) {
    constexpr u32 PER_HEAD = A::HEAD_DIM / AMK_PER_PACKET, ALL = A::GROUP * PER_HEAD;
    constexpr bool EVEN = ALL % 32 == 0; // a warp has outputs for all of its lanes, or for none
    for (u32 i = w.thread(); any(i < ALL); i += AMK_WARPS * 32) {
        const u32 at = EVEN ? i : min(i, ALL - 1), head = at / PER_HEAD, pair = at % PER_HEAD,
                  query = r.row * A::GROUP + head;
        Merged m;
        float2 share[MOST], its[MOST]; // maxima and sums; outputs
#pragma unroll
        for (int from = 0; from < MOST; from++) {
            share[from] = w.s.running[from][head],
            its[from] =
                *(const float2*)(w.s.scratch + (from * A::GROUP + head) * A::PITCH + 2 * pair);
            m.top = fmaxf(m.top, share[from].x);
        }
#pragma unroll
        for (int from = 0; from < MOST; from++)
            if (share[from].y > 0) m.join(share[from].x, share[from].y, its[from]);
        const float scale = m.scale<A>();
        if (!EVEN && i >= ALL) continue;
        if (whole)
            w.publish(r.output + query * PER_HEAD + pair, pack_bf16(m.o.x * scale, m.o.y * scale));
        else
            w.publish_wide(r.partial + (query * A::SPLITS + r.aux) * A::HEAD_DIM + 2 * pair,
                           __float_as_uint(m.o.x * scale), __float_as_uint(m.o.y * scale),
                           __float_as_uint(m.top + __log2f(m.sum)));
    }
}

// Stores a warp's output, maximum and sum for the other warps. A team without a group has a sum of
// 0 and no output.
template <class A> AMK_DEVICE void attention_share(Worker& w, const Flash<A>& f, bool had) {
    const u32 team = w.warp / A::TEAM, part = w.warp % A::TEAM;
    const u32 head = 2 * (w.lane & 3), d = 2 * (w.lane >> 2) + part * A::OUT_TILES * 16;
    if (w.lane < 4 && part == 0)
        w.s.running[team][head] = make_float2(f.max0, f.sum[0]),
        w.s.running[team][head + 1] = make_float2(f.max1, f.sum[1]);
    float* to = w.s.scratch + (team * A::GROUP + head) * A::PITCH + d;
#pragma unroll
    for (int j = 0; had && j < A::OUT_TILES; j++) {
        if (head < A::GROUP) *(float2*)(to + 16 * j) = make_float2(f.o[j][0], f.o[j][2]);
        if (head + 1 < A::GROUP)
            *(float2*)(to + A::PITCH + 16 * j) = make_float2(f.o[j][1], f.o[j][3]);
    }
}

template <class A> AMK_DEVICE void attention(Worker& w, const Record& r) {
    constexpr u32 FEW = A::WARPS < 4 ? A::WARPS : 4; // shorter code merges few outputs
    const u32 pos = w.pos(), active = A::active(pos);
    if (r.units == 0 || r.aux >= active) return;
    const bool owns = A::owner(pos, r.aux);
    Stage<A> stage(w, r, owns);
    Turns<A> turns(w, r.aux, pos, owns);
    const bool few = turns.last && turns.groups < FEW;
    Keys<A> keys;
    if (any(turns.first < pos)) keys.load(w, turns.group);
    stage.store(w);
    w.sync();
    w.stamp(TRACE_INPUTS);
    Flash<A> f;
    f.clear();
    turns.begin();
    bool had = false,
         loaded = turns.first < pos; // whether this warp had a group; whether its keys are loaded
#pragma unroll 1
    do { // a single call of `flash`, because it is long
        if (any(turns.first < turns.limit)) {
            if (!any(loaded)) keys.load(w, turns.group);
            flash<A>(w, f, had, keys, turns.first, turns.limit, turns.group);
            had = true;
        }
        loaded = false;
    } while (turns.next(w, pos, owns));
    if (w.warp / A::TEAM < A::WARPS) attention_share<A>(w, f, had);
    w.stamp(TRACE_PRODUCT);
    w.sync();
    w.stamp(TRACE_GATHERED);
    if (few)
        attention_output<A, FEW>(w, r, active == 1);
    else
        attention_output<A, A::WARPS>(w, r, active == 1);
    turns.release(w);
    w.sync();                                        // the next task reuses the scratch
    if (appends(w, owns)) attention_append<A>(w, r); // off the critical path
}

// Gathers the shares of a team's warps, at most MOST, in one poll. This warp is the first.
template <int MOST> AMK_DEVICE void gather_team(const Worker& w, u32 warps, Merged& m) {
    float2 share[MOST], its[MOST];
#pragma unroll
    for (u32 i = 0; i < MOST; i++) {
        const u32 from = w.warp + (i < warps ? i : 0);
        share[i] = w.s.running[from][0],
        its[i] = *(const float2*)(w.s.scratch + 32 * from + 2 * (w.lane & 15));
        m.top = fmaxf(m.top, share[i].x);
    }
    m.sum = 0, m.o = make_float2(0, 0);
#pragma unroll
    for (u32 i = 0; i < MOST; i++)
        if (i < warps) m.join(share[i].x, share[i].y, its[i]);
}

// Merges the splits of slices of 32 dims of query heads. Half a warp has one split, two dims per
// lane. A team of warps has one slice, LOOK splits per warp, so one poll of the packets is enough.
// With one active split, attention has already delivered the result.
template <class A> AMK_DEVICE void combine(Worker& w, const Record& r) {
    constexpr int BATCH = 4, LOOK = 2 * BATCH;
    const u32 active = A::active(w.pos()), half = w.lane >> 4;
    if (active == 1) return;
    u32 bits = 32 - __clz((active - 1) / LOOK); // a team has 1 << bits warps
    if ((AMK_WARPS >> bits) == 0) bits = 31 - __clz(AMK_WARPS);
    const u32 team = w.warp >> bits, rank = w.warp & ((1u << bits) - 1);
    if (bits) w.sync(); // the delivery of the previous task has read the scratch
#pragma unroll 1
    for (u32 done = 0; done < r.units; done += AMK_WARPS >> bits) {
        const u32 unit = done + team, slice = r.row + unit, query = slice / A::SLICES,
                  at = 2 * (w.lane & 15), d = slice % A::SLICES * 32 + A::within(slice, at, 1);
        const u32 values = r.partial + query * A::SPLITS * A::HEAD_DIM + d;
        Merged m;
#pragma unroll 1
        for (u32 first = rank * LOOK; any(first < active && unit < r.units);
             first += LOOK << bits) {
            uint4 v[BATCH];
            u32 late;
            do {
                late = 0;
#pragma unroll
                for (int i = 0; i < BATCH; i++)
                    v[i] = load_relaxed_wide(w.p.packets + values +
                                             min(first + 2 * i + half, active - 1) * A::HEAD_DIM);
#pragma unroll
                for (int i = 0; i < BATCH; i++) late |= v[i].w ^ w.epoch;
            } while (any(late && w.missing(values, w.epoch ^ late)));
            float lse[BATCH], highest = m.top;
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                lse[i] = first + 2 * i + half < active ? __uint_as_float(v[i].z) : -1e30f;
                highest = fmaxf(highest, lse[i]);
            }
            m.raise(highest);
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                m.join(lse[i], 1, make_float2(__uint_as_float(v[i].x), __uint_as_float(v[i].y)));
        }
        m.raise(fmaxf(m.top, __shfl_xor_sync(~0u, m.top, 16)));
        m.sum += __shfl_xor_sync(~0u, m.sum, 16), m.o.x += __shfl_xor_sync(~0u, m.o.x, 16),
            m.o.y += __shfl_xor_sync(~0u, m.o.y, 16);
        w.stamp(TRACE_INPUTS);
        if (bits) {
            if (w.lane == 0) w.s.running[w.warp][0] = make_float2(m.top, m.sum);
            if (w.lane < 16) *(float2*)(w.s.scratch + 32 * w.warp + 2 * w.lane) = m.o;
            w.stamp(TRACE_PRODUCT);
            w.sync();
            w.stamp(TRACE_GATHERED);
            if (rank == 0 && bits <= 2)
                gather_team<4>(w, 1u << bits, m);
            else if (rank == 0 && bits == 3)
                gather_team<8>(w, 8, m);
            else if (rank == 0)
                gather_team<AMK_WARPS>(w, AMK_WARPS, m);
        }
        const float scale = __fdividef(1.0f, m.sum);
        if (rank == 0 && unit < r.units && !half && A::sliced(slice, at))
            w.publish(r.output + (query * A::HEAD_DIM + d) / 2,
                      pack_bf16(m.o.x * scale, m.o.y * scale));
        if (bits) w.sync(); // the next slice or task reuses the scratch
    }
}
