//! What the engine has done, as Prometheus reads it.

use amk_run::text::Generated;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Counts since the start.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    /// Texts that are being written or waiting.
    pub(crate) open: AtomicUsize,
    pub(crate) texts: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) steps: AtomicU64,
    prompt_tokens: AtomicU64,
    tokens: AtomicU64,
    pub(crate) free_pages: AtomicUsize,
    /// Why the VM failed.
    pub(crate) failed: OnceLock<String>,
}

impl Counters {
    /// A text has ended.
    pub(crate) fn ended(&self, generated: &Generated) {
        self.prompt_tokens.fetch_add(generated.prompt_tokens as u64, Relaxed);
        self.tokens.fetch_add(generated.tokens.len() as u64, Relaxed);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        let counters = [
            ("texts_total", "counter", "Texts that were begun.", self.texts.load(Relaxed)),
            ("texts_cancelled_total", "counter", "Texts whose client went away.", self.cancelled.load(Relaxed)),
            ("requests_refused_total", "counter", "Requests beyond the queue.", self.refused.load(Relaxed)),
            ("steps_total", "counter", "Steps of the VM.", self.steps.load(Relaxed)),
            ("prompt_tokens_total", "counter", "Tokens of prompts, of ended texts.", self.prompt_tokens.load(Relaxed)),
            ("tokens_total", "counter", "New tokens, of ended texts.", self.tokens.load(Relaxed)),
            ("texts_open", "gauge", "Texts being written or waiting.", self.open.load(Relaxed) as u64),
            ("pages_free", "gauge", "Free pages after the last step.", self.free_pages.load(Relaxed) as u64),
        ];
        counters.iter().fold(String::new(), |mut text, (name, kind, help, value)| {
            // Writing to a string does not fail.
            let _ = write!(text, "# HELP amk_{name} {help}\n# TYPE amk_{name} {kind}\namk_{name} {value}\n");
            text
        })
    }
}
