// y = W x over rows of W that stream through the ring in tile order, fused with the ops around it
// in a decoder: RMSNorm of the input, bias, an element-wise function, and one of four ways to
// deliver the output.
//
// A tile is 8 rows x 32 k, one mma A fragment (tile.cuh): rows 0-7 hold the even half of k, rows
// 8-15 the odd half. B therefore needs two columns, and a row is D[r][0] + D[r+8][1], both in one
// lane. Each warp has some tiles of k.
//
// A small model's step consists mostly of the time between the last packet and the delivery, so
// everything else is done before. The code is specialised by depth only (input tiles that a warp
// holds in registers), and only where depth matters: a layer's code must fit the instruction cache
// (32 KiB), or every phase stalls on fetches.
#pragma once
#include "cut.cuh"
#include "partials.cuh"

// A group of a projection's units in progress, shared between the code for its input shape and the
// code for all shapes.
//
// Code common to all shapes exists once, so that a layer's code stays in the instruction cache (32
// KiB). Input requests are also common if the depths are nearly equal (AMK_SHARED). Otherwise all
// shapes would pay for the registers of the deepest.
struct Group {
    const GemvShape g;
    Pending<AMK_SHARED ? AMK_MOST : 1, 1> input; // if it is shared
    u32 units, squares_at, named;                // the last: see `BF16Tile::named`
    float squares[4];
#if AMK_SPLIT_K
    u32 first, end; // passes of its last unit, the only one that may lack some

    AMK_DEVICE void split(const Record& r) {
        if (r.op == OP_ADDENDS)
            first = r.layer & 255, end = r.layer >> 8 & 255;
        else
            first = 0, end = r.layer ? r.layer & 255 : ~0u;
    }
    AMK_DEVICE void begin(const Worker& w, const Record& r) {
        units = r.op == OP_ADDENDS ? 1 : group_units(r, w.first);
    }
    // One past its last pass.
    AMK_DEVICE u32 last(u32 passes) const { return units == 1 ? min(end, passes) : passes; }
    // Units in a pass.
    AMK_DEVICE u32 in_pass(u32 pass) const { return units - (pass >= end); }
#else
    enum : u32 { first }; // a variable would be in the cubin

    AMK_DEVICE void split(const Record&) {}
    AMK_DEVICE void begin(const Worker& w, const Record& r) { units = group_units(r, w.first); }
    AMK_DEVICE u32 last(u32 passes) const { return passes; }
    AMK_DEVICE u32 in_pass(u32) const { return units; }
#endif
    // The first tile of a warp, of so many in a pass.
    AMK_DEVICE u32 first_tile(const Worker& w, u32 depth) const {
        return (first * AMK_WARPS + w.warp) * depth;
    }
};

// The inputs of a warp's tiles of a pass, as products with tiles T need them.
template <int DEPTH, class T> struct Inputs {
    Fragment x[DEPTH];
    float sums[DEPTH];

    // `loads`: fragments as loaded, see ACROSS.
    AMK_DEVICE void take(const Worker& w, const Fragment* loads) {
        Fragment all = loads[0];
        if constexpr (T::APART) T::prepare(all, sums[0]);
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            x[j] = loads[ACROSS == 1 ? j : 0];
            if constexpr (T::APART) {
                const bool own = w.lane >> 3 == j;
                x[j] = {own ? all.b0 : 0, own ? all.b1 : 0};
            } else if constexpr (ACROSS > 1) {
                const u32 from = 8 * j + (w.lane & 7);
                x[j] = {__shfl_sync(~0u, all.b0, from), __shfl_sync(~0u, all.b1, from)};
            }
            if constexpr (!T::APART) T::prepare(x[j], sums[j]);
        }
    }
};

