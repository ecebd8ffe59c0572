//! Annotated models, weights, tokenizers, generation and the `amk` binary.
//!
//! ```text
//! path ─checkpoint─► config, tensors, tokenizer ─model─► weights of an annotated function ─generate─► text
//!  ▲ cache (hub, package)                                 models/*.rs            over a VM, with a sampler
//! ```

pub mod bench;
pub mod cache;
pub mod chain;
pub mod chat;
pub mod checkpoint;
pub mod config;
pub mod generate;
pub mod kernel_check;
pub mod model;
pub mod models;
mod random;
pub mod sampler;
pub mod tokenizer;
pub mod tune;
pub mod weights;
