//! Breakdown of a step's time by op.

use super::{LoaderWaits, TaskTrace, Trace};
use amk_ir::{Access, BufferId, BufferKind, Exchange, Operand, Program, TaskId};
use std::collections::HashMap;

/// Breakdown of the time of a traced step.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Time of the step, nanoseconds.
    pub step: f64,
    /// Mean waits of a worker's loader in the step.
    pub loader: LoaderWaits,
    /// By op, in the order of [`Trace::ops`], without ops that have no task.
    pub ops: Vec<OpSummary>,
}

/// Breakdown of the time of an op's tasks. Times are in nanoseconds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct OpSummary {
    /// Its name.
    pub op: String,
    /// Active tasks.
    pub tasks: usize,
    /// Share of the time of all workers.
    pub share: f64,
    /// Medians over the active tasks.
    pub median: Parts,
    /// Time of the critical path in the op. The sum over all ops is the step.
    pub critical: Parts,
    /// Its tasks on the critical path.
    pub critical_tasks: usize,
    /// Mean waits of a worker's loader while fetching the op's weights.
    pub loader: LoaderWaits,
}

/// Parts of a task's time, nanoseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Parts {
    /// Waiting for inputs and the first weights. On the critical path this is the hop, from the end
    /// of the last producer to the arrival of the inputs.
    pub wait: f64,
    /// Waiting for further weights.
    pub starved: f64,
    /// Computing.
    pub compute: f64,
    /// Waiting for the other warps.
    pub gather: f64,
    /// Delivering.
    pub epilogue: f64,
}

impl Parts {
    fn of(task: &TaskTrace) -> Self {
        let stream = (task.product - task.ready()).max(0.0);
        let starved = task.starved.min(stream);
        let late = task.late.min(stream - starved);
        Self {
            wait: task.ready() - task.start + late,
            starved,
            compute: stream - starved - late,
            gather: task.gathered - task.product,
            epilogue: task.end - task.gathered,
        }
    }

    /// The sum of the parts.
    pub fn total(&self) -> f64 {
        self.wait + self.starved + self.compute + self.gather + self.epilogue
    }

    fn add(&mut self, other: Self) {
        self.wait += other.wait;
        self.starved += other.starved;
        self.compute += other.compute;
        self.gather += other.gather;
        self.epilogue += other.epilogue;
    }
}

impl LoaderWaits {
    fn add(&mut self, other: Self, workers: usize) {
        self.full += other.full / workers as f64;
        self.landing += other.landing / workers as f64;
        self.paced += other.paced / workers as f64;
    }
}

impl Trace {
    /// Summarises the trace of `program`.
    pub fn summary(&self, program: &Program) -> Summary {
        let step = self.step();
        let mut ops: Vec<OpSummary> =
            self.ops.iter().map(|op| OpSummary { op: op.clone(), ..OpSummary::default() }).collect();
        let mut loader = LoaderWaits::default();
        let mut parts: Vec<Vec<Parts>> = vec![Vec::new(); ops.len()];
        for task in &self.tasks {
            ops[task.op].share += (task.end - task.start) / (step * self.workers as f64);
            parts[task.op].push(Parts::of(task));
            ops[task.op].loader.add(task.loader, self.workers);
            loader.add(task.loader, self.workers);
        }
        for ((op, parts), index) in ops.iter_mut().zip(&parts).zip(0..) {
            // A task without waits differs from an inactive one in the behaviour of its op's other
            // tasks.
            let waits = self.tasks.iter().any(|task| task.op == index && task.inputs.is_some());
            let of_op = self.tasks.iter().filter(|task| task.op == index);
            let busy: Vec<Parts> =
                of_op.zip(parts).filter(|(task, _)| !waits || task.inputs.is_some()).map(|(_, parts)| *parts).collect();
            op.tasks = busy.len();
            op.median = Parts {
                wait: median(&busy, |parts| parts.wait),
                starved: median(&busy, |parts| parts.starved),
                compute: median(&busy, |parts| parts.compute),
                gather: median(&busy, |parts| parts.gather),
                epilogue: median(&busy, |parts| parts.epilogue),
            };
        }
        for (at, parts) in self.critical_path(program) {
            let op = &mut ops[self.tasks[at].op];
            op.critical.add(parts);
            op.critical_tasks += 1;
        }
        ops.retain(|op| op.share > 0.0);
        Summary { step, loader, ops }
    }

