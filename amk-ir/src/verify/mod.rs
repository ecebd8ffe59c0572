//! The verifier: decides whether a program is safe to run.
//!
//! # The statement
//!
//! In every execution of an accepted program with its workers resident, every task of every step
//! runs, and every element that a task reads has the value that the eager order gives it; so
//! outputs and states have the values of the annotated function. An execution is any interleaving
//! of the workers; a task's accesses happen at any time between its start and its end, early reads
//! at any time since the launch. The steps of a launch are at consecutive positions `p, p+1, ..`
//! below `positions`; a program for one position stays at it for any number of steps.
//!
//! # Properties checked
//!
//! *Structure* (AMK01xx, `structure`): every reference exists; calls have the operands, accesses
//! and parameters of their instructions; shapes are possible; tiles have the rank of their buffer,
//! lie inside it and do not cross, at every position; weights and inputs are not written; locals
//! belong to one task; each task is queued once; a task names no counter twice; the target's
//! capacities hold; outputs are covered (in `race`); only reads are early; float parameters are
//! finite.
//!
//! *Deadlock* (AMK02xx, `deadlock`): thresholds are between 1 and the fan-in; a run of one step in
//! which every worker proceeds as far as it can reaches every task. Waits are monotone (no signal
//! makes a wait fail), so if one such run reaches a task, every maximal one does. One step is
//! enough: after all tasks of the previous steps, a counter is as at the start of a launch, and
//! more signals can only help. With tickets each wait is satisfied by earlier tickets, so that the
//! least unfinished ticket can always run, with one resident worker or more.
//!
//! *Races* (AMK03xx, AMK0404, AMK05xx; `race`, `pairs`): for any two accesses of one element, at
//! least one of them a write, the first in the order of (step, task, call) has finished whenever
//! the second starts. Elements are exact: tiles at every position, and bytes if buffers share the
//! arena. Operands of one call do not overlap if one is written. Early reads overlap no write of
//! any task at any position.
//!
//! *Values* (AMK0301, AMK0402, AMK0403, AMK0501): in eager order the last write of each element
//! read is to its own buffer, in the same step unless the buffer is kept between steps; at the end
//! of a step outputs, states, weights and inputs have their own bytes; an element of a packet
//! buffer is written at most once per step.
//!
//! *Epochs* (AMK0502 to AMK0504): counters and packets are never reset. They can confuse steps only
//! through the order of tasks: a wait of step `n` for `t` on a counter of fan-in `f` is a wait for
//! `n*f + t` signals of any step. The signals of two steps fit in the wrapping difference of 32
//! bits.
//!
//! *Tables* (AMK063x; `routing`): a program with tables stands for one program for each *routing*,
//! that is, each way to fill the tables within their contracts. In it tiles and elements are those
//! that the routing names, and a wait for a count is a wait for that many signals; a task performs
//! waits that depend on tables after its others, and reads the tables then. The statement holds for
//! each of these programs. The checks: tables are written whole rows at a time, each row once, by
//! tasks that do not depend on them; tiles that a table decides have entries, groups and as many
//! rows as the table; each entry signals a counted event once and nothing else does, so that its
//! elements get exactly as many signals as their waiters count, possibly none; a task that depends
//! on an entry reads it. Deadlocks and races are then checked as below.
//!
//! *Rows* (AMK08xx; `rows`): a program with rows stands for one program for each step: each number
//! of rows up to its own, their sequences, positions and page tables. It is decided as the ordinary
//! program in which all rows belong to one sequence. In addition, a call touches only the parts of
//! its own rows; accesses of two rows of a sequence to a state are listed in the order of the rows,
//! so that a step computes what the function does, called row by row; rows that are not wanted are
//! omitted only if nothing depends on them.
//!
//! # Why this implies the statement
//!
//! `docs/src/internals/verifier.md` has the definitions, the proofs, and the code that relies on
//! each; in short:
//!
//! Because there are no races, every read of an element is ordered after the writes before it in
//! eager order and before those after it, so it finds the last write before it; because of the
//! checks of values, that write is the one whose value the eager order reads.
//!
//! *Order.* `a` has finished whenever `b` starts if and only if `b` is not among the tasks that run
//! when `a` never finishes; these do not depend on the interleaving, as waits are monotone.
//! `clocks` proves most orders immediately; the rest is decided by running the program without `a`
//! (`judge`). Rejections are always of the second kind.
//!
//! *Steps.* It is enough to check a launch from its first step: the steps of an execution from `n`
//! on, without the signals of the preceding steps, are an execution from the start, because steps
//! before `n` give a counter at most `n*f` signals. And what comes after `a` in step `d` also does
//! in step `d+1`, since counts and queues only advance. So for each pair the least distance at
//! which it conflicts decides: the next step (the next use of the slot for packets), or a later one
//! if both tiles move with the position.
//!
//! *Positions.* Bounds are constants, `pos + constant`, or `max(0, pos - constant)`, which is 0
//! until its line passes 0. So between two positions at which bounds meet, their order does not
//! change, and neither do the cells and the accesses that touch each cell. One position from each
//! stretch represents all.
//!
//! *Transitivity.* Ordering each access after the last writer of a cell, and each write after the
//! readers since, orders all.
//!
//! *Routings.* `least` is the program without anything that depends on tables, `most` the one in
//! which each entry signals every value and every wait for an entry's element waits for all
//! elements. The executions of a routing are executions of `least`, so what is ordered there is
//! ordered; and each wait of a routing is a wait of `most` for at most as many signals, so if all
//! tasks run in `most` they do for every routing. Two tiles overlap for some routing exactly if
//! they share an element `(entry, value)`, the row of that entry when it has that value; so reads
//! of unwritten elements are found as in a buffer of that shape. If two accesses overlap given the
//! value, their order may rely on it: the task that signals the entry precedes the tasks that count
//! the value, and the tasks that signal the value's element precede those that wait for the
//! entry's. And since an entry has some value, an order that each of its values implies holds for
//! every routing. Whether a table keeps its contract is asserted when a task has written it, before
//! its signals, so nothing ever depends on a table that breaks it.
//!
//! # Properties not checked
//!
//! * That an instruction touches only its operands' tiles, reads what it declares, and agrees with
//!   its reference: the VMs' tests compare them.
//! * That a VM implements the order: signals come after the task's writes are visible, waits before
//!   its reads; the packet waits of a task come before it reads a table for its waits and before
//!   its first call; packets are published when the task's earlier writes are visible and its reads
//!   are done.
//! * That the workers of static queues are resident, and that positions are consecutive: the launch
//!   asserts both.
//! * Names, dims and op labels.
//! * That tables keep their contracts: the VM asserts it in each step.
//! * That after an aborted launch the host starts counters and epochs from a base beyond any value
//!   that it may have counted.
//!
//! # Where it refuses more than necessary
//!
//! * Buffers that have values before a step share no bytes, and neither do packet buffers; locals
//!   have no place.
//! * Shared bytes are followed position by position: up to 4096 positions if tiles move, in tiles
//!   of up to 2^14 rows.
//! * How far workers run ahead of each other is followed for 16 steps; beyond that an order counts
//!   as not proven.
//! * Work beyond the budget (`budget`), which is proportional to the program's size: AMK0114.
//!   Lowerings with static queues do not come near it; with tickets, where any worker may run any
//!   task, lowerings of thousands of small tasks exceed it.
//! * Packets whose tiles move, in pipelined programs with tickets and several workers (AMK0505).
//! * A bound that crosses at some position is refused even if the tile would be empty.
//! * Tables need `steps barrier`; rows that a table decides allow no packets, no place, no state,
//!   and at most three dimensions. Counts follow the contract, entry by entry, even if other
//!   signals would do; and reads of a table are explicit operands, which the task's own waits on
//!   tables do not order.
//! * Rows need `steps barrier` and no tables; two rows whose tiles of a state are listed against
//!   their order are also refused at positions that these rows do not reach. If tiles of a state
//!   move in several dimensions, a call is assumed to touch the box around the tiles of its rows.
//! * An order that follows only from several entries together, or from tickets that wait for
//!   counts, counts as not proven. So do waits that end in every routing, but would not if each
//!   entry had all values at once.
//! * Packets in tiles that divide a buffer into far more cells than there are accesses (64 for
//!   each).

