// Attention for all rows of a step over keys and values in pages. A phase appends them, the next
// attends in splits of the positions, the third joins the splits.
//
// Page `p` has the blocks of 64 positions of all layers of a group and kv heads, in the order of
// fragments of fused.cuh. Pages are read straight from the memory: what a step reads depends on its
// page tables, which the loader does not follow.
#pragma once
#include "../linear/stages.cuh"
#include "fused.cuh"

#if AMK_ROWS
constexpr u32 TURN_BYTES = AMK_HEAD_DIM / 2 * sizeof(float2); // of a row
// Where a task's own turns are, and of how many rows: at the end of the ring's memory, or in the
// scratch behind it.
#if AMK_WIDE
constexpr u32 TURNS_AT = WIDE_MEMORY - AMK_ROW_BLOCK * TURN_BYTES, TURNED_ROWS = AMK_ROW_BLOCK;
#else
constexpr u32 TURNS_AT = AMK_SLOTS * AMK_SLOT_BYTES,
              TURNED_ROWS = AMK_OWN_TURNS ? AMK_ROW_SCRATCH / TURN_BYTES : AMK_ROWS;
#endif
static_assert(TURNED_ROWS > 0, "the turns of a row must fit the scratch");

template <class A> AMK_DEVICE u8* page_block(const Worker& w, u32 row, u32 layer, u32 head, u32 b) {
    const u64 page = w.p.page_tables[w.s.rows[row].pages + A::entry(b)];
    return w.p.kv + A::in_page(page, layer, head);
}

// The split of a row that the tasks of a column attend to. The first splits of all rows, the only
// ones of short contexts, are spread over the columns.
template <class A> AMK_DEVICE u32 split_of(u32 column, u32 row) {
    constexpr u32 APART = A::SPLITS > AMK_ROWS ? A::SPLITS / AMK_ROWS : 1;
    return (column + row * APART) % A::SPLITS;
}

// Norms and rotates a head's vector, of which `load` gives the lane's pairs.
template <class A, class F>
AMK_DEVICE void turn_head(const Worker& w, bool norm, u32 weight, const float2* turns,
                          float2 (&x)[A::PER_LANE], F load) {
    constexpr int N = A::PER_LANE;
    u16 gamma[N][2];
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            gamma[j][i] =
                norm ? w.p.constants[weight + 2 * A::apart(w.lane, j) + 2 * w.lane + i] : 0;
    u32 word[N];
    load(word);
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = make_float2(bf16_low(word[j]), bf16_high(word[j]));
    if (any(norm)) norm_head<A>(w, gamma, x);
    if (!any(turns)) return;
    Rotation<A>(w, turns).rotate(w, x);
}
// The turns of a task's row, cosine and sine: those of the step, or the task's own in wide steps
// and where the heads are long.
#if AMK_OWN_TURNS
AMK_DEVICE float2* own_turns(const Worker& w, u32 row) {
    return (float2*)__cvta_shared_to_generic(w.data + TURNS_AT + row * TURN_BYTES);
}
#endif
template <class A> AMK_DEVICE const float2* turns_of(const Worker& w, u32 row, u32 first) {
#if AMK_OWN_TURNS
    return own_turns(w, row - first);
#else
    return w.s.rope[row] + A::FIRST_TURN;
#endif
}
// Computes the turns of the task's rows, from `first` on, TURNED_ROWS at most.
template <class A> AMK_DEVICE void begin_block(Worker& w, u32 first, u32 end) {
#if AMK_OWN_TURNS
    constexpr u32 TURNS = A::TURNED / 2;
    if constexpr (TURNS > 0) {
        const float scale = AMK_TURN_SCALE(w.p, A::FIRST_TURN);
        for (u32 i = w.thread(); i < TURNS * (end - first); i += AMK_WARPS * 32) {
            const u32 row = i / TURNS, at = i % TURNS;
            float sine, cosine;
            sincosf((float)w.s.rows[first + row].pos * w.p.inv_freq[A::FIRST_TURN + at], &sine,
                    &cosine);
            own_turns(w, row)[at] = make_float2(cosine * scale, sine * scale);
        }
        w.sync();
    }
#endif
}

