// Deals out the positions of attention (turns.cuh) without a GPU: at every position each one of the cache, and the step's own, is some
// warp's once (those before a window at most once), where the loader puts it; all warps hold and give back the same slots of the ring, of which there are AMK_SLOTS; and the
// loader asks for the same chunks.
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
constexpr int SCRATCH_FLOATS = 4352; // as vm/worker.cuh has it
constexpr u32 FRESH = ~0u;
struct Params {
    u8* kv;
    u32 kv_blocks, pos;
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
        const u32 blocks = 33000 / 64 + 1, cache = A::KV_HEADS * 2 - 1;
        Loading l = {{CACHE, blocks, 0}, pos, 0, {0}};
        const Record r = {A::KV_HEADS - 1, 1, split};
        Feed feed = {};
        u32 piece = 0;
        for (;;) {
            if (!feed.left) attention_feed<A>(l, r, feed);
            if (!feed.left) break;
            const u32 bytes = min(feed.left, feed.slot);
            if (piece == chunks.size()) wrong("the loader asks for a chunk too many", split, 0, feed.at);
            const u32 at = chunks[piece++], groups = held(at);
            if (u64(feed.from - CACHE) != (u64)cache * blocks * A::BLOCK_BYTES + (u64)at / 16 * A::GROUP_BYTES) wrong("the loader asks for another place", split, 0, at);
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
                      + check<Attention<256, 8, 1, 5, 4, false, 256, 333>>() + check<Attention<256, 2, 8, 1, 2, false, 256, 0>>();
    printf("%u steps\n", steps);
}
