//! Ablations on a GPU: the schedule without each of its parts.

use super::cuda::Timed;
use super::{Bench, write_json};
use crate::options::{Device, print, progress_bar};
use amk_bench::{AblationReport, AblationRow, Reference, ablations, in_turn};
use amk_models::cache::Cache;
use anyhow::{Result, bail};

impl Bench {
    pub(super) fn ablate(&self) -> Result<()> {
        let schedule = self.schedule.for_gpu()?;
        let mut report =
            AblationReport { target: String::new(), steps: self.steps, samples: self.samples(), rows: Vec::new() };
        for which in self.subjects.all(Device::Cuda)? {
            let mut timed = Timed::new(self, &which, &schedule)?;
            report.target = timed.vm.target().name.to_owned();
            timed.ablate(self, &mut report.rows)?;
        }
        if self.shows_text() {
            let AblationReport { target, steps, samples, .. } = &report;
            print(&format!(
                "{target}: time of a token in launches of {steps} steps, {samples} of each in \
                turn with the whole schedule\n{}",
                report.table()
            ))?;
        }
        write_json(self.json.as_deref(), &report)
    }
}

impl Timed {
    fn ablate(&mut self, bench: &Bench, rows: &mut Vec<AblationRow>) -> Result<()> {
        if self.vm.positions() < Reference::POSITIONS as usize {
            bail!(
                "{}: ablations are compared at positions up to {}; its context ends before",
                self.name,
                Reference::POSITIONS
            );
        }
        let reference = Reference::of(&mut self.vm)?;
        let whole = self.vm.schedule().clone();
        let all = ablations(&whole);
        let cache = Cache::from_env()?.compiled();
        let bar = progress_bar("ablations", !bench.shows_text());
        for (done, schedule) in all.iter().enumerate() {
            bar.set_position((100 * done / all.len()) as u64);
            let changes: Vec<String> = schedule.changes(&whole).iter().map(ToString::to_string).collect();
            let mut vm = match reference.admit(&self.model, &self.vm, &cache, schedule)? {
                Ok(vm) => vm,
                Err(why) => {
                    rows.push(AblationRow::refused(&self.name, changes, why));
                    continue;
                }
            };
            let [before, after] = in_turn([&mut self.vm, &mut vm], &self.positions, bench.steps, bench.samples())?;
            for ((&position, before), after) in self.positions.iter().zip(before).zip(after) {
                rows.push(AblationRow::timed(&self.name, position, changes.clone(), [before, after]));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}
