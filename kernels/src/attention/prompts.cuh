// Attention for steps of so many rows that they belong to long prompts and read the same positions.
// A task has the queries of a kv head for some rows.
//
// The positions come through the memory of the ring in blocks of 64, and all warps read them there.
// The queries of a set of rows are the rows of A, and a fragment of a cache holds two fragments of
// B, each with 8 positions or elements. A team of warps has a set and a share of the positions,
// every n-th piece of 32; where the rows of a task are of several sequences, it goes over the
// positions of each. What is added for a row does not depend on the other rows.
#pragma once
#include "../linear/stages.cuh"
#include "wide.cuh"

#if AMK_WIDE
template <class A> struct PromptBlock {
    // Of a set: rows of A, rows of the step, their queries, and bytes of these as fragments.
    static constexpr u32 COLUMNS = 16, SET = COLUMNS / A::GROUP, QUERIES = SET * A::GROUP,
                         QUERY_BYTES = A::TILES * 512;
    static constexpr u32 SETS = (AMK_ROW_BLOCK + SET - 1) / SET;
    static constexpr u32 SHARES = A::TEAMS / SETS; // of the positions, a team each
    static constexpr u32 QUERIES_AT = AMK_ROW_BLOCK * TURN_BYTES,
                         CACHE_AT = QUERIES_AT + SETS * QUERY_BYTES,
                         FIT = (WIDE_MEMORY - CACHE_AT) / A::BLOCK_BYTES,
                         BLOCKS = FIT < WIDE_STAGES ? FIT : WIDE_STAGES; // in memory
    // In the same memory, when all positions are read. Neighbouring outputs are in different banks.
    static constexpr u32 SHARES_AT = 0, OUTPUTS_AT = A::TEAMS * COLUMNS * sizeof(float2),
                         OUTPUT = (A::HEAD_DIM + 16) * 4,
                         END = OUTPUTS_AT + A::TEAMS * COLUMNS * OUTPUT;
    static_assert(SETS <= A::TEAMS && CACHE_AT < WIDE_MEMORY && BLOCKS > 1 && END <= WIDE_MEMORY,
                  "unsupported block of rows");
    // Where the fragments of a set have a pair of a query's elements.
    AMK_DEVICE static u32 query_at(u32 set, u32 query, u32 d) {
        const u32 c = d % 16;
        return QUERIES_AT + set * QUERY_BYTES + d / 16 * 512 + (query % 8 * 4 + c / 4) * 16 +
               (query / 8 + c % 4 / 2 * 2) * 4;
    }
};

// The blocks of positions that a task goes over, one sequence of its rows after the other.
// The rows of a sequence are in order.
template <class A> struct BlockWalk {
    u32 end;         // of the task's rows
    u32 from, until; // the rows of the sequence
    u32 block, last; // of its positions

    AMK_DEVICE BlockWalk(const Worker& w, u32 first, u32 end) : end(end) { begin(w, first); }
    AMK_DEVICE void begin(const Worker& w, u32 row) {
        from = until = row;
        if (any(ended())) return;
        const u32 pages = w.s.rows[row].pages;
        u32 same;
        do {
            const u32 of_lane = until + w.lane;
            same = __ballot_sync(~0u, of_lane < end && w.s.rows[of_lane].pages == pages);
            until += __popc(same & ~(same + 1)); // those before the first other one
        } while (any(same == ~0u));
        block = A::begin(w.s.rows[from].pos) / 64, last = w.s.rows[until - 1].pos / 64;
    }
    AMK_DEVICE bool ended() const { return from >= end; }
    // Pieces of the block with positions of the sequence.
    AMK_DEVICE u32 pieces(const Worker& w) const {
        return block < last ? 2 : w.s.rows[until - 1].pos / 32 % 2 + 1;
    }
    // Goes on by `n` blocks.
    AMK_DEVICE void skip(const Worker& w, u32 n) {
        while (any(!ended() && block + n > last)) n -= last + 1 - block, begin(w, until);
        block += n;
    }
};

