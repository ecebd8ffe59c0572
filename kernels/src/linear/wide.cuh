// y = W x for a step of more rows than the registers hold the inputs of, over the same tape as for
// one row.
//
// Two units are one A fragment of 16 rows. Four warps, a team, have 8 units; the rows of the step
// are the columns of B. Stages of some tiles of k, weights and inputs, come by asynchronous copies
// into the memory of the ring; teams share out the units and the tiles of a stage. A row's sums are
// added in an order that depends on the program alone.
//
// With few columns weights in codes are multiplied as numbers that bf16 holds exactly: to multiply
// a tile's products by its scales takes fewer instructions than to round its elements. The products
// are by `mma`, and a warp is a team, or, with enough units and columns, by `wgmma`.
//
// Where the tensor cores read tiles from the memory, warps have little more to do than to ask for
// products. Else a tile's registers are rows 0-7 of the even half of k and of the odd half, and
// those of two tiles change places.
//
// The columns of a tile's fragment are those of one row's product: lane t has 4t..4t+3 of each
// half. So the pairs of inputs lie in the memory in the order of the fragment (see `pair_at`).
#pragma once
#include "delivery.cuh"
#include "tile/pairs.cuh"

#if AMK_WIDE
// Whether products take tiles from the memory as they are, where no norm's weights are multiplied
// with them.
template <class T> constexpr bool FROM_MEMORY = HAS_WGMMA && !T::DECODES;

// Whether teams multiply tiles in codes by `wgmma`, in groups with enough units.
template <class T> constexpr bool BY_TEAMS = TEAMS_OF_CODES && T::IN_TEAMS > 0;

// The part of a team in a group of units.
struct TeamPart {
    u32 part, share; // of the units, and of the tiles of a stage
    bool busy;

    AMK_DEVICE TeamPart(const Worker& w, const WideGroup& c)
        : part(w.warp >> c.log_team & ((1u << c.log_parts) - 1)),
          share(w.warp >> c.log_team >> c.log_parts), busy(part * c.team_units() < c.units) {}
    // The first of a warp's two units.
    AMK_DEVICE u32 unit(const Worker& w, const WideGroup& c) const {
        return part * c.team_units() + 2 * (w.warp & ((1u << c.log_team) - 1));
    }
};

// The runs of a warp's two units in a stage: offsets of the first tiles.
struct UnitRuns {
    u32 one, two;

    AMK_DEVICE UnitRuns(const Worker& w, const WideGroup& c, const TeamPart& team) {
        const u32 unit = team.unit(w, c), of_unit = c.tile << c.log;
        one = min(unit, c.units - 1) * of_unit, two = min(unit + 1, c.units - 1) * of_unit;
    }
};

// Neighbouring tiles of a warp's two units.
template <class T, int TILES> struct UnitTiles {
    T one[TILES], two[TILES];

    // From tile `first` of a stage at shared address `at` on.
    AMK_DEVICE UnitTiles(const Worker& w, const UnitRuns& runs, u32 at, u32 first) {
        typename T::Place place(first, w.lane, T::named(w.lane));
        place.advance(at + runs.one);
        T::template load<TILES>(one, place, first, w.lane, TILES);
        place.advance(runs.two - runs.one);
        T::template load<TILES>(two, place, first, w.lane, TILES);
    }
};

// A tile of two units, as a warp multiplies it: the halves of k.
struct WideTile {
    uint4 even, odd;

