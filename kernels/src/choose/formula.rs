//! f64 reference formulas for choosing a token.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::best", best);
formula!("amk_kernels::choose", choose);
formula!("amk_kernels::first_probe", nothing);
formula!("amk_kernels::no_best", no_best);
formula!("amk_kernels::no_first_probe", nothing);
formula!("amk_kernels::no_probe", nothing);
formula!("amk_kernels::probe", nothing);

/// The first of the largest logits and its token, then three zeros. If all logits are NaN, the
/// token is infinity.
fn best(o: &mut Operands) -> Vec<Exact> {
    let (logits, first) = (o.data(0), o.dims[0]);
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let token = logits.iter().position(|&x| x == largest).map_or(f64::INFINITY, |at| (first + at) as f64);
    [largest, token, 0.0, 0.0, 0.0].map(Exact::copied).to_vec()
}

/// [`best`] of a worker without rows.
fn no_best(_: &mut Operands) -> Vec<Exact> {
    [f64::NEG_INFINITY, f64::INFINITY, 0.0, 0.0, 0.0].map(Exact::copied).to_vec()
}

/// The token of the largest logit, the lowest on ties.
fn choose(o: &mut Operands) -> Vec<Exact> {
    let best = o.data(0).chunks_exact(2);
    let largest = best.clone().map(|best| best[0]).fold(f64::NEG_INFINITY, f64::max);
    let tokens = best.filter(|best| best[0] == largest).map(|best| best[1]);
    vec![Exact::copied(tokens.fold(f64::INFINITY, f64::min).max(0.0).trunc())]
}

/// The empty search of a greedy choice.
fn nothing(_: &mut Operands) -> Vec<Exact> {
    vec![Exact::copied(0.0); 8 * 5 + 30]
}
