//! Lists that are zipped have the same dim as their length.

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

#[derive(WeightLayout)]
struct Mlps {
    #[list(LAYERS)]
    layers: Vec<Mlp>,
}

#[derive(WeightLayout)]
struct Caches {
    #[list(CACHES)]
    layers: Vec<Mlp>,
}

#[megakernel(dims(HIDDEN, FFN, LAYERS, CACHES), inputs(x: [HIDDEN]))]
fn kernel(x: &Tensor, w: &Mlps, caches: &Caches) -> Tensor {
    let mut y = add(x, x);
    for (mlp, cache) in w.layers.iter().zip(&caches.layers) {
        y = linear(&linear(&y, &mlp.up), &cache.down);
    }
    y
}

fn main() {}
