// y = W x for all rows of a step, over the same tape as for one row.
//
// The two columns of B that a row needs (see fused.cuh) are an eighth of the lanes twice, so a set
// of four rows takes one product: lane l holds the input of row l / 8 of the set and of the output
// the products of row l % 4. Where tiles are decoded, products of two units at once, which take
// half as many instructions, are faster; a row is a column then, see `RowFragment`.
//
// Each row has its own columns, partial sums and delivery, so its bits depend neither on other rows
// nor on their number.
#pragma once
#include "fused.cuh"

#if AMK_ROWS
constexpr u32 SETS = (AMK_ROWS + 7) / 8 * 2; // of four rows of a narrow step, there or not
constexpr u32 UNIT_SUMS = SETS * 128;        // bytes of a warp's sums of a unit
// Of the residual, per row of the step: where blocks of rows share out the weights, those of some
// neighbours.
constexpr u32 OWN_ROWS = (AMK_ROWS + BLOCK_ROWS - 1) / BLOCK_ROWS * MAX_STEP_OWN;

// The residual of the rows of the model that each worker owns, for a block of rows, where the
// shared memory is too small for it. No worker reads another's. A warp that adds to it from
// its registers has a unit's rows for some rows of the step: where most do, these lie side by side.
#if AMK_HELD_BY_UNITS
__device__ float residuals[AMK_WORKERS][OWN_ROWS / AMK_UNIT][BLOCK_ROWS][AMK_UNIT];
constexpr u32 HELD_APART = AMK_UNIT; // floats from a row of the step to the next
#else
#if AMK_ROWS > HELD_IN_SHARED
__device__ float residuals[AMK_WORKERS][BLOCK_ROWS][OWN_ROWS];
#endif
constexpr u32 HELD_APART = OWN_ROWS;
#endif
// The residual of row `own` of the model, of those that this worker owns, for a row of the step.
AMK_DEVICE float& held_at(const Worker& w, u32 row, u32 own) {
#if AMK_HELD_BY_UNITS
    return residuals[blockIdx.x][own / AMK_UNIT][row % BLOCK_ROWS][own % AMK_UNIT];
#elif AMK_ROWS > HELD_IN_SHARED
    return residuals[blockIdx.x][row % BLOCK_ROWS][own];
#else
    return w.s.residual[row * OWN_ROWS + own]; // a pointer to the row would spill registers
#endif
}

// The first row of the step that a record is for, and how many of the first `most` it is for.
AMK_DEVICE u32 step_row(const Record& r) { return AMK_WIDE ? r.layer & 0xffff : 0; }
AMK_DEVICE u32 step_rows(const Record& r, u32 most) {
    if (!AMK_WIDE || !r.layer) return most;
    const u32 first = step_row(r), end = min(r.layer >> 16, most);
    return end > first ? end - first : 0;
}
#endif

#if AMK_ROWS && !AMK_WIDE
// Whether the inputs of the next pass come during products. With more rows registers do not have
// room for them; meanwhile the ring fills.
constexpr bool INPUTS_AHEAD = SETS == 2;
// Whether inputs of one pass stay in registers, if not ahead of time, for the next units of a task.
// That spills others, for which tasks of few units would pay as well.
constexpr bool KEEPS_INPUTS = AMK_KEEPS_INPUTS;
static_assert(AMK_ROW_UNITS * AMK_WARPS * UNIT_SUMS <= AMK_ROW_SCRATCH,
              "the partial sums must fit the scratch");

// The input of a row, of step rows that there are.
AMK_DEVICE const Elem* row_input(const Worker& w, const Record& r, const GemvShape& g, u32 row) {
    return g.input == IN_PACKETS ? (const Elem*)w.words(r.input, row)
                                 : w.p.embedding + (u64)w.s.rows[row].token * w.p.hidden;
}

// The input of a warp's tiles of a pass, as loaded. A lane has four columns of a half of each tile,
// of a row of each set. Rows and tiles that there are not are zeros.
struct RowInputs {
    uint2 v[AMK_MOST][SETS], gamma[AMK_MOST];
    u32 row[INPUTS_AHEAD ? SETS : 1]; // see `from`

