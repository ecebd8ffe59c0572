//! Measures a decoder step on the CPU VM at the sizes of a small Llama against the machine's read
//! bandwidth, in one run.
//!
//! `cargo bench -p amk-kernels --bench decode`

use amk::ir::schedule::{QueuePolicy, Schedule};
use amk::layout::{Source, SourceError, WeightRequest, build, zeroed};
use amk::measure::read_bandwidth;
use amk::prelude::*;
use amk::vm::Bindings;
use amk::vm::cpu::Vm;
use amk_kernels::*;
use half::bf16;
use std::time::Instant;

/// A layer.
#[derive(WeightLayout)]
struct Layer {
    #[weight("norm", [HIDDEN])]
    attn_norm: Weight,
    #[weight("q", [HEADS * HEAD_DIM, HIDDEN])]
    q: Weight,
    #[weight("k", [KV_HEADS * HEAD_DIM, HIDDEN])]
    k: Weight,
    #[weight("v", [KV_HEADS * HEAD_DIM, HIDDEN])]
    v: Weight,
    #[weight("o", [HIDDEN, HEADS * HEAD_DIM])]
    o: Weight,
    #[weight("norm", [HIDDEN])]
    mlp_norm: Weight,
    #[weight("gate", [FFN, HIDDEN])]
    gate: Weight,
    #[weight("up", [FFN, HIDDEN])]
    up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    down: Weight,
}

/// The decoder.
#[derive(WeightLayout)]
struct Decoder {
    #[weight("embed", [VOCAB, HIDDEN])]
    embed: Weight,
    #[list(LAYERS)]
    layers: Vec<Layer>,
    #[weight("norm", [HIDDEN])]
    norm: Weight,
    #[table([HEAD_DIM / 2])]
    freqs: Weight,
    #[dim(HEAD_DIM)]
    head_dim: usize,
}

/// A layer's cache.
#[derive(WeightLayout)]
struct Cache {
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    k: State,
    #[state([KV_HEADS, CONTEXT, HEAD_DIM])]
    v: State,
}

/// The cache.
#[derive(WeightLayout)]
struct Caches {
    #[list(LAYERS)]
    layers: Vec<Cache>,
}

#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT),
    where(HEADS % KV_HEADS, HEAD_DIM % 2),
    instances(small(
        VOCAB = 49152, HIDDEN = 576, LAYERS = 30,
        HEADS = 9, KV_HEADS = 3, HEAD_DIM = 64, FFN = 1536, CONTEXT = 2048
    ))
)]
fn decode(token: Token, pos: Pos, w: &Decoder, kv: &mut Caches) -> Tensor {
    let mut x = embed(&w.embed, token);
    for (lw, cache) in w.layers.iter().zip(&mut kv.layers) {
        let h = rms_norm(&x, &lw.attn_norm, 1e-5);
        let (q, k, v) = (linear(&h, &lw.q), linear(&h, &lw.k), linear(&h, &lw.v));
        kv_append(&mut cache.k, &rope(&k, &w.freqs, w.head_dim, 1.0, pos), pos);
        kv_append(&mut cache.v, &v, pos);
        let a = attention(&rope(&q, &w.freqs, w.head_dim, 1.0, pos), &cache.k, &cache.v, 0.125, pos);
        x = add(&x, &linear(&a, &lw.o));
        let h = rms_norm(&x, &lw.mlp_norm, 1e-5);
        x = add(&x, &linear(&silu_mul(&linear(&h, &lw.gate), &linear(&h, &lw.up)), &lw.down));
    }
    linear(&rms_norm(&x, &w.norm, 1e-5), &w.embed)
}

/// Returns constant weights. Each has separate memory, as in a checkpoint.
struct Constant;

impl Source for Constant {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let value = bf16::from_f32(if request.name == "norm" { 1.0 } else { 0.01 });
        Ok(Weight::bf16(request.shape, vec![value; request.shape.iter().product()])?)
    }

    fn table(&mut self, _: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        Ok(Weight::f32(shape, vec![0.1; shape.iter().product()])?)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        Err(format!("no parameter {path}").into())
    }

    fn flag(&mut self, path: &str) -> Result<bool, SourceError> {
        Err(format!("no flag {path}").into())
    }
}

/// Returns the seconds of the fastest of several steps, since other processes can only slow one
/// down.
fn fastest(mut step: impl FnMut(u32)) -> f64 {
    let seconds = (0..120).map(|pos| {
        let start = Instant::now();
        step(pos);
        start.elapsed().as_secs_f64()
    });
    seconds.fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let instance = DECODE.instance("small")?.clone();
    let weights: Decoder = build(&instance.dims, &mut Constant)?;
    let bindings = Bindings::new().layout("w", &weights);
    let bytes: usize = bindings.weights().values().map(Weight::bytes).sum();
    let show = |what: &str, seconds: f64, memory: f64| {
        let rate = bytes as f64 / seconds;
        println!("  {what}: {:.2} ms a step, {:.1} GB/s, {:.0}%", seconds * 1e3, rate / 1e9, 100.0 * rate / memory);
    };
    for workers in [1, 2] {
        let memory = read_bandwidth(workers as usize);
        println!("{workers} threads: memory reads at {:.1} GB/s; {} MB of weights", memory / 1e9, bytes / 1_000_000);
        if workers == 1 {
            let mut kv: Caches = zeroed(&instance.dims)?;
            let seconds = fastest(|pos| drop(decode(Token(pos), Pos(pos), &weights, &mut kv)));
            show("function", seconds, memory);
        }
        for queue in [QueuePolicy::Static, QueuePolicy::Ticket] {
            let schedule = Schedule { workers, queue, ..Schedule::default() };
            let verified = DECODE.verified(&instance, Some(&schedule))?;
            let tasks = verified.program().tasks.len();
            let mut vm = Vm::new(verified, &bindings)?;
            let mut failed = None;
            let seconds = fastest(|pos| failed = failed.take().or(vm.step(Token(pos), Pos(pos)).err()));
            failed.map_or(Ok(()), Err)?;
            show(&format!("{queue:?} queues, {tasks} tasks"), seconds, memory);
        }
    }
    Ok(())
}