    // Loads tile `j` of a stage of two units, which begin at shared addresses `one` and `two`. What
    // is in codes is rounded to bf16. The norm's weights are multiplied with the tile, which is
    // rounded as the inputs would be.
    template <class T>
    AMK_DEVICE static WideTile load(const Worker& w, u32 one, u32 two, u32 j, u32 gamma) {
        T first[1], second[1];
        typename T::Place place(j, w.lane, T::named(w.lane));
        place.advance(one);
        T::template load<1>(first, place, j, w.lane, 1);
        place.advance(two - one);
        T::template load<1>(second, place, j, w.lane, 1);
        return WideTile(w, first[0].decoded(), second[0].decoded(), gamma);
    }
    AMK_DEVICE WideTile(const Worker& w, uint4 a, uint4 o, u32 gamma) {
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
        wgmma_begin();
        multiply_columns<COLUMNS>(w.lane, d, tile.even, inputs);
        multiply_columns<COLUMNS>(w.lane, d, tile.odd, inputs + 32);
        wgmma_issue();
    }
    // Begins to add the tiles `share`, `share + c.shares`, .. of a stage at shared address `at`,
    // weights of the team's units times inputs. Each is a group of products.
    AMK_DEVICE void begin_stage(const WideGroup& c, u32 at, u32 part, u32 share, u32 here) {
#if __CUDA_ARCH_FEAT_SM90_ALL
        const u32 of_unit = c.tile << c.log;
        const u64 a = swizzled_64(at + part * c.team_units() * of_unit, of_unit),
                  b = swizzled_128(c.inputs(at));
#pragma unroll 1
        for (u32 j = share; j < here; j += c.shares) {
            const u64 tile = a + j * (AMK_TILE / 16), x = b + (j / 2 * c.block + j % 2 * 64) / 16;
            wgmma_begin();
            wgmma(d, tile, x), wgmma(d, tile + 2, x + 2);
            wgmma_issue();
        }
#endif
    }
    // Adds tiles in codes times the inputs, of which a lane names a row of each matrix.
    template <class T, int TILES>
    AMK_DEVICE void add(const UnitTiles<T, TILES>& tiles, u32 inputs) {
        // The assembler would load the inputs before the codes, which take longer until they are
        // numbers, if the inputs' address did not depend on a code.
        if (COLUMNS > 16)
            asm volatile("{ .reg .u32 more; or.b32 more, %0, %1; min.u32 %0, %0, more; }"
                         : "+r"(inputs)
                         : "r"((const u32&)tiles.one[0].codes));
        CodedPair<typename T::Block> pairs[TILES];
#pragma unroll
        for (u32 i = 0; i < TILES; i++)
            pairs[i] = {tiles.one[i], tiles.two[i], T::template own_at<TILES>(i)};
#pragma unroll
        for (int b = 0; b < COLUMNS / 8; b += 2) {
            PairInputs x[TILES];
#pragma unroll
            for (u32 i = 0; i < TILES; i++) {
                const u32 at = inputs ^ 64 * i;
                x[i] = {load_matrices(at + b * 8 * LINE), load_matrices((at ^ 32) + b * 8 * LINE)};
            }
            PairProducts<typename T::Block, TILES>(pairs, x).add_to(d + b, pairs);
        }
    }
    // Likewise by `wgmma`: a tile is decoded during the products of the one before.
    template <class T, int TILES>
    AMK_DEVICE void add_by_team(const UnitTiles<T, TILES>& tiles, u32 inputs) {
#if __CUDA_ARCH_FEAT_SM90_ALL
        using B = typename T::Block;
        constexpr bool ALIKE = B::ALIKE % TILES == 0; // all have the same scales
        const u64 x = swizzled_128(inputs);
        float products[ALIKE ? 1 : 2][COLUMNS / 8][4];
        CodedPair<B> pairs[2];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            pairs[i % 2] = {tiles.one[i], tiles.two[i], T::template own_at<TILES>(i)};
            float (&to)[COLUMNS / 8][4] = products[ALIKE ? 0 : i % 2];
            const u64 at = x + i / 2 * (COLUMNS * LINE / 16) + i % 2 * 4;
            wgmma_begin();
            if (ALIKE && i > 0)
                wgmma(to, pairs[i % 2].even, at);
            else
                wgmma<false>(to, pairs[i % 2].even, at);
            wgmma(to, pairs[i % 2].odd, at + 2);
            wgmma_issue();
            if (i == 0) continue;
            wgmma_end<1>();
            if (!ALIKE) add_scaled(products[(i - 1) % 2], pairs[(i - 1) % 2]);
        }
        wgmma_end();
        add_scaled(products[ALIKE ? 0 : (TILES - 1) % 2], pairs[(TILES - 1) % 2]);
#endif
    }
    // Adds products of numbers, once they are there, times the scales.
    template <class B>
    AMK_DEVICE void add_scaled(float (&products)[COLUMNS / 8][4], const CodedPair<B>& tile) {
        wgmma_settle(products);
#pragma unroll
        for (int b = 0; b < COLUMNS / 8; b++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                d[b][k] = fmaf(tile.scale[0][k / 2], products[b][k], d[b][k]);
    }
    // Stores them at the end of the memory, by share of k, column and row of the units.
    AMK_DEVICE void store(const Worker& w, const WideGroup& c, u32 unit, u32 share) const {
        const u32 pitch = c.pitch(), first = 2 * (w.lane & 3);
#pragma unroll
        for (int b = 0; b < COLUMNS / 8; b++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const u32 column = first + 8 * b + k;
                const u32 to =
                    w.data + c.scratch_at() +
                    4 * ((share * c.columns + column) * pitch + unit * AMK_UNIT + (w.lane >> 2));
                store_shared(to, d[b][k], column < c.columns);
                store_shared(to + 4 * AMK_UNIT, d[b][k + 2], column < c.columns);
            }
    }
};

