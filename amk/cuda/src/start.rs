//! Breakdown of the time until a VM is ready.

use std::time::{Duration, Instant};

/// Parts of the time until a VM is ready, one after the other.
#[derive(Clone, Copy, Default, Debug)]
pub struct StartTimes {
    /// Opening the driver and the GPU.
    pub opened: Duration,
    /// Planning and verifying programs, and encoding their images.
    pub planned: Duration,
    /// Compiling device code, or reading it from the cache.
    pub compiled: Duration,
    /// Packing weights and copying them to the device.
    pub copied: Duration,
}

/// Measures them.
pub(super) struct StartClock {
    last: Instant,
    times: StartTimes,
}

impl StartClock {
    pub(super) fn start() -> Self {
        Self { last: Instant::now(), times: StartTimes::default() }
    }

    /// The time since the last call.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.last, now)
    }

    pub(super) fn opened(&mut self) {
        self.times.opened = self.lap();
    }

    /// Programs are prepared side by side, and this is the longest time that one was planned.
    pub(super) fn prepared(&mut self, planned: Duration) {
        let prepared = self.lap();
        self.times.planned = planned.min(prepared);
        self.times.compiled = prepared - self.times.planned;
    }

    pub(super) fn copied(mut self) -> StartTimes {
        self.times.copied = self.lap();
        self.times
    }
}