mod bounds;
mod budget;
mod certify;
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
mod routing;
mod rows;
mod simulate;
mod storage;
mod structure;
mod sync;
mod violation;

pub use bounds::Bounds;
pub use certify::{NoCertificate, certify};
pub use message::Message;
pub use routing::{Given, NoTable, NoTile, Uncounted};
pub use rows::{NoRows, Unwanted};
pub use violation::{
    Capacity, Code, Conflict, Link, Mismatch, NoPacket, Occurrence, Party, Race, Reference, Shaped, Site, TooMuch,
    Unordered, Violation, WaitsOn,
};

use crate::certificate::Period;
use crate::{BufferId, Constants, Program, Queues, Steps};
use budget::Budget;
use core::fmt;
use found::Found;
use grid::Step;
use judge::Judge;
use meet::{longest_launch, periods, position_after};
use packets::PacketEdges;
use race::Scene;
use routing::Routing;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use storage::{MOST_SHARED_POSITIONS, Storages};
use sync::{Mode, Order};

/// A program that the verifier has accepted. [`verify`] is the only way to obtain one.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    program: Program,
    constants: Constants,
}

impl Verified {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The constants that it was lowered with, if known: a program that was read from a file has
    /// none.
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Returns the program, which is then no longer known to be verified.
    pub fn into_program(self) -> Program {
        self.program
    }
}

