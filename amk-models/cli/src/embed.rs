//! `amk embed`.

use crate::model::SourceArgs;
use crate::options::{CpuSchedule, ScheduleArg, ThreadsArg, read_prompt, write};
use amk::rows::PoolSize;
use amk::vm::cpu;
use amk_models::model::{Model, Output};
use amk_models::tokenizer::SpecialTokens;
use amk_run::embedding::{Embedder, Pooling, hidden};
use amk_run::open::rows_vm;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the embeddings of texts.
///
/// An embedding is what the model's last norm makes of a text's tokens, pooled to one vector of
/// length 1. Each text has a line of JSON with its `index`, `embedding` and number of `tokens`.
/// It runs on the CPU.
#[derive(clap::Args)]
pub(crate) struct Embed {
    /// The texts.
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    texts: Vec<String>,
    /// A file with one text per line; `-` reads standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with = "texts")]
    file: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    /// How the hidden states of a text's tokens become one vector.
    #[arg(long, value_name = "HOW", default_value = "mean")]
    pooling: PoolingArg,
    #[command(flatten)]
    threads: ThreadsArg,
    /// Print only the embeddings and errors.
    #[arg(short, long)]
    quiet: bool,
}

/// How states are pooled.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum PoolingArg {
    /// Their mean.
    Mean,
    /// The state of the last token.
    Last,
}

impl From<PoolingArg> for Pooling {
    fn from(pooling: PoolingArg) -> Self {
        match pooling {
            PoolingArg::Mean => Self::Mean,
            PoolingArg::Last => Self::Last,
        }
    }
}

/// An embedder on a CPU for texts of up to `context` tokens.
pub(crate) fn embedder(
    model: &Model,
    schedule: &CpuSchedule,
    context: usize,
    pooling: PoolingArg,
) -> Result<Embedder<cpu::Vm>> {
    let program = hidden(model, &schedule.with_rows(model)?)?;
    Ok(Embedder::of(rows_vm(program, model, PoolSize::sequences(1, context))?, pooling.into()))
}

impl Embed {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let texts = match &self.file {
            Some(file) => read_prompt(file)?.lines().map(str::to_owned).collect(),
            None => self.texts.clone(),
        };
        let mut checkpoint = self.source.open()?;
        let context = self.source.held.context(&checkpoint);
        let model = self.source.held.load_for(Output::States, &mut checkpoint, context, self.quiet)?;
        let schedule = ScheduleArg::default().for_cpu(self.threads)?;
        let (tokenizer, mut embedder) = (checkpoint.tokenizer()?, embedder(&model, &schedule, context, self.pooling)?);
        for (index, text) in texts.iter().enumerate() {
            let tokens = tokenizer.encode(text, SpecialTokens::Add)?;
            if tokens.is_empty() {
                bail!("text {} has no tokens", index + 1);
            }
            let embedding = embedder.embed(&tokens).with_context(|| format!("text {}", index + 1))?;
            let line = json!({ "index": index, "embedding": embedding, "tokens": tokens.len() });
            write(&format!("{line}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
