//! f64 reference formula for the argmax.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::argmax", argmax);

/// The first `i` for which no `x[j]` is larger, or 0 when all elements are NaN.
fn argmax(o: &mut Operands) -> Vec<Exact> {
    let x = o.data(0);
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    vec![Exact::copied(x.iter().position(|&x| x == largest).unwrap_or(0) as f64)]
}
