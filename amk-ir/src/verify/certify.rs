//! Writes the evidence for the acceptance of a program.

use super::meet::longest_launch;
use super::packets::PacketEdges;
use super::pairs::{bytes_meet, conflict, least_distance};
use super::simulate::Run;
use super::storage::{Access, bytes};
use super::sync::{Mode, Order, task};
use super::{Verified, Verifier};
use crate::certificate::{Certificate, Period, Proof, Trap};
use crate::verify::budget::Budget;
use crate::verify::meet::{Meet, periods, position_after};
use crate::{Program, Steps};
use core::fmt;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The reasons why an accepted program has no certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCertificate {
    /// It has tables: it would need a certificate for each routing.
    Tables,
    /// It has rows: the certificate would be for a stand-in.
    Rows,
    /// It has too many accesses to compare pair by pair.
    TooLarge,
}

impl fmt::Display for NoCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tables => "programs with tables have no certificate",
            Self::Rows => "programs with rows have no certificate",
            Self::TooLarge => "the program is too large to be compared tile by tile",
        })
    }
}

impl std::error::Error for NoCertificate {}

/// Pairs of accesses that are compared.
const MOST_PAIRS: u64 = 1 << 26;

/// Returns the certificate of an accepted program, in a deterministic order.
///
/// # Errors
/// [`NoCertificate`] for programs with tables, and for those with too many accesses of one buffer
/// for a checker to compare.
pub fn certify(verified: &Verified) -> Result<Certificate, NoCertificate> {
    let program = verified.program();
    if !program.tables.is_empty() {
        return Err(NoCertificate::Tables);
    }
    if program.rows.is_some() {
        return Err(NoCertificate::Rows);
    }
    let mut verifier = Verifier::default();
    verifier.sync.compile(program);
    verifier.storages.compile(program, verifier.bounds.every_position);
    let storages = 0..verifier.storages.kinds.len();
    let pairs = storages.clone().map(|n| (verifier.storages.accesses(n).len() as u64).pow(2)).sum::<u64>();
    if pairs > MOST_PAIRS {
        return Err(NoCertificate::TooLarge);
    }
    let mut budget = Budget::of(program);
    let mut firsts = vec![0];
    for storage in storages.filter(|&n| verifier.storages.kinds[n].moves) {
        let positions = verifier.storages.positions(program, storage, 1, usize::MAX, &mut budget);
        firsts.extend(positions.ok_or(NoCertificate::TooLarge)?);
    }
    let pipelined = program.steps == Steps::Pipelined;
    let moving = verifier.storages.moving_packets().is_some() && program.positions > 1;
    let copies = verifier.copies(program);
    let (window, starts) = match moving {
        true => {
            let window = if pipelined { verifier.bounds.horizon } else { 1 };
            verifier.clocks.distrust_by_steps(&verifier.sync, copies, &mut verifier.simulation, budget.clocks);
            (window, verifier.starts(program, window, &mut budget))
        }
        false => {
            verifier.clocks.trust_counters(&verifier.sync);
            (1, vec![0])
        }
    };
    let starts = periods(program, starts);
    if budget.is_spent() || pairs.saturating_mul(starts.len() as u64) > MOST_PAIRS {
        return Err(NoCertificate::TooLarge);
    }
    let mut packets = Vec::new();
    for starts in &starts {
        packets.push(verifier.edges(program, starts.first, window).ok_or(NoCertificate::TooLarge)?);
    }
    if moving {
        verifier.mix_alike(&packets, copies, budget.clocks);
    }
    let proofs = starts.into_iter().zip(&packets);
    let proofs = proofs.map(|(starts, packets)| verifier.prove(program, starts, copies, packets, moving)).collect();
    Ok(Certificate { periods: periods(program, firsts), proofs })
}

