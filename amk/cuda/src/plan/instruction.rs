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

/// The table of instructions: those that the instruction set registers under these paths, so that a
/// CPU runs them, too.
pub(super) fn instructions() -> Vec<Instruction> {
    use Access::{Read, Update, Write};
    let instruction = |name: &str, operands: &[(&str, Access)], params: &[&str]| Instruction {
        name: name.to_owned(),
        path: format!("amk_kernels::{name}"),
        operands: operands.iter().map(|&(name, access)| OperandSpec { name: name.to_owned(), access }).collect(),
        params: params.iter().map(|&name| name.to_owned()).collect(),
    };
    let [q, k, v, freqs] = ["q", "k", "v", "freqs"].map(|name| (name, Read));
    let [q_norm, k_norm] = ["q_norm", "k_norm"].map(|name| (name, Read));
    let [keys, values] = ["keys", "values"].map(|name| (name, Update));
    let [partial, lse] = ["partial", "lse"].map(|name| (name, Write));
    let (logits, best, shares) = (("logits", Read), ("best", Read), ("shares", Read));
    let (before, search) = (("before", Read), ("search", Read));
    let [bests, told] = [("best", Write), ("shares", Write)];
    let [found, knows, narrowed] = [("found", Write), ("search", Write), ("narrowed", Write)];
    vec![
        instruction("embed", &[("table", Read), ("token", Read), ("y", Write)], &[]),
        instruction("adopt", &[("x", Read), ("y", Write)], &[]),
        instruction("rms_norm", &[("x", Read), ("w", Read), ("y", Write)], &["eps"]),
        instruction("linear", &[("x", Read), ("w", Read), ("y", Write)], &[]),
        instruction("add_bias", &[("x", Read), ("bias", Read), ("y", Write)], &[]),
        instruction("add", &[("x", Read), ("y", Read), ("z", Write)], &[]),
        instruction("silu_mul", &[("gate", Read), ("up", Read), ("y", Write)], &[]),
        instruction(
            "attention_split",
            &[q, k, v, freqs, keys, values, partial, lse],
            &["group", "run", "splits", "split", "rope_scale", "score_scale", "pos"],
        ),
        instruction(
            "normed_attention_split",
            &[q, k, v, q_norm, k_norm, freqs, keys, values, partial, lse],
            &["group", "run", "splits", "split", "eps", "rope_scale", "score_scale", "pos"],
        ),
        instruction("combine_splits", &[("partial", Read), ("lse", Read), ("y", Write)], &[]),
        instruction("best", &[logits, bests, told], &["first"]),
        instruction("first_probe", &[logits, best, shares, found, knows], &[]),
        instruction("probe", &[logits, before, search, found, narrowed], &[]),
        instruction("choose", &[best, ("found", Read), search, ("token", Write)], &[]),
        instruction("no_best", &[bests, told], &[]),
        instruction("no_first_probe", &[best, shares, found, knows], &[]),
        instruction("no_probe", &[before, search, found, narrowed], &[]),
    ]
}
