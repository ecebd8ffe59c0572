//! Counters of events, behind the packets.

use super::LINE;
use amk_ir::Program;

/// Packet offsets of the counters, a line of the L2 each, behind `packets` packets, which grow by
/// them. The device never clears them: epoch n is the n-th step since the packets were cleared, in
/// which a counter of f signals a step is full at n * f.
pub(super) fn place(program: &Program, packets: &mut u32) -> Vec<u32> {
    let mut next = || {
        *packets += LINE;
        *packets - LINE
    };
    program.events.iter().map(|_| next()).collect()
}
