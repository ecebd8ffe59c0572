//! The models: each an annotated function of about a page.

pub mod kv;
pub mod llama;
pub mod parts;
pub mod qwen2;
pub mod qwen3;
