//! The definition of a megakernel program.
//!
//! ```text
//! Graph (symbolic dims, index maps) --lower(schedule)--> Program (concrete tasks) --verify--> Verified
//! ```
//!
//! The crate contains neither syntax trees nor devices: the macros at build time and the VMs at run
//! time are two callers of the same lowering and the same verifier.

pub mod callee;
pub mod certificate;
mod constants;
pub mod dot;
pub mod dtype;
pub mod entity;
pub mod events;
pub mod explain;
pub mod expr;
pub mod graph;
pub mod graph_error;
pub mod layout;
pub mod lower;
pub mod program;
pub mod region;
pub mod rows;
pub mod schedule;
pub mod shapes;
pub mod signature;
pub mod symbolic;
pub mod table;
pub mod text;
mod unify;
pub mod verify;

pub use constants::Constants;
pub use dtype::DType;
pub use entity::{BufferId, EventId, InstructionId, OpId, TableId, TaskId, TensorId, ValueId, WorkerId};
pub use program::*;
pub use region::{Bound, Interval, MAX_RANK, Region};
pub use rows::CallRows;
pub use table::{Holds, Routed, RoutedSignal, RoutedWait, Table};