    AMK_DEVICE RowInputs(const Worker& w, const Record& r, const GemvShape& g) {
        forget<AMK_MOST>();
#pragma unroll
        for (u32 set = 0; INPUTS_AHEAD && set < SETS; set++)
            row[set] = (find(w, r, g, set) - base(w, g)) / 4;
    }
    AMK_DEVICE static const Elem* base(const Worker& w, const GemvShape& g) {
        return g.input == IN_PACKETS ? (const Elem*)w.words(0, 0) : w.p.embedding;
    }
    // A lane's row of a set, from its first column on. For rows that there are not, the first row
    // is as good as any.
    AMK_DEVICE static const Elem* find(const Worker& w, const Record& r, const GemvShape& g,
                                       u32 set) {
        const u32 row = 4 * set + (w.lane >> 3);
        return row_input(w, r, g, row < w.p.row_count ? row : 0) + 4 * (w.lane & 7);
    }
    // The same, which registers have if they have room: as an index of four elements.
    AMK_DEVICE const Elem* from(const Worker& w, const Record& r, const GemvShape& g,
                                u32 set) const {
        return INPUTS_AHEAD ? base(w, g) + (u64)row[set] * 4 : find(w, r, g, set);
    }
    // As for rows that there are not, and without a norm.
    template <int DEPTH> AMK_DEVICE void forget() {
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            gamma[j] = make_uint2(BF16_ONES, BF16_ONES);
#pragma unroll
            for (u32 set = 0; set < SETS; set++) v[j][set] = make_uint2(0, 0);
        }
    }
    // Requests `depth` tiles from `first` on, DEPTH at most; with FULL there are so many.
    template <int DEPTH = AMK_MOST, bool FULL = false>
    AMK_DEVICE void load(const Worker& w, const Record& r, const GemvShape& g, u32 first) {
        const u32 mine = FULL ? DEPTH : min(g.tiles() - min(g.tiles(), first), g.depth);
        const u32 k0 = first * AMK_TILE_K;
        if (!INPUTS_AHEAD) forget<DEPTH>(); // rather than to keep them in registers
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            if (any(4 * set >= w.p.row_count)) continue;
            const Elem* const row = from(w, r, g, set) + k0;
#pragma unroll
            for (u32 j = 0; j < DEPTH; j++) {
                if (!FULL) v[j][set] = make_uint2(0, 0);
                if (j < mine) v[j][set] = load_relaxed_one((const u64*)(row + j * AMK_TILE_K));
            }
        }
        if (!any(g.flags & GEMV_NORM)) return;
        const Elem* const norm = w.p.constants + r.norm + k0 + 4 * (w.lane & 7);
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++)
            if (j < mine) gamma[j] = *(const uint2*)(norm + j * AMK_TILE_K);
    }
    // Whether any word is not there yet.
    template <int DEPTH> AMK_DEVICE bool is_late() const {
        bool late = false;
#pragma unroll
        for (u32 set = 0; set < SETS; set++)
#pragma unroll
            for (u32 j = 0; j < DEPTH; j++) late |= v[j][set].x == ABSENT || v[j][set].y == ABSENT;
        return late;
    }
    // Waits until all words are there. Late ones are requested again.
    template <int DEPTH>
    AMK_DEVICE void arrive(Worker& w, const Record& r, const GemvShape& g, u32 first) {
#if AMK_ROW_PACKETS
        if (g.input != IN_PACKETS || !any(is_late<DEPTH>())) return;
        const Timed timed(w.late);
        do {
            __nanosleep(100); // requests by all workers delay the stores that these wait for
            const u64* missing = nullptr; // a late word of this lane
#pragma unroll
            for (u32 set = 0; set < SETS; set++) {
                const u64* row = (const u64*)(from(w, r, g, set) + first * AMK_TILE_K);
#pragma unroll
                for (u32 j = 0; j < DEPTH; j++)
                    if (v[j][set].x == ABSENT || v[j][set].y == ABSENT) {
                        missing = row + j * (AMK_TILE_K / 4);
                        v[j][set] = load_relaxed_one(missing);
                    }
            }
            if (any(missing && !w.lacks((const u32*)missing))) break;
        } while (any(is_late<DEPTH>()));
#endif
    }
    // The fragment of a set of rows, a tile of one unit with it. `by`: the tile's `weights`.
    AMK_DEVICE Fragment fragment(u32 j, u32 set, const uint2& by) const {
        if (!INPUTS_AHEAD) return {v[j][set].x, v[j][set].y};
        return {multiply_bf16(v[j][set].x, by.x), multiply_bf16(v[j][set].y, by.y)};
    }
    // The norm's weights of a tile, times the power of two by which inputs of tiles T are larger:
    // products with them are rounded alike.
    template <class T> AMK_DEVICE uint2 weights(u32 j, bool upper) const {
        if constexpr (!T::LIFTS)
            return gamma[j];
        else {
            const u32 lift = T::lift(upper);
            return make_uint2(multiply_bf16(gamma[j].x, lift), multiply_bf16(gamma[j].y, lift));
        }
    }
    // Multiplies them by the norm's weights, where these are not kept.
    template <int DEPTH, class T> AMK_DEVICE void norm(const Worker& w) {
#pragma unroll
        for (u32 j = 0; !INPUTS_AHEAD && j < DEPTH; j++) {
            const uint2 by = weights<T>(j, w.lane & 4);
#pragma unroll
            for (u32 set = 0; set < SETS; set++)
                v[j][set] =
                    make_uint2(multiply_bf16(v[j][set].x, by.x), multiply_bf16(v[j][set].y, by.y));
        }
    }
    // The tensor cores sum the squares, with x as both operands: on the diagonal are the sums over
    // a half of k of a row. A has two sets, one above the other.
    template <int DEPTH> AMK_DEVICE void add_squares(float (&squares)[SETS][2]) const {
#pragma unroll
        for (u32 set = 0; set < SETS; set += 2) {
            float (&one)[2] = squares[set], (&two)[2] = squares[set + 1];
            float d[4] = {one[0], one[1], 0, 0}, e[4] = {0, 0, two[0], two[1]};
#pragma unroll
            for (u32 j = 0; j < DEPTH; j++) {
                const uint2 x = v[j][set], y = v[j][set + 1];
                const uint4 a = make_uint4(x.x, y.x, x.y, y.y);
                mma(d, a, x.x, x.y), mma(e, a, y.x, y.y);
            }
            one[0] = d[0], one[1] = d[1], two[0] = e[2], two[1] = e[3];
        }
    }
};

