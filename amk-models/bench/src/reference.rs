//! The gate of further schedules: compares their logits with those from a schedule that has passed
//! its own gate.

use super::gate::{BF16_TOLERANCE, fixed_tokens, relative_error};
use super::turns::by_schedule;
use amk::ir::schedule::Schedule;
use amk_cuda::{CudaError, RunOptions, Vm};
use amk_models::model::Model;
use std::path::Path;

/// Steps that are fed before logits are compared: more than one run of a cache's split.
const FED: u32 = 300;
/// Steps whose logits are compared.
const COMPARED: u32 = 4;
/// Relative difference of logits when sums are taken in another order: the rounding of the bf16
/// values between phases.
const REORDERED: f64 = 0.03;

/// Logits of a schedule that was compared with the annotated function.
#[derive(Debug)]
pub struct Reference {
    schedule: Schedule,
    logits: Vec<f32>,
}

impl Reference {
    /// Positions that the context must have.
    pub const POSITIONS: u32 = FED + COMPARED;

    /// The logits of a VM, from position 0 on.
    ///
    /// # Errors
    /// Errors of a launch.
    pub fn of(vm: &mut Vm) -> Result<Self, CudaError> {
        Ok(Self { schedule: vm.schedule().clone(), logits: logits(vm)? })
    }

    /// A VM of the model with another schedule than `vm`, whose times may be shown, or else why
    /// not: a limit of this schedule, or different logits. `cache` keeps compiled device code.
    ///
    /// # Errors
    /// Errors that end every other VM, too: the driver's, and a launch's.
    pub fn admit(
        &self,
        model: &Model,
        vm: &Vm,
        cache: &Path,
        schedule: &Schedule,
    ) -> Result<Result<Vm, String>, CudaError> {
        let mut vm = match by_schedule(model, vm, cache, schedule) {
            Ok(vm) => vm,
            Err(error @ (CudaError::Driver(_) | CudaError::Dead(_))) => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(match self.refuses(&mut vm)? {
            Some(why) => Err(why),
            None => Ok(vm),
        })
    }

    /// Why no time of another schedule's VM may be shown: its logits are others, or a wait did not
    /// end. `None` where they may.
    ///
    /// # Errors
    /// Errors of a launch other than [`CudaError::Stuck`].
    fn refuses(&self, vm: &mut Vm) -> Result<Option<String>, CudaError> {
        let found = match logits(vm) {
            Err(CudaError::Stuck(stuck)) => return Ok(Some(stuck.to_string())),
            found => found?,
        };
        let schedule = vm.schedule();
        let Some(tolerance) = tolerance(schedule, &self.schedule) else {
            let same = found.iter().map(|x| x.to_bits()).eq(self.logits.iter().map(|x| x.to_bits()));
            return Ok((!same).then(|| "the logits differ in bits from the first schedule's".to_owned()));
        };
        let error = relative_error(&found, &self.logits);
        let near = error <= tolerance;
        Ok((!near).then(|| format!("the logits differ by {error:.4} from the first schedule's")))
    }
}

/// The allowed difference between the logits of two schedules; `None`: they must be equal bit for
/// bit. Fusion decides which values are rounded to bf16; workers, runs and splits decide the order
/// of sums; all else only affects timing.
fn tolerance(a: &Schedule, b: &Schedule) -> Option<f64> {
    let order = |schedule: &Schedule| [schedule.workers, schedule.run, schedule.splits];
    if a.fusion != b.fusion { Some(BF16_TOLERANCE) } else { (order(a) != order(b)).then_some(REORDERED) }
}

/// Logits of some steps after others from position 0 on, so that they depend on nothing that ran
/// before.
fn logits(vm: &mut Vm) -> Result<Vec<f32>, CudaError> {
    let tokens = fixed_tokens(FED + COMPARED, vm.plan().sizes.tokens);
    let (before, after) = tokens.split_at(FED as usize);
    vm.run(before, 0, FED, &RunOptions::default(), &mut |_| {})?;
    let options = RunOptions { logits: true, ..RunOptions::default() };
    Ok(vm.run(after, FED, COMPARED, &options, &mut |_| {})?.logits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::ir::schedule::{ExchangeBy, Ring};
    use amk_cuda::TARGETS;

    #[test]
    fn what_changes_only_when_tasks_run_changes_no_bit() {
        let own = TARGETS[0].schedule();
        let exchange = ExchangeBy::Counters;
        assert_eq!(
            tolerance(&Schedule { ring: Ring { pace: 7, slots: 2, ..own.ring }, exchange, ..own.clone() }, &own),
            None
        );
        assert_eq!(tolerance(&Schedule { splits: 1, ..own.clone() }, &own), Some(REORDERED));
        assert_eq!(tolerance(&Schedule { splits: 1, fusion: false, ..own.clone() }, &own), Some(BF16_TOLERANCE));
    }
}
