//! The phase that chooses the tokens after the rows of a step.
//!
//! Each row has one worker, which reads all of the row's logits. In the program the choice is
//! greedy; the parameters of a row's draw are data of the step ([`amk::rows::Choice`]). A row whose
//! logits are requested, or whose search ends without a token, is left to the host.

use super::phase::CHOOSE;
use amk::ir::{BufferId, BufferKind, DType, Exchange};
use amk_cuda::cost::{CostModel, Overhead};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, read, same, write};

/// The choice of the tokens after some rows: a worker's first row, and every row at a multiple of
/// the number of workers after it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChooseRows;

/// The buffer of the chosen tokens.
#[derive(Clone, Copy, Debug)]
struct Chosen(BufferId);

/// Adds the phase and the buffer of the tokens.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let chosen = planner.buffer("chosen", BufferKind::Output, DType::U32, &[1], Exchange::Counter);
    planner.plan.shared.set(Chosen(chosen));
    planner.exchange(planner.plan.logits);
    let (rows, workers) = (planner.plan.rows().unwrap_or(0), planner.plan.schedule.workers);
    let work = |worker: u32| match rows.saturating_sub(worker).div_ceil(workers) {
        0 => Work::Rows(0..0),
        count => Work::Cell { row: worker, column: count },
    };
    planner.phase(ChooseRows, (0..workers).map(work).collect());
}

impl PhaseKind for ChooseRows {
    fn label(&self) -> String {
        "choose".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(&Chosen(chosen)), &Work::Cell { row, column: count }) = (task.plan.shared.get(), work) else {
            return;
        };
        let Plan { logits, ref sizes, ref schedule, .. } = *task.plan;
        let (vocab, workers) = (sizes.vocab, schedule.workers);
        for row in (0..count).map(|n| row + n * workers) {
            let operands = vec![read(logits, &[0..vocab]), write(chosen, &[0..1])];
            task.call_of_wanted_rows(&(row..row + 1), "amk_kernels::argmax", operands, Vec::new());
        }
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let &Work::Cell { row, column: count } = work else { return Record::default() };
        Record { op: encoder.op("CHOOSE"), units: count as u16, row, ..Record::default() }
    }

    fn overhead(&self, _cost: &CostModel) -> Overhead {
        Overhead { hops: true, fixed: CHOOSE }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}
