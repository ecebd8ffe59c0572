// What the host hands to a launch: the image's records and the parameters of the steps. The host side mirrors these layouts
// field by field (`amk::vm::cuda::image`).
#pragma once
#include "ptx.cuh"

#ifndef AMK_TRACE
#define AMK_TRACE 0        // 1: tasks write time stamps
#endif
#ifndef AMK_NO_ARRIVALS
#define AMK_NO_ARRIVALS 0  // 1: those who deliver wait, too, see `Worker::end_task`
#endif
#define AMK_PACKETS 0
#define AMK_COUNTERS 1
#define AMK_BARRIER 2
#ifndef AMK_EXCHANGE
#define AMK_EXCHANGE AMK_PACKETS // how tasks wait for one another, see exchange.cuh
#endif
#ifndef AMK_WARPS
#define AMK_WARPS 16       // consumer warps
#endif
#ifndef AMK_DEPTH
#define AMK_DEPTH 4       // input tiles a warp multiplies in one pass at most
#endif
#ifndef AMK_SLOTS
#define AMK_SLOTS 6       // ring slots
#endif
#ifndef AMK_PACE
#define AMK_PACE 0         // clock cycles that 4 KiB of the tape take at least
#endif
#ifndef AMK_IN_FLIGHT
#define AMK_IN_FLIGHT 2    // chunks issued that may not have landed
#endif
#ifndef AMK_LOOKAHEAD
#define AMK_LOOKAHEAD 0      // bytes that are brought into the L2 ahead of the ring; 0: none
#endif
#ifndef AMK_SCOUT
#define AMK_SCOUT 8192     // bytes the scout asks for at once
#endif
// and the loader, the watchdog and the scout; where registers can move between warpgroups, these come as a whole group
#if __CUDA_ARCH_FEAT_SM90_ALL
#define AMK_BLOCK_WARPS (AMK_WARPS + 4)
#else
#define AMK_BLOCK_WARPS (AMK_WARPS + 3)
#endif
#ifndef AMK_CHUNK
#define AMK_CHUNK 32768    // bytes of a ring slot
#endif
#define AMK_TILE 512       // bytes of a weight tile: 16 bytes for each lane of a warp
#define AMK_UNIT 8         // output rows of a weight tile
#define AMK_GROUP_UNITS 16 // units reduced together across the warps

typedef u16 Elem;
#define AMK_TILE_K 32
#define AMK_PER_PACKET 2

// One task of one worker. Offsets of packets count packets, offsets of constants count elements.
struct Record {
    u16 op, units;
    u32 in, out;     // packet offsets
    u32 shape;       // of a gemv: k | input << 20 | output << 22 | depth << 24 | flags << 28, see gemv.cuh
    u32 row;         // first output row, first unit, or kv head
    u32 norm, bias;  // constant offsets: norm weight (attention: q-norm), bias (attention: k-norm)
    u32 task;        // id of the task in the verified program
    u32 layer;
    u32 aux;         // attention: split
    u32 partial;     // packet offset of split results
    u32 tape;        // bytes of the tape the task consumes
    u32 signal, wait;// packet offsets of counters, 0: none; a barrier arrives and waits at all from `signal` to `wait`
    u32 arrivals;    // at the counter that it waits for, a step
    u32 reserved;
};
constexpr int HOT_WORDS = 8; // those of a gemv
constexpr int RECORD_WORDS = 16;
#define AMK_USED_WORDS (AMK_EXCHANGE ? RECORD_WORDS : 11) // by consumers
static_assert(sizeof(Record) == RECORD_WORDS * 4, "the host mirrors this layout");

// Why a launch ended early: in the first place whether, polled by every watchdog; then what each worker waited for.
struct Fault {
    u32 abort, kind, step, task, where, got, reserved[2];
};
enum FaultKind { FAULT_NONE, FAULT_PACKET, FAULT_RING_FULL, FAULT_RING_EMPTY };

// A trace of a launch's last step: TRACE_WORDS words a record, then TRACE_WORKER_WORDS a worker, its clock and the timer at the end.
// Times are clocks of the worker's multiprocessor, but for the timer, which counts the nanoseconds that all share.
enum TraceWord {
    TRACE_START, TRACE_INPUTS, TRACE_PRODUCT, TRACE_GATHERED, TRACE_END, // of a task: see `Worker::stamp`
    TRACE_STARVED, TRACE_LATE,                   // clocks that the first warp waited since INPUTS: for more blocks, for more inputs
    TRACE_TIMER,                                 // at START
    TRACE_OF_TASK,                               // so many words that the consumers write; then the loader's:
    TRACE_FULL = TRACE_OF_TASK, TRACE_LANDING, TRACE_PACED, // clocks that it waited: for a free slot, for memory, for its pace
    TRACE_ISSUED,                                // it has asked for all of the task's bytes
    TRACE_WORDS,
};
constexpr u32 TRACE_WORKER_WORDS = 2;

struct Params {
    const u8* tape;
    const u64* tape_at;    // [workers + 1]
    const Record* records;
    const u32* record_at;  // [workers + 1]
    u64* packets;
    const Elem* constants;
    const Elem* embedding; // [vocab, hidden]
    u8* kv;
    const float* inv_freq; // [rotary]
    const u32* forced;     // tokens of the steps 0..forced_count
    u32* tokens;           // mapped host memory [steps]: token + 1, zero until made
    float* logits;         // of step n at n * logit_stride, or null
    Fault* fault;          // [1 + workers]
    u64* trace;            // see TraceWord; null where nothing is traced
    const u32* arguments;  // of generic tasks: tiles and parameters, see task.cuh
    u8* plain;             // their weights, inputs and states
    float* scratch;        // [workers, scratch_len]: what they lay out
    u64 budget_ns;
    u64 seed;
    u32 epoch;             // of step 0; monotonic over launches
    u32 pos, steps, forced_count;
    u32 hidden, vocab, kv_blocks;
    float rope_scale, inv_temperature; // inv_temperature 0: greedy
    float eps;             // of every RMSNorm
    float score_scale;     // of the attention scores
    u32 rotary;            // entries of inv_freq
    u32 stop_count, stops[8];
    u32 draw;              // number of the draw of step 0; wraps
    u32 logit_stride;      // vocab, or 0: every step's logits take the place of the last one's
    u32 filter;            // 1: tokens are taken out before a draw, and `logits` is there
    u32 top_k;
    float top_p, min_log;  // see search.cuh
    u32 scratch_len;       // a multiple of 4
};
