//! Rows: steps that compute an annotated function for several tokens at once, of one sequence or of
//! many.
//!
//! ```text
//! Row (token, position, sequence, wanted) ─► Sequences::place ─► PlacedRow (token, position, page tables) ─► VM
//!                                            by group of states: page tables, a pool of pages; the contract
//! ```
//!
//! [`amk_ir::rows`] defines the meaning of a step. [`Sequences`] does the bookkeeping for every VM:
//! which sequence has which page of [`PAGE`] positions, which pages are shared, and which are free.
//! A VM that supports rows ([`RowVm`]) owns the memory of the pages, and checks the [`contract`] of
//! each step itself. States of which rows read equally many positions form a group ([`PageGroup`]),
//! with its own pages and page tables; most models have one group.
//!
//! A row may specify how the token after it is chosen ([`Choice`]); a VM that chooses tokens itself
//! ([`RowVm::chooses`]) then returns the token instead of the logits.

mod choice;
pub mod contract;
mod pool;
mod sequences;
mod size;
mod tables;
mod vm;

pub use choice::{Choice, Draw, LogitChange, Outcome};
pub use sequences::{PageChange, PageEdit, Placed, RowsError, SequenceId, Sequences};
pub use size::PoolSize;
pub use tables::{HOLE, PageTables};
pub use vm::{GroupName, PageGroup, PlacedRow, ROLLBACK, RowLimits, RowVm};

use crate::tensor::{Pos, Token};

/// Positions of a page.
pub const PAGE: usize = 64;

/// A row of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The token.
    pub token: Token,
    /// Its position: one more than the previous row's of its sequence.
    pub pos: Pos,
    /// Its sequence.
    pub sequence: SequenceId,
    /// Whether its outputs are wanted.
    pub wanted: bool,
}