impl Verifier {
    /// Marks a counter that mixes steps in launches from one position as mixed in all proofs. That
    /// weakens their clocks, by which further counters may mix.
    fn mix_alike(&mut self, packets: &[Vec<Rc<PacketEdges>>], copies: u32, most: usize) {
        let mut mixed = None;
        while mixed != Some(self.clocks.mixed().count()) {
            mixed = Some(self.clocks.mixed().count());
            for packets in packets {
                let order = Order { sync: &self.sync, packets };
                self.clocks.compute(order, copies, &mut self.simulation, most);
            }
        }
    }

    /// The order of packets in each step of a launch.
    fn edges(&mut self, program: &Program, start: u32, window: u32) -> Option<Vec<Rc<PacketEdges>>> {
        let positions = (0..window).map_while(|step| position_after(program, start, step));
        let mut budget = Budget::of(program);
        positions
            .map(|position| {
                let edges = PacketEdges::at(program, &self.storages, &mut self.grid, position, &mut budget);
                edges.ok().filter(|_| !budget.is_spent()).map(Rc::new)
            })
            .collect()
    }

    fn prove(
        &mut self,
        program: &Program,
        starts: Period,
        copies: u32,
        packets: &[Rc<PacketEdges>],
        moving: bool,
    ) -> Proof {
        let order = Order { sync: &self.sync, packets };
        let mut tasks = Vec::new();
        match self.sync.mode {
            Mode::Queues => {
                let run = Run { copies: 1, endless: false, avoid: None };
                self.simulation.run(order, run, |id, _| tasks.push(task(id)));
            }
            Mode::Tickets(_) => tasks.extend(self.sync.queues.row(0).iter().map(|&id| task(id))),
        }
        self.clocks.compute(order, copies, &mut self.simulation, Budget::of(program).clocks);
        let mixed = self.clocks.mixed().map(|counter| self.sync.element(counter)).collect();
        let traps = self.traps(program, packets, copies, moving.then_some(starts));
        let (chains, clocks, steps) = Default::default();
        let mut proof = Proof { starts, order: tasks, chains, clocks, steps, mixed, traps };
        self.clocks.write_down(copies, &mut proof);
        proof
    }

    /// A trap for each pair that may conflict and that the clocks leave open.
    fn traps(
        &mut self,
        program: &Program,
        packets: &[Rc<PacketEdges>],
        copies: u32,
        starts: Option<Period>,
    ) -> Vec<Trap> {
        let mut open: BTreeMap<(u32, u32), Vec<(u32, u32)>> = BTreeMap::new();
        let mut budget = Budget::of(program);
        for storage in 0..self.storages.kinds.len() {
            let kind = self.storages.kinds[storage];
            let accesses = self.storages.accesses(storage);
            for (n, first) in accesses.iter().enumerate() {
                for (k, second) in accesses.iter().enumerate() {
                    if kind.local || !conflict(first, second) {
                        continue;
                    }
                    for (from, distance) in meetings(program, [first, second], n < k, kind.stride, starts, &mut budget)
                    {
                        let (a, b) = (first.task(), second.task());
                        let known = distance.min(copies - 1);
                        if (distance > 0 || a != b) && !self.clocks.before(a, 0, b, known) {
                            open.entry((a, from)).or_default().push((b, distance.min(self.bounds.horizon - 2)));
                        }
                    }
                }
            }
        }
        let mut traps = Vec::new();
        for ((a, from), mut behind) in open {
            behind.sort_unstable_by_key(|&(b, distance)| (distance, b));
            behind.dedup();
            self.trap(program, packets, (a, from), behind, &mut traps);
        }
        traps
    }

