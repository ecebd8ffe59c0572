// The distribution of attention: the splits of a key head's cache, the chunks of a split as they
// come through the ring, and the groups of 16 positions that each warp has in turn. Plain C++, so
// that a test can run it on the CPU.
#pragma once
#include "../abi.cuh"
#include "../../../amk/cuda/device/loader.cuh"

template <int HEAD_DIM_, int GROUP_, int KV_HEADS_, int SPLITS_, int RUN_, bool NORM_, int TURNED_,
          u32 WINDOW_, u32 FIRST_TURN_ = 0, u32 CAP_ = 0>
struct Attention {
    static constexpr int HEAD_DIM = HEAD_DIM_, GROUP = GROUP_, KV_HEADS = KV_HEADS_,
                         SPLITS = SPLITS_, RUN = RUN_;
    static constexpr bool NORM = NORM_;
    static constexpr int TURNED =
        TURNED_; // elements of a head that are rotated, the first ones, or 0
    static constexpr u32 WINDOW = WINDOW_;         // the last positions that count, or 0: all
    static constexpr u32 FIRST_TURN = FIRST_TURN_; // of its kind, among the turns of all
    static constexpr u32 CAP = CAP_;               // bits of the scores' bound, or 0: none
    static constexpr int TILES = HEAD_DIM / 16;
    // A warp has a head's vector in pairs of elements, lane l pair l of each 32; results are joined
    // in slices of 32 elements, the last one shorter where heads are not whole slices. No
    // variables: these would be in the cubin.
    enum : u32 {
        PAIRS = HEAD_DIM / 2,
        PER_LANE = (PAIRS + 31) / 32,
        SLICES = (HEAD_DIM + 31) / 32,
    };
    static constexpr int GROUP_BYTES = HEAD_DIM * 32 * AMK_CACHE_BYTES; // 16 positions of K and V
    static constexpr int BLOCK_BYTES = 4 * GROUP_BYTES;
    static constexpr int PITCH = HEAD_DIM + 4;
    // A team of warps has a group of positions: each has all scores, and a part of the values'
    // elements, whose sums would not fit the registers of one warp.
    static constexpr int TEAM = HEAD_DIM > 128 ? 2 : 1, TEAMS = AMK_WARPS / TEAM;
    static constexpr int OUT_TILES = TILES / TEAM;
    static constexpr int MAX_WARPS = SCRATCH_FLOATS / (GROUP * PITCH);
    static constexpr int WARPS = MAX_WARPS < TEAMS ? MAX_WARPS : TEAMS; // teams with outputs
    // Groups of a slot of the ring: as many as it holds, a team has at once and runs are made of;
    // of a page, where only the groups of a block are contiguous.
    AMK_DEVICE static constexpr int fitting(int groups) {
        return groups <= WARPS && groups * GROUP_BYTES <= AMK_CHUNK && RUN * 4 % groups == 0
                   ? groups
                   : fitting(groups / 2);
    }
    static constexpr int CHUNK_GROUPS =
        AMK_PAGED && AMK_CHUNK > 4 * GROUP_BYTES ? 4 : fitting(AMK_WARPS);
    // Whether a worker keeps of its own group the words that are not always 0.
    static constexpr bool COMPACT = HEAD_DIM > 128;
    static_assert(HEAD_DIM % 16 == 0 && TILES % TEAM == 0 && HEAD_DIM <= AMK_HEAD_DIM &&
                      GROUP <= 8 && WARPS >= CHUNK_GROUPS && RUN * 4 % CHUNK_GROUPS == 0,
                  "unsupported attention shape");

    // Whether a lane has pair `j` of its own, and how far what it reads is from its first one: an
    // earlier pair if not.
    AMK_DEVICE static bool has(u32 lane, u32 j) { return PAIRS % 32 == 0 || lane + 32 * j < PAIRS; }
    AMK_DEVICE static int apart(u32 lane, int j) {
        return has(lane, j) ? 32 * j : (int)PAIRS - 1 - (int)lane;
    }
    // Whether a slice has an element `at`; where it is among those of all heads; and which of the
    // slice is read for it and `more` after it: an earlier one if it has none.
    AMK_DEVICE static bool sliced(u32 slice, u32 at) {
        return HEAD_DIM % 32 == 0 || slice % SLICES * 32 + at < HEAD_DIM;
    }
    AMK_DEVICE static u32 of_slice(u32 slice, u32 at) {
        return HEAD_DIM % 32 == 0 ? slice * 32 + at
                                  : slice / SLICES * HEAD_DIM + slice % SLICES * 32 + at;
    }
    AMK_DEVICE static u32 within(u32 slice, u32 at, u32 more) {
        return HEAD_DIM % 32 == 0 ? at : min(at, HEAD_DIM - 1 - more - slice % SLICES * 32);
    }