// Calls `then` for blocks of the rows from `first` on, below `end`, with their turns.
template <class A, class F> AMK_DEVICE void by_turned_rows(Worker& w, u32 first, u32 end, F then) {
    if constexpr (AMK_WIDE || TURNED_ROWS >= AMK_ROWS) {
        begin_block<A>(w, first, end);
        then(first, end);
    } else {
#pragma unroll 1
        for (u32 last; first < end; first = last) {
            last = min(first + TURNED_ROWS, end);
            begin_block<A>(w, first, last);
            then(first, last);
            if (last < end) w.sync(); // the next turns take the place of these
        }
    }
}

// Whether a row is the only one of its sequence in this step; rows of a sequence are neighbours.
// Nobody else reads then what it appends, so the task that attends to its own position appends it
// (docs/src/internals/device-vm.md).
AMK_DEVICE bool is_alone(const Worker& w, u32 row) {
    const u32 pages = w.s.rows[row].pages;
    return AMK_LONE_ROWS && (row == 0 || w.s.rows[row - 1].pages != pages) &&
           (row + 1 >= w.p.row_count || w.s.rows[row + 1].pages != pages);
}

// Whether any row from `first` on, below `end`, is not.
AMK_DEVICE bool has_company(const Worker& w, u32 first, u32 end) {
    bool found = false;
#pragma unroll 1
    for (u32 at = first; any(at < end); at += 32)
        found |= at + w.lane < end && !is_alone(w, at + w.lane);
    return any_lane(found);
}

// One of the heads that attention takes of a row: the queries of the record's kv head, then its key
// and its value.
template <class A> struct RowHead {
    static constexpr u32 COUNT = A::GROUP + 2;
    u32 row, which;

    AMK_DEVICE bool is_query() const { return which < A::GROUP; }
    AMK_DEVICE bool is_key() const { return which == A::GROUP; }
    AMK_DEVICE bool is_value() const { return which > A::GROUP; }
    // Its number among all heads.
    AMK_DEVICE u32 number(const Record& r) const {
        return is_query() ? r.row * A::GROUP + which
                          : A::key_head(r.row) + (is_key() ? 0 : A::to_value());
    }
    AMK_DEVICE bool has_norm() const { return A::NORM && !is_value(); }
    AMK_DEVICE u32 norm(const Record& r) const { return is_query() ? r.norm : r.bias; }
    // Its turns, where the task's rows begin with `first`; a value has none.
    AMK_DEVICE const float2* turns(const Worker& w, u32 first) const {
        return is_value() ? nullptr : turns_of<A>(w, row, first);
    }
    // Where a key or a value goes: the block of the row's position.
    AMK_DEVICE u8* block(const Worker& w, const Record& r) const {
        return page_block<A>(w, row, r.layer, r.row, w.s.rows[row].pos / 64);
    }
    // Writes the lane's pairs of a key or a value there.
    AMK_DEVICE void append(const Worker& w, u8* block, const float2 (&x)[A::PER_LANE]) const {
        const u32 at = w.s.rows[row].pos % 64;
#pragma unroll
        for (int j = 0; j < A::PER_LANE; j++) {
            if (!A::has(w.lane, j)) continue;
            const u32 d = 64 * j + 2 * w.lane, pair = pack_cache(x[j].x, x[j].y);
            if (is_key()) {
                *(CachePair*)(block + key_offset<A>(at, d)) = (CachePair)pair;
            } else {
                *(CacheElem*)(block + value_offset<A>(at, d)) = low_element(pair);
                *(CacheElem*)(block + value_offset<A>(at, d + 1)) = high_element(pair);
            }
        }
    }
};

