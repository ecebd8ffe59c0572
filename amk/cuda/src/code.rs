//! Device code as text: the VM's own files around those of the registered bodies.

use super::body::own_lines;

/// Device code: names and texts of its files, in the order in which they
/// include one another.
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

/// What knows of no worker.
pub(super) const BASE: DeviceCode = DeviceCode { files: files!["ptx.cuh", "image.cuh", "random.cuh", "search.cuh"] };

/// What the bodies of instructions build on.
pub(super) const BELOW: DeviceCode =
    DeviceCode { files: files!["worker.cuh", "task.cuh", "exchange.cuh", "loader.cuh",] };

/// The kernel, which calls the generated dispatch.
pub(super) const ABOVE: DeviceCode = DeviceCode { files: files!["vm.cuh"] };

/// The views of bodies whose weights stream.
pub(crate) const STREAM: DeviceCode = DeviceCode { files: files!["stream.cuh"] };

/// The bare ring, whose rate every time of a step is compared with.
pub(crate) const CEILING: DeviceCode = DeviceCode { files: files!["ptx.cuh", "ceiling.cuh"] };

/// The text of some files. They follow one another, so their includes, which are for editors, are
/// left out.
pub(super) fn text(code: DeviceCode) -> String {
    code.files.iter().map(|(_, text)| joined(text)).collect()
}

fn joined(text: &str) -> String {
    own_lines(text).flat_map(|line| [line, "\n"]).collect()
}