// Stores a warp's sums of squares of each row, see `add_squares`.
AMK_DEVICE void store_squares(Worker& w, const float (&squares)[SETS][2]) {
#pragma unroll
    for (u32 set = 0; set < SETS; set++) {
        const float half = w.lane & 4 ? squares[set][1] : squares[set][0];
        const float sum = half + __shfl_down_sync(~0u, half, 4);
        if (w.lane % 9 == 0) w.s.row_squares[w.warp][4 * set + w.lane / 9] = sum;
    }
}

// A pass over units that are reduced together.
struct RowPass {
    const Record& r;
    const GemvShape& g;
    RowInputs& input;
    float (&squares)[SETS][2];
    float& up;                // what sums of products are to be multiplied by
    u32 number, units, tiles; // of the pass
    u32 slot;                 // blocks of a slot of the ring
    u32 first, next;          // this warp's first tile, and that of the pass after
    bool fresh, more;         // whether the inputs come for the first time, and others after them
    bool same;                // the registers have them from the units before
};

// Adds the sums of a unit to those at a lane's place, if there are any, and stores them: of a row
// of the unit and a row of each of two sets.
AMK_DEVICE void add_sums(u32 at, float first, float second, bool more) {
    if (more) first += load_shared_one(at), second += load_shared_one(at + 128);
    store_shared(at, first, true), store_shared(at + 128, second, true);
}
// This lane's place for the first unit.
AMK_DEVICE u32 sums_address(const Worker& w) {
    return w.row_scratch() + w.warp * UNIT_SUMS + w.lane * 4;
}

// The products of the units of a pass, one after the other.
template <int DEPTH, bool EVEN, class T, bool PAIRS = T::DECODES>
struct RowProducts : Blocks<DEPTH, EVEN, T> {
    static_assert(Blocks<DEPTH, EVEN, T>::EARLY, "slots are released by `fetch` alone");
    Fragment x[DEPTH][SETS];
    float sums[DEPTH][SETS];

