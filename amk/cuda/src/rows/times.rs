//! Estimates of how long wide steps take, by which long prompts are divided into steps.

use crate::plan::Plan;
use crate::target::GpuTarget;
use amk_ir::BufferKind;

/// Nanoseconds of a phase of a wide step in addition to its weights and products, and the products
/// of two elements that a multiprocessor computes in one. Fitted to steps of 64 to 2048 rows of
/// models with 1e8, 1e9 and 8e9 weights on an H200.
const PHASE: f64 = 5000.0;
const PRODUCTS: f64 = 2500.0;

/// The times of the steps of some programs. Such a step takes as long as if it had all rows of its
/// program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepTimes {
    /// The rows of the programs, ascending.
    most: Vec<usize>,
    /// Nanoseconds of a step, and of each row of its program.
    step: f64,
    row: f64,
}

impl StepTimes {
    /// Of programs with so many rows, of which the widest is given.
    pub(super) fn new(most: Vec<usize>, widest: &Plan, target: &GpuTarget) -> Self {
        let program = &widest.program;
        let matrices = program.buffers.iter().filter(|buffer| {
            buffer.kind == BufferKind::Weight && buffer.shape.len() == 2 && buffer.shape[0] != widest.sizes.vocab
        });
        let products: u64 = matrices.map(|buffer| buffer.len()).sum();
        let bytes: u64 = widest.phases.iter().map(|phase| phase.kind().weight_bytes(widest)).sum();
        Self {
            most,
            step: widest.phases.len() as f64 * PHASE + bytes as f64 / target.cost.read,
            row: products as f64 / (PRODUCTS * f64::from(target.multiprocessors)),
        }
    }

    /// The time of a step of `rows` rows; infinite if no program has as many.
    fn time(&self, rows: usize) -> f64 {
        let program = self.most.iter().find(|&&most| rows <= most);
        program.map_or(f64::INFINITY, |&most| self.step + self.row * most as f64)
    }

    /// The best number of rows for one step when `pending` rows could run: all of them, or those of
    /// a program, if it and a step of the other rows take less time.
    pub(super) fn best_rows(&self, pending: usize) -> usize {
        let widest = self.most.last().copied().unwrap_or(1);
        if pending >= 2 * widest {
            return widest;
        }
        let narrower = self.most.iter().rev().copied().filter(|&most| most < pending);
        let divided = narrower.map(|most| (most, self.time(most) + self.time(pending - most)));
        let all = (pending, self.time(pending));
        divided.fold(all, |best, step| if step.1 < best.1 { step } else { best }).0
    }
}

#[cfg(test)]
mod tests {
    use super::super::PROGRAMS;
    use super::StepTimes;

    fn best(step: f64, row: f64, pending: &[usize]) -> Vec<usize> {
        let most = PROGRAMS.into_iter().chain([2048]).map(|most| most as usize).collect();
        let times = StepTimes { most, step, row };
        pending.iter().map(|&pending| times.best_rows(pending)).collect()
    }

    #[test]
    fn a_few_rows_more_than_a_program_has_take_a_step_of_their_own_where_rows_take_long() {
        // Models of 8e9 and 1e9 weights on an H200, microseconds.
        let long = |pending| best(4500.0, 21.0, pending);
        assert_eq!(long(&[1, 9, 200, 257, 384, 385]), [1, 9, 200, 257, 384, 385]);
        assert_eq!(long(&[520, 768, 769, 1024]), [512, 512, 769, 1024]);
        assert_eq!(long(&[1025, 1280, 1536, 1537, 2048]), [1024, 1024, 1024, 1537, 2048]);
        assert_eq!(long(&[2100, 3000, 4096, 9000]), [2048, 2048, 2048, 2048]);
        let medium = |pending| best(1150.0, 2.95, pending);
        assert_eq!(medium(&[264, 600, 1100, 1536, 1537]), [264, 600, 1024, 1024, 1537]);
        // One of 1e8.
        let short = |pending| best(1350.0, 0.32, pending);
        assert_eq!(short(&[257, 513, 1025, 1537, 2048]), [257, 513, 1025, 1537, 2048]);
        assert_eq!(short(&[2049, 4000, 5000]), [2048, 2048, 2048]);
    }

    #[test]
    fn steps_of_one_program_have_as_many_rows_as_it_has() {
        let times = StepTimes { most: vec![8], step: 1.0, row: 1.0 };
        assert_eq!([1, 8, 9, 15, 16, 100].map(|pending| times.best_rows(pending)), [1, 8, 8, 8, 8, 8]);
    }
}
