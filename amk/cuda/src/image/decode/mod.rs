//! The decoder: reads the words of an image back into calls on buffers and compares them with the
//! verified program. It shares nothing with the encoder except the ABI. The meaning of a record
//! follows from the record, the image's tables and the worker's state after the previous records.
//!
//! Records of fused tasks are decoded by the kinds that their crates register
//! ([`crate::set::RecordKind`]), records of generic tasks by `generic`. `counters` compares the
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
        self.checked(verified, plan).map(drop)
    }

    /// Checks like [`Image::check`], and returns the image with the facts established.
    ///
    /// # Errors
    /// As for [`Image::check`].
    pub fn checked<'p>(&'p self, verified: &'p Verified, plan: &'p Plan) -> Result<Checked<'p>, CudaError> {
        let program = verified.program();
        let Queues::Static(queues) = &program.queues else {
            return Err(of_image(Refusal::new("queues", "are not static")));
        };
        let survey = Survey::new(program);
        tables::check(self, program, plan, &survey, queues.len()).map_err(of_image)?;
        let sampling = sampling().ok_or_else(|| of_image(Refusal::new("op", "has no code that chooses tokens")))?;
        let places = Places::new(self, program, plan, survey).map_err(of_image)?;
        let mut checked = Checked { places, sampling, queues, arguments: Vec::new() };
        let mut arguments = 0;
        for worker in 0..queues.len() {
            checked.arguments.push(arguments);
            arguments = checked.worker(worker, arguments, checked.records(worker))?;
        }
        checked.end(arguments)?;
        Ok(checked)
    }
}

/// An image that is a verified program.
pub struct Checked<'p> {
    places: Places<'p>,
    sampling: &'static dyn Sampling,
    queues: &'p [Vec<TaskId>],
    /// By worker, the argument words that those before it consume.
    arguments: Vec<u32>,
}

impl<'p> Checked<'p> {
    /// Checks, like [`Image::check`], the image with one record replaced. Workers that the change
    /// does not affect are not decoded again.
    ///
    /// # Errors
    /// As for [`Image::check`].
    ///
    /// # Panics
    /// If the image has no record `at`.
    pub fn with(&self, at: usize, record: Record) -> Result<(), CudaError> {
        let record_at = &self.places.image.record_at;
        let worker = record_at.partition_point(|&first| first as usize <= at) - 1;
        let mut records = self.records(worker).to_vec();
        records[at - record_at[worker] as usize] = record;
        let mut arguments = self.worker(worker, self.arguments[worker], &records)?;
        for next in worker + 1..self.queues.len() {
            if arguments == self.arguments[next] {
                return Ok(());
            }
            arguments = self.worker(next, arguments, self.records(next))?;
        }
        self.end(arguments)
    }

    fn records(&self, worker: usize) -> &'p [Record] {
        let Image { records, record_at, .. } = self.places.image;
        &records[record_at[worker] as usize..record_at[worker + 1] as usize]
    }

    /// Checks the records of a worker, and returns the argument words that it and those before it
    /// consume.
    fn worker(&self, worker: usize, arguments: u32, records: &[Record]) -> Result<u32, CudaError> {
        let Self { places, sampling, queues, .. } = self;
        let mut state = WorkerState::new(worker as u32, arguments);
        for (record, &id) in records.iter().zip(&queues[worker]) {
            check_task(places, *sampling, &mut state, record, id)
                .map_err(|refusal| error(&title(places.program, id), refusal))?;
        }
        // With rows, choices depend on nothing that a worker did before.
        let chosen = |state: &WorkerState| match places.program.rows {
            Some(_) => Ok(()),
            None => sampling.check_end(state),
        };
        let end = tables::check_tape(places.image, &state).and_then(|()| chosen(&state));
        end.map_err(|refusal| error(&format!("worker {worker}"), refusal))?;
        Ok(state.arguments)
    }

    /// Checks that all argument words belong to tasks.
    fn end(&self, arguments: u32) -> Result<(), CudaError> {
        if arguments as usize == self.places.image.plain.words.len() {
            return Ok(());
        }
        Err(of_image(Refusal::new("arguments", "there are words that no task reads")))
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

fn of_image(refusal: Refusal) -> CudaError {
    error("the image", refusal)
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
