// Stages of a wide projection: some tiles of k, weights and inputs, which the copying warps bring
// into the memory of the ring. The consumers list what there is to copy for a group of units before
// they wait for the task's inputs, so the weights of its first stages are on their way by then.
#pragma once
#include "../../../amk/cuda/device/exchange.cuh"
#include "boxes.cuh"
#include "wgmma.cuh"

#if AMK_WIDE
constexpr u32 WIDE_COLUMNS = AMK_ROWS <= 16 ? 16 : AMK_ROWS <= 32 ? 32 : AMK_ROWS <= 64 ? 64 : 128;
// Columns of a product of so many rows. With more of them registers are too short for the code of
// two widths.
AMK_DEVICE u32 wide_columns(u32 rows) {
    return WIDE_COLUMNS == 32 && rows <= 16 ? 16 : WIDE_COLUMNS;
}
constexpr u32 WIDE_MEMORY = AMK_SLOTS * AMK_CHUNK;
constexpr u32 THREADS = AMK_WARPS * 32;
constexpr u32 CODED_COLUMNS = 32; // up to which a warp has codes to itself: see `multiply_codes`
constexpr u32 WIDE_AHEAD = 128 << 10; // bytes of the tape that go ahead to the L2 cache,
constexpr u32 AHEAD_COLUMNS = 64;     // for so many columns at most
constexpr u32 MOST_STEP = 16;         // tiles of a stage at most,
constexpr u32 IN_FLIGHT = 4;          // if so many stages fit
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

// The tiles of k that a record multiplies: all of them, or those of a share.
struct TileRange {
    u32 first, count;

