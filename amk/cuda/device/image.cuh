// Macros set by the schedule and the options of a VM, in addition to the ABI.
#pragma once
#include "abi.cuh"
#include "ptx.cuh"

#ifndef AMK_TRACE
#define AMK_TRACE 0 // 1: tasks write timestamps
#endif
#ifndef AMK_NO_ARRIVALS
#define AMK_NO_ARRIVALS 0 // 1: delivering warps wait, too, see `Worker::end_task`
#endif
#ifndef AMK_EXCHANGE
#define AMK_EXCHANGE 0 // 1: tasks wait for counters as well as packets, see exchange.cuh
#endif
#ifndef AMK_ROWS
#define AMK_ROWS 0 // rows of a step at most; 0: a step is one call of the function
#endif
#ifndef AMK_WIDE
#define AMK_WIDE (AMK_ROWS > AMK_NARROW_ROWS) // weights do not come through the ring
#endif
#ifndef AMK_SLOTS
#define AMK_SLOTS 6 // ring slots
#endif
#ifndef AMK_SLOT_BYTES
#define AMK_SLOT_BYTES AMK_CHUNK
#endif
#ifndef AMK_SHARED_BYTES
#define AMK_SHARED_BYTES 0 // of a block, all of which wide steps use; 0: the slots alone
#endif
#ifndef AMK_ROW_UNITS
#define AMK_ROW_UNITS AMK_GROUP_UNITS // units reduced together at most
#endif
#ifndef AMK_PACE
#define AMK_PACE 0 // minimum clock cycles per 4 KiB of the tape
#endif
#ifndef AMK_IN_FLIGHT
#define AMK_IN_FLIGHT 2 // chunks issued that may not have landed yet
#endif
#ifndef AMK_LOW
#define AMK_LOW 0 // chunks in the ring at most while it runs low; 0: it never does
#endif
#ifndef AMK_LOOKAHEAD
#define AMK_LOOKAHEAD 0 // bytes prefetched into the L2 ahead of the ring; 0: none
#endif
#ifndef AMK_SCOUT
#define AMK_SCOUT 8192 // bytes per request of the scout
#endif
// Plus the loader, the watchdog and the scout. Where registers can move between warpgroups, these
// form a whole warpgroup.
#if __CUDA_ARCH_FEAT_SM90_ALL
#define AMK_BLOCK_WARPS (AMK_WARPS + 4)
#else
#define AMK_BLOCK_WARPS (AMK_WARPS + 3)
#endif
// The warps that copy in wide steps, all but the consumers and the watchdog.
#define AMK_COPIERS (AMK_BLOCK_WARPS - AMK_WARPS - 1)
// Words of a record that consumers read.
#define AMK_USED_WORDS (AMK_EXCHANGE ? RECORD_WORDS : COLD_WORDS)
