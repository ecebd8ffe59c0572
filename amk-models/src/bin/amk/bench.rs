//! `amk bench`.

use super::options::{Weights, default_threads, model_path, print};
use amk::ir::schedule::Schedule;
use amk::ir::verify::verify;
use amk::measure::read_bandwidth;
use amk::vm::cpu::Vm;
use amk::{Pos, Token};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::Model;
use anyhow::{Result, anyhow, bail};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Time decode steps.
///
/// No time is shown before the VM's logits equal those of the annotated function, bit for bit.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// A Hugging Face folder or a GGUF file [default: SmolLM2-135M-Instruct].
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Steps to time.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    steps: u32,
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

/// Steps whose logits are compared before any is timed.
const GATE_STEPS: u32 = 4;

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let path = model_path(self.model.as_ref())?;
        let checkpoint = Checkpoint::open(&path)?;
        let context = (GATE_STEPS + self.steps) as usize;
        let workers = self.threads.unwrap_or_else(default_threads).max(1);
        let mut model = Model::load(&checkpoint.config, checkpoint.tensors, context, self.weights.into(), &mut |_| {})?;
        let schedule = Schedule { workers, ..Schedule::default() };
        let program = model.family.kernel.lower(&model.instance, Some(&schedule))?.program;
        let verified = verify(program).map_err(|rejected| anyhow!("{rejected}"))?;
        let mut vm = Vm::new(verified, &model.bindings)?;
        for pos in 0..GATE_STEPS {
            let (token, pos) = (Token(1 + pos), Pos(pos));
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
        times.sort_by(f64::total_cmp);
        let at = |q: f64| times.get(((times.len() as f64 - 1.0) * q) as usize).copied().unwrap_or(f64::NAN);
        // Of the embedding table one row is read; tied heads read the table itself.
        let bytes: usize = model.bindings.weights().iter().filter(|(name, _)| *name != "w.ends.embed").map(|(_, weight)| weight.len() * weight.dtype().bytes() as usize).sum();
        let rate = bytes as f64 / at(0.5);
        let ceiling = read_bandwidth(workers as usize);
        let row = [("p10 ms", at(0.1) * 1e3), ("median ms", at(0.5) * 1e3), ("p90 ms", at(0.9) * 1e3), ("tokens/s", 1.0 / at(0.5)), ("GB/s", rate / 1e9), ("read ceiling GB/s", ceiling / 1e9), ("% of ceiling", 100.0 * rate / ceiling)];
        if self.json {
            let fields: serde_json::Map<_, _> = row.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
            print(&format!("{}\n", serde_json::to_string_pretty(&fields)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY).set_header(row.iter().map(|(name, _)| *name));
        table.add_row(row.iter().map(|(_, value)| format!("{value:.2}")));
        let (path, size) = (path.display(), bytes as f64 / 1e6);
        print(&format!("{path}: {workers} threads, {size:.0} MB of weights, logits equal the annotated function's\n{table}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
