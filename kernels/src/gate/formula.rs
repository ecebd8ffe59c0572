//! f64 reference formulas for activations.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::gelu", gelu);
formula!("amk_kernels::gelu_erf", gelu_erf);
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

/// `y = x / 2 * (1 + erf(x / sqrt(2)))`, with the integral of the density by Simpson's rule. The
/// sum may cancel, and an error in the argument counts times the slope of the function.
fn gelu_erf(o: &mut Operands) -> Vec<Exact> {
    let of = |&x: &f64| {
        let density = |t: f64| (-t * t).exp() * core::f64::consts::FRAC_2_SQRT_PI;
        let (u, steps) = ((x * core::f64::consts::FRAC_1_SQRT_2).clamp(-6.0, 6.0), 1024);
        let at = |step: i32| density(u * f64::from(step) / f64::from(steps));
        let weighted = |step: i32| at(step) * if step % 2 == 0 { 2.0 } else { 4.0 };
        let inner: f64 = (1..steps).map(weighted).sum();
        let erf = (at(0) + inner + at(steps)) * u / (3.0 * f64::from(steps));
        let magnitude = (x / 2.0).abs() * (1.0 + erf.abs() + u.abs() * density(u));
        Exact { value: x / 2.0 * (1.0 + erf), magnitude }
    };
    o.data(0).iter().map(of).collect()
}

/// `y = max(x, 0)^2`.
fn relu_squared(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().map(|x| Exact::product(x.max(0.0).powi(2))).collect()
}
