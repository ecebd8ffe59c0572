//! `amk serve`.

use crate::embed::{PoolingArg, embedder};
use crate::load::cpu_vm;
use crate::model::SourceArgs;
use crate::options::{PARALLEL, Place, PlaceArgs, ScheduleArg, ThreadsArg, cuda_rows_vm, tell};
use crate::signals::Signals;
use crate::start::Start;
use amk::rows::PoolSize;
use amk_models::checkpoint::Checkpoint;
use amk_run::sampler::SamplerConfig;
use amk_run::text::{Request, Speculate};
use amk_serve::{Embeddings, Engine, EngineOptions, Origin, ServeOptions, Served, serve};
use anyhow::{Context as _, Result};
use clap::builder::NonEmptyStringValueParser;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tracing::{Level, info};

/// Serve a model through OpenAI's API.
///
/// Texts of all clients are written at the same time. Without `--model` it uses
/// SmolLM2-135M-Instruct, fetched once into the cache folder. Ctrl-C or SIGTERM ends it when open
/// answers have ended; a second one at once.
#[derive(clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    source: SourceArgs,
    /// The model's name for clients [default: the name of its folder or file, or on the hub].
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    alias: Option<String>,
    /// The address or host name to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 chooses a free one.
    #[arg(short, long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Maximum number of texts generated at a time [default: as many as there are pages for,
    /// enough for 8 of the whole context].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallel: Option<u32>,
    /// Maximum number of waiting texts; further requests get status 429.
    #[arg(long, value_name = "N", default_value_t = 64)]
    queue: u32,
    /// Maximum number of finished texts to keep, so that prompts with the same beginning continue
    /// from there.
    #[arg(long, value_name = "N", default_value_t = 32)]
    keep: u32,
    /// Maximum tokens of a step that runs prompts while other texts are decoding: with fewer, the
    /// texts wait less; with more, the prompts take less time.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_batched_tokens: u32,
    /// Also serve embeddings, computed on the CPU, with this pooling of a text's hidden states.
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "mean")]
    embeddings: Option<PoolingArg>,
    /// The key that clients must send.
    #[arg(long, value_name = "KEY", env = "AMK_API_KEY", hide_env_values = true, value_parser = key)]
    api_key: Option<String>,
    /// Maximum new tokens of a text, even if a request asks for more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Maximum seconds of generating a text; one that takes longer is cut off.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    max_time: Option<u32>,
    /// A site whose pages may send requests, such as `http://localhost:3000`, or `*` for all; may be
    /// given several times.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,
    /// Seconds that open answers have to finish after a request to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u32,
    /// Guess the next tokens from the prompt and the text; the text is the same.
    #[arg(long, value_name = "lookup", value_parser = ["lookup"])]
    speculate: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Format of the log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// The least severe level to log: error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: Level,
    /// Print only errors.
    #[arg(short, long, conflicts_with = "log_level")]
    quiet: bool,
}

/// How records are written.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// A line of text.
    Text,
    /// A line of JSON.
    Json,
}

/// A key that a header can have.
fn key(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("a key is not empty; leave the option and AMK_API_KEY out for none"),
        text if text.chars().all(|c| c.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err("a key has visible ASCII characters alone"),
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.log();
        let mut start = Start::new();
        let place = self.place.place(self.source.held.activations)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        // A port that is taken is reported before the model is loaded.
        let listener = runtime
            .block_on(TcpListener::bind((self.host.as_str(), self.port)))
            .with_context(|| format!("cannot listen on {}:{}", self.host, self.port))?;
        let mut checkpoint = self.source.open()?;
        start.done("opened the files");
        let context = self.source.held.context(&checkpoint);
        let model = self.source.held.load(&mut checkpoint, context, self.quiet)?;
        start.done("read the weights");
        let parallel = self.parallel.unwrap_or(PARALLEL) as usize;
        let pages = PoolSize::sequences(parallel, context);
        let mut served = self.served(checkpoint, context)?;
        if let Some(pooling) = self.embeddings {
            let schedule = match &place {
                Place::Cpu(schedule) => schedule.clone(),
                Place::Cuda(_) => ScheduleArg::default().for_cpu(ThreadsArg::default())?,
            };
            let embedder = embedder(&model, &schedule, context, pooling)?;
            served.embeddings = Some(Embeddings::start(embedder, self.queue as usize));
        }
        let tokenizer = Arc::clone(&served.tokenizer);
        let bounds = EngineOptions {
            texts: parallel + self.queue as usize,
            live: self.parallel.map_or(usize::MAX, |parallel| parallel as usize),
            kept: self.keep as usize,
            mixed: self.max_batched_tokens as usize,
        };
        let engine = match place {
            Place::Cpu(schedule) => {
                let vm = cpu_vm(&model, &schedule, pages)?;
                start.done("planned");
                Engine::start(vm, tokenizer, bounds)
            }
            Place::Cuda(schedule) => {
                let vm = cuda_rows_vm(&model, &schedule, self.source.held.weights.on_gpu(), &pages, self.quiet)?;
                start.made(vm.start_times());
                Engine::start(vm, tokenizer, bounds)
            }
        };
        // Whoever reads that it is served may ask for the end at once.
        let signals = runtime.block_on(async { Signals::listen() });
        self.announce(&served.name, &listener, &start)?;
        let grace = Duration::from_secs(self.grace.into());
        let options = ServeOptions { key: self.api_key, origins: self.allow_origin, grace, ..ServeOptions::default() };
        runtime.block_on(serve(listener, engine, served, options, asked_to_end(signals)));
        // Texts beyond the grace time are not waited for.
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }

    /// Sets up the records. Whoever reads them may go away; the server stays.
    fn log(&self) {
        let level = if self.quiet { Level::ERROR } else { self.log_level };
        let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(std::io::stderr);
        let log = log.log_internal_errors(false);
        match self.log_format {
            LogFormat::Text => log.init(),
            LogFormat::Json => log.json().flatten_event(true).with_span_list(false).init(),
        }
    }

    /// Says where the model is served, and where the time until then went.
    fn announce(&self, name: &str, listener: &TcpListener, start: &Start) -> Result<()> {
        let address = listener.local_addr()?;
        if self.log_format == LogFormat::Json {
            info!(model = name, %address, %start, "serving");
        } else if !self.quiet {
            info!("{start}");
            tell(&format!(
                "{name} is served at http://{address}/v1, a page to try it at http://{address}/ (Ctrl-C ends it)"
            ));
        }
        Ok(())
    }

    fn served(&self, checkpoint: Checkpoint, context: usize) -> Result<Served> {
        let stem = || checkpoint.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let named = self.alias.clone().or_else(|| self.source.model.as_ref()?.name());
        let name = named.or_else(stem).unwrap_or_else(|| "model".to_owned());
        let request = Request {
            sampler: SamplerConfig::of_model(&checkpoint.generation, None),
            stop_tokens: checkpoint.stop_tokens(),
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
            max_time: self.max_time.map(|seconds| Duration::from_secs(seconds.into())),
            speculate: if self.speculate.is_some() { Speculate::Lookup } else { Speculate::Never },
            ..Request::default()
        };
        let tokenizer = Arc::new(checkpoint.tokenizer()?.clone());
        Ok(Served { name, tokenizer, template: checkpoint.chat_template, request, context, embeddings: None })
    }
}

/// Completes when the process is asked to end. The second time it ends at once.
async fn asked_to_end(signals: io::Result<Signals>) {
    let Ok(mut signals) = signals else { return std::future::pending().await };
    signals.next().await;
    tokio::spawn(async move {
        std::process::exit(signals.next().await);
    });
}
