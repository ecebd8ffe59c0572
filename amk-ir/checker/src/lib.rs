//! A second opinion: checks the certificate of a program by the definitions of
//! `docs/src/internals/verifier.md`.
//!
//! The crate depends on the data types of programs and certificates only. A program it accepts is
//! safe: in every launch, in every maximal execution, every instance finishes, and every word read
//! has its value in eager order. By the criterion (section 3) that is
//!
//! | | shown by | here |
//! |---|---|---|
//! | C1 | an order in which one step runs (L1) | `order` |
//! | C2 | all conflicting pairs, at the least distance (L8), in order by a clock (L6) or a trap (L5) | `pairs`, `clocks`, `trap` |
//! | C3 | one step at the first position of each period (L7) | `values`, `owners` |
//!
//! Neither the program nor the certificate is trusted: every reference is checked, and checks
//! beyond a fixed budget of work are refused. Programs with tables are refused.

mod budget;
mod bytes;
mod clocks;
mod launch;
mod meet;
mod order;
mod owners;
mod pairs;
mod refusal;
mod structure;
mod trap;
mod uses;
mod values;

pub use refusal::{At, Conflict, Counter, Ill, Malformed, Missing, Refusal};

use amk_ir::Program;
use amk_ir::certificate::{Certificate, Proof};
use budget::Budget;
use bytes::Bytes;
use clocks::Clocks;
use launch::Launch;
use pairs::{Orders, Pairs};
use trap::Traps;

/// Whether the certificate shows that the program is safe.
///
/// # Errors
///
/// The first thing that the certificate does not show.
pub fn check(program: &Program, certificate: &Certificate) -> Result<(), Refusal> {
    structure::check(program)?;
    if !launch::cover(certificate.periods.iter().copied(), program.positions) {
        return Err(Ill::Periods.into());
    }
    if !launch::cover(certificate.proofs.iter().map(|proof| proof.starts), program.positions) {
        return Err(Ill::Starts.into());
    }
    let budget = &mut Budget::new();
    let uses = uses::by_buffer(program);
    let launch = Launch::new(program, &uses, budget)?;
    let orders = certificate.proofs.iter().map(|proof| orders(&launch, proof, budget));
    let orders = orders.collect::<Result<Vec<_>, _>>()?;
    for (n, earlier) in orders.iter().enumerate() {
        let later = orders[n + 1..].iter();
        for later in later.take_while(|later| earlier.clocks.reaches(&later.clocks)) {
            budget.take(launch.counters.len() as u64, "comparing proofs")?;
            earlier.clocks.check_later(&later.clocks)?;
        }
    }
    let mut pairs = Pairs { launch: &launch, orders: &orders, budget };
    for uses in &uses {
        pairs.check_buffer(uses)?;
    }
    let mut alone = vec![true; program.buffers.len()];
    for group in bytes::groups(program) {
        let shared = Bytes::of_group(program, &uses, &group, pairs.budget)?;
        pairs.check_shared(&shared)?;
        owners::check(program, &group, &shared, pairs.budget)?;
        group.iter().for_each(|id| alone[id.index()] = false);
    }
    for (id, uses) in (0..).map(amk_ir::BufferId).zip(&uses).filter(|(id, _)| alone[id.index()]) {
        values::check(program, id, uses, &certificate.periods, pairs.budget)?;
    }
    Ok(())
}

/// The orders that a proof shows, if it is right.
fn orders<'a>(launch: &'a Launch<'a>, proof: &'a Proof, budget: &mut Budget) -> Result<Orders<'a>, Refusal> {
    let clocks = Clocks::new(launch, proof)?;
    let horizon = proof.traps.iter().map(|trap| u64::from(trap.horizon)).max().unwrap_or(1);
    let steps = horizon.min(launch.steps(proof.starts.first)).max(clocks.steps()).max(1);
    launch.same_writers(proof.starts, steps, budget)?;
    order::check(launch, proof, budget)?;
    clocks.check(budget)?;
    let traps = Traps::check(launch, proof, budget)?;
    Ok(Orders { starts: proof.starts, clocks, traps })
}
