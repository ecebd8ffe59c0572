//! The instructions of the device's fused tasks.

use amk::registry::{Registry, RegistryError};
use amk_ir::Instruction;
use amk_ir::lower::instruction;

/// Instructions of the device's program, in the order of [`instructions`].
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Op {
    Embed,
    Adopt,
    RmsNorm,
    Linear,
    AddBias,
    Add,
    SiluMul,
    Attend,
    AttendNormed,
    Combine,
    Best,
    FirstProbe,
    Probe,
    Choose,
    /// As above, for a worker without rows of the logits.
    NoBest,
    NoFirstProbe,
    NoProbe,
}

/// The paths of these instructions, in the same order.
const PATHS: [&str; 17] = [
    "amk_kernels::embed",
    "amk_kernels::adopt",
    "amk_kernels::rms_norm",
    "amk_kernels::linear",
    "amk_kernels::add_bias",
    "amk_kernels::add",
    "amk_kernels::silu_mul",
    "amk_kernels::attention_split",
    "amk_kernels::normed_attention_split",
    "amk_kernels::combine_splits",
    "amk_kernels::best",
    "amk_kernels::first_probe",
    "amk_kernels::probe",
    "amk_kernels::choose",
    "amk_kernels::no_best",
    "amk_kernels::no_first_probe",
    "amk_kernels::no_probe",
];

/// The table of instructions, from the signatures that the instruction set registers: the CPU VM runs
/// the same functions.
///
/// # Errors
/// An instruction is not linked.
pub(super) fn instructions() -> Result<Vec<Instruction>, RegistryError> {
    let registry = Registry::linked()?;
    PATHS.iter().map(|path| Ok(instruction(&registry.get(path)?.signature()?))).collect()
}
