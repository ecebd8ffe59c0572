//! Device code as text: the VM's own files around those of an instruction set.

use super::body::own_lines;

/// The device code of an instruction set: names and texts of its files, in the order in which they
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

/// What the bodies of instructions build on.
const BELOW: DeviceCode = DeviceCode {
    files: files![
        "ptx.cuh",
        "image.cuh",
        "random.cuh",
        "search.cuh",
        "worker.cuh",
        "task.cuh",
        "exchange.cuh",
        "loader.cuh",
    ],
};

/// The kernel, which calls the generated dispatch.
const ABOVE: DeviceCode = DeviceCode { files: files!["vm.cuh"] };

/// The views of bodies whose weights stream.
pub(crate) const STREAM: DeviceCode = DeviceCode { files: files!["stream.cuh"] };

/// The bare ring, whose rate every time of a step is compared with.
pub(crate) const CEILING: DeviceCode = DeviceCode { files: files!["ptx.cuh", "ceiling.cuh"] };

impl DeviceCode {
    /// All files of a VM with this instruction set, in order: name and text.
    pub fn all(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        [BELOW, self, ABOVE].into_iter().flat_map(|code| code.files).copied()
    }

    /// The whole text. The files follow one another, so their includes, which are for editors, are left out.
    pub(crate) fn whole(self) -> String {
        self.all().map(|(_, text)| joined(text)).collect()
    }

    /// The text of these files alone.
    pub(crate) fn text(self) -> String {
        self.files.iter().map(|(_, text)| joined(text)).collect()
    }
}

fn joined(text: &str) -> String {
    own_lines(text).flat_map(|line| [line, "\n"]).collect()
}
