//! Schedules measured on the GPU: two VMs, that of the incumbent and that of the candidate, timed in turn.

use super::log::LogError;
use super::search::{Measure, Outcome};
use super::space::neighbours;
use crate::bench::{Quantiles, relative_error};
use crate::model::Model;
use amk::vm::cuda::plan::Plan;
use amk::vm::cuda::{CudaError, DeviceCode, DeviceSchedule, GpuTarget, RunOptions, Vm, VmOptions, plan_for};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Steps that are fed before logits are compared: more than one run of a cache's split.
const GATE_STEPS: u32 = 300;
/// Steps whose logits are compared.
const COMPARED: u32 = 4;
/// Relative difference of logits whose sums were taken in another order: that of the bf16 between the phases.
const REORDERED: f64 = 0.03;

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
    code: DeviceCode,
    cache: PathBuf,
    target: &'static GpuTarget,
    positions: Vec<u32>,
    /// Steps a launch.
    steps: u32,
    /// Launches of each at each position.
    samples: usize,
    incumbent: Vm,
    candidate: Option<Vm>,
    /// Logits of the first schedule, which was compared with the annotated function.
    expected: Vec<f32>,
    first: DeviceSchedule,
    /// Plans by what they depend on.
    plans: HashMap<[u32; 3], Option<Plan>>,
    /// What the cost model said.
    prices: HashMap<DeviceSchedule, Option<f64>>,
}

impl<'m> Device<'m> {
    /// A measurer that starts with a VM of the model.
    ///
    /// # Errors
    /// Those of a launch; a context too short for the positions or the gate.
    pub fn new(
        model: &'m Model,
        mut vm: Vm,
        code: DeviceCode,
        cache: &Path,
        positions: &[u32],
        steps: u32,
        samples: usize,
    ) -> Result<Self, TuneError> {
        let needed = positions.iter().max().map_or(0, |last| last + steps).max(GATE_STEPS + COMPARED);
        let context = vm.positions() as u32;
        if context < needed {
            return Err(TuneError::Context { context, needed });
        }
        let expected = gate_logits(&mut vm)?;
        Ok(Self {
            model,
            code,
            cache: cache.to_owned(),
            target: vm.target(),
            positions: positions.to_vec(),
            steps,
            samples,
            first: vm.schedule(),
            incumbent: vm,
            candidate: None,
            expected,
            plans: HashMap::new(),
            prices: HashMap::new(),
        })
    }

    /// A VM by a schedule: one that is there, with other code, or a new one.
    fn vm(&self, old: Option<Vm>, schedule: DeviceSchedule) -> Result<Vm, CudaError> {
        let (kernel, instance) = (self.model.family.kernel, &self.model.instance);
        if let Some(mut vm) = old
            && (vm.schedule() == schedule || vm.reschedule(kernel, instance, self.code, &self.cache, schedule)?)
        {
            return Ok(vm);
        }
        let options = VmOptions { schedule: Some(schedule), ..VmOptions::default() };
        Vm::new(kernel, instance, &self.model.bindings, self.code, &self.cache, &options, &mut |_| {})
    }

    /// Why a candidate must not run, if it must not.
    fn gate(&self, vm: &mut Vm) -> Result<Option<String>, CudaError> {
        let found = gate_logits(vm)?;
        let schedule = vm.schedule();
        if order(&schedule) == order(&self.first) {
            let same = found.iter().map(|x| x.to_bits()).eq(self.expected.iter().map(|x| x.to_bits()));
            return Ok((!same).then(|| "the logits are not bit for bit those of the first schedule".to_owned()));
        }
        let error = relative_error(&found, &self.expected);
        let near = error <= REORDERED;
        Ok((!near).then(|| format!("the logits are {error:.4} away from those of the first schedule")))
    }
}

/// Who adds up what: workers, runs and splits decide it, and the plan with it; all else is when.
fn order(schedule: &DeviceSchedule) -> [u32; 3] {
    [schedule.workers, schedule.run, schedule.splits]
}

