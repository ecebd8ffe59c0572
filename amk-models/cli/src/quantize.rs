//! `amk quantize`.

use crate::load::{LoadArgs, cpu_vm};
use crate::options::{AllowArg, CpuSchedule, ScheduleArg, ThreadsArg, print, progress_bar, table_of, tell};
use crate::perplexity::{margin, read};
use crate::signals::Signals;
use amk::rows::PoolSize;
use amk::session::Session;
use amk::{Encoding, Token};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::Model;
use amk_models::tokenizer::SpecialTokens;
use amk_models::weights::{FileForm, StoredTensor};
use amk_quantize::{
    Calibration, Method, Output, Quantized, Recipe, Rest, Stage, Task, convert_rest, float_type, is_projection, known,
    quantize, quantize_calibrated, remove_unfinished, size, size_of_result,
};
use amk_run::named::NamedModel;
use amk_run::perplexity::{Perplexity, Windows, perplexity};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Quantise a model's weights.
///
/// Integers in groups (int4:128, int8:32) are written into a folder of compressed-tensors, blocks
/// of GGML (`Q4_0`, `Q4_K`) into a GGUF file. The matrices of the layers are quantised; embeddings
/// and head stay as they are, in a folder as bf16.
#[derive(clap::Args)]
pub(crate) struct Quantize {
    /// A Hugging Face folder, a GGUF file, or a model of the hub: `owner/name[:file][@revision]`.
    model: NamedModel,
    #[arg(long, value_name = "ENCODING", value_delimiter = ',', required = true, help = to_help())]
    to: Vec<String>,
    /// The method: `rtn`, `search` or `gptq`, which needs a text [default: search, or rtn for
    /// encodings with no other].
    #[arg(long)]
    method: Option<Method>,
    /// A text on which the outputs should stay close to the original.
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// A text on which the perplexity is measured [default: the second half of the calibration
    /// text].
    #[arg(long, value_name = "FILE")]
    evaluate: Option<PathBuf>,
    /// Use at most this many tokens of each text.
    #[arg(short = 'n', long, value_name = "N", default_value = "16384")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..))]
    tokens: u32,
    /// Store embeddings and head in this encoding.
    #[arg(long, value_name = "ENCODING")]
    embeddings: Option<String>,
    /// Memory for the sums over inputs, in MiB; if they need more, the text runs several times.
    #[arg(long, value_name = "MIB", default_value = "4096")]
    memory: u32,
    /// Where to write; must not exist yet.
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    #[command(flatten)]
    allow: AllowArg,
    #[command(flatten)]
    held: LoadArgs,
    #[command(flatten)]
    threads: ThreadsArg,
    /// Print only the result and errors.
    #[arg(short, long)]
    quiet: bool,
}

fn to_help() -> String {
    let known = known().join(", ");
    format!("The encoding, or several: each matrix gets the first whose blocks divide its rows; of {known}")
}

/// The texts as tokens.
struct Texts {
    calibration: Vec<Token>,
    evaluation: Vec<Token>,
}

