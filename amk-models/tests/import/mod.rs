//! Checkpoints from disk: what is accepted, what is refused and how, and agreement with the
//! reference implementations.

mod cache;
mod chat;
mod checkpoint;
mod config;
mod families;
mod gguf;
mod hostile;
mod mutations;
mod published;
mod quantized;
mod rope;
mod safetensors;
mod support;
mod tokenizer;
