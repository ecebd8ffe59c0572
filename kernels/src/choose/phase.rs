//! How the workers choose a token.
//!
//! Every worker has the logits of its rows of the head. Greedy and at a temperature the choice is
//! one argmax: each worker publishes its best and reads everybody's, one hop. A token is drawn by a
//! race of exponentials, so that, too, is an argmax, of `logit / temperature - ln E` (Gumbel-max),
//! and the noise of a token depends on seed, draw and token alone.
//!
//! Top-k, top-p and min-p take tokens out before the draw. What is left is a head of the ranking by
//! logit (lower ids first among equals), and the draw is the winner of the race among that head.
//! The workers look for it without ever collecting it:
//!
//! 1. The winner of the race among all tokens is the candidate.
//! 2. Each worker counts which of its rows are above the candidate and above some levels, adds up
//!    their probability, and finds the winner of the race there; it publishes that
//!    ([`Choosing::found`]) and reads everybody's.
//! 3. With fewer than k tokens above the candidate, and less than p of the probability of the first
//!    k, the candidate is the draw, since it won among a superset of the head. Otherwise it is out
//!    with all below it, and the winner above the highest level that is out is the next candidate.
//!    A candidate above a level that is in is the draw at once.
//!
//! All workers compute the same from the same packets, so all know the token. One or two looks
//! decide most draws; each further look cuts what is unknown into at least a third. A draw that
//! [`ROUNDS`] looks do not decide (as where very many logits are equal) ends the launch with what
//! it has, and says so: nothing is cut off silently.
//!
//! Without a filter, and once a draw is decided, all workers alike leave out the tasks that look:
//! neither their packets are written nor waited for. What keeps one step's packets from being
//! overwritten by the next is that every worker reads every worker's best.

use super::decode;
use amk::ir::{BufferId, BufferKind, DType, Exchange, Operand, Param};
use amk_cuda::cost::{CostModel, Load, Overhead};
use amk_cuda::image::abi::{self, FIELDS, LEVELS, SCRATCH_FLOATS, SEARCH, SHARES};
use amk_cuda::image::decode::{Refusal, WorkerState};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, read, same, write};
use amk_cuda::set::Sampling;
use std::ops::Range;
use std::slice::from_ref;

/// Rounds of looks in a step.
pub(super) const ROUNDS: usize = abi::ROUNDS as usize;

/// The buffers by which a token is chosen. In the program they are of f32, in which a token or a
/// count stands for itself; the device has these as u32 in the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choosing {
    /// The workers' best `[workers, 2]`: value and token.
    pub best: BufferId,
    /// What goes with it where tokens are taken out `[workers, SHARES]`.
    pub shares: BufferId,
    /// What each look found `[workers, LEVELS, FIELDS]`.
    pub found: [BufferId; ROUNDS],
    /// What each worker knows after each look `[workers, SEARCH]`.
    pub search: [BufferId; ROUNDS],
}

impl Default for Choosing {
    fn default() -> Self {
        let none = BufferId(0);
        Self { best: none, shares: none, found: [none; ROUNDS], search: [none; ROUNDS] }
    }
}

/// The choice of a token by all workers.
pub(crate) struct Choice;

/// The worker's best logit.
#[derive(Clone, Debug, PartialEq)]
pub struct Best;

/// A look at what is above some levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The round.
    pub round: usize,
}

/// The next token.
#[derive(Clone, Debug, PartialEq)]
pub struct Choose;

impl Sampling for Choice {
    /// The noise of a worker's rows lies in its scratch memory.
    fn most_rows(&self) -> u32 {
        SCRATCH_FLOATS
    }

    fn begin(&self, planner: &mut Planner<'_>) {
        let workers = planner.plan.schedule.workers;
        let (kind, slots) = (BufferKind::Activation, Exchange::Packet { slots: 2 });
        let best = planner.buffer("best", kind, DType::F32, &[workers, 2], slots);
        let shares = planner.packets("shares", DType::F32, &[workers, SHARES]);
        let found = core::array::from_fn(|round| {
            planner.packets(&format!("found.{round}"), DType::F32, &[workers, LEVELS, FIELDS])
        });
        let search = core::array::from_fn(|round| {
            planner.activation(&format!("search.{round}"), DType::F32, &[workers, SEARCH], Exchange::Counter)
        });
        planner.plan.shared.set(Choosing { best, shares, found, search });
    }

    fn plan(&self, planner: &mut Planner<'_>) {
        let rows: Vec<Work> = planner.rows.iter().cloned().map(Work::Rows).collect();
        planner.phase(Best, rows.clone());
        (0..ROUNDS).for_each(|round| planner.phase(Probe { round }, rows.clone()));
        planner.phase(Choose, vec![Work::Own; rows.len()]);
    }

    fn check_order(&self, state: &mut WorkerState, kind: Option<&str>) -> Result<(), Refusal> {
        decode::check_order(state, kind)
    }