    /// Traps of one task, each with the shortest horizon that the tasks `behind` need.
    fn trap(
        &mut self,
        program: &Program,
        packets: &[Rc<PacketEdges>],
        (a, from): (u32, u32),
        mut behind: Vec<(u32, u32)>,
        traps: &mut Vec<Trap>,
    ) {
        let longest = longest_launch(program, from);
        let mut horizon = 1;
        while !behind.is_empty() {
            let furthest = behind.iter().map(|&(_, distance)| distance + 2).max().unwrap_or(1);
            horizon = if longest == 1 { 1 } else { furthest.max(horizon).min(longest).min(self.bounds.horizon) };
            let run = Run { copies: horizon, endless: longest > horizon, avoid: Some((a, 0)) };
            let mut ran = vec![false; (self.sync.tasks * horizon) as usize];
            let at = |id: u32, step: u32| (step * self.sync.tasks + id) as usize;
            let order = Order { sync: &self.sync, packets };
            self.simulation.run(order, run, |id, step| ran[at(id, step)] = true);
            let open = behind.len();
            behind.retain(|&(b, distance)| distance >= horizon || ran[at(b, distance)]);
            if behind.len() < open {
                let instances = (0..horizon).flat_map(|step| (0..self.sync.tasks).map(move |id| (id, step)));
                let stuck = instances.filter(|&(id, step)| !ran[at(id, step)] && (id, step) != (a, 0));
                let stuck = stuck.map(|(id, step)| (task(id), step)).collect();
                traps.push(Trap { from, task: task(a), horizon, stuck });
            }
            if horizon >= self.bounds.horizon.min(longest) {
                return;
            }
            horizon *= 2;
        }
    }
}

/// The first position of a launch, and the distance in steps, at which two accesses may conflict:
/// within a step if the first comes before in it, and at the least distance of steps.
fn meetings(
    program: &Program,
    [first, second]: [&Access; 2],
    before: bool,
    stride: u32,
    starts: Option<Period>,
    budget: &mut Budget,
) -> Vec<(u32, u32)> {
    let mut meetings = Vec::new();
    let pipelined = program.steps == Steps::Pipelined;
    if first.operand.buffer != second.operand.buffer {
        let [a, b] = [first, second].map(|access| bytes(&program.buffers[access.operand.buffer.index()]));
        if a.start >= b.end || b.start >= a.end {
            return meetings;
        }
        return byte_meetings(program, [first, second], before, starts, budget).unwrap_or_else(|| {
            let from = starts.map_or(0, |starts| starts.first);
            meetings.extend(before.then_some((from, 0)));
            meetings.extend([1, 2].into_iter().filter(|_| pipelined).map(|distance| (from, distance)));
            meetings
        });
    }
    let meet = Meet::of(&first.operand.region, &second.operand.region, program.positions).with_first_in(starts);
    let from = |position| starts.map_or(position, |starts: Period| starts.first);
    meetings.extend(meet.within(0, 0).filter(|_| before).map(|(position, _)| (from(position), 0)));
    if pipelined && let Some((distance, position)) = least_distance(program, [first, second], stride, starts) {
        meetings.push((from(position), distance));
    }
    meetings
}

/// Like [`meetings`] for two buffers that share bytes. `None` if it would be too much work.
fn byte_meetings(
    program: &Program,
    accesses: [&Access; 2],
    before: bool,
    starts: Option<Period>,
    budget: &mut Budget,
) -> Option<Vec<(u32, u32)>> {
    let is_packet = |access: &Access| program.buffers[access.operand.buffer.index()].is_packet();
    if accesses.into_iter().any(is_packet) {
        return None;
    }
    let mut meetings = Vec::new();
    // With one position all steps are at it.
    let moves = u32::from(program.positions > 1);
    let last = if program.steps == Steps::Pipelined { program.positions.max(2) - 1 } else { 0 };
    for distance in u32::from(!before)..=last {
        let positions = starts.map_or(0..program.positions, |starts| starts.first..starts.last + 1);
        for position in positions.filter(|position| position + moves * distance < program.positions) {
            if bytes_meet(program, accesses, [position, position + moves * distance], budget)? {
                let first = starts.map_or(0, |starts| starts.first);
                if distance > 0 {
                    // L8: across steps bytes are asked for order in the longest launch.
                    meetings.push((first, distance));
                    return Some(meetings);
                }
                meetings.push((starts.map_or(position, |_| first), distance));
                break;
            }
        }
    }
    Some(meetings)
}
