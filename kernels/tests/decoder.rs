//! A small decoder with every instruction: the CPU VM gives bit for bit what the function gives.

use amk::ir::graph::Instance;
use amk::ir::program::Steps;
use amk::ir::schedule::{Assign, FuseInto, Fusion, QueuePolicy, Schedule, Tile};
use amk::ir::verify::Verified;
use amk::layout::{Source, SourceError, WeightRequest, build, zeroed};
use amk::prelude::*;
use amk::registry::{Output, Registry};
use amk::vm::Bindings;
use amk::vm::cpu::{Mode, Options, Step, Vm};
use amk_kernels::*;
use half::bf16;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A layer.
#[derive(WeightLayout)]
pub(super) struct Layer {
    #[weight("layers.{l}.norm", [HIDDEN])]
    norm: Weight,
    #[weight("layers.{l}.q", [HEADS * HEAD_DIM, HIDDEN])]
    q: Weight,
    #[weight("layers.{l}.q_bias", [HEADS * HEAD_DIM])]
    q_bias: Weight,
    #[weight("layers.{l}.q_norm", [HEAD_DIM])]
    q_norm: Weight,
    #[weight("layers.{l}.k", [KV_HEADS * HEAD_DIM, HIDDEN])]
    k: Weight,
    #[weight("layers.{l}.v", [KV_HEADS * HEAD_DIM, HIDDEN])]
    v: Weight,
    #[weight("layers.{l}.o", [HIDDEN, HEADS * HEAD_DIM])]
    o: Weight,
    #[weight("layers.{l}.gate", [FFN, HIDDEN])]
    gate: Weight,
    #[weight("layers.{l}.up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("layers.{l}.down", [HIDDEN, FFN])]
    down: Weight,
}

/// The decoder.
#[derive(WeightLayout)]
pub(super) struct Decoder {
    #[weight("embed", [VOCAB, HIDDEN])]
    embed: Weight,
    #[list(LAYERS)]
    layers: Vec<Layer>,
    #[weight("norm", [HIDDEN])]
    norm: Weight,
    #[table([HEAD_DIM / 4])]
    freqs: Weight,
    #[param]
    eps: f32,
    #[param]
    scale: f32,
    #[dim(HEAD_DIM)]
    head_dim: usize,
}

/// A layer's cache.
#[derive(WeightLayout)]
pub(super) struct Cache {
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub(super) k: State,
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    pub(super) v: State,
}

/// The cache.
#[derive(WeightLayout)]
pub(super) struct Caches {
    #[list(LAYERS)]
    pub(super) layers: Vec<Cache>,
}

