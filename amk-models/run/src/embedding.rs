//! Embeddings of texts: the hidden states of a decoder's last norm, pooled over the tokens.
//!
//! A decoder's last linear op computes the logits from these states. Its graph without that op is a
//! separate program, lowered and verified like any other.

use crate::open::{CPU_ROWS, OpenError, OpenModel, all_cores, rows_vm, with_rows};
use amk::ir::lower::{Lowered, lower_with};
use amk::ir::schedule::Schedule;
use amk::ir::verify::{Verified, verify_with};
use amk::rows::{PoolSize, RowVm, SequenceId};
use amk::session::{Session, SessionError};
use amk::vm::cpu::Vm;
use amk::{MegakernelError, Token};
use amk_models::head::{self, LM_HEAD};
use amk_models::model::Model;

/// The pooling of the hidden states `[tokens, HIDDEN]` of a text into one vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pooling {
    /// Their mean.
    #[default]
    Mean,
    /// The state of the last token, the only one that has seen the whole text.
    Last,
}

/// Returns the program of a model up to the states from which its logits are computed, `[HIDDEN]`
/// for each row.
///
/// # Errors
/// [`MegakernelError::Graph`], [`MegakernelError::Lower`] and [`MegakernelError::Rejected`].
pub fn hidden(model: &Model, schedule: &Schedule) -> Result<Verified, MegakernelError> {
    let kernel = model.family.kernel;
    let graph = kernel.graph()?;
    let missing = || MegakernelError::Graph {
        kernel: kernel.name().to_owned(),
        cause: format!("no operation outside of a loop reads `{LM_HEAD}`"),
    };
    let graph = head::states(graph).ok_or_else(missing)?;
    let lowered = lower_with(&graph, &model.instance, schedule);
    let Lowered { program, constants, .. } = lowered.map_err(|errors| MegakernelError::Lower {
        kernel: kernel.name().to_owned(),
        instance: model.instance.name.clone(),
        errors,
    })?;
    verify_with(program, constants).map_err(|rejected| MegakernelError::Rejected {
        kernel: kernel.name().to_owned(),
        rejected: Box::new(rejected),
    })
}

/// A text cannot be embedded.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError<E: core::error::Error + 'static> {
    /// It is longer than the context.
    #[error(
        "the text has {tokens} tokens, but the context has {positions} positions; shorten the text or raise --context"
    )]
    TooLong {
        /// Tokens of the text.
        tokens: usize,
        /// Positions of the context.
        positions: usize,
    },
    /// The model gives no numbers.
    #[error("the model gives no embedding: a hidden state is not finite")]
    NotFinite,
    /// A step failed.
    #[error(transparent)]
    Session(#[from] SessionError<E>),
}

/// Embeds texts on a VM whose program is [`hidden`].
pub struct Embedder<V> {
    session: Session<V>,
    pooling: Pooling,
}

impl Embedder<Vm> {
    /// An embedder over a model's weights, on this machine's cores.
    ///
    /// # Errors
    /// [`OpenError::Kernel`], [`OpenError::Registry`] and [`OpenError::Vm`].
    pub fn new(model: &OpenModel, pooling: Pooling) -> Result<Self, OpenError> {
        let graph = model.model().family.kernel.graph()?;
        let schedule = model.model().instance.schedule_in(graph).over(all_cores());
        let verified = hidden(model.model(), &with_rows(schedule, CPU_ROWS))?;
        let vm = rows_vm(verified, model.model(), PoolSize::sequences(1, model.context()))?;
        Ok(Self::of(vm, pooling))
    }
}

impl<V: RowVm> Embedder<V> {
    /// An embedder on a VM.
    pub fn of(vm: V, pooling: Pooling) -> Self {
        Self { session: Session::new(vm), pooling }
    }

    /// Positions of a text at most.
    pub fn positions(&self) -> usize {
        self.session.limits().positions
    }

    /// Returns the vector `[HIDDEN]` of a text's tokens, of length 1; zeros if the states are
    /// zeros, and an empty vector for no tokens.
    ///
    /// # Errors
    /// A text longer than the context, states that are not finite, or a failing step.
    pub fn embed(&mut self, tokens: &[u32]) -> Result<Vec<f32>, EmbedError<V::Error>> {
        let positions = self.positions();
        if tokens.len() > positions {
            return Err(EmbedError::TooLong { tokens: tokens.len(), positions });
        }
        let tokens: Vec<Token> = tokens.iter().copied().map(Token).collect();
        let id = self.session.add();
        let pooled = self.run(id, &tokens);
        self.session.drop(id).map_err(SessionError::<V::Error>::from)?;
        let pooled = pooled?;
        if pooled.iter().any(|x| !x.is_finite()) {
            return Err(EmbedError::NotFinite);
        }
        Ok(unit(&pooled))
    }

