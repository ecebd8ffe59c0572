//! f64 reference formulas for the short convolution.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::append", append);
formula!("amk_kernels::short_conv", short_conv);

/// `inputs[pos, n] = x[n]`.
fn append(o: &mut Operands) -> Vec<Exact> {
    let (x, pos) = (o.tensors[1].clone(), o.pos);
    o.state(0).data[pos * x.data.len()..][..x.data.len()].copy_from_slice(&x.data);
    Vec::new()
}

/// `y[n] = sum over l of w[n, l] * inputs[pos - (L - 1) + l, n]`.
fn short_conv(o: &mut Operands) -> Vec<Exact> {
    let [channels, taps] = o.tensor(1).shape[..] else { return Vec::new() };
    let (inputs, w) = (o.data(0), o.data(1));
    let product = |n: usize, tap: usize| {
        let at = (o.pos + tap + 1).checked_sub(taps)?;
        Some(w[n * taps + tap] * inputs[at * channels + n])
    };
    (0..channels).map(|n| Exact::sum((0..taps).filter_map(|tap| product(n, tap)))).collect()
}
