// The ABI that the device shares with the host, generated from `image/abi.rs` of the CUDA VM. Do
// not edit: `AMK_BLESS=1 cargo test -p amk-tests image::` writes it.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 Elem;

// Consumer warps of a worker.
#define AMK_WARPS 16
// Input tiles that a warp multiplies in one pass at most.
#define AMK_DEPTH 4
// Bytes of a ring slot.
#define AMK_CHUNK 32768
// Bytes of a weight tile: 16 for each lane of a warp.
#define AMK_TILE 512
// Input elements of a weight tile.
#define AMK_TILE_K 32
// Output rows of a weight tile: a unit.
#define AMK_UNIT 8
// Units that are reduced together across the warps.
#define AMK_GROUP_UNITS 16
// bf16 elements of a packet.
#define AMK_PER_PACKET 2
// Rounds of probes in a filtered draw.
#define AMK_ROUNDS 6
// Levels of a probe.
#define AMK_LEVELS 8
// Words that a worker publishes about a level.
#define AMK_FIELDS 5
// Words of the search state of a worker.
#define AMK_SEARCH 30
// Words that a worker publishes with its best logit where tokens are filtered.
constexpr u32 SHARES = 3;
// Floats of a worker's shared scratch memory.
constexpr int SCRATCH_FLOATS = 4352;
// Words of a record.
constexpr int RECORD_WORDS = 16;
// The first words of a record, which are all that a projection reads.
constexpr int HOT_WORDS = 8;
// Those that consumers read where no task waits for a counter.
constexpr int COLD_WORDS = 11;
// Words of a tile in the arguments of a generic task.
constexpr int OPERAND_WORDS = 16;
// Dimensions of a tile at most.
constexpr u32 MAX_RANK = 4;
// Words of a record that the consumers write into a trace; the loader writes the others.
#define TRACE_OF_TASK 8
// Words of a worker in a trace: its clock and the timer at the end.
#define TRACE_WORKER_WORDS 2

// Where the buffer of a generic task's tile lies, and in which format.
enum OperandKind {
    PACKETS_F32,
    PACKETS_BF16,
    PACKETS_U32,
    PLAIN_F32,
    PLAIN_BF16,
    STATE_F32,
    TOKEN,
    LOGITS,
    LOCAL,
    STREAM,
};

// Which wait did not end.
enum FaultKind {
    FAULT_NONE,
    FAULT_PACKET,
    FAULT_RING_FULL,
    FAULT_RING_EMPTY,
};

// The words of a record in a trace of a launch's last step. Times are clocks of the worker's
// multiprocessor, except for the timer, which counts nanoseconds that all share. The first are
// explained at `Worker::stamp`. STARVED and LATE: clocks that the first warp waited since
// INPUTS, for more blocks and for more inputs. FULL, LANDING and PACED: clocks that the loader
// waited for a free slot, for memory and for its pace. ISSUED: it has asked for all bytes.
enum TraceWord {
    TRACE_START,
    TRACE_INPUTS,
    TRACE_PRODUCT,
    TRACE_GATHERED,
    TRACE_END,
    TRACE_STARVED,
    TRACE_LATE,
    TRACE_TIMER,
    TRACE_FULL,
    TRACE_LANDING,
    TRACE_PACED,
    TRACE_ISSUED,
    TRACE_WORDS,
};

// One task of one worker. Packet offsets count packets, constant offsets count elements.
struct Record {
    // A `DeviceOp`, the number of a kind of record, or a generic body from 16 on.
    u16 op;
    // Units of 8 rows; of a combination, slices of 32 elements.
    u16 units;
    // Packet offset of what is read; of a generic task, the first word of its tiles.
    u32 input;
    // Packet offset of what is written.
    u32 output;
    // Of a projection: `GEMV_K` and the fields after it; of an adoption, 1 where packets are
    // pairs; of a generic task that streams, bytes of a block.
    u32 shape;
    // First output row, first slice, or kv head.
    u32 row;
    // Constant offset of the norm's weight; of an attention, that of the query norm.
    u32 norm;
    // Constant offset of the bias; of an attention, that of the key norm.
    u32 bias;
    // The task in the verified program.
    u32 task;
    // The layer of an attention, the round of a probe.
    u32 layer;
    // The split of an attention.
    u32 aux;
    // Packet offset of split results; of a draw, of what else it reads or writes.
    u32 partial;
    // Bytes of the tape that the task consumes.
    u32 tape;
    // Packet offset of the counter that the task signals; 0: none.
    u32 signal;
    // Packet offset of the counter that the task waits for; 0: none.
    u32 wait;
    // Signals in a step of the counter that the task waits for.
    u32 arrivals;
    // Zero.
    u32 reserved;
};
static_assert(sizeof(Record) == 64, "as the host has it");

