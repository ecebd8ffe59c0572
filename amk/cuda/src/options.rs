//! How a VM is built.

use super::plan::Precision;
use amk_ir::TaskId;
use amk_ir::schedule::PartialSchedule;

/// Faults compiled into the device code, for tests of what the VM makes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// This task publishes nothing in the step at this position.
    pub drop: Option<(TaskId, u32)>,
    /// Before each packet a thread sleeps for a random time below this, nanoseconds; 0: not at all.
    pub delay_ns: u32,
}

/// How a VM is built.
#[derive(Clone, Debug, Default)]
pub struct VmOptions {
    /// Fields over the GPU's own schedule; `None`: those of the instance or its function.
    pub schedule: Option<PartialSchedule>,
    /// In what numbers to compute.
    pub precision: Precision,
    /// Tasks write time stamps, so that [`super::Vm::trace`] can read them.
    pub trace: bool,
    /// Warps that deliver wait for the others where they would only arrive. For compute-sanitizer's
    /// racecheck, which does not know that a `bar.sync` also waits for those who arrived by
    /// `bar.arrive`.
    pub no_arrivals: bool,
    /// Faults, for tests.
    pub faults: Faults,
}
