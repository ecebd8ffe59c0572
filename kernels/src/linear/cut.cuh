// The partition of a projection's weights into groups of units, passes and blocks, as the consumers
// and the loader take them.
#pragma once
#include "inputs.cuh"

// The partition of a projection's tape. Units are taken in groups, a group in passes over k of
// `depth` tiles per warp, the last one of what is left. A block is the data of one unit in one
// pass. A ring slot holds whole blocks of one pass, so no block is split.
struct GemvCut {
    u32 tiles, depth, passes;

    AMK_DEVICE explicit GemvCut(const GemvShape& g) : tiles(g.tiles()) {
        const u32 deep = (tiles + AMK_WARPS - 1) / AMK_WARPS; // tiles per warp
        passes = (deep + AMK_DEPTH - 1) / AMK_DEPTH;
        // What a record says would need a register.
        depth = AMK_ALIKE ? quotient(deep + passes - 1, passes) : g.depth;
    }
    AMK_DEVICE u32 first(u32 pass) const { return pass * (depth * AMK_WARPS); }
    AMK_DEVICE u32 count(u32 pass) const {
        return pass + 1 < passes ? depth * AMK_WARPS : tiles - first(pass);
    }
    // Blocks of so many tiles in a slot.
    AMK_DEVICE static u32 blocks(u32 count, u32 tile) {
        return quotient(AMK_SLOT_BYTES / tile, count);
    }
    // For small numbers. The half keeps the quotient off integer boundaries.
    AMK_DEVICE static u32 quotient(u32 a, u32 b) { return u32(__fdividef(a + 0.5f, b)); }
};
AMK_DEVICE u32 group_units(const Record& r, u32 first) {
    return r.units - first < AMK_GROUP_UNITS ? r.units - first : AMK_GROUP_UNITS;
}

// How many units from `first` on are reduced together: a group, or else whole slots of the ring,
// within a group if there are several passes over it.
AMK_DEVICE u32 units_together(const Record& r, u32 kind, const GemvCut& cut, u32 first) {
    if (AMK_ROW_UNITS == AMK_GROUP_UNITS) return group_units(r, first);
    const u32 slot = cut.blocks(cut.count(0), tile_bytes(kind)),
              most =
                  slot < AMK_ROW_UNITS ? cut.quotient(AMK_ROW_UNITS, slot) * slot : AMK_ROW_UNITS,
              begin = first / AMK_GROUP_UNITS * AMK_GROUP_UNITS;
    const u32 end = cut.passes > 1 ? begin + group_units(r, begin) : r.units;
    return min(end - first, most);
}

// The same partition for the loader. A segment is one pass over units that are reduced together;
// the tape has each pass over a whole group.
AMK_DEVICE void gemv_feed(const Record& r, Feed& feed) {
    static_assert(AMK_DEPTH * AMK_WARPS * AMK_TILE <= AMK_CHUNK, "a block must fit a slot");
    const GemvShape g(r.shape);
    const GemvCut cut(g);
    const u32 tile = tile_bytes(g.kind), units = units_together(r, g.kind, cut, feed.at),
              count = cut.count(feed.pass), block = count * tile;
    if (AMK_ROW_UNITS < AMK_GROUP_UNITS && cut.passes > 1) {
        const u32 begin = feed.at / AMK_GROUP_UNITS * AMK_GROUP_UNITS, before = feed.at - begin,
                  group = group_units(r, begin), last = cut.passes - 1;
        if (feed.pass) // behind the units in the pass before
            feed.from +=
                (group - before - units) * cut.count(feed.pass - 1) * tile + before * block;
        else if (before) // behind those before these, in the last pass
            feed.from +=
                before * block - (u64)(group * cut.first(last) + before * cut.count(last)) * tile;
    }
#if AMK_SPLIT_K
    // Helpers read the further passes of a split unit.
    if (const u32 kept = r.layer & 255) {
        if (feed.pass > kept) feed.from += cut.depth * AMK_WARPS * tile;
        if (units && feed.pass >= kept)
            feed.left = (units - 1) * block;
        else
            feed.left = units * block;
    } else
#endif
        feed.left = units * block;
    feed.slot = cut.blocks(count, tile) * block;
    if (++feed.pass == cut.passes) feed.pass = 0, feed.at += units;
}
#if AMK_SPLIT_K
// Passes over the columns of the last of another worker's units, from its tape: see `GemvCut`.
template <class L> AMK_DEVICE void addends_feed(L& l, const Record& r, Feed& feed) {
    const GemvShape g(r.shape);
    const GemvCut cut(g);
    const u32 tile = tile_bytes(g.kind), units = r.units;
    const u32 first = r.layer & 255, end = r.layer >> 8 & 255;
    if (!feed.at) {
        feed.at = 1, feed.pass = first;
        feed.from = l.p.tape + (l.p.tape_at[r.layer >> 16] + (u64)r.aux * 16) +
                    cut.first(first) * (units * tile);
    }
    if (feed.pass == end) return;
    const u32 block = cut.count(feed.pass++) * tile;
    feed.from += (units - 1) * block;
    feed.left = feed.slot = block;
}
#endif
