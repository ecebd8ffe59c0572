// Blocks of positions for attention in long steps. The copying warps bring a task's blocks into the
// memory of the ring and lay them out for the tensor cores, while the consumers attend to others.
//
//   page ──copy──► place ──a warp reads and stores every tile──► place ──► products
//          full                                                  ready      read
//
// A tile is an A fragment of `mma`, 16 bytes a lane. Products of warpgroups (`wgmma`) take matrices
// of 8 rows of 16 bytes, which are the fragment's registers: the matrices of a tile lie where the
// tile was. GPUs without these products leave tiles as they are.
#pragma once
#include "../linear/copier.cuh"
#include "wide.cuh"

#if AMK_WIDE
// The memory of a task.
template <class A> struct PromptMemory {
    // Of a set: the queries of a warpgroup's products, and rows of the step.
    static constexpr u32 COLUMNS = 64, SET = COLUMNS / A::GROUP;
    // Teams of warpgroups, each with a set and a share of the positions.
    static constexpr u32 TEAMS = AMK_WARPS / 4 / A::TEAM, SETS = (AMK_ROW_BLOCK + SET - 1) / SET,
                         SHARES = TEAMS / SETS;
    // The queries come first, of each 16 elements the matrices of 8, and the rows' turns last.
    static constexpr u32 QUERY_TILE = COLUMNS / 16 * AMK_TILE,
                         QUERY_BYTES = A::TILES * QUERY_TILE, // of a set
        QUERIES_AT = 0, CACHE_AT = QUERIES_AT + SETS * QUERY_BYTES;
    // Of 16 positions and of a block, as products take them. A block of bytes is copied into the
    // second half of its place, which its tiles reach when those there have been read.
    static constexpr bool WIDENS = HAS_WGMMA && AMK_CACHE_BYTES == 1;
    static constexpr u32 GROUP_BYTES = HAS_WGMMA ? 2 * A::TILES * AMK_TILE : A::GROUP_BYTES,
                         PLACE = 4 * GROUP_BYTES, COPIED_AT = WIDENS ? PLACE / 2 : 0,
                         FIT = (TURNS_AT - CACHE_AT) / PLACE,
                         PLACES = FIT < WIDE_STAGES ? FIT : WIDE_STAGES;
    // When all positions are read: of each team and query maximum and sum, and outputs. Those of
    // neighbouring queries are in different banks.
    static constexpr u32 SHARES_AT = 0, OUTPUTS_AT = TEAMS * COLUMNS * sizeof(float2),
                         OUTPUT = (A::HEAD_DIM + 16) * 4,
                         END = OUTPUTS_AT + TEAMS * COLUMNS * OUTPUT;
    static_assert(SETS <= TEAMS && CACHE_AT < TURNS_AT && PLACES > 1 && END <= WIDE_MEMORY,
                  "unsupported block of rows");

    // Where a pair of a query's elements is.
    AMK_DEVICE static u32 query_at(u32 set, u32 query, u32 d) {
        return QUERIES_AT + set * QUERY_BYTES + d / 16 * QUERY_TILE + query / 8 * 256 +
               d % 4 / 2 * 128 + query % 8 * 16 + d % 16 / 4 * 4;
    }
    // Where a lane finds its row of the matrices of a tile: it has a part of each.
    AMK_DEVICE static u32 matrix_row(u32 lane) {
        return lane / 8 % 2 * 256 + lane / 16 * 128 + lane % 8 * 16;
    }
    // Of a block by its number in the launch: its place, the place's address, and what the counters
    // of the place are when this block is laid out, and when all warps have read those before.
    AMK_DEVICE static u32 place(u32 number) { return number % PLACES; }
    AMK_DEVICE static u32 place_at(u32 data, u32 number) {
        return data + CACHE_AT + place(number) * PLACE;
    }
    AMK_DEVICE static u32 laid_out(u32 number) { return number / PLACES + 1; }
    AMK_DEVICE static u32 read_before(u32 number) { return number / PLACES * AMK_WARPS; }
    // Whether the counter of a block's place has come to `count`. If not, the warp rests, so that
    // others have the shared memory to themselves.
    AMK_DEVICE static bool has_count(const u32* counters, u32 number, u32 count) {
        const bool has = all(counted(counters[place(number)]) == count);
        if (!has) __nanosleep(32);
        return has;
    }
};

