//! The gate: compares the VM's logits with the annotated function's.

use amk::rows::RowVm;
use amk::session::{Session, SessionError};
use amk::{Pos, Token};
use amk_cuda::{CudaError, Precision, Vm};
use amk_models::model::Model;

/// Relative error of the logits that bf16 activations may cause.
pub(super) const BF16_TOLERANCE: f64 = 0.05;
/// Relative error of the logits in f32, where sums are taken in another order.
const F32_TOLERANCE: f64 = 1e-4;

/// Result of the gate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gate {
    /// Steps compared.
    pub steps: usize,
    /// The largest relative error of their logits.
    pub error: f64,
    /// Largest relative error that passes.
    pub tolerance: f64,
}

impl Gate {
    /// Feeds `tokens` from position 0 on to a GPU and to the annotated function, which holds the
    /// same weights.
    ///
    /// # Errors
    /// Errors of the GPU.
    pub fn of(vm: &mut Vm, model: &mut Model, tokens: &[u32]) -> Result<Self, CudaError> {
        let mut error = 0.0f64;
        for (pos, &token) in (0..).zip(tokens) {
            let expected = (model.eager)(Token(token), Pos(pos));
            error = worse(error, relative_error(vm.step(token, pos)?, expected.data()));
        }
        let tolerance = match vm.precision() {
            Precision::BF16 => BF16_TOLERANCE,
            Precision::F32 => F32_TOLERANCE,
        };
        Ok(Self { steps: tokens.len(), error, tolerance })
    }

    /// Feeds `tokens` from position 0 on to a VM with rows, all in one step and again one a step,
    /// and to the annotated function. `tolerance` is 0 for the same bits, or [`Self::BF16`].
    ///
    /// # Errors
    /// Errors of the VM.
    pub fn of_rows<V: RowVm>(
        session: &mut Session<V>,
        model: &mut Model,
        tokens: &[u32],
        tolerance: f64,
    ) -> Result<Self, SessionError<V::Error>> {
        let tokens: Vec<Token> = tokens.iter().copied().map(Token).collect();
        let expected: Vec<_> = (0..).zip(&tokens).map(|(pos, &token)| (model.eager)(token, Pos(pos))).collect();
        let mut error = 0.0f64;
        for of_step in [tokens.len().max(1), 1] {
            let id = session.add();
            for (tokens, expected) in tokens.chunks(of_step).zip(expected.chunks(of_step)) {
                session.push_draft(id, tokens)?;
                session.step()?;
                for (logits, expected) in session.all_logits(id).zip(expected) {
                    error = worse(error, relative_error(logits, expected.data()));
                }
            }
            session.drop(id)?;
        }
        Ok(Self { steps: tokens.len(), error, tolerance })
    }

    /// The tolerance where activations are bf16.
    pub const BF16: f64 = BF16_TOLERANCE;

    /// Whether times may be shown.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// Tokens of no text, below `vocab`, far apart.
pub fn fixed_tokens(count: u32, vocab: u32) -> Vec<u32> {
    (0..count).map(|n| (17 + 91 * n) % vocab).collect()
}

/// The larger error; a NaN stays one, which `max` would drop.
fn worse(error: f64, found: f64) -> f64 {
    if error.is_nan() || found.is_nan() { f64::NAN } else { error.max(found) }
}

/// `|found - expected| / |expected|`.
pub fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| square(f64::from(a - b))).sum();
    let norm: f64 = expected.iter().map(|&b| square(f64::from(b))).sum();
    (difference / norm).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_that_are_no_numbers_do_not_pass() {
        let gate = |error| Gate { steps: 1, error, tolerance: BF16_TOLERANCE };
        assert!(gate(0.01).passed());
        assert!(!gate(0.06).passed());
        let no_number = relative_error(&[f32::NAN, 1.0], &[1.0, 1.0]);
        assert!(!gate(no_number).passed());
        assert!(!gate([0.01, no_number, 0.02].into_iter().fold(0.0, worse)).passed());
        assert_eq!([0.01, 0.03, 0.02].into_iter().fold(0.0, worse), 0.03);
        assert_eq!(relative_error(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
    }
}
