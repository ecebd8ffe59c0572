//! Options of a VM.

use super::plan::Precision;
use amk_ir::TaskId;
use amk_ir::schedule::PartialSchedule;

/// Faults compiled into the device code, to test how the VM handles them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// This task publishes nothing in the step at this position.
    pub drop: Option<(TaskId, u32)>,
    /// Before each packet a thread sleeps for a random time below this, in nanoseconds; 0: never.
    pub delay_ns: u32,
}

/// Options of a VM.
#[derive(Clone, Debug, Default)]
pub struct VmOptions {
    /// Schedule fields that override the GPU's defaults; `None`: the instance's or its function's.
    pub schedule: Option<PartialSchedule>,
    /// The precision of the computation.
    pub precision: Precision,
    /// Tasks write timestamps for [`super::Vm::trace`].
    pub trace: bool,
    /// Delivering warps wait for the others instead of only arriving. For compute-sanitizer's
    /// racecheck, which does not know that a `bar.sync` also waits for `bar.arrive`.
    pub no_arrivals: bool,
    /// Faults, for tests.
    pub faults: Faults,
}
