//! A layout has an end.

use amk::prelude::*;

#[derive(WeightLayout)]
struct Node {
    #[list(CHILDREN)]
    children: Vec<Node>,
}

fn main() {}
