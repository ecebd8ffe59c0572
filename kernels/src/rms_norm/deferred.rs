//! Norms of a residual in parts, in wide steps of up to 64 rows. The tasks that deliver the
//! residual multiply it by the norm's weights and add up squares; products of the result are
//! multiplied by the norm's scale when they are delivered. Otherwise every worker would multiply
//! all inputs by these weights, which takes longer where weights are decoded, or with many rows.
//!
//! ```text
//! residual   after = before + y ──► weigh ──► products ──► scale_by_squares ──► bias, gate, ..
//!                        └─► sum_squares, a part each ─────────────┘
//! ```

use crate::abi::{CODED_COLUMNS, HELD_IN_SHARED};
use crate::dot::dot;
use crate::fused::Decoder;
use crate::linear::group::{Delivered, Product};
use crate::rms_norm::NormedResidual;
use amk::ir::{BufferId, DType, Operand, Param, TensorId};
use amk::prelude::*;
use amk_cuda::plan::{FusedGroup, Grouping, Planner, TaskCalls, early, read, write};
use amk_cuda::set::Fusion;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::slice::from_ref;

/// `y[i] = w[i] * x[i]`: the part of [`rms_norm`](super::rms_norm) that each element has by itself.
///
/// `x: [N]` f32, `w: [N]` f32, f16 or bf16; `y: [N]` f32.
///
/// # Panics
/// If the lengths differ.
#[instruction(op = "weigh", shape = "x: [N], w: [N] -> y: [N]", task = "y[..] <- x[..], w[..]")]
pub fn weigh(x: &Tensor, w: &Weight) -> Tensor {
    assert_eq!(x.shape(), w.shape(), "`weigh` with a weight of another shape");
    x.data().iter().zip(w.row(0).to_f32().iter()).map(|(x, w)| w * x).collect()
}

/// The sum of the squares of a part of a vector.
///
/// `x: [N]`, `y: [1]` f32.
#[instruction(op = "sum_squares", shape = "x: [N] -> y: [1]", task = "y[..] <- x[..]")]
pub fn sum_squares(x: &Tensor) -> Tensor {
    Tensor::from([dot(x.data(), x.data())])
}

/// `y[i] = x[i] / sqrt(sum(|squares|) / len + eps)`: the scale of [`rms_norm`](super::rms_norm) of
/// a vector of `len` elements, from the [sums](sum_squares) of its parts, which are not negative.
///
/// `x: [N]`, `squares: [P]`, `y: [N]`, all f32.
#[instruction(
    op = "scale_by_squares",
    shape = "x: [N], squares: [P], len: L -> y: [N]",
    task = "y[..] <- x[..], squares[..]"
)]
pub fn scale_by_squares(x: &Tensor, squares: &Tensor, len: usize, eps: f32) -> Tensor {
    let mean = squares.data().iter().map(|sum| sum.abs()).sum::<f32>() / len as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    x.data().iter().map(|x| scale * x).collect()
}

/// The parts of a residual's norm that the tasks have that deliver the residual.
#[derive(Clone, Debug, PartialEq)]
pub struct Deferred {
    /// The norm's weight.
    pub weight: BufferId,
    /// The residual times the weight, in packets.
    pub weighted: BufferId,
    /// The sum of the squares of each part of the residual: `[parts]` f32.
    pub squares: BufferId,
    /// The parts: what each worker owns of the residual.
    pub parts: Vec<Range<u32>>,
}

/// The scale of a norm, by which products are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The sum of the squares of each part of the vector.
    pub squares: BufferId,
    /// The number of parts.
    pub parts: u32,
}

/// Residuals whose norms are deferred.
#[derive(Clone, Debug, Default)]
struct DeferredNorms {
    /// The norm's weight, by the residual.
    weights: HashMap<TensorId, TensorId>,
    /// The parts of those that are planned.
    planned: HashMap<TensorId, Deferred>,
}

/// Finds the residuals that nothing reads but one norm, which only products read, and the next
/// residual.
pub(crate) struct Deferral;

impl Fusion for Deferral {
    fn group(&self, grouping: &mut Grouping<'_>) {
        // Residuals before and after, in the order in which workers hold them.
        let mut held: BTreeMap<usize, [TensorId; 2]> = BTreeMap::new();
        let mut deferred = HashMap::new();
        for product in grouping.groups::<Product>() {
            if let (Delivered::Residual { before, after, .. }, Some(&add)) =
                (&product.output, product.calls.iter().max())
            {
                held.insert(add, [*before, *after]);
                deferred.extend(norm_of(grouping, product, *after).map(|weight| (*after, weight)));
            }
        }
        held.extend(grouping.groups::<NormedResidual>().map(|sum| (sum.calls()[0], sum.residuals())));
        let order: Vec<[TensorId; 2]> = held.into_values().collect();
        let gone_on = |pair: &[[TensorId; 2]]| (pair[1][0] != pair[0][1]).then_some(pair[0][1]);
        order.windows(2).filter_map(gone_on).for_each(|after| _ = deferred.remove(&after));
        grouping.shared.entry::<DeferredNorms>().weights = deferred;
    }
}