    /// The sum of the states of a sequence's tokens, or the last.
    fn run(&mut self, id: SequenceId, tokens: &[Token]) -> Result<Vec<f64>, SessionError<V::Error>> {
        let Self { session, pooling } = self;
        let mut sum: Vec<f64> = Vec::new();
        for chunk in tokens.chunks(session.limits().rows) {
            session.push_draft(id, chunk)?;
            session.step()?;
            for state in session.all_logits(id) {
                let state = state.iter().map(|&x| f64::from(x));
                match pooling {
                    Pooling::Mean if !sum.is_empty() => sum.iter_mut().zip(state).for_each(|(sum, x)| *sum += x),
                    _ => sum = state.collect(),
                }
            }
        }
        Ok(sum)
    }
}

/// The vector of length 1 in the same direction, which a mean shares with its sum.
fn unit(vector: &[f64]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = if length > 0.0 { length.recip() } else { 0.0 };
    vector.iter().map(|x| (x * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::Tensor;
    use amk::rows::{PageEdit, PlacedRow, RowLimits};
    use std::path::Path;

    /// A token with a state of NaN.
    const NOT_FINITE: u32 = 99;

    /// A VM whose states are the token and the position.
    struct Place(Vec<[f32; 2]>);

    impl RowVm for Place {
        type Error = core::convert::Infallible;

        fn limits(&self) -> RowLimits {
            RowLimits::new(2, 5, 1)
        }

        fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
            Ok(())
        }

        fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
            let state = |token| if token == NOT_FINITE { f32::NAN } else { token as f32 };
            self.0 = rows.iter().map(|row| [state(row.token.0), row.pos.0 as f32]).collect();
            Ok(())
        }

        fn logits(&self, row: usize) -> &[f32] {
            &self.0[row]
        }
    }

    #[test]
    fn a_text_longer_than_a_step_is_pooled_over_all_its_tokens() {
        let embed = |tokens: &[u32], pooling| Embedder::of(Place(Vec::new()), pooling).embed(tokens);
        // Sums 8 and 6, of positions 0, 1, 2 and 3; the last is 4 at 3.
        assert_eq!(embed(&[1, 2, 1, 4], Pooling::Mean).unwrap(), [0.8, 0.6]);
        assert_eq!(embed(&[1, 2, 1, 4], Pooling::Last).unwrap(), [0.8, 0.6]);
        assert_eq!(embed(&[0, 3], Pooling::Mean).unwrap(), embed(&[9, 3], Pooling::Last).unwrap());
        assert_eq!(embed(&[0], Pooling::Mean).unwrap(), [0.0, 0.0]);
        assert_eq!(embed(&[], Pooling::Mean).unwrap(), [0.0; 0]);
        let mut embedder = Embedder::of(Place(Vec::new()), Pooling::Last);
        let long = embedder.embed(&[1; 6]).unwrap_err().to_string();
        assert!(long.starts_with("the text has 6 tokens, but the context has 5 positions"), "{long}");
        assert!(matches!(embedder.embed(&[1, NOT_FINITE]), Err(EmbedError::NotFinite)));
        // The sequences of the texts that were refused are gone.
        assert_eq!(embedder.embed(&[3, 4]).unwrap().len(), 2);
    }

    #[test]
    fn logits_are_the_product_of_the_states() {
        let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tiny/llama");
        let model = crate::open(checkpoint.to_str().unwrap()).unwrap();
        let tokens = [1, 7, 42, 300, 7].map(Token);
        let mut logits = Session::new(model.vm(1).unwrap());
        let mut states = Embedder::new(&model, Pooling::Last).unwrap().session;
        let (id, same) = (logits.add(), states.add());
        logits.push_draft(id, &tokens).unwrap();
        states.push_draft(same, &tokens).unwrap();
        logits.step().unwrap();
        states.step().unwrap();
        let lm_head = &model.model().bindings.weights()[LM_HEAD];
        let mut count = 0;
        for (logits, state) in logits.all_logits(id).zip(states.all_logits(same)) {
            let state: Tensor = state.iter().copied().collect();
            assert_eq!(amk_kernels::linear(&state, lm_head).data(), logits);
            count += 1;
        }
        assert_eq!(count, tokens.len());
    }
}
