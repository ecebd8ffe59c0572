//! Structs, numbers and limits shared by the host and the device code, each written once.
//!
//! The macros below define the Rust items, and [`text`] renders the same items as C++. The
//! generated source begins with that text. `amk/cuda/device/abi.cuh` is a copy for readers and
//! editors of the device code, and a test keeps it up to date.

use super::declare::items;
use crate::{device_constants, device_enumerations, device_structs};

device_constants! {
    /// Consumer warps of a worker.
    WARPS = 16 => "#define AMK_WARPS";
    /// Bytes of a run of a box, see `TapeBoxes`.
    BOX_RUN = 1024 => "constexpr u32 BOX_RUN =";
    /// Sizes of boxes: powers of two of runs, from one on.
    BOX_SIZES = 5 => "constexpr u32 BOX_SIZES =";
    /// Bytes of a tensor map.
    TENSOR_MAP = 128 => "constexpr u32 TENSOR_MAP =";
    /// Bytes of a ring slot, unless a program's are longer.
    CHUNK = 32768 => "#define AMK_CHUNK";
    /// Rows of a vector or a weight that are dealt out together at least.
    UNIT = 8 => "#define AMK_UNIT";
    /// Units reduced together across the warps.
    GROUP_UNITS = 16 => "#define AMK_GROUP_UNITS";
    /// Rows of a step up to which weights come through the ring. Bodies of wider steps have its
    /// memory to themselves.
    NARROW_ROWS = 8 => "#define AMK_NARROW_ROWS";
    /// Rows of a step up to which these are in the shared memory.
    ROWS_IN_SHARED = 512 => "#define AMK_ROWS_IN_SHARED";
    /// bf16 elements of a packet.
    PER_PACKET = 2 => "#define AMK_PER_PACKET";
    /// Floats of a worker's shared scratch memory.
    SCRATCH_FLOATS = 4352 => "constexpr int SCRATCH_FLOATS =";
    /// Words of a record.
    RECORD_WORDS = 16 => "constexpr int RECORD_WORDS =";
    /// Leading words of a record, all that a projection reads.
    HOT_WORDS = 8 => "constexpr int HOT_WORDS =";
    /// Words that consumers read if no task waits for a counter.
    COLD_WORDS = 11 => "constexpr int COLD_WORDS =";
    /// Words of a tile in the arguments of a generic task.
    OPERAND_WORDS = 16 => "constexpr int OPERAND_WORDS =";
    /// Maximum dimensions of a tile.
    MAX_RANK = 4 => "constexpr u32 MAX_RANK =";
    /// Words of a record's trace that the consumers write. The loader writes the others.
    TRACE_OF_TASK = 8 => "#define TRACE_OF_TASK";
    /// Words of a worker's trace: its clock and the timer at the end.
    TRACE_WORKER_WORDS = 2 => "#define TRACE_WORKER_WORDS";
}

device_enumerations! {
    /// Memory and format of the buffer of a generic task's tile.
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
    }
    /// The kind of wait that did not end.
    enum FaultKind {
        FAULT_NONE,
        FAULT_PACKET,
        FAULT_RING_FULL,
        FAULT_RING_EMPTY,
    }
    /// The words of a record in a trace of a launch's last step. Times are clocks of the worker's
    /// multiprocessor, except for the timer, which counts nanoseconds that all share. The first are
    /// explained at `Worker::stamp`. STARVED and LATE: clocks that the first warp waited since
    /// INPUTS, for more blocks and for more inputs. FULL, LANDING and PACED: clocks that the loader
    /// waited for a free slot, for memory and for its pace. ISSUED: it has asked for all bytes.
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
    }
}