#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT),
    where(HEADS % KV_HEADS, HEAD_DIM % 4),
    instances(tiny(VOCAB = 40, HIDDEN = 48, LAYERS = 2, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FFN = 64, CONTEXT = 16))
)]
pub(super) fn decode(token: Token, pos: Pos, w: &Decoder, kv: &mut Caches) -> (Tensor, Token) {
    let mut x = embed(&w.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.norm, w.eps);
        let q = head_norm(&add_bias(&linear(&h, &lw.q), &lw.q_bias), &lw.q_norm, w.eps);
        let (k, v) = (linear(&h, &lw.k), linear(&h, &lw.v));
        kv_append(&mut cache.k, &rope(&k, &w.freqs, w.head_dim, 1.5, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let a = attention(&rope(&q, &w.freqs, w.head_dim, 1.5, pos), &cache.k, &cache.v, w.scale, pos);
        x = add(&x, &linear(&a, &lw.o));
        let m = gelu_mul(&linear(&x, &lw.gate), &silu_mul(&linear(&x, &lw.up), &linear(&x, &lw.gate)));
        x = add(&x, &linear(&m, &lw.down));
    }
    let logits = linear(&rms_norm(&x, &w.norm, w.eps), &w.embed);
    let next = argmax(&logits);
    (logits, next)
}

/// Random weights that depend on their names only, in two element types.
struct Random;

fn random(name: &str, len: usize) -> Vec<f32> {
    let mut state = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

impl Source for Random {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let elements = random(request.name, request.shape.iter().product());
        if request.name.ends_with("norm") {
            return Ok(Weight::f32(request.shape, elements)?);
        }
        Ok(Weight::bf16(request.shape, elements.into_iter().map(bf16::from_f32).collect())?)
    }

    fn table(&mut self, _: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        let count = shape.iter().product::<usize>();
        Ok(Weight::f32(shape, (0..count).map(|j| 0.3f32.powi(j as i32)).collect())?)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        Ok(if path == "eps" { 1e-5 } else { 0.35 })
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Ok(false)
    }
}

pub(super) struct Case {
    pub(super) weights: Decoder,
    pub(super) dims: BTreeMap<String, u32>,
    instance: Instance,
    pub(super) bindings: Bindings,
}

impl Case {
    pub(super) fn new() -> Self {
        Self::with_context(16)
    }

    pub(super) fn with_context(positions: u32) -> Self {
        let mut instance = DECODE.instance("tiny").unwrap().clone();
        instance.dims.insert("CONTEXT".to_owned(), positions);
        let weights: Decoder = build(&instance.dims, &mut Random).unwrap();
        let bindings = Bindings::new().layout("w", &weights);
        instance.floats = bindings.floats().clone();
        Self { weights, dims: instance.dims.clone(), instance, bindings }
    }

    pub(super) fn verified(&self, schedule: &Schedule) -> Arc<Verified> {
        Arc::new(
            DECODE.verified(&self.instance, Some(schedule)).unwrap_or_else(|error| panic!("{schedule:?}: {error}")),
        )
    }

    /// The outputs of each step, and the last layer's keys at the end.
    fn eager(&self, tokens: &[Token]) -> (Vec<(Tensor, Token)>, Vec<f32>) {
        let mut kv: Caches = zeroed(&self.dims).unwrap();
        let outputs =
            tokens.iter().zip(0..).map(|(&token, pos)| decode(token, Pos(pos), &self.weights, &mut kv)).collect();
        (outputs, kv.layers[1].k.to_vec())
    }

    pub(super) fn vm(&self, verified: &Arc<Verified>, mode: Mode) -> Vm {
        let options = Options { mode, ..Options::default() };
        Vm::with(Arc::clone(verified), &self.bindings, &Registry::linked().unwrap(), options).unwrap()
    }
}

fn tokens() -> Vec<Token> {
    [3, 17, 39, 0, 3, 22].map(Token).to_vec()
}

fn step(token: Token, pos: u32) -> Step {
    Step { pos: Pos(pos), tokens: vec![token] }
}

/// The bits of both outputs, in whichever order the program's buffers are.
fn bits(outputs: &[Output]) -> (Vec<u32>, Token) {
    let mut found = (Vec::new(), Token(u32::MAX));
    for output in outputs {
        match output {
            Output::Tensor(tensor) => found.0 = tensor.data().iter().map(|x| x.to_bits()).collect(),
            Output::Token(token) => found.1 = *token,
        }
    }
    found
}

fn expected(eager: &(Tensor, Token)) -> (Vec<u32>, Token) {
    bits(&[Output::Tensor(eager.0.clone()), Output::Token(eager.1)])
}

/// Schedules that differ in everything a schedule may set.
fn schedules() -> Vec<Schedule> {
    let mut out = Vec::new();
    for workers in [1, 2, 8] {
        for queue in [QueuePolicy::Static, QueuePolicy::Ticket] {
            let tiles = BTreeMap::from([("linear".to_owned(), Tile::Size(8)), ("add".to_owned(), Tile::Whole)]);
            let schedule = Schedule { workers, queue, tiles, ..Schedule::default() };
            out.push(schedule.clone());
            out.push(Schedule { tiles: BTreeMap::new(), assign: Assign::Balanced, ..schedule.clone() });
            let fuse = |op: &str, into| Fusion { op: op.to_owned(), into };
            let fuse = vec![fuse("rms_norm", FuseInto::Consumers), fuse("add", FuseInto::Producer)];
            out.push(Schedule { fuse, tiles: BTreeMap::new(), ..schedule });
        }
    }
    // With several workers a step may overtake the one before, and its waits do not forbid that.
    out.push(Schedule { workers: 1, steps: Steps::Pipelined, ..Schedule::default() });
    out
}

#[test]
fn every_schedule_gives_the_bits_of_the_function() {
    let case = Case::new();
    let (eager, keys) = case.eager(&tokens());
    for schedule in schedules() {
        let verified = case.verified(&schedule);
        let mut vm = case.vm(&verified, Mode::Threads);
        for (pos, (&token, eager)) in (0..).zip(tokens().iter().zip(&eager)) {
            let outputs = vm.run(vec![step(token, pos)]).unwrap();
            assert_eq!(bits(outputs), expected(eager), "step {pos} of {schedule:?}");
        }
        assert_eq!(vm.state("kv.layers[1].k").unwrap().to_vec(), keys, "{schedule:?}");
    }
}

#[test]
fn a_launch_of_many_steps_gives_the_bits_of_the_function() {
    let case = Case::new();
    let (eager, keys) = case.eager(&tokens());
    let steps: Vec<Step> = tokens().into_iter().zip(0..).map(|(token, pos)| step(token, pos)).collect();
    for schedule in schedules() {
        let verified = case.verified(&schedule);
        for seed in 0..20 {
            for mode in [Mode::Delayed { seed }, Mode::Shuffled { seed }] {
                let mut vm = case.vm(&verified, mode);
                let outputs = vm.run(steps.clone()).unwrap();
                assert_eq!(bits(outputs), expected(eager.last().unwrap()), "{mode:?} of {schedule:?}");
                assert_eq!(vm.state("kv.layers[1].k").unwrap().to_vec(), keys, "{mode:?} of {schedule:?}");
            }
        }
    }
}

#[test]
fn a_hundred_adversarial_orders_give_the_bits_of_the_function() {
    let case = Case::new();
    let (eager, _) = case.eager(&tokens());
    for workers in [1, 2, 8] {
        let verified = case.verified(&Schedule { workers, ..Schedule::default() });
        for seed in 0..100 {
            let mut vm = case.vm(&verified, Mode::Shuffled { seed });
            for (pos, (&token, eager)) in (0..).zip(tokens().iter().zip(&eager)) {
                let outputs = vm.run(vec![step(token, pos)]).unwrap();
                assert_eq!(bits(outputs), expected(eager), "step {pos}, seed {seed}, {workers} workers");
            }
        }
    }
}
