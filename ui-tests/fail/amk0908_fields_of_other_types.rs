//! A field has the type that its attribute says.

use amk::prelude::*;

type Cache = State;

#[derive(WeightLayout)]
struct Known {
    #[weight("a", [N])]
    a: State,
    #[state([N])]
    b: Weight,
    #[param]
    c: f64,
    #[flag]
    d: u8,
    #[dim(N)]
    e: f32,
}

#[derive(WeightLayout)]
struct Alias {
    #[weight("a", [N])]
    a: Cache,
}

fn main() {}
