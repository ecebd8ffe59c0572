//! The verifier: structure (AMK01xx) and deadlock (AMK02xx).

mod clocks;
mod deadlock;
mod found;
mod grid;
mod judge;
mod meet;
mod message;
mod names;
mod operands;
mod packets;
mod pairs;
mod race;
mod report;
mod simulate;
mod storage;
mod structure;
mod sync;
mod violation;

pub use message::Message;
pub use violation::{
    Capacity, Code, Conflict, Link, Mismatch, NoPacket, Occurrence, Party, Race, Reference, Shaped, Site, Unordered, Violation,
    WaitsOn,
};

use crate::{Program, Steps};
use core::fmt;
use found::Found;
use grid::Step;
use judge::Judge;
use meet::position_after;
use packets::PacketEdges;
use race::Scene;
use std::collections::{HashMap, HashSet};
use storage::{MOST_SHARED_POSITIONS, Storages};
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
        report::write(f, &self.program, &self.violations)
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
    storages: Storages,
    grid: grid::Grid,
    simulation: simulate::Simulation,
    deadlock: deadlock::Deadlock,
    clocks: clocks::Clocks,
    replay: race::Replay,
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
        self.storages.compile(program);
        let copies = self.copies(program);
        if self.storages.kinds.iter().any(|kind| kind.packet && kind.moves) {
            // What packets order depends on the position, so everything does.
            let mut positions: Vec<u32> = Vec::new();
            for storage in (0..self.storages.kinds.len()).filter(|&n| self.storages.kinds[n].moves) {
                positions.extend(self.storages.positions(program, storage, copies));
            }
            positions.sort_unstable();
            positions.dedup();
            for position in positions {
                self.check_order(program, copies, Some(position), &mut found);
            }
        } else {
            self.check_order(program, copies, None, &mut found);
        }
        found.into_vec()
    }

    /// Steps that are looked at together: up to the first that uses the memory of the first again.
    fn copies(&self, program: &Program) -> u32 {
        let stride = self.storages.kinds.iter().map(|kind| kind.stride).max().unwrap_or(1);
        match program.steps {
            Steps::Barrier => 1,
            Steps::Pipelined if program.positions > 1 => (stride + 1).min(program.positions),
            Steps::Pipelined => stride + 1,
        }
    }

    /// Deadlocks and races at one position, or at all where the order of packets is the same at all.
    fn check_order(&mut self, program: &Program, copies: u32, position: Option<u32>, found: &mut Found) {
        let start = position.unwrap_or(0);
        let mut packets = Vec::new();
        for step in 0..if position.is_some() { copies } else { 1 } {
            let Some(position) = position_after(program, start, step) else { break };
            if !self.storages.kinds.iter().any(|kind| kind.packet) {
                packets.push(PacketEdges::default());
                break;
            }
            match PacketEdges::at(program, &self.storages, &mut self.grid, position) {
                Ok(edges) => packets.push(edges),
                Err(buffer) => return found.push(Violation::Packet { buffer, why: NoPacket::TooFine }),
            }
        }
        let order = Order { sync: &self.sync, packets: &packets };
        if !self.deadlock.check(program, order, &mut self.simulation, start, found) {
            return;
        }
        self.clocks.compute(order, copies, &mut self.simulation);
        let mut judge = Judge {
            program,
            order,
            clocks: &self.clocks,
            simulation: &mut self.simulation,
            found,
            longest: 1,
            most_copies: if position.is_some() { copies } else { judge::MOST_COPIES },
            clock_copies: copies,
            runs: HashMap::new(),
            seen: HashSet::new(),
            work: 0,
            races: 0,
        };
        operands::check_calls(program, &self.storages, &mut judge);
        for storage in 0..self.storages.kinds.len() {
            operands::check_early(program, &self.storages, storage, &mut judge);
            check_storage(&self.storages, &mut self.replay, storage, position, &mut judge);
        }
    }
}

/// Races and coverage of one storage, at one position or at all that differ.
fn check_storage(storages: &Storages, replay: &mut race::Replay, n: usize, position: Option<u32>, judge: &mut Judge<'_>) {
    let (program, storage) = (judge.program, storages.kinds[n]);
    let (buffers, accesses) = (storages.buffers.row(n as u32), storages.accesses(n));
    let pipelined = program.steps == Steps::Pipelined;
    let all;
    let positions = match position {
        Some(ref position) => std::slice::from_ref(position),
        None if storage.moves => {
            all = storages.positions(program, n, judge.clock_copies);
            &all
        }
        None => &[0],
    };
    if storage.shared && storage.moves && program.positions > MOST_SHARED_POSITIONS {
        let (buffer, other) = (buffers[0], buffers[1]);
        return judge.note(Violation::SharedPlace { buffer, other, write: None, position: 0 });
    }
    for &position in positions {
        judge.longest = match (program.steps, program.positions) {
            (Steps::Barrier, _) => 1,
            (Steps::Pipelined, 1) => u32::MAX,
            (Steps::Pipelined, positions) => positions - position,
        };
        let later = position_after(program, position, storage.stride).filter(|_| pipelined && !storage.local);
        let steps = [
            Step { number: 0, position },
            Step { number: storage.stride, position: later.unwrap_or(0) },
        ];
        let steps = &steps[..1 + usize::from(later.is_some())];
        let scene = Scene { storage, buffers, accesses, steps };
        if replay.run(&scene, judge) {
            continue;
        }
        if storage.shared {
            let (buffer, other) = (buffers[0], buffers[1]);
            return judge.note(Violation::SharedPlace { buffer, other, write: None, position });
        }
        pairs::cover(&scene, judge, position);
        if !storage.local {
            pairs::compare(&scene, judge);
        }
    }
    if pipelined && storage.moves && !storage.local && program.positions > 2 {
        judge.longest = program.positions;
        pairs::across_steps(&Scene { storage, buffers, accesses, steps: &[] }, judge, 1);
    }
}