    // Before the inputs: the first block may have arrived already.
    AMK_DEVICE void begin(Worker& w, const RowPass& pass) {
        this->begin_with(w, pass.tiles, pass.slot, T::named(w.lane), pass.units);
    }
    AMK_DEVICE void take(const Worker& w, const RowInputs& input) {
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++)
#pragma unroll
            for (u32 set = 0; set < SETS; set++)
                x[j][set] = input.fragment(j, set, input.template weights<T>(j, w.lane & 4));
    }
    AMK_DEVICE void prepare() {
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
#pragma unroll
            for (u32 set = 0; set < SETS; set++) T::prepare(x[j][set], sums[j][set]);
    }
    AMK_DEVICE void multiply(Worker& w, const RowPass& pass) {
        u32 to = sums_address(w);
#pragma unroll 1
        for (;; to += AMK_WARPS * UNIT_SUMS) {
            float y[SETS];
#pragma unroll
            for (u32 set = 0; set < SETS; set++)
                y[set] = T::product(
                    this->a, [&](int j) { return x[j][set]; }, [&](int j) { return sums[j][set]; });
            const bool ends = this->units == 1;
            if (!ends) this->next(w);
#pragma unroll
            for (u32 set = 0; set < SETS; set += 2)
                add_sums(to + set * 128, y[set], y[set + 1], pass.number);
            if (ends) break;
        }
    }
};

// The same, two units at once. The codes of the next two are loaded while the tensor cores
// multiply, and their scales once the current ones have been applied.
template <int DEPTH, bool EVEN, class T>
struct RowProducts<DEPTH, EVEN, T, true> : Pass<DEPTH, EVEN, T> {
    static constexpr u32 EIGHTS = SETS / 2,
                         WHOLE = DEPTH * AMK_WARPS * T::BYTES; // bytes of a block of all tiles
    // Whether the units may be of two slots.
    static constexpr bool STRADDLES = !EVEN || AMK_SLOT_BYTES / WHOLE % 2;
    RowFragment x[DEPTH][EIGHTS];
    typename T::RowSums sums[DEPTH][EIGHTS];
    T one[DEPTH], two[DEPTH];
    u32 left, units; // blocks of the slot and of the pass from the first unit's on
    u32 apart;       // bytes from the first unit's block to the second's

    AMK_DEVICE void begin(Worker& w, const RowPass& pass) {
        this->begin_with(w, pass.tiles, pass.slot, T::named(w.lane));
        if (EVEN) this->slot = AMK_SLOT_BYTES / WHOLE, this->bytes = WHOLE; // constants
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (!EVEN) one[j] = two[j] = T();
        left = this->slot, units = pass.units, apart = this->bytes;
        load_codes(w), load_scales(w);
    }
    // The halves of the columns are loaded by lanes that are 4 apart. Column 2 i is row i of the
    // first of two sets, and the next one of the second: so sums are where those of one unit are.
    AMK_DEVICE void take(const Worker& w, const RowInputs& input) {
        const bool upper = w.lane & 4;
#pragma unroll
        for (u32 j = 0; j < DEPTH; j++) {
            const uint2 by = input.template weights<T>(j, upper);
#pragma unroll
            for (u32 i = 0; i < EIGHTS; i++) {
                const Fragment one = input.fragment(j, 2 * i, by),
                               two = input.fragment(j, 2 * i + 1, by), given = upper ? one : two;
                const Fragment got = {__shfl_xor_sync(~0u, given.b0, 4),
                                      __shfl_xor_sync(~0u, given.b1, 4)};
                x[j][i].even = upper ? got : one, x[j][i].odd = upper ? two : got;
            }
        }
    }
    AMK_DEVICE void prepare() { T::prepare(x, sums); }
    AMK_DEVICE void multiply(Worker& w, const RowPass& pass) {
        u32 to = sums_address(w);
#pragma unroll 1
        for (;; to += 2 * AMK_WARPS * UNIT_SUMS) {
            const typename T::template UnitProducts<DEPTH, EIGHTS> products(one, two, x, sums);
            const bool ends = units <= 2;
            if (!ends) next(w), load_codes(w);
            float4 y[EIGHTS];
#pragma unroll
            for (u32 i = 0; i < EIGHTS; i++) y[i] = products.shares(one, two, sums, i);
            if (!ends) load_scales(w);
#pragma unroll
            for (u32 i = 0; i < EIGHTS; i++) {
                const u32 at = to + i * 256;
                add_sums(at, y[i].x, y[i].y, pass.number);
                // Behind a last unit that is alone is one that nobody delivers.
                if (AMK_ROW_UNITS > 1)
                    add_sums(at + AMK_WARPS * UNIT_SUMS, y[i].z, y[i].w, pass.number);
            }
            if (ends) break;
        }
    }
    // Where slots hold whole pairs, a lone unit is followed by old data, whose sums are nobody's.
    AMK_DEVICE bool has_second() const { return !STRADDLES || any(units > 1); }
    AMK_DEVICE void load_codes(Worker& w) {
        const u32 mine = EVEN ? DEPTH : this->mine;
        T::load_codes(one, this->at, w.warp * DEPTH, w.lane, mine);
        if (!has_second()) return;
        if (STRADDLES) {
            apart = this->bytes;
            if (any(left == 1)) w.acquire(1), apart = past_slot(w.slot + 1 < AMK_SLOTS);
        }
        T::load_codes(two, second_place(), w.warp * DEPTH, w.lane, mine);
    }
    // Then both units are in registers, and slots that they end are released.
    AMK_DEVICE void load_scales(Worker& w) {
        const u32 mine = EVEN ? DEPTH : this->mine;
        T::load_scales(one, this->at, w.warp * DEPTH, w.lane, mine);
        if (has_second()) T::load_scales(two, second_place(), w.warp * DEPTH, w.lane, mine);
        const bool ends = units <= 2;
        if (any(ends || left <= 2)) w.release();
        if (STRADDLES && any(left == 1 && units > 1 && (ends || this->slot == 1))) w.release();
    }
    AMK_DEVICE typename T::Place second_place() const {
        typename T::Place at = this->at;
        at.advance(apart);
        return at;
    }
    // Goes on to the next two units, or the last one.
    AMK_DEVICE void next(Worker& w) {
        units -= 2;
        u32 by = apart + this->bytes;
        if (any(left > 2))
            left -= 2;
        else if (STRADDLES && any(left == 1 && this->slot > 1))
            left = this->slot - 1; // the second one was the first of its slot
        else {
            w.acquire();
            by = apart + past_slot(w.slot), left = this->slot;
        }
        this->at.advance(by);
    }
    // Bytes from the last block of a slot to the first one of the next slot, which is a higher one
    // or the first.
    AMK_DEVICE u32 past_slot(bool higher) const {
        return (higher ? AMK_SLOT_BYTES : AMK_SLOT_BYTES - AMK_SLOTS * AMK_SLOT_BYTES) -
               (this->slot - 1) * this->bytes;
    }
};

