//! The scale of a block that rounds its elements with the least squared error.

use amk_kernels::encoding::{Grid, Step};

/// Scales that are tried, from the one that just reaches the largest element down.
const CANDIDATES: usize = 16;
/// Part by which the last of them is smaller.
const SHRINK: f32 = 0.45;
/// Times that a scale is fitted to the codes that it gives.
const REFINEMENTS: usize = 1;

/// The step with the least sum of `importance * (element - value)^2` among those tried.
///
/// Of a symmetric grid scales of both signs are tried, because one more code is on one side.
pub(crate) fn search(grid: Grid, elements: &[f32], importance: &[f32]) -> Step {
    let mut best = Best { grid, elements, importance, step: Step::default(), error: f64::INFINITY };
    best.start();
    let (low, high) = elements.iter().fold((0f32, 0f32), |(low, high), &x| (low.min(x), high.max(x)));
    for candidate in 0..CANDIDATES {
        let part = 1.0 - SHRINK * candidate as f32 / CANDIDATES as f32;
        if grid.minimum {
            let codes = (grid.most - grid.least) as f32;
            best.try_refined((high - low) * part / codes, low * part);
        } else {
            let largest = high.max(-low) * part;
            let towards = if high >= -low { grid.least } else { -grid.least };
            best.try_refined(largest / towards as f32, 0.0);
            best.try_refined(largest / grid.most as f32, 0.0);
        }
    }
    best.step
}

/// The best step so far.
struct Best<'a> {
    grid: Grid,
    elements: &'a [f32],
    importance: &'a [f32],
    step: Step,
    error: f64,
}

impl Best<'_> {
    /// All elements become 0.
    fn start(&mut self) {
        let squares = self.elements.iter().zip(self.importance);
        self.error = squares.map(|(&x, &weight)| f64::from(weight * x * x)).sum();
    }

    fn try_refined(&mut self, scale: f32, minimum: f32) {
        let mut step = Step { scale: self.grid.stored(scale), minimum: self.grid.stored(minimum) };
        for _ in 0..=REFINEMENTS {
            if step.scale == 0.0 || !step.scale.is_finite() {
                return;
            }
            step = self.try_one(step);
        }
    }

    /// Takes a step if it is better; returns the one with the best scale for its codes.
    fn try_one(&mut self, step: Step) -> Step {
        let (mut error, mut along, mut length) = (0f32, 0f32, 0f32);
        for (&x, &weight) in self.elements.iter().zip(self.importance) {
            let code = self.grid.code(step, x);
            let off = x - self.grid.value(step, code);
            error += weight * off * off;
            along += weight * (x - step.minimum) * code as f32;
            length += weight * (code * code) as f32;
        }
        if f64::from(error) < self.error {
            (self.step, self.error) = (step, error.into());
        }
        let scale = if length > 0.0 { along / length } else { step.scale };
        Step { scale: self.grid.stored(scale), ..step }
    }
}
