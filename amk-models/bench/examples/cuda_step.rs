//! A decoder on the GPU against the annotated function: the error of its logits at each position,
//! then the time of a step.
//!
//!     cuda_step MODEL.INSTANCE|FILE [bf16|f32] [CONTEXT] [STEPS COMPARED] [POSITIONS TIMED,..]
//!
//! An instance has random weights at its true shapes. For a checkpoint it also prints 256 greedy
//! tokens, by the GPU and by the CPU VM.

use amk::ir::schedule::Schedule;
use amk::vm::cpu;
use amk::{Pos, Token};
use amk_bench::{fixed_tokens, relative_error};
use amk_cuda::{Precision, RunOptions, Vm, VmOptions};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, find_instance};
use amk_run::weight_format;
use anyhow::{Result, bail};
use std::path::Path;
use std::time::Instant;

/// Positions whose errors are shown; the largest of all is shown too.
const SHOWN: [u32; 3] = [0, 63, 64];
/// Greedy tokens of a checkpoint.
const TOKENS: u32 = 256;

fn random(name: &str, context: u32) -> Result<Model> {
    let (family, instance) = find_instance(name)?;
    Ok(Model::random(family, &instance, context, &amk::encoding::BF16, amk::tensor::Inputs::F32)?)
}

fn load(name: &str, precision: Precision, context: u32) -> Result<Model> {
    if !Path::new(name).exists() {
        return random(name, context);
    }
    let checkpoint = Checkpoint::open(Path::new(name))?;
    Ok(Model::load(&checkpoint.config, checkpoint.tensors, context as usize, weight_format(precision), &mut |_| {})?)
}

fn compare(model: &mut Model, vm: &mut Vm, steps: u32, tolerance: f64) -> Result<()> {
    let vocab = model.instance.dims["VOCAB"];
    let mut worst = 0f64;
    for (pos, token) in (0..).zip(fixed_tokens(steps, vocab)) {
        let expected = (model.eager)(Token(token), Pos(pos));
        let error = relative_error(vm.step(token, pos)?, expected.data());
        if SHOWN.contains(&pos) {
            println!("  position {pos}: relative error of the logits {error:.2e}");
        }
        worst = worst.max(error);
    }
    println!("  {steps} steps against the annotated function: relative error {worst:.2e} at most");
    if worst.is_nan() || worst >= tolerance {
        bail!("the logits are wrong: {worst:.2e} is not below {tolerance:.0e}");
    }
    Ok(())
}

/// Greedy tokens by the GPU, and by the CPU VM fed with its own.
fn greedy(model: &Model, vm: &mut Vm) -> Result<()> {
    let prompt = [504, 2365, 282, 260];
    let steps = prompt.len() as u32 - 1 + TOKENS;
    let found = vm.run(&prompt, 0, steps, &RunOptions::default(), &mut |_| {})?;
    let found = &found.tokens[prompt.len() - 1..];
    let schedule =
        Schedule { workers: std::thread::available_parallelism().map_or(1, |n| n.get() as u32), ..Schedule::default() };
    let verified = model.family.kernel.verified(&model.instance, Some(&schedule))?;
    let mut cpu = cpu::Vm::new(verified, &model.bindings)?;
    let mut tokens = prompt.to_vec();
    for pos in 0..steps as usize {
        let logits = cpu.step(Token(tokens[pos]), Pos(pos as u32))?;
        if pos + 1 >= prompt.len() {
            tokens.push(amk_kernels::argmax(logits).0);
        }
    }
    let same = tokens[prompt.len()..].iter().zip(found).take_while(|(a, b)| a == b).count();
    println!("  {same} of {TOKENS} greedy tokens match the CPU VM's, from the first on");
    if same != TOKENS as usize { bail!("the tokens differ") } else { Ok(()) }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "llama.smollm2_135m".into());
    let (precision, tolerance) = match args.next().as_deref() {
        Some("f32") => (Precision::F32, 1e-4),
        None | Some("bf16") => (Precision::BF16, 0.1),
        Some(other) => bail!("`{other}` is neither bf16 nor f32"),
    };
    let context: u32 = args.next().map_or(Ok(8192), |text| text.parse())?;
    let steps: u32 = args.next().map_or(Ok(6), |text| text.parse())?;
    let positions = args.next().unwrap_or_else(|| "0".into());
    let start = Instant::now();
    let mut model = load(&name, precision, context)?;
    println!("{name} {precision:?}: weights in {:.1} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let cache = std::env::temp_dir().join("amk-cubins");
    let options = VmOptions { precision, ..VmOptions::default() };
    let mut vm = Vm::new(model.family.kernel, &model.instance, &model.bindings, &cache, &options, &mut |_| {})?;
    let (tasks, target) = (vm.verified().program().tasks.len(), vm.target().name);
    println!("  {tasks} tasks verified and loaded on {target} in {:.1} s", start.elapsed().as_secs_f64());
    compare(&mut model, &mut vm, steps, tolerance)?;
    if Path::new(&name).exists() {
        greedy(&model, &mut vm)?;
    }
    for pos in positions.split(',').map(str::parse::<u32>) {
        let pos = pos?;
        let steps = 64.min(context - pos);
        let mut times = Vec::new();
        for _ in 0..7 {
            let run = vm.run(&[1], pos, steps, &RunOptions::default(), &mut |_| {})?;
            times.push(run.time.as_secs_f64() * 1e6 / f64::from(steps));
        }
        times.sort_by(f64::total_cmp);
        let bytes = (vm.weight_bytes() + vm.cache_bytes(pos + steps / 2)) as f64;
        let [fastest, median, slowest] = [0, 3, 6].map(|at| times[at]);
        let rate = bytes / median / 1e6;
        println!(
            "  position {pos}: {median:.1} us a token (fastest {fastest:.1}, slowest {slowest:.1}), {rate:.2} TB/s"
        );
    }
    Ok(())
}
