// What the schedule and the options of a VM set, beside the ABI.
#pragma once
#include "abi.cuh"
#include "ptx.cuh"

#ifndef AMK_TRACE
#define AMK_TRACE 0 // 1: tasks write time stamps
#endif
#ifndef AMK_NO_ARRIVALS
#define AMK_NO_ARRIVALS 0 // 1: those who deliver wait, too, see `Worker::end_task`
#endif
#ifndef AMK_EXCHANGE
#define AMK_EXCHANGE 0 // 1: tasks wait for counters besides packets, see exchange.cuh
#endif
#ifndef AMK_SLOTS
#define AMK_SLOTS 6 // ring slots
#endif
#ifndef AMK_PACE
#define AMK_PACE 0 // clock cycles that 4 KiB of the tape take at least
#endif
#ifndef AMK_IN_FLIGHT
#define AMK_IN_FLIGHT 2 // chunks issued that may not have landed
#endif
#ifndef AMK_LOOKAHEAD
#define AMK_LOOKAHEAD 0 // bytes that are brought into the L2 ahead of the ring; 0: none
#endif
#ifndef AMK_SCOUT
#define AMK_SCOUT 8192 // bytes the scout asks for at once
#endif
// and the loader, the watchdog and the scout; where registers can move between warpgroups, these
// come as a whole group
#if __CUDA_ARCH_FEAT_SM90_ALL
#define AMK_BLOCK_WARPS (AMK_WARPS + 4)
#else
#define AMK_BLOCK_WARPS (AMK_WARPS + 3)
#endif
#define AMK_USED_WORDS (AMK_EXCHANGE ? RECORD_WORDS : COLD_WORDS) // of a record, by consumers
