//! 7. Layers of two kinds: a flag and a parameter of a list's element.
//!
//! The flag of an element decides which calls the graph has in that round of the loop, and an
//! element's parameter is a constant of its calls. An instance names both by the element:
//! `w.layers[1].gated`. Weights of the kind that a layer is not are never read.

use amk::prelude::*;
use amk_kernels::{add, linear, scale, silu_mul};

#[derive(WeightLayout)]
pub struct Layer {
    #[weight("layers.{l}.up", [HIDDEN, HIDDEN])]
    pub up: Weight,
    #[weight("layers.{l}.gate", [HIDDEN, HIDDEN])]
    pub gate: Weight,
    #[flag]
    pub gated: bool,
    #[param]
    pub factor: f32,
}

#[derive(WeightLayout)]
pub struct Net {
    #[list(LAYERS)]
    pub layers: Vec<Layer>,
}

#[megakernel(
    dims(HIDDEN, LAYERS),
    inputs(x: [HIDDEN]),
    instances(
        plain(HIDDEN = 64, LAYERS = 2),
        mixed(HIDDEN = 64, LAYERS = 2, w.layers[1].gated = true, w.layers[1].factor = 0.5)
    )
)]
pub fn net(x: &Tensor, w: &Net) -> Tensor {
    let mut y = linear(x, &w.layers[0].up);
    for lw in &w.layers {
        let mut h = linear(&y, &lw.up);
        if lw.gated {
            h = silu_mul(&linear(&y, &lw.gate), &h);
        }
        y = add(&y, &scale(&h, lw.factor));
    }
    y
}

fn main() {
    let calls = |name: &str| {
        let instance = NET.instance(name).expect("an instance");
        let program = NET.lower(instance, None).expect("a program").program;
        let silu = program.instructions.iter().position(|known| known.name == "silu_mul");
        let calls = program.tasks.iter().flat_map(|task| &task.calls);
        calls.filter(|call| Some(call.instruction.index()) == silu).count()
    };
    assert_eq!(calls("plain"), 0);
    assert!(calls("mixed") > 0);
}
