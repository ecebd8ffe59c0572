// Boxes of a wide projection: units of weights whose runs are evenly apart, in one copy. A copy for
// each unit would take the copying warps longer than the products of a stage take.
#pragma once
#include "stages.cuh"

#if AMK_WIDE
// Finds the maps of boxes of runs that are `apart` bytes apart; 0: there are none.
AMK_DEVICE u64 maps_of_boxes(const Params& p, u32 apart) {
    const TapeBoxes* boxes = p.boxes;
    for (u32 i = 0; boxes && i < boxes->count; i++)
        if (boxes->apart[i] == apart) return (u64)(boxes + 1) + i * BOX_SIZES * TENSOR_MAP;
    return 0;
}

// Cuts `units` of a group into boxes of powers of two, the longest ones first, if a stage has `run`
// bytes of each. Units make up boxes where they lie `apart` bytes apart; in the last pass over k
// that is `last`. Each lane has listed the place of its unit.
AMK_DEVICE void list_boxes(const Params& p, Shared& s, u32 lane, u32 units, u32 run, u32 apart,
                           u32 last) {
    CopyList& list = s.copies;
    if (lane == 0) list.boxes = 0;
    if (run != BOX_RUN) return;
    const u64 at = lane < units ? s.tile_at[0][lane] : 0, before = __shfl_up_sync(~0u, at, 1);
    const bool begins = lane == 0 || lane >= units || at != before + apart;
    const u32 starts = __ballot_sync(~0u, begins), upto = 2u << lane,
              first = 31 - __clz(starts & (upto - 1)), next = starts & ~(upto - 1),
              end = next ? 31 - __clz(next & (0 - next)) : 32;
    const u32 len = end - first, log = min(31 - __clz(end - lane), BOX_SIZES - 1);
    const bool heads = log + 1 == BOX_SIZES ? (lane - first) % (1 << log) == 0
                                            : first + (len >> (log + 1) << (log + 1)) == lane;
    const u32 all = __ballot_sync(~0u, heads && lane < units);
    if (all >> lane & 1) {
        u8* box = list.box[__popc(all & ((1u << lane) - 1))];
        box[0] = lane, box[1] = log;
    }
    if (lane) return;
    list.maps[0] = maps_of_boxes(p, apart), list.maps[1] = maps_of_boxes(p, last);
    if (list.maps[0] && list.maps[1]) list.boxes = __popc(all), list.tape = (u64)p.tape;
}

// Copies the boxes of a stage to shared memory at `to`, by the lanes of a warp; counted by a
// barrier. `from`: the place of a unit's run.
template <class F>
AMK_DEVICE void copy_boxes(const CopyList& list, u32 lane, u32 to, u64 maps, u32 barrier, F from) {
#if __CUDA_ARCH__ >= 900
    for (u32 k = lane; k < list.boxes; k += 32) {
        const u32 unit = list.box[k][0], at = (from(unit) - list.tape) / 16;
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %2, %3}], [%4];" ::"r"(to + unit * BOX_RUN),
            "l"(maps + list.box[k][1] * TENSOR_MAP), "r"(0), "r"(at), "r"(barrier)
            : "memory");
    }
#endif
}
#endif
