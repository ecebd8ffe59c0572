//! Formulas in f64 of the largest element, from their definitions.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::argmax", argmax);

/// The first `i` of which no `x[j]` is larger; 0 where no element is a number.
fn argmax(o: &mut Operands) -> Vec<Exact> {
    let x = o.data(0);
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    vec![Exact::copied(x.iter().position(|&x| x == largest).unwrap_or(0) as f64)]
}
