//! f64 reference formulas for norms.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::head_norm", norm);
formula!("amk_kernels::rms_norm", norm);
formula!("amk_kernels::weigh", weigh);
formula!("amk_kernels::sum_squares", sum_squares);
formula!("amk_kernels::scale_by_squares", scale_by_squares);

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

/// `y[i] = w[i] * x[i]`.
fn weigh(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(x, w)| Exact::product(w * x)).collect()
}

/// `y = sum over i of x[i]^2`.
fn sum_squares(o: &mut Operands) -> Vec<Exact> {
    vec![Exact::product(o.data(0).iter().map(|x| x * x).sum())]
}

/// `y[i] = x[i] / sqrt(sum(|squares|) / len + eps)`.
fn scale_by_squares(o: &mut Operands) -> Vec<Exact> {
    let (len, eps) = (o.dims[0] as f64, o.floats[0]);
    let mean = o.data(1).iter().map(|sum| sum.abs()).sum::<f64>() / len;
    o.data(0).iter().map(|x| Exact::product(x / (mean + eps).sqrt())).collect()
}
