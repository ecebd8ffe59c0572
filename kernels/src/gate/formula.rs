//! f64 reference formulas for gated activations.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::gelu_mul", gelu_mul);
formula!("amk_kernels::silu_mul", silu_mul);

/// `y = gate / (1 + exp(-gate)) * up`.
fn silu_mul(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(gate, up)| Exact::product(gate / (1.0 + (-gate).exp()) * up)).collect()
}

/// `y = gate / 2 * (1 + tanh(u)) * up` with `u = sqrt(2 / pi) * (gate + 0.044715 gate^3)`. The sum
/// of 1 and the tanh may cancel, and an error in `u` counts times the slope of the tanh.
fn gelu_mul(o: &mut Operands) -> Vec<Exact> {
    let element = |(gate, up): (&f64, &f64)| {
        let u = core::f64::consts::FRAC_2_PI.sqrt() * (gate + 0.044_715 * gate.powi(3));
        let (tangent, outer) = (u.tanh(), gate / 2.0 * up);
        let magnitude = outer.abs() * (1.0 + tangent.abs() + u.abs() * (1.0 - tangent * tangent));
        Exact { value: outer * (1.0 + tangent), magnitude }
    };
    o.data(0).iter().zip(o.data(1)).map(element).collect()
}
