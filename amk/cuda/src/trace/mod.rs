//! Traces of a step: timestamps of every task on every worker, from device clocks.
//!
//! ```text
//! words ─Trace::decode─► tasks in nanoseconds ─► chrome: a timeline that opens in Perfetto
//!                                             └► summary: shares and the critical path, by op
//! ```

mod chrome;
mod names;
mod summary;

pub use summary::{OpSummary, Parts, Summary};

use super::error::CudaError;
use super::image::abi;
use super::plan::Plan;
use amk_ir::{Program, Queues, TaskId};
use cudarc::driver::{CudaSlice, CudaStream};
use names::Names;
pub(super) use names::weight_bytes;
use std::sync::Arc;

/// Words of a record.
const WORDS: usize = abi::TRACE_WORDS as usize;
/// Which of them is the timer at the start.
const TIMER: usize = abi::TRACE_TIMER as usize;
/// Words of a worker.
const WORKER_WORDS: usize = abi::TRACE_WORKER_WORDS as usize;
/// Minimum clock samples per fitted point.
const SAMPLES: usize = 16;

/// A traced step.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Position of the step.
    pub position: u32,
    /// Workers.
    pub workers: usize,
    /// Names of the ops, in the order of the program.
    pub ops: Vec<String>,
    /// The tasks, worker by worker in the order in which they ran.
    pub tasks: Vec<TaskTrace>,
}

/// A task of a traced step. Times are nanoseconds from the start of the step's first task.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskTrace {
    /// The task of the program.
    pub task: TaskId,
    /// The worker.
    pub worker: usize,
    /// Index into [`Trace::ops`].
    pub op: usize,
    /// The layer, if it belongs to one.
    pub layer: Option<u32>,
    /// Its result, as printed in the program.
    pub writes: String,
    /// Bytes of its weights.
    pub bytes: u64,
    /// The worker started on the task.
    pub start: f64,
    /// Its inputs (the first part, if several) and the first block of its weights had arrived;
    /// `None` for a task that waits for none or was inactive.
    pub inputs: Option<f64>,
    /// The first warp had its product.
    pub product: f64,
    /// All warps had theirs.
    pub gathered: f64,
    /// The task was done.
    pub end: f64,
    /// Of the time from the inputs to the product, nanoseconds without further weights in the ring.
    pub starved: f64,
    /// Of that time, nanoseconds of waiting for more inputs: a long input comes in parts.
    pub late: f64,
    /// The loader had requested all of its bytes.
    pub issued: f64,
    /// The loader's waits meanwhile, in nanoseconds.
    pub loader: LoaderWaits,
}

/// Waits of a loader, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct LoaderWaits {
    /// For a free slot: it is as far ahead as the ring allows.
    pub full: f64,
    /// For bytes in flight to land.
    pub landing: f64,
    /// For its pace.
    pub paced: f64,
}

/// Memory for the trace of a program, if it is traced.
///
/// # Errors
/// Errors of the driver.
pub(super) fn room(
    stream: &Arc<CudaStream>,
    program: &Program,
    traced: bool,
) -> Result<Option<CudaSlice<u64>>, CudaError> {
    Ok(if traced { Some(stream.alloc_zeros(words(program))?) } else { None })
}

/// Returns the words of a trace of a program.
fn words(program: &Program) -> usize {
    program.tasks.len() * WORDS + program.queues.workers() as usize * WORKER_WORDS
}

/// A worker's clock in shared nanoseconds. The shared timer ticks only every 32 ns or less often,
/// and any delay between reading the clock and the timer only adds to the latter, so of each group
/// of samples the one whose timer is least ahead counts. Clock rates differ and change within a
/// step, so the mapping interpolates linearly between these samples.
struct Clock {
    /// Clocks since `begin`, nanoseconds.
    points: Vec<(f64, f64)>,
    begin: u64,
    ns_per_clock: f64,
}

impl Clock {
    /// Fits the mapping to simultaneous readings of clock and timer.
    fn new(samples: &[(u64, u64)], origin: u64) -> Option<Self> {
        let (&(begin, ns), &(end, ns_end)) = (samples.first()?, samples.last()?);
        let clocks = end.checked_sub(begin).filter(|&clocks| clocks > 0)?;
        let ns_per_clock = ns_end.checked_sub(ns)? as f64 / clocks as f64;
        let points = (samples.len() / SAMPLES).max(2);
        let points = samples.chunks(samples.len().div_ceil(points)).filter_map(|samples| {
            let since = |&(clock, ns): &(u64, u64)| {
                (clock.wrapping_sub(begin) as i64 as f64, ns.wrapping_sub(origin) as i64 as f64)
            };
            let ahead = |&(clock, ns): &(f64, f64)| ns - clock * ns_per_clock;
            samples.iter().map(since).min_by(|a, b| ahead(a).total_cmp(&ahead(b)))
        });
        Some(Self { points: points.collect(), begin, ns_per_clock })
    }

