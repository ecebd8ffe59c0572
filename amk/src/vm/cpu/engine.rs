//! State shared by all workers: the plan, the counters, the queues and the first failure.

use super::area::Moment;
use super::error::{Stall, VmError};
use super::memory::of_counters;
use super::observer::Observer;
use super::packets::overlap_at;
use super::plan::{Plan, WaitPlan};
use super::task::{self, TaskFailure, Watch};
use crate::registry::Frame;
use crate::rows::PlacedRow;
use crate::tensor::{Cells, Pos, Token};
use amk_ir::text::Shown;
use amk_ir::verify::Verified;
use amk_ir::{Program, Queues, Steps, TaskId, WorkerId};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A counter on a separate cache line.
#[repr(align(64))]
#[derive(Default)]
struct Counter(AtomicU64);

/// One step of a launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The position.
    pub pos: Pos,
    /// The tokens, one for each token input of the program.
    pub tokens: Vec<Token>,
}

/// Consecutive steps that the workers run without returning to the caller.
pub(super) struct Launch {
    /// Steps before the first since the VM was made.
    pub(super) first: u64,
    pub(super) steps: Vec<Step>,
    /// The rows of the launch's one step, in a program with rows.
    pub(super) rows: Vec<PlacedRow>,
}

/// A worker leaves the launch: a failure is recorded.
pub(super) struct Aborted;

pub(super) struct Engine {
    pub(super) verified: Arc<Verified>,
    pub(super) plan: Plan,
    counters: Box<[Counter]>,
    /// By counter: the count, since the VM was created, that waits for a table's count need.
    wanted: Box<[AtomicU64]>,
    /// The next ticket of the launch.
    pub(super) ticket: AtomicU64,
    /// Work finished since the VM was created: a worker's whole step if queues are static,
    /// otherwise a task.
    progress: Counter,
    aborted: AtomicBool,
    failure: Mutex<Option<VmError>>,
    locals: Vec<Cells>,
    deadline: Duration,
    /// Polls of a counter before the thread yields its core.
    spins: u32,
    observer: Option<Arc<dyn Observer>>,
}

