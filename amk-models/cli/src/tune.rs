//! `amk tune`.

use super::options::{ScheduleArg, Weights, cuda_vm, print, progress_bar};
use super::positions::{last_start, starts};
use super::subject::{Subject, SubjectArgs};
use amk::ir::schedule::PartialSchedule;
use amk_bench::tune::{Device, Log, Row, Saved, Store, search};
use amk_bench::{Gate, Reference};
use amk_models::cache::Cache;
use amk_models::model::WeightFormat;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Positions to time where the user names none.
const DEFAULT_POSITIONS: [u32; 2] = [0, 8192];

/// Search for the best schedule of a model on a GPU.
///
/// Tries neighbours of the best schedule so far, in the order of the cost model's predictions. Each
/// trial is verified, its logits are compared with the first schedule's, which were compared with
/// the annotated function's, and it is timed in turn with the best so far: 1% faster is kept. Every
/// trial is a line of the log, so a search that was stopped resumes. The best schedule is saved,
/// and `generate`, `bench` and `trace` use it from then on.
#[derive(clap::Args)]
pub(crate) struct Tune {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Positions to time [default: 0,8192, or the last from which the steps fit the model's
    /// context].
    #[arg(long, value_name = "P", value_delimiter = ',')]
    positions: Vec<u32>,
    /// How weights are held in memory: `native` (as in the file), bf16, Q8_0, Q4_0, ..; of
    /// `--random` shapes native is bf16.
    #[arg(long, value_name = "ENCODING", default_value = "native")]
    weights: Weights,
    /// Maximum number of trials, including those in the log.
    #[arg(long, value_name = "N", default_value_t = 64)]
    trials: usize,
    /// Steps per launch.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Launches per schedule and position in a trial.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    samples: u16,
    /// The log [default: next to the schedule in the cache folder].
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Save the schedule here instead of in the cache folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print only the result.
    #[arg(short, long)]
    quiet: bool,
}

impl Tune {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let opened = self.subject.one()?.open()?;
        let limit = opened.positions();
        if limit < Reference::POSITIONS {
            bail!(
                "schedules are compared at positions up to {}; the model's context ends before",
                Reference::POSITIONS
            );
        }
        let positions = starts(&self.positions, &DEFAULT_POSITIONS, last_start(self.steps, limit)?)?;
        let last = positions.iter().copied().max().unwrap_or(0);
        let context = (last + self.steps).max(Reference::POSITIONS);
        let own = ScheduleArg { schedule: Some("default".into()), cache: None }.for_gpu()?;
        let Subject { name, mut model, gate } = opened.load(context, WeightFormat::from(self.weights))?;
        let (mut vm, _) = cuda_vm(&model, &own, self.weights.on_gpu(), self.quiet)?;
        let passed = Gate::of(&mut vm, &mut model, &gate)?;
        if !passed.passed() {
            bail!("{name}: the logits are {:.4} away from the annotated function's: nothing is searched", passed.error);
        }
        let cache = Cache::from_env()?;
        let (target, start) = (vm.target(), vm.schedule().clone());
        let file = Store::at(cache.schedules()).file(&model, target);
        let mut log = Log::open(self.log.as_ref().unwrap_or(&file.with_extension("jsonl")))?;
        let samples = usize::from(self.samples);
        let mut device = Device::new(&model, vm, &cache.compiled(), &positions, self.steps, samples)?;
        let bar = progress_bar("searching", self.quiet);
        let found = search(start, &mut device, &mut log, self.trials, &mut |row, before| {
            bar.set_position(100 * (before as u64 + 1) / self.trials.max(1) as u64);
            if !self.quiet {
                // A bar is redrawn below; without a terminal there is none.
                bar.suspend(|| eprintln!("{:3} {}", before + 1, summary(row)));
            }
        });
        bar.finish_and_clear();
        let found = found?;
        let best = PartialSchedule::from(found.best);
        let line = serde_json::to_string(&best)?;
        let saved = Saved { schedule: best, model: name.clone(), gain: found.gain, positions };
        let path = self.output.unwrap_or(file);
        Store::save(&path, &saved)?;
        print(&format!(
            "{name} on {}: {} trials, {} of them measured now; {:+.1}% over the GPU's own schedule\n{}\n{}\n",
            target.name,
            found.trials,
            found.measured,
            100.0 * found.gain,
            line,
            path.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A trial in a line.
fn summary(row: &Row) -> String {
    let changes = row.candidate.changes(&row.incumbent);
    let changed = changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(why) = &row.refused {
        return format!("{changed}: refused, {why}");
    }
    let us = |times: &[f64]| times.iter().map(|us| format!("{us:.1}")).collect::<Vec<_>>().join(" ");
    let verdict = if row.kept { "kept" } else { "reverted" };
    let (before, after) = (us(&row.incumbent_us), us(&row.candidate_us));
    format!("{changed}: {before} -> {after} us, {:+.2}%, {verdict}", 100.0 * row.gain)
}
