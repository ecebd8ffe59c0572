//! Hill climbing with a log.

use super::log::{Log, LogError, Row};
use super::space::changed;
use amk::ir::schedule::Schedule;

/// How much faster a schedule must be to be kept: 1%.
pub const GAIN: f64 = 0.01;

/// Measures schedules.
pub trait Measure {
    /// Why it cannot go on.
    type Error: From<LogError>;

    /// Positions that it times.
    fn positions(&self) -> &[u32];

    /// Legal schedules one step away.
    fn neighbours(&self, schedule: &Schedule) -> Vec<Schedule>;

    /// Microseconds a token that the cost model expects, mean over the positions; `None` where the
    /// schedule has no plan.
    fn predict(&mut self, schedule: &Schedule) -> Option<f64>;

    /// Times both, sample by sample in turn.
    ///
    /// # Errors
    /// When nothing can be measured any more. A candidate that fails is [`Outcome::Refused`].
    fn compare(&mut self, incumbent: &Schedule, candidate: &Schedule) -> Result<Outcome, Self::Error>;
}

/// Result of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Medians by position, microseconds a token.
    Timed {
        /// Of the incumbent.
        incumbent: Vec<f64>,
        /// Of the candidate.
        candidate: Vec<f64>,
    },
    /// The candidate was not timed.
    Refused(String),
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The best schedule.
    pub best: Schedule,
    /// How much faster than the first it is by the trials that were kept: 0.02 is 2%.
    pub gain: f64,
    /// Trials, including the log's.
    pub trials: usize,
    /// Trials that were measured now.
    pub measured: usize,
}

/// Searches from `start`: neighbours of the best schedule so far, each tried once, field by field
/// in turn, and of a field the cheapest by the cost model first. `see` gets each row and the number
/// of trials before it.
///
/// # Errors
/// Errors of the measurer and of the log.
pub fn search<M: Measure>(
    start: Schedule,
    measure: &mut M,
    log: &mut Log,
    limit: usize,
    see: &mut dyn FnMut(&Row, usize),
) -> Result<Found, M::Error> {
    let mut found = Found { best: start.clone(), gain: 0.0, trials: 0, measured: 0 };
    let mut tried = vec![start];
    while found.trials < limit {
        let Some((candidate, predicted_us)) = next_trial(measure, &found.best, &tried) else { break };
        tried.push(candidate.clone());
        let known = log.find(&found.best, &candidate, measure.positions()).cloned();
        let row = match known {
            Some(row) => row,
            None => {
                let outcome = measure.compare(&found.best, &candidate)?;
                let row = row(found.best.clone(), candidate.clone(), measure.positions(), predicted_us, outcome);
                log.push(row.clone())?;
                found.measured += 1;
                row
            }
        };
        see(&row, found.trials);
        found.trials += 1;
        if row.kept {
            found.best = candidate;
            found.gain = (1.0 + found.gain) * (1.0 + row.gain) - 1.0;
        }
    }
    Ok(found)
}

fn next_trial<M: Measure>(measure: &mut M, best: &Schedule, tried: &[Schedule]) -> Option<(Schedule, f64)> {
    let new = measure.neighbours(best).into_iter().filter(|next| !tried.contains(next));
    // The model is blind to some fields: none waits for all values of another.
    let trials = |field| tried.iter().filter(|tried| changed(best, tried) == field).count();
    let priced = new.filter_map(|next| {
        let price = measure.predict(&next)?;
        let before = trials(changed(best, &next));
        Some((next, before, price))
    });
    // The first of equals: the order of the space decides, so that a search repeats itself.
    let first = priced.min_by(|a, b| a.1.cmp(&b.1).then(a.2.total_cmp(&b.2)));
    first.map(|(next, _, price)| (next, price))
}

fn row(incumbent: Schedule, candidate: Schedule, positions: &[u32], predicted_us: f64, outcome: Outcome) -> Row {
    let (incumbent_us, candidate_us, refused) = match outcome {
        Outcome::Timed { incumbent, candidate } => (incumbent, candidate, None),
        Outcome::Refused(why) => (Vec::new(), Vec::new(), Some(why)),
    };
    let logs: Vec<f64> = incumbent_us.iter().zip(&candidate_us).map(|(before, after)| (before / after).ln()).collect();
    let gain = if logs.is_empty() { 0.0 } else { (logs.iter().sum::<f64>() / logs.len() as f64).exp() - 1.0 };
    let kept = refused.is_none() && gain >= GAIN;
    let positions = positions.to_vec();
    Row { incumbent, candidate, positions, predicted_us, incumbent_us, candidate_us, gain, kept, refused }
}

#[cfg(test)]
mod tests;
