// Attention for all rows of a step over keys and values in pages. A phase appends them, the next
// attends in splits of the positions, the third joins the splits.
//
// Page `p` has the blocks of 64 positions of all layers and kv heads, in the order of fragments of
// fused.cuh. Pages are read straight from the memory: what a step reads depends on its page tables,
// which the loader does not follow.
#pragma once
#include "../linear/rows.cuh"
#include "fused.cuh"

#if AMK_ROWS
constexpr u32 TURN_BYTES = AMK_HEAD_DIM / 2 * sizeof(float2); // of a row

template <class A> AMK_DEVICE u8* page_block(const Worker& w, u32 row, u32 layer, u32 head, u32 b) {
    const u64 page = w.p.page_tables[w.s.rows[row].pages + b];
    return w.p.kv + A::in_page(page, layer, head);
}

// Loads a head's vector of a row, and norms and rotates it.
template <class A>
AMK_DEVICE void load_head(const Worker& w, const Record& r, u32 row, u32 head, bool norm,
                          u32 weight, const float2* turns, float2 (&x)[A::PER_LANE]) {
    constexpr int N = A::PER_LANE;
    const u32 first = head * A::PAIRS + w.lane;
    u16 gamma[N][2];
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            gamma[j][i] =
                norm ? w.p.constants[weight + 2 * A::apart(w.lane, j) + 2 * w.lane + i] : 0;
    Words<N> pairs = {pair_at(w, r.input, first, row), LINE_APART};
    if (!A::has(w.lane, N - 1)) pairs.count = N - 1; // the others are 0
    read_words(w, pairs);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = make_float2(bf16_low(pairs.word[j]), bf16_high(pairs.word[j]));
    if (any(norm)) norm_head<A>(w, gamma, x);
    if (!any(turns)) return;
    Rotation<A>(w, turns).rotate(w, x);
}

// The turns of a task's row, cosine and sine: those of the step, or the task's own, which the ring
// or the scratch has in wide steps and where the heads are long.
#if AMK_OWN_TURNS
AMK_DEVICE float2* own_turns(const Worker& w, u32 row) {
    const u32 at = AMK_WIDE ? w.data : w.data + AMK_SLOTS * AMK_CHUNK;
    return (float2*)__cvta_shared_to_generic(at + row * TURN_BYTES);
}
#endif
template <class A> AMK_DEVICE const float2* turns_of(const Worker& w, u32 row, u32 first) {
#if AMK_OWN_TURNS
    return own_turns(w, row - first);
#else
    return w.s.rope[row] + A::FIRST_TURN;
#endif
}
// Computes the turns of the task's rows, from `first` on.
template <class A> AMK_DEVICE void begin_block(Worker& w, u32 first, u32 end) {
#if AMK_OWN_TURNS
    constexpr u32 TURNS = A::TURNED / 2;
    if constexpr (TURNS > 0) {
        const float scale = AMK_TURN_SCALE(w.p, A::FIRST_TURN);
        for (u32 i = w.thread(); i < TURNS * (end - first); i += AMK_WARPS * 32) {
            const u32 row = i / TURNS, at = i % TURNS;
            float sine, cosine;
            sincosf((float)w.s.rows[first + row].pos * w.p.inv_freq[A::FIRST_TURN + at], &sine,
                    &cosine);
            own_turns(w, row)[at] = make_float2(cosine * scale, sine * scale);
        }
        w.sync();
    }
#endif
}

// Writes the key and the value of a kv head of the record's rows to their pages, a vector a warp.
template <class A> AMK_DEVICE void append_rows(Worker& w, const Record& r) {
    const u32 end = min(r.aux + r.units, w.p.row_count);
    if (end <= r.aux) return;
    w.stamp(TRACE_INPUTS);
    begin_block<A>(w, r.aux, end);
#pragma unroll 1
    for (u32 item = 2 * r.aux + w.warp; item < 2 * end; item += AMK_WARPS) {
        const u32 row = item / 2, pos = w.s.rows[row].pos, at = pos % 64;
        const bool key = item % 2 == 0;
        float2 x[A::PER_LANE];
        load_head<A>(w, r, row, A::key_head(r.row) + (key ? 0 : A::to_value()), A::NORM && key,
                     r.bias, key ? turns_of<A>(w, row, r.aux) : nullptr, x);
        u8* block = page_block<A>(w, row, r.layer, r.row, pos / 64);
#pragma unroll
        for (int j = 0; j < A::PER_LANE; j++) {
            if (!A::has(w.lane, j)) continue;
            const u32 d = 64 * j + 2 * w.lane, pair = pack_cache(x[j].x, x[j].y);
            if (key)
                *(CachePair*)(block + key_offset<A>(at, d)) = (CachePair)pair;
            else
                *(CacheElem*)(block + value_offset<A>(at, d)) = low_element(pair),
                                                          *(CacheElem*)(block + value_offset<A>(
                                                                                    at, d + 1)) =
                                                              high_element(pair);
        }
    }
}

