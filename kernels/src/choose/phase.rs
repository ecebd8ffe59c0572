//! Phases in which the workers choose a token.
//!
//! Every worker has the logits of its rows of the head. Without filters the choice is one argmax in
//! one hop: each worker publishes its best and reads all bests. With a temperature, a token is
//! drawn by a race of exponentials, which is also an argmax: of `logit / temperature - ln E`
//! (Gumbel-max). The noise of a token depends only on seed, draw and token.
//!
//! Top-k, top-p and min-p remove tokens before the draw. The rest is a prefix of the ranking by
//! logit (lower ids first among equals), and the draw is the winner of the race in that prefix. The
//! workers search for it without ever collecting it:
//!
//! 1. The winner of the race among all tokens is the candidate.
//! 2. Each worker counts its rows above the candidate and above some levels, adds up their
//!    probability, and finds the winner of the race among them. It publishes the result
//!    ([`Choosing::found`]) and reads all results.
//! 3. With fewer than k tokens above the candidate, and less than p of the probability of the first
//!    k, the candidate is the draw, since it won among a superset of the prefix. Otherwise it is
//!    out, along with all tokens below it, and the winner above the highest level that is out is
//!    the next candidate. A candidate above a level that is in is the draw immediately.
//!
//! All workers compute the same from the same packets, so all of them learn the token. One or two
//! rounds decide most draws. Each further round reduces the undecided range to a third or less. If
//! [`ROUNDS`] rounds do not decide a draw (for example when very many logits are equal), the launch
//! ends with its current result and reports it: nothing is cut off silently.
//!
//! Without a filter, and once a draw is decided, all workers skip the remaining probes: their
//! packets are neither written nor awaited. Packets of one step cannot be overwritten by the next,
//! because every worker reads every worker's best.

use super::{decode, draw, row_abi, rows};
use crate::abi::{self, FIELDS, LEVELS, SEARCH, SHARES};
use amk::ir::{BufferId, BufferKind, DType, Exchange, Operand, Param};
use amk_cuda::cost::{CostModel, Load, Overhead};
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::decode::{Refusal, WorkerState};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, Work, read, same, write};
use amk_cuda::set::Sampling;
use amk_cuda::{Params, RunOptions};
use std::ops::Range;
use std::slice::from_ref;

/// Rounds of probes in a step.
pub(super) const ROUNDS: usize = abi::ROUNDS as usize;

/// The buffers used to choose a token. In the program they are f32 and store tokens and counts as
/// numbers; the device stores them as u32 in the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choosing {
    /// The workers' best, `[workers, 2]`: value and token.
    pub best: BufferId,
    /// The data that filters need in addition, `[workers, SHARES]`.
    pub shares: BufferId,
    /// The results of each round `[workers, LEVELS, FIELDS]`.
    pub found: [BufferId; ROUNDS],
    /// The search state of each worker after each round `[workers, SEARCH]`.
    pub search: [BufferId; ROUNDS],
}

impl Default for Choosing {
    fn default() -> Self {
        let none = BufferId(0);
        Self { best: none, shares: none, found: [none; ROUNDS], search: [none; ROUNDS] }
    }
}

/// The phase that chooses a token.
pub(crate) struct Choice;

/// The task that publishes a worker's best logit.
#[derive(Clone, Debug, PartialEq)]
pub struct Best;

/// A probe of the rows above some levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The round.
    pub round: usize,
}

/// The task that chooses the next token.
#[derive(Clone, Debug, PartialEq)]
pub struct Choose;

/// Renders the maximum number of logits of a worker as a macro.
pub(crate) fn defines(plan: &Plan) -> String {
    let units = (plan.sizes.padded_vocab() / UNIT).div_ceil(plan.schedule.workers);
    format!("#define AMK_WORKER_LOGITS {}\n", units * UNIT)
}

impl Sampling for Choice {
    fn keeps_logits(&self, options: &RunOptions) -> bool {
        draw::drawn(options).filters()
    }

    fn bind(&self, options: &RunOptions, forced: u32, to: &mut Params) {
        to.push(&draw::params(&draw::drawn(options), forced));
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

    fn plan_rows(&self, planner: &mut Planner<'_>) {
        rows::plan(planner);
    }

    fn put_choices(&self, choices: &[Option<&amk::rows::Choice>], to: &mut Params) {
        row_abi::put_choices(choices, to);
    }

    /// A launch changes no logits.
    fn launch_of(&self, choice: &amk::rows::Choice) -> Option<RunOptions> {
        choice.changes.is_empty().then(|| RunOptions::default().sampled(choice.draw))
    }

    fn bind_rows(&self, choices: u64, chosen: u64, to: &mut Params) {
        to.push(&row_abi::RowParams { choices, chosen });
    }

    fn check_order(&self, state: &mut WorkerState, kind: Option<&str>) -> Result<(), Refusal> {
        decode::check_order(state, kind)
    }

    fn check_end(&self, state: &WorkerState) -> Result<(), Refusal> {
        decode::check_end(state)
    }
}

/// Returns the buffers of a plan.
fn choosing(plan: &Plan) -> Choosing {
    plan.shared.get().copied().unwrap_or_default()
}

/// Returns a worker's rows of the logits, if it has any.
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
        let Choosing { best, shares, .. } = choosing(encoder.plan);
        let (output, partial) = (encoder.packet(best), encoder.packet(shares));
        Record { output, partial, ..encoder.of_rows("BEST", work) }
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
        let Choosing { best, shares, found, .. } = choosing(encoder.plan);
        let (input, partial) = match self.round.checked_sub(1) {
            None => (encoder.packet(best), encoder.packet(shares)),
            Some(before) => (encoder.packet(found[before]), 0),
        };
        let (output, layer) = (encoder.packet(found[self.round]), self.round as u32);
        Record { input, output, partial, layer, ..encoder.of_rows("PROBE", work) }
    }

    fn everyone(&self) -> bool {
        true
    }

    fn skipped(&self) -> bool {
        true
    }

    /// Only filters probe levels. Predictions are for greedy steps.
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

/// Time to choose a token, nanoseconds, set by hand for an H200.
pub(super) const CHOOSE: f64 = 6000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use amk::Token;
    use amk::rows::{Draw, LogitChange};

    #[test]
    fn a_launch_of_one_row_draws_as_the_row_and_changes_no_logits() {
        let draw = Draw { temperature: 0.7, top_k: 20, top_p: 0.9, min_p: 0.05, seed: 1 << 40 | 7, draw: 9 };
        let choice = amk::rows::Choice { draw, changes: [].into() };
        let (mut of_launch, mut of_row) = (Params::default(), Params::default());
        Choice.bind(&Choice.launch_of(&choice).expect("a launch"), 1, &mut of_launch);
        Choice.put_choices(&[Some(&choice)], &mut of_row);
        let words = of_launch.words();
        assert_eq!(words, of_row.words()[..words.len()]);
        let changed = amk::rows::Choice { changes: [LogitChange::none(Token(3))].into(), ..choice };
        assert!(Choice.launch_of(&changed).is_none());
    }
}
