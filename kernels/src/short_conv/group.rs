//! Groups a short convolution with the append of its newest input and the gate on its result.

use super::phase;
use amk::ir::TensorId;
use amk::ir::program::BufferKind;
use amk_cuda::plan::{FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;

/// Maximum number of inputs of an element of a result.
const MOST_TAPS: u32 = 8;

/// Finds the short convolutions of a function.
pub(crate) struct Convolutions;

/// A short convolution: `result = gate * short_conv(inputs)`, after `append(inputs, x)`.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    /// The calls, `mul` first.
    pub(super) calls: [usize; 3],
    /// The newest inputs.
    pub(super) x: TensorId,
    pub(super) gate: TensorId,
    pub(super) weight: TensorId,
    pub(super) result: TensorId,
    /// Channels, and inputs of each.
    pub(super) shape: [u32; 2],
}

impl Fusion for Convolutions {
    fn group(&self, grouping: &mut Grouping<'_>) {
        for at in grouping.calls() {
            match convolution(grouping, at) {
                Some(Ok(group)) => grouping.push(group),
                Some(Err(because)) => grouping.refuse(at, because),
                None => {}
            }
        }
    }
}

/// Returns the group of call `at`, if it is the weighting of a convolution.
///
/// # Errors
/// The reason why the fused code does not compute it.
fn convolution(grouping: &Grouping<'_>, at: usize) -> Option<Result<Convolution, String>> {
    let flow = grouping.flow;
    let fits = |at: usize| grouping.free(at) && grouping.may_lead(at);
    if flow.path(at) != "amk_kernels::mul" || !fits(at) {
        return None;
    }
    let (gate, convolved, result) = (flow.operand(at, 0)?, flow.operand(at, 1)?, flow.result(at)?);
    let conv = flow.made_by(convolved, "amk_kernels::short_conv").filter(|&conv| fits(conv))?;
    let (inputs, weight) = (flow.operand(conv, 0)?, flow.operand(conv, 1)?);
    let append = match flow.users(inputs) {
        [append, user] if *user == conv && flow.path(*append) == "amk_kernels::append" => *append,
        _ => return Some(Err("its inputs are not used by one `append` and by it alone".to_owned())),
    };
    let x = flow.operand(append, 1)?;
    let &[channels, taps] = flow.shape(weight) else { return None };
    if !channels.is_multiple_of(32) || !(2..=MOST_TAPS).contains(&taps) {
        return Some(Err(format!(
            "it has {channels} channels of {taps} inputs, and packets of 2 to {MOST_TAPS} are computed"
        )));
    }
    if grouping.groups::<Convolution>().any(|other| other.shape != [channels, taps]) {
        return Some(Err("its sizes differ from an earlier convolution's".to_owned()));
    }
    let computed = flow.shape(inputs) == [flow.unrolled.positions, channels]
        && flow.only_for(convolved, at)
        && fits(append)
        && gate != x
        && [x, gate, result].iter().all(|&value| flow.kind(value) == BufferKind::Activation);
    if !computed {
        return Some(Err("its inputs, its factor or its result have other uses or lengths".to_owned()));
    }
    Some(Ok(Convolution { calls: [at, conv, append], x, gate, weight, result, shape: [channels, taps] }))
}

impl FusedGroup for Convolution {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn packed(&self) -> Vec<TensorId> {
        vec![self.x, self.gate]
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        phase::plan(self, planner);
        Ok(())
    }
}