// A pass over the blocks of a group in the ring, of tiles T.
template <int DEPTH, bool EVEN, class T> struct Pass {
    u32 mine;             // tiles of a block from this warp's first on
    u32 bytes, slot;      // bytes of a block; blocks of a slot
    typename T::Place at; // of its first tile in the current block
    u32 partial;          // shared address of its row in this warp's partials of the first unit
#if AMK_SUMS
    u32 further; // 1: lanes next to the rows' have the sums of another column
#endif

    // Waits for the first block. `named`: see `BF16Tile::named`.
    AMK_DEVICE void begin_with(Worker& w, u32 tiles, u32 its_slot, u32 named) {
        slot = its_slot;
        mine = tiles - min(tiles, w.warp * DEPTH);
        bytes = tiles * T::BYTES;
#if AMK_SUMS
        float* const partials = partial_of_column(w, w.lane & 1);
#else
        float* const partials = w.partial();
#endif
        partial = shared_address(partials + w.warp * PARTIAL_PITCH + (w.lane >> 2));
        asm volatile("" : "+r"(slot), "+r"(bytes), "+r"(partial)); // now, while there is time
        at = typename T::Place(w.warp * DEPTH, w.lane, named);
        at.advance(w.acquire());
    }
    AMK_DEVICE void load(const Worker& w, T (&tiles)[DEPTH], const typename T::Place& from) const {
        T::template load<DEPTH>(tiles, from, w.warp * DEPTH, w.lane, EVEN ? DEPTH : mine);
    }
    // Goes on to the first block of the next slot, from a block `by` bytes behind a slot's first.
    AMK_DEVICE void next_slot(Worker& w, u32 by) {
        w.acquire();
        const u32 one = w.slot ? AMK_SLOT_BYTES : AMK_SLOT_BYTES - AMK_SLOTS * AMK_SLOT_BYTES;
        at.advance(one - by);
    }
    // This warp's share of the rows of a unit; where tiles are apart, the share of the lane's tile.
    AMK_DEVICE static float product(const T (&tiles)[DEPTH], const Inputs<DEPTH, T>& inputs) {
        return T::product(
            tiles, [&](int j) { return inputs.x[j]; }, [&](int j) { return inputs.sums[j]; });
    }
    // Stores sums of the first pass in the partials, or adds later ones.
    template <bool FIRST> AMK_DEVICE static void keep(u32 to, float y, bool mine) {
        if (!FIRST && mine) y += load_shared_one(to);
        store_shared(to, y, mine);
    }
    AMK_DEVICE bool has_sum(const Worker& w) const {
#if AMK_SUMS
        return (w.lane & 3) <= further;
#else
        return !(w.lane & 3);
#endif
    }
};

// The blocks of a pass one by one. The next one is in registers: a slot is released when its last
// block has been loaded, so that copies into it are on their way during products, and while inputs
// are awaited. With one row so many small blocks are in the other slots that a later release costs
// less than the condition for an earlier one.
template <int DEPTH, bool EVEN, class T> struct Blocks : Pass<DEPTH, EVEN, T> {
    static constexpr bool EARLY =
        AMK_ROWS || T::DECODES || 2 * DEPTH * AMK_WARPS * T::BYTES > AMK_SLOT_BYTES;
    T a[DEPTH];      // this warp's tiles of a block, zeros past its end
    u32 left, units; // blocks of the slot and of the pass from this one on

    AMK_DEVICE void begin(Worker& w, const Group& group, u32 tiles, u32 its_units) {
#if AMK_SUMS
        this->further = group.g.is_sum();
#endif
        begin_with(w, tiles, group.units > 1 ? GemvCut::blocks(tiles, T::BYTES) : 1, group.named,
                   its_units);
    }
    AMK_DEVICE void begin_with(Worker& w, u32 tiles, u32 slot, u32 named, u32 its_units) {
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (!EVEN) a[j] = T();
        Pass<DEPTH, EVEN, T>::begin_with(w, tiles, slot, named);
        left = this->slot, units = its_units;
        fetch(w);
    }
    AMK_DEVICE void fetch(Worker& w) {
        this->load(w, a, this->at);
        if (EARLY && any(left == 1 || units == 1)) w.release();
    }
    // Goes on to the next block.
    AMK_DEVICE void next(Worker& w) {
        units--;
        if (--left) {
            this->at.advance(this->bytes);
        } else {
            if (!EARLY) w.release();
            left = this->slot, this->next_slot(w, (this->slot - 1) * this->bytes);
        }
        fetch(w);
    }
    // Multiplies by the fragments into this warp's partials.
    template <bool FIRST> AMK_DEVICE void times(Worker& w, const Inputs<DEPTH, T>& inputs) {
        u32 to = this->partial;
        const auto product = [&] {
            float y = this->product(a, inputs);
            if constexpr (T::APART)
                y += __shfl_xor_sync(~0u, y, 1), y += __shfl_xor_sync(~0u, y, 2);
            if constexpr (T::DECODES) y *= T::UP;
            return y;
        };
#pragma unroll 1
        for (; units > 1; to += AMK_UNIT * 4) {
            const float y = product();
            next(w);
            this->template keep<FIRST>(to, y, this->has_sum(w));
        }
        this->template keep<FIRST>(to, product(), this->has_sum(w));
        if (!EARLY) w.release();
    }
};

