//! A server with OpenAI's API over one VM: texts of all clients share its steps.
//!
//! ```text
//! HTTP ─ completion, chat ─► Prompts ─► Engine::submit ─► a thread with the Batch ─► pieces of text ─► JSON or SSE
//! ```
//!
//! The [`Engine`] owns the VM on a thread of its own and takes a bounded number of texts. A text
//! ends early when its client goes. [`serve`] answers `/v1/models`, `/v1/completions`,
//! `/v1/chat/completions`, `/tokenize`, `/health` and `/metrics`.

mod engine;
mod error;
mod logprobs;
mod metrics;
mod prompt;
mod reply;
mod request;
mod server;

pub use engine::{Engine, EngineError};
pub use server::{ServeOptions, Served, serve};
