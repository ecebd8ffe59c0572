//! `amk bench`.

use super::generate::Device;
use super::options::{Weights, cuda_vm, default_threads, model_path, print};
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::measure::read_bandwidth;
use amk::vm::cpu::Vm;
use amk::vm::cuda::{RunOptions, VmOptions};
use amk::{Pos, Token};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Result, anyhow, bail};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Time decode steps.
///
/// No time is shown before the VM's logits equal those of the annotated function: on the CPU bit for bit, on a GPU within what
/// bf16 allows.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// A Hugging Face folder or a GGUF file [default: SmolLM2-135M-Instruct].
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Steps to time.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    steps: u32,
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Positions to time, on a GPU.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    positions: Vec<u32>,
    /// CPU threads [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// How weights are held in memory.
    #[arg(long, default_value = "auto")]
    weights: Weights,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Relative error of the logits that bf16 weights and activations may cause.
const BF16_TOLERANCE: f64 = 0.05;

/// Launches that are timed.
const RUNS: usize = 15;

/// Steps whose logits are compared before any is timed, at most.
const GATE_STEPS: u32 = 8;

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let path = model_path(self.model.as_ref())?;
        let checkpoint = Checkpoint::open(&path)?;
        let last = if self.device == Device::Cuda { self.positions.iter().copied().max().unwrap_or(0) } else { 0 };
        let context = (GATE_STEPS + last + self.steps) as usize;
        // The GPU holds weights in bf16: the annotated function it is compared with does too.
        let format = match (self.device, self.weights) {
            (Device::Cuda, Weights::Auto) => WeightFormat::BF16,
            (_, weights) => weights.into(),
        };
        let gate = gate_tokens(&checkpoint)?;
        let model = Model::load(&checkpoint.config, checkpoint.tensors, context, format, &mut |_| {})?;
        match self.device {
            Device::Cpu => self.cpu(&path, model, &gate),
            Device::Cuda => self.cuda(&path, model, &gate),
        }
    }

    fn cpu(&self, path: &Path, mut model: Model, gate: &[u32]) -> Result<ExitCode> {
        let workers = self.threads.unwrap_or_else(default_threads).max(1);
        let schedule = Schedule { workers, ..Schedule::default() };
        let program = model.family.kernel.lower(&model.instance, Some(&schedule))?.program;
        let verified = verify(program).map_err(|rejected| anyhow!("{rejected}"))?;
        let mut vm = Vm::new(verified, &model.bindings)?;
        for (pos, &token) in (0..).zip(gate) {
            let (token, pos) = (Token(token), Pos(pos));
            let expected = (model.eager)(token, pos);
            if vm.step(token, pos)?.data() != expected.data() {
                bail!("the VM's logits at position {} differ from the annotated function's: no time is shown", pos.0);
            }
        }
        let mut times: Vec<f64> = Vec::new();
        for pos in GATE_STEPS..GATE_STEPS + self.steps {
            let start = Instant::now();
            vm.step(Token(1), Pos(pos))?;
            times.push(start.elapsed().as_secs_f64());
        }
        let [p10, median, p90] = quantiles(times);
        // Of the embedding table one row is read; tied heads read the table itself.
        let bytes: usize = model
            .bindings
            .weights()
            .iter()
            .filter(|(name, _)| *name != "w.ends.embed")
            .map(|(_, weight)| weight.len() * weight.dtype().bytes() as usize)
            .sum();
        let rate = bytes as f64 / median;
        let ceiling = read_bandwidth(workers as usize);
        let row = [
            ("p10 ms", p10 * 1e3),
            ("median ms", median * 1e3),
            ("p90 ms", p90 * 1e3),
            ("tokens/s", 1.0 / median),
            ("GB/s", rate / 1e9),
            ("read ceiling GB/s", ceiling / 1e9),
            ("% of ceiling", 100.0 * rate / ceiling),
        ];
        let (shown, size) = (path.display(), bytes as f64 / 1e6);
        let title =
            format!("{shown}: {workers} threads, {size:.0} MB of weights, logits equal the annotated function's");
        self.report(&title, &[row.to_vec()])?;
        Ok(ExitCode::SUCCESS)
    }

    fn cuda(&self, path: &Path, mut model: Model, gate: &[u32]) -> Result<ExitCode> {
        let mut vm = cuda_vm(&model, &VmOptions::default(), self.json)?;
        let mut worst = 0.0f64;
        for (pos, &token) in (0..).zip(gate) {
            let expected = (model.eager)(Token(token), Pos(pos));
            worst = worst.max(relative_error(vm.step(token, pos)?, expected.data()));
        }
        if worst.is_nan() || worst > BF16_TOLERANCE {
            bail!("the GPU's logits are {worst:.4} away from the annotated function's: no time is shown");
        }
        let options = RunOptions::default();
        let mut rows = Vec::new();
        for &pos in &self.positions {
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let run = vm.run(&[1], pos, self.steps, &options, &mut |_| {})?;
                times.push(run.time.as_secs_f64() / f64::from(self.steps));
            }
            let [p10, median, p90] = quantiles(times);
            let bytes = vm.weight_bytes() + vm.cache_bytes(pos + self.steps / 2);
            let rate = bytes as f64 / median / 1e9;
            rows.push(vec![
                ("position", f64::from(pos)),
                ("p10 us", p10 * 1e6),
                ("median us", median * 1e6),
                ("p90 us", p90 * 1e6),
                ("tokens/s", 1.0 / median),
                ("GB/s", rate),
            ]);
        }
        let title = format!(
            "{} on {}: {} steps a launch, logits within {worst:.4} of the annotated function's",
            path.display(),
            vm.target().name,
            self.steps
        );
        self.report(&title, &rows)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, title: &str, rows: &[Vec<(&str, f64)>]) -> Result<()> {
        if self.json {
            let objects: Vec<serde_json::Map<String, serde_json::Value>> = rows
                .iter()
                .map(|row| row.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect())
                .collect();
            return print(&format!("{}\n", serde_json::to_string_pretty(&objects)?));
        }
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        if let Some(first) = rows.first() {
            table.set_header(first.iter().map(|(name, _)| *name));
        }
        for row in rows {
            table.add_row(row.iter().map(|(_, value)| format!("{value:.2}")));
        }
        print(&format!("{title}\n{table}\n"))
    }
}

/// Tokens of ordinary text: special tokens, which a text starts with at most, have activations far outside the usual range.
fn gate_tokens(checkpoint: &Checkpoint) -> Result<Vec<u32>> {
    let text = "The gate compares logits of a few words before any time is shown.";
    let mut tokens = checkpoint.tokenizer()?.encode(text, SpecialTokens::AsWritten)?;
    tokens.truncate(GATE_STEPS as usize);
    Ok(tokens)
}

/// The tenth, fiftieth and ninetieth percentile.
fn quantiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [0.1, 0.5, 0.9].map(|q| times.get(((times.len() as f64 - 1.0) * q) as usize).copied().unwrap_or(f64::NAN))
}

/// `|found - expected| / |expected|`.
fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| square(f64::from(a - b))).sum();
    let norm: f64 = expected.iter().map(|&b| square(f64::from(b))).sum();
    (difference / norm).sqrt()
}
