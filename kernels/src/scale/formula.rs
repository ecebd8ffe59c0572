//! f64 reference formula for the multiplication by a constant.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::scale", scale);

/// `y[i] = factor * x[i]`.
fn scale(o: &mut Operands) -> Vec<Exact> {
    let factor = o.floats[0];
    o.data(0).iter().map(|x| Exact::product(factor * x)).collect()
}
