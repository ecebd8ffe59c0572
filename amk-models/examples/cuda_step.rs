//! A decoder with random weights on the GPU: logits against the annotated function, then the time of a step.
//!
//!     cuda_step [FAMILY.INSTANCE] [CONTEXT] [POSITION,..]

use amk::ir::DType;
use amk::layout::{Source, SourceError, WeightRequest, build};
use amk::vm::Bindings;
use amk::vm::cuda::{RunOptions, Vm, VmOptions};
use amk::{Pos, Tensor, Token, Weight, WeightLayout};
use amk_models::models::kv::KvCache;
use amk_models::models::{llama, qwen3};
use anyhow::{Context as _, Result, bail};
use half::bf16;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Random weights: every tensor is a window of one pool.
struct Random {
    pool: Arc<dyn AsRef<[u8]> + Send + Sync>,
    next: usize,
    head_dim: u32,
}

struct Pool(Vec<bf16>);

impl AsRef<[u8]> for Pool {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: bf16 has no padding and every byte is initialised.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 2) }
    }
}

impl Random {
    fn new(len: usize, head_dim: u32) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Sum of four bytes: near enough to a normal of deviation 148.
            let sum: i64 = state.to_le_bytes()[..4].iter().map(|&byte| i64::from(byte) - 127).sum();
            bf16::from_f32(sum as f32 * (0.02 / 148.0))
        };
        Self { pool: Arc::new(Pool((0..len).map(|_| draw()).collect())), next: 0, head_dim }
    }
}

impl Source for Random {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let len: usize = request.shape.iter().product();
        if request.shape.len() == 1 {
            let values = (0..len).map(|i| bf16::from_f32(1.0 + 0.1 * ((i * 37 % 19) as f32 / 9.0 - 1.0))).collect();
            return Ok(Weight::bf16(request.shape, values)?);
        }
        // Tied: the head asks for the same name or falls back to it.
        let room = (*self.pool).as_ref().len() / 2 - len;
        self.next = if request.path.starts_with("ends") { 0 } else { (self.next + 7_919_011) % room.max(1) };
        Ok(Weight::from_bytes(DType::BF16, request.shape, self.pool.clone(), self.next * 2)?)
    }

    fn table(&mut self, _: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        let half = shape[0];
        Ok(Weight::f32(shape, (0..half).map(|j| 500_000f32.powf(-(j as f32) / half as f32)).collect())?)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        Ok(match path {
            "eps" => 1e-5,
            "score_scale" => 1.0 / (self.head_dim as f32).sqrt(),
            _ => 1.0,
        })
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Ok(false)
    }
}

/// The annotated function over the same weights.
type Eager = Box<dyn FnMut(Token, Pos) -> Tensor>;

fn load<W: WeightLayout + 'static>(
    dims: &BTreeMap<String, u32>,
    source: &mut Random,
    decode: fn(Token, Pos, &W, &mut KvCache) -> Tensor,
) -> Result<(Bindings, Eager)> {
    let weights: W = build(dims, source)?;
    let bindings = Bindings::new().layout("w", &weights);
    let mut small = dims.clone();
    small.insert("CONTEXT".into(), 256);
    let mut cache: KvCache = amk::layout::zeroed(&small)?;
    Ok((bindings, Box::new(move |token, pos| decode(token, pos, &weights, &mut cache))))
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "llama.smollm2_135m".into());
    let context: u32 = args.next().map_or(Ok(8192), |text| text.parse())?;
    let positions: Vec<u32> =
        args.next().unwrap_or_else(|| "0".into()).split(',').map(str::parse).collect::<Result<_, _>>()?;
    let gate: u32 = args.next().map_or(Ok(6), |text| text.parse())?;
    let (family, instance) = name.split_once('.').context("FAMILY.INSTANCE")?;
    let kernel = if family == "qwen3" { &qwen3::DECODE } else { &llama::DECODE };
    let mut instance = kernel.instance(instance)?.clone();
    instance.dims.insert("CONTEXT".into(), context);
    let dim = |name: &str| instance.dims[name] as usize;
    let pool = (dim("VOCAB") * dim("HIDDEN")).max(dim("FFN") * dim("HIDDEN")) + (16 << 20);
    let start = Instant::now();
    let mut source = Random::new(pool, instance.dims["HEAD_DIM"]);
    let (bindings, mut eager) = match family {
        "qwen3" => load(&instance.dims, &mut source, qwen3::decode)?,
        _ => load(&instance.dims, &mut source, llama::decode)?,
    };
    instance.floats = bindings.floats().clone();
    instance.flags = bindings.flags().clone();
    println!("{name}: weights made in {:.1} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let cache = std::env::temp_dir().join("amk-cubins");
    let mut vm =
        Vm::new(kernel, &instance, &bindings, amk_kernels::cuda::DEVICE, &cache, &VmOptions::default(), &mut |_| {})?;
    println!(
        "  {} tasks verified and loaded on {} in {:.1} s",
        vm.verified().program().tasks.len(),
        vm.target().name,
        start.elapsed().as_secs_f64()
    );
    let mut worst = 0.0f64;
    for pos in 0..gate {
        let token = 17 + 91 * pos;
        let expected = eager(Token(token), Pos(pos));
        let found = vm.step(token, pos)?;
        let (mut difference, mut norm) = (0.0f64, 0.0f64);
        for (a, b) in found.iter().zip(expected.data()) {
            difference += f64::from(a - b).powi(2);
            norm += f64::from(*b).powi(2);
        }
        worst = worst.max((difference / norm).sqrt());
    }
    println!("  logits of {gate} steps against the annotated function in f32: relative error {worst:.2e} at most");
    if worst.is_nan() || worst >= 0.1 {
        bail!("the logits are wrong: no time is shown");
    }
    for pos in positions {
        let steps = 64.min(context - pos);
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..7 {
            times.push(
                vm.run(&[1], pos, steps, &RunOptions::default(), &mut |_| {})?.time.as_secs_f64() * 1e6
                    / f64::from(steps),
            );
        }
        times.sort_by(f64::total_cmp);
        let bytes = (vm.weight_bytes() + vm.cache_bytes(pos + steps / 2)) as f64;
        println!(
            "  position {pos}: {:.1} us a token (fastest {:.1}, slowest {:.1}), {:.2} TB/s",
            times[3],
            times[0],
            times[6],
            bytes / times[3] / 1e6
        );
    }
    Ok(())
}
