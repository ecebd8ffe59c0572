//! Groups LayerNorms. Their results are stored: unlike a root mean square, a mean is not a factor,
//! so a LayerNorm before a projection is a phase of its own.

use crate::fused::Decoder;
use crate::rms_norm::{NormBy, Vector, norm_all};
use amk::ir::program::BufferKind;
use amk::ir::{DType, TensorId};
use amk_cuda::plan::{FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;

/// The instructions, without and with a bias.
pub(crate) const CENTRED: [&str; 2] = ["amk_kernels::centred_norm", "amk_kernels::layer_norm"];

/// Finds LayerNorms.
pub(crate) struct CentredNorms;

/// Such a norm.
#[derive(Clone, Debug)]
pub(crate) struct CentredNorm {
    calls: [usize; 1],
    /// The value to normalise.
    pub(crate) value: TensorId,
    weight: TensorId,
    bias: Option<TensorId>,
    result: TensorId,
}

impl Fusion for CentredNorms {
    fn group(&self, grouping: &mut Grouping<'_>) {
        for at in grouping.calls() {
            if let Some(group) = centred_norm(grouping, at) {
                grouping.push(group);
            }
        }
    }
}

/// Returns the group of call `at`, if it is a LayerNorm.
fn centred_norm(grouping: &Grouping<'_>, at: usize) -> Option<CentredNorm> {
    let flow = grouping.flow;
    if !CENTRED.contains(&flow.path(at)) || !grouping.free(at) || !grouping.may_lead(at) {
        return None;
    }
    let (value, weight, result) = (flow.operand(at, 0)?, flow.operand(at, 1)?, flow.result(at)?);
    let len = flow.shape(result)[0];
    if !len.is_multiple_of(32) {
        grouping.refuse(at, format!("{len} elements are not whole packets"));
        return None;
    }
    if flow.float(at) != grouping.shared.get::<Decoder>().map(|decoder| decoder.eps) {
        grouping.refuse(at, "it has another epsilon than the first norm");
        return None;
    }
    let computed = [value, result].iter().all(|&value| flow.kind(value) == BufferKind::Activation);
    let bias = if flow.path(at) == CENTRED[1] { Some(flow.operand(at, 2)?) } else { None };
    computed.then_some(CentredNorm { calls: [at], value, weight, bias, result })
}

impl FusedGroup for CentredNorm {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn packed(&self) -> Vec<TensorId> {
        vec![self.value]
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        let (from, weight) = (planner.known(self.value), planner.known(self.weight));
        let bias = self.bias.map(|bias| planner.known(bias));
        let to = planner.value(self.result, DType::BF16);
        norm_all(planner, &[Vector { from, by: Some(NormBy::Centred { weight, bias }), to }]);
        Ok(())
    }
}
