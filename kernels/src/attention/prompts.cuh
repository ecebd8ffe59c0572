// Attention for steps of so many rows that they belong to long prompts and read the same positions.
// A task has the queries of a kv head for some rows.
//
// The positions come through the memory of the ring in blocks of 64. A set of rows has up to 64
// queries. A team of warpgroups has a set and a share of the positions, every n-th block; where the
// rows of a task are of several sequences, it goes over the positions of each.
//
// Keys are A, a set's queries the columns of B: a warp has the scores of 16 positions, a warpgroup
// of the team those of its own queries. Values are A, too, and the weights of all queries the rows
// of B: a warp has the sums of 16 elements. So a fragment of the cache is read once or twice.
// What is added for a row does not depend on the other rows.
#pragma once
#include "../linear/stages.cuh"
#include "wide.cuh"

#if AMK_WIDE
template <class A> struct PromptBlock {
    // Of a set: columns, rows of the step, and their queries.
    static constexpr u32 COLUMNS = 64, SET = COLUMNS / A::GROUP, QUERIES = SET * A::GROUP;
    // Warpgroups of a team, each with up to 64 elements; columns whose scores each computes.
    static constexpr u32 TEAM = A::HEAD_DIM <= 64    ? 1
                                : A::HEAD_DIM <= 128 ? 2
                                                     : 4,
                         OWN = COLUMNS / TEAM;
    static constexpr u32 TEAMS = AMK_WARPS / 4 / TEAM, SETS = (AMK_ROW_BLOCK + SET - 1) / SET;
    static constexpr u32 SHARES = TEAMS / SETS; // of the positions, a team each
    // Of each team: the weights of a block, or what its warps exchange.
    static constexpr u32 WEIGHT_BYTES = 64 * LINE, WEIGHTS_END = TEAMS * WEIGHT_BYTES;
    // The rows' turns lie where all this does later.
    static constexpr u32 TURNS = AMK_ROW_BLOCK * TURN_BYTES,
                         QUERY_BYTES = (A::HEAD_DIM + 63) / 64 * COLUMNS * LINE, // of a set
        QUERIES_AT = ((TURNS > WEIGHTS_END ? TURNS : WEIGHTS_END) + 1023) / 1024 * 1024,
                         CACHE_AT = QUERIES_AT + SETS * QUERY_BYTES,
                         FIT = (WIDE_MEMORY - CACHE_AT) / A::BLOCK_BYTES,
                         BLOCKS = FIT < WIDE_STAGES ? FIT : WIDE_STAGES; // in memory
    // When all positions are read. Neighbouring outputs are in different banks.
    static constexpr u32 SHARES_AT = WEIGHTS_END,
                         OUTPUTS_AT = SHARES_AT + TEAMS * COLUMNS * sizeof(float2),
                         OUTPUT = (A::HEAD_DIM + 8) * 4,
                         END = OUTPUTS_AT + TEAMS * COLUMNS * OUTPUT;
    static_assert(TEAMS * COLUMNS * 4 <= sizeof(Kept::running), "a place for the maxima");
    static_assert(SETS <= TEAMS && CACHE_AT < WIDE_MEMORY && BLOCKS > 1 && END <= WIDE_MEMORY,
                  "unsupported block of rows");
    // Where a pair of a query's elements is, in the order of a fragment's.
    AMK_DEVICE static u32 query_at(u32 set, u32 query, u32 d) {
        const u32 at = d % 64 / 16 * 32 + (d % 16 / 4 + d % 4 / 2 * 4) * 4;
        return QUERIES_AT + set * QUERY_BYTES +
               input_place(COLUMNS * LINE, query, d / 64 * 8 + at / 16) + at % 16;
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
    // Pieces of 32 positions of the block that have some of the sequence.
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
    u32 number; // of the block in the launch
    u32 full;   // the barrier of the first place

    AMK_DEVICE explicit BlockCopies(const Worker& w)
        : number(w.s.cache_blocks), full(shared_address(w.s.cache_full)) {}
    AMK_DEVICE static u32 place(u32 number) { return number % B::BLOCKS; }
    AMK_DEVICE static u32 at(const Worker& w, u32 number) {
        return w.data + B::CACHE_AT + place(number) * A::BLOCK_BYTES;
    }
    // The number of the page that has the block that `walk` is at.
    AMK_DEVICE static const u32* page(const Worker& w, const BlockWalk<A>& walk) {
        return w.p.page_tables + w.s.rows[walk.from].pages + A::entry(walk.block);
    }
    // Asks for a block on a page, by a warp, and for the number of the page that is in its place
    // after it.
    AMK_DEVICE void request(const Worker& w, const Record& r, BlockWalk<A> walk, u32 number,
                            u64 page) const {
        const u8* from = w.p.kv + A::in_page(page, r.layer, r.row);
        const u32 barrier = full + 8 * place(number), bytes = walk.pieces(w) * 2 * A::GROUP_BYTES;
        if (w.lane == 0) barrier_expect(barrier, bytes);
        copy_runs(
            w.lane, 1, bytes, barrier, [&](u32) { return at(w, number); },
            [&](u32) { return from; });
        walk.skip(w, B::BLOCKS);
        if (w.lane == 0 && !walk.ended())
            copy_4(shared_address(w.s.cache_page + place(number)), this->page(w, walk));
        arrive_after_copies(barrier);
    }
    // Asks for the first blocks, each by a warp.
    AMK_DEVICE void begin(const Worker& w, const Record& r, BlockWalk<A> walk) const {
        if (w.warp >= B::BLOCKS) return;
        walk.skip(w, w.warp);
        if (any(!walk.ended())) request(w, r, walk, number + w.warp, *page(w, walk));
    }
    AMK_DEVICE void await(const Worker& w) const {
        await_stage(w, full + 8 * place(number), number / B::BLOCKS & 1);
    }
    // The warp has read the block, which `walk` is at.
    AMK_DEVICE void release(const Worker& w, const Record& r, BlockWalk<A> walk) {
        __syncwarp();
        bool last = false;
        if (w.lane == 0)
            last = barrier_arrive_last(shared_address(w.s.cache_empty + place(number)));
        if (any(__shfl_sync(~0u, last, 0))) {
            walk.skip(w, B::BLOCKS);
            if (any(!walk.ended()))
                request(w, r, walk, number + B::BLOCKS, w.s.cache_page[place(number)]);
        }
        number++;
    }
};

// Online softmax of a set's queries over a share of the positions, by a warp of a team. A lane has
// two columns of every 8, and two rows of A.
template <class A> struct PromptFlash {
    using B = PromptBlock<A>;
    static constexpr u32 FEW = 4; // fragments of keys in registers
    // Scores grow by so much before sums are rescaled: the exponents of weights have room.
    static constexpr float RISE = 32;
    float o[B::COLUMNS / 8][4]; // sums of elements of the values
    float sum[B::OWN / 8][2];   // sums of weights, of the lane's positions
    u32 team, part, set;        // part: of the team
    u32 memory;                 // its shared address

    AMK_DEVICE explicit PromptFlash(const Worker& w)
        : o(), sum(), team(w.warp / (4 * B::TEAM)), part(w.warp / 4 % B::TEAM),
          set(team / B::SHARES), memory(w.data) {
        if (of_team(w) < B::COLUMNS) store_shared(tops(w) + 4 * of_team(w), -1e30f, true);
    }
    AMK_DEVICE u32 share() const { return team % B::SHARES; }
    // The thread's number in the team.
    AMK_DEVICE u32 of_team(const Worker& w) const { return w.thread() - team * B::TEAM * 128; }
    // What scores are relative to, of each column.
    AMK_DEVICE u32 tops(const Worker& w) const {
        return shared_address(w.s.running) + team * B::COLUMNS * 4;
    }
    AMK_DEVICE u32 weights() const { return memory + team * B::WEIGHT_BYTES; }
    // What a warp has for the columns of the team.
    AMK_DEVICE u32 of_warp(u32 warp) const { return weights() + warp % 4 * B::COLUMNS * 4; }
    // What sums are multiplied by when the maxima rise.
    AMK_DEVICE u32 factors() const { return weights() + 4 * B::COLUMNS * 4; }
    AMK_DEVICE void sync_team() const { sync_warps(3 + team, 4 * B::TEAM); }
    // The lane's first column of 8, of the team's or the warpgroup's.
    AMK_DEVICE static u32 column(const Worker& w, u32 b) { return 8 * b + 2 * (w.lane & 3); }
    AMK_DEVICE u32 own_column(const Worker& w, u32 b) const { return part * B::OWN + column(w, b); }

    // Adds a block of 64 positions from `first` on, at shared address `block`. `within`: all of
    // them count for all rows of the set. `pieces` of 32 are there.
    template <class L>
    AMK_DEVICE void add(Worker& w, u32 block, u32 first, u32 pieces, bool within, L limit) {
        float s[B::OWN / 8][4];
        multiply_keys(w, block, s);
        limit_scores(w, first, within, limit, s);
        float2 top[B::OWN / 8];
        // All warps have multiplied by the weights before.
        if (any_of_warps(3 + team, 4 * B::TEAM, rises(w, s, top))) {
            raise(w, s);
            load_tops(w, top);
        }
        weigh(w, s, top);
        uint4 value[4];
        load_values(w, block, pieces, value);
        sync_team();
        multiply_values(w, value);
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
            sum[b][0] += s[b][0] + s[b][2], sum[b][1] += s[b][1] + s[b][3];
        wgmma_end();
    }
    AMK_DEVICE void multiply_keys(const Worker& w, u32 block, float (&s)[B::OWN / 8][4]) const {
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++) s[b][0] = s[b][1] = s[b][2] = s[b][3] = 0;
        const u32 keys = block + w.warp % 4 * A::GROUP_BYTES + w.lane * CACHE_LANE;
        const u32 queries = memory + B::QUERIES_AT + set * B::QUERY_BYTES + part * B::OWN * LINE;
#pragma unroll
        for (int from = 0; from < A::TILES; from += FEW) {
            uint4 key[FEW];
#pragma unroll
            for (int j = 0; j < FEW && from + j < A::TILES; j++)
                key[j] = load_shared_tile(keys + (from + j) * CACHE_TILE);
            wgmma_begin();
#pragma unroll
            for (int j = 0; j < FEW && from + j < A::TILES; j++)
                multiply_columns<B::OWN>(w.lane, s, key[j],
                                         queries + (from + j) / 4 * (B::COLUMNS * LINE) +
                                             (from + j) % 4 * 32);
            wgmma_issue();
            wgmma_end();
        }
    }
    // Turns products of keys and queries into scores, those of positions that count for the query.
    template <class L>
    AMK_DEVICE void limit_scores(const Worker& w, u32 first, bool within, L limit,
                                 float (&s)[B::OWN / 8][4]) const {
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[b][i] = score<A>(w, s[b][i]);
        if (any(within)) return;
        const u32 position = first + w.warp % 4 * 16 + (w.lane >> 2);
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const u32 end = limit(own_column(w, b) + i % 2);
                if (!Flash<A>::has(position + i / 2 * 8, end, end))
                    s[b][i] = __uint_as_float(0xff800000u);
            }
    }
    AMK_DEVICE void load_tops(const Worker& w, float2 (&top)[B::OWN / 8]) const {
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
            top[b] = load_shared_pair(tops(w) + 4 * own_column(w, b));
    }
    // Whether a score is too far above the maximum so far.
    AMK_DEVICE bool rises(const Worker& w, const float (&s)[B::OWN / 8][4],
                          float2 (&top)[B::OWN / 8]) const {
        load_tops(w, top);
        bool above = false;
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
            above |= fmaxf(s[b][0], s[b][2]) > top[b].x + RISE ||
                     fmaxf(s[b][1], s[b][3]) > top[b].y + RISE;
        return above;
    }
    // Rescales to the maxima of the columns that have risen.
    AMK_DEVICE void raise(const Worker& w, const float (&s)[B::OWN / 8][4]) {
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
            store_of_warp(w, b, fmaxf(s[b][0], s[b][2]), fmaxf(s[b][1], s[b][3]),
                          [](float x, float y) { return fmaxf(x, y); });
        sync_team();
        if (const u32 column = of_team(w); column < B::COLUMNS) {
            float most = load_shared_one(of_warp(0) + 4 * column);
            for (u32 warp = 1; warp < 4; warp++)
                most = fmaxf(most, load_shared_one(of_warp(warp) + 4 * column));
            const u32 at = tops(w) + 4 * column;
            const float top = load_shared_one(at), next = most > top + RISE ? most : top;
            store_shared(at, next, true);
            store_shared(factors() + 4 * column, exp2_fast(top - next), true);
        }
        sync_team();
#pragma unroll
        for (int b = 0; b < B::COLUMNS / 8; b++) {
            const float2 by = load_shared_pair(factors() + 4 * column(w, b));
            o[b][0] *= by.x, o[b][1] *= by.y, o[b][2] *= by.x, o[b][3] *= by.y;
        }
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++) {
            const float2 by = load_shared_pair(factors() + 4 * own_column(w, b));
            sum[b][0] *= by.x, sum[b][1] *= by.y;
        }
        sync_team(); // the factors lie where weights come
    }
    // Stores what a warp's lanes have for two of the warpgroup's columns.
    template <class F>
    AMK_DEVICE void store_of_warp(const Worker& w, u32 b, float x, float y, F join) const {
#pragma unroll
        for (u32 by = 4; by <= 16; by *= 2)
            x = join(x, __shfl_xor_sync(~0u, x, by)), y = join(y, __shfl_xor_sync(~0u, y, by));
        const u32 to = of_warp(w.warp) + 4 * own_column(w, b);
        store_shared(to, x, w.lane < 4), store_shared(to + 4, y, w.lane < 4);
    }
    // Turns scores into weights, and stores these.
    AMK_DEVICE void weigh(const Worker& w, float (&s)[B::OWN / 8][4],
                          const float2 (&top)[B::OWN / 8]) const {
        const u32 position = w.warp % 4 * 16 + (w.lane >> 2);
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[b][i] = exp2_fast(s[b][i] - (i % 2 ? top[b].y : top[b].x));
            const u32 to =
                weights() + input_place(0, position, part * B::OWN / 8 + b) + (w.lane & 3) * 4;
            store_shared(to, __uint_as_float(pack_bf16(s[b][0], s[b][1])), true);
            store_shared(to + 8 * LINE, __uint_as_float(pack_bf16(s[b][2], s[b][3])), true);
        }
        fence_shared_copies();
    }
    AMK_DEVICE void load_values(const Worker& w, u32 block, u32 pieces, uint4 (&value)[4]) const {
        // Elements beyond the last tile are nobody's.
        const u32 tile = min(part * 4 + w.warp % 4, A::TILES - 1u);
        const u32 values = block + A::GROUP_BYTES / 2 + tile * CACHE_TILE + w.lane * CACHE_LANE;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = load_shared_tile(values + i * A::GROUP_BYTES);
            if (i / 2 >= pieces) value[i] = make_uint4(0, 0, 0, 0); // nothing has come there
        }
    }
    // Begins to multiply by the weights.
    AMK_DEVICE void multiply_values(const Worker& w, const uint4 (&value)[4]) {
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) multiply_rows(w.lane, o, value[i], weights() + i * 16 * LINE);
        wgmma_issue();
    }
    // Stores the team's share, behind the weights.
    AMK_DEVICE void store(Worker& w) const {
        w.sync(); // all have multiplied by the weights
#pragma unroll
        for (int b = 0; b < B::OWN / 8; b++)
            store_of_warp(w, b, sum[b][0], sum[b][1], [](float x, float y) { return x + y; });
        w.sync();
        if (const u32 column = of_team(w); column < B::COLUMNS) {
            float sum = 0;
            for (u32 warp = 0; warp < 4; warp++) sum += load_shared_one(of_warp(warp) + 4 * column);
            ((float2*)w.memory(B::SHARES_AT))[team * B::COLUMNS + column] =
                make_float2(load_shared_one(tops(w) + 4 * column), sum);
        }
        const u32 tile = part * 4 + w.warp % 4;
        if (tile >= A::TILES) return;
#pragma unroll
        for (int b = 0; b < B::COLUMNS / 8; b++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const u32 output = team * B::COLUMNS + column(w, b) + i;
                *(float2*)w.memory(B::OUTPUTS_AT + output * B::OUTPUT +
                                   (tile * 16 + (w.lane >> 2) * 2) * 4) =
                    make_float2(o[b][i], o[b][i + 2]);
            }
    }
};

