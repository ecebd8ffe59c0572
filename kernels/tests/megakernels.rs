//! A VM has the inputs and outputs of the function: its results in their order, and the constants
//! of its layouts.

use amk::ir::DType;
use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::layout::zeroed;
use amk::prelude::*;
use amk::registry::Output;
use amk::vm::Bindings;
use amk::vm::cpu::{Step, Vm, VmError};
use amk_kernels::{add, argmax, embed, kv_append, linear, rms_norm};

/// A weight, and what else a function may ask of its layout.
#[derive(WeightLayout)]
struct Norm {
    #[weight("norm", [N])]
    norm: Weight,
    #[param]
    eps: f32,
    #[param]
    unread: f32,
    #[flag]
    residual: bool,
    #[dim(N)]
    n: usize,
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 4), closed(N = 4, w.eps = 100.0, w.residual = true)))]
fn normed(x: &Tensor, w: &Norm) -> Tensor {
    let mut h = rms_norm(x, &w.norm, w.eps);
    if w.residual {
        h = add(&h, x);
    }
    h
}

fn norm(eps: f32, residual: bool) -> Norm {
    Norm { norm: Weight::f32(&[4], vec![1.0; 4]).unwrap(), eps, unread: 7.0, residual, n: 4 }
}

/// The VM of an instance with a layout bound to it.
fn bound(instance: &Instance, w: &Norm) -> Result<Vm, VmError> {
    let schedule = Schedule { weights: DType::F32, ..Schedule::default() };
    Vm::new(NORMED.verified(instance, Some(&schedule)).unwrap(), &Bindings::new().layout("w", w))
}

#[test]
fn constants_of_a_layout_are_those_of_the_program() {
    let declared = NORMED.instance("tiny").unwrap();
    let refused = bound(declared, &norm(100.0, false)).unwrap_err().to_string();
    assert!(refused.contains("`w.eps` is 0.0 in the program, but 100.0 is bound to it"), "{refused}");
    // Its edits are the same as in `what_an_instance_leaves_out_is_taken_from_the_layout`.
    assert!(refused.contains("`bindings.complete(instance)`") && refused.contains("`w.eps = 100.0`"), "{refused}");
    let refused = bound(declared, &norm(0.0, true)).unwrap_err().to_string();
    assert!(refused.contains("`w.residual` is false in the program, but true is bound to it"), "{refused}");

    let refused = bound(declared, &Norm { n: 5, ..norm(0.0, false) }).unwrap_err().to_string();
    let expected = "`w.n` is 4 in the program, but 5 is bound to it; give the layout the dims of the instance";
    assert_eq!(refused, expected);

    let x = Tensor::from([1.0, 2.0, 3.0, 4.0].as_slice());
    for (eps, residual) in [(0.0, false), (100.0, false), (100.0, true)] {
        let w = norm(eps, residual);
        let mut vm = bound(&Bindings::new().layout("w", &w).complete(declared), &w).unwrap();
        vm.set_input("x", &x).unwrap();
        assert_eq!(vm.step(Token(0), Pos(0)).unwrap().data(), normed(&x, &w).data(), "{eps} {residual}");
    }
}

#[derive(WeightLayout)]
struct Layer {
    #[weight("norms.{l}", [N])]
    norm: Weight,
    #[dim(N + 1)]
    more: usize,
}

#[derive(WeightLayout)]
struct Layers {
    #[list(LAYERS)]
    layers: Vec<Layer>,
}

#[megakernel(dims(N, LAYERS), inputs(x: [N]), instances(two(N = 4, LAYERS = 2)))]
fn layered(x: &Tensor, w: &Layers) -> Tensor {
    let mut y = add(x, x);
    for layer in &w.layers {
        y = rms_norm(&y, &layer.norm, 1e-5);
    }
    y
}

/// The function would run all layers of a layout, and a program those of its dims.
#[test]
fn a_layout_of_other_dims_is_refused() {
    let layer = |more| Layer { norm: Weight::f32(&[4], vec![1.0; 4]).unwrap(), more };
    let bound = |w: &Layers| Vm::of(&LAYERED, LAYERED.instance("two").unwrap(), &Bindings::new().layout("w", w));
    let vm = |layers: Vec<Layer>| bound(&Layers { layers });
    let (w, x) = (Layers { layers: vec![layer(5), layer(5)] }, Tensor::from([1.0, 2.0, 3.0, 4.0].as_slice()));
    let mut two = bound(&w).unwrap();
    two.set_input("x", &x).unwrap();
    assert_eq!(two.step(Token(0), Pos(0)).unwrap().data(), layered(&x, &w).data());
    let longer = vm(vec![layer(5), layer(5), layer(5)]).unwrap_err().to_string();
    assert!(longer.starts_with("`w.layers.len()` is 2 in the program, but 3 is bound to it"), "{longer}");
    let other = vm(vec![layer(5), layer(6)]).unwrap_err().to_string();
    assert!(other.starts_with("`w.layers[1].more` is 5 in the program, but 6 is bound to it"), "{other}");
}