AMK_DEVICE void add_squares(float2& sum, u32 pair) {
    sum.x = fmaf(bf16_low(pair), bf16_low(pair), sum.x);
    sum.y = fmaf(bf16_high(pair), bf16_high(pair), sum.y);
}

// A thread's part of the inputs, of which it adds the squares: a warp has some of the pieces of 8
// columns, whatever the columns of the step.
struct Squares {
    static constexpr u32 WARPS = WIDE_COLUMNS / 8, EVERY = AMK_WARPS / WARPS;
    u32 column, first;
    float2 sum[2] = {};

    AMK_DEVICE explicit Squares(const Worker& w)
        : column(w.warp % WARPS * 8 + w.lane % 8), first(w.warp / WARPS * 4 + w.lane / 8) {}
    // Calls `f` with the place of each piece of a stage's inputs, its number and elements.
    template <class F> AMK_DEVICE void for_pieces(const WideGroup& c, u32 inputs, u32 here, F f) {
        if (column >= c.columns) return;
#pragma unroll 2
        for (u32 piece = first; piece < here * 4; piece += 4 * EVERY) {
            const u32 at = inputs + input_place(c.block, column, piece);
            f(at, piece, load_shared(at));
        }
    }
    AMK_DEVICE void add(const uint4& x) {
        add_squares(sum[0], x.x), add_squares(sum[1], x.y);
        add_squares(sum[0], x.z), add_squares(sum[1], x.w);
    }
    // Adds those of a stage.
    AMK_DEVICE void add_stage(const WideGroup& c, u32 inputs, u32 here) {
        for_pieces(c, inputs, here, [&](u32, u32, const uint4& x) { add(x); });
    }
    // Likewise, and multiplies the inputs by the norm's weights.
    AMK_DEVICE void add_and_multiply(const WideGroup& c, u32 inputs, u32 gamma, u32 here) {
        for_pieces(c, inputs, here, [&](u32 at, u32 piece, const uint4& x) {
            add(x);
            // A piece has every other pair of a half of k.
            const u32 by = gamma + piece / 2 * 32 + piece % 2 * 4;
            store_shared(at, make_uint4(multiply_bf16(x.x, load_shared_word(by)),
                                        multiply_bf16(x.y, load_shared_word(by + 8)),
                                        multiply_bf16(x.z, load_shared_word(by + 16)),
                                        multiply_bf16(x.w, load_shared_word(by + 24))));
        });
    }
    // Stores the sum of a column's part in `to`, after which come those of the other warps.
    AMK_DEVICE void store(const Worker& w, u32 to) const {
        float of = (sum[0].x + sum[0].y) + (sum[1].x + sum[1].y);
        of += __shfl_xor_sync(~0u, of, 8);
        of += __shfl_xor_sync(~0u, of, 16);
        store_shared(to + 4 * (w.warp / WARPS * WIDE_COLUMNS + column), of, w.lane < 8);
    }
    // The sum of a column.
    AMK_DEVICE static float of(u32 from, u32 column) {
        float sum = 0;
#pragma unroll
        for (u32 i = 0; i < EVERY; i++)
            sum += load_shared_one(from + 4 * (i * WIDE_COLUMNS + column));
        return sum;
    }
};

// The stages of a group as the consumers take them, one after the other.
struct StageWalk {
    u32 left;               // tiles from this stage on
    u32 slot = 0, at, here; // its slot, shared address and tiles

    AMK_DEVICE explicit StageWalk(const WideGroup& c) : left(c.tiles) {}
    // Whether the next stage is there.
    AMK_DEVICE bool arrived(const Worker& w) const {
        return all(
            barrier_has_passed(shared_address(w.s.stage_full) + 8 * slot, w.filled >> slot & 1));
    }
    // Waits for the next stage.
    AMK_DEVICE void enter(Worker& w, const WideGroup& c) {
        at = w.data + slot * c.bytes, here = min(c.step, left);
        await_stage(w, shared_address(w.s.stage_full) + 8 * slot, w.filled >> slot & 1);
        w.filled ^= 1 << slot;
        if (left == c.tiles && c.first == 0) w.stamp(TRACE_INPUTS);
        if (c.gathers) fence_copies();
    }
    // This warp is done with a slot.
    AMK_DEVICE static void leave(const Worker& w, u32 slot) {
        __syncwarp();
        if (w.lane == 0) barrier_arrive(shared_address(w.s.stage_empty) + 8 * slot);
    }
    AMK_DEVICE void advance(const WideGroup& c) {
        left -= here;
        if (++slot == c.stages) slot = 0;
    }
};

