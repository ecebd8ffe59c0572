//! Decode steps on the CPU.

use super::{Bench, GATE_STEPS, write_json};
use crate::options::{print, table_of, threads};
use crate::positions::last_start;
use crate::subject::{Subject, Which};
use amk::ir::schedule::Schedule;
use amk::measure::read_bandwidth;
use amk::vm::cpu::Vm;
use amk::{Pos, Token};
use amk_models::bench::Quantiles;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::time::Instant;

/// A model on the CPU.
#[derive(Serialize)]
struct Row {
    model: String,
    threads: u32,
    bytes: usize,
    us: Quantiles,
    ceiling_gb_per_s: f64,
}

impl Row {
    fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.us.median / 1e3
    }

    fn cells(&self) -> [String; 9] {
        let Quantiles { p10, median, p90 } = self.us;
        [
            self.model.clone(),
            self.threads.to_string(),
            format!("{:.2}", p10 / 1e3),
            format!("{:.2}", median / 1e3),
            format!("{:.2}", p90 / 1e3),
            format!("{:.1}", 1e6 / median),
            format!("{:.2}", self.gb_per_s()),
            format!("{:.2}", self.ceiling_gb_per_s),
            format!("{:.1}", 100.0 * self.gb_per_s() / self.ceiling_gb_per_s),
        ]
    }
}

impl Bench {
    pub(super) fn cpu(&self) -> Result<()> {
        let workers = threads(self.threads)?;
        let ceiling_gb_per_s = read_bandwidth(workers as usize) / 1e9;
        let mut table = table_of([
            "model",
            "threads",
            "p10 ms",
            "median ms",
            "p90 ms",
            "tokens/s",
            "GB/s",
            "read ceiling GB/s",
            "% of ceiling",
        ]);
        let mut rows = Vec::new();
        for which in self.subjects.all()? {
            let row = self.cpu_row(&which, workers, ceiling_gb_per_s)?;
            table.add_row(row.cells());
            rows.push(row);
        }
        if self.shows_text() {
            print(&format!("the logits equal the annotated function's\n{table}\n"))?;
        }
        write_json(self.json.as_deref(), &rows)
    }

    fn cpu_row(&self, which: &Which, workers: u32, ceiling_gb_per_s: f64) -> Result<Row> {
        let opened = which.open()?;
        last_start(self.steps, opened.positions().saturating_sub(GATE_STEPS))?;
        let context = GATE_STEPS + self.steps;
        let Subject { name, mut model, gate } = opened.load(context, self.weights.into())?;
        let schedule = Schedule { workers, ..Schedule::default() };
        let verified = model.family.kernel.verified(&model.instance, Some(&schedule))?;
        let mut vm = Vm::new(verified, &model.bindings)?;
        for (pos, &token) in (0..).zip(&gate) {
            let (token, pos) = (Token(token), Pos(pos));
            let expected = (model.eager)(token, pos);
            if vm.step(token, pos)?.data() != expected.data() {
                bail!(
                    "{name}: the VM's logits at position {} differ from the annotated function's: no time is shown",
                    pos.0
                );
            }
        }
        let mut times = Vec::new();
        for pos in GATE_STEPS..context {
            let start = Instant::now();
            vm.step(Token(1), Pos(pos))?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        // Of the embedding table one row is read; tied heads read the table itself.
        let weights = model.bindings.weights().iter().filter(|(name, _)| *name != "w.ends.embed");
        let bytes = weights.map(|(_, weight)| weight.len() * weight.dtype().bytes() as usize).sum();
        let us = Quantiles::of(times).context("--steps is 0; use at least 1")?;
        Ok(Row { model: name, threads: workers, bytes, us, ceiling_gb_per_s })
    }
}
