// Attention for blocks of rows over keys and values in pages: a task has the queries of a kv head
// for some rows, and all of their positions.
//
// The queries of a set of rows are the columns of B. A team of warps has a set and a share of the
// positions, every n-th group of 16; where the rows of a set are of several sequences, it goes over
// the positions of each. What a row's columns add does not depend on the other rows.
#pragma once
#include "rows.cuh"

#if AMK_WIDE
template <class A> struct RowBlock {
    // Of a set: columns, rows, and their queries.
    static constexpr u32 COLUMNS = 8, SET = COLUMNS / A::GROUP, QUERIES = SET * A::GROUP;
    static constexpr u32 SETS = (AMK_ROW_BLOCK + SET - 1) / SET;
    static constexpr u32 SHARES = A::TEAMS / SETS; // of the positions, a team each
    // Bytes from query to query, and from output to output.
    static constexpr u32 QUERY = (A::HEAD_DIM + 8) * 2, OUTPUT = A::HEAD_DIM * 4;
    // At the end of the memory, so that weights may come before it.
    static constexpr u32 QUERY_BYTES = SETS * COLUMNS * QUERY,
                         SHARE_BYTES = A::TEAMS * COLUMNS * sizeof(float2),
                         OUTPUT_BYTES = A::TEAMS * COLUMNS * OUTPUT,
                         BYTES = QUERY_BYTES + SHARE_BYTES + OUTPUT_BYTES;
    static_assert(SETS <= A::TEAMS && BYTES <= TURNS_AT, "unsupported block of rows");
    static constexpr u32 QUERIES_AT = (TURNS_AT - BYTES) / 128 * 128,
                         SHARES_AT = QUERIES_AT + QUERY_BYTES, OUTPUTS_AT = SHARES_AT + SHARE_BYTES;
    // Where a pair of a query's elements is.
    AMK_DEVICE static u32 query_at(u32 set, u32 query, u32 d) {
        return QUERIES_AT + (set * COLUMNS + query) * QUERY + d * 2;
    }
    // Where a pair of a key or a value is before it is appended, `which` of the task's: where the
    // outputs will be.
    static_assert(SETS * SET * 2 * A::HEAD_DIM * 2 <= OUTPUT_BYTES, "they fit there");
    AMK_DEVICE static u32 appended_at(u32 which, u32 d) {
        return OUTPUTS_AT + (which * A::HEAD_DIM + d) * 2;
    }
};

// Norms and rotates the queries of the rows below `end` into the memory, for all warps. They come
// to where they are then. Appends the keys and values of rows that are alone.
template <class A, class B> AMK_DEVICE void load_queries(Worker& w, const Record& r, u32 end) {
    constexpr u32 HEADS = AMK_LONE_ROWS ? RowHead<A>::COUNT : A::GROUP; // of a row
    const u32 heads = (end - r.aux) * HEADS;
    const auto place = [&](const RowHead<A>& head, u32 j) {
        const u32 row = head.row - r.aux, d = 64 * j + 2 * w.lane;
        if constexpr (AMK_LONE_ROWS)
            if (!head.is_query()) return B::appended_at(2 * row + head.which - A::GROUP, d);
        return B::query_at(row / B::SET, row % B::SET * A::GROUP + head.which, d);
    };
    const auto at = [&](u32 item) { return RowHead<A>{r.aux + item / HEADS, item % HEADS}; };
#pragma unroll 1
    for (u32 item = w.warp; item < heads; item += AMK_WARPS) {
        const RowHead<A> head = at(item);
        copy_head<A>(w, r, head, [&](u32 j) { return place(head, j); });
    }
    begin_block<A>(w, r.aux, end);
    await_own_copies();
#pragma unroll 1
    for (u32 item = w.warp; item < heads; item += AMK_WARPS) {
        const RowHead<A> head = at(item);
        const bool query = head.is_query();
        u8* block = nullptr;
        if (any(!query)) {
            if (any(!is_alone(w, head.row))) continue;
            block = head.block(w, r);
        }
        float2 x[A::PER_LANE];
        copied_head<A>(w, r, head, x, [&](u32 j) { return place(head, j); });
        if (any(!query)) {
            head.append(w, block, x);
            continue;
        }
#pragma unroll
        for (int j = 0; j < A::PER_LANE; j++)
            if (A::has(w.lane, j)) *(u32*)w.memory(place(head, j)) = pack_bf16(x[j].x, x[j].y);
    }
    w.sync();
    w.stamp(TRACE_INPUTS);
}

// Attends with the columns of a set to a share of the positions of their rows, those below `end`.
template <class A>
AMK_DEVICE void attend_share(Worker& w, const Record& r, Flash<A>& f, u32 set, u32 share, u32 end) {
    using B = RowBlock<A>;
    const u32 first_row = r.aux + set * B::SET, last_row = min(first_row + B::SET, end);
    const u32 head = 2 * (w.lane & 3); // the lane's columns: this and the next
    const u32 rows[2] = {first_row + head / A::GROUP, first_row + (head + 1) / A::GROUP};
    const u32 query = w.data + B::query_at(set, min(w.lane >> 2, B::QUERIES - 1), 4 * (w.lane & 3));
    bool had = false;
    u32 from = first_row;
#pragma unroll 1
    while (any(from < last_row)) { // the rows of a sequence
        const u32 pages = w.s.rows[from].pages;
        u32 until = from + 1;
        while (any(until < last_row && w.s.rows[until].pages == pages)) until++;
        const auto limit = [&](u32 row, u32 column) {
            const bool own = column < B::QUERIES && row >= from && row < until;
            return own ? w.s.rows[row].pos + 1 : 0;
        };
        const uint2 limits = make_uint2(limit(rows[0], head), limit(rows[1], head + 1));
        const u32 last = w.s.rows[until - 1].pos;
#pragma unroll 1
        for (u32 first = share * 16; any(first <= last); first += B::SHARES * 16) {
            // The first row's window is the first to begin.
            if (A::WINDOW && any(first + 16 <= A::begin(w.s.rows[from].pos))) continue;
            const u8* block = page_block<A>(w, from, r.layer, r.row, first / 64);
            flash_page<A>(w, f, had, query, first, limits, block + first % 64 / 16 * A::GROUP_BYTES,
                          w.warp % A::TEAM);
            had = true;
        }
        from = until;
    }
}