impl Quantize {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let recipe = self.recipe()?;
        let path = self.model.path()?;
        let mut source = self.allow.open(&path)?;
        let used = Model::used(&source.config, source.tensors.clone());
        source.tensors.remove_spare(&used.with_context(|| path.display().to_string())?);
        let recipe = recipe.with_scales(float_type(&source));
        let output = Output::new(&source, recipe.form(), &self.output)?;
        let rest = self.rest(&recipe)?;
        let tasks = tasks(&source, &recipe)?;
        for tensor in source.tensors.iter().filter(|tensor| !is_projection(tensor)) {
            rest.encoding(tensor)?;
        }
        let texts = self.texts(&source)?;
        let mut model = match texts.calibration.len() + texts.evaluation.len() {
            0 => None,
            _ => {
                let mut checkpoint = self.allow.open(&path)?;
                let context = self.held.context(&checkpoint);
                Some(self.held.load(&mut checkpoint, context, self.quiet)?)
            }
        };
        let before = self.perplexity(model.as_ref(), &texts.evaluation, "perplexity before")?;
        let mut quantized = self.quantize(tasks, recipe.method(), model.as_ref(), &texts.calibration)?;
        convert_rest(&source.tensors, rest, &mut quantized)?;
        if let Some(model) = &mut model {
            model.bindings = quantized.bind(model);
        }
        let after = self.perplexity(model.as_ref(), &texts.evaluation, "perplexity after")?;
        remove_when_ended()?;
        let bar = progress_bar("writing", self.quiet);
        let written = output.write(&quantized, &mut |done| bar.set_position((done * 100.0) as u64));
        bar.finish_and_clear();
        written?;
        self.report(&quantized, size(&source.tensors), before.zip(after))?;
        Ok(ExitCode::SUCCESS)
    }

    fn recipe(&self) -> Result<Recipe> {
        let names: Vec<&str> = self.to.iter().map(String::as_str).collect();
        if self.method == Some(Method::Gptq) && self.calibrate.is_none() {
            bail!("`gptq` needs a text to calibrate on: --calibrate FILE");
        }
        let recipe = Recipe::new(&names, self.method)?;
        if self.output == Path::new("-") {
            bail!("a checkpoint is not written to standard output; give a path: -o PATH");
        }
        let is_gguf = self.output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        if is_gguf && recipe.form() == FileForm::Folder {
            let (to, path) = (self.to.join(","), self.output.display());
            bail!(
                "{to} is written into a folder, not into a file as {path}; name a folder, or take an encoding of GGUF"
            );
        }
        Ok(recipe)
    }

    fn rest(&self, recipe: &Recipe) -> Result<Rest> {
        let ends = self.embeddings.as_deref().map(|name| match Encoding::find(name) {
            Some(encoding) if encoding.encode.is_some() => Ok(encoding),
            _ => bail!("nothing encodes embeddings as `{name}`"),
        });
        Ok(Rest { form: recipe.form(), ends: ends.transpose()? })
    }

    fn texts(&self, source: &Checkpoint) -> Result<Texts> {
        let tokens = |path: &PathBuf| -> Result<Vec<Token>> {
            let tokens = source.tokenizer()?.encode(&read(path)?, SpecialTokens::Add)?;
            Ok(tokens.into_iter().map(Token).collect())
        };
        let most = self.tokens as usize;
        let mut calibration = self.calibrate.as_ref().map(tokens).transpose()?.unwrap_or_default();
        let mut evaluation = match &self.evaluate {
            Some(path) => tokens(path)?,
            None => calibration.split_off(calibration.len().div_ceil(2)),
        };
        calibration.truncate(most);
        evaluation.truncate(most);
        if self.calibrate.is_some() && (calibration.is_empty() || self.evaluate.is_none() && evaluation.len() < 2) {
            bail!("the text is too short: half of it calibrates, the other half measures");
        }
        if let Some(path) = self.evaluate.as_ref().filter(|_| evaluation.len() < 2) {
            bail!("{}: a text of fewer than 2 tokens has none to expect", path.display());
        }
        Ok(Texts { calibration, evaluation })
    }

    fn schedule(&self) -> Result<CpuSchedule> {
        ScheduleArg::default().for_cpu(self.threads)
    }

    fn quantize(&self, tasks: Vec<Task>, method: Method, model: Option<&Model>, text: &[Token]) -> Result<Quantized> {
        let bar = progress_bar("quantising", self.quiet);
        let mut progress = |stage: Stage, done: f64| {
            bar.set_message(match stage {
                Stage::Calibrating => "calibrating",
                Stage::Rounding => "quantising",
            });
            bar.set_position((done * 100.0) as u64);
        };
        let quantized = match model.filter(|_| !text.is_empty()) {
            None => quantize(tasks, method, &mut progress),
            Some(model) => {
                let calibration = Calibration::new(model, &self.schedule()?.with_rows(model)?, text)?;
                quantize_calibrated(tasks, method, &calibration, (self.memory as usize) << 20, &mut progress)
            }
        };
        bar.finish_and_clear();
        Ok(quantized?)
    }

    /// The perplexity of the model as it is bound now; `None` without a text.
    fn perplexity(&self, model: Option<&Model>, text: &[Token], what: &'static str) -> Result<Option<Perplexity>> {
        let Some(model) = model.filter(|_| text.len() > 1) else { return Ok(None) };
        let context = model.instance.dims.get("CONTEXT").map_or(text.len(), |&context| context as usize);
        let windows = Windows { context, stride: (context / 2).max(1) };
        let vm = cpu_vm(model, &self.schedule()?, PoolSize::sequences(1, context))?;
        let bar = progress_bar(what, self.quiet);
        let mut see = |so_far: &Perplexity| bar.set_position((so_far.tokens * 100 / text.len()) as u64);
        let found = perplexity(&mut Session::new(vm), text, windows, &mut see);
        bar.finish_and_clear();
        Ok(Some(found?))
    }

    fn report(&self, quantized: &Quantized, before: u64, measured: Option<(Perplexity, Perplexity)>) -> Result<()> {
        if !self.quiet {
            let mut table = table_of(["tensors", "rms error, % of the weights' rms"]);
            for (kind, deviation) in &quantized.deviations {
                table.add_row([kind.clone(), format!("{:.2}", 100.0 * deviation.relative())]);
            }
            tell(&table.to_string());
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let after = size_of_result(&self.output);
        let mut text = format!("size {:.1} MiB, before {:.1} MiB\n", mib(after), mib(before));
        text.push_str(&match measured {
            Some((before, after)) => format!(
                "perplexity {:.4}, before {:.4}{}: {:.4} of it, over {} tokens\n",
                after.value(),
                before.value(),
                margin(&before),
                after.value() / before.value(),
                after.tokens
            ),
            None => "perplexity not measured: that takes a text, --evaluate FILE\n".to_owned(),
        });
        print(&text)
    }
}

/// From now on a signal ends the process with nothing left of a result that is being written.
fn remove_when_ended() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _in_it = runtime.enter();
        Signals::listen()?
    };
    std::thread::spawn(move || {
        let code = runtime.block_on(signals.next());
        let _unfinished = remove_unfinished();
        std::process::exit(code);
    });
    Ok(())
}

/// The tensors to quantise.
fn tasks(source: &Checkpoint, recipe: &Recipe) -> Result<Vec<Task>> {
    let projections = source.tensors.iter().filter(|tensor| is_projection(tensor));
    let task = |tensor: &StoredTensor| Ok(Task { encoding: recipe.encoding(tensor)?, tensor: tensor.clone() });
    projections.map(task).collect()
}
