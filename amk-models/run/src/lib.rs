//! Text from a model on a VM.
//!
//! ```text
//! amk-models: weights of an annotated function ─VM─► logits ─sampler─► token ─generate─► text
//!                                               ▲                        │
//!                                               └────────────────────────┘
//! ```
//!
//! From a name to answers, on this machine's cores:
//!
//! ```no_run
//! # fn main() -> Result<(), amk_run::OpenError> {
//! let model = amk_run::open("HuggingFaceTB/SmolLM2-135M-Instruct")?;
//! let mut session = model.session()?;
//! println!("{}", session.answer("Name three rivers.")?);
//! println!("{}", session.answer("Which of them is the longest?")?);
//! # Ok(())
//! # }
//! ```

pub mod batch;
mod drafter;
pub mod embedding;
mod format;
pub mod generate;
pub mod grammar;
mod guesses;
mod kept;
mod lookup;
pub mod named;
pub mod open;
pub mod perplexity;
pub mod sampler;
pub mod session;
pub mod text;

pub use format::weight_format;
pub use open::{OpenError, open};
