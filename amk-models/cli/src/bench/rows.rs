//! Steps of several rows: prompts, and sequences that decode side by side.

use super::{Bench, GATE_STEPS, write_json};
use crate::load::cpu_vm;
use crate::options::{Device, Place, cuda_rows_vm, print, table_of};
use crate::subject::{Subject, Which};
use amk::Token;
use amk::rows::{RowLimits, RowVm, SequenceId};
use amk::session::Session;
use amk_bench::{Gate, Quantiles};
use amk_models::model::Model;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::time::Instant;

/// Times of a model's steps of rows.
#[derive(Serialize)]
struct Rows {
    model: String,
    /// Threads of a CPU, multiprocessors of a GPU.
    workers: u32,
    prompts: Vec<Prompt>,
    decode: Vec<Decode>,
}

/// A prompt, run in chunks.
#[derive(Serialize)]
struct Prompt {
    tokens: u32,
    us: Quantiles,
}

/// Sequences that decode side by side.
#[derive(Serialize)]
struct Decode {
    rows: u32,
    position: u32,
    us: Quantiles,
    /// The time as a multiple of the first number of rows at this position.
    of_first: f64,
}

/// A new sequence of so many tokens.
fn prompt<V: RowVm>(session: &mut Session<V>, tokens: u32) -> Result<SequenceId> {
    let id = session.add();
    session.push(id, &(0..tokens).map(|n| Token(n % 100)).collect::<Vec<_>>())?;
    while session.pending(id)? > 0 {
        session.step()?;
    }
    Ok(id)
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
        let mut all = Vec::new();
        for which in self.subjects.all(self.device)? {
            all.push(self.rows_of(&which, &place)?);
        }
        if self.shows_text() {
            print(&format!("{}\n", table(&all)))?;
        }
        write_json(self.json.as_deref(), &all)
    }

    fn rows_of(&self, which: &Which, place: &Place) -> Result<Rows> {
        let opened = which.open()?;
        let limit = opened.positions();
        let positions = if self.rows.is_empty() { Vec::new() } else { self.positions(opened.name(), limit)? };
        let last = positions.iter().map(|position| position + self.steps).max().unwrap_or(0);
        let longest = self.prompt.iter().copied().max().unwrap_or(0);
        if longest > limit {
            bail!("{}: a prompt of {longest} tokens; the context has {limit} positions", opened.name());
        }
        let Subject { name, mut model, mut gate } =
            opened.load(last.max(longest).max(GATE_STEPS).min(limit), self.weights.into())?;
        gate.truncate(GATE_STEPS as usize);
        let most = self.rows.iter().copied().max().unwrap_or(1);
        let pages = most as usize * RowLimits::pages_of(last as usize).max(1) + RowLimits::pages_of(longest as usize);
        match place {
            Place::Cpu(schedule) => {
                let vm = cpu_vm(&model, &schedule.with_most_rows(most), pages)?;
                let workers = vm.program().queues.workers();
                self.time_rows(vm, name, workers, &mut model, (&gate, 0.0), &positions)
            }
            Place::Cuda(schedule) => {
                let vm = cuda_rows_vm(&model, schedule, self.weights, pages, !self.shows_text())?;
                let workers = vm.plan().schedule.workers;
                gate.truncate(vm.limits().rows);
                self.time_rows(vm, name, workers, &mut model, (&gate, Gate::BF16), &positions)
            }
        }
    }

    fn time_rows<V: RowVm>(
        &self,
        vm: V,
        name: String,
        workers: u32,
        model: &mut Model,
        (gate, tolerance): (&[u32], f64),
        positions: &[u32],
    ) -> Result<Rows> {
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
        let prompts =
            self.prompt.iter().map(|&tokens| self.time_prompt(&mut session, tokens)).collect::<Result<_>>()?;
        let mut decode = Vec::new();
        for &position in positions {
            let first = decode.len();
            for &rows in &self.rows {
                let us = self.time_decode(&mut session, rows, position)?;
                let of_first = us.median / decode.get(first).map_or(us.median, |first: &Decode| first.us.median);
                decode.push(Decode { rows, position, us, of_first });
            }
        }
        Ok(Rows { model: name, workers, prompts, decode })
    }

    fn time_prompt<V: RowVm>(&self, session: &mut Session<V>, tokens: u32) -> Result<Prompt> {
        let runs = (2000 / tokens.max(1)).clamp(2, 20);
        let time = |_| {
            let start = Instant::now();
            let id = prompt(session, tokens)?;
            let time = start.elapsed();
            session.drop(id)?;
            Ok(time.as_secs_f64() * 1e6)
        };
        let times: Vec<f64> = (0..runs).map(time).collect::<Result<_>>()?;
        Ok(Prompt { tokens, us: Quantiles::of(times).context("no prompt was timed")? })
    }

    fn time_decode<V: RowVm>(&self, session: &mut Session<V>, rows: u32, position: u32) -> Result<Quantiles> {
        let ids: Vec<SequenceId> = (0..rows).map(|_| prompt(session, position)).collect::<Result<_>>()?;
        let mut times = Vec::new();
        for _ in 0..self.steps {
            ids.iter().try_for_each(|&id| session.push(id, &[Token(1)]))?;
            let start = Instant::now();
            while ids.iter().any(|&id| session.pending(id).is_ok_and(|left| left > 0)) {
                session.step()?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        ids.into_iter().try_for_each(|id| session.drop(id))?;
        Quantiles::of(times).context("no step was timed")
    }
}

fn table(all: &[Rows]) -> String {
    let mut table =
        table_of(["model", "workers", "rows", "position", "p10 ms", "median ms", "p90 ms", "tokens/s", "x first"]);
    let times = |us: &Quantiles| [us.p10, us.median, us.p90].map(|us| format!("{:.2}", us / 1e3));
    for Rows { model, workers, prompts, decode } in all {
        let mut add = |rows: String, position: String, us: &Quantiles, tokens: u32, of_first: String| {
            let mut cells = vec![model.clone(), workers.to_string(), rows, position];
            cells.extend(times(us));
            cells.extend([format!("{:.1}", f64::from(tokens) * 1e6 / us.median), of_first]);
            table.add_row(cells);
        };
        for Prompt { tokens, us } in prompts {
            add(format!("prompt of {tokens}"), "0".to_owned(), us, *tokens, String::new());
        }
        for Decode { rows, position, us, of_first } in decode {
            add(rows.to_string(), position.to_string(), us, *rows, format!("{of_first:.2}"));
        }
    }
    table.to_string()
}