// Processes a group of 16 positions in memory, see `flash`; with teams, part `part` of the values.
template <class A>
AMK_DEVICE void flash_page(Worker& w, Flash<A>& f, bool had, u32 query, u32 first, uint2 limit,
                           const u8* group, u32 part) {
    constexpr int MOST_KEYS = 8, KEYS = A::TILES < MOST_KEYS ? A::TILES : MOST_KEYS;
    const u8 *keys = group + w.lane * CACHE_LANE,
             *values = keys + A::GROUP_BYTES / 2 + part * A::OUT_TILES * CACHE_TILE;
    uint4 key[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; j++) key[j] = load_tile(keys + j * CACHE_TILE);
    uint4 v[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE && j < A::OUT_TILES; j++) v[j] = load_tile(values + j * CACHE_TILE);
    float c[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
    constexpr bool LONG = A::TILES > AT_ONCE;
#pragma unroll
    for (int j = 0; j < A::TILES; j++) {
        const uint2 q = load_shared_two(query + 32 * j);
        mma(LONG && j & 1 ? e : c, key[j % KEYS], q.x, q.y);
        if (j + KEYS < A::TILES) key[j % KEYS] = load_tile(keys + (j + KEYS) * CACHE_TILE);
    }
#pragma unroll
    for (int i = 0; LONG && i < 4; i++) c[i] += e[i];
    f.add(w, had, c, first, limit, limit,
          [&](int j) { return j < AT_ONCE ? v[j] : load_tile(values + j * CACHE_TILE); });
}

#if !AMK_WIDE
constexpr u32 SHARES_OF_ROW =
    4; // shares of a row's split, each of every fourth group of 16 positions

// The groups of a split of the positions up to and including `pos`: the n-th one's first position.
template <class A> struct RowGroups {
    static constexpr u32 RUN = A::RUN * 4; // groups
    u32 split, pos;
    AMK_DEVICE u32 first(u32 n) const {
        return ((n / RUN * A::SPLITS + split) * RUN + n % RUN) * 16;
    }
    // The first group of the round of runs that a window begins in.
    AMK_DEVICE u32 begin() const { return A::begin(pos) / (16 * RUN * A::SPLITS) * RUN; }
    AMK_DEVICE bool before_window(u32 first) const {
        return A::WINDOW && first + 16 <= A::begin(pos);
    }
};

// With packets, clears for the next step what the one before this has stored, a row a warp: most
// rows and splits have nothing.
template <class A> AMK_DEVICE void clear_parts(Worker& w, const Record& r) {
#if AMK_ROW_PACKETS
#pragma unroll 1
    for (u32 row = w.warp; row < AMK_ROWS; row += AMK_WARPS) {
        const u32 first = r.row * A::GROUP * A::SPLITS + (r.aux + row) % A::SPLITS;
        u32* const sums = (u32*)w.words(r.output, row) + first;
        const bool none = load_relaxed_u32(of_next_step(w, sums)) == ABSENT;
        __syncwarp(); // before a lane clears it
        if (any(none)) continue;
        u32* const parts = (u32*)w.words(r.partial, row) + first * A::HEAD_DIM;
#pragma unroll 1
        for (u32 head = 0; head < A::GROUP; head++) {
            for (u32 d = w.lane; d < A::HEAD_DIM; d += 32)
                clear_word(w, parts + head * A::SPLITS * A::HEAD_DIM + d);
            if (w.lane == 0) clear_word(w, sums + head * A::SPLITS);
        }
    }
#endif
}

// Attends with the group of queries of a kv head to one split of each row's positions.
template <class A, class F> AMK_DEVICE void attend_splits(Worker& w, const Record& r, F active) {
    constexpr u32 PITCH = A::HEAD_DIM + 8, FLOATS = A::GROUP * A::HEAD_DIM,
                  WAVE = AMK_ROW_SCRATCH / (SHARES_OF_ROW * FLOATS * 4);
    static_assert(AMK_ROWS * A::GROUP * PITCH * 2 <= SCRATCH_FLOATS * 4, "queries must fit");
    static_assert(WAVE > 0, "the shares of a row must fit the scratch");
    u16* const queries = (u16*)w.s.scratch;
    begin_block<A>(w, 0, w.p.row_count);
#pragma unroll 1
    for (u32 item = w.warp; item < w.p.row_count * A::GROUP; item += AMK_WARPS) {
        const u32 row = item / A::GROUP, head = item % A::GROUP;
        if (!active(row)) continue;
        float2 x[A::PER_LANE];
        load_head<A>(w, r, row, r.row * A::GROUP + head, A::NORM, r.norm, turns_of<A>(w, row, 0),
                     x);
#pragma unroll
        for (int j = 0; j < A::PER_LANE; j++)
            if (A::has(w.lane, j))
                *(u32*)(queries + item * PITCH + 64 * j + 2 * w.lane) = pack_bf16(x[j].x, x[j].y);
    }
    w.sync();
    w.stamp(TRACE_INPUTS);
    bool awaited = false; // what this step appends, by this warp
#pragma unroll 1
    for (u32 from = 0; from < w.p.row_count; from += WAVE) {
        const u32 rows = min(w.p.row_count - from, WAVE);
#pragma unroll 1
        for (u32 of_part = w.warp; of_part < rows * SHARES_OF_ROW * A::TEAM; of_part += AMK_WARPS) {
            const u32 item = of_part / A::TEAM, part = of_part % A::TEAM;
            const u32 row = from + item / SHARES_OF_ROW, pos = w.s.rows[row].pos;
            if (!active(row)) continue;
            const RowGroups<A> groups = {(r.aux + row) % A::SPLITS, pos};
            const u32 query =
                shared_address(queries +
                               (row * A::GROUP + min(w.lane >> 2, A::GROUP - 1)) * PITCH) +
                8 * (w.lane & 3);
            Flash<A> f;
            f.clear();
            bool had = false;
#pragma unroll 1
            for (u32 n = groups.begin() + item % SHARES_OF_ROW;; n += SHARES_OF_ROW) {
                const u32 first = groups.first(n);
                if (!any(first <= pos)) break;
                if (any(groups.before_window(first))) continue;
                // A sequence's first row in this step is at `pos - row` at least.
                if (AMK_ROW_PACKETS && !awaited && any(first + 16 + row > pos))
                    await_by_warp(w, r), awaited = true;
                const u8* block = page_block<A>(w, row, r.layer, r.row, first / 64);
                flash_page<A>(w, f, had, query, first, make_uint2(pos + 1, pos + 1),
                              block + first % 64 / 16 * A::GROUP_BYTES, part);
                had = true;
            }
            const u32 head = 2 * (w.lane & 3), d = 2 * (w.lane >> 2) + part * A::OUT_TILES * 16;
            if (w.lane < 4 && part == 0)
                w.s.shares[item][head] = make_float2(f.max0, f.sum[0]),
                w.s.shares[item][head + 1] = make_float2(f.max1, f.sum[1]);
            const u32 to = w.row_scratch() + (item * FLOATS + head * A::HEAD_DIM + d) * 4;
#pragma unroll
            for (int j = 0; j < A::OUT_TILES; j++) {
                const u32 at = to + 64 * j;
                if (head < A::GROUP)
                    store_shared(at, f.o[j][0], true), store_shared(at + 4, f.o[j][2], true);
                if (head + 1 < A::GROUP)
                    store_shared(at + 4 * A::HEAD_DIM, f.o[j][1], true),
                        store_shared(at + 4 * A::HEAD_DIM + 4, f.o[j][3], true);
            }
        }
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        // Each thread joins the shares of two dims.
#pragma unroll 1
        for (u32 i = w.thread(); i < rows * FLOATS / 2; i += AMK_WARPS * 32) {
            const u32 own = i / (FLOATS / 2), row = from + own, pair = i % (FLOATS / 2),
                      head = pair / (A::HEAD_DIM / 2), d = pair % (A::HEAD_DIM / 2) * 2;
            if (!active(row)) continue;
            Merged m;
#pragma unroll
            for (u32 lane = 0; lane < SHARES_OF_ROW; lane++)
                m.top = fmaxf(m.top, w.s.shares[own * SHARES_OF_ROW + lane][head].x);
#pragma unroll
            for (u32 lane = 0; lane < SHARES_OF_ROW; lane++) {
                const float2 share = w.s.shares[own * SHARES_OF_ROW + lane][head];
                const u32 at = w.row_scratch() +
                               ((own * SHARES_OF_ROW + lane) * FLOATS + head * A::HEAD_DIM + d) * 4;
                if (share.y > 0) m.join(share.x, share.y, load_shared_pair(at));
            }
            const float scale = m.scale<A>();
            const u32 place = (r.row * A::GROUP + head) * A::SPLITS + (r.aux + row) % A::SPLITS;
            const float2 y = make_float2(m.o.x * scale, m.o.y * scale);
            if (A::active(w.s.rows[row].pos) == 1) { // nothing to join
                const u32 at = (r.row * A::GROUP + head) * (A::HEAD_DIM / 2) + d / 2;
                store_word(w, pair_at(w, r.bias, at, row), pack_bf16(y.x, y.y));
                continue;
            }
            u32* const to = (u32*)w.words(r.partial, row) + place * A::HEAD_DIM + d;
            store_word(w, to, __float_as_uint(y.x)), store_word(w, to + 1, __float_as_uint(y.y));
            if (d == 0)
                store_word(w, (u32*)w.words(r.output, row) + place,
                           __float_as_uint(m.top + __log2f(m.sum)));
        }
        w.sync(); // the next wave or task reuses the scratch
    }
}

// Most splits have no positions in short contexts.
template <class A> AMK_DEVICE void attend_rows(Worker& w, const Record& r) {
    const auto active = [&](u32 row) { // whether the row's split has positions
        return (r.aux + row) % A::SPLITS < A::active(w.s.rows[row].pos);
    };
    bool some = false;
#pragma unroll 1
    for (u32 row = 0; row < w.p.row_count; row++) some |= active(row);
    if (any(some)) attend_splits<A>(w, r, active);
    clear_parts<A>(w, r);
}

// Joins the splits of slices of 32 dims of query heads, a slice of a row a warp, a dim a lane.
template <class A> AMK_DEVICE void join_rows(Worker& w, const Record& r) {
    w.stamp(TRACE_INPUTS);
#pragma unroll 1
    for (u32 item = w.warp; item < r.units * stored_rows(w); item += AMK_WARPS) {
        const u32 row = item / r.units, slice = r.row + item % r.units, head = slice / A::SLICES;
        const u32 active = row < w.p.row_count ? A::active(w.s.rows[row].pos) : 0;
        u32* const to = pair_at(w, r.output, A::of_slice(slice, w.lane) / 2, row);
        if (active < 2) { // a single split has delivered
            if (A::sliced(slice, w.lane)) clear_word(w, to);
            continue;
        }
        const u32* sums = (const u32*)w.words(r.input, row) + head * A::SPLITS;
        const u32* partial = (const u32*)w.words(r.partial, row) + head * A::SPLITS * A::HEAD_DIM +
                             slice % A::SLICES * 32 + A::within(slice, w.lane, 0);
        constexpr u32 BATCH = 4; // splits whose words are under way at once
        // The first words of both are asked for together.
        Words<1> lse = {sums + w.lane, 1, w.lane < active};
        Words<BATCH> part = {partial, A::HEAD_DIM, active};
        read_words(w, lse, part);
        float top = w.lane < active ? __uint_as_float(lse.word[0]) : -1e30f, sum = 0, y = 0;
#pragma unroll 1
        for (u32 first = 32; first < active; first += 32) {
            const u32 split = first + w.lane;
            Words<1> more = {sums + split, 1, split < active};
            read_words(w, more);
            if (split < active) top = fmaxf(top, __uint_as_float(more.word[0]));
        }
#pragma unroll
        for (int m = 16; m; m /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
#pragma unroll 1
        for (u32 first = 0; first < active; first += BATCH) {
            Words<BATCH> own = {sums + first, 1, active - first};
            if (first) {
                part.from += BATCH * A::HEAD_DIM, part.count -= BATCH;
                read_words(w, part, own);
            } else
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) own.word[i] = __shfl_sync(~0u, lse.word[0], i);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (first + i >= active) break;
                const float share = exp2_fast(__uint_as_float(own.word[i]) - top);
                sum += share;
                y += share * __uint_as_float(part.word[i]);
            }
        }
        y *= __fdividef(1.0f, sum);
        const float next = __shfl_down_sync(~0u, y, 1);
        if (w.lane % 2 == 0 && A::sliced(slice, w.lane)) put_word(w, to, pack_bf16(y, next), true);
    }
}
#endif
#endif
