//! `amk chat`.

mod command;
mod input;
mod interrupt;
mod talk;

use super::load::cpu_vm;
use super::model::SourceArgs;
use super::options::{Place, PlaceArgs, cuda_rows_vm, tell};
use super::sampling::SamplingArgs;
use amk::rows::PoolSize;
use amk_models::chat::Message;
use amk_run::text::Request;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use talk::Talk;

/// Chat with a model in the terminal.
///
/// Each line is a message, and `/help` lists commands. The model keeps what it has read: only new
/// tokens are computed. Without a terminal, standard input has a message a line. Without `--model`
/// it uses SmolLM2-135M-Instruct, fetched once into the cache folder.
#[derive(clap::Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    source: SourceArgs,
    /// The system message.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue a conversation that `/save` wrote.
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    load: Option<PathBuf>,
    /// Maximum new tokens of an answer [default: to the end of the context].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print only answers and errors.
    #[arg(short, long)]
    quiet: bool,
}

impl Chat {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let place = self.place.place(self.source.held.activations)?;
        self.sampling.check()?;
        let messages = match (&self.load, &self.system) {
            (Some(file), _) => talk::load(file)?,
            (None, system) => system.iter().map(|system| Message::new("system", system)).collect(),
        };
        let mut checkpoint = self.source.open()?;
        let Some(template) = checkpoint.chat_template.clone() else {
            bail!("{} has no chat template; `amk generate --raw` goes on from a text", checkpoint.path.display());
        };
        let (sampler, _) = self.sampling.of_checkpoint(&checkpoint)?;
        let request = Request {
            sampler,
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
            stop_tokens: checkpoint.stop_tokens(),
            ..Request::default()
        };
        let context = self.source.held.context(&checkpoint);
        let model = self.source.held.load(&mut checkpoint, context, self.quiet)?;
        // The last page of what is kept is copied.
        let pages = PoolSize::Sequences(vec![context, 1]);
        if !self.quiet {
            tell("/help lists commands; Ctrl-D ends");
        }
        let tokenizer = checkpoint.tokenizer()?;
        let talk = Talk { template, request, messages, context, quiet: self.quiet, last: None, answers: 0 };
        match place {
            Place::Cpu(schedule) => talk.run(cpu_vm(&model, &schedule, pages)?, tokenizer)?,
            Place::Cuda(schedule) => {
                talk.run(
                    cuda_rows_vm(&model, &schedule, self.source.held.weights.on_gpu(), &pages, self.quiet)?,
                    tokenizer,
                )?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
