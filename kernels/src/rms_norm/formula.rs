//! f64 reference formulas for norms.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::head_norm", norm);
formula!("amk_kernels::rms_norm", norm);

/// `y[i] = w[i mod D] * x[i] / sqrt(mean over its D elements of x^2 + eps)`. `rms_norm` has a
/// single head.
pub(crate) fn norm(o: &mut Operands) -> Vec<Exact> {
    let (w, eps) = (o.data(1), o.floats[0]);
    let head = |x: &[f64]| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().zip(w).map(|(x, w)| Exact::product(w * x / (mean + eps).sqrt())).collect::<Vec<_>>()
    };
    o.data(0).chunks_exact(w.len()).flat_map(head).collect()
}