    AMK_DEVICE TileRange(const Record& r, const GemvShape& g) : first(0), count(g.tiles()) {
        if (is_share(g)) first = r.layer & 0xffff, count = (r.layer >> 16) - first;
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
    u32 team;            // warps that multiply together, each two units
    u32 parts, shares;   // teams by units, and by tiles of a stage
    u32 tile;            // bytes of a tile
    u32 step, log;       // tiles of a stage, and its logarithm
    u32 block;           // bytes of 64 inputs of all columns
    bool norms;          // the stages have the norm's weights
    u32 bytes, stages;   // of a stage; stages in memory

    AMK_DEVICE WideGroup(const Record& r, const GemvShape& g, u32 first, u32 column, u32 columns)
        : tiles(TileRange(r, g).count), column(column), columns(columns), first(first),
          units(min(r.units - first, WIDE_UNITS)), tile(tile_bytes(g.kind)),
          norms(g.flags & GEMV_NORM) {
        const bool coded = WIDE_COLUMNS <= CODED_COLUMNS && tile != AMK_TILE;
        // Tiles of a stage are shared out one by one, those in codes two by two.
        const u32 each = coded ? 2 : 1;
        // Those of a share are whole stages, but for the last ones.
        const u32 most = TileRange::is_share(g) ? SHARE_TILES : MOST_STEP;
        team = coded ? 1 : 4, parts = 1u << (32 - __clz((units - 1) / team_units()));
        parts = max(parts, AMK_WARPS * each / (team * most)); // a stage has tiles for all
        shares = AMK_WARPS / team / parts, block = wide_columns(columns) * LINE;
        // A stage costs a wait whatever its length, which is as if it had a norm's weights. Tiles
        // are shared out alike in stages of any length, so sums do not depend on it.
        step = max(max(shares * each, 2u), tile_pack(g.kind));
        while (step < most && IN_FLIGHT * stage(2 * step, true) <= WIDE_MEMORY) step *= 2;
        log = 31 - __clz(step), bytes = stage(step, norms);
        // Products of tiles of bf16 have all units of each team: beyond the last one they read the
        // memory behind it, and nobody reads their sums.
        const u32 reach = tile == AMK_TILE ? parts * team_units() * step * tile : 0;
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
    AMK_DEVICE u32 team_units() const { return 2 * team; }
    AMK_DEVICE u32 pitch() const { return parts * team_units() * AMK_UNIT + 4; } // of a row's sums
};

// Waits for a barrier of the copying warps.
AMK_DEVICE void await_stage(const Worker& w, u32 barrier, u32 parity) {
    while (!all(barrier_passed(barrier, parity)))
        if (any(w.abandoned())) break;
}

// A unit of weights: its piece of a tape, its number there, and the units of the piece.
struct UnitPlace {
    const u8* piece;
    u32 unit, units;

    // Unit `unit` of a record: on the worker's own tape, or on the pieces that the arguments name.
    AMK_DEVICE UnitPlace(const Worker& w, const Record& r, u32 unit)
        : piece(w.tape), unit(unit), units(r.units) {
        if ((AMK_ROWS <= BLOCK_ROWS && !AMK_SHARED_COLUMNS) || !r.aux) return;
        const u32* words = w.p.arguments + r.partial;
        this->unit += r.aux >> 16;
        for (u32 i = 1; i < (r.aux & 0xffff) && this->unit >= words[1] >> 16; i++)
            this->unit -= words[1] >> 16, words += 2;
        units = words[1] >> 16;
        piece = (const u8*)w.p.tape + w.p.tape_at[words[1] & 0xffff] + (u64)words[0] * 16;
    }
    // Where its tiles of a pass over k begin.
    AMK_DEVICE u64 tiles(const GemvCut& cut, u32 pass, u32 tile) const {
        const u32 first = unit / AMK_GROUP_UNITS * AMK_GROUP_UNITS,
                  group = min(units - first, (u32)AMK_GROUP_UNITS);
        return (u64)(piece + (first * cut.tiles + cut.first(pass) * group +
                              (unit - first) * cut.count(pass)) *
                                 tile);
    }
};

// Tells the copying warps what to copy for a group: where its tiles are, and its inputs. `all`: the
// columns of the step, of which the group has some.
AMK_DEVICE void list_copies(Worker& w, const Record& r, const GemvShape& g, const WideGroup& c,
                            u32 all) {
    const GemvCut cut(g.k);
    const bool embeds = g.input == IN_EMBEDDING;
    await_stage(w, shared_address(&w.s.copies_taken), ~w.filled >> WIDE_STAGES & 1);
    w.filled ^= 1 << WIDE_STAGES;
    for (u32 i = w.thread(); i < cut.passes * WIDE_UNITS; i += THREADS) {
        const u32 pass = i / WIDE_UNITS, unit = c.first + i % WIDE_UNITS;
        if (unit < r.units)
            w.s.tile_at[pass][i % WIDE_UNITS] = UnitPlace(w, r, unit).tiles(cut, pass, c.tile);
    }
    if (w.warp == 0)
        list_boxes(w, c.units, c.tile << c.log, cut.count(0) * c.tile,
                   cut.count(cut.passes - 1) * c.tile);
    if (w.thread() == 0) {
        CopyList& list = w.s.copies;
        list.tiles = c.tiles, list.columns = c.columns, list.units = c.units, list.tile = c.tile;
        list.log = c.log, list.block = c.block, list.bytes = c.bytes, list.stages = c.stages;
        list.inputs_at = c.inputs(0);
        list.passes = cut.passes, list.pass = cut.depth * AMK_WARPS;
        list.inputs = embeds ? (u64)w.p.embedding : (u64)(w.p.packets + (u64)r.input * AMK_ROWS);
        list.pitch = embeds ? w.p.hidden * 2 : 0;
        list.gathers = embeds || all != w.p.row_count;
        list.first = c.column;
        if (!list.gathers) list.inputs += c.column * LINE;
        list.from = TileRange(r, g).first;
        list.inputs += (u64)(list.from / 2) * AMK_ROWS * LINE;
        list.gamma = g.flags & GEMV_NORM ? (u64)(w.p.constants + r.norm) : 0;
        // The memory would idle until the next phase has its inputs. With many rows these and not
        // the weights take the time.
        const bool ends = c.first + c.units == r.units && c.columns <= AHEAD_COLUMNS;
        list.ahead = (u64)(w.tape + r.tape);
        list.ahead_bytes = ends ? (u32)min(w.s.tape_end - list.ahead, (u64)WIDE_AHEAD) : 0;
    }
    w.sync();
    if (w.thread() == 0) barrier_arrive(shared_address(&w.s.copies_listed));
}

// Waits for the inputs of the task, and tells the copying warps that they are there.
AMK_DEVICE void await_inputs(Worker& w, const Record& r, u32 first) {
    if (first == 0) before_task(w, r);
    if (w.thread() != 0) return;
    fence_copies(); // the inputs were written by stores
    barrier_arrive(shared_address(&w.s.inputs_written));
}

// The groups of units and columns of a record, one after the other.
struct WideGroups {
    static constexpr bool SEVERAL = AMK_ROWS > BLOCK_ROWS; // groups of columns
    Worker& w;
    const Record& r;
    const GemvShape& g;
    u32 number = 0;
    bool listed = false; // the copying warps know of it

    // Columns of the step, and of the record.
    AMK_DEVICE u32 all() const { return g.output == OUT_LOGITS ? w.s.wanted : w.p.row_count; }
    AMK_DEVICE u32 begin() const { return SEVERAL ? step_row(r) : 0; }
    AMK_DEVICE u32 end() const { return SEVERAL ? begin() + step_rows(r, all()) : all(); }

    AMK_DEVICE u32 of_units() const { return (r.units + WIDE_UNITS - 1) / WIDE_UNITS; }
    AMK_DEVICE u32 turn() const { return SEVERAL ? number / of_units() : 0; }
    AMK_DEVICE u32 column() const { return begin() + turn() * WIDE_COLUMNS; }
    AMK_DEVICE u32 first() const { return (number - turn() * of_units()) * WIDE_UNITS; }
    AMK_DEVICE bool ended() const { return SEVERAL ? column() >= end() : first() >= r.units; }
    AMK_DEVICE WideGroup group() const {
        return {r, g, first(), column(), min(end() - column(), WIDE_COLUMNS)};
    }
    // Tells the copying warps of the group, whose inputs are there if there was one before.
    AMK_DEVICE void list() {
        list_copies(w, r, g, group(), all());
        await_inputs(w, r, number);
        listed = true;
    }
};

// Copies the inputs of a stage row by row: rows whose logits are wanted, or of the embedding table,
// whose elements are in order.
AMK_DEVICE void gather(const Shared& s, u32 lane, u32 inputs, u32 from, u32 here) {
    const CopyList& c = s.copies;
    for (u32 i = lane; i < c.columns << (c.log + 2); i += 32) {
        const u32 column = i >> (c.log + 2), piece = i & ((4 << c.log) - 1);
        if (piece >= here * 4) continue;
        if (!c.pitch) {
            const u32 row = s.order[c.first + column], of = from * 4 + piece;
            copy_16(inputs + input_place(c.block, column, piece),
                    (const u8*)c.inputs + ((u64)(of / 8) * AMK_ROWS + row) * 128 +
                        ((of ^ row) & 7) * 16);
            continue;
        }
        const u8* of = (const u8*)c.inputs + (u64)s.rows[c.first + column].token * c.pitch;
        for (u32 k = 0; k < 4; k++)
            copy_4(inputs + input_place(c.block, column, (piece & ~1u) | (k & 1)) +
                       (piece % 2 * 2 + k / 2) * 4,
                   of + (from * 4 + piece) * 16 + k * 4);
    }
}

// Requests the weights of the stage from tile `from` on into shared memory at `at`, and the norm's.
// `into`: tiles of the pass over k before it.
AMK_DEVICE void request_weights(const Shared& s, u32 lane, u32 at, u32 from, u32 pass, u32 into,
                                u32 full) {
    const CopyList& c = s.copies;
    const u32 log = c.log, here = min(c.tiles - from, 1u << log), lines = (here + 1) / 2;
    const u32 bytes = c.units * here * c.tile + (c.gathers ? 0 : lines * c.columns * LINE) +
                      (c.gamma ? here * 64 : 0);
    if (lane == 0) barrier_expect(full, bytes);
    if (c.boxes && here == 1 << log)
        copy_boxes(c, lane, at, c.maps[pass + 1 == c.passes], full,
                   [&](u32 unit) { return s.tile_at[pass][unit] + into * c.tile; });
    else
        copy_runs(
            lane, c.units, here * c.tile, full, [&](u32 k) { return at + k * (c.tile << log); },
            [&](u32 k) { return s.tile_at[pass][k] + into * c.tile; });
    if (c.gamma)
        copy_runs(
            lane, 1, here * 64, full, [&](u32) { return at + c.inputs_at + (c.block << log) / 2; },
            [&](u32) { return c.gamma + from * 64; });
}

// Requests the inputs of the stage, for which all its copies are then on their way.
AMK_DEVICE void request_inputs(const Shared& s, u32 lane, u32 at, u32 from, u32 full) {
    const CopyList& c = s.copies;
    const u32 here = min(c.tiles - from, 1u << c.log), inputs = at + c.inputs_at;
    if (c.gathers)
        gather(s, lane, inputs, from, here);
    else
        copy_runs(
            lane, (here + 1) / 2, c.columns * LINE, full,
            [&](u32 k) { return inputs + k * c.block; },
            [&](u32 k) { return c.inputs + (u64)(from / 2 + k) * AMK_ROWS * LINE; });
    arrive_after_copies(full);
}

// Requests the next weights of the tape into the L2 cache.
AMK_DEVICE void prefetch(u64 from, u32 bytes, u32 lane) {
#if __CUDA_ARCH__ >= 900
    constexpr u32 PIECE = WIDE_AHEAD / 32;
    const u32 at = lane * PIECE;
    if (at < bytes)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + at),
                     "r"(min(PIECE, bytes - at))
                     : "memory");
#endif
}

