//! Counts of the engine's work, in Prometheus's format.

use amk_run::batch::State;
use amk_run::text::Generated;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

/// Counts since the start.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    /// Texts that are being written or waiting.
    pub(crate) open: AtomicUsize,
    pub(crate) texts: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) refused: AtomicU64,
    steps: AtomicU64,
    step_micros: AtomicU64,
    prompt_tokens: AtomicU64,
    shared_tokens: AtomicU64,
    tokens: AtomicU64,
    chosen: AtomicU64,
    live: AtomicUsize,
    kept: AtomicUsize,
    pub(crate) pages: AtomicUsize,
    pub(crate) free_pages: AtomicUsize,
    /// The reason why the VM failed.
    pub(crate) failed: OnceLock<String>,
}

impl Counters {
    /// A text has ended.
    pub(crate) fn ended(&self, generated: &Generated) {
        let Generated { prompt_tokens, prompt_run, tokens, .. } = generated;
        self.prompt_tokens.fetch_add(*prompt_tokens as u64, Relaxed);
        self.shared_tokens.fetch_add(prompt_tokens.saturating_sub(*prompt_run) as u64, Relaxed);
        self.tokens.fetch_add(tokens.len() as u64, Relaxed);
    }

    /// Records the time of a step, and the state after it.
    pub(crate) fn stepped(&self, time: Duration, state: State, free_pages: usize) {
        self.steps.fetch_add(1, Relaxed);
        self.step_micros.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Relaxed);
        self.chosen.store(state.chosen, Relaxed);
        self.live.store(state.live, Relaxed);
        self.kept.store(state.kept, Relaxed);
        self.free_pages.store(free_pages, Relaxed);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Relaxed).to_string();
        let size = |gauge: &AtomicUsize| gauge.load(Relaxed).to_string();
        let seconds = Duration::from_micros(self.step_micros.load(Relaxed)).as_secs_f64().to_string();
        let counters = [
            ("texts_total", "counter", "Texts that were begun.", of(&self.texts)),
            ("texts_cancelled_total", "counter", "Texts whose client went away.", of(&self.cancelled)),
            ("requests_refused_total", "counter", "Requests beyond the queue.", of(&self.refused)),
            ("steps_total", "counter", "Steps of the VM.", of(&self.steps)),
            ("step_seconds_total", "counter", "Time of all steps.", seconds),
            ("prompt_tokens_total", "counter", "Tokens of prompts, of ended texts.", of(&self.prompt_tokens)),
            ("prompt_tokens_shared_total", "counter", "Those that another text had run.", of(&self.shared_tokens)),
            ("tokens_total", "counter", "New tokens, of ended texts.", of(&self.tokens)),
            ("tokens_chosen_total", "counter", "New tokens, as they come.", of(&self.chosen)),
            ("texts_open", "gauge", "Texts being written or waiting.", size(&self.open)),
            ("texts_live", "gauge", "Texts being written after the last step.", size(&self.live)),
            ("texts_kept", "gauge", "Ended texts that prompts may go on from.", size(&self.kept)),
            ("pages", "gauge", "Pages of keys and values, of all groups.", size(&self.pages)),
            ("pages_free", "gauge", "Free pages after the last step.", size(&self.free_pages)),
        ];
        counters.iter().fold(String::new(), |mut text, (name, kind, help, value)| {
            // Writing to a string does not fail.
            let _ = write!(text, "# HELP amk_{name} {help}\n# TYPE amk_{name} {kind}\namk_{name} {value}\n");
            text
        })
    }
}