// The blocks of positions that a task goes over, one sequence of its rows after the other: all, or
// every so many-th for a part of the positions. The rows of a sequence are in order.
template <class A> struct BlockWalk {
    static constexpr u32 PARTS = A::SPLITS;
    u32 part;
    u32 end;           // of the task's rows
    u32 from, until;   // the rows of the sequence
    u32 block, blocks; // of the part: the number, and the end of the sequence's

    AMK_DEVICE BlockWalk(const Shared& s, u32 lane, const Record& r, u32 end)
        : part(r.more), end(end) {
        begin(s, lane, r.aux);
        if constexpr (PARTS > 1) skip(s, lane, 0); // a sequence may have none
    }
    AMK_DEVICE void begin(const Shared& s, u32 lane, u32 row) {
        from = until = row;
        if (any(ended())) return;
        const u32 pages = s.rows[row].pages;
        u32 same;
        do {
            const u32 of_lane = until + lane;
            same = __ballot_sync(~0u, of_lane < end && s.rows[of_lane].pages == pages);
            until += __popc(same & ~(same + 1)); // those before the first other one
        } while (any(same == ~0u));
        block = before(A::begin(s.rows[from].pos) / 64);
        blocks = before(s.rows[until - 1].pos / 64 + 1);
    }
    // How many of the part's blocks are before a block.
    AMK_DEVICE u32 before(u32 block) const { return (block + PARTS - 1 - part) / PARTS; }
    AMK_DEVICE bool ended() const { return from >= end; }
    // The number in the sequence of the part's current block, or of another one.
    AMK_DEVICE u32 number() const { return number(block); }
    AMK_DEVICE u32 number(u32 block) const { return block * PARTS + part; }
    // Goes on by `n` blocks.
    AMK_DEVICE void skip(const Shared& s, u32 lane, u32 n) {
        while (any(!ended() && block + n >= blocks)) n -= blocks - block, begin(s, lane, until);
        block += n;
    }
};

// A copying warp's part of a task: every so many-th block. Warps and teams are apart by more than
// the phases of a barrier would tell: they count.
template <class A> struct BlockCopies {
    using M = PromptMemory<A>;
    // Blocks that are asked for before one is laid out, where places may be empty by then: teams
    // may still read as many as there are shares, the copying warps lay out as many as they are.
    static constexpr u32 BUSY = M::SHARES > AMK_COPIERS ? M::SHARES : AMK_COPIERS,
                         AHEAD = M::PLACES > BUSY ? M::PLACES - BUSY + 1 : 1;
    const Copier& c;
    u32 row, layer; // of the record
    u32 number;     // in the launch, of the block that the warp asks for next,
    u32 page;       // and of its page
    BlockWalk<A> walk;

    AMK_DEVICE BlockCopies(const Copier& c, const Record& r, u32 end)
        : c(c), row(r.row), layer(r.layer), number(c.s.cache_blocks + c.warp),
          walk(c.s, c.lane, r, end) {
        advance(c.warp);
    }
    AMK_DEVICE void advance(u32 blocks) {
        walk.skip(c.s, c.lane, blocks);
        if (any(!walk.ended()))
            page = c.p.page_tables[c.s.rows[walk.from].pages + A::entry(walk.number())];
    }
    // Asks for the warp's blocks before `limit`, as places are empty.
    AMK_DEVICE bool request_until(u32 limit) {
#pragma unroll 1
        while (any((int)(limit - number) > 0 && !walk.ended())) {
            if (!c.await(
                    [&] { return M::has_count(c.s.cache_read, number, M::read_before(number)); }))
                return false;
            const u32 full = shared_address(c.s.cache_full + M::place(number));
            const u8* const from = c.p.kv + A::in_page(page, layer, row);
            if (c.lane == 0) barrier_expect(full, A::BLOCK_BYTES);
            copy_runs(
                c.lane, 1, A::BLOCK_BYTES, full,
                [&](u32) { return M::place_at(c.data, number) + M::COPIED_AT; },
                [&](u32) { return from; });
            arrive_after_copies(full);
            number += AMK_COPIERS, advance(AMK_COPIERS);
        }
        return true;
    }
    AMK_DEVICE bool await_copy(u32 block) const {
        const u32 full = shared_address(c.s.cache_full + M::place(block));
        return c.await([&] { return barrier_passed(full, block / M::PLACES & 1); });
    }
    // Stores each tile as matrices, where it was.
    AMK_DEVICE void lay_out(u32 block) const {
#if __CUDA_ARCH_FEAT_SM90_ALL
        const u32 to = M::place_at(c.data, block), into = to + M::matrix_row(c.lane),
                  from = to + M::COPIED_AT + c.lane * CACHE_LANE;
#pragma unroll 2
        for (u32 tile = 0; tile < 8 * A::TILES; tile++)
            store_matrices(into + tile * AMK_TILE, load_shared_tile(from + tile * CACHE_TILE));
        fence_shared_copies(); // products read it
#endif
    }
    AMK_DEVICE bool run() {
#pragma unroll 1
        for (u32 block = number; any(block != number || !walk.ended()); block += AMK_COPIERS) {
            if (!request_until(block + AHEAD) || !await_copy(block)) return false;
            lay_out(block);
            __syncwarp();
            if (c.lane == 0) count_by(c.s.cache_ready[M::place(block)], 1);
        }
        return true;
    }
};

// Brings the blocks of a task's rows. Returns whether the consumers are still there. They may be at
// the next task before a warp without a block has looked for the inputs.
template <class A> AMK_DEVICE bool copy_blocks(Copier& c, const Record& r) {
    const u32 end = min(r.aux + r.units, c.p.row_count);
    if (any(end <= r.aux)) return true;
    if (!c.await_memory()) return false;
    BlockCopies<A> copies(c, r, end);
    if (any(!copies.walk.ended()) && !c.await_inputs()) return false;
    c.tasks++;
    return copies.run();
}
#endif
