//! The decoder: from the words of an image back to calls on buffers, compared with the verified
//! program. It shares nothing with the encoder but the ABI: what a record means is read off the
//! record, the image's tables and the state in which the records before left the worker.
//!
//! | file | records |
//! |---|---|
//! | `residual` | embed, adopt |
//! | `gemv` | projections, with their part of the tape |
//! | `attention` | attend, combine |
//! | `draw` | best, probe, choose |
//! | `generic` | generic tasks, from their tiles |
//! | `counters` | the waits and signals of every record |
//! | `tables` | what lies where, and the numbers that all tasks share |

#![allow(clippy::single_range_in_vec_init, reason = "a region is a list of ranges, one a dimension")]

mod attention;
mod call;
mod compare;
mod counters;
mod draw;
mod gemv;
mod generic;
mod places;
mod residual;
mod tables;
mod worker;

pub(super) use call::Refusal;

use super::Image;
use super::abi::{
    FIRST_BODY, OP_ADOPT, OP_ATTEND, OP_BEST, OP_CHOOSE, OP_COMBINE, OP_EMBED, OP_GEMV, OP_PROBE, Record,
};
use crate::error::CudaError;
use crate::plan::Plan;
use amk_ir::verify::Verified;
use amk_ir::{Program, Queues, TaskId};
use call::DecodedCall;
use places::Places;
use worker::WorkerState;

impl Image {
    /// Decodes every record and table, and compares them with the verified program.
    ///
    /// # Errors
    /// [`CudaError::Image`] with the first task or table that means something else.
    pub fn check(&self, verified: &Verified, plan: &Plan) -> Result<(), CudaError> {
        let program = verified.program();
        let of_image = |refusal| error("the image", refusal);
        let Queues::Static(queues) = &program.queues else {
            return Err(of_image(Refusal::new("queues", "are not static")));
        };
        tables::check(self, program, plan, queues.len()).map_err(of_image)?;
        let places = Places::new(self, program, plan).map_err(of_image)?;
        let mut arguments = 0;
        for (worker, queue) in queues.iter().enumerate() {
            let mut state = WorkerState::new(worker as u32, arguments);
            self.check_worker(&places, &mut state, queue)?;
            arguments = state.arguments;
        }
        if arguments as usize != self.plain.words.len() {
            return Err(of_image(Refusal::new("arguments", "there are words that no task reads")));
        }
        Ok(())
    }

    fn check_worker(&self, places: &Places<'_>, state: &mut WorkerState, queue: &[TaskId]) -> Result<(), CudaError> {
        let worker = state.worker as usize;
        let bounds = self.record_at[worker] as usize..self.record_at[worker + 1] as usize;
        for (record, &id) in self.records[bounds].iter().zip(queue) {
            check_task(places, state, record, id).map_err(|refusal| error(&title(places.program, id), refusal))?;
        }
        let end = || tables::check_tape(self, state).and_then(|()| state.check_end());
        end().map_err(|refusal| error(&format!("worker {worker}"), refusal))
    }
}

fn check_task(places: &Places<'_>, state: &mut WorkerState, record: &Record, id: TaskId) -> Result<(), Refusal> {
    if record.task != id.0 {
        return Err(Refusal::new("task", format!("is t{}", record.task)));
    }
    let task = places.program.tasks.get(id.index());
    let task = task.ok_or_else(|| Refusal::new("task", "does not exist"))?;
    if record.reserved != 0 {
        return Err(Refusal::new("reserved", "is not 0"));
    }
    state.check_order(record)?;
    let calls = decode(record, places, state)?;
    compare::calls(places, state, &calls, &task.calls)?;
    counters::check(record, places, task)
}

/// The calls that the device runs for a record.
fn decode<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    match u32::from(record.op) {
        OP_EMBED => residual::embed(record, places, state),
        OP_ADOPT => residual::adopt(record, places),
        OP_GEMV => gemv::decode(record, places, state),
        OP_ATTEND => attention::attend(record, places),
        OP_COMBINE => attention::combine(record, places),
        OP_BEST => draw::best(record, places, state),
        OP_PROBE => draw::probe(record, places, state),
        OP_CHOOSE => draw::choose(record, places, state),
        op if op >= FIRST_BODY => generic::decode(record, places, state),
        op => Err(Refusal::new("op", format!("is {op}, which is no instruction"))),
    }
}

fn error(at: &str, refusal: Refusal) -> CudaError {
    CudaError::Image { at: at.to_owned(), what: refusal.to_string() }
}

/// A task as messages name it: `task t12 (attend 3)`.
fn title(program: &Program, id: TaskId) -> String {
    let op = program.tasks.get(id.index()).and_then(|task| task.op);
    match op.and_then(|op| program.ops.get(op.index())) {
        Some(op) => format!("task t{} ({op})", id.0),
        None => format!("task t{}", id.0),
    }
}
