//! Raw identifiers and letters beyond ASCII in everything that a user names.

use amk::prelude::*;
use amk::vm::{Bindings, cpu::Vm};

/// `y = x * w`.
#[instruction(
    op = "größe",
    shape = "x: [N], w: [N] -> y: [N]",
    tile = "T = 4",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], w[n..n+T]"
)]
fn r#match(x: &Tensor, w: &Weight) -> Tensor {
    x.data().iter().zip(w.to_f32()).map(|(x, w)| x * w).collect()
}

#[derive(WeightLayout)]
struct Größe {
    #[weight("the \"type\"", [H])]
    r#type: Weight,
    #[weight("größe", [H])]
    größe: Weight,
}

#[megakernel(dims(H), inputs(r#in: [H]), instances(klein(H = 8)))]
fn r#loop(r#in: &Tensor, r#struct: &Größe) -> Tensor {
    let r#let = r#match(r#in, &r#struct.r#type);
    r#match(&r#let, &r#struct.größe)
}

#[test]
fn names_are_those_that_the_user_reads() {
    assert_eq!(LOOP.graph().unwrap().name, "loop");
    let weight = |value| Weight::f32(&[8], vec![value; 8]).unwrap();
    let layout = Größe { r#type: weight(0.5), größe: weight(3.0) };
    let bindings = Bindings::new().layout("struct", &layout);
    let mut vm = Vm::of(&LOOP, LOOP.instance("klein").unwrap(), &bindings).unwrap();
    let x: Tensor = (0..8).map(|x| x as f32).collect();
    vm.set_input("in", &x).unwrap();
    assert_eq!(vm.step(Token(0), Pos(0)).unwrap().data(), r#loop(&x, &layout).data());
}