// A tile of a buffer as a generic task has it.
struct TileWords {
    // Where the buffer begins: its packet, or its byte in the plain memory.
    u32 at_low;
    // The upper half of that.
    u32 at_high;
    // kind | rank << 8 | bounds that move with the position, a bit a dimension: lower << 16,
    // upper << 20.
    u32 form;
    // Lower bounds.
    u32 lo[4];
    // Upper bounds.
    u32 hi[4];
    // Elements from one index to the next.
    u32 stride[4];
    // Extent of the whole buffer's first dimension.
    u32 outermost;
};
static_assert(sizeof(TileWords) == 64, "as the host has it");

// Why a launch ended early. The launch's own says whether, and every watchdog polls it; one
// for each worker says what it waited for.
struct Fault {
    // Not 0: the launch is abandoned.
    u32 abort;
    // A `FaultKind`.
    u32 kind;
    // The step of the launch.
    u32 step;
    // The task in the verified program.
    u32 task;
    // The packet offset or the ring slot.
    u32 place;
    // The epoch or the count that was found there.
    u32 got;
    // Zero.
    u32 reserved[2];
};
static_assert(sizeof(Fault) == 32, "as the host has it");

// The parameters of a launch.
struct Params {
    // The workers' tapes.
    const u8* tape;
    // First byte of each worker's tape `[workers + 1]`.
    const u64* tape_at;
    // The records, and one more.
    const Record* records;
    // First record of each worker `[workers + 1]`.
    const u32* record_at;
    // The packets, and the counters behind them.
    u64* packets;
    // Norms and biases.
    const Elem* constants;
    // The embedding table `[.., hidden]`.
    const Elem* embedding;
    // The caches of fused attention.
    u8* kv;
    // Rotary frequencies `[rotary]`.
    const float* inv_freq;
    // Tokens of the first steps `[forced_count]`.
    const u32* forced;
    // Mapped host memory `[steps]`: token + 1, zero until there is one.
    u32* tokens;
    // Logits of step n at n * logit_stride, or null.
    float* logits;
    // `[1 + workers]`
    Fault* fault;
    // See `TraceWord`; null where nothing is traced.
    u64* trace;
    // Tiles and parameters of generic tasks, see task.cuh.
    const u32* arguments;
    // Their weights, inputs and states.
    u8* plain;
    // Where they lay out operands `[workers, scratch_len]`.
    float* scratch;
    // Nanoseconds until the watchdogs abandon the launch.
    u64 budget_ns;
    // Of the draws.
    u64 seed;
    // Of step 0; it grows from launch to launch.
    u32 epoch;
    // Position of step 0.
    u32 pos;
    // Steps of the launch.
    u32 steps;
    // Steps whose token is given.
    u32 forced_count;
    // Elements of a row of the embedding table.
    u32 hidden;
    // Logits.
    u32 vocab;
    // Blocks of 64 positions of a kv head's cache in a layer.
    u32 kv_blocks;
    // Factor on rotated values.
    float rope_scale;
    // 0: greedy.
    float inv_temperature;
    // Epsilon of every RMSNorm of a fused task.
    float eps;
    // Factor on attention scores.
    float score_scale;
    // Entries of inv_freq.
    u32 rotary;
    // Tokens that end the launch.
    u32 stop_count;
    // `[stop_count]`
    u32 stops[8];
    // Number of the draw of step 0; it wraps.
    u32 draw;
    // `vocab`, or 0: every step's logits take the place of the last one's.
    u32 logit_stride;
    // 1: tokens are filtered before a draw, and `logits` is not null.
    u32 filter;
    // Tokens that the filter leaves; 0: all.
    u32 top_k;
    // Probability that the filter leaves.
    float top_p;
    // Logarithm of min-p, see search.cuh.
    float min_log;
    // Floats of a worker's part of `scratch`, a multiple of 4.
    u32 scratch_len;
};
static_assert(sizeof(Params) == 264, "as the host has it");
