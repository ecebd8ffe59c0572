// Stages of a wide projection: some tiles of k, weights and inputs, which the copying warps bring
// into the memory of the ring.
#pragma once
#include "../../../amk/cuda/device/exchange.cuh"
#include "rows.cuh"
#include "wgmma.cuh"

#if AMK_WIDE
// Columns of a product.
constexpr u32 WIDE_COLUMNS = AMK_ROWS <= 16 ? 16 : AMK_ROWS <= 32 ? 32 : AMK_ROWS <= 64 ? 64 : 128;
// The memory of stages: the ring's slots and what a worker has beside them, less than another slot.
constexpr u32 SLOT_BYTES = AMK_SLOTS * AMK_CHUNK, MORE_BYTES = SLOT_BYTES + AMK_CHUNK - 1024,
              ALL_BYTES = (AMK_SHARED_BYTES - sizeof(Shared)) / 1024 * 1024,
              WIDE_MEMORY = AMK_SHARED_BYTES == 0    ? SLOT_BYTES
                            : ALL_BYTES < MORE_BYTES ? ALL_BYTES
                                                     : MORE_BYTES;
constexpr u32 THREADS = AMK_WARPS * 32;
// Whether teams multiply codes: with 16 columns warps by themselves are as fast, and with few units
// faster, as half of a team would have none.
constexpr bool TEAMS_OF_CODES = HAS_WGMMA && WIDE_COLUMNS == 32;
constexpr u32 FEW_UNITS = 4;
constexpr u32 MOST_STEP = 16; // tiles of a stage at most,
constexpr u32 IN_FLIGHT = 4;  // if so many stages fit the slots,
constexpr u32 OF_CODES = 3;   // or so many of codes all memory, as their norm costs a barrier each
static_assert(WIDE_UNITS == 2 * AMK_WARPS, "a group has the units of all warps");

AMK_DEVICE void copy_16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
AMK_DEVICE void copy_4(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Waits for the thread's own copies other than those in bulk.
AMK_DEVICE void await_own_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Copies contiguous runs of bytes, run `k` of `count` from `from(k)` to `to(k)`, by the lanes of a
// warp; counted by a barrier.
template <class To, class From>
AMK_DEVICE void copy_runs(u32 lane, u32 count, u32 bytes, u32 barrier, To to, From from) {
#if __CUDA_ARCH__ >= 900
#pragma unroll 1
    for (u32 k = lane; k < count; k += 32)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
            "%2, [%3];" ::"r"(to(k)),
            "l"(from(k)), "r"(bytes), "r"(barrier)
            : "memory");
#else
    for (u32 k = 0; k < count; k++)
        for (u32 at = lane * 16; at < bytes; at += 512)
            copy_16(to(k) + at, (const u8*)from(k) + at);
#endif
}

// The tiles of k that a record multiplies: all of them, or a share's.
struct TileRange {
    u32 first, count;

    AMK_DEVICE TileRange(const Record& r, const GemvShape& g) : first(0), count(g.tiles()) {
        if (is_share(g)) first = r.row & 0xffff, count = (r.row >> 16) - first;
    }
    AMK_DEVICE static bool is_share(const GemvShape& g) {
        return AMK_SHARED_COLUMNS && g.input == IN_SHARE;
    }
};

// How a group of units is computed.
struct WideGroup {
    u32 tiles;
    u32 column, columns; // the first, and how many
    u32 first, units;    // of the record's
    u32 log_team;        // of the warps that multiply together, each two units
    u32 log_parts;       // of the teams by units
    u32 shares;          // teams by tiles of a stage
    u32 tile;            // bytes of a tile
    u32 step, log;       // tiles of a stage, and its logarithm
    u32 block;           // bytes of 64 inputs of all columns
    bool norms;          // the stages have the norm's weights
    bool gathers;        // their inputs do not come in bulk
    u32 bytes, stages;   // of a stage; stages in memory

