// Attention for steps of so many rows that they belong to long prompts and read the same positions.
// A task has the queries of a kv head for some rows, and all of their positions or, of several
// parts, every so many-th block. Another task joins the parts.
//
// The positions come through the memory of the ring in blocks of 64 (`blocks.cuh`). A set of rows
// has up to 64 queries. A warpgroup, or a team of two with a half of the values' elements each, has
// a set and a share of the positions, every n-th block; where the rows of a task are of several
// sequences, it goes over the positions of each.
//
// Queries are A, 16 a warp, keys B, then the weights of positions A and values B (Shah et al.,
// FlashAttention-3, 2024, section 3): scores become weights in the registers where they are, and no
// warp waits for another one. What is added for a row does not depend on the other rows.
#pragma once
#include "blocks.cuh"

#if AMK_WIDE
// Online softmax of a warp's 16 queries over a share of the positions. A lane has queries
// `lane / 4` and 8 more, and two positions of every 8.
template <class A> struct PromptFlash {
    using M = PromptMemory<A>;
    static constexpr u32 ELEMENTS = A::OUT_TILES * 16;
    // Halves of a block at once: the first or the last 8 of each 16 positions. Registers are short.
    static constexpr u32 HALVES = ELEMENTS <= 64 ? 2 : 1;
    // Scores grow by so much before sums are rescaled: the exponents of weights have room.
    static constexpr float RISE = 32;
    typedef float Scores[HALVES][4][4]; // of each 16 positions
    float o[ELEMENTS / 8][4];           // sums of elements of the values
    float sum[2], top[2];               // of weights, of the lane's positions; maxima of scores
    u32 team, part, set;                // part: of the team

    AMK_DEVICE explicit PromptFlash(const Worker& w)
        : o(), sum(), top{-1e30f, -1e30f}, team(w.warp / (4 * A::TEAM)), part(w.warp / 4 % A::TEAM),
          set(team / M::SHARES) {}
    AMK_DEVICE u32 share() const { return team % M::SHARES; }
    // The lane's first query, of the set.
    AMK_DEVICE static u32 query(const Worker& w) { return w.warp % 4 * 16 + (w.lane >> 2); }

    // Adds a block of 64 positions from `first` on, at shared address `block`. `within`: all of
    // them count for all rows of the set. Else those before `limit(query)` do, and in its window.
    template <class L>
    AMK_DEVICE void add(const Worker& w, u32 block, u32 first, bool within, L limit) {
#pragma unroll 1
        for (u32 half = 0; half < 2; half += HALVES) {
            Scores s;
            multiply_keys(w, block, half, s);
            limit_scores(w, first + 8 * half, within, limit, s);
            raise(w, s);
            uint4 weights[HALVES][2];
            weigh(w, s, weights);
            multiply_values(w, block + M::GROUP_BYTES / 2, half, weights);
        }
    }
    // The products of queries and keys.
    AMK_DEVICE void multiply_keys(const Worker& w, u32 block, u32 half, Scores& s) const {
        const u32 queries = w.data + M::QUERIES_AT + set * M::QUERY_BYTES;
        wgmma_begin();
#pragma unroll
        for (u32 h = 0; h < HALVES; h++) multiply_tile<false>(w, s[h], queries, block, 0, half + h);
#pragma unroll
        for (int tile = 1; tile < A::TILES; tile++)
#pragma unroll
            for (u32 h = 0; h < HALVES; h++)
                multiply_tile<true>(w, s[h], queries, block, tile, half + h);
        wgmma_issue();
        wgmma_end();
#pragma unroll
        for (int h = 0; h < HALVES; h++) wgmma_settle(s[h]);
    }
    // A tile of queries times keys of half the positions, which is added or, of the first, not.
    template <bool ADD>
    AMK_DEVICE static void multiply_tile(const Worker& w, float (&s)[4][4], u32 queries, u32 block,
                                         u32 tile, u32 half) {
#if __CUDA_ARCH_FEAT_SM90_ALL
        wgmma<ADD>(s, advanced(matrices(queries, 128, 256), tile * M::QUERY_TILE),
                   advanced(matrices(block, 128, M::GROUP_BYTES), tile * AMK_TILE + half * 256));
#else
        const uint4 q = load_matrices(queries + tile * M::QUERY_TILE + w.warp % 4 * AMK_TILE +
                                      M::matrix_row(w.lane));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!ADD) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
            const uint4 k = load_shared_tile(block + i * A::GROUP_BYTES + tile * CACHE_TILE +
                                             w.lane * CACHE_LANE);
            mma(s[i], q, half ? k.y : k.x, half ? k.w : k.z);
        }
