//! `amk generate`.

mod language;
mod line;
mod prompts;
mod texts;

use super::load::cpu_vm;
use super::model::SourceArgs;
use super::options::{DIM, GpuSchedule, PARALLEL, Place, PlaceArgs, cuda_rows_vm, cuda_vm, paint, tell};
use super::sampling::SamplingArgs;
use amk::rows::RowVm;
use amk_cuda as cuda;
use amk_models::chat::ChatTemplate;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::Model;
use amk_models::tokenizer::Tokenizer;
use amk_run::batch::{Batch, Event, TextId};
use amk_run::generate::{generate, generate_on_device, on_device};
use amk_run::grammar::Grammar;
use amk_run::sampler::SamplerConfig;
use amk_run::text::{Piece, Request, Speculate};
use anyhow::{Result, bail};
use clap::builder::NonEmptyStringValueParser;
use language::LanguageArgs;
pub(crate) use line::LineOptions;
use prompts::Prompt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use texts::Texts;

/// Generate text.
///
/// Without `--model` it uses SmolLM2-135M-Instruct, fetched once into the cache folder. A model
/// with a chat template answers the prompt as a message; with `--raw`, or without a template, it
/// goes on from the prompt.
#[derive(clap::Args)]
pub(crate) struct Generate {
    /// The message, or the text to continue; `-` reads standard input, without the newline at its
    /// end.
    #[arg(required_unless_present_any = ["prompts", "file"])]
    prompt: Option<String>,
    /// Read the prompt from a file, or from standard input for `-`, without the newline at its end.
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,
    /// Several prompts, one per line; in a `.jsonl` file each line is a string, `{"prompt": ..}` or
    /// `{"messages": [..]}`; `-` reads lines from standard input. Each text has its own seed,
    /// counted up from --seed.
    ///
    /// An object may have its own options, named as in OpenAI's API: `max_tokens`, `stop`,
    /// `ignore_eos`, `temperature`, `top_k`, `top_p`, `min_p`, `repetition_penalty`,
    /// `presence_penalty`, `frequency_penalty` and `seed`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "file"])]
    prompts: Option<PathBuf>,
    /// Maximum number of texts generated at a time [default: as many as there are pages for,
    /// enough for the 8 longest].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    parallel: Option<u32>,
    /// Print a line of JSON for each text: its number, prompt, text, tokens, times and why it
    /// ended.
    #[arg(long)]
    json: bool,
    /// With --json: also the log-probability of each token.
    #[arg(long, requires = "json")]
    logprobs: bool,
    /// Guess the next tokens and check several at once; the text is the same.
    ///
    /// `lookup`: what followed the same tokens before, in the prompt or the text. Otherwise a draft
    /// model: a folder or a GGUF file with the same vocabulary.
    #[arg(long, value_name = "lookup|PATH")]
    speculate: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    /// Continue the prompt as it is, without the model's chat template.
    #[arg(long, conflicts_with_all = ["chat", "system"])]
    raw: bool,
    /// Refuse a model without a chat template.
    #[arg(long)]
    chat: bool,
    /// The system message.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Maximum number of new tokens.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32))]
    max_tokens: u32,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// A text that ends the answer; may be given several times.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    #[command(flatten)]
    language: LanguageArgs,
    /// Continue after the model's end-of-text token.
    #[arg(long)]
    ignore_eos: bool,
    /// Show the text of special tokens, including the one that ends the text.
    #[arg(long)]
    show_special: bool,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print only the text, errors and the progress of a download.
    #[arg(short, long)]
    quiet: bool,
}

