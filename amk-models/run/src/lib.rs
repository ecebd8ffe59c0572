//! Text from a model on a VM.
//!
//! ```text
//! amk-models: weights of an annotated function ─VM─► logits ─sampler─► token ─generate─► text
//!                                               ▲                        │
//!                                               └────────────────────────┘
//! ```

pub mod batch;
mod format;
pub mod generate;
mod lookup;
pub mod sampler;
pub mod text;

pub use format::weight_format;
