//! Every field of a layout declares its kind.

use amk::prelude::*;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    down: Weight,
}

fn main() {}
