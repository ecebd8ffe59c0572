//! Models in memory, and VMs for them.

use crate::options::{Activations, CpuSchedule, Weights, progress_bar};
use amk::rows::PoolSize;
use amk::vm::cpu;
use amk_models::chain::Chain;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Conversion, Model, Output, Rounding, WeightFormat, WeightUse};
use amk_models::weights::TensorSet;
use amk_run::open::rows_vm;
use anyhow::{Context as _, Result, anyhow};

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
    /// Inputs of products on a CPU: f32, or q8, rounded to signed bytes, which makes prompts
    /// faster.
    #[arg(long, value_name = "INPUTS", default_value = "f32")]
    pub(crate) activations: Activations,
}

impl LoadArgs {
    /// Positions of the KV cache.
    pub(crate) fn context(&self, checkpoint: &Checkpoint) -> usize {
        self.context.map_or(DEFAULT_CONTEXT.min(checkpoint.config.context_len), |asked| asked as usize)
    }

    /// Loads the weights of a checkpoint, with a progress bar.
    pub(crate) fn load(&self, checkpoint: &mut Checkpoint, context: usize, quiet: bool) -> Result<Model> {
        self.load_for(Output::Logits, checkpoint, context, quiet)
    }

    /// Like [`Self::load`], with the weights that this output needs.
    pub(crate) fn load_for(
        &self,
        output: Output,
        checkpoint: &mut Checkpoint,
        context: usize,
        quiet: bool,
    ) -> Result<Model> {
        let bar = progress_bar("loading weights", quiet);
        let tensors = std::mem::take(&mut checkpoint.tensors);
        let unread = tensors.clone();
        let weights = WeightUse { format: self.weights.into(), inputs: self.activations.into(), output };
        let model = Model::load(&checkpoint.config, tensors, context, weights, &mut |done| {
            bar.set_position((done * 100.0) as u64);
        });
        bar.finish_and_clear();
        let model = model.map_err(|error| match lacks_head(checkpoint, &unread) {
            true => anyhow!("{}; it has no output head: only `amk embed` runs it", Chain(&error)),
            false => error.into(),
        });
        let model = model.with_context(|| checkpoint.path.display().to_string())?;
        if !quiet {
            report(&model.conversion, self.weights.into());
            report_rounding(&model.rounding);
            if checkpoint.config.quantises_activations() {
                eprintln!("{UNQUANTISED}");
            }
            let left = &checkpoint.generation.left;
            if !left.is_empty() {
                eprintln!("not applied, of the model's generation_config.json: {}", left.join(", "));
            }
        }
        Ok(model)
    }
}

/// Whether a checkpoint lacks its output head alone.
fn lacks_head(checkpoint: &Checkpoint, tensors: &TensorSet) -> bool {
    let runs = |output| Model::check(&checkpoint.config, tensors.clone(), output).is_ok();
    !runs(Output::Logits) && runs(Output::States)
}

/// The notice for a folder whose author quantises activations, too.
pub(crate) const UNQUANTISED: &str =
    "this model was made for quantised activations; they stay unquantised here, which only adds precision";

/// Says how far converted weights are from the file's, and which could not be converted.
fn report(conversion: &Conversion, format: WeightFormat) {
    if let (WeightFormat::As(encoding), 1..) = (format, conversion.left) {
        let (left, block) = (conversion.left, encoding.block);
        eprintln!("{left} matrices stay as in the file: their rows are not whole blocks of {block} ({encoding})");
    }
    let error = conversion.deviation.relative();
    if error > 0.0 {
        eprintln!(
            "converted {} tensors, rms error {:.2}% of the rms of the weights",
            conversion.tensors,
            100.0 * error
        );
    }
}

/// Says which matrices take their inputs in f32 although others do not.
fn report_rounding(Rounding { matrices, others, encodings }: &Rounding) {
    if *matrices > 0 && *others > 0 {
        let encodings: Vec<_> = encodings.iter().copied().collect();
        let (all, encodings) = (matrices + others, encodings.join(" and "));
        eprintln!("{others} of {all} matrices take their inputs in f32: they are in {encodings}");
    }
}

/// A CPU VM with rows and so many pages.
pub(crate) fn cpu_vm(model: &Model, schedule: &CpuSchedule, pages: PoolSize) -> Result<cpu::Vm> {
    let verified = model.family.kernel.verified(&model.instance, Some(&schedule.with_rows(model)?))?;
    Ok(rows_vm(verified, model, pages)?)
}
