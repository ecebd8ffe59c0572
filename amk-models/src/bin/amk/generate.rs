//! `amk generate`.

use super::options::{
    DIM, Device, ScheduleArg, Weights, cuda_vm, model_path, paint, print, progress_bar, read_schedule, threads,
};
use amk::ir::schedule::Schedule;
use amk::vm::cpu::Vm;
use amk::vm::cuda;
use amk_models::chat::{ChatOptions, Message};
use amk_models::checkpoint::{Checkpoint, GenerationDefaults};
use amk_models::generate::{Generated, Request, generate, generate_on_device, on_device};
use amk_models::model::Model;
use amk_models::sampler::{Sampler, SamplerConfig};
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Context as _, Result, anyhow};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Positions of the KV cache where the user asks for no number and the model has more.
const DEFAULT_CONTEXT: usize = 2048;

/// Write text with a model.
///
/// Without `--model` it uses SmolLM2-135M-Instruct, fetched once into the cache folder.
#[derive(clap::Args)]
pub(crate) struct Generate {
    /// The text to go on from; `-` reads standard input, without the newline at its end.
    prompt: String,
    /// A Hugging Face folder or a GGUF file.
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Treat the prompt as a message and apply the model's chat template.
    #[arg(long)]
    chat: bool,
    /// The system message, with --chat.
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// New tokens at most.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    /// Always take the likeliest token, after the repetition penalty.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    greedy: bool,
    /// Divides the logits; 0 is greedy [default: the model's].
    #[arg(short, long, value_name = "T")]
    temperature: Option<f32>,
    /// Keep this many of the likeliest tokens; 0 keeps all [default: the model's].
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Keep the likeliest tokens that together reach this probability [default: the model's].
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Keep tokens with this probability relative to the likeliest [default: the model's].
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Above 1 makes repetitions less likely [default: the model's].
    #[arg(long, value_name = "F")]
    repetition_penalty: Option<f32>,
    /// Same seed, same text.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// A text that ends the answer; may be given several times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on after the model's end-of-text token.
    #[arg(long)]
    ignore_eos: bool,
    /// Positions of the KV cache [default: the model's, at most 2048].
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// How weights are held in memory.
    #[arg(long, default_value = "auto")]
    weights: Weights,
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// CPU threads [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    #[command(flatten)]
    schedule: ScheduleArg,
    /// Print nothing but the text.
    #[arg(short, long)]
    quiet: bool,
}

impl Generate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let path = model_path(self.model.as_ref())?;
        let mut checkpoint = Checkpoint::open(&path)?;
        let prompt = self.prompt(&checkpoint)?;
        let request = self.request(&checkpoint)?;
        let context = self.context.unwrap_or(DEFAULT_CONTEXT.min(checkpoint.config.context_len));
        let mut written = Ok(());
        let mut see = |piece: &str| {
            if written.is_ok() {
                written = print(piece);
            }
        };
        let model = self.load(&mut checkpoint, context)?;
        let tokenizer = checkpoint.tokenizer()?;
        let generated = match self.device {
            Device::Cpu => generate(&mut self.cpu(&model)?, tokenizer, &prompt, request, &mut see)?,
            Device::Cuda => {
                let mut vm = self.cuda(&model)?;
                match on_device(&request.sampler) {
                    true => generate_on_device(&mut vm, tokenizer, &prompt, request, &mut see)?,
                    false => generate(&mut vm, tokenizer, &prompt, request, &mut see)?,
                }
            }
        };
        written.and_then(|()| print("\n"))?;
        if !self.quiet {
            eprintln!("{}", paint(&summary(&generated), DIM));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn prompt(&self, checkpoint: &Checkpoint) -> Result<Vec<u32>> {
        let mut text = self.prompt.clone();
        if text == "-" {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read the prompt from standard input")?;
            text = String::from_utf8(bytes).context("the prompt on standard input is not UTF-8")?;
            // Editors and `echo` end the last line; a model would go on from the empty line after it.
            if let Some(line) = text.strip_suffix('\n') {
                text.truncate(line.strip_suffix('\r').unwrap_or(line).len());
            }
        }
        let tokenizer = checkpoint.tokenizer()?;
        if !self.chat {
            return Ok(tokenizer.encode(&text, SpecialTokens::Add)?);
        }
        let template = checkpoint.chat_template.as_ref();
        let template =
            template.ok_or_else(|| anyhow!("{} has no chat template; leave out --chat", checkpoint.path.display()))?;
        let system = self.system.iter().map(|system| Message::new("system", system));
        let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
        let options = ChatOptions { add_generation_prompt: true, ..ChatOptions::default() };
        let rendered = template.render(&messages, &options).with_context(|| checkpoint.path.display().to_string())?;
        Ok(tokenizer.encode(&rendered, SpecialTokens::AsWritten)?)
    }

    fn request(&self, checkpoint: &Checkpoint) -> Result<Request> {
        let defaults = &checkpoint.generation;
        let mut stop_tokens =
            if self.ignore_eos { Vec::new() } else { [&defaults.eos[..], &checkpoint.config.eos].concat() };
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        let sampler = self.sampler(defaults);
        // What the user gave is refused by itself; the rest is the model's.
        Sampler::new(self.sampler(&GenerationDefaults::default()))?;
        Sampler::new(sampler.clone())
            .with_context(|| format!("{}: the model's generation_config.json", checkpoint.path.display()))?;
        Ok(Request { sampler, max_tokens: Some(self.max_tokens), stop_tokens, stop_strings: self.stop.clone() })
    }

    fn sampler(&self, defaults: &GenerationDefaults) -> SamplerConfig {
        let not_sampled = self.temperature.is_none() && defaults.do_sample == Some(false);
        let temperature =
            if self.greedy || not_sampled { Some(0.0) } else { self.temperature.or(defaults.temperature) };
        let temperature = temperature.unwrap_or(0.8);
        // Greedy decoding looks at none of the filters.
        let greedy = temperature == 0.0;
        SamplerConfig {
            temperature,
            top_k: self.top_k.or(defaults.top_k.filter(|_| !greedy)).unwrap_or(0),
            top_p: self.top_p.or(defaults.top_p.filter(|_| !greedy)).unwrap_or(1.0),
            min_p: self.min_p.or(defaults.min_p.filter(|_| !greedy)).unwrap_or(0.0),
            repetition_penalty: self.repetition_penalty.or(defaults.repetition_penalty).unwrap_or(1.0),
            seed: self.seed,
        }
    }

    fn load(&self, checkpoint: &mut Checkpoint, context: usize) -> Result<Model> {
        let bar = progress_bar("loading weights", self.quiet);
        let tensors = std::mem::take(&mut checkpoint.tensors);
        let model = Model::load(&checkpoint.config, tensors, context, self.weights.into(), &mut |done| {
            bar.set_position((done * 100.0) as u64);
        });
        bar.finish_and_clear();
        Ok(model?)
    }

    fn cpu(&self, model: &Model) -> Result<Vm> {
        let workers = threads(self.threads)?;
        let mut schedule = match &self.schedule.schedule {
            Some(path) => read_schedule(path)?,
            None => Schedule::default(),
        };
        if self.threads.is_some() || self.schedule.schedule.is_none() {
            schedule.workers = workers;
        }
        let verified = model.family.kernel.verified(&model.instance, Some(&schedule))?;
        Ok(Vm::new(verified, &model.bindings)?)
    }

    fn cuda(&self, model: &Model) -> Result<cuda::Vm> {
        let options = cuda::VmOptions { precision: self.weights.precision(), ..cuda::VmOptions::default() };
        let (vm, schedule) = cuda_vm(model, &self.schedule, options, self.quiet)?;
        if !self.quiet && schedule != "default" {
            eprintln!("{}", paint(&format!("[schedule: {schedule}]"), DIM));
        }
        Ok(vm)
    }
}

fn summary(generated: &Generated) -> String {
    let speed = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!(", {rate:.1} tokens/s"));
    format!(
        "[{} prompt tokens{}; {} new tokens{}; {:?}]",
        generated.prompt_tokens,
        speed(generated.prompt_steps_per_second()),
        generated.tokens.len(),
        speed(generated.tokens_per_second()),
        generated.ended
    )
}
