// y = W x for a step of more rows than the registers hold the inputs of, over the same tape as for
// one row.
//
// Two units are one A fragment of 16 rows: a tile's registers are rows 0-7 of the even half of k
// and of the odd half, so the registers of two tiles change places. Four warps, a team, have 8
// units; the rows of the step are the columns of B. Stages of some tiles of k, weights and inputs,
// come by asynchronous copies into the memory of the ring; teams share out the units and the tiles
// of a stage. A row's sums are added in an order that depends on the program alone.
//
// The columns of a tile's fragment are those of one row's product: lane t has 4t..4t+3 of each
// half. So the pairs of inputs lie in the memory in the order of the fragment (see `pair_at`).
#pragma once
#include "rows.cuh"
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
constexpr u32 TEAMS = AMK_WARPS / 4, TEAM_UNITS = 8;
constexpr u32 LINE = 128;             // bytes of 64 inputs of a row
constexpr u32 WIDE_AHEAD = 128 << 10; // bytes of the tape that go ahead to the L2 cache,
constexpr u32 AHEAD_COLUMNS = 64;     // for so many columns at most
constexpr u32 MOST_STEP = 16,
              IN_FLIGHT = 4; // tiles of a stage at most; stages at least, if they fit
static_assert(WIDE_UNITS == TEAMS * TEAM_UNITS, "a group has the units of all teams");

