//! Device code as text: the VM's own files and the files of the registered bodies.

use super::lines;

/// Device code: names and texts of its files in inclusion order.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCode {
    /// Name and text of each file.
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("vm/", $name), include_str!(concat!("../device/", $name)))),*]
    };
}

/// Files that do not depend on a worker.
pub(super) const BASE: DeviceCode = DeviceCode { files: files!["ptx.cuh", "image.cuh"] };

/// Files that the bodies of instructions build on.
pub(super) const BELOW: DeviceCode =
    DeviceCode { files: files!["worker.cuh", "values.cuh", "task.cuh", "exchange.cuh", "loader.cuh",] };

/// The kernel, which calls the generated dispatch.
pub(super) const ABOVE: DeviceCode = DeviceCode { files: files!["vm.cuh"] };

/// Views of streamed weights.
pub(crate) const STREAM: DeviceCode = DeviceCode { files: files!["stream.cuh"] };

/// The bare ring, the baseline for the time of a step.
pub(crate) const CEILING: DeviceCode = DeviceCode { files: files!["ptx.cuh", "ceiling.cuh"] };

impl DeviceCode {
    /// Concatenates the files, each by [`lines::file`].
    pub fn text(self) -> String {
        self.files.iter().map(|(name, text)| lines::file(name, text)).collect()
    }
}
