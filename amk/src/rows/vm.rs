//! The interface of a VM with rows.

use super::{Choice, Outcome, PAGE, PageEdit, PageTables};
use crate::tensor::{Pos, Token};
use core::error::Error;
use core::fmt;
use std::time::Duration;

/// The sizes of a VM with rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowLimits {
    /// Maximum number of rows in a step.
    pub rows: usize,
    /// Maximum number of positions of a sequence.
    pub positions: usize,
    /// The groups of its states ([`amk_ir::rows::PageGroups`]), at least one.
    pub groups: Vec<PageGroup>,
}

/// States of which rows read equally many positions. They have their own pages, and a page table
/// for each sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageGroup {
    /// Pages of [`PAGE`] positions, for all sequences.
    pub pages: usize,
    /// The number of last positions, including its own, of which a row reads anything; `None`: all.
    /// Pages before them are returned to the pool.
    pub reach: Option<usize>,
}

impl RowLimits {
    /// The limits of a VM whose states are one group with this number of pages, of which rows read
    /// all positions.
    pub fn new(rows: usize, positions: usize, pages: usize) -> Self {
        Self { rows, positions, groups: vec![PageGroup { pages, reach: None }] }
    }

    /// The number of pages that hold `positions` positions.
    pub const fn pages_of(positions: usize) -> usize {
        positions.div_ceil(PAGE)
    }

    /// The maximum number of pages of each group that a sequence holds at a time until it has
    /// `positions` positions.
    pub fn pages_at_once(&self, positions: usize) -> Vec<usize> {
        self.groups.iter().map(|group| group.pages_at_once(positions, self.rows)).collect()
    }

    /// The name of a group in messages.
    pub fn name(&self, group: usize) -> GroupName {
        let reach = self.groups.get(group).and_then(|group| group.reach);
        GroupName { group: (self.groups.len() > 1).then_some(group), reach }
    }
}

impl PageGroup {
    /// The first position that a row at `pos` reads.
    pub const fn first_read(&self, pos: usize) -> usize {
        match self.reach {
            Some(reach) => (pos + 1).saturating_sub(reach),
            None => 0,
        }
    }

    /// The maximum number of pages that a sequence holds at a time until it has `positions`
    /// positions, in steps of up to `rows` rows.
    pub fn pages_at_once(&self, positions: usize, rows: usize) -> usize {
        // The positions that a step's rows read and write, and those that a rollback needs.
        let at_once = self.reach.map(|reach| reach + rows + ROLLBACK - 1);
        let pages = RowLimits::pages_of(positions);
        at_once.map_or(pages, |positions| pages.min((positions.max(1) - 1).div_ceil(PAGE) + 1))
    }
}

/// A group in a message; empty if it is the only one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupName {
    /// Its number; `None`: it is the only one.
    pub group: Option<usize>,
    /// The number of last positions that rows read of it; `None`: all.
    pub reach: Option<usize>,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.group, self.reach) {
            (None, _) => Ok(()),
            (Some(group), None) => write!(f, " of group {group} (all positions)"),
            (Some(group), Some(reach)) => write!(f, " of group {group} (the last {reach} positions)"),
        }
    }
}

/// The number of positions before a step to which a sequence can always be rolled back: more than
/// anyone guesses at a time. Pages that only rows before them read are returned to the pool.
pub const ROLLBACK: usize = PAGE;

/// A row with the pages of its sequence.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedRow {
    /// The token.
    pub token: Token,
    /// The position.
    pub pos: Pos,
    /// The page tables of its sequence, up to the block of [`PAGE`] positions that contains the
    /// row's position.
    pub pages: PageTables,
    /// Whether its outputs are wanted.
    pub wanted: bool,
    /// How the token after it is chosen, if it is wanted and the VM is to choose it.
    pub choice: Option<Choice>,
}

/// A VM that runs steps of rows.
pub trait RowVm {
    /// The error of a failed step.
    type Error: Error + Send + Sync + 'static;

    /// Its sizes.
    fn limits(&self) -> RowLimits;

    /// The best number of rows for one step when `pending` rows could run and no sequence waits for
    /// another: at least one, and at most the rows of a step.
    fn best_rows(&self, pending: usize) -> usize {
        pending.min(self.limits().rows)
    }

    /// The number of rows up to which steps give a row bit-identical logits. A row that has a step
    /// to itself may differ, unless [`Self::keep_alike`] forbids it.
    fn alike_rows(&self) -> usize {
        self.limits().rows
    }

    /// Sets whether a row that has a step to itself must have the same bits as in steps of
    /// [`Self::alike_rows`], even where different bits would be faster.
    fn keep_alike(&mut self, _keep: bool) {}

    /// Whether the VM chooses the tokens after rows that have a choice. Other VMs return their
    /// logits.
    fn chooses(&self) -> bool {
        false
    }

    /// The time that the last step took on the device, if the VM has one.
    fn device_time(&self) -> Option<Duration> {
        None
    }

    /// Changes a page in every state of a group.
    ///
    /// # Errors
    /// If there is no such page, or the device fails.
    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Self::Error>;

    /// Runs a step of rows as placed by [`super::Sequences`].
    ///
    /// # Errors
    /// If the rows break the [`super::contract`], in which case nothing has run. If the step fails,
    /// after which the VM can no longer be used.
    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error>;

    /// Like [`Self::step_rows`], but calls `host_work` once, unless an error comes first: while a
    /// device runs the step, or before a step that runs on the caller's thread.
    ///
    /// # Errors
    /// As for [`Self::step_rows`].
    fn step_rows_overlapped(&mut self, rows: Vec<PlacedRow>, host_work: &mut dyn FnMut()) -> Result<(), Self::Error> {
        host_work();
        self.step_rows(rows)
    }

    /// The token chosen after a row of the last step. `None` if none was requested, or if the
    /// choice is left to the caller: because no logit is finite, the highest is infinite, or too
    /// many are equal.
    fn token(&self, _row: usize) -> Option<Token> {
        None
    }

    /// The logits `[VOCAB]` of a row of the last step that was wanted and has no [`Self::token`].
    fn logits(&self, row: usize) -> &[f32];

    /// The token or the logits of a wanted row of the last step.
    fn outcome(&self, row: usize) -> Outcome<'_> {
        self.token(row).map_or_else(|| Outcome::Logits(self.logits(row)), Outcome::Token)
    }
}
