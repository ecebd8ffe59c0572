//! The verifier: structure (AMK01xx) and deadlock (AMK02xx).

mod deadlock;
mod found;
mod packets;
mod simulate;
mod structure;
mod sync;
mod violation;

pub use violation::{
    Capacity, Code, Conflict, Link, Mismatch, NoPacket, Occurrence, Party, Race, Reference, Shaped, Site, Unordered, Violation,
    WaitsOn,
};

use crate::Program;
use core::fmt;
use found::Found;
use packets::PacketEdges;
use sync::Order;

/// A program that the verifier has accepted. The only way to one is [`verify`].
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    program: Program,
}

impl Verified {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Gives the program back, which is then no longer known to be verified.
    pub fn into_program(self) -> Program {
        self.program
    }
}

/// A program that the verifier has refused. `Display` is the report.
#[derive(Clone, PartialEq, Debug)]
pub struct Rejected {
    /// The program.
    pub program: Box<Program>,
    /// What is wrong with it; never empty.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{}: {violation:?}", violation.code())?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejected {}

/// Accepts or refuses a program.
///
/// # Errors
/// [`Rejected`] with all violations that were found and the program itself.
pub fn verify(program: Program) -> Result<Verified, Rejected> {
    let violations = check(&program);
    if violations.is_empty() { Ok(Verified { program }) } else { Err(Rejected { program: Box::new(program), violations }) }
}

/// All violations of a program, in the order of their families; empty if and only if [`verify`] accepts it.
pub fn check(program: &Program) -> Vec<Violation> {
    Verifier::default().check(program)
}

/// The verifier with its memory, for callers that check many programs.
#[derive(Default)]
pub struct Verifier {
    structure: structure::Structure,
    sync: sync::Sync,
    simulation: simulate::Simulation,
    deadlock: deadlock::Deadlock,
}

impl Verifier {
    /// As [`check`].
    pub fn check(&mut self, program: &Program) -> Vec<Violation> {
        let mut found = Found::default();
        self.structure.check(program, &mut found);
        if !found.is_empty() {
            return found.into_vec();
        }
        self.sync.compile(program);
        deadlock::check_thresholds(program, &self.sync, &mut found);
        if !found.is_empty() {
            return found.into_vec();
        }
        let packets = [PacketEdges::default()];
        let order = Order { sync: &self.sync, packets: &packets };
        self.deadlock.check(program, order, &mut self.simulation, 0, &mut found);
        found.into_vec()
    }
}