    /// Returns the critical path of the step, from its end backwards. The predecessor of a task
    /// that waited for its inputs is the last of their producers; otherwise it is the previous task
    /// on its worker.
    fn critical_path(&self, program: &Program) -> Vec<(usize, Parts)> {
        let writers = writers(program);
        let by_id: HashMap<TaskId, usize> = self.tasks.iter().zip(0..).map(|(task, at)| (task.task, at)).collect();
        let mut path = Vec::new();
        let last = (0..self.tasks.len()).max_by(|&a, &b| self.tasks[a].end.total_cmp(&self.tasks[b].end));
        let mut next = last.map(|at| (at, self.tasks[at].end));
        // Times only decrease; the bound handles clocks that disagree.
        while let Some((at, until)) = next.filter(|_| path.len() <= self.tasks.len()) {
            let task = &self.tasks[at];
            let before = at.checked_sub(1).filter(|&before| self.tasks[before].worker == task.worker);
            let producers = reads(program, task.task).flat_map(|operand| {
                let of_buffer = writers.get(&operand.buffer).map_or(&[][..], Vec::as_slice);
                of_buffer.iter().filter(|(_, written)| overlaps(operand, written, self.position)).map(|&(id, _)| id)
            });
            let producer = producers
                .filter_map(|id| by_id.get(&id).copied())
                .filter(|&from| from != at && self.tasks[from].start < task.ready())
                .max_by(|&a, &b| self.tasks[a].end.total_cmp(&self.tasks[b].end));
            let ready = task.ready().min(until);
            let mut parts = Parts { wait: task.late, ..Parts::of(task) }.until(until - ready);
            let waited = producer.filter(|&from| {
                task.inputs.is_some() && before.is_none_or(|before| self.tasks[from].end > self.tasks[before].end)
            });
            let from = waited.or(before);
            let since = from.map_or(0.0, |from| self.tasks[from].end.min(ready));
            parts.wait += ready - since;
            path.push((at, parts));
            next = from.map(|from| (from, since));
        }
        path
    }
}

impl Parts {
    /// Returns the parts, truncated if their sum exceeds `time`.
    fn until(self, time: f64) -> Self {
        let mut left = time.max(0.0);
        let mut take = |part: f64| {
            let part = part.clamp(0.0, left);
            left -= part;
            part
        };
        let (wait, starved, compute) = (take(self.wait), take(self.starved), take(self.compute));
        let (gather, epilogue) = (take(self.gather), take(self.epilogue));
        Self { wait, starved, compute: compute + left, gather, epilogue }
    }
}

/// Returns the inputs of a task that other tasks publish.
fn reads(program: &Program, task: TaskId) -> impl Iterator<Item = &Operand> {
    let operands =
        program.tasks.get(task.index()).into_iter().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    operands.filter(|operand| operand.access != Access::Write && is_published(program, operand.buffer))
}

/// Returns the tasks that publish parts of each buffer.
fn writers(program: &Program) -> HashMap<BufferId, Vec<(TaskId, &Operand)>> {
    let mut writers: HashMap<BufferId, Vec<(TaskId, &Operand)>> = HashMap::new();
    for (task, id) in program.tasks.iter().zip(0..) {
        let operands = task.calls.iter().flat_map(|call| &call.operands);
        for operand in operands.filter(|operand| operand.access != Access::Read) {
            if is_published(program, operand.buffer) {
                writers.entry(operand.buffer).or_default().push((TaskId(id), operand));
            }
        }
    }
    writers
}

/// Whether workers exchange a buffer: in packets, or with rows in plain memory behind counters.
fn is_published(program: &Program, buffer: BufferId) -> bool {
    let Some(buffer) = program.buffers.get(buffer.index()) else { return false };
    let exchanged = matches!(buffer.kind, BufferKind::Activation | BufferKind::State);
    matches!(buffer.exchange, Exchange::Packet { .. }) || program.rows.is_some() && exchanged
}

fn overlaps(a: &Operand, b: &Operand, position: u32) -> bool {
    let pos = u64::from(position);
    let mut dims = a.region.intervals().iter().zip(b.region.intervals());
    dims.all(|(a, b)| a.lo.at(pos) < b.hi.at(pos) && b.lo.at(pos) < a.hi.at(pos))
}

fn median(parts: &[Parts], of: impl Fn(&Parts) -> f64) -> f64 {
    let mut values: Vec<f64> = parts.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