#endif
    }
    // Without a bound on scores, products are scaled when weights are made of them.
    AMK_DEVICE static float scale(const Worker& w) { return A::CAP ? 1 : LOG2_E * w.p.score_scale; }
    // Turns products into scores, where the position counts for the query.
    template <class L>
    AMK_DEVICE void limit_scores(const Worker& w, u32 first, bool within, L limit,
                                 Scores& s) const {
        if constexpr (A::CAP != 0) {
#pragma unroll
            for (int h = 0; h < HALVES; h++)
#pragma unroll
                for (int i = 0; i < 16; i++) s[h][i / 4][i % 4] = score<A>(w, s[h][i / 4][i % 4]);
        }
        if (any(within)) return;
        const u32 position = first + 2 * (w.lane & 3);
        const u32 ends[2] = {limit(query(w)), limit(query(w) + 8)};
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 end = ends[j / 2];
                    if (!Flash<A>::has(position + 8 * h + 16 * i + j % 2, end, end))
                        s[h][i][j] = __uint_as_float(0xff800000u);
                }
    }
    // Rescales to the maxima of the queries whose scores rise too far above the one so far.
    AMK_DEVICE void raise(const Worker& w, const Scores& s) {
        float most[2] = {s[0][0][0], s[0][0][2]};
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                most[0] = fmaxf(most[0], fmaxf(s[h][i][0], s[h][i][1])),
                most[1] = fmaxf(most[1], fmaxf(s[h][i][2], s[h][i][3]));
        float bound[2];
#pragma unroll
        for (int i = 0; i < 2; i++) most[i] *= scale(w), bound[i] = top[i] + RISE;
        if (!any_lane(most[0] > bound[0] || most[1] > bound[1])) return;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 1));
            most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 2));
            const float next = most[i] > bound[i] ? most[i] : top[i], by = exp2_fast(top[i] - next);
            top[i] = next, sum[i] *= by;
#pragma unroll
            for (int b = 0; b < ELEMENTS / 8; b++) o[b][2 * i] *= by, o[b][2 * i + 1] *= by;
        }
    }
    // Turns scores into weights, fragments of every 32 positions.
    AMK_DEVICE void weigh(const Worker& w, Scores& s, uint4 (&weights)[HALVES][2]) {
        const float by = scale(w);
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[h][i][j] = exp2_fast(fmaf(s[h][i][j], by, -top[j / 2]));
                sum[0] += s[h][i][0] + s[h][i][1], sum[1] += s[h][i][2] + s[h][i][3];
                const u32 low = pack_bf16(s[h][i][0], s[h][i][1]),
                          high = pack_bf16(s[h][i][2], s[h][i][3]);
                uint4& of = weights[h][i / 2];
                if (i % 2)
                    of.z = low, of.w = high;
                else
                    of.x = low, of.y = high;
            }
    }
    // Adds the values of the positions, at shared address `values` in the block.
    AMK_DEVICE void multiply_values(const Worker& w, u32 values, u32 half,
                                    const uint4 (&weights)[HALVES][2]) {
        wgmma_begin();
#pragma unroll
        for (u32 h = 0; h < HALVES; h++)
#pragma unroll
            for (u32 i = 0; i < 2; i++) add_values<0>(w, weights[h][i], values, i, half + h);
        wgmma_issue();
        wgmma_end();
        wgmma_settle(o);
    }
    // Adds the values of half of the `i`-th 32 positions, from element `FROM` of the warpgroup's
    // on.
    template <u32 FROM>
    AMK_DEVICE void add_values(const Worker& w, const uint4& weights, u32 values, u32 i, u32 half) {
#if __CUDA_ARCH_FEAT_SM90_ALL
        constexpr u32 LEFT = ELEMENTS - FROM, NOW = LEFT >= 128  ? 128
                                                    : LEFT >= 64 ? 64
                                                    : LEFT >= 32 ? 32
                                                                 : 16;
        const u32 first = values + part * A::OUT_TILES * AMK_TILE;
        wgmma(*(float (*)[NOW / 8][4])(o + FROM / 8), weights,
              advanced(matrices(first, M::GROUP_BYTES, 256),
                       2 * i * M::GROUP_BYTES + FROM / 16 * AMK_TILE + half * 128));
        if constexpr (FROM + NOW < ELEMENTS) add_values<FROM + NOW>(w, weights, values, i, half);
#else
        const u32 first = values + 2 * i * M::GROUP_BYTES + part * A::OUT_TILES * CACHE_TILE +
                          w.lane * CACHE_LANE;
#pragma unroll
        for (int j = 0; j < A::OUT_TILES; j++) {
            const uint4 low = load_shared_tile(first + j * CACHE_TILE),
                        high = load_shared_tile(first + A::GROUP_BYTES + j * CACHE_TILE);
            mma(o[2 * j], weights, half ? low.z : low.x, half ? high.z : high.x);
            mma(o[2 * j + 1], weights, half ? low.w : low.y, half ? high.w : high.y);
        }
#endif
    }
    // Stores the share, when no warp reads positions any more.
    AMK_DEVICE void store(const Worker& w) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = sum[i] + __shfl_xor_sync(~0u, sum[i], 1);
            all += __shfl_xor_sync(~0u, all, 2);
            const u32 at = team * M::COLUMNS + query(w) + 8 * i;
            if ((w.lane & 3) == 0 && part == 0)
                ((float2*)w.memory(M::SHARES_AT))[at] = make_float2(top[i], all);
            const u32 to =
                w.data + M::OUTPUTS_AT + at * M::OUTPUT + (part * ELEMENTS + 4 * (w.lane & 3)) * 4;
            // A lane has 4 elements of a tile, by turns of the even and of the odd ones. They are
            // stored one by one: else the compiler has the sums in this order all the time, and
            // moves all of them before and after each product.
