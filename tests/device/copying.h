// Warps that copy and warps that wait for them, without a GPU: votes of a warp, and counters. The
// including file defines AMK_WARPS.
#pragma once
#define any any_of_lane
#define all all_of_lane
#include "coroutines.h"
#undef any
#undef all

static dim threadIdx = {0}; // of who begins a launch

// A turn of whoever waits. Launches take some hundred thousand.
static u32 turns;
static void next_turn() {
    if (++turns > 50000000) printf("nobody goes on\n"), fflush(stdout), _Exit(1);
    next();
}
static void count_up(u32& counter) { counter++; }
static u32 counted(const u32& counter) { return next_turn(), counter; }
static u32 load_shared_atomic(const u32* at) { return *at; }
static void __nanosleep(u32) {}
static u32 clock_low() { return next_turn(), turns; }
// Votes of a warp.
static bool found[COROUTINES / 32];
static bool any(bool x) {
    bool& of_warp_x = found[running / 32];
    of_warp_x |= x;
    __syncwarp();
    const bool of_any = of_warp_x;
    __syncwarp();
    of_warp_x = false;
    __syncwarp();
    return of_any;
}
static bool all(bool x) { return !any(!x); }
static u32 __shfl_up_sync(u32, u64 value, int by) { return from_lane(value, running - by); }
static u64 min(u64 a, u64 b) { return a < b ? a : b; }
