//! Perplexity of a text: the exponential of the mean loss of its tokens.
//!
//! A long text is run in windows of the context. Each except the first begins before the tokens
//! that count in it, so that every token counts once and has some text before it (Hugging Face,
//! "Perplexity of fixed-length models").

use crate::sampler::LogSoftmax;
use amk::Token;
use amk::rows::{RowVm, SequenceId};
use amk::session::{Session, SessionError};

/// How a text is divided into windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// Maximum number of tokens in a window, at least 2.
    pub context: usize,
    /// Tokens between the starts of two windows, `1..context`: this many count in each window
    /// except the first.
    pub stride: usize,
}

/// The losses of a text's tokens.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Perplexity {
    /// Number of tokens that count: all except the first.
    pub tokens: usize,
    sum: f64,
    squares: f64,
}

impl Perplexity {
    /// `exp` of the mean loss; 1 for a text without tokens that count.
    pub fn value(&self) -> f64 {
        self.mean().exp()
    }

    /// The standard error of [`Self::value`], as if the tokens' losses were independent; `None` for
    /// fewer than two tokens.
    pub fn error(&self) -> Option<f64> {
        let count = self.tokens as f64;
        let variance = (self.squares / count - self.mean().powi(2)).max(0.0);
        (self.tokens > 1).then(|| self.value() * (variance / (count - 1.0)).sqrt())
    }

    /// The mean loss in nats.
    pub fn mean(&self) -> f64 {
        if self.tokens == 0 { 0.0 } else { self.sum / self.tokens as f64 }
    }

    fn add(&mut self, loss: f64) {
        self.tokens += 1;
        self.sum += loss;
        self.squares += loss * loss;
    }
}

/// The loss `-ln p` of a token in nats, given logits `[VOCAB]`; infinite for a token outside them.
pub fn loss(logits: &[f32], Token(token): Token) -> f64 {
    -LogSoftmax::new(logits).of(logits, token)
}

/// Runs the tokens of a text; `see` is called with the result so far after each step.
///
/// # Errors
/// If a window is longer than the VM's context, or a step fails.
pub fn perplexity<V: RowVm>(
    session: &mut Session<V>,
    tokens: &[Token],
    windows: Windows,
    see: &mut dyn FnMut(&Perplexity),
) -> Result<Perplexity, SessionError<V::Error>> {
    let Windows { context, stride } = windows;
    let (context, mut total) = (context.max(2), Perplexity::default());
    for start in (0..tokens.len()).step_by(stride.clamp(1, context - 1)) {
        let window = &tokens[start..tokens.len().min(start + context)];
        let counted = total.tokens + 1 - start;
        let id = session.add();
        let done = run_window(session, id, window, counted, &mut total, see);
        session.drop(id)?;
        done?;
        if total.tokens + 1 >= tokens.len() {
            break;
        }
    }
    Ok(total)
}

/// Rows of a step at most: each has its logits in memory.
const MOST_LOGITS: usize = 512;

/// Adds the losses of a window's tokens from number `counted` on.
fn run_window<V: RowVm>(
    session: &mut Session<V>,
    id: SequenceId,
    window: &[Token],
    counted: usize,
    total: &mut Perplexity,
    see: &mut dyn FnMut(&Perplexity),
) -> Result<(), SessionError<V::Error>> {
    // A token's loss is in the logits of the one before it.
    let (before, inputs) = window[..window.len() - 1].split_at(counted - 1);
    session.push(id, before)?;
    while session.pending(id)? > 0 {
        session.step()?;
    }
    let mut targets = &window[counted..];
    for inputs in inputs.chunks(session.limits().rows.min(MOST_LOGITS)) {
        session.push_draft(id, inputs)?;
        session.step()?;
        let (losses, rest) = targets.split_at(inputs.len());
        session.all_logits(id).zip(losses).for_each(|(logits, &token)| total.add(loss(logits, token)));
        targets = rest;
        see(total);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::rows::{PageEdit, PlacedRow, RowLimits};

    /// A VM that expects each token after itself, the better the later its position.
    struct Echo(Vec<[f32; 8]>);

    impl RowVm for Echo {
        type Error = core::convert::Infallible;

        fn limits(&self) -> RowLimits {
            RowLimits::new(3, 16, 1)
        }

        fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
            Ok(())
        }

        fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
            let logits = |row: &PlacedRow| {
                let mut logits = [0.0; 8];
                logits[row.token.0 as usize] = row.pos.0 as f32;
                logits
            };
            self.0 = rows.iter().map(logits).collect();
            Ok(())
        }

        fn logits(&self, row: usize) -> &[f32] {
            &self.0[row]
        }
    }

    /// The loss of a token that is that before it, which is at position `pos` of its window.
    fn expected(pos: u32) -> f64 {
        (f64::from(pos).exp() + 7.0).ln() - f64::from(pos)
    }

    #[test]
    fn every_token_but_the_first_counts_once_after_what_is_before_it_in_its_window() {
        let run = |tokens: usize, context, stride| {
            let mut session = Session::new(Echo(Vec::new()));
            let windows = Windows { context, stride };
            let found = perplexity(&mut session, &vec![Token(5); tokens], windows, &mut |_| {}).unwrap();
            assert!(session.is_empty());
            found
        };
        let whole = run(10, 16, 8);
        let sum: f64 = (0..9).map(expected).sum();
        assert_eq!(whole.tokens, 9);
        assert!((whole.mean() - sum / 9.0).abs() < 1e-12);
        // Windows 0..6, 2..8, 4..10, 6..11: the second counts tokens 6 and 7, the last 10.
        let cut = run(11, 6, 2);
        let sum: f64 = (0..5).chain([3, 4, 3, 4, 3]).map(expected).sum();
        assert_eq!(cut.tokens, 10);
        assert!((cut.mean() - sum / 10.0).abs() < 1e-12, "{cut:?}");
        assert!(cut.error().is_some_and(|error| error > 0.0));
        assert_eq!([run(1, 6, 2), run(2, 6, 2)].map(|few| few.error()), [None; 2]);
        assert_eq!([run(0, 6, 2), run(1, 6, 2)].map(|none| (none.tokens, none.value())), [(0, 1.0); 2]);
    }

    #[test]
    fn a_window_longer_than_the_context_is_refused() {
        let mut session = Session::new(Echo(Vec::new()));
        let windows = Windows { context: 18, stride: 9 };
        let error = perplexity(&mut session, &[Token(1); 18], windows, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("16"), "{error}");
        assert!(session.is_empty());
    }

    #[test]
    fn losses_are_those_of_the_softmax() {
        assert!((loss(&[1.0, 1.0, 1.0, 1.0], Token(2)) - 4f64.ln()).abs() < 1e-12);
        assert_eq!(loss(&[1.0], Token(3)), f64::INFINITY);
    }
}