// Loads, norms and rotates a row's head, where the task's rows begin with `first`.
template <class A>
AMK_DEVICE void load_head(const Worker& w, const Record& r, const RowHead<A>& head, u32 first,
                          float2 (&x)[A::PER_LANE]) {
    constexpr int N = A::PER_LANE;
    turn_head<A>(w, head.has_norm(), head.norm(r), head.turns(w, first), x, [&](u32(&word)[N]) {
        Words<N> pairs = {pair_at(w, r.input, head.number(r) * A::PAIRS + w.lane, head.row),
                          LINE_APART};
        if (!A::has(w.lane, N - 1)) pairs.count = N - 1; // the others are 0
        read_words(w, pairs);
#pragma unroll
        for (int j = 0; j < N; j++) word[j] = pairs.word[j];
    });
}
#if AMK_WIDE
// Asks for the lane's pairs of a row's head, pair `j` to `place(j)` in the memory of the ring. So
// those of many heads are on their way at once.
template <class A, class F>
AMK_DEVICE void copy_head(const Worker& w, const Record& r, const RowHead<A>& head, F place) {
    const u32* from = pair_at(w, r.input, head.number(r) * A::PAIRS + w.lane, head.row);
#pragma unroll
    for (int j = 0; j < A::PER_LANE; j++)
        if (A::has(w.lane, j)) copy_4(w.data + place(j), from + j * LINE_APART);
}
// As `load_head`, once they are there.
template <class A, class F>
AMK_DEVICE void copied_head(const Worker& w, const Record& r, const RowHead<A>& head,
                            float2 (&x)[A::PER_LANE], F place) {
    turn_head<A>(w, head.has_norm(), head.norm(r), head.turns(w, r.aux), x,
                 [&](u32(&word)[A::PER_LANE]) {
#pragma unroll
                     for (int j = 0; j < A::PER_LANE; j++)
                         word[j] = A::has(w.lane, j) ? *(const u32*)w.memory(place(j)) : 0;
                 });
}
#endif

#if AMK_ROWS >= 64
// Whether the 16 rows from `first` on, below `end`, have the positions of a group of one sequence.
AMK_DEVICE bool are_group(const Worker& w, u32 first, u32 end) {
    if (first + 16 > end || w.s.rows[first].pos % 16) return false;
    return w.s.rows[first + 15].pages == w.s.rows[first].pages &&
           w.s.rows[first + 15].pos == w.s.rows[first].pos + 15;
}
// The same for the group of a row of those from `first` on.
AMK_DEVICE bool is_in_group(const Worker& w, u32 row, u32 first, u32 end) {
    const u32 in_group = w.s.rows[row].pos % 16;
    return row >= first + in_group && are_group(w, row - in_group, end);
}

