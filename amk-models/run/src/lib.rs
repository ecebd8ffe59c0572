//! Text from a model on a VM.
//!
//! ```text
//! amk-models: weights of an annotated function ─VM─► logits ─sampler─► token ─generate─► text
//!                                               ▲                        │
//!                                               └────────────────────────┘
//! ```

pub mod batch;
mod drafter;
mod format;
pub mod generate;
pub mod grammar;
mod guesses;
mod kept;
mod lookup;
pub mod perplexity;
pub mod sampler;
pub mod text;

pub use format::weight_format;
