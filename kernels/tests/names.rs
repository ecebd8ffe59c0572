//! Names that the expansions could mistake for their own, and calls that a user's macro makes.

#![deny(unused_variables)]

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
struct Layer {
    #[weight("layers.{l}.from", [N, N])]
    from: Weight,
    #[param]
    to: f32,
}

#[derive(WeightLayout)]
struct Model {
    #[list(LAYERS)]
    layers: Vec<Layer>,
}

/// `y = x`.
#[instruction(op = "run", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn run(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

/// `y = x`.
#[instruction(op = "frame", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn frame(x: &Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

macro_rules! twice {
    ($name:ident, $op:path) => {
        #[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8)))]
        fn $name(x: &Tensor) -> Tensor {
            let y = $op(x, x);
            frame(&run(&$op(&y, x)))
        }
    };
}

twice!(sums, amk_kernels::add);

#[megakernel(
    dims(N, LAYERS),
    inputs(x: [N]),
    instances(tiny(N = 8, LAYERS = 3)),
    schedule(workers = 2, tile(linear = 4, add = 4)),
    events(e[LAYERS])
)]
fn signals(x: &Tensor, w: &Model) -> Tensor {
    let mut h = linear(x, &w.layers[0].from);
    for (l, layer) in w.layers.iter().enumerate() {
        #[signal(e[l])]
        let g = linear(&h, &layer.from);
        #[wait(e[l] == 2)]
        let z = add(&g, &g);
        h = z;
    }
    h
}

#[test]
fn the_graphs_have_the_calls() {
    let sums = SUMS.graph().expect("a graph");
    assert_eq!(sums.signatures.iter().map(|signature| &*signature.name).collect::<Vec<_>>(), ["add", "run", "frame"]);
    let signals = SIGNALS.lower(SIGNALS.instance("tiny").expect("an instance"), None).expect("a program");
    assert!(signals.program.events.iter().any(|event| event.name == "e"));
}

#[test]
fn the_functions_are_what_they_were() {
    let x: Tensor = (0..8u8).map(f32::from).collect();
    let expected: Vec<f32> = x.data().iter().map(|x| 3.0 * x).collect();
    assert_eq!(sums(&x).data(), expected);
    let eye = (0..64).map(|i| f32::from(u8::from(i % 9 == 0))).collect();
    let layer = Layer { from: Weight::f32(&[8, 8], eye).expect("a weight"), to: 1.0 };
    assert!(layer.to > 0.0);
    assert_eq!(
        signals(&x, &Model { layers: vec![layer] }).data(),
        x.data().iter().map(|x| 2.0 * x).collect::<Vec<_>>()
    );
}