// Products of tiles that the tensor cores read, with inputs as they are. They go on while the next
// stage is entered. But with few slots the copies of a late stage wait for this one's.
template <u32 COLUMNS>
AMK_DEVICE void multiply_from_memory(Worker& w, const WideGroup& c, const TeamPart& team,
                                     WideSums<COLUMNS>& sums) {
    StageWalk stage(c);
    u32 before = 0;                         // the slot before,
    bool held = false;                      // and whether it is still held
    const bool several = c.step > c.shares, // tiles of a stage for each team
        few = COLUMNS == 128 && c.stages <= IN_FLIGHT;
#pragma unroll 1
    for (; stage.left >= c.step; stage.advance(c)) {
        if (few && held && !stage.arrived(w)) {
            wgmma_end();
            StageWalk::leave(w, before);
            held = false;
        }
        stage.enter(w, c);
        sums.begin_stage(c, stage.at, team.part, team.share, c.step);
        if (several)
            wgmma_end<2>();
        else
            wgmma_end<1>();
        if (held) StageWalk::leave(w, before);
        before = stage.slot, held = true;
    }
    wgmma_end();
    if (held) StageWalk::leave(w, before);
    if (stage.left == 0) return;
    stage.enter(w, c);
    if (team.share < stage.here) {
        sums.begin_stage(c, stage.at, team.part, team.share, stage.here);
        wgmma_end();
    }
    StageWalk::leave(w, stage.slot);
}

// Products of tiles that pass through registers.
template <class T, u32 COLUMNS>
AMK_DEVICE void multiply_in_registers(Worker& w, const WideGroup& c, const TeamPart& team,
                                      bool norms, WideSums<COLUMNS>& sums, Squares& squares) {
    const UnitRuns runs(w, c, team);
    StageWalk stage(c);
#pragma unroll 1
    for (; stage.left > 0; stage.advance(c)) {
        stage.enter(w, c);
        const u32 at = stage.at, here = stage.here;
        const auto tile = [&](u32 j) {
            return WideTile::load<T>(w, at + runs.one, at + runs.two, j,
                                     norms ? c.gamma(at) + j * 64 : 0);
        };
        const auto begin = [&](const WideTile& tile, u32 j) {
            sums.begin(w, tile, c.inputs(at) + j / 2 * c.block + j % 2 * 64);
        };
        const auto square_all = [&] {
            if (norms) squares.add_stage(c, c.inputs(at), here);
        };
        // Products that begin and end in different branches would wait for each other.
        if (team.busy && team.share < here) {
            begin(tile(team.share), team.share);
            square_all();
            wgmma_end();
#pragma unroll 1
            for (u32 j = team.share + c.shares; j < here; j += c.shares) {
                begin(tile(j), j);
                wgmma_end();
            }
        } else
            square_all();
        StageWalk::leave(w, stage.slot);
    }
}

// Products of a team's tiles of a stage, which are in codes: TILES at once, from those that its
// share begins with on.
template <class T, u32 COLUMNS, u32 TILES, class F>
AMK_DEVICE void multiply_tiles(Worker& w, const WideGroup& c, const TeamPart& team,
                               const UnitRuns& runs, const StageWalk& stage, F add) {
#pragma unroll 1
    for (u32 j = TILES * team.share; team.busy && j < stage.here; j += TILES * c.shares) {
        const u32 inputs = c.inputs(stage.at) + j / 2 * (COLUMNS * LINE);
        if (T::GROUPS % TILES == 0 || j + 1 < stage.here)
            add(UnitTiles<T, TILES>(w, runs, stage.at, j), inputs);
        else
            add(UnitTiles<T, 1>(w, runs, stage.at, j), inputs);
    }
}

