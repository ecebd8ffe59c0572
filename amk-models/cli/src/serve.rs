//! `amk serve`.

use crate::load::{LoadArgs, cpu_vm};
use crate::model::{ModelArg, path_of};
use crate::options::{AllowArg, Place, PlaceArgs, cuda_rows_vm, tell};
use amk::rows::RowLimits;
use amk_models::checkpoint::Checkpoint;
use amk_run::sampler::SamplerConfig;
use amk_run::text::{Request, Speculate};
use amk_serve::{Engine, EngineOptions, ServeOptions, Served, serve};
use anyhow::{Context as _, Result};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serve a model by OpenAI's API.
///
/// Texts of all clients are written at the same time. Without `--model` it uses
/// SmolLM2-135M-Instruct, fetched once into the cache folder. Ctrl-C or SIGTERM ends it when open
/// answers have ended; a second one at once.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// A Hugging Face folder, a GGUF file, or a model of the hub: `owner/name[:file][@revision]`.
    #[arg(short, long, value_name = "MODEL")]
    model: Option<ModelArg>,
    #[command(flatten)]
    allow: AllowArg,
    /// The model's name for clients [default: that of its folder or file, or on the hub].
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0 takes a free one.
    #[arg(short, long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Texts that are written at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallel: u32,
    /// Texts that may wait for their turn; more are refused with the status 429.
    #[arg(long, value_name = "N", default_value_t = 64)]
    queue: u32,
    /// Ended texts that are kept at most, so that prompts that begin like them go on from there.
    #[arg(long, value_name = "N", default_value_t = 32)]
    keep: u32,
    /// The key that clients have to send.
    #[arg(long, value_name = "KEY", env = "AMK_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Seconds for open answers after the end is asked for.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u32,
    /// Guess next tokens from the prompt and the text; the text is the same.
    #[arg(long, value_name = "lookup", value_parser = ["lookup"])]
    speculate: Option<String>,
    #[command(flatten)]
    held: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print errors alone.
    #[arg(short, long)]
    quiet: bool,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let place = self.place.place(self.held.activations)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        // A port that is taken is told before the model is loaded.
        let listener = runtime
            .block_on(TcpListener::bind((self.host, self.port)))
            .with_context(|| format!("cannot listen on {}:{}", self.host, self.port))?;
        let path = path_of(self.model.as_ref())?;
        let mut checkpoint = self.allow.open(&path)?;
        let context = self.held.context(&checkpoint);
        let model = self.held.load(&mut checkpoint, context, self.quiet)?;
        let pages = self.parallel as usize * RowLimits::pages_of(context);
        let served = self.served(checkpoint, context)?;
        let tokenizer = Arc::clone(&served.tokenizer);
        let bounds = EngineOptions { texts: (self.parallel + self.queue) as usize, kept: self.keep as usize };
        let engine = match place {
            Place::Cpu(schedule) => Engine::start(cpu_vm(&model, &schedule, pages)?, tokenizer, bounds),
            Place::Cuda(schedule) => {
                Engine::start(cuda_rows_vm(&model, &schedule, self.held.weights, pages, self.quiet)?, tokenizer, bounds)
            }
        };
        if !self.quiet {
            let address = listener.local_addr()?;
            tell(&format!(
                "{} is served at http://{address}/v1, a page to try it at http://{address}/ (Ctrl-C ends it)",
                served.name
            ));
        }
        let grace = Duration::from_secs(self.grace.into());
        let options = ServeOptions { key: self.api_key, grace, ..ServeOptions::default() };
        runtime.block_on(serve(listener, engine, served, options, asked_to_end()))?;
        // Texts beyond the grace time are not waited for.
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }

    fn served(&self, checkpoint: Checkpoint, context: usize) -> Result<Served> {
        let stem = || checkpoint.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let named = self.alias.clone().or_else(|| self.model.as_ref()?.name());
        let name = named.or_else(stem).unwrap_or_else(|| "model".to_owned());
        let request = Request {
            sampler: SamplerConfig::of_model(&checkpoint.generation, None),
            stop_tokens: checkpoint.stop_tokens(),
            speculate: if self.speculate.is_some() { Speculate::Lookup } else { Speculate::Never },
            ..Request::default()
        };
        let tokenizer = Arc::new(checkpoint.tokenizer()?.clone());
        Ok(Served { name, tokenizer, template: checkpoint.chat_template, request, context })
    }
}

/// Completes when the process is asked to end. The second time it ends at once.
async fn asked_to_end() {
    signal().await;
    tokio::spawn(async {
        signal().await;
        std::process::exit(130);
    });
}

async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Where there are no signals, nothing asks.
    let _ = tokio::signal::ctrl_c().await;
}
