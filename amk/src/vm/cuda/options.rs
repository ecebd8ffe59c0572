//! How a VM is built.

use super::schedule::DeviceSchedule;

/// How a VM is built.
#[derive(Clone, Copy, Debug, Default)]
pub struct VmOptions {
    /// The schedule; `None`: the GPU's own.
    pub schedule: Option<DeviceSchedule>,
    /// Tasks write time stamps, so that [`super::Vm::trace`] can read them.
    pub trace: bool,
}