// Stores the share of a warp.
template <class A> AMK_DEVICE void store_share(const Worker& w, const Flash<A>& f) {
    using B = RowBlock<A>;
    const u32 team = w.warp / A::TEAM, part = w.warp % A::TEAM;
    const u32 head = 2 * (w.lane & 3), d = 2 * (w.lane >> 2) + part * A::OUT_TILES * 16;
    float2* const shares = (float2*)w.memory(B::SHARES_AT) + team * B::COLUMNS;
    if (w.lane < 4 && part == 0)
        shares[head] = make_float2(f.max0, f.sum[0]),
        shares[head + 1] = make_float2(f.max1, f.sum[1]);
    const u32 to = w.data + B::OUTPUTS_AT + (team * B::COLUMNS + head) * B::OUTPUT + d * 4;
#pragma unroll
    for (int j = 0; j < A::OUT_TILES; j++) {
        const u32 at = to + 64 * j;
        store_shared(at, f.o[j][0], true), store_shared(at + 4, f.o[j][2], true);
        store_shared(at + 4 * A::HEAD_DIM, f.o[j][1], true);
        store_shared(at + 4 * A::HEAD_DIM + 4, f.o[j][3], true);
    }
}

// Stores two dims of a head's result for the record's part of the positions, if the row has any
// there.
template <class A>
AMK_DEVICE void store_part(const Worker& w, const Record& r, u32 row, u32 head, u32 d,
                           const Merged& m) {
    if (r.more >= A::active(w.s.rows[row].pos)) return;
    const u32 place = head * A::SPLITS + r.more;
    const float scale = m.scale<A>();
    *(uint2*)element_at(w, r.partial, place * A::HEAD_DIM + d, row) =
        make_uint2(__float_as_uint(m.o.x * scale), __float_as_uint(m.o.y * scale));
    if (d == 0) *element_at(w, r.output, place, row) = __float_as_uint(m.top + __log2f(m.sum));
}

// Joins the shares of the rows below `end` when all warps have stored theirs, two dims a thread.
template <class A, class B> AMK_DEVICE void join_shares(Worker& w, const Record& r, u32 end) {
    w.stamp(TRACE_PRODUCT);
    w.sync();
    w.stamp(TRACE_GATHERED);
    constexpr u32 PAIRS = A::GROUP * A::HEAD_DIM / 2;
    const float2* const shares = (const float2*)w.memory(B::SHARES_AT);
#pragma unroll 1
    for (u32 i = w.thread(); i < (end - r.aux) * PAIRS; i += AMK_WARPS * 32) {
        const u32 row = i / PAIRS, head = i % PAIRS / (A::HEAD_DIM / 2),
                  d = i % (A::HEAD_DIM / 2) * 2;
        const u32 first = row / B::SET * B::SHARES * B::COLUMNS + row % B::SET * A::GROUP + head;
        Merged m;
#pragma unroll
        for (u32 share = 0; share < B::SHARES; share++)
            m.top = fmaxf(m.top, shares[first + share * B::COLUMNS].x);
#pragma unroll
        for (u32 share = 0; share < B::SHARES; share++) {
            const u32 from = first + share * B::COLUMNS;
            const float2 of = shares[from];
            const u32 at = w.data + B::OUTPUTS_AT + from * B::OUTPUT + d * 4;
            if (of.y > 0) m.join(of.x, of.y, load_shared_pair(at));
        }
        if constexpr (A::SPLITS > 1) {
            store_part<A>(w, r, r.aux + row, r.row * A::GROUP + head, d, m);
            continue;
        }
        const float scale = __fdividef(1.0f, m.sum);
        const u32 pair = ((r.row * A::GROUP + head) * A::HEAD_DIM + d) / 2;
        *pair_at(w, r.output, pair, r.aux + row) = pack_bf16(m.o.x * scale, m.o.y * scale);
    }
    fence_shared_copies(); // the next task reuses the memory
    w.sync();
}

template <class A> AMK_DEVICE void attend_block(Worker& w, const Record& r) {
    using B = RowBlock<A>;
    const u32 end = min(r.aux + r.units, w.p.row_count);
    if (end <= r.aux) return;
    // The record that appends for these rows, at the same worker, has waited for their heads.
    if (has_company(w, r.aux, end)) before_task(w, r);
    load_queries<A, B>(w, r, end);
    const u32 team = w.warp / A::TEAM, set = team / B::SHARES;
    if (r.aux + set * B::SET < end) {
        Flash<A> f;
        f.clear();
        attend_share<A>(w, r, f, set, team % B::SHARES, end);
        store_share<A>(w, f);
    }
    join_shares<A, B>(w, r, end);
}
#endif
