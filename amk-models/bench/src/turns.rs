//! Two VMs of a model by different schedules, timed launch by launch in turn.

use super::report::Quantiles;
use amk::ir::schedule::Schedule;
use amk_cuda::{CudaError, RunOptions, Vm, VmOptions};
use amk_models::model::Model;
use std::path::Path;

/// A VM of the model with another schedule than `vm`: over its weights where that schedule places
/// them equally, else with a separate copy. `cache` keeps compiled device code.
///
/// # Errors
/// Those of [`Vm::new`].
pub fn by_schedule(model: &Model, vm: &Vm, cache: &Path, schedule: &Schedule) -> Result<Vm, CudaError> {
    let (kernel, instance) = (model.family.kernel, &model.instance);
    if let Some(shared) = vm.with_schedule(kernel, instance, cache, schedule)? {
        return Ok(shared);
    }
    let options =
        VmOptions { schedule: Some(schedule.clone().into()), precision: vm.precision(), ..VmOptions::default() };
    Vm::new(kernel, instance, &model.bindings, cache, &options, &mut |_| {})
}

/// Microseconds a token of both, position by position: `samples` launches of `steps` steps each.
/// Without a sample they are NaN.
///
/// # Errors
/// Errors of a launch.
pub fn in_turn(
    vms: [&mut Vm; 2],
    positions: &[u32],
    steps: u32,
    samples: usize,
) -> Result<[Vec<Quantiles>; 2], CudaError> {
    let mut times = [vec![Vec::new(); positions.len()], vec![Vec::new(); positions.len()]];
    for sample in 0..samples {
        for (at, &position) in positions.iter().enumerate() {
            // The order alternates, so that neither always runs on the other's cache contents.
            for turn in [sample % 2, 1 - sample % 2] {
                let run = vms[turn].run(&[1], position, steps, &RunOptions::default(), &mut |_| {})?;
                times[turn][at].push(run.time.as_secs_f64() * 1e6 / f64::from(steps));
            }
        }
    }
    let none = Quantiles { p10: f64::NAN, median: f64::NAN, p90: f64::NAN };
    let quantiles = |samples| Quantiles::of(samples).unwrap_or(none);
    Ok(times.map(|of_positions| of_positions.into_iter().map(quantiles).collect()))
}
