//! Sums.

mod formula;

use amk::prelude::*;

/// `z = x + y`, the residual connection.
///
/// `x: [N]`, `y: [N]`, `z: [N]`, all f32.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "add",
    shape = "x: [N], y: [N] -> z: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: z[n..n+T] <- x[n..n+T], y[n..n+T]",
    cuda = "body.cuh"
)]
pub fn add(x: &Tensor, y: &Tensor) -> Tensor {
    assert_eq!(x.shape(), y.shape(), "`add` of tensors of different shapes");
    x.data().iter().zip(y.data()).map(|(x, y)| x + y).collect()
}

/// `y = x + bias`, the bias of a projection.
///
/// `x: [N]` f32, `bias: [N]` f32, f16 or bf16; `y: [N]` f32. Source: `torch.nn.Linear` with bias.
///
/// # Panics
/// If the lengths differ.
#[instruction(
    op = "add_bias",
    shape = "x: [N], bias: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], bias[n..n+T]",
    cuda = "body.cuh"
)]
pub fn add_bias(x: &Tensor, bias: &Weight) -> Tensor {
    assert_eq!(x.shape(), bias.shape(), "`add_bias` of a bias of another shape");
    x.data().iter().zip(&*bias.row(0).to_f32()).map(|(x, bias)| x + bias).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_element_by_element() {
        let x = Tensor::from([1.0, 2.0]);
        assert_eq!(add(&x, &Tensor::from([0.5, -4.0])).data(), [1.5, -2.0]);
        assert_eq!(add_bias(&x, &Weight::f32(&[2], vec![10.0, 20.0]).unwrap()).data(), [11.0, 22.0]);
    }
}