// Products of tiles in codes.
template <class T, u32 COLUMNS>
AMK_DEVICE void multiply_codes(Worker& w, const WideGroup& c, const TeamPart& team, bool norms,
                               WideSums<COLUMNS>& sums, Squares& squares) {
    const UnitRuns runs(w, c, team);
    const u32 row = matrix_row(w.lane, 0, 0);
    u32 log_team = c.log_team;
    asm volatile("" : "+r"(log_team)); // it would be computed again for each stage
    StageWalk stage(c);
#pragma unroll 1
    for (; stage.left > 0; stage.advance(c)) {
        stage.enter(w, c);
        if (norms) {
            squares.add_and_multiply(c, c.inputs(stage.at), c.gamma(stage.at), stage.here);
            fence_shared_copies(); // which come into the slot; `wgmma` reads the inputs
            w.sync();
        }
        if (BY_TEAMS<T> && any(log_team > 0))
            multiply_tiles<T, COLUMNS, BY_TEAMS<T> ? T::IN_TEAMS : 2>(
                w, c, team, runs, stage,
                [&](const auto& tiles, u32 inputs) { sums.add_by_team(tiles, inputs); });
        else
            multiply_tiles<T, COLUMNS, 2>(
                w, c, team, runs, stage,
                [&](const auto& tiles, u32 inputs) { sums.add(tiles, inputs + row); });
        StageWalk::leave(w, stage.slot);
    }
}

// Multiplies a group of units, whose tiles are `T`, and delivers.
template <class T> AMK_DEVICE void multiply_wide(Worker& w, WideGroups& groups) {
    constexpr u32 COLUMNS = WIDE_COLUMNS;
    const Record& r = groups.r;
    const GemvShape& g = groups.g;
    const bool norms = g.flags & GEMV_NORM;
    WideSums<COLUMNS> sums = {};
    Squares squares(w);
#if AMK_DEFERRED_NORMS
    if (groups.number == 0 && any(g.output == OUT_RESIDUAL)) load_norm_weights(w, r);
#endif
    if (groups.number == 0) await_inputs(w, r);
#if AMK_DEFERRED_NORMS
    const bool scales = any(lacks_scale(r, g));
    if (scales && groups.number == 0) {
        const bool some = groups.gathers();
        scale_columns(w, r, g, groups.all(),
                      [&](u32 column) { return some ? w.s.order[column] : column; });
    }
#endif
    {
        const WideGroup c = groups.group();
        const TeamPart team(w, c);
        if constexpr (T::DECODES && COLUMNS <= CODED_COLUMNS) {
            multiply_codes<T>(w, c, team, norms, sums, squares);
        } else if (FROM_MEMORY<T> && team.busy && !norms)
            multiply_from_memory(w, c, team, sums);
        else
            multiply_in_registers<T>(w, c, team, norms, sums, squares);
    }
    w.stamp(TRACE_PRODUCT);
    // What the delivery needs would spill registers of the loops above: it is computed again.
    asm volatile("" : "+r"(groups.number), "+r"(w.lane), "+r"(w.warp));
    const WideGroup c = groups.group();
    const TeamPart team(w, c);
    const u32 unit = team.unit(w, c);
    groups.number++;
    if constexpr (COLUMNS == 128)
        if (c.has_all()) {
            w.sync();
            if (!groups.ended()) end_group(w); // the next copies come meanwhile
            w.stamp(TRACE_GATHERED);
            const WideDelivery<COLUMNS> delivery{w, r, g, c, unit};
            if (unit < c.units)
                by_output(g,
                          [&](auto of) { delivery.template deliver<decltype(of)::kind>(sums.d); });
            return;
        }
    w.sync();
    if (team.busy) sums.store(w, c, unit, team.share);
    const u32 to = wide_scales(w, c), parts = to + 4 * WIDE_COLUMNS;
    if (norms) {
        squares.store(w, parts);
        w.sync();
    }
    const u32 column = w.thread();
    if (column < c.columns) {
        const float sum = norms ? Squares::of(parts, column) : 0;
        float scale = g.scale(sum, __fdividef(1.0f, g.k), w.p.eps);
#if AMK_DEFERRED_NORMS
        if (scales) scale = w.s.column_scales[column];
#endif
        store_shared(to + 4 * column, scale, true);
    }
    w.sync();
    w.stamp(TRACE_GATHERED);
    by_output(g, [&](auto of) { deliver_shares<decltype(of)::kind>(w, r, g, c); });
    fence_shared_copies(); // the next group or task reuses the memory
    w.sync();
    if (!groups.ended()) end_group(w);
}

// Runs a projection for the record's rows, or for those whose logits are wanted. `multiply` is
// `multiply_wide` with the tiles of the projection.
template <class F> AMK_DEVICE void gemv_wide(Worker& w, const Record& r, F multiply) {
    const GemvShape g(r.shape);
    WideGroups groups{w.p, w.s, r, g};
    if (groups.none()) return before_task(w, r);
#pragma unroll 1
    while (!groups.ended()) multiply(g, groups);
}
#endif