impl Engine {
    pub(super) fn new(
        verified: Arc<Verified>,
        plan: Plan,
        deadline: Duration,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, VmError> {
        let workers = verified.program().queues.workers() as usize;
        let bytes = plan.memory.local_bytes;
        let out_of_memory = || VmError::Memory { buffer: "local buffers".to_owned(), bytes: bytes as u64 };
        let locals = (0..workers).map(|_| Cells::zeroed(bytes).ok_or_else(out_of_memory)).collect::<Result<_, _>>()?;
        let counters = of_counters(plan.fan_in.len())?.into();
        let counted = if verified.program().tables.is_empty() { 0 } else { plan.fan_in.len() };
        let wanted = (0..counted).map(|_| AtomicU64::new(0)).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Who spins while another thread needs the core makes it wait longer.
        let spins = if workers <= cores { 4096 } else { 16 };
        let (ticket, progress) = (AtomicU64::new(0), Counter::default());
        let (aborted, failure) = (AtomicBool::new(false), Mutex::new(None));
        Ok(Self {
            verified,
            plan,
            counters,
            wanted,
            ticket,
            progress,
            aborted,
            failure,
            locals,
            deadline,
            spins,
            observer,
        })
    }

    pub(super) fn program(&self) -> &Program {
        self.verified.program()
    }

    /// Runs a task of step `number` of the launch and signals.
    ///
    /// # Safety
    /// Every wait of the task is over for that step, and `worker` runs nothing else now.
    pub(super) unsafe fn run<'p>(
        &'p self,
        worker: WorkerId,
        id: TaskId,
        launch: &Launch,
        number: usize,
        frame: &mut Frame<'p>,
    ) -> Result<(), Aborted> {
        let (step, plan) = (&launch.steps[number], &self.plan.tasks[id.index()]);
        let locals = self.locals[worker.index()].first();
        let moment = Moment { step: launch.first + number as u64, pos: step.pos, locals, ..Moment::REST };
        let watch = self.observer.as_deref().map(|observer| Watch { observer, task: id, number: 0 });
        // SAFETY: the program is verified, its waits are over, and the local memory is this
        // worker's.
        if let Err(failure) = unsafe { task::run(plan, moment, (launch, number), watch, frame) } {
            return Err(self.fail(self.failed_task(worker, id, failure)));
        }
        if let Some(routed) = &plan.routed {
            // SAFETY: the calls are over, and no signal has been given.
            unsafe { routed.accept(moment, &self.wanted) }.map_err(|broken| self.fail(broken))?;
            // SAFETY: as above.
            for signal in unsafe { routed.signals(moment) } {
                self.counters[signal].0.fetch_add(1, Ordering::Release);
            }
        }
        for &signal in &plan.signals {
            // Release: a worker that waits for the count sees the task's writes.
            self.counters[signal].0.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    fn failed_task(&self, worker: WorkerId, task: TaskId, failure: TaskFailure) -> VmError {
        let label = self.label(task);
        match failure {
            TaskFailure::Panicked(message) => VmError::Panicked { worker, task, label, message },
            TaskFailure::Result { number, expected, found } => {
                VmError::Result { worker, task, label, result: number, expected, found }
            }
        }
    }

    /// The first wait of a task that is not satisfied at step `step`, and the count that it needs.
    pub(super) fn pending(&self, task: TaskId, step: u64, pos: Pos) -> Option<(usize, u64)> {
        let waits = self.plan.tasks[task.index()].waits.iter().filter(|wait| applies(wait, pos));
        let fixed = waits
            .map(|wait| (wait.counter, self.wanted(wait, step)))
            .find(|&(counter, wanted)| self.count(counter) < wanted);
        fixed.or_else(|| {
            // SAFETY: the waits that no table decides are over.
            unsafe { self.routed_waits(task, step, pos) }.find(|&(counter, wanted)| self.count(counter) < wanted)
        })
    }

    /// The waits of a task that depend on tables: counters and the counts that they need.
    ///
    /// # Safety
    /// The task's other waits are satisfied at step `step`.
    unsafe fn routed_waits(&self, task: TaskId, step: u64, pos: Pos) -> impl Iterator<Item = (usize, u64)> {
        let moment = Moment { step, pos, ..Moment::REST };
        let routed = self.plan.tasks[task.index()].routed.iter();
        // SAFETY: as the caller promises; a table is in no local memory.
        routed.flat_map(move |routed| unsafe { routed.waits(moment, &self.plan.fan_in, &self.wanted) })
    }

    /// Waits until every wait of a task is over.
    pub(super) fn wait_for_task(&self, worker: WorkerId, task: TaskId, step: u64, pos: Pos) -> Result<(), Aborted> {
        for wait in self.plan.tasks[task.index()].waits.iter().filter(|wait| applies(wait, pos)) {
            let wanted = self.wanted(wait, step);
            self.wait(&self.counters[wait.counter], wanted, |waited| {
                self.stall(worker, task, wait.counter, wanted, waited)
            })?;
        }
        // SAFETY: the waits that no table decides are over.
        for (counter, wanted) in unsafe { self.routed_waits(task, step, pos) } {
            self.wait(&self.counters[counter], wanted, |waited| self.stall(worker, task, counter, wanted, waited))?;
        }
        Ok(())
    }

    fn wanted(&self, wait: &WaitPlan, step: u64) -> u64 {
        self.plan.fan_in[wait.counter] * step + wait.threshold
    }

    fn count(&self, counter: usize) -> u64 {
        self.counters[counter].0.load(Ordering::Acquire)
    }

    /// Units of [`Self::progress`] in a step. A worker without tasks has none.
    fn units(&self) -> u64 {
        match &self.program().queues {
            Queues::Static(queues) => queues.iter().filter(|queue| !queue.is_empty()).count() as u64,
            Queues::Ticket { order, .. } => order.len() as u64,
        }
    }

    /// Whether step `step` may start.
    pub(super) fn may_start(&self, step: u64) -> bool {
        self.program().steps == Steps::Pipelined || self.progress.0.load(Ordering::Acquire) >= self.units() * step
    }

    /// Waits until step `step` may start.
    pub(super) fn wait_for_step(&self, worker: WorkerId, step: u64) -> Result<(), Aborted> {
        if self.program().steps == Steps::Pipelined {
            return Ok(());
        }
        let wanted = self.units() * step;
        self.wait(&self.progress, wanted, |waited| Stall {
            worker,
            task: None,
            label: String::new(),
            on: "the other workers' progress".to_owned(),
            wanted,
            found: self.progress.0.load(Ordering::Acquire),
            waited,
        })
    }

    /// A unit of [`Self::progress`] is done.
    pub(super) fn advance(&self) {
        self.progress.0.fetch_add(1, Ordering::Release);
    }

    /// Waits for a count; on a deadline, fails with the result of `stall`.
    fn wait(&self, counter: &Counter, wanted: u64, stall: impl Fn(Duration) -> Stall) -> Result<(), Aborted> {
        for _ in 0..self.spins {
            if counter.0.load(Ordering::Acquire) >= wanted {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        let start = Instant::now();
        while counter.0.load(Ordering::Acquire) < wanted {
            if self.aborted.load(Ordering::Relaxed) {
                return Err(Aborted);
            }
            let waited = start.elapsed();
            if waited > self.deadline {
                return Err(self.fail(Box::new(stall(waited)).into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Describes the wait of a worker that is blocked on a counter.
    pub(super) fn stall(&self, worker: WorkerId, task: TaskId, counter: usize, wanted: u64, waited: Duration) -> Stall {
        let (label, on) = (self.label(task), self.counter_name(counter));
        Stall { worker, task: Some(task), label, on, wanted, found: self.count(counter), waited }
    }

    fn label(&self, task: TaskId) -> String {
        let program = self.program();
        let op = program.tasks[task.index()].op.and_then(|op| program.ops.get(op.index()));
        let called = || {
            let calls = program.tasks[task.index()].calls.iter();
            calls
                .map(|call| program.instructions[call.instruction.index()].name.as_str())
                .collect::<Vec<_>>()
                .join(" then ")
        };
        op.cloned().unwrap_or_else(called)
    }

    fn counter_name(&self, counter: usize) -> String {
        let mut rest = counter as u64;
        for event in &self.program().events {
            if rest < event.len() {
                return if event.len() == 1 {
                    format!("event `{}`", Shown(&event.name))
                } else {
                    format!("event `{}[{rest}]`", Shown(&event.name))
                };
            }
            rest -= event.len();
        }
        let writer = self.plan.tasks.iter().position(|task| task.signals.contains(&counter));
        writer.map_or_else(|| "a packet".to_owned(), |writer| format!("the packets of {}", TaskId::from(writer)))
    }

    /// Records the first failure and ends the launch for all workers.
    pub(super) fn fail(&self, error: VmError) -> Aborted {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.aborted.store(true, Ordering::Relaxed);
        Aborted
    }

    /// The failure that ended the launch.
    pub(super) fn failure(&self) -> Option<VmError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a wait matters at this position.
fn applies(wait: &WaitPlan, pos: Pos) -> bool {
    wait.overlap.as_ref().is_none_or(|regions| overlap_at(&regions.0, &regions.1, u64::from(pos.0)))
}