/// A program that the verifier has refused. `Display` is the report.
#[derive(Clone, PartialEq, Debug)]
pub struct Rejected {
    /// The program.
    pub program: Box<Program>,
    /// The violations; never empty.
    pub violations: Vec<Violation>,
}

impl Rejected {
    /// Whether the only violation is that the check would take too long; a smaller program, such as
    /// one with fewer rows, may pass.
    pub fn is_too_large(&self) -> bool {
        self.violations.iter().all(|violation| matches!(violation, Violation::TooMuch(_)))
    }
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
    verify_with(program, Constants::default())
}

/// Like [`verify`], for a program that was lowered with these floats and flags.
///
/// # Errors
/// As for [`verify`].
pub fn verify_with(program: Program, constants: Constants) -> Result<Verified, Rejected> {
    let violations = check(&program);
    if violations.is_empty() {
        Ok(Verified { program, constants })
    } else {
        Err(Rejected { program: Box::new(program), violations })
    }
}

/// All violations of a program, in the order of their families; empty if and only if [`verify`]
/// accepts it.
pub fn check(program: &Program) -> Vec<Violation> {
    Verifier::default().check(program)
}

/// The verifier with its memory, for callers that check many programs.
#[derive(Default)]
pub struct Verifier {
    bounds: Bounds,
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
    /// A verifier that checks further than necessary.
    pub fn with_bounds(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// As [`check`].
    pub fn check(&mut self, program: &Program) -> Vec<Violation> {
        let mut found = Found::default();
        let stand_in = rows::stand_in(program);
        self.structure.check(stand_in.as_ref().unwrap_or(program), program, &mut found);
        if found.is_empty() {
            rows::check(program, &mut found);
        }
        if !found.is_empty() {
            return found.into_vec();
        }
        if let Some(stand_in) = stand_in {
            if let Some(wider) = rows::without_windows(&stand_in) {
                let mut of_wider = Found::default();
                self.check_flow(&wider, None, &mut of_wider);
                if of_wider.is_empty() {
                    return Vec::new();
                }
            }
            self.check_flow(&stand_in, None, &mut found);
            return found.into_vec();
        }
        if program.tables.is_empty() {
            self.check_flow(program, None, &mut found);
            return found.into_vec();
        }
        let Some(mut routing) = Routing::of(program, &mut found) else { return found.into_vec() };
        let least = std::mem::take(&mut routing.least);
        self.check_flow(&least, Some(&mut routing), &mut found);
        Routing::restore(program, found.into_vec())
    }

    /// Checks waits, packets and queues.
    fn check_flow(&mut self, program: &Program, mut routing: Option<&mut Routing>, found: &mut Found) {
        self.sync.compile(program);
        deadlock::check_thresholds(program, &self.sync, found);
        if !found.is_empty() {
            return;
        }
        self.storages.compile(program, self.bounds.every_position);
        let copies = self.copies(program);
        let mut budget = Budget::of(program);
        if let Some(buffer) = self.storages.moving_packets().filter(|_| program.positions > 1) {
            // The order of packets depends on the position, so every property does.
            if program.steps == Steps::Pipelined && matches!(self.sync.mode, Mode::Tickets(_)) {
                return found.push(Violation::MovingTickets { buffer });
            }
            let window = if program.steps == Steps::Pipelined { self.bounds.horizon } else { 1 };
            let starts = periods(program, self.starts(program, window, &mut budget));
            // Positions that are checked together must lie within the steps in which launches of a
            // class are alike.
            let few = copies <= self.bounds.horizon;
            if !few || budget.is_spent() {
                budget.spend(u64::MAX, TooMuch::Slots { buffer });
                return budget.report(found);
            }
            self.clocks.distrust_by_steps(&self.sync, copies, &mut self.simulation, budget.clocks);
            let mut edges = BTreeMap::new();
            for starts in starts {
                edges = edges.split_off(&starts.first);
                let order = (window, copies, Some(starts));
                self.check_order(program, order, &mut edges, routing.as_deref_mut(), &mut budget, found);
            }
        } else {
            self.clocks.trust_counters(&self.sync);
            let order = (1, copies, None);
            self.check_order(program, order, &mut BTreeMap::new(), routing, &mut budget, found);
        }
        if found.is_empty() {
            budget.report(found);
        }
    }

    /// Start positions that represent all, if the order through packets in `window` steps depends
    /// on the position.
    fn starts(&self, program: &Program, window: u32, budget: &mut Budget) -> Vec<u32> {
        let mut starts = Vec::new();
        let buffer = self.storages.moving_packets().unwrap_or(BufferId(0));
        for storage in (0..self.storages.kinds.len()).filter(|&n| self.storages.kinds[n].moves) {
            let more = self.storages.positions(program, storage, window, usize::MAX, budget);
            let positions = more.as_ref().map_or(u64::MAX, |more| more.len() as u64);
            const PER_POSITION: u64 = 80;
            if !budget.spend(positions.saturating_mul(PER_POSITION), TooMuch::Positions { buffer, positions }) {
                return Vec::new();
            }
            starts.extend(more.unwrap_or_default());
            starts.sort_unstable();
            starts.dedup();
        }
        let (positions, tasks) = (starts.len() as u64, u64::from(self.sync.tasks));
        const PER_TASK: u64 = 500;
        let units = positions * tasks * u64::from(window.min(4)) * PER_TASK;
        if budget.spend(units, TooMuch::Positions { buffer, positions }) { starts } else { Vec::new() }
    }

    /// Number of steps checked together: up to the first that uses the memory of the first again.
    fn copies(&self, program: &Program) -> u32 {
        let stride = self.storages.kinds.iter().map(|kind| kind.stride).max().unwrap_or(1);
        match program.steps {
            Steps::Barrier => 1,
            Steps::Pipelined if program.positions > 1 => (stride + 1).min(program.positions),
            Steps::Pipelined => stride + 1,
        }
    }

    /// Checks deadlocks and races in launches from one position, or from all if the order through
    /// packets is the same at all of them.
    fn check_order(
        &mut self,
        program: &Program,
        (window, copies, starts): (u32, u32, Option<Period>),
        edges: &mut BTreeMap<u32, Rc<PacketEdges>>,
        routing: Option<&mut Routing>,
        budget: &mut Budget,
        found: &mut Found,
    ) {
        let start = starts.map_or(0, |starts| starts.first);
        let mut packets = Vec::new();
        for step in 0..window {
            let Some(position) = position_after(program, start, step) else { break };
            let known = match edges.get(&position) {
                Some(known) => Rc::clone(known),
                None => match PacketEdges::at(program, &self.storages, &mut self.grid, position, budget) {
                    Ok(made) => Rc::clone(edges.entry(position).or_insert(Rc::new(made))),
                    Err(buffer) => return found.push(Violation::Packet { buffer, why: NoPacket::TooFine }),
                },
            };
            packets.push(known);
        }
        if budget.is_spent() {
            return;
        }
        let every = match self.packets_of_every_step(program, &packets, budget) {
            Ok(every) => every,
            Err(buffer) => return found.push(Violation::Packet { buffer, why: NoPacket::TooFine }),
        };
        if budget.is_spent() {
            return;
        }
        let order = Order { sync: &self.sync, packets: &every };
        let sync = routing.as_ref().map_or(&self.sync, |routing| &routing.most);
        let most = Order { sync, packets: &packets };
        if !self.deadlock.check(program, most, &mut self.simulation, start, found) {
            return;
        }
        // A place and a clock for each task of each step, before any of the clocks' own numbers.
        let places = 3 * self.sync.tasks as usize * copies as usize;
        if places <= budget.clocks {
            self.clocks.compute(order, copies, &mut self.simulation, budget.clocks);
        }
        if places > budget.clocks || self.clocks.is_full() {
            let tickets = matches!(program.queues, Queues::Ticket { .. });
            let workers = if tickets { self.clocks.chains() } else { program.queues.workers() };
            budget.spend(u64::MAX, TooMuch::Clocks { workers, tickets, counters: self.sync.counters() });
            return;
        }
        let mut judge = Judge {
            program,
            order,
            clocks: &self.clocks,
            simulation: &mut self.simulation,
            found,
            budget,
            routing: routing.map(|routing| routing.order.of_other_clocks()),
            longest: 1,
            clock_copies: copies,
            horizon: self.bounds.horizon,
            runs: HashMap::new(),
            seen: HashSet::new(),
            races: 0,
        };
        operands::check_calls(program, &self.storages, &mut judge);
        for storage in 0..self.storages.kinds.len() {
            operands::check_early(program, &self.storages, storage, &mut judge);
            check_storage(&self.storages, &mut self.replay, storage, starts, &mut judge);
        }
    }
}

impl Verifier {
    /// The order through those packets that every step has; with rows these are fewer.
    ///
    /// # Errors
    /// A buffer that is divided too finely to follow.
    fn packets_of_every_step(
        &mut self,
        program: &Program,
        packets: &[Rc<PacketEdges>],
        budget: &mut Budget,
    ) -> Result<Vec<Rc<PacketEdges>>, BufferId> {
        let Some(every) = rows::of_every_step(program) else { return Ok(packets.to_vec()) };
        let mut storages = Storages::default();
        storages.compile(&every, self.bounds.every_position);
        Ok(vec![Rc::new(PacketEdges::at(&every, &storages, &mut self.grid, 0, budget)?)])
    }
}

/// A number of positions that is quickly listed.
const FEW_POSITIONS: usize = 1 << 16;

/// Races and coverage of one storage, at one position or at all that differ.
fn check_storage(
    storages: &Storages,
    replay: &mut race::Replay,
    n: usize,
    starts: Option<Period>,
    judge: &mut Judge<'_>,
) {
    let (program, storage) = (judge.program, storages.kinds[n]);
    let (buffers, accesses) = (storages.buffers.row(n as u32), storages.accesses(n));
    let pipelined = program.steps == Steps::Pipelined;
    let all_steps = Scene { storage, buffers, accesses, steps: &[] };
    let all;
    // Elements defined from the start need no replay, and pairs cover all positions at once.
    let pairs = accesses.len().saturating_pow(2).max(FEW_POSITIONS);
    let most = if storage.kept { pairs } else { usize::MAX };
    let positions = match starts {
        Some(Period { ref first, .. }) => std::slice::from_ref(first),
        None if storage.moves => match storages.positions(program, n, judge.clock_copies, most, judge.budget) {
            None if !storage.shared && storage.kept => return pairs::compare(&all_steps, judge, None),
            None => return,
            Some(few) => {
                all = few;
                &all
            }
        },
        None => &[0],
    };
    if !storage.shared && storage.kept && positions.len() > accesses.len() {
        return pairs::compare(&all_steps, judge, starts);
    }
    if storage.shared && storage.moves && program.positions > MOST_SHARED_POSITIONS {
        judge.budget.spend(u64::MAX, TooMuch::Runs { buffer: buffers[0] });
        return;
    }
    const PER_ACCESS: u64 = 200;
    let replayed = positions.len() as u64;
    let what = TooMuch::Positions { buffer: buffers[0], positions: replayed };
    if !judge.budget.spend(replayed * accesses.len() as u64 * PER_ACCESS, what) {
        return;
    }
    for &position in positions {
        judge.longest = longest_launch(program, position);
        let later = position_after(program, position, storage.stride).filter(|_| pipelined && !storage.local);
        let steps = [Step { number: 0, position }, Step { number: storage.stride, position: later.unwrap_or(0) }];
        let steps = &steps[..1 + usize::from(later.is_some())];
        let scene = Scene { storage, buffers, accesses, steps };
        // The order that a table establishes depends on the pair, so one pair of a group does not
        // represent another.
        if !storage.routed && replay.run(&scene, judge) {
            continue;
        }
        if storage.shared {
            judge.budget.spend(u64::MAX, TooMuch::Runs { buffer: buffers[0] });
            return;
        }
        pairs::cover(&scene, judge, position);
        if !storage.local {
            let at = Period { first: position, last: position };
            pairs::compare(&scene, judge, starts.or(Some(at).filter(|_| storage.moves)));
        }
    }
    if pipelined && storage.moves && !storage.local && program.positions > 2 {
        pairs::across_steps(&all_steps, judge, starts, 1);
    }
}