// Writes 16 elements of the values of such rows, a tile. A lane has two of them for four positions,
// which lie side by side; those of one row are 2 bytes each.
template <class A>
AMK_DEVICE void append_tile(const Worker& w, const Record& r, u32 first, u32 tile) {
    struct alignas(CACHE_LANE) Piece {
        CachePair pairs[4];
    };
    const RowHead<A> head = {first, A::GROUP + 1};
    const u32 pair = head.number(r) * A::PAIRS + 8 * tile + w.lane / 4,
              row = first + w.lane % 4 * 2;
    u32 of[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        of[i] = read_word(w, pair_at(w, r.input, pair, row + i % 2 + i / 2 * 8));
    u8* const to = head.block(w, r) + value_offset<A>(w.s.rows[first].pos % 64, 16 * tile);
    const auto both = [&](float (*half)(u32), u32 i) {
        return (CachePair)pack_cache(half(of[i]), half(of[i + 1]));
    };
    *(Piece*)(to + w.lane * CACHE_LANE) = {both(bf16_low, 0), both(bf16_high, 0), both(bf16_low, 2),
                                           both(bf16_high, 2)};
}
// Writes the values of all such rows, the tiles of which warps share out.
template <class A>
AMK_DEVICE void append_groups(const Worker& w, const Record& r, u32 first, u32 end) {
    u32 tile = w.warp;
#pragma unroll 1
    for (u32 row = first; any(row < end);) {
        if (any(!are_group(w, row, end))) {
            row++;
            continue;
        }
#pragma unroll 1
        for (; any(tile < A::TILES); tile += AMK_WARPS) append_tile<A>(w, r, row, tile);
        tile -= A::TILES, row += 16;
    }
}
#else // shorter steps append too few
AMK_DEVICE bool is_in_group(const Worker&, u32, u32, u32) { return false; }
template <class A> AMK_DEVICE void append_groups(const Worker&, const Record&, u32, u32) {}
#endif

// Writes the keys and the values of a kv head of the record's rows to their pages, a vector or a
// tile a warp, but for rows that are alone.
template <class A> AMK_DEVICE void append_rows(Worker& w, const Record& r) {
    const u32 end = min(r.aux + r.units, w.p.row_count);
    if (!has_company(w, r.aux, end)) return signal_nothing(w, r);
    w.stamp(TRACE_INPUTS);
    by_turned_rows<A>(w, r.aux, end, [&](u32 first, u32 last) {
        const u32 rows = last - first;
        append_groups<A>(w, r, first, last);
#pragma unroll 1
        for (u32 item = w.warp; item < 2 * rows; item += AMK_WARPS) {
            const bool value = item >= rows;
            const RowHead<A> head = {first + item - (value ? rows : 0), A::GROUP + value};
            if (any(is_alone(w, head.row))) continue;
            if (any(value && is_in_group(w, head.row, first, last))) continue;
            u8* const block = head.block(w, r);
            float2 x[A::PER_LANE];
            load_head<A>(w, r, head, first, x);
            head.append(w, block, x);
        }
    });
    signal(w, r);
}

// Processes a group of 16 positions in memory, see `flash`; with teams, part `part` of the values.
template <class A>
AMK_DEVICE void flash_page(Worker& w, Flash<A>& f, bool had, u32 query, u32 first, uint2 limit,
                           const u8* group, u32 part) {
    constexpr int MOST_KEYS = 8, KEYS = A::TILES < MOST_KEYS ? A::TILES : MOST_KEYS;
    const u8 *keys = group + w.lane * CACHE_LANE,
             *values = keys + A::GROUP_BYTES / 2 + part * A::OUT_TILES * CACHE_TILE;
    uint4 key[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; j++) key[j] = load_tile(keys + j * CACHE_TILE);
    uint4 v[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE && j < A::OUT_TILES; j++) v[j] = load_tile(values + j * CACHE_TILE);
    float c[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
    constexpr bool LONG = A::TILES > AT_ONCE;
#pragma unroll
    for (int j = 0; j < A::TILES; j++) {
        const uint2 q = load_shared_two(query + 32 * j);
        mma(LONG && j & 1 ? e : c, key[j % KEYS], q.x, q.y);
        if (j + KEYS < A::TILES) key[j % KEYS] = load_tile(keys + (j + KEYS) * CACHE_TILE);
    }
#pragma unroll
    for (int i = 0; LONG && i < 4; i++) c[i] += e[i];
    f.add(w, had, c, first, limit, limit,
          [&](int j) { return j < AT_ONCE ? v[j] : load_tile(values + j * CACHE_TILE); });
}

#if !AMK_WIDE
constexpr u32 MOST_SHARES = sizeof(Kept::shares) / sizeof(Kept::shares[0]);

// The rows that a task attends to, in waves: a row's split is shared out over the warps, by groups
// of 16 positions in turn. How often does not depend on the other rows.
template <class A> struct Waves {
    static constexpr u32 FLOATS = A::GROUP * A::HEAD_DIM; // of a share
    static constexpr u32 shares() {
        u32 shares = AMK_WARPS / A::TEAM;
        while (shares * FLOATS * 4 > AMK_ROW_SCRATCH) shares /= 2;
        return shares;
    }
    // Rows whose queries fit the scratch, and whether those of all rows of a step do.
    static constexpr u32 STAGED = SCRATCH_FLOATS * 4 / (A::GROUP * (A::HEAD_DIM + 8) * 2);
    static constexpr bool STAGES_ALL = AMK_ROWS <= STAGED;
    static constexpr u32 SHARES = shares(), FIT = AMK_ROW_SCRATCH / (SHARES * FLOATS * 4),
                         TOGETHER = FIT < MOST_SHARES / SHARES ? FIT : MOST_SHARES / SHARES,
                         MOST = STAGES_ALL || TOGETHER < STAGED ? TOGETHER : STAGED;
    static_assert(MOST > 0, "the shares and the queries of a row must fit the scratch");
    u32 rows = 0, left = 0; // of the wave; it and those after it, a bit a row

    // All rows that have something in the task's split.
    AMK_DEVICE Waves(const Worker& w, const Record& r) {
        static_assert(AMK_ROWS <= 32, "a row a lane");
        const bool has = w.lane < w.p.row_count &&
                         split_of<A>(r.aux, w.lane) < A::active(w.s.rows[w.lane % AMK_ROWS].pos);
        left = __ballot_sync(~0u, has);
    }
    // Begins with the first rows that are left.
    AMK_DEVICE void begin() { rows = min((u32)__popc(left), MOST); }
    // How many of the rows that are left have their queries staged together.
    AMK_DEVICE u32 staged() const { return STAGES_ALL ? __popc(left) : rows; }
    AMK_DEVICE u32 row(u32 nth) const {
        u32 bits = left;
#pragma unroll 1
        for (; nth; nth--) bits &= bits - 1;
        return 31 - __clz(bits & (0 - bits));
    }
    AMK_DEVICE void next() {
#pragma unroll 1
        for (; rows; rows--) left &= left - 1;
        begin();
    }
};

// The groups of a split of the positions up to and including `pos`: the n-th one's first position.
template <class A> struct RowGroups {
    static constexpr u32 RUN = A::RUN * 4; // groups
    u32 split, pos;
    AMK_DEVICE u32 first(u32 n) const {
        return ((n / RUN * A::SPLITS + split) * RUN + n % RUN) * 16;
    }
    // The first group of the round of runs that a window begins in.
    AMK_DEVICE u32 begin() const { return A::begin(pos) / (16 * RUN * A::SPLITS) * RUN; }
    AMK_DEVICE bool before_window(u32 first) const {
        return A::WINDOW && first + 16 <= A::begin(pos);
    }
};

// With packets, clears for the next step what the one before this has stored, a row a warp: most
// rows and splits have nothing.
template <class A> AMK_DEVICE void clear_parts(Worker& w, const Record& r) {
#if AMK_ROW_PACKETS
#pragma unroll 1
    for (u32 row = w.warp; row < AMK_ROWS; row += AMK_WARPS) {
        const u32 first = r.row * A::GROUP * A::SPLITS + split_of<A>(r.aux, row);
        u32* const sums = (u32*)w.words(r.output, row) + first;
        const bool none = load_relaxed_u32(of_next_step(w, sums)) == ABSENT;
        __syncwarp(); // before a lane clears it
        if (any(none)) continue;
        u32* const parts = (u32*)w.words(r.partial, row) + first * A::HEAD_DIM;
#pragma unroll 1
        for (u32 head = 0; head < A::GROUP; head++) {
            for (u32 d = w.lane; d < A::HEAD_DIM; d += 32)
                clear_word(w, parts + head * A::SPLITS * A::HEAD_DIM + d);
            if (w.lane == 0) clear_word(w, sums + head * A::SPLITS);
        }
    }
#endif
}

// A share of a row's split, or of a team the part of a warp.
template <class A> struct RowShare {
    u32 own, share, part, row, pos; // own: the row's number in the wave
    RowGroups<A> groups;

    AMK_DEVICE RowShare(const Worker& w, const Record& r, const Waves<A>& waves, u32 number)
        : own(number / A::TEAM % waves.rows), share(number / A::TEAM / waves.rows),
          part(number % A::TEAM), row(waves.row(own)), pos(w.s.rows[row].pos),
          groups{split_of<A>(r.aux, row), pos} {}
    AMK_DEVICE static u32 count(const Waves<A>& waves) {
        return waves.rows * Waves<A>::SHARES * A::TEAM;
    }
    // Where the maxima, sums and outputs are kept.
    AMK_DEVICE u32 place() const { return own * Waves<A>::SHARES + share; }
    // The row's number among those whose queries are staged.
    AMK_DEVICE u32 staged() const { return Waves<A>::STAGES_ALL ? row : own; }
    // The first group's number.
    AMK_DEVICE u32 begin() const { return groups.begin() + share; }
    AMK_DEVICE const u8* group(const Worker& w, const Record& r, u32 first) const {
        return page_block<A>(w, row, r.layer, r.row, first / 64) + first % 64 / 16 * A::GROUP_BYTES;
    }
    // Requests the first group into the L2 cache.
    AMK_DEVICE void prefetch(const Worker& w, const Record& r) const {
        const u32 first = groups.first(begin());
        if (first > pos || groups.before_window(first)) return;
        const u8* const from = group(w, r, first);
        for (u32 at = w.lane * 128; at < A::GROUP_BYTES; at += 4096) prefetch_line(from + at);
    }
};

// Stages the queries of a kv head for rows of a task. Appends the keys and values of rows that are
// alone and have their own positions in its split. The rows' turns may lie in the memory of the
// shares, which nobody uses meanwhile.
template <class A>
AMK_DEVICE void stage_queries(Worker& w, const Record& r, const Waves<A>& waves) {
    constexpr u32 HEADS = AMK_LONE_ROWS ? RowHead<A>::COUNT : A::GROUP; // of a row
    by_turned_rows<A>(w, 0, w.p.row_count, [&](u32 first, u32 last) {
#pragma unroll 1
        for (u32 item = w.warp; item < waves.staged() * HEADS; item += AMK_WARPS) {
            const RowHead<A> head = {waves.row(item / HEADS), item % HEADS};
            if (TURNED_ROWS < AMK_ROWS && any(head.row < first || head.row >= last)) continue;
            const bool query = head.is_query();
            u8* block = nullptr;
            if (any(!query)) {
                const u32 pos = w.s.rows[head.row].pos;
                const bool own =
                    is_alone(w, head.row) && A::owner(pos, split_of<A>(r.aux, head.row));
                if (any(!own)) continue;
                block = head.block(w, r);
            }
            float2 x[A::PER_LANE];
            load_head<A>(w, r, head, first, x);
            if (any(!query)) {
                head.append(w, block, x);
                continue;
            }
            const u32 at = Waves<A>::STAGES_ALL ? head.row : item / HEADS;
            u16* const to =
                (u16*)w.s.scratch + (at * A::GROUP + head.which) * (A::HEAD_DIM + 8) + 2 * w.lane;
#pragma unroll
            for (int j = 0; j < A::PER_LANE; j++)
                if (A::has(w.lane, j)) *(u32*)(to + 64 * j) = pack_bf16(x[j].x, x[j].y);
        }
    });
    w.sync();
}

// Attends with the group of queries of a kv head to a share of a row's split. `awaited`: whether
// this warp has waited for what the step appends.
template <class A>
AMK_DEVICE void attend_share(Worker& w, const Record& r, const RowShare<A>& s, bool& awaited) {
    const u32 query = shared_address((u16*)w.s.scratch +
                                     (s.staged() * A::GROUP + min(w.lane >> 2, A::GROUP - 1)) *
                                         (A::HEAD_DIM + 8)) +
                      8 * (w.lane & 3);
    const bool awaits = AMK_ROW_PACKETS && !is_alone(w, s.row);
    Flash<A> f;
    f.clear();
    bool had = false;
#pragma unroll 1
    for (u32 n = s.begin();; n += Waves<A>::SHARES) {
        const u32 first = s.groups.first(n);
        if (!any(first <= s.pos)) break;
        if (any(s.groups.before_window(first))) continue;
        const u8* const group = s.group(w, r, first);
        // A sequence's first row in this step is at `pos - row` at least.
        if (any(awaits && !awaited && first + 16 + s.row > s.pos))
            await_by_warp(w, r), awaited = true;
        flash_page<A>(w, f, had, query, first, make_uint2(s.pos + 1, s.pos + 1), group, s.part);
        had = true;
    }
    const u32 head = 2 * (w.lane & 3), d = 2 * (w.lane >> 2) + s.part * A::OUT_TILES * 16;
    if (w.lane < 4 && s.part == 0)
        w.s.shares[s.place()][head] = make_float2(f.max0, f.sum[0]),
        w.s.shares[s.place()][head + 1] = make_float2(f.max1, f.sum[1]);
    if (!any(had)) return; // its sum is 0
    const u32 to = w.row_scratch() + (s.place() * Waves<A>::FLOATS + head * A::HEAD_DIM + d) * 4;
#pragma unroll
    for (int j = 0; j < A::OUT_TILES; j++) {
        const u32 at = to + 64 * j;
        if (head < A::GROUP)
            store_shared(at, f.o[j][0], true), store_shared(at + 4, f.o[j][2], true);
        if (head + 1 < A::GROUP)
            store_shared(at + 4 * A::HEAD_DIM, f.o[j][1], true),
                store_shared(at + 4 * A::HEAD_DIM + 4, f.o[j][3], true);
    }
}

// Joins the shares of the rows of a wave and delivers the results: neighbouring lanes have some of
// the shares of two dims.
template <class A> AMK_DEVICE void join_shares(Worker& w, const Record& r, const Waves<A>& waves) {
    constexpr u32 PAIRS = Waves<A>::FLOATS / 2, SHARES = Waves<A>::SHARES,
                  LANES = SHARES < 4 ? SHARES : 4, EACH = SHARES / LANES;
    // All lanes of a warp join together. Where the last ones have no pair, they take the last pair.
    constexpr bool WHOLE = PAIRS * LANES % 32 == 0;
    constexpr u32 OF_WARP = 32 / LANES;
    const u32 first = w.lane % LANES, pairs = waves.rows * PAIRS,
              end = (pairs + OF_WARP - 1) / OF_WARP * OF_WARP;
#pragma unroll 1
    for (u32 n = w.thread() / LANES; any(n < end); n += AMK_WARPS * OF_WARP) {
        const u32 i = WHOLE ? n : min(n, pairs - 1), own = i / PAIRS, row = waves.row(own),
                  pair = i % PAIRS, head = pair / (A::HEAD_DIM / 2),
                  d = pair % (A::HEAD_DIM / 2) * 2;
        const u32 from = w.row_scratch() + (own * SHARES * PAIRS + pair) * 8;
        float2 of[EACH], its[EACH]; // maxima and sums; outputs
        Merged m;
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            const u32 share = first + j * LANES;
            of[j] = w.s.shares[own * SHARES + share][head];
            its[j] = load_shared_pair(from + share * PAIRS * 8);
            m.top = fmaxf(m.top, of[j].x);
        }
#pragma unroll
        for (u32 k = 1; k < LANES; k *= 2) m.top = fmaxf(m.top, __shfl_xor_sync(~0u, m.top, k));
#pragma unroll
        for (u32 j = 0; j < EACH; j++)
            if (of[j].y > 0) m.join(of[j].x, of[j].y, its[j]);
#pragma unroll
        for (u32 k = 1; k < LANES; k *= 2)
            m.sum += __shfl_xor_sync(~0u, m.sum, k), m.o.x += __shfl_xor_sync(~0u, m.o.x, k),
                m.o.y += __shfl_xor_sync(~0u, m.o.y, k);
        if (first || (!WHOLE && n >= pairs)) continue;
        const float scale = m.scale<A>();
        const u32 place = (r.row * A::GROUP + head) * A::SPLITS + split_of<A>(r.aux, row);
        const float2 y = make_float2(m.o.x * scale, m.o.y * scale);
        if (A::active(w.s.rows[row].pos) == 1) { // nothing to join
            const u32 at = (r.row * A::GROUP + head) * (A::HEAD_DIM / 2) + d / 2;
            put_word(w, pair_at(w, r.more, at, row), pack_bf16(y.x, y.y), true);
            continue;
        }
        u32* const to = (u32*)w.words(r.partial, row) + place * A::HEAD_DIM + d;
        store_word(w, to, __float_as_uint(y.x)), store_word(w, to + 1, __float_as_uint(y.y));
        if (d == 0)
            store_word(w, (u32*)w.words(r.output, row) + place,
                       __float_as_uint(m.top + __log2f(m.sum)));
    }
}

// Called by the loader, which is ahead of the consumers: brings the first positions that a task
// attends to into the L2 cache, while what comes before it takes its time.
template <class A>
AMK_DEVICE void prefetch_rows(const Params& p, const Shared& s, const Record& r) {
#if __CUDA_ARCH__ >= 900
#pragma unroll 1
    for (u32 row = 0; row < p.row_count; row++) {
        const RowWords& words = s.rows[row];
        const RowGroups<A> groups = {split_of<A>(r.aux, row), words.pos};
        if (groups.split >= A::active(words.pos)) continue;
        const u32 first = groups.first(groups.begin());
        u32 bytes[A::RUN];
        u64 page[A::RUN]; // all are asked for at once
#pragma unroll
        for (u32 i = 0; i < A::RUN; i++) {
            const u32 at = first + 64 * i;
            const bool attends = at <= words.pos && !groups.before_window(at + 48);
            bytes[i] = attends ? min((words.pos - at) / 16 + 1, 4) * A::GROUP_BYTES : 0;
            page[i] = bytes[i] ? p.page_tables[words.pages + A::entry(at / 64)] : 0;
        }
#pragma unroll
        for (u32 i = 0; i < A::RUN; i++)
            if (bytes[i]) prefetch_bytes(p.kv + A::in_page(page[i], r.layer, r.row), bytes[i]);
    }
#endif
}

// Whether a task clears before it attends. Nobody waits for it behind the results, but it spills
// registers there if codes take them.
constexpr bool CLEARS_FIRST = AMK_CODED;

// Attends with the group of queries of a kv head to one split of each row's positions. Most splits
// have none in short contexts.
template <class A> AMK_DEVICE void attend_rows(Worker& w, const Record& r) {
    Waves<A> waves(w, r);
    if (CLEARS_FIRST) clear_parts<A>(w, r);
    if (!any(waves.left)) {
        if (!CLEARS_FIRST) clear_parts<A>(w, r);
        return;
    }
    waves.begin();
    if (w.warp < RowShare<A>::count(waves)) RowShare<A>(w, r, waves, w.warp).prefetch(w, r);
    if (Waves<A>::STAGES_ALL) stage_queries<A>(w, r, waves), w.stamp(TRACE_INPUTS);
    bool awaited = false;
#pragma unroll 1
    for (; any(waves.left); waves.next()) {
        if (!Waves<A>::STAGES_ALL) {
            stage_queries<A>(w, r, waves);
            w.stamp_first(TRACE_INPUTS);
        }
#pragma unroll 1
        for (u32 n = w.warp; n < RowShare<A>::count(waves); n += AMK_WARPS)
            attend_share<A>(w, r, RowShare<A>(w, r, waves, n), awaited);
        w.stamp(TRACE_PRODUCT);
        w.sync();
        w.stamp(TRACE_GATHERED);
        join_shares<A>(w, r, waves);
        w.sync(); // the next wave or task reuses the scratch
    }
    if (!CLEARS_FIRST) clear_parts<A>(w, r);
}

// Joins the splits of slices of 32 dims of query heads, a slice of a row a warp, a dim a lane.
template <class A> AMK_DEVICE void join_rows(Worker& w, const Record& r) {
    w.stamp(TRACE_INPUTS);
    // Mostly all rows are there and have a single split, which has delivered.
    const bool one = w.lane < w.p.row_count && A::active(w.s.rows[w.lane % AMK_ROWS].pos) == 1;
    if (!any_lane(w.lane < stored_rows(w) && !one)) return;
#pragma unroll 1
    for (u32 item = w.warp; item < r.units * stored_rows(w); item += AMK_WARPS) {
        const u32 row = item / r.units, slice = r.row + item % r.units, head = slice / A::SLICES;
        const u32 active = row < w.p.row_count ? A::active(w.s.rows[row].pos) : 0;
        u32* const to = pair_at(w, r.output, A::of_slice(slice, w.lane) / 2, row);
        if (active == 0 && A::sliced(slice, w.lane)) clear_word(w, to);
        if (active < 2) continue;
        const u32* sums = (const u32*)w.words(r.input, row) + head * A::SPLITS;
        const u32* partial = (const u32*)w.words(r.partial, row) + head * A::SPLITS * A::HEAD_DIM +
                             slice % A::SLICES * 32 + A::within(slice, w.lane, 0);
        constexpr u32 BATCH = 4; // splits whose words are under way at once
        // The first words of both are asked for together.
        Words<1> lse = {sums + w.lane, 1, w.lane < active};
        Words<BATCH> part = {partial, A::HEAD_DIM, active};
        read_words(w, lse, part);
        float top = w.lane < active ? __uint_as_float(lse.word[0]) : -1e30f, sum = 0, y = 0;
#pragma unroll 1
        for (u32 first = 32; first < active; first += 32) {
            const u32 split = first + w.lane;
            Words<1> more = {sums + split, 1, split < active};
            read_words(w, more);
            if (split < active) top = fmaxf(top, __uint_as_float(more.word[0]));
        }
#pragma unroll
        for (int m = 16; m; m /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
#pragma unroll 1
        for (u32 first = 0; first < active; first += BATCH) {
            Words<BATCH> own = {sums + first, 1, active - first};
            if (first) {
                part.from += BATCH * A::HEAD_DIM, part.count -= BATCH;
                read_words(w, part, own);
            } else
#pragma unroll
                for (u32 i = 0; i < BATCH; i++) own.word[i] = __shfl_sync(~0u, lse.word[0], i);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (first + i >= active) break;
                const float share = exp2_fast(__uint_as_float(own.word[i]) - top);
                sum += share;
                y += share * __uint_as_float(part.word[i]);
            }
        }
        y *= __fdividef(1.0f, sum);
        const float next = __shfl_down_sync(~0u, y, 1);
        if (w.lane % 2 == 0 && A::sliced(slice, w.lane)) put_word(w, to, pack_bf16(y, next), true);
    }
}
#endif
#endif
