//! Steps of rows: prompts, batches, forks and rollbacks give each row the bits of the function
//! called row by row.

use crate::decoder::{Caches, Case, decode};
use amk::ir::schedule::{FuseInto, Fusion, QueuePolicy, RowSchedule, Schedule, Tile};
use amk::ir::verify::Verified;
use amk::layout::zeroed;
use amk::prelude::*;
use amk::registry::Registry;
use amk::rows::contract::Breach;
use amk::rows::{PlacedRow, Row, RowVm, RowsError, SequenceId, Sequences};
use amk::vm::cpu::{Mode, Options, Vm, VmError};
use std::collections::BTreeMap;
use std::sync::Arc;

const POSITIONS: u32 = 150;
const ROWS: u32 = 24;

/// Numbers in an order that a seed decides.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// A VM with its sequences, and beside it the function with a cache for each sequence.
struct World<'a> {
    case: &'a Case,
    vm: Vm,
    sequences: Sequences,
    caches: BTreeMap<SequenceId, Caches>,
}

impl<'a> World<'a> {
    fn new(case: &'a Case, verified: &Arc<Verified>, mode: Mode, pages: usize) -> Self {
        let options = Options { mode, pages: Some(pages.into()), ..Options::default() };
        let vm = Vm::with(Arc::clone(verified), &case.bindings, &Registry::linked().unwrap(), options).unwrap();
        let sequences = Sequences::new(vm.limits());
        Self { case, vm, sequences, caches: BTreeMap::new() }
    }

    fn add(&mut self) -> SequenceId {
        let id = self.sequences.add();
        self.caches.insert(id, zeroed(&self.case.dims).unwrap());
        id
    }

    fn fork(&mut self, id: SequenceId, len: usize) {
        let fork = self.sequences.fork(id, len).unwrap();
        let mut copy: Caches = zeroed(&self.case.dims).unwrap();
        for (to, from) in copy.layers.iter_mut().zip(&self.caches[&id].layers) {
            (to.k, to.v) = (from.k.clone(), from.v.clone());
        }
        self.caches.insert(fork, copy);
    }

    /// Runs a step and compares each wanted row.
    fn step(&mut self, rows: &[Row]) -> Result<(), RowsError> {
        let placed = self.sequences.place(rows)?;
        for edit in placed.edits {
            self.vm.edit_page(edit).unwrap();
        }
        self.vm.step_rows(placed.rows).unwrap();
        for (number, row) in rows.iter().enumerate() {
            let cache = self.caches.get_mut(&row.sequence).unwrap();
            let (logits, next) = decode(row.token, row.pos, &self.case.weights, cache);
            if row.wanted {
                let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(self.vm.logits(number)), bits(logits.data()), "row {number} of {rows:?}");
                assert_eq!(self.vm.row_tokens(number), [next], "row {number} of {rows:?}");
            }
        }
        Ok(())
    }

    /// Rows of some sequences in any order.
    fn rows(&self, dice: &mut Dice) -> Vec<Row> {
        let mut ids: Vec<SequenceId> = self.sequences.ids().collect();
        let mut rows = Vec::new();
        while !ids.is_empty() && rows.len() < ROWS as usize {
            let sequence = ids.swap_remove(dice.below(ids.len()));
            let len = self.sequences.len(sequence).unwrap();
            let most = (ROWS as usize - rows.len()).min(POSITIONS as usize - len);
            let chunk = [1, 1, 2, 7, 20][dice.below(5)].min(most);
            rows.extend((len..len + chunk).map(|pos| Row {
                token: Token(dice.below(40) as u32),
                pos: Pos(pos as u32),
                sequence,
                wanted: dice.below(3) > 0,
            }));
            if dice.below(3) == 0 {
                break;
            }
        }
        rows
    }

    /// Something happens to a sequence.
    fn change(&mut self, dice: &mut Dice) {
        let ids: Vec<SequenceId> = self.sequences.ids().collect();
        let some = ids.get(dice.below(ids.len())).copied();
        let len = some.map_or(0, |id| self.sequences.len(id).unwrap());
        match (dice.below(8), some) {
            (0, _) | (_, None) => {
                self.add();
            }
            (1 | 2, Some(id)) => self.fork(id, dice.below(len + 1)),
            (3, Some(id)) => self.sequences.truncate(id, dice.below(len + 1)).unwrap(),
            (4, Some(id)) => {
                self.sequences.drop(id).unwrap();
                self.caches.remove(&id);
            }
            _ => {}
        }
    }
}

fn schedule(workers: u32, queue: QueuePolicy, block: Option<u32>) -> Schedule {
    let tiles = BTreeMap::from([("linear".to_owned(), Tile::Size(8))]);
    Schedule { workers, queue, tiles, rows: Some(RowSchedule { most: ROWS, block }), ..Schedule::default() }
}