    // Where the key of a kept head is among those of all heads, queries first; so many further is
    // its value. AMK_COPIES of each head are kept, so that few query heads share one.
    AMK_DEVICE static u32 key_head(u32 kept) { return KV_HEADS * GROUP + kept / AMK_COPIES; }
    AMK_DEVICE static u32 to_value() { return KV_HEADS / AMK_COPIES; }
    // The first position that counts at `pos`.
    AMK_DEVICE static u32 begin(u32 pos) { return WINDOW && pos >= WINDOW ? pos + 1 - WINDOW : 0; }
    AMK_DEVICE static u32 active(u32 pos) {
        u32 runs = (pos / 64) / RUN + 1;
        return runs < SPLITS ? runs : SPLITS;
    }
    AMK_DEVICE static bool owner(u32 pos, u32 split) { return (pos / 64) / RUN % SPLITS == split; }
    // The entry of block `b` in page tables, which have those of all groups side by side. A window
    // has a group of its own.
    AMK_DEVICE static u32 entry(u32 b) {
#if AMK_GROUPS > 1
        return b * AMK_GROUPS + AMK_GROUP_OF(WINDOW);
#else
        return b;
#endif
    }
    // Where the cache has block `b` of a layer and a head.
    AMK_DEVICE static u64 block(const Params& p, u32 layer, u32 head, u32 b) {
#if AMK_PAGED
        return in_page(p.page_tables[entry(b)], layer, head);
#else
        return ((u64)(layer * KV_HEADS + head) * p.kv_blocks + b) * BLOCK_BYTES;
#endif
    }
    // Where a page of its group has its block of a layer and a head.
    AMK_DEVICE static u64 in_page(u64 page, u32 layer, u32 head) {
#if AMK_GROUPS > 1
        return page * AMK_PAGE_BYTES(AMK_GROUP_OF(WINDOW)) +
               (layer * KV_HEADS + head) * BLOCK_BYTES;
#elif AMK_CONVS // whose inputs a page has as well
        return page * AMK_KV_PAGE + (layer * KV_HEADS + head) * BLOCK_BYTES;
#else
        return ((page * AMK_LAYERS + layer) * KV_HEADS + head) * BLOCK_BYTES;
#endif
    }
};

// Iterates over the chunks of cached positions in `split`, in order, each by its first position.
template <class A> struct Chunks {
    static constexpr u32 RUN = A::RUN * 64, LEN = A::CHUNK_GROUPS * 16;
    u32 at;

    // Begins with the first chunk that has a position from `begin` on.
    AMK_DEVICE explicit Chunks(u32 split, u32 begin = 0) : at(split * RUN) {
        if (A::WINDOW == 0 || begin < at) return;
        at += begin / (A::SPLITS * RUN) * (A::SPLITS * RUN);
        if (begin < at) return;
        at += begin >= at + RUN ? A::SPLITS * RUN : (begin - at) / LEN * LEN;
    }
    // Groups with positions below `pos`, of which there is at least one.
    AMK_DEVICE u32 groups(u32 pos) const { return min((pos - at + 15) / 16, (u32)A::CHUNK_GROUPS); }
    AMK_DEVICE void next() {
        at += LEN;
        if (at % RUN == 0) at += (A::SPLITS - 1) * RUN;
    }
};

