//! Text from a model on a VM.
//!
//! ```text
//! amk-models: weights of an annotated function ─VM─► logits ─sampler─► token ─generate─► text
//!                                               ▲                        │
//!                                               └────────────────────────┘
//! ```

mod format;
pub mod generate;
pub mod sampler;

pub use format::weight_format;