#pragma unroll
            for (int j = 0; j < A::OUT_TILES; j++) {
                const float (&even)[4] = o[2 * j], (&odd)[4] = o[2 * j + 1];
                store_shared(to + 64 * j, even[2 * i], true);
                store_shared(to + 64 * j + 4, odd[2 * i], true);
                store_shared(to + 64 * j + 8, even[2 * i + 1], true);
                store_shared(to + 64 * j + 12, odd[2 * i + 1], true);
            }
        }
    }
};

// The ends of the positions of the task's rows.
AMK_DEVICE u32* row_ends(const Worker& w) { return (u32*)w.s.running; }

// Of the blocks of a walk's sequence those that a set's rows attend to, and of them those whose
// positions all count for all rows of a full set.
template <class A> struct SetBlocks {
    u32 begin, end, whole, whole_end;

    // For the rows from `from` on, whose positions end at `end_of(row)`.
    template <class E>
    AMK_DEVICE SetBlocks(const BlockWalk<A>& walk, u32 from, u32 until, E end_of)
        : begin(walk.blocks), end(walk.blocks), whole(walk.blocks), whole_end(walk.blocks) {
        if (any(from >= until)) return;
        const u32 least = end_of(from), most = end_of(until - 1);
        begin = max(walk.block, walk.before(A::begin(least - 1) / 64));
        end = min(walk.blocks, walk.before((most + 63) / 64));
        whole = A::WINDOW ? walk.before((A::begin(most - 1) + 63) / 64) : 0;
        whole_end = until - from == PromptMemory<A>::SET ? walk.before(least / 64) : 0;
    }
    AMK_DEVICE bool within(u32 block) const { return block >= whole && block < whole_end; }
};

