//! Quantising a checkpoint: from its weights to blocks, and from blocks to files that others read.
//!
//! ```text
//! checkpoint ─► projections ─round, search, GPTQ─► blocks ─┬─► folder (compressed-tensors)
//!     └─► model ─ text ─► inputs ─► X^T X ───┘             ├─► GGUF
//!                                                          └─► Bindings: the quantised model, in memory
//! ```

mod capture;
mod error;
mod folder;
mod gguf;
mod gram;
mod held;
mod method;
mod output;
mod packed;
mod place;
mod quantize;
mod recipe;
mod round;
mod search;
#[cfg(test)]
mod testing;

pub use capture::{Calibration, Input};
pub use error::QuantizeError;
pub use folder::float_type;
pub use gram::Gram;
pub use held::{Rest, convert_rest, is_projection};
pub use method::Method;
pub use output::Output;
pub use place::{Unfinished, remove_unfinished, size, size_of_result};
pub use quantize::{Progress, Quantized, Stage, Task, quantize, quantize_calibrated};
pub use recipe::{Recipe, known};
