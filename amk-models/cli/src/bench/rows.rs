//! Steps of several rows: prompts, and sequences that decode side by side.

use super::{Bench, write, write_json};
use crate::load::cpu_vm;
use crate::options::{Device, Place, cuda_rows_vm, print};
use crate::subject::{Subject, Which};
use amk::Token;
use amk::rows::{Choice, Draw, PoolSize, RowVm, SequenceId};
use amk::session::Session;
use amk_bench::peers::{Shapes, Step};
use amk_bench::{EndTimes, Gate, ModelRows, PeerTimes, Quantiles, RowReport, StepTime};
use amk_models::model::Model;
use anyhow::{Context as _, Result, bail};
use std::slice::from_ref;
use std::time::Instant;

/// Rows of the step that is compared with the annotated function: a wide one on a GPU.
const GATE_ROWS: u32 = 12;

/// Runs steps until no token of these sequences is left. Returns microseconds, and those on a
/// device.
fn run<V: RowVm>(session: &mut Session<V>, ids: &[SequenceId]) -> Result<(f64, Option<f64>)> {
    let (start, mut device) = (Instant::now(), None);
    while ids.iter().any(|&id| session.pending(id).is_ok_and(|left| left > 0)) {
        session.step()?;
        let us = session.device_time().map(|time| time.as_secs_f64() * 1e6);
        device = us.map(|us| device.unwrap_or(0.0) + us);
    }
    Ok((start.elapsed().as_secs_f64() * 1e6, device))
}

/// Quantiles of times, and the median of those on a device.
fn summary(times: Vec<(f64, Option<f64>)>) -> Result<(Quantiles, Option<f64>)> {
    let (us, device): (Vec<f64>, Vec<Option<f64>>) = times.into_iter().unzip();
    let device = Quantiles::of(device.into_iter().flatten().collect()).map(|us| us.median);
    Ok((Quantiles::of(us).context("nothing was timed")?, device))
}

/// How the tokens after decoding rows are drawn, beside greedily.
const DRAW: Draw = Draw { temperature: 0.7, top_k: 0, top_p: 0.9, min_p: 0.0, seed: 1, draw: 0 };

/// This many tokens, of no meaning.
pub(crate) fn tokens(count: u32) -> Vec<Token> {
    (0..count).map(|n| Token(n % 100)).collect()
}

/// A new sequence of this many tokens.
pub(crate) fn prompt<V: RowVm>(session: &mut Session<V>, count: u32) -> Result<SequenceId> {
    let id = session.add();
    session.push(id, &tokens(count))?;
    run(session, &[id])?;
    Ok(id)
}

/// Times prompts of so many tokens, each of a sequence that has `position` tokens.
fn time_prompt<V: RowVm>(session: &mut Session<V>, (count, position): (u32, u32)) -> Result<StepTime> {
    let runs = (2000 / count.max(1)).clamp(2, 20);
    let before = prompt(session, position)?;
    let time = |_| {
        let id = session.fork(before, position as usize)?;
        session.push(id, &tokens(count))?;
        let time = run(session, &[id])?;
        session.drop(id)?;
        Ok(time)
    };
    let (us, device_us) = summary((0..runs).map(time).collect::<Result<_>>()?)?;
    session.drop(before)?;
    let (step, peers) = (Step::Prompt { tokens: count, position }, PeerTimes::default());
    Ok(StepTime { step, us, device_us, ends: None, of_first: None, peers })
}

impl Bench {
    /// Whether steps of rows are asked for.
    pub(super) fn has_rows(&self) -> bool {
        !(self.rows.is_empty() && self.prompt.is_empty())
    }

    pub(super) fn rows_of_all(&self) -> Result<()> {
        if self.device == Device::Cpu {
            self.refuse_gpu_options()?;
        }
        let place = Place::of(self.device, &self.schedule, self.threads)?;
        let (mut report, mut shapes) = (RowReport::default(), Vec::new());
        for which in self.subjects.all(self.device)? {
            let (rows, of_peers) = self.rows_of(&which, &place)?;
            report.models.push(rows);
            shapes.push(of_peers);
        }
        if self.device == Device::Cuda {
            self.add_row_peers(&mut report, &shapes);
        }
        if self.shows_text() {
            print(&report.table())?;
            report.no_peers.iter().try_for_each(|why| print(&format!("peers: {why}\n")))?;
        }
        if let Some(path) = &self.svg {
            write(path, &report.picture())?;
        }
        write_json(self.json.as_deref(), &report)
    }

    fn add_row_peers(&self, report: &mut RowReport, shapes: &[Shapes]) {
        let peers = self.peer_times(shapes);
        for ModelRows { model, steps, .. } in &mut report.models {
            steps.iter_mut().for_each(|step| step.peers = peers.of(model, step.step));
        }
        report.no_peers = peers.missing;
    }

