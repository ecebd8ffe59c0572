//! The decoder: reads the words of an image back into calls on buffers and compares them with the
//! verified program. It shares nothing with the encoder but the ABI. The meaning of a record
//! follows from the record, the image's tables and the worker's state after the previous records.
//!
//! Records of fused tasks are decoded by the kinds that their crates register
//! ([`crate::set::RecordKind`]), and those of generic tasks by `generic`. `counters` compares the
//! waits and signals of every record, `tables` the memory layout.

#![allow(clippy::single_range_in_vec_init, reason = "a region is a list of ranges, one a dimension")]

mod call;
mod compare;
mod counters;
mod generic;
mod places;
mod tables;
mod worker;

pub use call::{DecodedCall, DecodedOperand, Place, Refusal, early, for_rows, only, read, region, rows, update, write};
pub use places::{Format, Places, Survey};
pub use worker::WorkerState;

use super::Image;
use super::abi::{FIRST_BODY, Record};
use crate::error::CudaError;
use crate::plan::Plan;
use crate::set::{Sampling, sampling};
use amk_ir::verify::Verified;
use amk_ir::{Program, Queues, TaskId};

impl Image {
    /// Decodes every record and table, and compares them with the verified program.
    ///
    /// # Errors
    /// [`CudaError::Image`] with the first task or table that differs.
    pub fn check(&self, verified: &Verified, plan: &Plan) -> Result<(), CudaError> {
        let program = verified.program();
        let of_image = |refusal| error("the image", refusal);
        let Queues::Static(queues) = &program.queues else {
            return Err(of_image(Refusal::new("queues", "are not static")));
        };
        let survey = Survey::new(program);
        tables::check(self, program, plan, &survey, queues.len()).map_err(of_image)?;
        let sampling = sampling().ok_or_else(|| of_image(Refusal::new("op", "has no code that chooses tokens")))?;
        let places = Places::new(self, program, plan, survey).map_err(of_image)?;
        let mut arguments = 0;
        for (worker, queue) in queues.iter().enumerate() {
            let mut state = WorkerState::new(worker as u32, arguments);
            self.check_worker(&places, sampling, &mut state, queue)?;
            arguments = state.arguments;
        }
        if arguments as usize != self.plain.words.len() {
            return Err(of_image(Refusal::new("arguments", "there are words that no task reads")));
        }
        Ok(())
    }

    fn check_worker(
        &self,
        places: &Places<'_>,
        sampling: &dyn Sampling,
        state: &mut WorkerState,
        queue: &[TaskId],
    ) -> Result<(), CudaError> {
        let worker = state.worker as usize;
        let bounds = self.record_at[worker] as usize..self.record_at[worker + 1] as usize;
        for (record, &id) in self.records[bounds].iter().zip(queue) {
            check_task(places, sampling, state, record, id)
                .map_err(|refusal| error(&title(places.program, id), refusal))?;
        }
        // With rows, choices depend on nothing that a worker did before.
        let chosen = |state: &WorkerState| match places.program.rows {
            Some(_) => Ok(()),
            None => sampling.check_end(state),
        };
        let end = || tables::check_tape(self, state).and_then(|()| chosen(state));
        end().map_err(|refusal| error(&format!("worker {worker}"), refusal))
    }
}

fn check_task(
    places: &Places<'_>,
    sampling: &dyn Sampling,
    state: &mut WorkerState,
    record: &Record,
    id: TaskId,
) -> Result<(), Refusal> {
    if record.task != id.0 {
        return Err(Refusal::new("task", format!("is t{}", record.task)));
    }
    let task = places.program.tasks.get(id.index());
    let task = task.ok_or_else(|| Refusal::new("task", "does not exist"))?;
    if record.reserved != 0 {
        return Err(Refusal::new("reserved", "is not 0"));
    }
    let kind = places.kinds.get(usize::from(record.op));
    if places.program.rows.is_none() {
        sampling.check_order(state, kind.map(|kind| kind.name))?;
    }
    let calls = decode(record, places, state)?;
    compare::calls(places, state, &calls, &task.calls)?;
    counters::check(record, places, task)
}

/// Returns the calls that the device runs for a record.
fn decode<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    let op = u32::from(record.op);
    if op >= FIRST_BODY {
        return generic::decode(record, places, state);
    }
    match places.kinds.get(op as usize) {
        Some(kind) => (kind.decode)(record, places, state),
        None => Err(Refusal::new("op", format!("is {op}, which is no kind of record"))),
    }
}

fn error(at: &str, refusal: Refusal) -> CudaError {
    CudaError::Image { at: at.to_owned(), what: refusal.to_string() }
}

/// Formats a task for messages: `task t12 (attend 3)`.
fn title(program: &Program, id: TaskId) -> String {
    let op = program.tasks.get(id.index()).and_then(|task| task.op);
    match op.and_then(|op| program.ops.get(op.index())) {
        Some(op) => format!("task t{} ({op})", id.0),
        None => format!("task t{}", id.0),
    }
}
