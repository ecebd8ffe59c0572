//! Element-wise instructions that projections run on their results: fused by rule, also from
//! another crate than the built-in ones.

use super::generic::Rows;
use crate::compiled::compiles;
use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::ir::verify::{verify, verify_with};
use amk::layout::build;
use amk::prelude::*;
use amk::registry::Registry;
use amk::vm::Bindings;
use amk::vm::cpu::{Mode, Options, Vm};
use amk_cuda::plan::Plan;
use amk_cuda::{Image, Pointwise, Precision, TARGETS, VmOptions, plan_for, source};
use amk_kernels::fused::{Gemv, Output, Shared};
use amk_kernels::{add_bias, embed, gelu_mul, linear};
use std::collections::BTreeSet;

/// `y = cap * tanh(x / cap)`.
#[instruction(
    op = "soft_cap",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
)]
pub(crate) fn soft_cap(x: &Tensor, cap: f32) -> Tensor {
    x.data().iter().map(|x| cap * (x / cap).tanh()).collect()
}

amk_cuda::pointwise!(Pointwise {
    instruction: "all::soft_cap",
    function: "soft_cap",
    code: "AMK_DEVICE float soft_cap(float x, float cap) { return cap * tanhf(x / cap); }\n",
});

#[derive(WeightLayout)]
struct Layers {
    #[weight("table", [VOCAB, HIDDEN])]
    table: Weight,
    #[weight("mix", [HIDDEN, HIDDEN])]
    mix: Weight,
    #[weight("gate", [FFN, HIDDEN])]
    gate: Weight,
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
    #[weight("bias", [HIDDEN])]
    bias: Weight,
    #[param]
    cap: f32,
    #[param]
    last: f32,
}

/// Caps by two values, one of them behind a bias, and a gate of GELU.
#[megakernel(dims(VOCAB, HIDDEN, FFN), instances(small(VOCAB = 96, HIDDEN = 64, FFN = 160)))]
fn capped(token: Token, w: &Layers) -> Tensor {
    let x = embed(&w.table, token);
    let h = soft_cap(&linear(&x, &w.mix), w.cap);
    let g = gelu_mul(&linear(&h, &w.gate), &linear(&h, &w.up));
    let y = soft_cap(&add_bias(&linear(&g, &w.down), &w.bias), w.last);
    linear(&y, &w.table)
}

fn schedule() -> Schedule {
    let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
    Schedule { workers: 4, ..target.schedule() }
}

/// The caps are constants of the code, so they belong to the instance.
fn instance() -> Instance {
    let mut instance = CAPPED.instance("small").expect("the instance").clone();
    instance.floats.extend([("w.cap".to_owned(), 2.0), ("w.last".to_owned(), 1.5)]);
    instance
}

fn plan() -> Plan {
    plan_for(&CAPPED, &instance(), &schedule(), Precision::BF16).expect("it should be planned")
}

#[test]
fn every_element_wise_call_is_in_a_projection() {
    let plan = plan();
    assert!(plan.bodies.is_empty(), "{:?}", plan.bodies);
    let functions = |gemv: &Gemv| match gemv.output {
        Output::Mapped { function, .. } => Some((1, function)),
        Output::Gated { function, .. } => Some((2, function)),
        _ => None,
    };
    let found: Vec<_> = plan.phases_of().filter_map(functions).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0] != found[2], "two caps are two functions");
}

#[test]
fn the_program_computes_the_function() {
    let instance = instance();
    let weights: Layers = build(&instance.dims, &mut Rows).expect("weights");
    // Small enough for the caps to bend and not to clip.
    let small = |w: &Weight| {
        let values = w.to_f32().iter().map(|x| x / 8.0).collect();
        Weight::f32(w.shape(), values).expect("the shape of the weight")
    };
    let Layers { table, mix, gate, up, down, bias, .. } = &weights;
    let [mix, gate, up, down, bias] = [mix, gate, up, down, bias].map(small);
    let weights = Layers { table: table.clone(), mix, gate, up, down, bias, cap: 2.0, last: 1.5 };
    let bindings = Bindings::new().layout("w", &weights);
    let plan = plan();
    let program = verify_with(plan.program, plan.constants).unwrap_or_else(|rejected| panic!("{rejected}"));
    let registry = Registry::linked().expect("the registry");
    let run = |mode| {
        let options = Options { mode, ..Options::default() };
        let mut vm = Vm::with(program.clone(), &bindings, &registry, options).expect("a VM");
        vm.set_tokens("token", &[Token(7); 4]).expect("tokens");
        vm.step(Token(7), Pos(0)).expect("a step").data().to_vec()
    };
    let logits = run(Mode::Threads);
    assert_eq!(logits, run(Mode::Shuffled { seed: 3 }));
    let expected = capped(Token(7), &weights);
    let largest = expected.data().iter().fold(0f32, |most, x| most.max(x.abs()));
    let error = logits.iter().zip(expected.data()).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    println!("{error:.2e} of {largest:.2e}");
    assert!(error < 0.03 * largest, "packets round to bf16: {error} of {largest}");
}

#[test]
fn another_function_than_the_programs_is_refused() {
    let plan = plan();
    let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{rejected}"));
    let image = Image::build(&verified, &plan).expect("the image should be the program");
    let refused = |change: &dyn Fn(&mut Shared)| {
        let mut image = image.clone();
        change(image.shared.get_mut().expect("what the fused tasks share"));
        image.check(&verified, &plan).expect_err("it should be refused").to_string()
    };
    let swapped = refused(&|shared| shared.functions.swap(0, 1));
    assert!(swapped.contains("soft_cap") || swapped.contains("gelu_mul"), "{swapped}");
    let fewer = refused(&|shared| shared.functions.truncate(1));
    assert!(fewer.contains("`functions` are"), "{fewer}");
}

#[test]
fn the_generated_code_calls_each_function_with_its_constants() {
    let code = source::generate(&plan(), &VmOptions::default());
    let calls = code.lines().find(|line| line.contains("float map_product(u32 function, float x) {")).expect("maps");
    assert_eq!(calls.matches("::soft_cap(x, ").count(), 2, "{calls}");
    for architecture in TARGETS.iter().map(|target| target.architecture).collect::<BTreeSet<_>>() {
        if !compiles(&code, architecture, architecture) {
            return;
        }
    }
}