    fn rows_of(&self, which: &Which, place: &Place) -> Result<(ModelRows, Shapes)> {
        let opened = which.open()?;
        let limit = opened.positions();
        let positions = if self.rows.is_empty() { Vec::new() } else { self.positions(opened.name(), limit)? };
        let last = positions.iter().map(|position| position + self.steps).max().unwrap_or(0);
        let prompts = self.prompts(opened.name(), limit)?;
        let longest = prompts.iter().map(|(tokens, position)| tokens + position).max().unwrap_or(0);
        let before = prompts.iter().map(|&(_, position)| position).max().unwrap_or(0);
        let Subject { name, mut model, gate } =
            opened.load(last.max(longest).max(GATE_ROWS).min(limit), self.weight_use())?;
        let mut gate: Vec<u32> = gate.iter().copied().cycle().take(GATE_ROWS as usize).collect();
        let most = self.rows.iter().copied().max().unwrap_or(1);
        let steps = vec![last.max(1) as usize; most as usize];
        let pages = PoolSize::Sequences([steps, vec![longest as usize, before as usize]].concat());
        let rows = match place {
            Place::Cpu(schedule) => {
                model.keep_caches(schedule.of(&model)?.cache)?;
                let vm = cpu_vm(&model, &schedule.with_most_rows(most), pages)?;
                let workers = vm.program().queues.workers();
                self.time_rows(vm, name, workers, &mut model, (&gate, 0.0), (&prompts, &positions))
            }
            Place::Cuda(schedule) => {
                let vm = cuda_rows_vm(&model, schedule, self.weights.on_gpu(), &pages, !self.shows_text())?;
                model.keep_caches(vm.plan().schedule.cache)?;
                let workers = vm.plan().schedule.workers;
                gate.truncate(vm.limits().rows);
                self.time_rows(vm, name, workers, &mut model, (&gate, Gate::BF16), (&prompts, &positions))
            }
        }?;
        let shapes = Shapes::of(&rows.model, &model, rows.steps.iter().map(|time| time.step).collect())?;
        Ok((rows, shapes))
    }

    fn time_rows<V: RowVm>(
        &self,
        vm: V,
        name: String,
        workers: u32,
        model: &mut Model,
        (gate, tolerance): (&[u32], f64),
        (prompts, positions): (&[(u32, u32)], &[u32]),
    ) -> Result<ModelRows> {
        let mut session = Session::new(vm);
        let gate = Gate::of_rows(&mut session, model, gate, tolerance)?;
        let found =
            format!("{name}: logits of {} rows within {:.4} of the annotated function's", gate.steps, gate.error);
        if !gate.passed() {
            bail!("{found}: no time is shown");
        }
        if self.shows_text() {
            print(&format!("{found}\n"))?;
        }
        let mut steps: Vec<StepTime> =
            prompts.iter().map(|&prompt| time_prompt(&mut session, prompt)).collect::<Result<_>>()?;
        for &position in positions {
            let first = steps.len();
            for &rows in &self.rows {
                let chooses = session.chooses();
                let greedy = chooses.then(Choice::default);
                let (us, device_us) = self.time_decode(&mut session, rows, position, greedy.as_ref())?;
                let ends = chooses.then(|| self.time_ends(&mut session, rows, position)).transpose()?;
                let of_first = us.median / steps.get(first).map_or(us.median, |first| first.us.median);
                let (step, peers) = (Step::Decode { rows, position }, PeerTimes::default());
                steps.push(StepTime { step, us, device_us, ends, of_first: Some(of_first), peers });
            }
        }
        Ok(ModelRows { model: name, workers, steps })
    }

    /// The times of decoding rows with drawn tokens, and with logits.
    fn time_ends<V: RowVm>(&self, session: &mut Session<V>, rows: u32, position: u32) -> Result<EndTimes> {
        let drawn = Choice { draw: DRAW, ..Choice::default() };
        let mut time = |choice| self.time_decode(session, rows, position, choice);
        let ((drawn, _), (logits, _)) = (time(Some(&drawn))?, time(None)?);
        Ok(EndTimes { drawn_us: drawn.median, logits_us: logits.median })
    }

    /// Times steps of decoding rows, which end with the choice of tokens or, without one, with
    /// logits.
    fn time_decode<V: RowVm>(
        &self,
        session: &mut Session<V>,
        rows: u32,
        position: u32,
        choice: Option<&Choice>,
    ) -> Result<(Quantiles, Option<f64>)> {
        let ids: Vec<SequenceId> = (0..rows).map(|_| prompt(session, position)).collect::<Result<_>>()?;
        let mut times = Vec::new();
        for _ in 0..self.steps {
            ids.iter().try_for_each(|&id| session.push_choosing(id, &[Token(1)], choice.map_or(&[], from_ref)))?;
            times.push(run(session, &ids)?);
        }
        ids.into_iter().try_for_each(|id| session.drop(id))?;
        summary(times)
    }
}
