//! The `amk` binary as a user runs it, on tiny checkpoints.

mod amk;
mod cache;
mod chat;
mod clients;
mod dump;
mod embed;
mod errors;
mod generate;
mod measure;
mod models;
mod perplexity;
mod quantize;
mod readme;
mod refusals;
mod serve;
