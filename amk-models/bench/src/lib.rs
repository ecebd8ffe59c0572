//! Measuring decode steps: the gate before any time is shown, the table, peers on the same GPU, the
//! picture. [`tune`] searches schedules, [`kernel_check`] compares kernels with their formulas.

mod ablation;
mod gate;
pub mod kernel_check;
pub mod peers;
mod reference;
mod report;
mod roofline;
mod row_report;
mod svg;
pub mod tune;
mod turns;

pub use ablation::{AblationReport, AblationRow, ablations};
pub use gate::{Gate, fixed_tokens, relative_error};
pub use peers::{Peer, PeerTimes};
pub use reference::Reference;
pub use report::{Quantiles, Report, Row};
pub use roofline::roofline;
pub use row_report::{EndTimes, ModelRows, RowReport, StepTime};
pub use turns::{by_schedule, in_turn};
