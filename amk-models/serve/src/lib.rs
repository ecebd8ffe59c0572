//! A server with OpenAI's API over one VM: the texts of all clients share its steps.
//!
//! ```text
//! HTTP ─ completion, chat ─► Prompts ─► Engine::submit ─► a thread with the Batch ─► pieces of text ─► JSON or SSE
//! ```
//!
//! The [`Engine`] owns the VM on a separate thread and takes a bounded number of texts. A text ends
//! early when its client disconnects. [`serve`] implements `/v1/models`, `/v1/completions`,
//! `/v1/chat/completions`, `/v1/embeddings`, `/tokenize`, `/detokenize`, `/health` and `/metrics`;
//! `/` is a page to try it.

mod body;
mod connections;
mod embeddings;
mod engine;
mod error;
mod fields;
mod language;
mod log;
mod logprobs;
mod metrics;
mod origin;
mod page;
pub mod parameter;
mod prompt;
mod reply;
mod request;
mod server;
mod stream;
mod tools;
mod turn;

pub use embeddings::Embeddings;
pub use engine::{Engine, EngineError, EngineOptions};
pub use origin::{Origin, OriginError};
pub use server::{ServeOptions, Served, serve};
