//! Counters of events, placed after the packets.

use super::LINE;
use amk_ir::Program;

/// Returns the packet offsets of the counters, one per L2 line, and adds them to `packets`. The
/// device never clears them: epoch n is the n-th step since the packets were cleared, so a counter
/// with f signals per step is full at n * f.
pub(super) fn place(program: &Program, packets: &mut u32) -> Vec<u32> {
    let mut next = || {
        *packets += LINE;
        *packets - LINE
    };
    program.events.iter().map(|_| next()).collect()
}