// The blocks of a task in memory. Each is replaced by the warp that is the last one to read it.
template <class A> struct BlockCopies {
    using B = PromptBlock<A>;
    static constexpr u32 PIECE_BYTES = 2 * A::GROUP_BYTES;
    u32 number; // of the block in the launch
    u32 full;   // the barrier of the first place

    AMK_DEVICE explicit BlockCopies(const Worker& w)
        : number(w.s.cache_blocks), full(shared_address(w.s.cache_full)) {}
    AMK_DEVICE static u32 place(u32 number) { return number % B::BLOCKS; }
    AMK_DEVICE static u32 at(const Worker& w, u32 number) {
        return w.data + B::CACHE_AT + place(number) * A::BLOCK_BYTES;
    }
    // Asks for a block, by a warp.
    AMK_DEVICE void request(const Worker& w, const Record& r, const BlockWalk<A>& walk,
                            u32 number) const {
        const u8* from = page_block<A>(w, walk.from, r.layer, r.row, walk.block);
        const u32 barrier = full + 8 * place(number), bytes = walk.pieces(w) * PIECE_BYTES;
        if (w.lane == 0) barrier_expect(barrier, bytes);
        copy_runs(
            w.lane, 1, bytes, barrier, [&](u32) { return at(w, number); },
            [&](u32) { return from; });
        arrive_after_copies(barrier);
    }
    // Asks for the first blocks, each by a warp.
    AMK_DEVICE void begin(const Worker& w, const Record& r, BlockWalk<A> walk) const {
        if (w.warp >= B::BLOCKS) return;
        walk.skip(w, w.warp);
        if (any(!walk.ended())) request(w, r, walk, number + w.warp);
    }
    AMK_DEVICE void await(const Worker& w) const {
        await_stage(w, full + 8 * place(number), number / B::BLOCKS & 1);
    }
    // The warp has read the block, which `walk` is at.
    AMK_DEVICE void release(const Worker& w, const Record& r, BlockWalk<A> walk) {
        __syncwarp();
        u32 before = 0;
        if (w.lane == 0) before = count_shared(w.s.cache_read + place(number));
        if (any(__shfl_sync(~0u, before, 0) % AMK_WARPS == AMK_WARPS - 1)) {
            walk.skip(w, B::BLOCKS);
            if (any(!walk.ended())) request(w, r, walk, number + B::BLOCKS);
        }
        number++;
    }
};

// Online softmax of a set's queries, of which a lane has two.
template <class A> struct SetFlash {
    float even[A::OUT_TILES][4], odd[A::OUT_TILES][4]; // elements of the values
    float top[2], sum[2];                              // sums of the lane's positions

    AMK_DEVICE SetFlash() : top{-1e30f, -1e30f}, sum{0, 0} {
#pragma unroll
        for (int j = 0; j < A::OUT_TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) even[j][i] = odd[j][i] = 0;
    }
    // Adds a piece of 32 positions from `first` on. Of a query, those below its limit count.
    AMK_DEVICE void add(const Worker& w, u32 query, u32 keys, u32 first, uint2 limit, u32 part) {
        float s[4][4] = {};
#pragma unroll 4
        for (int j = 0; j < A::TILES; j++) {
            const uint4 q = load_shared(query + 512 * j);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint4 key = load_shared_tile(keys + i * A::GROUP_BYTES + j * CACHE_TILE);
                mma(s[2 * i], q, key.x, key.z), mma(s[2 * i + 1], q, key.y, key.w);
            }
        }
        uint4 p[2];
        weigh(w, s, first, limit, p);
        const u32 values = keys + A::GROUP_BYTES / 2 + part * A::OUT_TILES * CACHE_TILE;
#pragma unroll
        for (int j = 0; j < A::OUT_TILES; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint4 value = load_shared_tile(values + i * A::GROUP_BYTES + j * CACHE_TILE);
                mma(even[j], p[i], value.x, value.z), mma(odd[j], p[i], value.y, value.w);
            }
    }
    // Turns products of queries and keys into weights.
    AMK_DEVICE void weigh(const Worker& w, float (&s)[4][4], u32 first, uint2 limit,
                          uint4 (&p)[2]) {
        const u32 own = first + 2 * (w.lane & 3);
        float most[2] = {top[0], top[1]};
#pragma unroll
        for (int i = 0; i < 16; i++) s[i / 4][i % 4] = score<A>(w, s[i / 4][i % 4]);
        const auto within = [&](u32 limit) {
            return first + 32 <= limit && (A::WINDOW == 0 || first + A::WINDOW >= limit);
        };
        if (__ballot_sync(~0u, !within(limit.x) || !within(limit.y)))
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const u32 position = own + i / 4 * 8 + i % 2, end = i % 4 < 2 ? limit.x : limit.y;
                if (!Flash<A>::has(position, end, end))
                    s[i / 4][i % 4] = __uint_as_float(0xff800000u);
            }