// The blocks of a pass, COUNT of a slot at once or what is left of it: the instructions of one fill
// the waits of others, and fewer of them go from block to block. The next ones are in registers,
// and slots are released as by `Blocks`.
template <int DEPTH, bool EVEN, class T, int COUNT> struct SlotBlocks : Pass<DEPTH, EVEN, T> {
    using Base = Pass<DEPTH, EVEN, T>;
    T a[COUNT][DEPTH];
    u32 count;       // of the current blocks
    u32 left, units; // blocks of the slot and of the pass from them on

    AMK_DEVICE void begin(Worker& w, const Group& group, u32 tiles, u32 its_units) {
        Base::begin_with(w, tiles, EVEN ? 0 : blocks_of(tiles), group.named);
        if (EVEN) this->slot = blocks_of(WHOLE), this->bytes = WHOLE * T::BYTES; // constants
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int j = 0; j < DEPTH; j++)
                if (!EVEN) a[i][j] = T();
        left = this->slot, units = its_units;
        fetch(w);
    }
    static constexpr u32 WHOLE = DEPTH * AMK_WARPS; // tiles of a block of all warps' tiles
    AMK_DEVICE static u32 blocks_of(u32 tiles) {
        return tiles == WHOLE ? AMK_SLOT_BYTES / (WHOLE * T::BYTES)
                              : GemvCut::blocks(tiles, T::BYTES);
    }
    // Whether the blocks are a slot. Then all its places are loaded: behind the last unit they have
    // old data, whose products are not stored. Conditions would take more instructions.
    static constexpr bool WHOLE_SLOTS = EVEN && AMK_SLOT_BYTES / (WHOLE * T::BYTES) == (u32)COUNT;

    AMK_DEVICE void fetch(Worker& w) {
        count = WHOLE_SLOTS ? COUNT : min(min(units, left), COUNT);
        typename T::Place from = this->at;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++, from.advance(this->bytes))
            if (WHOLE_SLOTS || i < count) Base::load(w, a[i], from);
        if (WHOLE_SLOTS || any(count == left || count == units)) w.release();
    }
    AMK_DEVICE void next(Worker& w) {
        if (WHOLE_SLOTS)
            this->next_slot(w, 0);
        else if (left -= count)
            this->at.advance(count * this->bytes);
        else
            this->next_slot(w, (this->slot - count) * this->bytes), left = this->slot;
        fetch(w);
    }
    template <bool FIRST> AMK_DEVICE void times(Worker& w, const Inputs<DEPTH, T>& inputs) {
        u32 own = w.lane & 3; // of a lane: the block whose sums it stores
        asm volatile("" : "+r"(own));
        u32 to = this->partial + own * (AMK_UNIT * 4);
#pragma unroll 1
        for (;;) {
            float y[COUNT] = {};
#pragma unroll
            for (u32 i = 0; i < COUNT; i += 2) {
                // Blocks between two branches wait together: one for nothing costs less.
                if (i > 0 && !any(i < (WHOLE_SLOTS ? units : count))) continue;
                y[i] = this->product(a[i], inputs);
                if (i + 1 < COUNT) y[i + 1] = this->product(a[i + 1], inputs);
            }
            const u32 ready = count, here = units;
            const bool ends = here <= ready;
            if (!ends) units -= ready, next(w);
            const u32 stored = WHOLE_SLOTS && COUNT == 4 ? here : min(here, ready); // `own` < 4
            Base::template keep<FIRST>(to, own_sum(y, own) * T::UP, own < stored);
            if (ends) break;
            to += ready * (AMK_UNIT * 4);
        }
    }
    // The sum of block `own`.
    AMK_DEVICE static float own_sum(const float (&y)[COUNT], u32 own) {
        const bool odd = own & 1, upper = own & 2;
        if constexpr (T::APART) {
            // Lanes that are 1 and 2 apart add up.
            const float sum = of_pair<0>(y, odd);
            if constexpr (COUNT > 2) {
                const float others = of_pair<2>(y, odd);
                return (upper ? others : sum) + __shfl_xor_sync(~0u, upper ? sum : others, 2);
            } else
                return sum + __shfl_xor_sync(~0u, sum, 2);
        } else { // all lanes of a row have its sums
            const float sum = odd ? y[1] : y[0];
            if constexpr (COUNT > 2)
                return upper ? (odd ? y[COUNT - 1] : y[2]) : sum;
            else
                return sum;
        }
    }
    // Adds up the sums of two lanes, of block FIRST for the even one and of the next for the other.
    template <int FIRST> AMK_DEVICE static float of_pair(const float (&y)[COUNT], bool odd) {
        const float first = y[FIRST], second = FIRST + 1 < COUNT ? y[FIRST + 1] : 0;
        return (odd ? second : first) + __shfl_xor_sync(~0u, odd ? first : second, 1);
    }
};

