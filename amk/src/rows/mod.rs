//! Rows: steps that compute an annotated function for several tokens at once, of one sequence or of
//! many.
//!
//! ```text
//! Row (token, position, sequence, wanted) ─► Sequences::place ─► PlacedRow (token, position, page tables) ─► VM
//!                                            by group of states: page tables, a pool of pages; the contract
//! ```
//!
//! [`amk_ir::rows`] has the meaning of a step. [`Sequences`] keeps the books for every VM: who has
//! which page of [`PAGE`] positions, which of them are shared, which are free. A VM that has rows
//! ([`RowVm`]) owns the memory of the pages, and checks the [`contract`] of each step itself.
//! States of which rows read equally many positions are a group ([`PageGroup`]), with pages and
//! page tables of its own: most models have one.
//!
//! A row may say how the token after it is chosen ([`Choice`]): a VM that chooses itself
//! ([`RowVm::chooses`]) then gives the token instead of the logits.

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
    /// Its position: one more than that of the row before it in its sequence.
    pub pos: Pos,
    /// Its sequence.
    pub sequence: SequenceId,
    /// Whether its outputs are wanted.
    pub wanted: bool,
}
