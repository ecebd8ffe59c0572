// What the copying warps of a wide step copy for a group of units.
#pragma once
#include "../../../amk/cuda/device/abi.cuh"

struct CopyList {
    u32 tiles, columns, units;
    u32 first;                // column, of all
    u32 tile;                 // bytes of a tile
    u32 log;                  // tiles of a stage: its logarithm
    u32 block;                // bytes of 64 inputs of all columns
    u32 bytes, stages;        // of a stage; stages in memory
    u32 bytes_before;         // of a stage of the group before
    u32 left;                 // of the memory, which nobody uses after the group's products
    u32 inputs_at;            // the offset of the inputs in a stage
    u32 count;                // of stages
    u32 passes, of_pass;      // over k, and the stages of one
    u32 before;               // stages before the first one, in the passes over all of k
    u32 gathers;              // the columns are some rows of the step, or of the embedding table
    u32 pitch;                // bytes of a row of the table, or 0
    u64 inputs, gamma;        // where they are; gamma: the norm's weights, or 0
    u64 tape;                 // the first one
    u64 maps[2];              // of the boxes of a pass, and of the last pass
    u32 boxes;                // of a stage's weights; 0: runs are copied one by one
    u8 box[2 * AMK_WARPS][2]; // of each box the first unit, and the logarithm of their number
};
