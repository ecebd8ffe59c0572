//! A layout is a plain struct.

use amk::prelude::*;

#[derive(WeightLayout)]
struct Mlp<T> {
    #[weight("up", [FFN, HIDDEN])]
    up: T,
}

fn main() {}
