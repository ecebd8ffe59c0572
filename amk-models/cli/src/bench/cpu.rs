//! Decode steps on the CPU.

use super::{Bench, GATE_STEPS, write_json};
use crate::options::{CpuSchedule, Device, print, table_of};
use crate::subject::{Subject, Which};
use amk::ir::{BufferKind, Program};
use amk::measure::read_bandwidth;
use amk::vm::cpu::Vm;
use amk::{Pos, Token};
use amk_bench::Quantiles;
use amk_models::model::Model;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::time::Instant;

/// A model on the CPU, at a position.
#[derive(Serialize)]
struct Row {
    model: String,
    threads: u32,
    position: u32,
    bytes: usize,
    us: Quantiles,
    ceiling_gb_per_s: f64,
}

impl Row {
    fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.us.median / 1e3
    }

    fn percent_of_ceiling(&self) -> f64 {
        100.0 * self.gb_per_s() / self.ceiling_gb_per_s
    }

    fn cells(&self) -> [String; 10] {
        let Quantiles { p10, median, p90 } = self.us;
        [
            self.model.clone(),
            self.threads.to_string(),
            self.position.to_string(),
            format!("{:.2}", p10 / 1e3),
            format!("{:.2}", median / 1e3),
            format!("{:.2}", p90 / 1e3),
            format!("{:.1}", 1e6 / median),
            format!("{:.2}", self.gb_per_s()),
            format!("{:.2}", self.ceiling_gb_per_s),
            format!("{:.1}", self.percent_of_ceiling()),
        ]
    }
}

/// Note for a step faster than the ceiling allows.
const ABOVE_CEILING: &str = "more than 100%: the ceiling is the rate of memory, and weights that \
    stay in the processor's caches \
from step to step are read faster; or something else slowed the machine down while the ceiling was measured\n";

/// Returns the note that these rows need.
fn note(rows: &[Row]) -> &'static str {
    if rows.iter().any(|row| row.percent_of_ceiling() > 100.0) { ABOVE_CEILING } else { "" }
}

impl Bench {
    pub(super) fn cpu(&self) -> Result<()> {
        self.refuse_gpu_options()?;
        let schedule = self.schedule.for_cpu(self.threads)?;
        let mut rows = Vec::new();
        for which in self.subjects.all(Device::Cpu)? {
            rows.extend(self.cpu_rows(&which, &schedule)?);
        }
        let mut table = table_of([
            "model",
            "threads",
            "position",
            "p10 ms",
            "median ms",
            "p90 ms",
            "tokens/s",
            "GB/s",
            "read ceiling GB/s",
            "% of ceiling",
        ]);
        rows.iter().for_each(|row: &Row| {
            table.add_row(row.cells());
        });
        if self.shows_text() {
            print(&format!("the logits equal the annotated function's\n{table}\n{}", note(&rows)))?;
        }
        write_json(self.json.as_deref(), &rows)
    }

    fn cpu_rows(&self, which: &Which, schedule: &CpuSchedule) -> Result<Vec<Row>> {
        let opened = which.open()?;
        let limit = opened.positions();
        let positions = self.positions(opened.name(), limit)?;
        let last = positions.iter().copied().max().unwrap_or(0);
        let context = (last + self.steps).max(GATE_STEPS).min(limit);
        let Subject { name, mut model, mut gate } = opened.load(context, self.weight_use())?;
        gate.truncate(context as usize);
        let schedule = schedule.of(&model)?;
        model.keep_caches(schedule.cache)?;
        let verified = model.family.kernel.verified(&model.instance, Some(&schedule))?;
        let mut vm = Vm::new(verified, &model.bindings)?;
        pass_gate(&name, &mut vm, &mut model, &gate)?;
        let workers = vm.program().queues.workers();
        // Before and after: another process can only slow one of them down.
        let before = read_bandwidth(workers as usize);
        let times: Vec<Vec<f64>> =
            positions.iter().map(|&position| self.cpu_times(&mut vm, position)).collect::<Result<_>>()?;
        let ceiling_gb_per_s = before.max(read_bandwidth(workers as usize)) / 1e9;
        // Of the embedding table one row is read; tied heads read the table itself.
        let weights = model.bindings.weights().iter().filter(|(name, _)| *name != "w.ends.embed");
        let weights: usize = weights.map(|(_, weight)| weight.bytes()).sum();
        let row = |(&position, times): (&u32, Vec<f64>)| {
            Ok(Row {
                model: name.clone(),
                threads: workers,
                position,
                bytes: weights + cache_bytes(vm.program(), position + self.steps / 2),
                us: Quantiles::of(times).context("no step was timed")?,
                ceiling_gb_per_s,
            })
        };
        positions.iter().zip(times).map(row).collect()
    }

    /// Microseconds of each step from a position on.
    fn cpu_times(&self, vm: &mut Vm, position: u32) -> Result<Vec<f64>> {
        let time = |pos| {
            let start = Instant::now();
            vm.step(Token(1), Pos(pos))?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        };
        (position..position + self.steps).map(time).collect()
    }
}

/// Compares the logits of the first steps with the annotated function's.
fn pass_gate(name: &str, vm: &mut Vm, model: &mut Model, gate: &[u32]) -> Result<()> {
    for (pos, &token) in (0..).zip(gate) {
        let (token, pos) = (Token(token), Pos(pos));
        let expected = (model.eager)(token, pos);
        if vm.step(token, pos)?.data() != expected.data() {
            bail!(
                "{name}: the VM's logits at position {} differ from the annotated function's: no time is shown",
                pos.0
            );
        }
    }
    Ok(())
}

/// Bytes of the states that a step at a position reads: they lie in f32, rounded or not.
fn cache_bytes(program: &Program, position: u32) -> usize {
    let states = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::State);
    let bytes: u64 = states.map(|state| state.len() * size_of::<f32>() as u64).sum();
    (bytes * u64::from(position) / u64::from(program.positions.max(1))) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_ceiling_is_explained() {
        // 1000 bytes in `us` microseconds are 1 / us GB/s.
        let row = |us| Row {
            model: "m".into(),
            threads: 1,
            position: 0,
            bytes: 1000,
            us: Quantiles { p10: us, median: us, p90: us },
            ceiling_gb_per_s: 0.5,
        };
        assert_eq!(note(&[row(2.1), row(1.9)]), ABOVE_CEILING);
        assert_eq!(note(&[row(2.1), row(2.0)]), "");
    }
}
