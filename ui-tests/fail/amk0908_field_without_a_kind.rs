//! Every field of a layout says what it is.

use amk::prelude::*;

#[derive(WeightLayout)]
struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    down: Weight,
}

fn main() {}