// Attends with a set's queries to the team's share of the positions of the task's rows. Loops that
// only pass by blocks are apart, and what counts blocks is the same for all lanes to the compiler,
// so that it has few registers.
template <class A>
AMK_DEVICE void attend_prompt(Worker& w, const Record& r, PromptFlash<A>& f, u32 end) {
    using M = PromptMemory<A>;
    // Of steps that attend so: without fused attention a block of rows may be longer.
    static_assert(M::SETS && AMK_ROW_BLOCK * 4 <= sizeof(Kept::running), "a place for each row");
    const auto await = [&](u32 number) {
        while (!M::has_count(w.s.cache_ready, number, M::laid_out(number)))
            if (any(w.abandoned())) break;
    };
    const auto release = [&](u32 number) {
        __syncwarp();
        // For the warps of other shares, too, who pass by.
        if (w.lane == 0) count_by(w.s.cache_read[M::place(number)], M::SHARES);
    };
    const auto end_of = [&](u32 row) { return row_ends(w)[row - r.aux]; };
    const u32 begin = r.aux + f.set * M::SET;
    u32 number = w.s.cache_blocks; // of the sequence's first block
    BlockWalk<A> walk(w.s, w.lane, r, end);
#pragma unroll 1
    while (any(!walk.ended())) {
        const u32 from = max(begin, walk.from), until = min(begin + M::SET, walk.until);
        const SetBlocks<A> of(walk, from, until, end_of);
        const u32 before = shared_by_lanes(number - walk.block); // the number of block 0
        u32 block = shared_by_lanes(walk.block + (f.share() - walk.block) % M::SHARES);
        const auto pass_by = [&](u32 end) {
#pragma unroll 1
            for (; any(block < end); block += M::SHARES)
                await(before + block), release(before + block);
        };
        const u32 first = shared_by_lanes(of.begin), last = shared_by_lanes(of.end);
        pass_by(first);
#pragma unroll 1
        for (; any(block < last); block += M::SHARES) {
            await(before + block);
            f.add(w, M::place_at(w.data, before + block), walk.number(block) * 64, of.within(block),
                  [&](u32 query) {
                      const u32 row = begin + query / A::GROUP;
                      return row >= from && row < until ? end_of(row) : 0;
                  });
            release(before + block);
        }
        pass_by(walk.blocks);
        number = before + walk.blocks;
        walk.skip(w.s, w.lane, walk.blocks - walk.block);
    }
    w.sync();
    if (w.thread() == 0) w.s.cache_blocks = number;
}

template <class A> AMK_DEVICE void attend_long(Worker& w, const Record& r) {
    using M = PromptMemory<A>;
    const u32 end = min(r.aux + r.units, w.p.row_count);
    if (end <= r.aux) return before_task(w, r);
    await_inputs(w, r);
    for (u32 row = r.aux + w.thread(); row < end; row += THREADS)
        row_ends(w)[row - r.aux] = w.s.rows[row].pos + 1;
    load_queries<A, M>(w, r, end);
    fence_shared_copies(); // products read them
    w.sync();
    PromptFlash<A> f(w);
    attend_prompt<A>(w, r, f, end);
    f.store(w);
    join_shares<A, M>(w, r, end);
}

// Joins the parts of all heads of the record's rows, four elements a thread. All lanes of a warp go
// through the loop as often, the last ones for the last elements again: else the compiler spills
// registers in other tasks.
template <class A> AMK_DEVICE void join_blocks(Worker& w, const Record& r) {
    constexpr u32 QUADS = A::KV_HEADS * A::GROUP * A::HEAD_DIM / 4, PARTS = A::SPLITS;
    const u32 end = min(r.aux + r.units, w.p.row_count), quads = (end - min(end, r.aux)) * QUADS;
#pragma unroll 1
    for (u32 first_of_warp = w.warp * 32; any(first_of_warp < quads); first_of_warp += THREADS) {
        const u32 i = min(first_of_warp + w.lane, quads - 1), row = r.aux + i / QUADS,
                  at = i % QUADS * 4, head = at / A::HEAD_DIM,
                  first = head * PARTS * A::HEAD_DIM + at % A::HEAD_DIM,
                  parts = A::active(w.s.rows[row].pos); // that have positions
        float lse[PARTS];
        uint4 of[PARTS];
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            lse[part] = -1e30f, of[part] = make_uint4(0, 0, 0, 0);
            if (part >= parts) continue;
            lse[part] =
                __uint_as_float(load_relaxed_u32(element_at(w, r.input, head * PARTS + part, row)));
            of[part] =
                load_relaxed((const u64*)element_at(w, r.partial, first + part * A::HEAD_DIM, row));
        }
        float top = lse[0];
#pragma unroll
        for (u32 part = 1; part < PARTS; part++) top = fmaxf(top, lse[part]);
        float sum = 0, y[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            const float share = exp2_fast(lse[part] - top);
            sum += share;
            y[0] = fmaf(share, __uint_as_float(of[part].x), y[0]);
            y[1] = fmaf(share, __uint_as_float(of[part].y), y[1]);
            y[2] = fmaf(share, __uint_as_float(of[part].z), y[2]);
            y[3] = fmaf(share, __uint_as_float(of[part].w), y[3]);
        }
        const float scale = __fdividef(1.0f, sum);
        *pair_at(w, r.output, at / 2, row) = pack_bf16(y[0] * scale, y[1] * scale);
        *pair_at(w, r.output, at / 2 + 1, row) = pack_bf16(y[2] * scale, y[3] * scale);
    }
}
#endif
