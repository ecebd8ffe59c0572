//! `amk perplexity`.

use crate::load::cpu_vm;
use crate::model::SourceArgs;
use crate::options::{Place, PlaceArgs, cuda_rows_vm, progress_bar, tell, write};
use amk::Token;
use amk::rows::{PoolSize, RowVm};
use amk::session::Session;
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use amk_run::perplexity::{self, Windows, perplexity};
use anyhow::{Context as _, Result, bail};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measure the perplexity of a text.
///
/// The perplexity is `exp` of the mean loss `-ln p` of the text's tokens but the first. A text that
/// is longer than the context is run in windows, and each token counts once, after at least
/// `context - stride` others.
#[derive(clap::Args)]
pub(crate) struct Perplexity {
    /// The text; `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    text: PathBuf,
    #[command(flatten)]
    source: SourceArgs,
    /// Tokens between the starts of two windows [default: half the context].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stride: Option<u32>,
    /// Use at most this many tokens of the text.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    tokens: Option<u32>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print a line of JSON.
    #[arg(long)]
    json: bool,
    /// Print only the result and errors.
    #[arg(short, long)]
    quiet: bool,
}

impl Perplexity {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let place = self.place.place(self.source.held.activations)?;
        let text = read(&self.text)?;
        let mut checkpoint = self.source.open()?;
        let tokens = self.tokens_of(&text, &checkpoint)?;
        let windows = self.windows(&checkpoint)?;
        let model = self.source.held.load(&mut checkpoint, windows.context, self.quiet)?;
        let pages = PoolSize::sequences(1, windows.context);
        match place {
            Place::Cpu(schedule) => self.measure(cpu_vm(&model, &schedule, pages)?, &tokens, windows),
            Place::Cuda(schedule) => self.measure(
                cuda_rows_vm(&model, &schedule, self.source.held.weights.on_gpu(), &pages, self.quiet)?,
                &tokens,
                windows,
            ),
        }
    }

    fn tokens_of(&self, text: &str, checkpoint: &Checkpoint) -> Result<Vec<Token>> {
        let mut tokens = checkpoint.tokenizer()?.encode(text, SpecialTokens::Add)?;
        tokens.truncate(self.tokens.map_or(usize::MAX, |most| most as usize));
        if tokens.len() < 2 {
            bail!("{}: a text of fewer than 2 tokens has none to expect", self.text.display());
        }
        Ok(tokens.into_iter().map(Token).collect())
    }

    fn windows(&self, checkpoint: &Checkpoint) -> Result<Windows> {
        let context = self.source.held.context(checkpoint);
        let stride = self.stride.map_or(context / 2, |stride| stride as usize);
        if context < 2 {
            bail!("a context of {context} tokens has none to expect; it takes 2");
        }
        if stride >= context {
            bail!("a stride of {stride} in a context of {context} tokens; it has to be less");
        }
        Ok(Windows { context, stride: stride.max(1) })
    }

    fn measure<V: RowVm>(&self, vm: V, tokens: &[Token], windows: Windows) -> Result<ExitCode> {
        let bar = progress_bar("running the text", self.quiet);
        let start = Instant::now();
        let mut see = |so_far: &perplexity::Perplexity| bar.set_position((so_far.tokens * 100 / tokens.len()) as u64);
        let found = perplexity(&mut Session::new(vm), tokens, windows, &mut see);
        bar.finish_and_clear();
        let (found, time) = (found?, start.elapsed());
        if !found.mean().is_finite() {
            bail!("the model gives no probabilities: a loss is not finite");
        }
        self.report(&found, windows, time)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, found: &perplexity::Perplexity, windows: Windows, time: Duration) -> Result<()> {
        let Windows { context, stride } = windows;
        let (seconds, tokens) = (time.as_secs_f64(), found.tokens);
        if self.json {
            let line = serde_json::json!({
                "perplexity": found.value(), "error": found.error(), "loss": found.mean(), "tokens": tokens,
                "context": context, "stride": stride, "seconds": seconds,
            });
            return Ok(write(&format!("{line}\n"))?);
        }
        write(&format!("perplexity {:.4}{}\n", found.value(), margin(found)))?;
        if !self.quiet {
            let rate = tokens as f64 / seconds.max(f64::MIN_POSITIVE);
            tell(&format!("[{tokens} tokens at {rate:.1} a second; windows of {context} every {stride}]"));
        }
        Ok(())
    }
}

/// The standard error as printed behind a value, if there is one.
pub(crate) fn margin(found: &perplexity::Perplexity) -> String {
    found.error().map_or_else(String::new, |error| format!(" ± {error:.4}"))
}

pub(crate) fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let done = match path == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    };
    done.with_context(|| format!("cannot read the text {}", path.display()))?;
    Ok(text)
}
