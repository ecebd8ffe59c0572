//! f64 reference formula for values with a bound.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::soft_cap", soft_cap);

/// `y[i] = cap * tanh(x[i] / cap)`. The quotient is rounded, which counts times the slope, and so
/// is the tanh.
fn soft_cap(o: &mut Operands) -> Vec<Exact> {
    let cap = o.floats[0];
    let element = |x: &f64| {
        let tangent = (x / cap).tanh();
        let magnitude = x.abs() * (1.0 - tangent * tangent) + (cap * tangent).abs();
        Exact { value: cap * tangent, magnitude }
    };
    o.data(0).iter().map(element).collect()
}