    AMK_DEVICE WideGroup(const Record& r, const GemvShape& g, u32 first, u32 column, u32 columns,
                         bool gathers)
        : tiles(TileRange(r, g).count), column(column), columns(columns), first(first),
          units(min(r.units - first, WIDE_UNITS)), tile(tile_bytes(g.kind)),
          norms(g.flags & GEMV_NORM), gathers(gathers) {
        const bool coded = WIDE_COLUMNS <= CODED_COLUMNS && tile != AMK_TILE;
        const u32 by_team = TEAMS_OF_CODES && units > FEW_UNITS ? tile_teams(g.kind) : 0;
        // Tiles of a stage are shared out one by one, those in codes several at a time.
        const u32 each = !coded ? 1 : by_team ? by_team : 2;
        // Those of a share are whole stages, but for the last ones.
        const u32 most = TileRange::is_share(g) ? SHARE_TILES : MOST_STEP;
        log_team = coded && !by_team ? 0 : 2, log_parts = 32 - __clz((units - 1) >> (log_team + 1));
        // A stage has tiles for all.
        while (AMK_WARPS * each >> (log_team + log_parts) > most) log_parts++;
        shares = AMK_WARPS >> (log_team + log_parts), block = WIDE_COLUMNS * LINE;
        // A stage costs a wait whatever its length, which is as if it had a norm's weights. Tiles
        // are shared out alike in stages of any length, so sums do not depend on it.
        step = max(max(shares * each, 2u), tile_pack(g.kind));
        const u32 fit = coded ? OF_CODES : IN_FLIGHT, room = coded ? WIDE_MEMORY : SLOT_BYTES;
        while (step < most && fit * stage(2 * step, true) <= room) step *= 2;
        log = 31 - __clz(step), bytes = stage(step, norms);
        // Products of tiles of bf16 have all units of each team: beyond the last one they read the
        // memory behind it, and nobody reads their sums.
        const u32 reach = tile == AMK_TILE ? part_units() * step * tile : 0;
        stages = min((WIDE_MEMORY - (reach > bytes ? reach - bytes : 0)) / bytes, WIDE_STAGES);
    }
    AMK_DEVICE u32 stage(u32 step, bool norms) const {
        return whole(weights(step)) + whole(step / 2 * block + (norms ? 64 * step : 0));
    }
    AMK_DEVICE u32 weights(u32 step) const { return units * step * tile; }
    // What products read of the inputs begins at multiples of 1024.
    AMK_DEVICE static u32 whole(u32 bytes) { return (bytes + 1023) / 1024 * 1024; }
    AMK_DEVICE u32 count() const { return (tiles + step - 1) >> log; }
    AMK_DEVICE u32 inputs(u32 at) const { return at + whole(weights(step)); }
    AMK_DEVICE u32 gamma(u32 at) const { return inputs(at) + step / 2 * block; }
    AMK_DEVICE u32 team_units() const { return 2 << log_team; }
    AMK_DEVICE u32 part_units() const { return team_units() << log_parts; } // there or not
    AMK_DEVICE u32 pitch() const { return part_units() * AMK_UNIT + 4; }    // of a row's sums
    // Whether a warp delivers from registers, as nothing is added to its sums.
    AMK_DEVICE bool has_all() const { return WIDE_COLUMNS == 128 && shares == 1 && !norms; }
    // Where the sums are once all products are done, then the columns' scales and each warp's
    // squares of 8 columns: at the end of the memory, as the next weights come before it.
    AMK_DEVICE u32 scratch_at() const {
        return (WIDE_MEMORY - 4 * (sums() + WIDE_COLUMNS + 8 * AMK_WARPS)) & ~15u;
    }
    AMK_DEVICE u32 scales_at() const { return scratch_at() + 4 * sums(); }
    AMK_DEVICE u32 sums() const { return shares * columns * pitch(); }
    // The memory that nobody uses after the products.
    AMK_DEVICE u32 left() const { return has_all() ? WIDE_MEMORY : scratch_at(); }
};

// Waits for a barrier of the copying warps.
AMK_DEVICE void await_stage(const Worker& w, u32 barrier, u32 parity) {
    while (!all(barrier_passed(barrier, parity)))
        if (any(w.abandoned())) break;
}

// The groups of units and columns of a record, one after the other.
struct WideGroups {
    static constexpr bool SEVERAL = AMK_ROWS > BLOCK_ROWS; // groups of columns
    const Params& p;
    const Shared& s;
    const Record& r;
    const GemvShape& g;
    u32 number = 0;

    // Columns of the step, and of the record.
    AMK_DEVICE u32 all() const { return g.output == OUT_LOGITS ? s.wanted : p.row_count; }
    AMK_DEVICE u32 begin() const { return SEVERAL ? step_row(r) : 0; }
    AMK_DEVICE u32 end() const { return SEVERAL ? begin() + step_rows(r, all()) : all(); }
    AMK_DEVICE bool none() const { return r.units == 0 || end() == begin(); }
    // Whether the columns are some rows of the step, or of the embedding table.
    AMK_DEVICE bool gathers() const { return g.input == IN_EMBEDDING || all() != p.row_count; }

    AMK_DEVICE u32 of_units() const { return (r.units + WIDE_UNITS - 1) / WIDE_UNITS; }
    AMK_DEVICE u32 turn() const { return SEVERAL ? number / of_units() : 0; }
    AMK_DEVICE u32 column() const { return begin() + turn() * WIDE_COLUMNS; }
    AMK_DEVICE u32 first() const { return (number - turn() * of_units()) * WIDE_UNITS; }
    AMK_DEVICE u32 count() const {
        return SEVERAL ? (end() - begin() + WIDE_COLUMNS - 1) / WIDE_COLUMNS * of_units()
                       : of_units();
    }
    AMK_DEVICE bool ended() const { return number >= count(); }
    AMK_DEVICE WideGroup group() const {
        return {r, g, first(), column(), min(end() - column(), WIDE_COLUMNS), gathers()};
    }
};

// ---- what the consumers tell the copying warps ----
// Waits for the inputs of the task.
AMK_DEVICE void await_inputs(Worker& w, const Record& r) {
    before_task(w, r);
    if (w.thread() != 0) return;
    fence_copies(); // the inputs were written by stores
    barrier_arrive(shared_address(&w.s.inputs));
}
// All warps are done with the stages of a group, which others follow, and with their memory.
AMK_DEVICE void end_group(Worker& w) {
    if (w.thread() == 0) count_up(w.s.groups);
}
#endif
