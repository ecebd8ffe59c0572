//! Measures schedules on the GPU: two VMs, the incumbent's and the candidate's, timed in turn.

use super::log::LogError;
use super::search::{Measure, Outcome};
use super::space::neighbours;
use crate::{Reference, by_schedule, in_turn};
use amk::ir::schedule::Schedule;
use amk_cuda::plan::Plan;
use amk_cuda::{CudaError, GpuTarget, Vm, VmOptions, plan_for};
use amk_models::model::Model;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Why a search cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The context is too short.
    #[error("a context of {context} positions is too short: {needed} are needed")]
    Context {
        /// Positions there are.
        context: u32,
        /// Positions needed.
        needed: u32,
    },
}

/// The GPU as a measurer.
pub struct Device<'m> {
    model: &'m Model,
    cache: PathBuf,
    target: &'static GpuTarget,
    positions: Vec<u32>,
    /// Steps a launch.
    steps: u32,
    /// Launches of each at each position.
    samples: usize,
    incumbent: Vm,
    candidate: Option<Vm>,
    /// Of the first schedule, which was compared with the annotated function.
    reference: Reference,
    /// Plans by the fields that they depend on.
    plans: HashMap<[u32; 5], Option<Plan>>,
    /// Times predicted by the cost model.
    prices: HashMap<Schedule, Option<f64>>,
}

impl<'m> Device<'m> {
    /// A measurer that starts with a VM of the model.
    ///
    /// # Errors
    /// Errors of a launch; a context too short for the positions or the gate.
    pub fn new(
        model: &'m Model,
        mut vm: Vm,
        cache: &Path,
        positions: &[u32],
        steps: u32,
        samples: usize,
    ) -> Result<Self, TuneError> {
        let needed = positions.iter().max().map_or(0, |last| last + steps).max(Reference::POSITIONS);
        let context = vm.positions() as u32;
        if context < needed {
            return Err(TuneError::Context { context, needed });
        }
        let reference = Reference::of(&mut vm)?;
        Ok(Self {
            model,
            cache: cache.to_owned(),
            target: vm.target(),
            positions: positions.to_vec(),
            steps,
            samples,
            incumbent: vm,
            candidate: None,
            reference,
            plans: HashMap::new(),
            prices: HashMap::new(),
        })
    }
}

impl Measure for Device<'_> {
    type Error = TuneError;

    fn positions(&self) -> &[u32] {
        &self.positions
    }

    fn neighbours(&self, schedule: &Schedule) -> Vec<Schedule> {
        neighbours(schedule, self.target)
    }

    fn predict(&mut self, schedule: &Schedule) -> Option<f64> {
        if let Some(&known) = self.prices.get(schedule) {
            return known;
        }
        let (kernel, instance) = (self.model.family.kernel, &self.model.instance);
        let plan = self
            .plans
            .entry([schedule.workers, schedule.run, schedule.splits, schedule.late, schedule.split_k])
            .or_insert_with(|| plan_for(kernel, instance, schedule, VmOptions::default().precision).ok());
        let price = plan.as_mut().map(|plan| {
            plan.schedule = schedule.clone();
            let cost = self.target.cost;
            let steps = self.positions.iter().map(|pos| cost.predict(plan, pos + self.steps / 2).step);
            steps.sum::<f64>() / self.positions.len().max(1) as f64 / 1e3
        });
        self.prices.insert(schedule.clone(), price);
        price
    }

    fn compare(&mut self, incumbent: &Schedule, candidate: &Schedule) -> Result<Outcome, TuneError> {
        // The last candidate may have been kept, or rows of the log may have moved the incumbent.
        if self.incumbent.schedule() != incumbent {
            self.incumbent = match self.candidate.take() {
                Some(vm) if vm.schedule() == incumbent => vm,
                _ => by_schedule(self.model, &self.incumbent, &self.cache, incumbent)?,
            };
        }
        // Its memory goes first.
        self.candidate = None;
        // A dead context ends the search; what this schedule alone cannot do does not.
        let mut vm = match self.reference.admit(self.model, &self.incumbent, &self.cache, candidate)? {
            Ok(vm) => vm,
            Err(why) => return Ok(Outcome::Refused(why)),
        };
        let times = in_turn([&mut self.incumbent, &mut vm], &self.positions, self.steps, self.samples)?;
        self.candidate = Some(vm);
        let [incumbent, candidate] = times.map(|of_positions| of_positions.iter().map(|us| us.median).collect());
        Ok(Outcome::Timed { incumbent, candidate })
    }
}