// Feeds the loader: a segment is a run of the split, over pages a block of it; a piece is a chunk.
template <class A, class L> AMK_DEVICE void attention_feed(L& l, const Record& r, Feed& feed) {
    constexpr u32 RUN = Chunks<A>::RUN, STRIDE = A::SPLITS * RUN, POSITION = A::GROUP_BYTES / 16,
                  SEGMENT = AMK_PAGED ? 64 : RUN;
    if (feed.pass) { // from the end of the segment before, as the pieces have moved `from`
        const u32 skipped = A::WINDOW ? feed.at % SEGMENT : 0;
        if (AMK_PAGED) {
            feed.at += SEGMENT - skipped;
            if (feed.at % RUN == 0) feed.at += STRIDE - RUN;
        } else
            feed.at += STRIDE - skipped, feed.from += (STRIDE - RUN) * POSITION;
    } else {
        feed.at = Chunks<A>(r.aux, A::begin(l.pos)).at;
        if (!AMK_PAGED) feed.from = l.p.kv + A::block(l.p, r.layer, r.row, 0) + feed.at * POSITION;
        if (l.pos != l.p.pos && A::owner(l.pos - 1, r.aux)) l.await_appended();
    }
    if (feed.at < l.pos) {
        if (AMK_PAGED)
            feed.from =
                l.p.kv + A::block(l.p, r.layer, r.row, feed.at / 64) + feed.at % SEGMENT * POSITION;
        feed.left = (min(l.pos - feed.at, SEGMENT - (A::WINDOW ? feed.at % SEGMENT : 0)) + 15) /
                    16 * A::GROUP_BYTES,
        feed.slot = A::CHUNK_GROUPS * A::GROUP_BYTES, feed.pass++;
        return;
    }
    // Data prefetched by this worker, but not by others, adds to its share of the bandwidth.
    const u32 busy = A::active(l.pos) * A::KV_HEADS;
    if (!feed.pass || busy >= gridDim.x) return;
    const u32 positions = AMK_PAGED ? feed.pass * SEGMENT
                                    : (feed.pass - 1) * RUN + min(l.pos - (feed.at - STRIDE), RUN);
    l.pace.unpaced = positions * POSITION / gridDim.x * (gridDim.x - busy);
}

// The positions of a team, one group at a time: team i % WARPS has group i, and the step's own
// position is the last group. Neither the distribution nor the sums depend on the ring.
template <class A> struct Turns {
    static constexpr u32 CHUNK = A::CHUNK_GROUPS,
                         ROUND = A::WARPS / CHUNK < AMK_SLOTS ? A::WARPS / CHUNK : AMK_SLOTS;
    Chunks<A> chunk;
    u32 held, groups;        // ring slots; groups distributed before the query arrives
    u32 first, limit, group; // positions (none if equal) and their shared address
    u32 turn;                // groups distributed so far
    bool last;               // no warp has a group after this one

    // If a split has at most one run and no team has two groups, the distribution is known before
    // the query arrives: team i has group i.
    template <class W>
    AMK_DEVICE Turns(W& w, u32 split, u32 pos, bool owns)
        : chunk(split, A::begin(pos)), held(0), groups(0), first(pos), limit(pos), group(0) {
        constexpr u32 MOST = ROUND * Chunks<A>::LEN, RUN = A::SPLITS == 1 ? ~0u : Chunks<A>::RUN;
        const bool one = (A::WINDOW == 0 || pos < A::WINDOW) &&
                         (pos <= min(RUN, MOST) || (RUN <= MOST && pos <= A::SPLITS * RUN));
        const u32 team = w.warp / A::TEAM;
        if (one) {
            groups = (min(pos - chunk.at, RUN) + 15) / 16, held = (groups + CHUNK - 1) / CHUNK;
            if (team < groups)
                first = chunk.at + 16 * team,
                group = w.acquire(team / CHUNK) + team % CHUNK * A::GROUP_BYTES;
            chunk.at = pos;
        }
        last = one && (groups < A::WARPS || !owns);
        if (last && owns && team == groups)
            first = pos, limit = pos + 1, group = shared_address(w.s.fresh);
    }
    // Called when the query has arrived. Registers are short before.
    AMK_DEVICE void begin() { turn = groups; }
    template <class W> AMK_DEVICE void release(W& w) {
        for (; held; held--) w.release();
    }
    // Advances to the next group, if there is one.
    template <class W> AMK_DEVICE bool next(W& w, u32 pos, bool owns) {
        if (last) return false;
        release(w);
        const u32 team = w.warp / A::TEAM,
                  mine =
                      team < A::WARPS ? (team + A::WARPS - turn % A::WARPS) % A::WARPS : AMK_WARPS;
        if (chunk.at < pos) {
            group = w.acquire() + mine * A::GROUP_BYTES,
            first = mine < CHUNK ? chunk.at + 16 * mine : pos;
            held = 1, turn += chunk.groups(pos), chunk.next();
            return true;
        }
        if (!owns) return false;
        last = true, group = shared_address(w.s.fresh), first = pos, limit = pos + (mine == 0);
        return true;
    }
};
