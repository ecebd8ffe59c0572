//! What a VM with rows offers.

use super::{Choice, Outcome, PAGE, PageEdit, PageTables};
use crate::tensor::{Pos, Token};
use core::error::Error;
use core::fmt;
use std::time::Duration;

/// The sizes of a VM with rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowLimits {
    /// The most rows of a step.
    pub rows: usize,
    /// The most positions of a sequence.
    pub positions: usize,
    /// The groups of its states ([`amk_ir::rows::PageGroups`]), at least one.
    pub groups: Vec<PageGroup>,
}

/// States of which rows read equally many positions. They have pages of their own, and a page table
/// for each sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageGroup {
    /// Pages of [`PAGE`] positions, for all sequences.
    pub pages: usize,
    /// The last positions, its own included, of which a row reads anything; `None`: all. Pages
    /// before them are given back.
    pub reach: Option<usize>,
}

impl RowLimits {
    /// Of a VM whose states are one group with so many pages, of which rows read all positions.
    pub fn new(rows: usize, positions: usize, pages: usize) -> Self {
        Self { rows, positions, groups: vec![PageGroup { pages, reach: None }] }
    }

    /// Pages that so many positions take.
    pub const fn pages_of(positions: usize) -> usize {
        positions.div_ceil(PAGE)
    }

    /// The most pages of each group that a sequence has at a time until it has so many positions.
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
    /// The first position of which a row at `pos` reads anything.
    pub const fn first_read(&self, pos: usize) -> usize {
        match self.reach {
            Some(reach) => (pos + 1).saturating_sub(reach),
            None => 0,
        }
    }

    /// The most pages that a sequence has at a time until it has so many positions, in steps of up
    /// to `rows` rows.
    pub fn pages_at_once(&self, positions: usize, rows: usize) -> usize {
        // What a step's rows read and write, and what the sequence can be rolled back by.
        let at_once = self.reach.map(|reach| reach + rows + ROLLBACK - 1);
        let pages = RowLimits::pages_of(positions);
        at_once.map_or(pages, |positions| pages.min((positions.max(1) - 1).div_ceil(PAGE) + 1))
    }
}

/// A group in a message; nothing where there is but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupName {
    /// Its number; `None`: it is the only one.
    pub group: Option<usize>,
    /// The last positions that rows read of it; `None`: all.
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

/// Positions before a step that a sequence can be rolled back by in any case: more than anyone
/// guesses at a time. Pages that only rows before them read are given back.
pub const ROLLBACK: usize = PAGE;

/// A row with the pages of its sequence.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedRow {
    /// The token.
    pub token: Token,
    /// The position.
    pub pos: Pos,
    /// The page tables of its sequence, up to the block of [`PAGE`] positions that has the row's.
    pub pages: PageTables,
    /// Whether its outputs are wanted.
    pub wanted: bool,
    /// How the token after it is chosen, where it is wanted and a VM that chooses is to choose it.
    pub choice: Option<Choice>,
}

/// A VM that runs steps of rows.
pub trait RowVm {
    /// Why a step fails.
    type Error: Error + Send + Sync + 'static;

    /// Its sizes.
    fn limits(&self) -> RowLimits;

    /// How many of so many rows that could run now had best be in one step, where nobody waits for
    /// another: at least one, and as many as a step has at most.
    fn best_rows(&self, pending: usize) -> usize {
        pending.min(self.limits().rows)
    }

    /// The rows of a step up to which a row's logits have the same bits, whatever the number. A
    /// row that has a step to itself may have others, unless [`Self::keep_alike`] forbids it.
    fn alike_rows(&self) -> usize {
        self.limits().rows
    }

    /// Whether from now on a row that has a step to itself has the bits that it has in steps of
    /// [`Self::alike_rows`], also where other bits would take less time.
    fn keep_alike(&mut self, _keep: bool) {}

    /// Whether it chooses the tokens after rows that have a choice. Other VMs give their logits.
    fn chooses(&self) -> bool {
        false
    }

    /// The time that the last step took on a device, where it is one of its own.
    fn device_time(&self) -> Option<Duration> {
        None
    }

    /// Changes a page of every state of a group.
    ///
    /// # Errors
    /// When there is no such page, or the device fails.
    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Self::Error>;

    /// Runs a step of rows as [`super::Sequences`] places them.
    ///
    /// # Errors
    /// When the rows break the [`super::contract`]: nothing has run then. When the step fails: the
    /// VM is of no use then.
    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error>;

    /// As [`Self::step_rows`]. Calls `host_work` once unless an error comes first: while a device
    /// runs the step, or before a step that takes the caller's time.
    ///
    /// # Errors
    /// As [`Self::step_rows`].
    fn step_rows_overlapped(&mut self, rows: Vec<PlacedRow>, host_work: &mut dyn FnMut()) -> Result<(), Self::Error> {
        host_work();
        self.step_rows(rows)
    }

    /// The token that was chosen after a row of the last step. `None` where none was asked for, and
    /// where the choice is left to the caller: where no logit is a finite number, or the highest is
    /// infinite, or too many are equal.
    fn token(&self, _row: usize) -> Option<Token> {
        None
    }

    /// The logits `[VOCAB]` of a row of the last step, which was wanted and has no
    /// [`Self::token`].
    fn logits(&self, row: usize) -> &[f32];

    /// The token or the logits of a row of the last step, which was wanted.
    fn outcome(&self, row: usize) -> Outcome<'_> {
        self.token(row).map_or_else(|| Outcome::Logits(self.logits(row)), Outcome::Token)
    }
}