AMK_DEVICE void copy_16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
AMK_DEVICE void copy_4(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// Orders stores and bulk copies, or products, of the same memory.
AMK_DEVICE void fence_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

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

// How a group of units is computed.
struct WideGroup {
    u32 tiles, columns;
    u32 first, units;  // of the record's
    u32 parts, shares; // teams by units, and by tiles of a stage
    u32 step, log;     // tiles of a stage, and its logarithm
    u32 block;         // bytes of 64 inputs of all columns
    u32 bytes, stages; // of a stage; stages in memory

    AMK_DEVICE WideGroup(const Record& r, const GemvShape& g, u32 first, u32 columns)
        : tiles(g.tiles()), columns(columns), first(first),
          units(min(r.units - first, WIDE_UNITS)) {
        parts = units <= TEAM_UNITS ? 1 : units <= 2 * TEAM_UNITS ? 2 : 4;
        shares = TEAMS / parts, block = wide_columns(columns) * LINE;
        // A stage costs a wait whatever its length. Tiles are shared out alike in stages of any
        // length, so sums do not depend on it.
        for (step = max(shares, 2u); step < MOST_STEP && fits(2 * step) >= IN_FLIGHT;) step *= 2;
        log = 31 - __clz(step), bytes = stage(step), stages = min(fits(step), WIDE_STAGES);
    }
    AMK_DEVICE u32 stage(u32 step) const {
        return (units * step * AMK_TILE + step / 2 * block + 64 * step + 1023) / 1024 * 1024;
    }
    AMK_DEVICE u32 fits(u32 step) const { return WIDE_MEMORY / stage(step); }
    AMK_DEVICE u32 count() const { return (tiles + step - 1) >> log; }
    AMK_DEVICE u32 inputs(u32 at) const { return at + units * step * AMK_TILE; }
    AMK_DEVICE u32 gamma(u32 at) const { return inputs(at) + step / 2 * block; }
    AMK_DEVICE u32 pitch() const { return parts * TEAM_UNITS * AMK_UNIT + 4; } // of a row's sums
};

// Where a stage has the 16 bytes `piece` of a column's inputs: pieces of 8 columns are in different
// banks.
AMK_DEVICE u32 input_place(u32 block, u32 column, u32 piece) {
    return piece / 8 * block + column * LINE + ((piece ^ column) & 7) * 16;
}

// Tells the copying warps what to copy for a group: where its tiles are, and its inputs.
AMK_DEVICE void list_copies(Worker& w, const Record& r, const GemvShape& g, const WideGroup& c) {
    const GemvCut cut(g.k);
    const bool embeds = g.input != IN_PACKETS;
    for (u32 i = w.thread(); i < cut.passes * WIDE_UNITS; i += THREADS) {
        const u32 pass = i / WIDE_UNITS, unit = c.first + i % WIDE_UNITS,
                  first = unit / AMK_GROUP_UNITS * AMK_GROUP_UNITS;
        if (unit >= r.units) continue;
        w.s.tile_at[pass][i % WIDE_UNITS] =
            (u64)(w.tape + (first * cut.tiles + cut.first(pass) * group_units(r, first) +
                            (unit - first) * cut.count(pass)) *
                               AMK_TILE);
    }
    if (w.thread() == 0) {
        CopyList& list = w.s.copies;
        list.tiles = c.tiles, list.columns = c.columns, list.units = c.units;
        list.log = c.log, list.block = c.block, list.bytes = c.bytes, list.stages = c.stages;
        list.pass = cut.depth * AMK_WARPS;
        list.inputs = embeds ? (u64)w.p.embedding : (u64)(w.p.packets + (u64)r.input * AMK_ROWS);
        list.pitch = embeds ? w.p.hidden * 2 : 0;
        list.gathers = embeds || c.columns != w.p.row_count;
        list.gamma = g.flags & GEMV_NORM ? (u64)(w.p.constants + r.norm) : 0;
        // The memory would idle until the next phase has its inputs. With many rows these and not
        // the weights take the time.
        const bool ends = c.first + c.units == r.units && c.columns <= AHEAD_COLUMNS;
        list.ahead = (u64)(w.tape + r.tape);
        list.ahead_bytes = ends ? (u32)min(w.s.tape_end - list.ahead, (u64)WIDE_AHEAD) : 0;
    }
    w.sync();
    if (w.thread() != 0) return;
    fence_copies(); // the inputs were written by stores
    barrier_arrive(shared_address(&w.s.copies_listed));
}

// Copies the inputs of a stage row by row: rows whose logits are wanted, or of the embedding table,
// whose elements are in order.
AMK_DEVICE void gather(const Shared& s, u32 lane, u32 inputs, u32 from, u32 here) {
    const CopyList& c = s.copies;
    for (u32 i = lane; i < c.columns << (c.log + 2); i += 32) {
        const u32 column = i >> (c.log + 2), piece = i & ((4 << c.log) - 1);
        if (piece >= here * 4) continue;
        if (!c.pitch) {
            const u32 row = s.order[column], of = from * 4 + piece;
            copy_16(inputs + input_place(c.block, column, piece),
                    (const u8*)c.inputs + ((u64)(of / 8) * AMK_ROWS + row) * 128 +
                        ((of ^ row) & 7) * 16);
            continue;
        }
        const u8* of = (const u8*)c.inputs + (u64)s.rows[column].token * c.pitch;
        for (u32 k = 0; k < 4; k++)
            copy_4(inputs + input_place(c.block, column, (piece & ~1u) | (k & 1)) +
                       (piece % 2 * 2 + k / 2) * 4,
                   of + (from * 4 + piece) * 16 + k * 4);
    }
}

// Requests the stage from tile `from` on into shared memory at `at`: tiles, inputs, the norm's
// weights. `into`: tiles of the pass over k before it.
AMK_DEVICE void request(const Shared& s, u32 lane, u32 at, u32 from, u32 pass, u32 into, u32 full) {
    const CopyList& c = s.copies;
    const u32 log = c.log, here = min(c.tiles - from, 1u << log), lines = (here + 1) / 2;
    const u32 inputs = at + (c.units << (log + 9));
#if __CUDA_ARCH__ >= 900
    const u32 bytes = c.units * here * AMK_TILE + (c.gathers ? 0 : lines * c.columns * 128) +
                      (c.gamma ? here * 64 : 0);
    if (lane == 0)
        asm volatile(
            "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1; }" ::"r"(full),
            "r"(bytes)
            : "memory");
#else
    if (lane == 0) barrier_arrive(full);
#endif
    copy_runs(
        lane, c.units, here * AMK_TILE, full, [&](u32 k) { return at + (k << (log + 9)); },
        [&](u32 k) { return s.tile_at[pass][k] + into * AMK_TILE; });
    if (c.gathers)
        gather(s, lane, inputs, from, here);
    else
        copy_runs(
            lane, lines, c.columns * 128, full, [&](u32 k) { return inputs + k * c.block; },
            [&](u32 k) { return c.inputs + (u64)(from / 2 + k) * AMK_ROWS * 128; });
    if (c.gamma)
        copy_runs(
            lane, 1, here * 64, full, [&](u32) { return inputs + (c.block << log) / 2; },
            [&](u32) { return c.gamma + from * 64; });
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
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

// The copying warps: stages of one group after the other, each by one of them, until the consumers
// have left.
AMK_DEVICE void copy_stages(Shared& s, u32 data, u32 warp, u32 lane) {
    const u32 full = shared_address(s.stage_full), empty = shared_address(s.stage_empty),
              listed = shared_address(&s.copies_listed);
    const auto await = [&](u32 barrier, u32 parity) {
        while (!all(barrier_passed(barrier, parity)))
            if (any(s.abandoned || load_shared_atomic(&s.done))) return false;
        return true;
    };
    u32 emptied = 0; // parities of the slots before the group
    for (u32 group = 0; await(listed, group & 1); group++) {
        const u32 log = s.copies.log, stages = s.copies.stages, of_pass = s.copies.pass >> log,
                  bytes = s.copies.bytes, count = (s.copies.tiles + (1 << log) - 1) >> log,
                  ahead_bytes = s.copies.ahead_bytes;
        const u64 ahead = s.copies.ahead;
        u32 slot = warp, round = 0, pass = 0, into = warp; // stages of the pass before
        for (u32 n = warp; n < count; n += AMK_COPIERS) {
            while (slot >= stages) slot -= stages, round++;
            while (into >= of_pass) into -= of_pass, pass++;
            if (round && !await(empty + 8 * slot, (emptied >> slot ^ (round - 1)) & 1)) return;
            request(s, lane, data + slot * bytes, n << log, pass, into << log, full + 8 * slot);
            slot += AMK_COPIERS, into += AMK_COPIERS;
        }
        if (warp == 0) prefetch(ahead, ahead_bytes, lane);
        const u32 rounds = count / stages;
        if (rounds & 1) emptied ^= (1 << stages) - 1;
        emptied ^= (1 << (count - rounds * stages)) - 1;
    }
}

// A tile of two units, as a warp multiplies it: the halves of k.
struct WideTile {
    uint4 even, odd;

    // Loads it from shared addresses `one` and `two`. The norm's weights are multiplied with the
    // tile, which is rounded as the inputs would be.
    AMK_DEVICE WideTile(const Worker& w, u32 one, u32 two, u32 gamma) {
        uint4 a = load_shared(one + w.lane * 16), o = load_shared(two + w.lane * 16);
        if (gamma) {
            const uint2 even = load_shared_two(gamma + (w.lane & 3) * 8),
                        odd = load_shared_two(gamma + 32 + (w.lane & 3) * 8);
            a.x = multiply_bf16(a.x, even.x), o.x = multiply_bf16(o.x, even.x);
            a.z = multiply_bf16(a.z, even.y), o.z = multiply_bf16(o.z, even.y);
            a.y = multiply_bf16(a.y, odd.x), o.y = multiply_bf16(o.y, odd.x);
            a.w = multiply_bf16(a.w, odd.y), o.w = multiply_bf16(o.w, odd.y);
        }
        even = make_uint4(a.x, o.x, a.z, o.z), odd = make_uint4(a.y, o.y, a.w, o.w);
    }
};

// The sums of a warp, for two units and all of up to COLUMNS columns.
template <u32 COLUMNS> struct WideSums {
    float d[COLUMNS / 8][4];

    // Begins to add a tile times the inputs at shared address `inputs`, after the one before.
    AMK_DEVICE void begin(const Worker& w, const WideTile& tile, u32 inputs) {
#if __CUDA_ARCH_FEAT_SM90_ALL
        wgmma_begin();
        wgmma(d, tile.even, swizzled_128(inputs));
        wgmma(d, tile.odd, swizzled_128(inputs + 32));
        wgmma_issue();
#else
        multiply(w, tile.even, inputs), multiply(w, tile.odd, inputs + 32);
#endif
    }
    // Waits for the sums.
    AMK_DEVICE void end() {
#if __CUDA_ARCH_FEAT_SM90_ALL
        wgmma_end();
#endif
    }
    // The same by the instructions that every GPU has: 16 columns at a time.
    AMK_DEVICE void multiply(const Worker& w, const uint4& a, u32 inputs) {
        const u32 block = inputs & ~127u, piece = (inputs & 127u) / 16;
#pragma unroll
        for (int b = 0; b < COLUMNS / 8; b += 2) {
            const u32 column = 8 * b + (w.lane & 7) + (w.lane & 16) / 2,
                      at = block + column * 128 + (((piece + (w.lane >> 3 & 1)) ^ column) & 7) * 16;
            u32 x[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                         : "r"(at));
            mma(d[b], a, x[0], x[1]), mma(d[b + 1], a, x[2], x[3]);
        }
    }
    // Stores them in the memory of the stages, by share of k, column and row of the units.
    AMK_DEVICE void store(const Worker& w, const WideGroup& c, u32 unit, u32 share) const {
        const u32 pitch = c.pitch(), first = 2 * (w.lane & 3);
#pragma unroll
        for (int b = 0; b < COLUMNS / 8; b++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const u32 column = first + 8 * b + k;
                const u32 to = w.data + 4 * ((share * c.columns + column) * pitch +
                                             unit * AMK_UNIT + (w.lane >> 2));
                store_shared(to, d[b][k], column < c.columns);
                store_shared(to + 4 * AMK_UNIT, d[b][k + 2], column < c.columns);
            }
    }
};

AMK_DEVICE void add_squares(float2& sum, u32 pair) {
    sum.x = fmaf(bf16_low(pair), bf16_low(pair), sum.x);
    sum.y = fmaf(bf16_high(pair), bf16_high(pair), sum.y);
}

// Adds the squares of a stage's inputs, a quarter of a column a thread, to two sums each.
AMK_DEVICE void square(const Worker& w, const WideGroup& c, u32 inputs, u32 here,
                       float2 (&sum)[2]) {
    const u32 column = w.thread() / 4;
    if (column >= c.columns) return;
#pragma unroll 2
    for (u32 piece = w.thread() % 4; piece < here * 4; piece += 4) {
        const uint4 x = load_shared(inputs + input_place(c.block, column, piece));
        add_squares(sum[0], x.x), add_squares(sum[1], x.y);
        add_squares(sum[0], x.z), add_squares(sum[1], x.w);
    }
}

// Shared address of the columns' scales.
AMK_DEVICE u32 wide_scales(const Worker& w, const WideGroup& c) {
    return w.data + 4 * c.shares * c.columns * c.pitch();
}

// Waits for a barrier of a stage: for copies, or for the other warps.
AMK_DEVICE void await_stage(const Worker& w, u32 barrier, u32 parity) {
    while (!all(barrier_passed(barrier, parity)))
        if (any(w.abandoned())) break;
}

// Multiplies a group of units, and leaves the teams' sums and the columns' scales in the memory of
// the stages.
template <u32 COLUMNS>
AMK_DEVICE void wide_products(Worker& w, const Record& r, const GemvShape& g, const WideGroup& c) {
    const u32 team = w.warp / 4, part = team & (c.parts - 1), share = team / c.parts,
              unit = part * TEAM_UNITS + w.warp % 4 * 2, count = c.count();
    const bool norms = g.flags & GEMV_NORM, busy = part * TEAM_UNITS < c.units;
    const u32 one = min(unit, c.units - 1) << (c.log + 9), two = min(unit + 1, c.units - 1)
                                                                 << (c.log + 9);
    const u32 full = shared_address(w.s.stage_full), empty = shared_address(w.s.stage_empty);
    WideSums<COLUMNS> sums = {};
    float2 squares[2] = {};
    list_copies(w, r, g, c);
    u32 slot = 0;
#pragma unroll 1
    for (u32 n = 0; n < count; n++) {
        const u32 at = w.data + slot * c.bytes, here = min(c.step, c.tiles - (n << c.log));
        await_stage(w, full + 8 * slot, w.filled >> slot & 1);
        w.filled ^= 1 << slot;
        if (n == 0 && c.first == 0) w.stamp(TRACE_INPUTS);
        if (w.s.copies.gathers) fence_copies();
        const auto tile = [&](u32 j) {
            return WideTile(w, at + one + j * AMK_TILE, at + two + j * AMK_TILE,
                            norms ? c.gamma(at) + j * 64 : 0);
        };
        const auto begin = [&](const WideTile& tile, u32 j) {
            sums.begin(w, tile, c.inputs(at) + j / 2 * c.block + j % 2 * 64);
        };
        const auto square_all = [&] {
            if (norms) square(w, c, c.inputs(at), here, squares);
        };
        // Products that begin and end in different branches would wait for each other.
        if (busy && share < here) {
            begin(tile(share), share);
            square_all();
            sums.end();
#pragma unroll 1
            for (u32 j = share + c.shares; j < here; j += c.shares) {
                begin(tile(j), j);
                sums.end();
            }
        } else
            square_all();
        __syncwarp();
        if (w.lane == 0) barrier_arrive(empty + 8 * slot);
        if (++slot == c.stages) slot = 0;
    }
    w.sync();
    if (busy) sums.store(w, c, unit, share);
    float sum = (squares[0].x + squares[0].y) + (squares[1].x + squares[1].y);
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float scale = g.scale(sum, __fdividef(1.0f, g.k), w.p.eps);
    store_shared(wide_scales(w, c) + w.thread(), scale,
                 w.thread() % 4 == 0 && w.thread() / 4 < c.columns);
}

// The sums of two neighbouring rows of the weights for a row of the step.
AMK_DEVICE float2 wide_pair(const Worker& w, const WideGroup& c, u32 column, u32 at, float scale) {
    float2 y = make_float2(0, 0);
    for (u32 share = 0; share < c.shares; share++) {
        const float2 more =
            load_shared_pair(w.data + 4 * ((share * c.columns + column) * c.pitch() + at));
        y.x += more.x, y.y += more.y;
    }
    return make_float2(y.x * scale, y.y * scale);
}

// Adds the shares and delivers, two elements a thread.
AMK_DEVICE void deliver_wide(Worker& w, const Record& r, const GemvShape& g, const WideGroup& c) {
    const bool gated = g.output == OUT_GATED;
    const u32 len = c.units * AMK_UNIT, pairs = gated ? len / 4 : len / 2;
    for (u32 i = w.thread(); i < c.columns * pairs; i += THREADS) {
        const u32 column = i / pairs, at = i % pairs * (gated ? 4 : 2);
        const float scale = load_shared_one(wide_scales(w, c) + 4 * column);
        float2 y = wide_pair(w, c, column, at, scale);
        const u32 row = c.first * AMK_UNIT + at; // within the task
        if (g.output == OUT_LOGITS) {
#if AMK_MAPS
            if (g.function())
                y = make_float2(map_product(g.function(), y.x), map_product(g.function(), y.y));
#endif
            *(float2*)(w.p.logits + (u64)column * w.p.logit_stride + r.row + row) = y;
            continue;
        }
        if (g.flags & GEMV_BIAS)
            y.x += constant(w.p.constants, r.bias + row),
                y.y += constant(w.p.constants, r.bias + row + 1);
        if (gated) { // rows are (gate, up) pairs
            const float2 next = wide_pair(w, c, column, at + 2, scale);
            y = make_float2(gate_products(g.function(), y.x, y.y),
                            gate_products(g.function(), next.x, next.y));
        }
        if (g.output == OUT_RESIDUAL) {
            float2& held = *(float2*)(w.s.residual + column * OWN_ROWS + row);
            y.x += held.x, y.y += held.y, held = y;
        }
#if AMK_MAPS
        if (g.output == OUT_STORE && g.function())
            y = make_float2(map_product(g.function(), y.x), map_product(g.function(), y.y));
#endif
        *pair_at(w, r.output, gated ? row / 4 : row / 2, column) = pack_bf16(y.x, y.y);
    }
    fence_copies(); // other workers copy what was stored
}

// Runs a projection for all rows, or for those whose logits are wanted.
AMK_DEVICE void gemv_wide(Worker& w, const Record& r) {
    const GemvShape g(r.shape);
    const u32 columns = g.output == OUT_LOGITS ? w.s.wanted : w.p.row_count;
    if (columns == 0) return;
#pragma unroll 1
    for (u32 first = 0; first < r.units; first += WIDE_UNITS) {
        const WideGroup c(r, g, first, columns);
        if (WIDE_COLUMNS == 32 && wide_columns(columns) == 16)
            wide_products<16>(w, r, g, c);
        else
            wide_products<WIDE_COLUMNS>(w, r, g, c);
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        deliver_wide(w, r, g, c);
        w.sync(); // the next group or task reuses the memory
    }
}
#endif