    /// Returns nanoseconds after the origin.
    fn at(&self, clock: u64) -> f64 {
        let clock = clock.wrapping_sub(self.begin) as i64 as f64;
        let after = self.points.partition_point(|point| point.0 <= clock).clamp(1, self.points.len() - 1);
        let ((x0, y0), (x1, y1)) = (self.points[after - 1], self.points[after]);
        y0 + (clock - x0) * (y1 - y0) / (x1 - x0)
    }
}

impl Trace {
    /// Decodes the device's trace of the last step of a launch.
    ///
    /// # Errors
    /// [`CudaError::Trace`] if it is incomplete.
    pub(super) fn of_step(plan: &Plan, position: u32, words: &[u64]) -> Result<Self, CudaError> {
        let traced = Self::decode(&plan.program, position, words);
        let mut trace = traced.ok_or(CudaError::Trace("a task of the last step left no time stamps"))?;
        for task in &mut trace.tasks {
            task.bytes = plan.streamed(task.task).unwrap_or(task.bytes);
        }
        Ok(trace)
    }

    /// Decodes the device's trace of a launch of `program`; `None` if it is incomplete.
    fn decode(program: &Program, position: u32, words: &[u64]) -> Option<Self> {
        let Queues::Static(queues) = &program.queues else { return None };
        let records = program.tasks.len() * WORDS;
        let (records, ends) = (words.get(..records)?, words.get(records..)?);
        let origin = ends.get(1).copied()?;
        let mut rest = records;
        let names = Names::new(program);
        let mut tasks = Vec::with_capacity(program.tasks.len());
        for (worker, (queue, end)) in queues.iter().zip(ends.chunks_exact(WORKER_WORDS)).enumerate() {
            let (records, others) = rest.split_at_checked(queue.len() * WORDS)?;
            rest = others;
            let starts = records.chunks_exact(WORDS).map(|record| (record[0], record[TIMER]));
            let clock = Clock::new(&starts.chain([(end[0], end[1])]).collect::<Vec<_>>(), origin)?;
            let mut before = None;
            for (&task, record) in queue.iter().zip(records.chunks_exact(WORDS)) {
                let &[start, inputs, product, gathered, end, starved, late, _timer, full, landing, paced, issued] =
                    record
                else {
                    return None;
                };
                if start == 0 || end == 0 {
                    return None;
                }
                let at = |stamp: u64| clock.at(stamp);
                let ns = |clocks: u64| clocks as f64 * clock.ns_per_clock;
                // A stamp that the body does not make equals the next one.
                let gathered = at(if gathered == 0 { end } else { gathered });
                let product = if product == 0 { gathered } else { at(product) };
                // The loader reports its waits since the previous record. Wide steps have none.
                let issued = at(if issued == 0 { start } else { issued }).max(before.unwrap_or(f64::MIN));
                before = Some(issued);
                tasks.push(TaskTrace {
                    task,
                    worker,
                    op: names.op(program, task),
                    layer: names.layer(program, task),
                    writes: names::writes(program, task),
                    bytes: weight_bytes(program, task),
                    start: at(start),
                    inputs: (inputs != 0).then(|| at(inputs)),
                    product,
                    gathered,
                    end: at(end),
                    starved: ns(starved),
                    late: ns(late),
                    issued,
                    loader: LoaderWaits { full: ns(full), landing: ns(landing), paced: ns(paced) },
                });
            }
        }
        let mut trace = Self { position, workers: queues.len(), ops: names.ops, tasks };
        trace.rebase();
        Some(trace)
    }

    /// Shifts times so that the first task starts at 0.
    fn rebase(&mut self) {
        let first = self.tasks.iter().map(|task| task.start).fold(f64::INFINITY, f64::min);
        for task in &mut self.tasks {
            for time in [&mut task.start, &mut task.product, &mut task.gathered, &mut task.end, &mut task.issued] {
                *time -= first;
            }
            task.inputs = task.inputs.map(|inputs| inputs - first);
        }
    }

    /// Returns the time of the step in nanoseconds, from the start of its first task to the end of
    /// its last.
    pub fn step(&self) -> f64 {
        self.tasks.iter().map(|task| task.end).fold(0.0, f64::max)
    }
}

impl TaskTrace {
    /// Returns when its inputs had arrived, or the start if it waits for none.
    pub fn ready(&self) -> f64 {
        self.inputs.unwrap_or(self.start)
    }

    /// Returns the parts of its time in order: waiting for inputs, for weights and computing, for
    /// the other warps, delivering.
    pub fn parts(&self) -> [(&'static str, f64, f64); 4] {
        let ready = self.ready();
        [
            ("wait", self.start, ready),
            ("stream", ready, self.product),
            ("gather", self.product, self.gathered),
            ("epilogue", self.gathered, self.end),
        ]
    }
}

#[cfg(test)]
mod tests;
