//! f64 reference formulas for activations.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::gelu", gelu);
formula!("amk_kernels::gelu_mul", gelu_mul);
formula!("amk_kernels::mul", mul);
formula!("amk_kernels::relu_squared", relu_squared);
formula!("amk_kernels::silu_mul", silu_mul);

/// `y = gate * x`.
fn mul(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(gate, x)| Exact::product(gate * x)).collect()
}

/// `y = gate / (1 + exp(-gate)) * up`.
fn silu_mul(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(gate, up)| Exact::product(gate / (1.0 + (-gate).exp()) * up)).collect()
}

/// `y = x / 2 * (1 + tanh(u)) * up` with `u = sqrt(2 / pi) * (x + 0.044715 x^3)`. The sum of 1 and
/// the tanh may cancel, and an error in `u` counts times the slope of the tanh.
fn gelu_of(x: f64, up: f64) -> Exact {
    let u = core::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3));
    let (tangent, outer) = (u.tanh(), x / 2.0 * up);
    let magnitude = outer.abs() * (1.0 + tangent.abs() + u.abs() * (1.0 - tangent * tangent));
    Exact { value: outer * (1.0 + tangent), magnitude }
}

/// [`gelu_of`] each gate, times its value.
fn gelu_mul(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(&gate, &up)| gelu_of(gate, up)).collect()
}

/// [`gelu_of`] each element.
fn gelu(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().map(|&x| gelu_of(x, 1.0)).collect()
}

/// `y = max(x, 0)^2`.
fn relu_squared(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().map(|x| Exact::product(x.max(0.0).powi(2))).collect()
}