/// Returns the weight of the only norm of the residual that a product delivers, if nothing else
/// reads the residual than what adds to it, and no other group comes between: constants have the
/// order of phases, which programs of all widths share.
fn norm_of(grouping: &Grouping<'_>, delivered_by: &Product, after: TensorId) -> Option<TensorId> {
    let flow = grouping.flow;
    let adds = |user: usize| {
        let product = |product: &Product| match product.output {
            Delivered::Residual { before, .. } => before == after && product.calls.contains(&user),
            _ => false,
        };
        grouping.groups::<Product>().any(product)
            || grouping.groups::<NormedResidual>().any(|sum| sum.calls().contains(&user) && sum.adds_to(after))
    };
    let (adding, norms): (Vec<usize>, Vec<usize>) = flow.users(after).iter().partition(|&&user| adds(user));
    let weight = flow.operand(*norms.first()?, 1)?;
    let scales = |product: &Product| {
        (product.input, product.norm) == (after, Some(weight)) && !matches!(product.output, Delivered::Residual { .. })
    };
    let rows = grouping.schedule.rows.map_or(1, |rows| rows.most);
    let pays = |product: &Product| rows > CODED_COLUMNS || product.kind.is_coded();
    let reads =
        |user: usize| grouping.groups::<Product>().any(|product| product.calls.contains(&user) && scales(product));
    let deferred = |norm: usize| {
        flow.path(norm) == "amk_kernels::rms_norm"
            && !grouping.free(norm)
            && flow.operand(norm, 1) == Some(weight)
            && flow.result(norm).is_some_and(|result| flow.users(result).iter().all(|&user| reads(user)))
    };
    let first = grouping.groups().filter(|&product| scales(product)).map(|product| product.calls[0]).min()?;
    let known = |at: usize| delivered_by.calls.contains(&at) || norms.contains(&at);
    let fits = rows <= HELD_IN_SHARED
        && (delivered_by.calls[0]..first).all(known)
        && grouping.groups().any(|product| scales(product) && pays(product));
    (fits && adding.len() <= 1 && norms.iter().all(|&norm| deferred(norm))).then_some(weight)
}

/// Returns the parts of a residual's norm that the workers deliver with what they own of it, if the
/// norm is deferred.
pub(crate) fn defer(planner: &mut Planner<'_>, after: TensorId, owned: &[Range<u32>]) -> Option<Deferred> {
    let weights = planner.plan.shared.get::<DeferredNorms>().filter(|_| planner.plan.is_wide())?;
    let weight = planner.known(*weights.weights.get(&after)?);
    let parts: Vec<Range<u32>> = owned.iter().filter(|part| !part.is_empty()).cloned().collect();
    let (name, len) = (planner.flow.tensor(after).name.clone(), planner.flow.shape(after)[0]);
    let weighted = planner.packets(&format!("weighted.{name}"), DType::BF16, &[len]);
    let squares = planner.packets(&format!("squares.{name}"), DType::F32, &[parts.len() as u32]);
    let deferred = Deferred { weight, weighted, squares, parts };
    planner.plan.shared.entry::<DeferredNorms>().planned.insert(after, deferred.clone());
    Some(deferred)
}

/// Returns a residual times the weights of its norm, and the scale that products of it lack, if the
/// norm is deferred.
pub(crate) fn deferred(planner: &Planner<'_>, residual: TensorId) -> Option<(BufferId, Scale)> {
    let Deferred { weighted, squares, parts, .. } =
        planner.plan.shared.get::<DeferredNorms>()?.planned.get(&residual)?;
    Some((*weighted, Scale { squares: *squares, parts: parts.len() as u32 }))
}

impl Deferred {
    /// The number of the part that has these elements.
    pub(crate) fn part(&self, elements: &Range<u32>) -> u32 {
        self.parts.iter().position(|part| part == elements).unwrap_or(self.parts.len()) as u32
    }

    /// Adds the calls for a part of the residual, `sum`.
    pub(crate) fn calls(&self, task: &mut TaskCalls<'_>, sum: BufferId, elements: &Range<u32>) {
        let (x, part) = (read(sum, &[0..elements.end - elements.start]), self.part(elements));
        let operands = vec![x, early(self.weight, from_ref(elements)), write(self.weighted, from_ref(elements))];
        task.call("amk_kernels::weigh", operands, Vec::new());
        task.call("amk_kernels::sum_squares", vec![x, write(self.squares, &[part..part + 1])], Vec::new());
    }
}

impl Scale {
    /// Adds the call for products `y` of a vector of `len` elements.
    pub(crate) fn call(self, task: &mut TaskCalls<'_>, len: u32, y: Operand, to: Operand) {
        let operands = vec![y, read(self.squares, &[0..self.parts]), to];
        let params = vec![Param::U32(len), Param::F32(Decoder::eps(task.plan))];
        task.call("amk_kernels::scale_by_squares", operands, params);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear;
    use crate::rms_norm::rms_norm;
    use crate::testing::{close, random};

    /// A product of a norm is the scaled product of the weighted vector.
    #[test]
    fn a_norm_in_parts_is_the_norm() {
        let (x, w) = (Tensor::from(&random(0, 96)[..]), Weight::f32(&[96], random(1, 96)).unwrap());
        let weights = Weight::f32(&[8, 96], random(2, 8 * 96)).unwrap();
        let of_part = |part: Range<usize>| sum_squares(&Tensor::from(&x.data()[part])).data()[0];
        let squares = Tensor::from([0..32, 32..40, 40..96].map(of_part));
        let deferred = scale_by_squares(&linear(&weigh(&x, &w), &weights), &squares, 96, 1e-5);
        let whole: Vec<f64> = linear(&rms_norm(&x, &w, 1e-5), &weights).data().iter().map(|&y| y.into()).collect();
        close(deferred.data(), &whole, 1e-5);
    }

    #[test]
    fn sums_of_any_sign_have_a_scale() {
        let scaled = scale_by_squares(&Tensor::from([10.0]), &Tensor::from([-3.0, 1.0]), 1, 0.0);
        assert_eq!(scaled.data(), [5.0]);
    }
}