// How many blocks of tiles T a warp multiplies at once.
template <class T> AMK_DEVICE constexpr int blocks_at_once(int depth) {
    const int slot = AMK_SLOT_BYTES / (depth * AMK_WARPS * T::BYTES);
    return ACROSS == 1 || !T::DECODES ? 1 : slot < 4 ? slot : 4;
}
template <int DEPTH, bool EVEN, class T>
using BlocksOf = typename Either<blocks_at_once<T>(DEPTH) == 1, Blocks<DEPTH, EVEN, T>,
                                 SlotBlocks<DEPTH, EVEN, T, blocks_at_once<T>(DEPTH)>>::Type;

// Computes the products of an input that fits the registers: PASSES passes behind one wait.
template <int DEPTH, int PASSES, bool EVEN, class T, class P>
AMK_DEVICE void multiply_whole(Worker& w, Group& group, P& input) {
    const u32 tiles = group.g.tiles(), early = PASSES == 1 ? tiles : DEPTH * AMK_WARPS;
    constexpr int LOADS = loads_of(DEPTH);
    BlocksOf<DEPTH, EVEN, T> blocks;
    blocks.begin(w, group, early, group.units); // before the inputs: it may have arrived already
    input.template arrive<LOADS * PASSES>(w, tiles);
    if (w.first == 0) w.stamp(TRACE_INPUTS);
    Fragment x[LOADS * PASSES];
    input.fragments(w, group.g, x, group.squares);
    Inputs<DEPTH, T> inputs[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) inputs[pass].take(w, x + pass * LOADS);
    blocks.template times<true>(w, inputs[0]);
#pragma unroll
    for (int pass = 1; pass < PASSES; pass++) {
        blocks.begin(w, group, tiles - early, group.units);
        blocks.template times<false>(w, inputs[pass]);
    }
}

// The same, where a pass takes one load: one pass after the other by the same code.
template <int DEPTH, int PASSES, bool EVEN, class T, class P>
AMK_DEVICE void multiply_held(Worker& w, Group& group, P& input) {
    const GemvCut cut(group.g);
    BlocksOf<DEPTH, EVEN, T> blocks;
    blocks.begin(w, group, cut.count(0), group.units);
    input.template arrive<PASSES>(w, cut.tiles);
    if (w.first == 0) w.stamp(TRACE_INPUTS);
    Fragment x[PASSES];
    input.fragments(w, group.g, x, group.squares);
    Inputs<DEPTH, T> inputs;
    inputs.take(w, x);
    blocks.template times<true>(w, inputs);
#pragma unroll 1
    for (u32 pass = 1; pass < PASSES; pass++) {
#pragma unroll
        for (int i = 0; i + 1 < PASSES; i++) x[i] = x[i + 1];
        blocks.begin(w, group, cut.count(pass), group.units);
        inputs.take(w, x);
        blocks.template times<false>(w, inputs);
    }
}

