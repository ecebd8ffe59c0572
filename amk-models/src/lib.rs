//! Annotated models, weights, tokenizers, generation and the amk binary

#![warn(missing_docs)]

pub mod config;
pub mod weights;