/// Logits of some steps after others from position 0 on, so that they depend on nothing that ran before.
fn gate_logits(vm: &mut Vm) -> Result<Vec<f32>, CudaError> {
    let tokens: Vec<u32> = (0..GATE_STEPS + COMPARED).map(|n| 17 + 91 * n % 40_000).collect();
    let (before, after) = tokens.split_at(GATE_STEPS as usize);
    vm.run(before, 0, GATE_STEPS, &RunOptions::default(), &mut |_| {})?;
    let options = RunOptions { logits: true, ..RunOptions::default() };
    Ok(vm.run(after, GATE_STEPS, COMPARED, &options, &mut |_| {})?.logits)
}

impl Measure for Device<'_> {
    type Error = TuneError;

    fn positions(&self) -> &[u32] {
        &self.positions
    }

    fn neighbours(&self, schedule: &DeviceSchedule) -> Vec<DeviceSchedule> {
        neighbours(schedule, self.target)
    }

    fn predict(&mut self, schedule: &DeviceSchedule) -> Option<f64> {
        if let Some(&known) = self.prices.get(schedule) {
            return known;
        }
        let (kernel, instance) = (self.model.family.kernel, &self.model.instance);
        let plan = self
            .plans
            .entry(order(schedule))
            .or_insert_with(|| plan_for(kernel, instance, schedule, VmOptions::default().precision).ok());
        let price = plan.as_mut().map(|plan| {
            plan.schedule = *schedule;
            let cost = self.target.cost;
            let steps = self.positions.iter().map(|pos| cost.predict(plan, pos + self.steps / 2).step);
            steps.sum::<f64>() / self.positions.len().max(1) as f64 / 1e3
        });
        self.prices.insert(*schedule, price);
        price
    }

    fn compare(&mut self, incumbent: &DeviceSchedule, candidate: &DeviceSchedule) -> Result<Outcome, TuneError> {
        // The last candidate may have been kept, or rows of the log may have moved the incumbent.
        if self.incumbent.schedule() != *incumbent {
            let other = self.candidate.take();
            let vm = self.vm(other, *incumbent)?;
            self.candidate = Some(std::mem::replace(&mut self.incumbent, vm));
        }
        let old = self.candidate.take();
        let mut vm = match self.vm(old, *candidate) {
            Ok(vm) => vm,
            // A dead context ends the search; what this schedule alone cannot do does not.
            Err(error @ (CudaError::Driver(_) | CudaError::Dead(_))) => return Err(error.into()),
            Err(error) => return Ok(Outcome::Refused(error.to_string())),
        };
        let refused = match self.gate(&mut vm) {
            Err(CudaError::Stuck(stuck)) => Some(stuck.to_string()),
            gate => gate?,
        };
        if let Some(why) = refused {
            return Ok(Outcome::Refused(why));
        }
        let mut times = [vec![Vec::new(); self.positions.len()], vec![Vec::new(); self.positions.len()]];
        for sample in 0..self.samples {
            for (at, &position) in self.positions.iter().enumerate() {
                // Who is first changes, so that neither always runs on what the other left in the caches.
                for turn in [sample % 2, 1 - sample % 2] {
                    let vm = if turn == 0 { &mut self.incumbent } else { &mut vm };
                    let run = vm.run(&[1], position, self.steps, &RunOptions::default(), &mut |_| {})?;
                    times[turn][at].push(run.time.as_secs_f64() * 1e6 / f64::from(self.steps));
                }
            }
        }
        self.candidate = Some(vm);
        let [incumbent, candidate] = times.map(|of_positions| {
            of_positions.into_iter().map(|samples| Quantiles::of(samples).map_or(f64::NAN, |us| us.median)).collect()
        });
        Ok(Outcome::Timed { incumbent, candidate })
    }
}
