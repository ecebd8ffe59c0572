//! The search for a model's best schedule on a GPU.
//!
//! ```text
//! incumbent ─space─► neighbours, a field at a time, cheapest first ─Measure─► row of the log ─► kept where 1% faster, else reverted
//!                                                                              └─ read again by a later run instead of measured
//! ```

mod device;
mod log;
mod search;
mod space;
mod store;

pub use device::{Device, TuneError};
pub use log::{Log, LogError, Row};
pub use search::{Found, GAIN, Measure, Outcome, search};
pub use space::neighbours;
pub use store::{Saved, Store, StoreError};
