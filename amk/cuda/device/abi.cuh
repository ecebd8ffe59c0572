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
// Bytes of a run of a box, see `TapeBoxes`.
constexpr u32 BOX_RUN = 1024;
// Sizes of boxes: powers of two of runs, from one on.
constexpr u32 BOX_SIZES = 5;
// Bytes of a tensor map.
constexpr u32 TENSOR_MAP = 128;
// Bytes of a ring slot, unless a program's are longer.
#define AMK_CHUNK 32768
// Rows of a vector or a weight that are dealt out together at least.
#define AMK_UNIT 8
// Units reduced together across the warps.
#define AMK_GROUP_UNITS 16
// Rows of a step up to which weights come through the ring. Bodies of wider steps have its
// memory to themselves.
#define AMK_NARROW_ROWS 8
// Rows of a step up to which these are in the shared memory.
#define AMK_ROWS_IN_SHARED 512
// bf16 elements of a packet.
#define AMK_PER_PACKET 2
// Floats of a worker's shared scratch memory.
constexpr int SCRATCH_FLOATS = 4352;
// Words of a record.
constexpr int RECORD_WORDS = 16;
// Leading words of a record, all that a projection reads.
constexpr int HOT_WORDS = 8;
// Words that consumers read if no task waits for a counter.
constexpr int COLD_WORDS = 11;
// Words of a tile in the arguments of a generic task.
constexpr int OPERAND_WORDS = 16;
// Maximum dimensions of a tile.
constexpr u32 MAX_RANK = 4;
// Words of a record's trace that the consumers write. The loader writes the others.
#define TRACE_OF_TASK 8
// Words of a worker's trace: its clock and the timer at the end.
#define TRACE_WORKER_WORDS 2

// Memory and format of the buffer of a generic task's tile.
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

// The kind of wait that did not end.
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

// A task of a worker. Packet offsets count packets, constant offsets count elements.
struct Record {
    // A `DeviceOp`, the number of a kind of record, or a generic body from 16 on.
    u16 op;
    // Units of rows, or of a generic task rows of the step. This field and those down to
    // `tape` mean what their kind of record says; the VM reads them only in generic tasks.
    u16 units;
    // Packet offset of the input, or of a generic task the first word of its tiles.
    u32 input;
    // Packet offset of the output.
    u32 output;
    // Sizes and forms, or of a generic task that streams the bytes of a block.
    u32 shape;
    // First output row, or another index: of a generic task the first row of the step.
    u32 row;
    // Constant offset of a vector, such as a norm's weight.
    u32 norm;
    // Constant offset of another vector, such as a bias, or packet offset of another output.
    u32 bias;
    // The task in the verified program.
    u32 task;
    // A layer, or another number.
    u32 layer;
    // A part, or another number: of a generic task whether it is for wanted rows alone.
    u32 aux;
    // Packet offset of partial results, or of another input or output.
    u32 partial;
    // Bytes of the tape that the task consumes.
    u32 tape;
    // Packet offset of the counter that the task signals; 0: none.
    u32 signal;
    // Packet offset of the counter that the task waits for; 0: none.
    u32 wait;
    // Signals per step of the counter that the task waits for.
    u32 arrivals;
    // Packet offset of another output, or another number.
    u32 more;
};
static_assert(sizeof(Record) == 64, "as the host has it");

// A tile of a buffer as a generic task sees it.
struct TileWords {
    // Start of the buffer, lower half: its packet, or its byte in the plain memory.
    u32 at_low;
    // Upper half of the start.
    u32 at_high;
    // kind | rank << 8 | bounds that move with the position, a bit a dimension: lower << 16,
    // upper << 20 | bounds that are behind it: lower << 24, upper << 28.
    u32 form;
    // Lower bounds.
    u32 lo[4];
    // Upper bounds.
    u32 hi[4];
    // Strides in elements.
    u32 stride[4];
    // Extent of the buffer's first dimension, or with rows the group of a state.
    u32 outermost;
};
static_assert(sizeof(TileWords) == 64, "as the host has it");

// The cause of an abandoned launch. Every watchdog polls the fault of the launch; each worker
// has a fault of its own for its pending wait.
struct Fault {
    // Nonzero: the launch is abandoned.
    u32 abort;
    // A `FaultKind`.
    u32 kind;
    // The step of the launch.
    u32 step;
    // The task in the verified program.
    u32 task;
    // The packet offset or the ring slot.
    u32 place;
    // The epoch or the count found there.
    u32 got;
    // Padding, zero.
    u32 reserved[2];
};
static_assert(sizeof(Fault) == 32, "as the host has it");

// A row of a step.
struct RowWords {
    // The token.
    u32 token;
    // Its position.
    u32 pos;
    // Where its page tables begin, which have the entries of all groups side by side.
    u32 pages;
    // One more than the row of its logits; 0: they are not wanted.
    u32 wanted;
};
static_assert(sizeof(RowWords) == 16, "as the host has it");

// Boxes of the tapes: runs of bytes, evenly apart, which one copy brings. Tensor maps follow,
// of all sizes of boxes for the first distance, then for the next. Their coordinates: words of
// 8 bytes of a run, runs, and 16 bytes of the tapes.
struct TapeBoxes {
    // How many distances there are.
    u32 count;
    // Bytes from one run to the next `[count]`.
    u32 apart[31];
};
static_assert(sizeof(TapeBoxes) == 128, "as the host has it");

// The VM's own parameters of a launch. `Params` has the registered bodies' too.
struct VmParams {
    // The workers' tapes.
    const u8* tape;
    // First byte of each worker's tape `[workers + 1]`.
    const u64* tape_at;
    // The records, and one more.
    const Record* records;
    // First record of each worker `[workers + 1]`.
    const u32* record_at;
    // The packets, followed by the counters.
    u64* packets;
    // Norms and biases.
    const Elem* constants;
    // Tokens of the first steps `[forced_count]`.
    const u32* forced;
    // Mapped host memory `[steps]`: token + 1, or 0 while it is pending.
    u32* tokens;
    // Logits of step n at n * logit_stride, or null.
    float* logits;
    // `[1 + workers]`
    Fault* fault;
    // See `TraceWord`; null unless tracing.
    u64* trace;
    // Tiles and parameters of generic tasks, see task.cuh.
    const u32* arguments;
    // Their weights, inputs and states.
    u8* plain;
    // Scratch for laying out operands `[workers, scratch_len]`.
    float* scratch;
    // With rows, the rows of the step `[row_count]`.
    const RowWords* rows;
    // The page tables of the rows; without rows the sequence's, if it has any.
    const u32* page_tables;
    // In programs with wide steps, boxes of the tapes; null on GPUs that cannot copy them.
    const TapeBoxes* boxes;
    // Nanoseconds until the watchdogs abandon the launch.
    u64 budget_ns;
    // Epoch of step 0; it grows from launch to launch.
    u32 epoch;
    // Position of step 0.
    u32 pos;
    // Steps of the launch.
    u32 steps;
    // Steps whose token is forced.
    u32 forced_count;
    // Number of logits, including NaNs for the rows that the last unit lacks.
    u32 vocab;
    // Tokens that end the launch.
    u32 stop_count;
    // `[stop_count]`
    u32 stops[8];
    // `vocab`, or 0 if each step's logits overwrite the previous ones.
    u32 logit_stride;
    // Floats of a worker's part of `scratch`, a multiple of 4.
    u32 scratch_len;
    // Rows of the step.
    u32 row_count;
};
static_assert(sizeof(VmParams) == 216, "as the host has it");
