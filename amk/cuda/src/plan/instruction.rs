//! The instructions of the device's fused tasks.

use amk_ir::{Access, Instruction, OperandSpec};

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

/// The table of instructions.
pub(super) fn instructions() -> Vec<Instruction> {
    use Access::{Read, Update, Write};
    let instruction = |path: &str, operands: &[(&str, Access)], params: &[&str]| Instruction {
        name: path.rsplit(':').next().unwrap_or(path).to_owned(),
        path: path.to_owned(),
        operands: operands.iter().map(|&(name, access)| OperandSpec { name: name.to_owned(), access }).collect(),
        params: params.iter().map(|&name| name.to_owned()).collect(),
    };
    let attention =
        [("q", Read), ("k", Read), ("v", Read), ("freqs", Read), ("keys", Update), ("values", Update), ("y", Write)];
    let normed: Vec<_> = [("q_norm", Read), ("k_norm", Read)].into_iter().chain(attention).collect();
    vec![
        instruction("amk_kernels::embed", &[("table", Read), ("token", Read), ("y", Write)], &[]),
        instruction("amk::vm::cuda::adopt", &[("x", Read), ("y", Write)], &[]),
        instruction("amk_kernels::rms_norm", &[("x", Read), ("w", Read), ("y", Write)], &["eps"]),
        instruction("amk_kernels::linear", &[("x", Read), ("w", Read), ("y", Write)], &[]),
        instruction("amk_kernels::add_bias", &[("x", Read), ("w", Read), ("y", Write)], &[]),
        instruction("amk_kernels::add", &[("a", Read), ("b", Read), ("y", Write)], &[]),
        instruction("amk_kernels::silu_mul", &[("gate", Read), ("up", Read), ("y", Write)], &[]),
        instruction("amk::vm::cuda::attention_split", &attention, &["pos"]),
        instruction("amk::vm::cuda::normed_attention_split", &normed, &["pos"]),
        instruction("amk::vm::cuda::combine_splits", &[("partial", Read), ("y", Write)], &[]),
        instruction("amk::vm::cuda::best", &[("logits", Read), ("best", Write), ("shares", Write)], &[]),
        instruction(
            "amk::vm::cuda::first_probe",
            &[("logits", Read), ("best", Read), ("shares", Read), ("found", Write), ("search", Write)],
            &[],
        ),
        instruction(
            "amk::vm::cuda::probe",
            &[("logits", Read), ("before", Read), ("search", Read), ("found", Write), ("narrowed", Write)],
            &[],
        ),
        instruction(
            "amk::vm::cuda::choose",
            &[("best", Read), ("found", Read), ("search", Read), ("token", Write)],
            &[],
        ),
        instruction("amk::vm::cuda::no_best", &[("best", Write), ("shares", Write)], &[]),
        instruction(
            "amk::vm::cuda::no_first_probe",
            &[("best", Read), ("shares", Read), ("found", Write), ("search", Write)],
            &[],
        ),
        instruction(
            "amk::vm::cuda::no_probe",
            &[("before", Read), ("search", Read), ("found", Write), ("narrowed", Write)],
            &[],
        ),
    ]
}