// Multiplies a pass over a group of units, DEPTH tiles of each warp. Sums of the first pass are
// stored, later ones added: each lane has its own places.
template <int DEPTH, bool EVEN, class T> AMK_DEVICE void times_rows(Worker& w, RowPass pass) {
    RowProducts<DEPTH, EVEN, T> products;
    // Those in other places than they are loaded to are not kept.
    const bool comes = INPUTS_AHEAD || T::DECODES || !KEEPS_INPUTS || !any(pass.same);
    if (!INPUTS_AHEAD && comes)
        pass.input.template load<DEPTH, EVEN>(w, pass.r, pass.g, pass.first);
    products.begin(w, pass);
    if (comes) pass.input.template arrive<DEPTH>(w, pass.r, pass.g, pass.first);
    if (pass.fresh && (pass.g.flags & GEMV_NORM))
        pass.input.template add_squares<DEPTH>(pass.squares);
    if (comes) pass.input.template norm<DEPTH, T>(w);
    products.take(w, pass.input);
    if (pass.fresh && pass.number == 0) w.stamp(TRACE_INPUTS);
    if (INPUTS_AHEAD && pass.more)
        pass.input.template load<DEPTH, EVEN>(w, pass.r, pass.g, pass.next);
    products.prepare();
    if constexpr (T::DECODES) pass.up = T::UP;
    products.multiply(w, pass);
}

// What a lane delivers: a row of a unit, for a row of the step. What needs no sums is computed and
// loaded before all warps have theirs.
struct RowDelivery {
    u32 row, at;                      // of the step; of the unit, within the task
    u32 place;                        // of a unit's sums
    float part, bias = 0, before = 0; // 1 / k; the residual

