//! 3. A megakernel is a function over layouts and tensors that calls instructions.
//!
//! The attribute declares the dims, gives them values for the *instances* that are to be made, and
//! leaves the function as it is. Beside it stands a `static` of the function's name in capitals:
//! its graph. Shapes have been compared for all values of the dims, and each instance's program has
//! been made and verified, when this file compiles.
//!
//! Instructions may come from any crate, by `use`, by another name, by a path or a glob: Rust
//! resolves their names.

use amk::prelude::*;
use amk_kernels::{linear as project, silu_mul};

#[derive(WeightLayout)]
pub struct Mlp {
    #[weight("norm", [HIDDEN])]
    pub norm: Weight,
    #[weight("gate", [FFN, HIDDEN])]
    pub gate: Weight,
    #[weight("up", [FFN, HIDDEN])]
    pub up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    pub down: Weight,
    #[param]
    pub eps: f32,
}

#[megakernel(
    dims(HIDDEN, FFN),
    inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 64, FFN = 128), small(HIDDEN = 576, FFN = 1536))
)]
pub fn mlp(x: &Tensor, w: &Mlp) -> Tensor {
    let h = amk_kernels::rms_norm(x, &w.norm, w.eps);
    project(&silu_mul(&project(&h, &w.gate), &project(&h, &w.up)), &w.down)
}

fn main() {
    let graph = MLP.graph().expect("a graph");
    assert_eq!(graph.dims, ["HIDDEN", "FFN"]);
    assert_eq!(graph.instances.len(), 2);
    // Called directly, it computes.
    let weight = |shape: &[usize]| Weight::f32(shape, vec![0.5; shape.iter().product()]).expect("its size");
    let w = Mlp { norm: weight(&[2]), gate: weight(&[4, 2]), up: weight(&[4, 2]), down: weight(&[2, 4]), eps: 1e-5 };
    assert_eq!(mlp(&Tensor::new(&[2], vec![1.0, 2.0]).expect("two"), &w).shape(), [2]);
}