    fn check_end(&self, state: &WorkerState) -> Result<(), Refusal> {
        decode::check_end(state)
    }
}

/// The buffers of a plan.
fn choosing(plan: &Plan) -> Choosing {
    plan.shared.get().copied().unwrap_or_default()
}

/// A worker's rows of the logits, where it has some.
fn logits(plan: &Plan, rows: &Range<u32>) -> Vec<Operand> {
    if rows.is_empty() { Vec::new() } else { vec![read(plan.logits, from_ref(rows))] }
}

impl PhaseKind for Best {
    fn label(&self) -> String {
        "best".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work) {
        let Work::Rows(rows) = work else { return };
        let Choosing { best, shares, .. } = choosing(task.plan);
        let own = worker..worker + 1;
        let mut operands = logits(task.plan, rows);
        let (path, params) = match operands.is_empty() {
            true => ("amk_kernels::no_best", Vec::new()),
            false => ("amk_kernels::best", vec![Param::U32(rows.start)]),
        };
        operands.extend([write(best, &[own.clone(), 0..2]), write(shares, &[own, 0..SHARES])]);
        task.call(path, operands, params);
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Work::Rows(rows) = work else { return Record::default() };
        let Choosing { best, shares, .. } = choosing(encoder.plan);
        let (output, partial) = (encoder.packet(best), encoder.packet(shares));
        Record { output, partial, ..encoder.of_rows("BEST", rows) }
    }

    fn everyone(&self) -> bool {
        true
    }

    fn overhead(&self, _cost: &CostModel) -> Overhead {
        Overhead { hops: false, fixed: 0.0 }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for Probe {
    fn label(&self) -> String {
        format!("probe {}", self.round)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, work: &Work) {
        let (round, Work::Rows(rows)) = (self.round, work) else { return };
        let Choosing { best, shares, found, search } = choosing(task.plan);
        let (own, all) = (worker..worker + 1, 0..task.plan.schedule.workers);
        let mut operands = logits(task.plan, rows);
        let none = operands.is_empty();
        let (path, before) = match round.checked_sub(1) {
            None => (
                if none { "amk_kernels::no_first_probe" } else { "amk_kernels::first_probe" },
                [read(best, &[all.clone(), 0..2]), read(shares, &[all, 0..SHARES])],
            ),
            Some(before) => (
                if none { "amk_kernels::no_probe" } else { "amk_kernels::probe" },
                [read(found[before], &[all, 0..LEVELS, 0..FIELDS]), read(search[before], &[own.clone(), 0..SEARCH])],
            ),
        };
        operands.extend(before);
        operands.push(write(found[round], &[own.clone(), 0..LEVELS, 0..FIELDS]));
        operands.push(write(search[round], &[own, 0..SEARCH]));
        task.call(path, operands, Vec::new());
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Work::Rows(rows) = work else { return Record::default() };
        let Choosing { best, shares, found, .. } = choosing(encoder.plan);
        let (input, partial) = match self.round.checked_sub(1) {
            None => (encoder.packet(best), encoder.packet(shares)),
            Some(before) => (encoder.packet(found[before]), 0),
        };
        let (output, layer) = (encoder.packet(found[self.round]), self.round as u32);
        Record { input, output, partial, layer, ..encoder.of_rows("PROBE", rows) }
    }

    fn everyone(&self) -> bool {
        true
    }

    fn skipped(&self) -> bool {
        true
    }

    /// Only filters look at levels; a prediction is of greedy steps.
    fn load(&self, _cost: &CostModel, _plan: &Plan, _work: &Work, _pos: u32) -> Option<Load> {
        None
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl PhaseKind for Choose {
    fn label(&self) -> String {
        "choose".into()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, worker: u32, _work: &Work) {
        let Choosing { best, found, search, .. } = choosing(task.plan);
        let (own, all) = (worker..worker + 1, 0..task.plan.schedule.workers);
        let operands = vec![
            read(best, &[all.clone(), 0..2]),
            read(found[ROUNDS - 1], &[all, 0..LEVELS, 0..FIELDS]),
            read(search[ROUNDS - 1], &[own.clone(), 0..SEARCH]),
            write(task.plan.token, &[own]),
        ];
        task.call("amk_kernels::choose", operands, Vec::new());
    }

    fn record(&self, encoder: &mut Encoder<'_>, _work: &Work) -> Record {
        let Choosing { best, found, .. } = choosing(encoder.plan);
        let (input, partial) = (encoder.packet(best), encoder.packet(found[ROUNDS - 1]));
        Record { op: encoder.op("CHOOSE"), input, partial, ..Record::default() }
    }

    fn overhead(&self, _cost: &CostModel) -> Overhead {
        Overhead { hops: true, fixed: CHOOSE }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

/// Nanoseconds that choosing a token takes, set by hand for an H200.
const CHOOSE: f64 = 6000.0;
