//! Measuring decode steps: the gate before any time is shown, the table, peers on the same GPU, the picture.

mod gate;
pub mod peers;
mod report;
mod roofline;

pub use gate::{Gate, relative_error};
pub use peers::{Peer, PeerTimes};
pub use report::{Quantiles, Report, Row};
pub use roofline::roofline;