// Attends with a set's queries to the team's share of the positions of the task's rows.
template <class A>
AMK_DEVICE void attend_prompt(Worker& w, const Record& r, PromptFlash<A>& f, BlockWalk<A> walk) {
    using B = PromptBlock<A>;
    const u32 begin = r.aux + f.set * B::SET;
    BlockCopies<A> copies(w);
#pragma unroll 1
    while (any(!walk.ended())) {
        copies.await(w);
        const u32 first = walk.block * 64, from = max(begin, walk.from),
                  until = min(begin + B::SET, walk.until);
        if (any(from < until && walk.block % B::SHARES == f.share())) {
            const u32 least = w.s.rows[from].pos + 1, most = w.s.rows[until - 1].pos + 1;
            const bool some = first < most && (!A::WINDOW || first + 64 + A::WINDOW > least);
            const bool within = until - from == B::SET && first + 64 <= least &&
                                (!A::WINDOW || first + A::WINDOW >= most);
            if (any(some))
                f.add(w, copies.at(w, copies.number), first, walk.pieces(w), within,
                      [&](u32 query) {
                          const u32 row = begin + query / A::GROUP;
                          return row >= from && row < until ? w.s.rows[row].pos + 1 : 0;
                      });
        }
        copies.release(w, r, walk);
        walk.skip(w, 1);
    }
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
    PromptFlash<A> f(w);
    fence_shared_copies();
    w.sync();
    attend_prompt<A>(w, r, f, walk);
    f.store(w);
    join_shares<A, B>(w, r, end);
}
#endif