// Computes the products of a longer input: the packets of a pass are requested while the previous
// pass is multiplied.
template <int DEPTH, bool EVEN, class T, class P>
AMK_DEVICE void multiply_long(Worker& w, const Record& r, Group& group, P& input) {
    const GemvCut cut(group.g);
    Inputs<DEPTH, T> inputs;
    const u32 first = group.first, end = group.last(cut.passes);
#pragma unroll 1
    for (u32 pass = first; pass < end; pass++) {
        const u32 units = group.in_pass(pass);
        BlocksOf<DEPTH, EVEN, T> blocks;
        blocks.begin(w, group, cut.count(pass), units); // before the inputs: it may have arrived
        input.template arrive<loads_of(DEPTH)>(w, cut.tiles);
        if (w.first == 0 && pass == first) w.stamp(TRACE_INPUTS);
        Fragment x[loads_of(DEPTH)];
        input.fragments(w, group.g, x, group.squares);
        inputs.take(w, x);
        if (pass + 1 < end)
            input.template issue<EVEN>(w, r, group.g, cut.first(pass + 1) + w.warp * DEPTH, DEPTH);
        if (pass == first)
            blocks.template times<true>(w, inputs);
        else
            blocks.template times<false>(w, inputs);
    }
}

// Runs a group with the code for its input shape, DEPTH tiles per pass: PASSES passes behind one
// wait or, with 0, any number of passes, each with its own wait.
template <int DEPTH, int PASSES, bool EVEN, class T, class F>
AMK_DEVICE void multiply(Worker& w, const Record& r, Group& group, F prepare) {
    using Tile = typename Either<ACROSS == 1, T, typename LaneTiles<T, DEPTH>::Type>::Type;
    const auto run = [&](auto& input) {
        if constexpr (PASSES == 0)
            multiply_long<DEPTH, EVEN, Tile>(w, r, group, input);
        else if constexpr (PASSES > 1 && ACROSS > 1)
            multiply_held<DEPTH, PASSES, EVEN, Tile>(w, group, input);
        else
            multiply_whole<DEPTH, PASSES, EVEN, Tile>(w, group, input);
    };
    if constexpr (AMK_SHARED)
        run(group.input);
    else {
        Pending<DEPTH, PASSES ? PASSES : 1> input;
        input.template issue<EVEN>(w, r, group.g, group.first_tile(w, DEPTH), DEPTH);
        prepare();
        run(input);
    }
    if (PASSES <= AMK_NORMED_PASSES && (group.g.flags & GEMV_NORM))
        tell_squares(w, group.g, group.squares_at, group.squares);
}

// Runs a projection. `by` multiplies a group with the code for its input shape.
template <class F> AMK_DEVICE void gemv(Worker& w, const Record& r, F by) {
    if (r.units == 0) return w.look_ahead();
    Group group = {GemvShape(r.shape)};
    group.split(r);
    bool delivers; // whether this warp delivers
    Delivery delivery;
    const auto prepare = [&] { // while the inputs are in flight
        w.look_ahead();
        group.begin(w, r);
        group.squares_at = squares_address(w);
        group.named = BF16Tile::named(w.lane);
        asm volatile("" : "+r"(group.units), "+r"(group.squares_at), "+r"(group.named));
        delivers = Delivery::due(w, group.units);
        delivery = {};
        if (delivers) delivery.prepare(w, r, group.g, w.first, group.units);
    };
    if constexpr (AMK_SHARED) {
        group.input.template issue<AMK_EVEN>(w, r, group.g, group.first_tile(w, group.g.depth),
                                             group.g.depth);
        prepare();
    }
    by(group, prepare);
    w.stamp(TRACE_PRODUCT);
    w.sync();
    w.stamp(TRACE_GATHERED);
    if (delivers) delivery.deliver(w, r, group.g);
    w.buffer ^= 1;
    w.end_task(delivers);
}