device_structs! {
    /// A task of a worker. Packet offsets count packets, constant offsets count elements.
    struct Record {
        /// A `DeviceOp`, the number of a kind of record, or a generic body from 16 on.
        op: u16,
        /// Units of rows, or of a generic task rows of the step. This field and those down to
        /// `tape` mean what their kind of record says; the VM reads them only in generic tasks.
        units: u16,
        /// Packet offset of the input, or of a generic task the first word of its tiles.
        input: u32,
        /// Packet offset of the output.
        output: u32,
        /// Sizes and forms, or of a generic task that streams the bytes of a block.
        shape: u32,
        /// First output row, or another index: of a generic task the first row of the step.
        row: u32,
        /// Constant offset of a vector, such as a norm's weight.
        norm: u32,
        /// Constant offset of another vector, such as a bias, or packet offset of another output.
        bias: u32,
        /// The task in the verified program.
        task: u32,
        /// A layer, or another number.
        layer: u32,
        /// A part, or another number: of a generic task whether it is for wanted rows alone.
        aux: u32,
        /// Packet offset of partial results, or of another input or output.
        partial: u32,
        /// Bytes of the tape that the task consumes.
        tape: u32,
        /// Packet offset of the counter that the task signals; 0: none.
        signal: u32,
        /// Packet offset of the counter that the task waits for; 0: none.
        wait: u32,
        /// Signals per step of the counter that the task waits for.
        arrivals: u32,
        /// Packet offset of another output, or another number.
        more: u32,
    }
    /// A tile of a buffer as a generic task sees it.
    struct TileWords {
        /// Start of the buffer, lower half: its packet, or its byte in the plain memory.
        at_low: u32,
        /// Upper half of the start.
        at_high: u32,
        /// kind | rank << 8 | bounds that move with the position, a bit a dimension: lower << 16,
        /// upper << 20 | bounds that are behind it: lower << 24, upper << 28.
        form: u32,
        /// Lower bounds.
        lo: [u32; 4],
        /// Upper bounds.
        hi: [u32; 4],
        /// Strides in elements.
        stride: [u32; 4],
        /// Extent of the buffer's first dimension, or with rows the group of a state.
        outermost: u32,
    }
    /// The cause of an abandoned launch. Every watchdog polls the fault of the launch; each worker
    /// has a fault of its own for its pending wait.
    struct Fault {
        /// Nonzero: the launch is abandoned.
        abort: u32,
        /// A `FaultKind`.
        kind: u32,
        /// The step of the launch.
        step: u32,
        /// The task in the verified program.
        task: u32,
        /// The packet offset or the ring slot.
        place: u32,
        /// The epoch or the count found there.
        got: u32,
        /// Padding, zero.
        reserved: [u32; 2],
    }
    /// A row of a step.
    struct RowWords {
        /// The token.
        token: u32,
        /// Its position.
        pos: u32,
        /// Where its page tables begin, which have the entries of all groups side by side.
        pages: u32,
        /// One more than the row of its logits; 0: they are not wanted.
        wanted: u32,
    }
    /// Boxes of the tapes: runs of bytes, evenly apart, which one copy brings. Tensor maps follow,
    /// of all sizes of boxes for the first distance, then for the next. Their coordinates: words of
    /// 8 bytes of a run, runs, and 16 bytes of the tapes.
    struct TapeBoxes {
        /// How many distances there are.
        count: u32,
        /// Bytes from one run to the next `[count]`.
        apart: [u32; 31],
    }
    /// The VM's own parameters of a launch. `Params` has the registered bodies' too.
    struct VmParams {
        /// The workers' tapes.
        tape: u64 as "const u8*",
        /// First byte of each worker's tape `[workers + 1]`.
        tape_at: u64 as "const u64*",
        /// The records, and one more.
        records: u64 as "const Record*",
        /// First record of each worker `[workers + 1]`.
        record_at: u64 as "const u32*",
        /// The packets, followed by the counters.
        packets: u64 as "u64*",
        /// Norms and biases.
        constants: u64 as "const Elem*",
        /// Tokens of the first steps `[forced_count]`.
        forced: u64 as "const u32*",
        /// Mapped host memory `[steps]`: token + 1, or 0 while it is pending.
        tokens: u64 as "u32*",
        /// Logits of step n at n * logit_stride, or null.
        logits: u64 as "float*",
        /// `[1 + workers]`
        fault: u64 as "Fault*",
        /// See `TraceWord`; null unless tracing.
        trace: u64 as "u64*",
        /// Tiles and parameters of generic tasks, see task.cuh.
        arguments: u64 as "const u32*",
        /// Their weights, inputs and states.
        plain: u64 as "u8*",
        /// Scratch for laying out operands `[workers, scratch_len]`.
        scratch: u64 as "float*",
        /// With rows, the rows of the step `[row_count]`.
        rows: u64 as "const RowWords*",
        /// The page tables of the rows; without rows the sequence's, if it has any.
        page_tables: u64 as "const u32*",
        /// In programs with wide steps, boxes of the tapes; null on GPUs that cannot copy them.
        boxes: u64 as "const TapeBoxes*",
        /// Nanoseconds until the watchdogs abandon the launch.
        budget_ns: u64,
        /// Epoch of step 0; it grows from launch to launch.
        epoch: u32,
        /// Position of step 0.
        pos: u32,
        /// Steps of the launch.
        steps: u32,
        /// Steps whose token is forced.
        forced_count: u32,
        /// Number of logits, including NaNs for the rows that the last unit lacks.
        vocab: u32,
        /// Tokens that end the launch.
        stop_count: u32,
        /// `[stop_count]`
        stops: [u32; 8],
        /// `vocab`, or 0 if each step's logits overwrite the previous ones.
        logit_stride: u32,
        /// Floats of a worker's part of `scratch`, a multiple of 4.
        scratch_len: u32,
        /// Rows of the step.
        row_count: u32,
    }
}

/// The op of the first generic body in a record; the others follow.
pub const FIRST_BODY: u32 = 24;

const _: () = assert!(core::mem::offset_of!(Record, layer) == HOT_WORDS as usize * 4);
const _: () = assert!(core::mem::offset_of!(Record, tape) == COLD_WORDS as usize * 4);
const _: () = assert!(size_of::<Record>() == RECORD_WORDS as usize * 4);
const _: () = assert!(size_of::<TileWords>() == OPERAND_WORDS as usize * 4);
const _: () = assert!(core::mem::offset_of!(TileWords, hi) == (3 + MAX_RANK as usize) * 4);

/// The heading of [`text`].
const HEAD: &str = "\
// The ABI that the device shares with the host, generated from `image/abi.rs` of the CUDA VM. Do
// not edit: `AMK_BLESS=1 cargo test -p amk-tests image::` writes it.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 Elem;
";

/// Renders the ABI as C++.
pub fn text() -> String {
    let mut out = HEAD.to_owned();
    out.push('\n');
    out.push_str(&items(CONSTANTS, ENUMERATIONS));
    STRUCTS.iter().for_each(|of| out.push_str(&of.text()));
    out
}
