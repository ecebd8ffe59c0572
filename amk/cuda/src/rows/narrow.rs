//! Which steps of more than [`NARROW_ROWS`] rows are narrow.

use super::super::image::abi::NARROW_ROWS;
use super::super::launch::plan_for;
use super::super::plan::WeightForms;
use super::super::schedule::is_wide;
use super::super::set::body_sets;
use super::super::target::GpuTarget;
use amk::Megakernel;
use amk_ir::graph::Instance;
use amk_ir::schedule::{ExchangeBy, PartialSchedule};

/// Completes the fields of a schedule as [`super::RowsVm`] does: with packets, if the schedule
/// names no exchange and narrow steps of more than [`NARROW_ROWS`] rows take less time than wide
/// ones.
pub fn with_exchange(
    kernel: &Megakernel,
    instance: &Instance,
    target: &GpuTarget,
    fields: &PartialSchedule,
    forms: impl Into<WeightForms>,
) -> PartialSchedule {
    let narrow = PartialSchedule { exchange: Some(ExchangeBy::Packets), ..fields.clone() };
    let schedule = target.complete(&narrow);
    let more = fields.rows.is_some_and(|rows| rows.most > NARROW_ROWS);
    if !more || fields.exchange.is_some() || is_wide(&schedule) || target.check(&schedule).is_err() {
        return fields.clone();
    }
    let suits = plan_for(kernel, instance, &schedule, forms)
        .is_ok_and(|plan| plan.has_row_packets() && body_sets().iter().all(|set| set.shared.suits_narrow(&plan)));
    if suits { narrow } else { fields.clone() }
}