    AMK_DEVICE RowDelivery(const Worker& w, const Record& r, const GemvShape& g, u32 unit) {
        u32 warp = w.warp, lane = w.lane;
        // What follows from these would be kept, and spilled, while products are computed.
        asm volatile("" : "+r"(warp), "+r"(lane));
        row = warp % SETS * 4 + (lane & 3), at = unit * AMK_UNIT + (lane >> 2);
        place = (warp % SETS * 32 + lane) * 4;
        part = __fdividef(1.0f, g.k);
        if (g.flags & GEMV_BIAS) bias = constant(w.p.constants, r.bias + at);
        if (g.output == OUT_RESIDUAL) before = held_at(w, row, at);
    }
    AMK_DEVICE void deliver(Worker& w, const Record& r, const GemvShape& g, float y) const {
        const bool here = row < w.p.row_count;
        if (g.output == OUT_LOGITS) {
#if AMK_MAPS
            if (g.function()) y = map_product(g.function(), y);
#endif
            const u32 wanted = w.s.rows[row].wanted;
            if (here && wanted) w.p.logits[(u64)(wanted - 1) * w.p.logit_stride + r.row + at] = y;
            return;
        }
        if (g.flags & GEMV_BIAS) y += bias;
#if AMK_MAPS && AMK_SUMMANDS
        if (g.output == OUT_RESIDUAL && g.function()) y = map_product(g.function(), y);
#endif
        if (g.output == OUT_RESIDUAL) held_at(w, row, at) = y += before;
#if AMK_MAPS
        if (g.output == OUT_STORE && g.function()) y = map_product(g.function(), y);
#endif
        const bool gated = g.output == OUT_GATED; // rows are (gate, up) pairs
        if (gated) y = gate_products(g.function(), y, __shfl_down_sync(~0u, y, 4));
        const float next = __shfl_down_sync(~0u, y, gated ? 8 : 4);
        if (row < AMK_ROWS && (w.lane & (gated ? 12 : 4)) == 0)
            put_word(w, pair_at(w, r.output, at >> (gated ? 2 : 1), row), pack_bf16(y, next), here);
    }
};

// Sums the warps' shares of units and delivers: a warp takes a set of four rows for some units. The
// first is `own`'s.
AMK_DEVICE void deliver_rows(Worker& w, const Record& r, const GemvShape& g, u32 first, u32 units,
                             float up, RowDelivery own) {
#pragma unroll 1
    for (u32 unit = w.warp / SETS; unit < units;) {
        float squares = 0, y = 0;
        if (g.flags & GEMV_NORM) {
#pragma unroll
            for (u32 i = 0; i < AMK_WARPS; i++) squares += w.s.row_squares[i][own.row];
        }
        const u32 from = w.row_scratch() + unit * AMK_WARPS * UNIT_SUMS + own.place;
#pragma unroll
        for (u32 i = 0; i < AMK_WARPS; i++) y += load_shared_one(from + i * UNIT_SUMS);
        own.deliver(w, r, g, y * up * g.scale(squares, own.part, w.p.eps));
        unit += AMK_WARPS / SETS;
        if (unit < units) own = RowDelivery(w, r, g, first + unit);
    }
}

// Runs a projection; `times` multiplies a pass with the code for its input shape. The rest is there
// once for all shapes: a layer's code must fit the instruction cache.
template <class F> AMK_DEVICE void gemv_rows(Worker& w, const Record& r, F times) {
    if (r.units == 0) return;
    const GemvShape g(r.shape);
    const GemvCut cut(g);
    const auto first_tile = [&](u32 pass) { return cut.first(pass) + w.warp * g.depth; };
    RowInputs input(w, r, g);
    if (INPUTS_AHEAD) input.load(w, r, g, first_tile(0));
    float squares[SETS][2] = {}, up = 1;
#pragma unroll 1
    for (u32 first = 0, units; first < r.units; first += units) {
        units = units_together(r, g.kind, cut, first);
        const bool last = first + units == r.units;
        const u32 own = first + min(w.warp / SETS, units - 1);
        RowDelivery delivery(w, r, g, own);
#pragma unroll 1
        for (u32 pass = 0; pass < cut.passes; pass++) {
            const u32 tiles = cut.count(pass), slot = GemvCut::blocks(tiles, tile_bytes(g.kind));
            const bool ends = pass + 1 == cut.passes;
            times(RowPass{r, g, input, squares, up, pass, units, tiles, slot, first_tile(pass),
                          first_tile(ends ? 0 : pass + 1), first == 0,
                          cut.passes > 1 && !(last && ends), first > 0 && cut.passes == 1});
        }
        if (first == 0 && (g.flags & GEMV_NORM)) store_squares(w, squares);
        // Products of codes need the registers.
        if (AMK_CODED) delivery = RowDelivery(w, r, g, own);
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        deliver_rows(w, r, g, first, units, up, delivery);
        // The next units reuse the scratch; so does the next task, which comes after a signal.
        if (!(last && r.signal)) w.sync();
    }
}
#endif
