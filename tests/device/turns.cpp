// Deals out the positions of attention (turns.cuh) without a GPU: at every position each one of the cache, and the step's own, is some
// warp's once (those before a window at most once), where the loader puts it; all warps hold and give back the same slots of the ring, of which there are AMK_SLOTS; and the
// loader asks for the same chunks. With AMK_PAGED the blocks of the cache are where a page table says.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
using std::min;
#define AMK_DEVICE inline
#define AMK_CHUNK 32768
#define AMK_WARPS 16
#define AMK_HEAD_DIM 256
#define AMK_COPIES 1
#define AMK_LAYERS 2
#define AMK_GROUPS 1
constexpr int SCRATCH_FLOATS = 4352; // as vm/worker.cuh has it
constexpr u32 FRESH = ~0u;
struct Params {
    u8* kv;
    u32 kv_blocks, pos;
    const u32* page_tables;
};
struct Record { // what the loader reads of it
    u32 row, layer, aux;
};
struct Feed { // as vm/loader.cuh has it
    const u8* from;
    u32 left, slot, at, pass;
};
struct {
    u32 x = 132;
} gridDim;
inline u32 shared_address(const void*) { return FRESH; }
#include "turns.inc"

// A warp with a ring that never wraps.
struct Warp {
    u32 warp, released;
    struct {
        u8 fresh[1];
    } s;
    u32 acquire(u32 ahead = 0) {
        if (ahead >= AMK_SLOTS) exit(printf("warp %u waits for slot %u of %u\n", warp, ahead, AMK_SLOTS));
        return (released + ahead) * AMK_CHUNK;
    }
    void release() { released++; }
};

// The loader of a launch from position 0 on, in a cache that begins at CACHE.
u8* const CACHE = (u8*)(1 << 20);
struct Loading {
    Params p;
    u32 pos, awaited;
    struct {
        u32 unpaced;
    } pace;
    void await_appended() { awaited++; }
};

// The page table of a sequence: other pages than its neighbours', in no order.
constexpr u32 BLOCKS = 33000 / 64 + 1, PAGES = 2 * BLOCKS + 1;
static std::vector<u32> table() {
    std::vector<u32> pages;
    for (u32 b = 0; b < BLOCKS; b++) pages.push_back((b * 37 + 5) % PAGES);
    return pages;
}
static const std::vector<u32> TABLE = table();

// The first byte of the group of a position in the cache of a layer and a head.
template <class A> u64 place(u32 layer, u32 head, u32 at) {
    const u64 caches = AMK_LAYERS * A::KV_HEADS, cache = layer * A::KV_HEADS + head;
    const u64 block = AMK_PAGED ? TABLE[at / 64] * caches + cache : cache * BLOCKS + at / 64;
    return block * A::BLOCK_BYTES + at % 64 / 16 * A::GROUP_BYTES;
}

// Each block of each layer and head has a place of its own, all are within the pages.
template <class A> void places() {
    const Params p = {CACHE, BLOCKS, 0, TABLE.data()};
    const u32 caches = AMK_LAYERS * A::KV_HEADS;
    std::vector<bool> taken(caches * (AMK_PAGED ? PAGES : BLOCKS));
    for (u32 cache = 0; cache < caches; cache++)
        for (u32 b = 0; b < BLOCKS; b++) {
            const u64 at = A::block(p, cache / A::KV_HEADS, cache % A::KV_HEADS, b), number = at / A::BLOCK_BYTES;
            if (at != place<A>(cache / A::KV_HEADS, cache % A::KV_HEADS, 64 * b)) exit(printf("block %u of cache %u is at %llu\n", b, cache, at));
            if (number >= taken.size() || taken[number]) exit(printf("block %u of cache %u is at %llu, where another is\n", b, cache, at));
            taken[number] = true;
        }
}

