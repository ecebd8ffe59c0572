//! References, copies and branches: what the CPU VM computes is what the function does.

use amk::Megakernel;
use amk::ir::DType;
use amk::ir::schedule::Schedule;
use amk::prelude::*;
use amk::registry::Output;
use amk::vm::Bindings;
use amk::vm::cpu::{Step, Vm};
use amk_kernels::{add, argmax, embed, linear};

#[derive(WeightLayout)]
struct Model {
    #[weight("w", [N, N])]
    w: Weight,
    #[flag]
    g: bool,
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn assigned_in_a_branch(x: &Tensor, w: &Model) -> Tensor {
    let t = add(x, x);
    let mut h = x;
    if w.g {
        h = &t;
    }
    linear(h, &w.w)
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn assigned_by_a_variable(x: &Tensor, w: &Model) -> Tensor {
    let t = add(x, x);
    let u = linear(&t, &w.w);
    let mut h = &t;
    let k = &u;
    let a = add(h, k);
    h = k;
    add(&add(&a, h), &t)
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn bound_by_a_tuple(x: &Tensor, w: &Model) -> Tensor {
    let t = add(x, x);
    let u = linear(&t, &w.w);
    let (mut p, q) = (&t, &u);
    if w.g {
        p = q;
    }
    add(&linear(p, &w.w), &t)
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn assigned_in_a_loop(x: &Tensor, w: &Model) -> Tensor {
    let mut x = x;
    let t = add(x, x);
    let v = linear(&t, &w.w);
    let mut sum = add(x, x);
    for _ in 0..3 {
        let y = x;
        sum = add(&sum, y);
        x = &v;
    }
    add(&sum, x)
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn chosen_by_a_branch(x: &Tensor, w: &Model) -> Tensor {
    let t = add(x, x);
    let h = if w.g { &t } else { x };
    linear(h, &w.w)
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn copied_tokens(x: &Tensor, w: &Model) -> Tensor {
    let token = argmax(x);
    let r = &token;
    let mut other = *r;
    let y = embed(&w.w, other);
    other = argmax(&y);
    add(&add(&embed(&w.w, token), &y), &embed(&w.w, other))
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn read_before_an_assignment(x: &Tensor, w: &Model) -> Tensor {
    let t = linear(x, &w.w);
    let mut h = x;
    let y = add(h, {
        h = &t;
        h
    });
    add(&y, h)
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn tuples_out_of_branches(x: &Tensor, w: &Model) -> Tensor {
    let (a, b) = (linear(x, &w.w), add(x, x));
    let p = if w.g { (linear(&a, &w.w), x) } else { (add(&a, &b), &b) };
    let (c, d) = if w.g { (&b, &a) } else { (&a, &b) };
    add(&add(&p.0, p.1), &add(&linear(c, &w.w), d))
}

#[megakernel(dims(N), inputs(x: [N]), instances(tiny(N = 8, w.g = true)))]
fn a_tuple_at_the_end(x: &Tensor, w: &Model) -> (Tensor, Tensor) {
    let a = add(x, x);
    let b = linear(&a, &w.w);
    if w.g { (b, a) } else { (a, b) }
}

fn input() -> Tensor {
    Tensor::new(&[8], (0..8).map(|i| (i * 3 % 8) as f32).collect()).expect("a tensor")
}

fn model(g: bool) -> Model {
    let numbers = (0..64).map(|i| ((i * 7) % 11) as f32).collect();
    Model { w: Weight::f32(&[8, 8], numbers).expect("a weight"), g }
}

/// The outputs of a step on the CPU VM, in the order of the function's results.
fn outputs(kernel: &Megakernel, model: &Model) -> Vec<Output> {
    let mut instance = kernel.instance("tiny").expect("an instance").clone();
    instance.flags.insert("w.g".to_owned(), model.g);
    let schedule = Schedule { weights: DType::F32, ..Schedule::default() };
    let verified = kernel.verified(&instance, Some(&schedule)).expect("a program");
    let mut vm = Vm::new(verified, &Bindings::new().layout("w", model)).expect("a VM");
    vm.set_input("x", &input()).expect("the input");
    vm.run(vec![Step { pos: Pos(0), tokens: Vec::new() }]).expect("a step").to_vec()
}

#[test]
fn the_cpu_vm_computes_what_the_function_does() {
    type Eager = fn(&Tensor, &Model) -> Tensor;
    let kernels: [(&Megakernel, Eager); 8] = [
        (&ASSIGNED_IN_A_BRANCH, assigned_in_a_branch),
        (&ASSIGNED_BY_A_VARIABLE, assigned_by_a_variable),
        (&BOUND_BY_A_TUPLE, bound_by_a_tuple),
        (&ASSIGNED_IN_A_LOOP, assigned_in_a_loop),
        (&CHOSEN_BY_A_BRANCH, chosen_by_a_branch),
        (&COPIED_TOKENS, copied_tokens),
        (&READ_BEFORE_AN_ASSIGNMENT, read_before_an_assignment),
        (&TUPLES_OUT_OF_BRANCHES, tuples_out_of_branches),
    ];
    for (kernel, function) in kernels {
        for g in [false, true] {
            let model = model(g);
            let expected = [Output::Tensor(function(&input(), &model))];
            assert_eq!(outputs(kernel, &model), expected, "{} with w.g = {g}", kernel.name());
        }
    }
}

#[test]
fn a_tuple_at_the_end_of_a_branch_is_the_result() {
    for g in [false, true] {
        let model = model(g);
        let (first, second) = a_tuple_at_the_end(&input(), &model);
        assert_eq!(
            outputs(&A_TUPLE_AT_THE_END, &model),
            [Output::Tensor(first), Output::Tensor(second)],
            "with w.g = {g}"
        );
    }
}
