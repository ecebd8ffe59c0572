//! f64 reference formula for projections.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::linear", linear);

/// `y[n] = sum over k of w[n, k] * x[k]`.
fn linear(o: &mut Operands) -> Vec<Exact> {
    let (x, w) = (o.data(0), o.data(1));
    w.chunks_exact(x.len()).map(|row| Exact::sum(row.iter().zip(x).map(|(w, x)| w * x))).collect()
}
