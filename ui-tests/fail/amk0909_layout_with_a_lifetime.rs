//! A layout owns its tensors.

use amk::prelude::*;

#[derive(WeightLayout)]
struct Mlp<'a> {
    #[weight("up", [FFN, HIDDEN])]
    up: &'a Weight,
}

fn main() {}