// The stages of a group that a copying warp brings, every `warps`-th. There are no more warps than
// slots: one that is further ahead could not tell whether its slot is empty.
struct StageTurn {
    u32 n, slot, round; // of the stage: its number, its slot and how often that came before
    u32 pass, into;     // over k; stages of the pass before
    u32 warps;

    // `before`: stages before the first one, in the passes over all of k.
    AMK_DEVICE StageTurn(u32 warp, u32 count, u32 stages, u32 before)
        : n(warp < stages ? warp : count), slot(warp), round(0), pass(0), into(before + warp),
          warps(min(stages, (u32)AMK_COPIERS)) {}
    AMK_DEVICE void wrap(u32 stages, u32 of_pass) {
        while (slot >= stages) slot -= stages, round++;
        while (into >= of_pass) into -= of_pass, pass++;
    }
    AMK_DEVICE void advance() { n += warps, slot += warps, into += warps; }
};

// The copying warps: stages of one group after the other, each by one of them, until the consumers
// have left. Weights of the stages that fit the memory do not wait for the inputs.
AMK_DEVICE void copy_stages(Shared& s, u32 data, u32 warp, u32 lane) {
    const u32 full = shared_address(s.stage_full), empty = shared_address(s.stage_empty);
    const auto await = [&](u32 barrier, u32 parity) {
        while (!all(barrier_passed(barrier, parity)))
            if (any(s.abandoned || load_shared_atomic(&s.done))) return false;
        return true;
    };
    u32 emptied = 0; // parities of the slots before the group
    for (u32 group = 0; await(shared_address(&s.copies_listed), group & 1); group++) {
        const u32 log = s.copies.log, stages = s.copies.stages, of_pass = s.copies.pass >> log,
                  bytes = s.copies.bytes, count = (s.copies.tiles + (1 << log) - 1) >> log,
                  before = AMK_SHARED_COLUMNS ? s.copies.from >> log : 0;
        const auto weights = [&](StageTurn& turn) {
            turn.wrap(stages, of_pass);
            if (turn.round &&
                !await(empty + 8 * turn.slot, (emptied >> turn.slot ^ (turn.round - 1)) & 1))
                return false;
            request_weights(s, lane, data + turn.slot * bytes, turn.n << log, turn.pass,
                            turn.into << log, full + 8 * turn.slot);
            return true;
        };
        StageTurn ahead(warp, count, stages, before), turn(warp, count, stages, before);
        for (; ahead.n < min(count, stages); ahead.advance()) weights(ahead);
        if (!await(shared_address(&s.inputs_written), group & 1)) return;
        for (; turn.n < count; turn.advance()) {
            turn.wrap(stages, of_pass);
            if (turn.n >= stages && !weights(turn)) return;
            request_inputs(s, lane, data + turn.slot * bytes, turn.n << log, full + 8 * turn.slot);
        }
        if (warp == 0) prefetch(s.copies.ahead, s.copies.ahead_bytes, lane);
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.copies_taken));
        const u32 rounds = count / stages;
        if (rounds & 1) emptied ^= (1 << stages) - 1;
        emptied ^= (1 << (count - rounds * stages)) - 1;
    }
}
#endif