fn schedules() -> Vec<Schedule> {
    let fuse = |op: &str, into| Fusion { op: op.to_owned(), into };
    let fused = vec![fuse("rms_norm", FuseInto::Consumers), fuse("add", FuseInto::Producer)];
    vec![
        schedule(2, QueuePolicy::Static, None),
        schedule(3, QueuePolicy::Ticket, Some(5)),
        Schedule { tiles: BTreeMap::new(), fuse: fused, ..schedule(2, QueuePolicy::Static, Some(1)) },
        schedule(1, QueuePolicy::Static, Some(ROWS)),
    ]
}

#[test]
fn each_row_has_the_bits_of_the_function() {
    let case = Case::with_context(POSITIONS);
    for (number, schedule) in schedules().iter().enumerate() {
        let verified = case.verified(schedule);
        for seed in 0..6 {
            let mode = [Mode::Threads, Mode::Delayed { seed }, Mode::Shuffled { seed }][seed as usize % 3];
            let mut world = World::new(&case, &verified, mode, 9);
            let mut dice = Dice(seed * 100 + number as u64);
            let mut out_of_pages = 0;
            for _ in 0..14 {
                world.change(&mut dice);
                let rows = world.rows(&mut dice);
                if rows.is_empty() {
                    continue;
                }
                match world.step(&rows) {
                    Ok(()) => {}
                    Err(RowsError::Pages { .. }) => out_of_pages += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(out_of_pages < 7, "most steps should have pages");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_company() {
    let case = Case::with_context(POSITIONS);
    let verified = case.verified(&schedules()[0]);
    let prompt: Vec<Token> = (0..70).map(|n| Token(n * 7 % 40)).collect();
    let mut found = Vec::new();
    for seed in 0..8 {
        let mut world = World::new(&case, &verified, Mode::Threads, 12);
        let mut dice = Dice(seed);
        let (own, other) = (world.add(), world.add());
        while world.sequences.len(own).unwrap() < prompt.len() {
            let first = world.sequences.len(own).unwrap();
            let chunk = (1 + dice.below(12)).min(prompt.len() - first);
            let mut rows: Vec<Row> = (first..first + chunk)
                .map(|pos| Row { token: prompt[pos], pos: Pos(pos as u32), sequence: own, wanted: true })
                .collect();
            let others = world.sequences.len(other).unwrap();
            let company = (others..(others + dice.below(9)).min(POSITIONS as usize)).map(|pos| Row {
                token: Token(dice.0 as u32 % 40),
                pos: Pos(pos as u32),
                sequence: other,
                wanted: false,
            });
            rows.extend(company.collect::<Vec<_>>());
            if seed % 2 == 1 {
                rows.rotate_left(chunk);
            }
            world.step(&rows).unwrap();
            let at = rows.iter().rposition(|row| row.sequence == own).unwrap();
            if world.sequences.len(own).unwrap() == prompt.len() {
                found.push(world.vm.logits(at).iter().map(|x| x.to_bits()).collect::<Vec<_>>());
            }
        }
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn programs_with_and_without_rows_refuse_the_steps_of_the_other() {
    let case = Case::with_context(POSITIONS);
    let mut with = case.vm(&case.verified(&schedules()[0]), Mode::Threads);
    assert_eq!(with.step(Token(0), Pos(0)).unwrap_err(), VmError::HasRows);
    let mut without = case.vm(&case.verified(&Schedule::default()), Mode::Threads);
    let sequences = &mut Sequences::new(with.limits());
    let sequence = sequences.add();
    let row = Row { token: Token(0), pos: Pos(0), sequence, wanted: true };
    let placed = sequences.place(&[row]).unwrap().rows;
    assert_eq!(without.step_rows(placed.clone()).unwrap_err(), VmError::NoRows);
    let group = with.limits().name(0);
    let late = PlacedRow { pos: Pos(64), ..placed[0].clone() };
    assert_eq!(with.step_rows(vec![late]).unwrap_err(), Breach::Short { group, row: 0, pos: 64, pages: 1 }.into());
    let many = vec![placed[0].clone(); 25];
    assert_eq!(with.step_rows(many).unwrap_err(), Breach::Rows { found: 25, most: 24 }.into());
    // Two sequences would append to one page, at once.
    let other = PlacedRow { pages: [0, 1].into(), ..placed[0].clone() };
    let shared = Breach::Shared { group, writer: 0, page: 0, other: 1 };
    assert_eq!(with.step_rows(vec![placed[0].clone(), other]).unwrap_err(), shared.into());
    assert!(with.step_rows(placed).is_ok(), "a refused step leaves the VM as it was");
}
