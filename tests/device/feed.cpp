// The order in which the loader of a narrow step of rows takes a projection's tape, without a GPU:
// for units that are reduced together one pass after the other, and every block once.
#define AMK_WARPS 16
#define AMK_ROWS 8
#define AMK_TILE 512
#include "passes.h"
#include "worker.h"

static const u32 BYTES[] = {AMK_TILE, 272, 144};
static u32 tile_bytes(u32 kind) { return BYTES[kind]; }
#include "feed.inc"

static void check(u32 tiles, u32 kind, u32 depth, u32 units) {
    const Record r = {units, 0, 0, tiles | kind << GEMV_TILE_BIT | depth << GEMV_DEPTH_BIT, 0, 0, 0, 0, 0, 0};
    const GemvCut cut(GemvShape(r.shape));
    const auto block = [&](u32 pass) { return cut.count(pass) * BYTES[kind]; };
    // A tape has each pass over a whole group.
    const auto place = [&](u32 unit, u32 pass) {
        const u32 begin = unit / AMK_GROUP_UNITS * AMK_GROUP_UNITS, group = min(units - begin, AMK_GROUP_UNITS);
        return (begin * tiles + group * cut.first(pass)) * BYTES[kind] + (unit - begin) * block(pass);
    };
    const auto fail = [&](const char* what, u32 unit, u32 pass) {
        printf("%s: %u tiles of %u bytes, ", what, tiles, BYTES[kind]);
        exit(printf("unit %u of %u, pass %u\n", unit, units, pass));
    };
    const u8* const tape = nullptr;
    Feed feed = {tape};
    for (u32 done = 0; done < units;) {
        u32 together = 0;
        for (u32 pass = 0; pass < cut.passes; pass++) {
            gemv_feed(r, feed);
            if (!pass) together = feed.left / block(0);
            const u32 end = done + together, slot = AMK_CHUNK / block(pass);
            if (!together || together > AMK_ROW_UNITS || end > units) fail("units", done, pass);
            if (feed.from - tape != place(done, pass)) fail("another place", done, pass);
            if (feed.left != together * block(pass)) fail("another length", done, pass);
            if (feed.slot != slot * block(pass)) fail("another slot", done, pass);
            const bool ends = end == units || (cut.passes > 1 && end % AMK_GROUP_UNITS == 0);
            const bool whole = together % slot == 0 || slot > AMK_ROW_UNITS;
            if (!pass && !ends && !whole && together < AMK_GROUP_UNITS) fail("a slot", done, pass);
            feed.from += feed.left, feed.left = 0;
        }
        done += together;
    }
    gemv_feed(r, feed);
    if (feed.left) fail("more than all", units, 0);
}

int main() {
    for (u32 tiles : {2, 18, 48, 64, 70, 96, 128, 176, 256, 448})
        for (u32 kind = 0; kind < 3; kind++)
            for (u32 depth : {even_depth(tiles), tiles > 64 ? 4 : even_depth(tiles)})
                for (u32 units = 1; units <= 50; units++) check(tiles, kind, depth, units);
    printf("ok\n");
}