#pragma unroll
        for (int i = 0; i < 16; i++) most[i % 4 / 2] = fmaxf(most[i % 4 / 2], s[i / 4][i % 4]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 1)),
            most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 2));
        if (__ballot_sync(~0u, most[0] > top[0] || most[1] > top[1])) raise(most);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float& x = s[i / 4][i % 4];
            x = exp2_fast(x - most[i % 4 / 2]), sum[i % 4 / 2] += x;
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            p[i] =
                make_uint4(pack_bf16(s[2 * i][0], s[2 * i][1]), pack_bf16(s[2 * i][2], s[2 * i][3]),
                           pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]),
                           pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]));
    }
    // Rescales to new maxima.
    AMK_DEVICE void raise(const float (&most)[2]) {
        const float by[2] = {exp2_fast(top[0] - most[0]), exp2_fast(top[1] - most[1])};
#pragma unroll
        for (int h = 0; h < 2; h++) top[h] = most[h], sum[h] *= by[h];
#pragma unroll
        for (int j = 0; j < A::OUT_TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) even[j][i] *= by[i / 2], odd[j][i] *= by[i / 2];
    }
    // Stores the share of a team.
    AMK_DEVICE void store(const Worker& w) {
        using B = PromptBlock<A>;
        const u32 team = w.warp / A::TEAM, part = w.warp % A::TEAM;
        const u32 d = part * A::OUT_TILES * 16 + 4 * (w.lane & 3);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] += __shfl_xor_sync(~0u, sum[h], 1), sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
            const u32 at = team * B::COLUMNS + (w.lane >> 2) + 8 * h;
            if ((w.lane & 3) == 0 && part == 0)
                ((float2*)w.memory(B::SHARES_AT))[at] = make_float2(top[h], sum[h]);
#pragma unroll
            for (int j = 0; j < A::OUT_TILES; j++)
                store_shared(w.data + B::OUTPUTS_AT + at * B::OUTPUT + (d + 16 * j) * 4,
                             make_uint4(__float_as_uint(even[j][2 * h]),
                                        __float_as_uint(odd[j][2 * h]),
                                        __float_as_uint(even[j][2 * h + 1]),
                                        __float_as_uint(odd[j][2 * h + 1])));
        }
    }
};

// Attends with the queries of a warp to its share of the positions of the task's rows.
template <class A>
AMK_DEVICE void attend_prompt(Worker& w, const Record& r, SetFlash<A>& f, BlockWalk<A> walk) {
    using B = PromptBlock<A>;
    const u32 team = w.warp / A::TEAM, set = team / B::SHARES, share = team % B::SHARES;
    const u32 query = w.data + B::QUERIES_AT + set * B::QUERY_BYTES + w.lane * 16;
    BlockCopies<A> copies(w);
#pragma unroll 1
    while (any(!walk.ended())) {
        const auto limit = [&](u32 query) {
            const u32 row = r.aux + set * B::SET + query / A::GROUP;
            const bool own = query < B::QUERIES && row >= walk.from && row < walk.until;
            return own ? w.s.rows[row].pos + 1 : 0;
        };
        const uint2 limits = make_uint2(limit(w.lane >> 2), limit((w.lane >> 2) + 8));
        copies.await(w);
#pragma unroll 1
        for (u32 half = 0; half < 2; half++) {
            const u32 first = walk.block * 64 + half * 32;
            if (any(first / 32 % B::SHARES != share)) continue;
            const auto some = [&](u32 limit) {
                return first < limit && (A::WINDOW == 0 || first + 32 + A::WINDOW > limit);
            };
            const u32 piece = copies.at(w, copies.number) + half * copies.PIECE_BYTES;
            if (__ballot_sync(~0u, some(limits.x) || some(limits.y)))
                f.add(w, query, piece + w.lane * CACHE_LANE, first, limits, w.warp % A::TEAM);
        }
        copies.release(w, r, walk);
        walk.skip(w, 1);
    }
    w.sync(); // the shares lie where the positions were
    if (w.thread() == 0) w.s.cache_blocks = copies.number;
}

template <class A> AMK_DEVICE void attend_long(Worker& w, const Record& r) {
    using B = PromptBlock<A>;
    const u32 end = min(r.aux + r.units, w.p.row_count);
    if (end <= r.aux) return;
    if (w.lane == 0) fence_copies(); // the positions were written by stores
    const BlockWalk<A> walk(w, r.aux, end);
    BlockCopies<A>(w).begin(w, r, walk);
    load_queries<A, B>(w, r, end);
    SetFlash<A> f;
    attend_prompt<A>(w, r, f, walk);
    f.store(w);
    join_shares<A, B>(w, r, end);
}
#endif