impl Generate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        // Whatever can be refused without the model is.
        let place = self.place.place(self.source.held.activations)?;
        self.sampling.check()?;
        let mut checkpoint = self.source.open()?;
        let prompts = self.all_prompts(&checkpoint)?;
        let requests = self.requests(&checkpoint, &prompts)?;
        let context = self.source.held.context(&checkpoint);
        let model = self.source.held.load(&mut checkpoint, context, self.quiet)?;
        let tokenizer = checkpoint.tokenizer()?;
        let mut texts = Texts::new(&prompts, tokenizer, context, self.json, self.quiet);
        let pages = texts.pages(self.parallel.unwrap_or(PARALLEL) as usize, &requests);
        let alone = prompts.len() == 1 && self.speculate.is_none();
        match place {
            Place::Cpu(schedule) => {
                self.batch(|model| cpu_vm(model, &schedule, pages.clone()), &model, tokenizer, requests, &mut texts)?;
            }
            Place::Cuda(schedule) if !alone => {
                let vm = |model: &Model| {
                    cuda_rows_vm(model, &schedule, self.source.held.weights.on_gpu(), &pages, self.quiet)
                };
                self.batch(vm, &model, tokenizer, requests, &mut texts)?;
            }
            // One text is fastest by itself.
            Place::Cuda(schedule) => {
                let mut vm = self.cuda(&model, &schedule)?;
                for (number, (prompt, request)) in prompts.iter().zip(requests).enumerate() {
                    let see = &mut |piece: Piece<'_>| texts.text(number, piece);
                    let generated = match on_device(&request) {
                        true => generate_on_device(&mut vm, tokenizer, &prompt.tokens, request, see)?,
                        false => generate(&mut vm, tokenizer, &prompt.tokens, request, see)?,
                    };
                    texts.ended(number, Ok(generated))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes all texts on VMs with rows, some of them at a time.
    fn batch<V: RowVm>(
        &self,
        vm: impl Fn(&Model) -> Result<V>,
        model: &Model,
        tokenizer: &Tokenizer,
        requests: Vec<Request>,
        texts: &mut Texts<'_>,
    ) -> Result<()> {
        let most = self.parallel.map_or(usize::MAX, |parallel| parallel as usize);
        let mut batch = Batch::new(vm(model)?, tokenizer).writing_at_most(most);
        if let Some(path) = self.speculate.as_deref().filter(|path| *path != Path::new("lookup")) {
            batch = batch.with_drafter(vm(&self.drafter(path, tokenizer)?)?);
        }
        for (prompt, request) in texts.prompts().iter().zip(&requests) {
            prompt.placed(batch.add(&prompt.tokens, request).map_err(Into::into))?;
        }
        let mut failed = None;
        while batch.step(&mut |TextId(number), event| match event {
            Event::Prompt { done, of } => {
                texts.prompt(number, done, of);
                Ok(())
            }
            Event::Text(piece) => texts.text(number, piece),
            Event::Ended(generated) => texts.ended(number, Ok(generated)),
            Event::Failed(error) => {
                failed.get_or_insert_with(|| (number, error.clone()));
                texts.ended(number, Err(error))
            }
        })? {}
        match failed {
            Some((number, error)) => texts.prompts()[number].placed(Err(error.into())),
            None => Ok(()),
        }
    }

    /// The small model that guesses.
    fn drafter(&self, path: &Path, tokenizer: &Tokenizer) -> Result<Model> {
        let mut checkpoint = self.source.allow.open(path)?;
        let context = self.source.held.context(&checkpoint).min(checkpoint.config.context_len);
        let own = checkpoint.tokenizer()?;
        if !own.same_vocabulary(tokenizer) {
            bail!("{} has another vocabulary than the model; guesses come from a model of the same", path.display());
        }
        self.source.held.load(&mut checkpoint, context, self.quiet)
    }

    /// Prints a message that is not part of the text.
    fn tell(&self, what: &str) {
        if !self.quiet {
            tell(&paint(&format!("[{what}]"), DIM));
        }
    }

    /// The chat template to prompt the model by, if it is prompted by one.
    fn template<'c>(&self, checkpoint: &'c Checkpoint) -> Result<Option<&'c ChatTemplate>> {
        let template = checkpoint.chat_template.as_ref().filter(|_| !self.raw);
        if template.is_none() && (self.chat || self.system.is_some()) {
            let option = if self.chat { "--chat" } else { "--system" };
            bail!("{} has no chat template; leave out {option}", checkpoint.path.display());
        }
        Ok(template)
    }

    /// The request of each prompt. Seeds that nobody names count up from one.
    fn requests(&self, checkpoint: &Checkpoint, prompts: &[Prompt]) -> Result<Vec<Request>> {
        let grammar = self.language.grammar(checkpoint)?;
        let (mut first, mut requests) = (None, Vec::new());
        for (number, prompt) in (0..).zip(prompts) {
            let own = &prompt.options;
            let sampling = self.sampling.with(own);
            prompt.placed(sampling.check())?;
            let (mut sampler, random) = sampling.of_checkpoint(checkpoint)?;
            if random {
                sampler.seed = *first.get_or_insert(sampler.seed);
            }
            if own.seed.is_none() {
                sampler.seed = sampler.seed.wrapping_add(number);
            }
            requests.push(self.request(checkpoint, own, sampler, grammar.clone())?);
        }
        if let Some(seed) = first {
            self.tell(&format!("--seed {seed} writes this text again"));
        }
        Ok(requests)
    }

    /// The request of a prompt, whose own options count before the command's.
    fn request(
        &self,
        checkpoint: &Checkpoint,
        own: &LineOptions,
        sampler: SamplerConfig,
        grammar: Option<Grammar>,
    ) -> Result<Request> {
        let goes_on = own.ignore_eos.unwrap_or(self.ignore_eos);
        Ok(Request {
            sampler,
            max_tokens: Some(own.max_tokens.unwrap_or(self.max_tokens as usize)),
            max_time: None,
            stop_tokens: if goes_on { Vec::new() } else { checkpoint.stop_tokens() },
            stop_strings: own.stop.as_ref().unwrap_or(&self.stop).clone(),
            speculate: match self.speculate.as_deref() {
                None => Speculate::Never,
                Some(path) if path == Path::new("lookup") => Speculate::Lookup,
                Some(_) => Speculate::Model,
            },
            show_special: self.show_special,
            logprobs: self.logprobs.then_some(0),
            grammar,
            continues: self.template(checkpoint)?.is_none(),
        })
    }

    fn cuda(&self, model: &Model, schedule: &GpuSchedule) -> Result<cuda::Vm> {
        let options = cuda::VmOptions { precision: self.source.held.weights.precision(), ..cuda::VmOptions::default() };
        let (vm, schedule) = cuda_vm(model, schedule, options, self.quiet)?;
        if schedule != "default" {
            self.tell(&format!("schedule: {schedule}"));
        }
        Ok(vm)
    }
}
