//! Steps of exactly one row: launches of [`crate::Vm`]'s program over the pages of the row's
//! sequence.
//!
//! The plan is for one row, without rows in its schedule, and has pages: a block of the cache is
//! looked up in the page table. Weights, caches and pages are shared with the other programs.

use super::StepWords;
use super::wanted::chooser;
use crate::error::CudaError;
use crate::image::abi::VmParams;
use crate::launch::{Ready, UNDECIDED};
use crate::options::VmOptions;
use crate::plan::Precision;
use crate::run::RunOptions;
use amk::rows::PlacedRow;
use amk_ir::schedule::{PartialRing, PartialSchedule};
use amk_ir::{BufferId, BufferKind};

/// The word of a token that has not been chosen yet.
pub(super) const PENDING: u32 = 0;

/// The options of the program, where `fields` is the schedule of the other programs. `None` if
/// states are not in fused caches.
pub(super) fn options(options: &VmOptions, fields: &PartialSchedule) -> Option<VmOptions> {
    if options.precision == Precision::F32 {
        return None;
    }
    let of_one = fields.rows.is_some_and(|rows| rows.most == 1);
    let ring = if of_one { fields.ring } else { PartialRing::default() };
    let fields = PartialSchedule { rows: None, steps: None, exchange: None, ring, ..fields.clone() };
    Some(VmOptions { schedule: Some(fields), ..options.clone() })
}

/// Whether all states are in fused caches: generic tasks' states have no pages without rows.
pub(super) fn has_pages(Ready { plan, image, .. }: &Ready) -> bool {
    let buffer = |id: BufferId| plan.program.buffers.get(id.index());
    let is_state = |&(id, _): &(BufferId, u64)| buffer(id).is_some_and(|buffer| buffer.kind == BufferKind::State);
    !image.plain.buffers.iter().any(is_state)
}

/// The options of a row's launch; `None` if its token requires the program of several rows.
pub(super) fn launch_of(row: &PlacedRow) -> Result<Option<RunOptions>, CudaError> {
    match row.choice.as_ref().filter(|_| row.wanted) {
        Some(choice) => Ok(chooser()?.launch_of(choice)),
        None => Ok(Some(RunOptions::default())),
    }
}

/// The parameters of a row's launch. The token goes to the mapped word `chosen`, the logits to the
/// place of a step's first row.
pub(super) fn params(row: &PlacedRow, words: &StepWords, chosen: u64) -> impl FnOnce(VmParams) -> VmParams {
    // The row's words begin with its token, and its pages are the first table.
    let &StepWords { rows: forced, page_tables, logits, .. } = words;
    let pos = row.pos.0;
    move |own| VmParams { forced, forced_count: 1, page_tables, logits, pos, tokens: chosen, ..own }
}

/// The token that a launch chose; `None`: it leaves the choice to the host.
pub(super) fn token(word: u32) -> Option<u32> {
    match word {
        PENDING | UNDECIDED => None,
        word => Some(word - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_ir::Steps;
    use amk_ir::schedule::{ExchangeBy, RowSchedule};

    #[test]
    fn what_rows_need_of_a_schedule_is_left_out_and_the_rest_kept() {
        let ring = PartialRing { slots: Some(4), ..PartialRing::default() };
        let of = |most| PartialSchedule {
            rows: Some(RowSchedule { most, block: None }),
            steps: Some(Steps::Barrier),
            exchange: Some(ExchangeBy::Counters),
            workers: Some(100),
            ring,
            ..PartialSchedule::default()
        };
        let found = |most| options(&VmOptions::default(), &of(most)).and_then(|options| options.schedule);
        let kept = PartialSchedule { workers: Some(100), ..PartialSchedule::default() };
        assert_eq!(found(8), Some(kept.clone()));
        assert_eq!(found(1), Some(PartialSchedule { ring, ..kept }));
        let f32 = VmOptions { precision: Precision::F32, ..VmOptions::default() };
        assert!(options(&f32, &of(8)).is_none());
    }

    #[test]
    fn words_are_tokens_but_those_that_leave_the_choice_to_the_host() {
        assert_eq!([PENDING, 1, 2, 501, UNDECIDED].map(token), [None, Some(0), Some(1), Some(500), None]);
    }
}
