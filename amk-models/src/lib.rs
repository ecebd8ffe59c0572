//! Annotated models, checkpoints, tokenizers and chat.
//!
//! ```text
//! path ─checkpoint─► config, tensors, tokenizer ─model─► weights of an annotated function
//!  ▲ cache (hub, package)                                 models/*.rs
//! ```

pub mod cache;
pub mod chain;
pub mod chat;
pub mod checkpoint;
pub mod config;
pub mod head;
pub mod hub;
pub mod import;
pub mod model;
pub mod models;
mod random;
mod rounding;
pub mod tokenizer;
pub mod weights;