template <class A> struct Check {
    u32 pos;
    std::vector<u32> seen;

    void wrong(const char* what, u32 split, u32 warp, u32 at) {
        exit(printf("%s: position %u of step %u, split %u of %d, warp %u; heads of %d, groups of %d, runs of %d\n", what, at, pos, split, A::SPLITS, warp, A::HEAD_DIM, A::GROUP, A::RUN));
    }
    // One group of a warp; `chunks` are those of its split.
    void attends(const Turns<A>& turns, const std::vector<u32>& chunks, u32 split, u32 warp, u32 groups) {
        const u32 team = warp / A::TEAM;
        if (team >= (u32)A::WARPS) wrong("a warp without a place for its output", split, warp, turns.first);
        for (u32 at = turns.first; at < turns.limit && at < turns.first + 16; at++) {
            seen[at]++;
            if (at == pos) {
                if (turns.group != FRESH || turns.first != pos) wrong("not where the step's own is", split, warp, at);
                if (team != groups % A::WARPS) wrong("not the team after the last group's", split, warp, at);
                continue;
            }
            if (!A::owner(at, split)) wrong("another split's", split, warp, at);
            const u32 chunk = turns.group / AMK_CHUNK, group = turns.group % AMK_CHUNK / A::GROUP_BYTES;
            if (chunk >= chunks.size() || chunks[chunk] + 16 * group != turns.first) wrong("not where the loader puts it", split, warp, at);
        }
    }
    // Groups of the chunk at a position.
    u32 held(u32 at) const { return min((pos - at + 15) / 16, (u32)A::CHUNK_GROUPS); }
    // The pieces that the loader asks for, of the last head of the second layer.
    void fed(u32 split, const std::vector<u32>& chunks) {
        // Of the blocks before a window the table has none.
        std::vector<u32> table = TABLE;
        std::fill(table.begin(), table.begin() + A::begin(pos) / 64, ~0u);
        Loading l = {{CACHE, BLOCKS, 0, table.data()}, pos, 0, {0}};
        const Record r = {A::KV_HEADS - 1, 1, split};
        Feed feed = {};
        u32 piece = 0;
        for (;;) {
            if (!feed.left) attention_feed<A>(l, r, feed);
            if (!feed.left) break;
            const u32 bytes = min(feed.left, feed.slot);
            if (piece == chunks.size()) wrong("the loader asks for a chunk too many", split, 0, feed.at);
            const u32 at = chunks[piece++], groups = held(at);
            if (u64(feed.from - CACHE) != place<A>(r.layer, r.row, at)) wrong("the loader asks for another place", split, 0, at);
            if (bytes != groups * A::GROUP_BYTES || bytes > AMK_CHUNK) wrong("the loader asks for other bytes", split, 0, at);
            feed.from += bytes, feed.left -= bytes;
        }
        if (piece != chunks.size()) wrong("the loader leaves out a chunk", split, 0, piece);
        if (l.awaited != (pos && A::owner(pos - 1, split))) wrong("the loader waits for another step's key and value", split, 0, pos);
    }
    void split(u32 split) {
        std::vector<u32> chunks;
        u32 cached = 0; // groups
        for (Chunks<A> chunk(split, A::begin(pos)); chunk.at < pos; chunk.next()) chunks.push_back(chunk.at), cached += held(chunk.at);
        fed(split, chunks);
        const bool owns = A::owner(pos, split);
        for (u32 warp = 0; warp < AMK_WARPS; warp++) {
            Warp w = {warp, 0, {{0}}};
            Turns<A> turns(w, split, pos, owns);
            const bool settled = turns.last;
            const u32 groups = turns.groups;
            if (groups == (u32)A::WARPS && !owns && !settled) wrong("looks for a second group of no warp", split, warp, turns.first);
            turns.begin();
            do {
                if (turns.first >= turns.limit) continue;
                attends(turns, chunks, split, warp, cached);
                if (settled && warp / A::TEAM >= groups + owns) wrong("a warp beyond those that are merged", split, warp, turns.first);
            } while (turns.next(w, pos, owns));
            turns.release(w);
            if (w.released != chunks.size()) wrong("not all slots are given back", split, warp, w.released);
        }
    }
    void run() {
        seen.assign(pos + 1, 0);
        for (u32 s = 0; s < A::active(pos); s++) split(s);
        for (u32 at = 0; at <= pos; at++)
            if (seen[at] != (u32)A::TEAM && (seen[at] || at >= A::begin(pos))) wrong(seen[at] ? "not once by each warp of a team" : "nobody", 0, 0, at);
    }
};

template <class A> u32 check() {
    u32 steps = 0;
    places<A>();
    for (u32 pos = 0; pos < 33000; pos += pos < 1100 ? 1 : 211, steps++) Check<A>{pos, {}}.run();
    return steps;
}

int main() {
    const u32 steps = check<Attention<64, 3, 3, 44, 4, false, 64, 0>>() + check<Attention<128, 2, 8, 16, 4, true, 128, 0>>() + check<Attention<64, 4, 8, 16, 4, false, 64, 0>>()
                      + check<Attention<128, 4, 8, 16, 4, false, 128, 0>>() + check<Attention<64, 8, 4, 3, 2, false, 64, 0>>() + check<Attention<128, 8, 2, 5, 6, false, 128, 0>>()
                      + check<Attention<64, 1, 3, 1, 2, false, 64, 0>>() + check<Attention<128, 1, 1, 132, 2, true, 128, 0>>()
                      + check<Attention<128, 4, 8, 16, 4, false, 96, 4096>>() + check<Attention<64, 3, 3, 44, 4, false, 64, 1>>()
                      + check<Attention<64, 8, 4, 3, 2, false, 32, 700>>() + check<Attention<64, 1, 3, 1, 2, false, 64, 333>>()
                      + check<Attention<256, 2, 4, 33, 2, true, 256, 1024>>() + check<Attention<256, 4, 1, 132, 2, true, 256, 0>>()
                      + check<Attention<256, 8, 1, 5, 4, false, 256, 333>>() + check<Attention<256, 2, 8, 1, 2, false, 256, 0>>()
                      + check<Attention<80, 1, 32, 4, 2, false, 20, 0>>() + check<Attention<80, 8, 4, 3, 6, false, 80, 700>>()
                      + check<Attention<48, 3, 3, 44, 2, true, 48, 0>>() + check<Attention<112, 2, 8, 16, 4, false, 112, 333>>();
    printf("%u steps\n", steps);
}
