//! Models in memory, and VMs for them.

use crate::options::{CpuSchedule, Weights, progress_bar};
use amk::vm::cpu;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Conversion, Model};
use amk_run::open::rows_vm;
use anyhow::Result;

/// Positions of the KV cache where the user asks for no number and the model has more.
const DEFAULT_CONTEXT: usize = 2048;

/// How a model is held in memory.
#[derive(clap::Args)]
pub(crate) struct LoadArgs {
    /// Positions of the KV cache [default: the model's, at most 2048].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// How weights are held in memory: `native` (as in the file), f32, bf16, Q8_0, Q4_0, ..
    #[arg(long, value_name = "ENCODING", default_value = "native")]
    pub(crate) weights: Weights,
}

impl LoadArgs {
    /// Positions of the KV cache.
    pub(crate) fn context(&self, checkpoint: &Checkpoint) -> usize {
        self.context.map_or(DEFAULT_CONTEXT.min(checkpoint.config.context_len), |asked| asked as usize)
    }

    /// Loads the weights of a checkpoint, with a progress bar.
    pub(crate) fn load(&self, checkpoint: &mut Checkpoint, context: usize, quiet: bool) -> Result<Model> {
        let bar = progress_bar("loading weights", quiet);
        let tensors = std::mem::take(&mut checkpoint.tensors);
        let model = Model::load(&checkpoint.config, tensors, context, self.weights.into(), &mut |done| {
            bar.set_position((done * 100.0) as u64);
        });
        bar.finish_and_clear();
        let model = model?;
        if !quiet {
            report(&model.conversion);
        }
        Ok(model)
    }
}

/// Says how far converted weights are from the file's.
fn report(conversion: &Conversion) {
    let error = conversion.deviation.relative();
    if error > 0.0 {
        eprintln!(
            "converted {} tensors, rms error {:.2}% of the rms of the weights",
            conversion.tensors,
            100.0 * error
        );
    }
}

/// A CPU VM with rows and so many pages.
pub(crate) fn cpu_vm(model: &Model, schedule: &CpuSchedule, pages: usize) -> Result<cpu::Vm> {
    let verified = model.family.kernel.verified(&model.instance, Some(&schedule.with_rows(model)?))?;
    Ok(rows_vm(verified, model, pages)?)
}
