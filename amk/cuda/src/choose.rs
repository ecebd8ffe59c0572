//! How the workers choose a token.
//!
//! Every worker has the logits of its rows of the head. Greedy and at a temperature the choice is one argmax: each worker publishes
//! its best and reads everybody's, one hop. A token is drawn by a race of exponentials, so that, too, is an argmax, of
//! `logit / temperature - ln E` (Gumbel-max), and the noise of a token depends on seed, draw and token alone.
//!
//! Top-k, top-p and min-p take tokens out before the draw. What is left is a head of the ranking by logit (lower ids first among
//! equals), and the draw is the winner of the race among that head. The workers look for it without ever collecting it:
//!
//! 1. The winner of the race among all tokens is the candidate.
//! 2. Each worker counts what of its rows is above the candidate and above some levels, adds up its probability, and finds the
//!    winner of the race there; it publishes that ([`Choosing::found`]) and reads everybody's.
//! 3. Fewer than k tokens above the candidate, with less than p of the probability of the first k: it is the draw, since it won
//!    among a superset of the head. Else it is out with all below it, and the winner above the highest level that is out is the next
//!    candidate. A candidate above a level that is in is the draw at once.
//!
//! All workers compute the same from the same packets, so all know the token. One or two looks decide most draws; each further look
//! cuts what is unknown into at least a third. A draw that [`ROUNDS`] looks do not decide (as where very many logits are equal) ends
//! the launch with what it has, and says so: nothing is cut off silently.
//!
//! Without a filter, and once a draw is decided, all workers alike leave out the tasks that look: neither their packets are written nor
//! waited for. What keeps one step's packets from being overwritten by the next is that every worker reads every worker's best.

use super::image::abi;
use amk_ir::BufferId;

pub use super::image::abi::{FIELDS, LEVELS, SEARCH, SHARES};

/// Rounds of looks in a step.
pub const ROUNDS: usize = abi::ROUNDS as usize;
/// Rows of the head that a worker can look through: their noise lies in its scratch memory.
pub(super) const MOST_ROWS: u32 = abi::SCRATCH_FLOATS;

/// The buffers by which a token is chosen. In the program they are of f32, in which a token or a
/// count stands for itself; the device has these as u32 in the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choosing {
    /// The workers' best `[workers, 2]`: value and token.
    pub best: BufferId,
    /// What goes with it where tokens are taken out `[workers, SHARES]`.
    pub shares: BufferId,
    /// What each look found `[workers, LEVELS, FIELDS]`.
    pub found: [BufferId; ROUNDS],
    /// What each worker knows after each look `[workers, SEARCH]`.
    pub search: [BufferId; ROUNDS],
}

impl Default for Choosing {
    fn default() -> Self {
        let none = BufferId(0);
        Self { best: none, shares: none, found: [none; ROUNDS], search: [none; ROUNDS] }
    }
}