#[test]
fn what_an_instance_leaves_out_is_taken_from_the_layout() {
    let vm =
        |instance: &str, w: &Norm| Vm::of(&NORMED, NORMED.instance(instance).unwrap(), &Bindings::new().layout("w", w));
    let x = Tensor::from([1.0, 2.0, 3.0, 4.0].as_slice());
    for (instance, eps, residual) in [("tiny", 100.0, true), ("tiny", 1.0, false), ("closed", 100.0, true)] {
        let w = norm(eps, residual);
        let mut vm = vm(instance, &w).unwrap();
        vm.set_input("x", &x).unwrap();
        assert_eq!(vm.step(Token(0), Pos(0)).unwrap().data(), normed(&x, &w).data(), "{instance} {eps}");
    }
    // What it declares is not overridden.
    let refused = vm("closed", &norm(1.0, true)).unwrap_err().to_string();
    assert!(refused.starts_with("`w.eps` is 100.0 in the program, but 1.0 is bound to it"), "{refused}");
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 4)))]
fn last_first(x: &Tensor) -> (Tensor, Tensor, Tensor) {
    let a = add(x, x);
    let b = add(&a, x);
    let c = add(&b, &a);
    (c, a, b)
}

#[test]
fn results_come_in_the_order_of_the_function() {
    let x = Tensor::from([1.0, 2.0, 3.0, 4.0].as_slice());
    let mut vm =
        Vm::new(LAST_FIRST.verified(LAST_FIRST.instance("tiny").unwrap(), None).unwrap(), &Bindings::new()).unwrap();
    vm.set_input("x", &x).unwrap();
    let (c, a, b) = last_first(&x);
    assert_eq!(vm.step(Token(0), Pos(0)).unwrap().data(), c.data());
    let outputs = vm.run(vec![Step { pos: Pos(0), tokens: Vec::new() }]).unwrap();
    for (output, eager) in outputs.iter().zip([c, a, b]) {
        assert!(matches!(output, Output::Tensor(tensor) if tensor.data() == eager.data()), "{outputs:?}");
    }
    assert_eq!(outputs.len(), 3);
}

/// An embedding that is the head too.
#[derive(WeightLayout)]
struct Tied {
    #[weight("embed", [VOCAB, N])]
    embed: Weight,
}

#[megakernel(dims(N, VOCAB), instances(tiny(N = 8, VOCAB = 4)))]
fn token_first(token: Token, w: &Tied) -> (Token, Tensor) {
    let logits = linear(&embed(&w.embed, token), &w.embed);
    let next = argmax(&logits);
    (next, logits)
}

#[test]
fn a_token_comes_where_the_function_has_it() {
    let w = Tied { embed: Weight::f32(&[4, 8], (0..32).map(|n| (n as f32 * 0.7).sin()).collect()).unwrap() };
    let schedule = Schedule { weights: DType::F32, ..Schedule::default() };
    let verified = TOKEN_FIRST.verified(TOKEN_FIRST.instance("tiny").unwrap(), Some(&schedule)).unwrap();
    let mut vm = Vm::new(verified, &Bindings::new().layout("w", &w)).unwrap();
    let (next, logits) = token_first(Token(2), &w);
    match vm.run(vec![Step { pos: Pos(0), tokens: vec![Token(2)] }]).unwrap() {
        [Output::Token(token), Output::Tensor(tensor)] => assert_eq!((*token, tensor.data()), (next, logits.data())),
        other => panic!("{other:?}"),
    }
}

/// A cache of one position and one of several.
#[derive(WeightLayout)]
#[layout(dims(N, SHORT, LONG))]
struct Caches {
    #[state([1, SHORT, N])]
    short: State,
    #[state([1, LONG, N])]
    long: State,
}

#[megakernel(dims(N, SHORT, LONG), inputs(x: [N]), instances(tiny(N = 4, SHORT = 1, LONG = 8)))]
fn appended(x: &Tensor, caches: &mut Caches, pos: Pos) -> Tensor {
    kv_append(&mut caches.short, x, pos);
    kv_append(&mut caches.long, x, pos);
    add(x, x)
}

#[test]
fn a_program_has_the_positions_of_its_shortest_state() {
    let instance = APPENDED.instance("tiny").unwrap();
    let verified = APPENDED.verified(instance, None).unwrap();
    assert_eq!(verified.program().positions, 1);
    let x = Tensor::from([1.0, 2.0, 3.0, 4.0].as_slice());
    let expected = appended(&x, &mut zeroed(&instance.dims).unwrap(), Pos(0));
    let mut vm = Vm::new(verified, &Bindings::new()).unwrap();
    vm.set_input("x", &x).unwrap();
    let found = vm.run(vec![Step { pos: Pos(0), tokens: Vec::new() }]).unwrap();
    assert_eq!(found, [Output::Tensor(expected)]);
}
