// Where the values of a step's rows lie.
#pragma once
#include "worker.cuh"

#if AMK_ROWS
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
