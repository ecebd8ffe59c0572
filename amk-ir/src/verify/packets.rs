//! Packets as counters: each set of words that is read together is a counter that its writers signal.

use super::sync::Rows;
use crate::BufferId;

/// The order that packets make in one step.
#[derive(Default)]
pub(super) struct PacketEdges {
    /// Sets that each task reads; empty where there are none at all.
    pub(super) reads: Rows<u32>,
    /// Sets that each task writes to; empty where there are none at all.
    pub(super) writes: Rows<u32>,
    /// Tasks that write to each set.
    pub(super) writers: Rows<u32>,
    /// The buffer of each set.
    pub(super) buffers: Vec<BufferId>,
}
