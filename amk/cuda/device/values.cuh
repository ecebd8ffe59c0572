// Where the values of a step's rows lie.
//
// With packets a value is there as soon as its words are: a word that is not has a value of its own
// (ABSENT), which no result has, since the NaNs that arithmetic makes are others. A step clears in
// the other half of the memory what it writes in its own, so that the next step, which is another
// launch, finds it absent.
#pragma once
#include "worker.cuh"

#if AMK_ROWS
constexpr u32 ABSENT = ~0u;

#if AMK_ROW_PACKETS
// The same word in the other half.
AMK_DEVICE u32* of_next_step(const Worker& w, u32* at) {
    constexpr long long HALF = 2ll * AMK_ROWS * AMK_ROW_WORDS;
    return at + (w.first_row() ? -HALF : HALF);
}
#endif
// Stores a word of a value.
AMK_DEVICE void store_word(const Worker& w, u32* at, u32 value) {
#if AMK_ROW_PACKETS
    if (w.dropped()) return;
    w.delay();
#endif
    store_relaxed_u32(at, value);
}
// With packets, clears a word for the next step.
AMK_DEVICE void clear_word(const Worker& w, u32* at) {
#if AMK_ROW_PACKETS
    store_relaxed_u32(of_next_step(w, at), ABSENT);
#endif
}
// Both; the first for a row that the step has.
AMK_DEVICE void put_word(const Worker& w, u32* at, u32 value, bool here) {
    if (here) store_word(w, at, value);
    clear_word(w, at);
}
// N words of a value, so far `apart`. The first `count` are loaded, the others are 0.
template <u32 N> struct Words {
    const u32* from;
    u32 apart = 1, count = N;
    u32 word[N];

    AMK_DEVICE void load() {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            word[i] = 0;
            if (i < count) word[i] = load_relaxed_u32(from + i * apart);
        }
    }
    AMK_DEVICE bool late() const {
        bool late = false;
#pragma unroll
        for (u32 i = 0; i < N; i++) late |= word[i] == ABSENT;
        return late;
    }
};
// Loads words; with packets, until they are there. Every lane calls it.
template <class First, class... Others>
AMK_DEVICE void read_words(const Worker& w, First& first, Others&... others) {
    bool late = false;
#pragma unroll 1
    do {
        first.load(), (others.load(), ...);
#if AMK_ROW_PACKETS
        late = any((first.late() || (... || others.late())) && w.lacks(first.from));
#endif
    } while (late);
}
// A word of a value, once it is there. Lanes may call it apart.
AMK_DEVICE u32 read_word(const Worker& w, const u32* from) {
    u32 word = load_relaxed_u32(from);
#if AMK_ROW_PACKETS
    while (word == ABSENT && w.lacks(from)) word = load_relaxed_u32(from);
#endif
    return word;
}
// Rows whose words a step stores or clears.
AMK_DEVICE u32 stored_rows(const Worker& w) { return AMK_ROW_PACKETS ? AMK_ROWS : w.p.row_count; }

// Where pair `pair` of bf16 of a row's value at word `offset` is. In wide steps the memory has,
// line after line of 128 bytes, the lines of all rows: what copies take of several rows is in one
// run. A line has the pairs of 16 elements in the order of a fragment of the tensor cores, and
// pieces of 16 bytes that change places by row.
AMK_DEVICE u32* pair_at(const Worker& w, u32 offset, u32 pair, u32 row) {
#if AMK_WIDE
    const u32 at = 2 * offset + pair, line = at / 32,
              place = (at & 24) | (at & 1) << 2 | (at >> 1 & 3);
    return (u32*)w.p.packets + ((u64)line * AMK_ROWS + row) * 32 + (place ^ (row & 7) << 2);
#else
    return (u32*)w.words(offset, row) + pair;
#endif
}
#if AMK_WIDE
// The 16 bytes number `piece` of a row's value of bf16: four pairs.
AMK_DEVICE uint4* piece_at(const Worker& w, u32 offset, u32 piece, u32 row) {
    const u32 line = offset / 16 + piece / 8;
    return (uint4*)w.p.packets + ((u64)line * AMK_ROWS + row) * 8 + ((piece ^ row) & 7);
}
// The number of a piece's pair `n` of four, as `pair_at` takes it.
AMK_DEVICE u32 pair_of(u32 piece, u32 n) { return piece / 2 * 8 + piece % 2 + 2 * n; }
#endif
// Words from one pair to the one that is 32 pairs further.
constexpr u32 LINE_APART = AMK_WIDE ? 32 * AMK_ROWS : 32;
// Where element `i` of 32 bits is. In wide steps the elements of a line are in order.
AMK_DEVICE u32* element_at(const Worker& w, u32 offset, u32 i, u32 row) {
#if AMK_WIDE
    const u32 at = 2 * offset + i;
    return (u32*)w.p.packets + ((u64)(at / 32) * AMK_ROWS + row) * 32 + at % 32;
#else
    return (u32*)w.words(offset, row) + i;
#endif
}
#endif
