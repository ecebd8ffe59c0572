//! Sessions against a naive model, in which a sequence is a list of tokens and shares nothing: what
//! a row finds at each position of its sequence is what the model has there, in any order of calls
//! and with few pages. What is refused changes nothing, and no page is lost.

use amk::rows::contract::{self, Breach};
use amk::rows::{
    HOLE, PAGE, PageChange, PageEdit, PageGroup, PageTables, PlacedRow, ROLLBACK, RowLimits, RowVm, RowsError,
    SequenceId,
};
use amk::session::{Session, SessionError};
use amk::{Pos, Token};
use amk_tests::generate::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROWS: usize = 24;
/// Pages of a group.
const PAGES: usize = 7;

/// Of groups of which rows read so many positions.
fn limits(positions: usize, reaches: &[Option<usize>]) -> RowLimits {
    let groups = reaches.iter().map(|&reach| PageGroup { pages: PAGES, reach }).collect();
    RowLimits { rows: ROWS, positions, groups }
}

/// Of rows that read all positions.
fn all() -> RowLimits {
    limits(4 * PAGE + 10, &[None])
}

/// Of rows that read their last positions alone, in sequences longer than all pages together.
fn window() -> RowLimits {
    limits(14 * PAGE, &[Some(75)])
}

const MOST_SEQUENCES: usize = 6;

/// A VM whose state has the token of each position; a row's logits are what it finds there in
/// each group, from the first position that it reads up to the end of its page.
#[derive(Debug)]
struct Memory {
    limits: RowLimits,
    /// Of each group.
    pages: Vec<Vec<[f32; PAGE]>>,
    found: Vec<Vec<f32>>,
}

impl RowVm for Memory {
    type Error = Breach;

    fn limits(&self) -> RowLimits {
        self.limits.clone()
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Breach> {
        let pages = &mut self.pages[edit.group];
        match edit.change {
            PageChange::Copy { from, to } => pages[to as usize] = pages[from as usize],
            PageChange::Clear { page, first } => pages[page as usize][first as usize..].fill(0.0),
        }
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Breach> {
        contract::check(&self.limits, &rows)?;
        self.found.clear();
        for PlacedRow { token, pos, pages: tables, .. } in rows {
            let mut found = Vec::new();
            for ((group, table), pages) in self.limits.groups.iter().zip(tables.iter()).zip(&mut self.pages) {
                let (block, first) = (pos.index() / PAGE, group.first_read(pos.index()));
                pages[table[block] as usize][pos.index() % PAGE] = token.0 as f32;
                let read = table[first / PAGE..=block].iter().flat_map(|&page| pages[page as usize]);
                found.extend(read.skip(first % PAGE));
            }
            self.found.push(found);
        }
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.found[row]
    }
}

/// A sequence of the model.
#[derive(Clone)]
struct Plain {
    ran: Vec<Token>,
    pending: Vec<Token>,
    /// The first pending token whose logits are wanted.
    wanted: usize,
    /// It is a fork, or has some.
    shares: bool,
    /// Blocks of positions of each group that were given back.
    gone: Vec<usize>,
    /// The furthest position of its first row in a step.
    stepped: usize,
}

impl Plain {
    fn new(groups: usize) -> Self {
        let (ran, pending, gone) = (Vec::new(), Vec::new(), vec![0; groups]);
        Self { ran, pending, wanted: 0, shares: false, gone, stepped: 0 }
    }

    /// The value that a row finds when it runs the token at a position.
    fn found(&self, position: usize, limits: &RowLimits) -> Vec<f32> {
        let mut found: Vec<f32> = self.ran[..=position].iter().map(|token| token.0 as f32).collect();
        found.resize((position + 1).next_multiple_of(PAGE), 0.0);
        let last = |group: &PageGroup| group.reach.map_or(0, |reach| position.saturating_sub(reach - 1));
        limits.groups.iter().flat_map(|group| found[last(group)..].to_vec()).collect()
    }

    /// The first group in which it cannot go on after `len` tokens, where each position that a row
    /// there reads, and that it keeps, must have a page.
    fn cannot_keep(&self, len: usize, limits: &RowLimits) -> Option<usize> {
        let can = |(group, &gone): (&PageGroup, &usize)| {
            let first = group.reach.map_or(0, |reach| (len + 1).saturating_sub(reach));
            let kept = len.next_multiple_of(PAGE);
            (first / PAGE * PAGE..kept).all(|position| position / PAGE >= gone)
        };
        limits.groups.iter().zip(&self.gone).position(|of| !can(of))
    }

    fn keep(&mut self, len: usize) {
        self.ran.truncate(len);
        self.gone.iter_mut().for_each(|gone| *gone = (*gone).min(len.div_ceil(PAGE)));
    }

    /// Whether it can run a token although no page is free.
    fn has_room(&self) -> bool {
        let room = self.ran.len().next_multiple_of(PAGE) - self.ran.len();
        let least = if self.wanted > 0 { 1 } else { self.pending.len() };
        !self.shares && !self.pending.is_empty() && least <= room
    }
}

struct Game {
    rng: Rng,
    session: Session<Memory>,
    plain: BTreeMap<SequenceId, Plain>,
    dropped: Vec<SequenceId>,
    /// Steps that were refused for want of pages.
    refused: u32,
    /// Forks and rollbacks that were refused as pages had been given back.
    given_back: u32,
    /// The most positions of a sequence.
    longest: usize,
}

impl Game {
    fn new(number: u64, limits: RowLimits) -> Self {
        let pages = limits.groups.iter().map(|group| vec![[0.0; PAGE]; group.pages]).collect();
        let memory = Memory { limits, pages, found: Vec::new() };
        let (plain, dropped) = (BTreeMap::new(), Vec::new());
        Self {
            rng: Rng::new(11, number),
            session: Session::new(memory),
            plain,
            dropped,
            refused: 0,
            given_back: 0,
            longest: 0,
        }
    }

    fn any(&mut self) -> Option<SequenceId> {
        let ids: Vec<SequenceId> = self.plain.keys().copied().collect();
        self.rng.pick(&ids).copied()
    }

    fn turn(&mut self) {
        let chosen = self.any();
        match (self.rng.below(100), chosen) {
            (0..12, _) | (_, None) if self.plain.len() < MOST_SEQUENCES => {
                let (id, groups) = (self.session.add(), self.session.limits().groups.len());
                assert!(!self.dropped.contains(&id) && self.plain.insert(id, Plain::new(groups)).is_none());
            }
            (0..32, Some(id)) => self.push(id),
            (32..42, Some(id)) if self.plain.len() < MOST_SEQUENCES => self.fork(id),
            (42..50, Some(id)) => self.rollback(id),
            (50..58, Some(id)) => {
                self.session.drop(id).expect("it exists");
                self.plain.remove(&id);
                self.dropped.push(id);
            }
            (58..62, _) => self.refuse(chosen),
            _ => self.step(),
        }
    }

    fn tokens(&mut self, most: u32) -> Vec<Token> {
        (0..self.rng.below(most + 1)).map(|_| Token(1 + self.rng.below(1000))).collect()
    }

    fn push(&mut self, id: SequenceId) {
        let draft = self.rng.chance(30);
        let most = if draft { ROWS as u32 } else { 2 * PAGE as u32 };
        let most = if self.rng.chance(40) { 1 } else { most };
        let tokens = self.tokens(most);
        let pushed = if draft { self.session.push_draft(id, &tokens) } else { self.session.push(id, &tokens) };
        let plain = self.plain.get_mut(&id).expect("it exists");
        let len = plain.ran.len() + plain.pending.len() + tokens.len();
        let positions = self.session.limits().positions;
        if len > positions {
            assert_eq!(pushed, Err(RowsError::Context { sequence: id, len, positions }));
            return;
        }
        assert_eq!(pushed, Ok(()));
        if !tokens.is_empty() {
            plain.pending.extend(&tokens);
            plain.wanted = plain.pending.len() - if draft { tokens.len() } else { 1 };
        }
    }

    fn fork(&mut self, id: SequenceId) {
        let limits = self.session.limits().clone();
        let original = self.plain.get_mut(&id).expect("it exists");
        let len = self.rng.below(original.ran.len() as u32 + 1) as usize;
        if let Some(group) = original.cannot_keep(len, &limits) {
            let (first, group) = (original.gone[group] * PAGE, limits.name(group));
            assert_eq!(self.session.fork(id, len), Err(RowsError::GivenBack { group, sequence: id, kept: len, first }));
            self.given_back += 1;
            return;
        }
        original.shares = true;
        let mut fork = Plain { pending: Vec::new(), wanted: 0, ..original.clone() };
        fork.keep(len);
        self.plain.insert(self.session.fork(id, len).expect("it has run so many"), fork);
    }

    fn rollback(&mut self, id: SequenceId) {
        let limits = self.session.limits().clone();
        let plain = self.plain.get_mut(&id).expect("it exists");
        let far = self.rng.chance(50);
        let least = if far { 0 } else { plain.stepped.saturating_sub(ROLLBACK).min(plain.ran.len()) };
        let len = least + self.rng.below((plain.ran.len() - least) as u32 + 1) as usize;
        if let Some(group) = plain.cannot_keep(len, &limits) {
            assert!(far, "what the last step appended can be taken back, and some more");
            let (first, group) = (plain.gone[group] * PAGE, limits.name(group));
            let gone = RowsError::GivenBack { group, sequence: id, kept: len, first };
            assert_eq!(self.session.rollback(id, len), Err(gone));
            self.given_back += 1;
            return;
        }
        self.session.rollback(id, len).expect("it has run so many");
        plain.keep(len);
        plain.pending.clear();
        plain.wanted = 0;
    }

    /// Calls that have to be refused change nothing.
    fn refuse(&mut self, chosen: Option<SequenceId>) {
        let before = format!("{:?}", self.session);
        if let Some(&gone) = self.dropped.last() {
            let unknown = RowsError::Unknown(gone);
            assert_eq!(self.session.push(gone, &[Token(1)]), Err(unknown.clone()));
            assert_eq!(self.session.fork(gone, 0), Err(unknown.clone()));
            assert_eq!(self.session.rollback(gone, 0), Err(unknown.clone()));
            assert_eq!(self.session.drop(gone), Err(unknown));
        }
        if let Some(id) = chosen {
            let len = self.plain[&id].ran.len();
            let short = RowsError::Truncate { sequence: id, len, kept: len + 1 };
            assert_eq!(self.session.fork(id, len + 1), Err(short.clone()));
            assert_eq!(self.session.rollback(id, len + 1), Err(short));
            let many = RowsError::Rows { found: ROWS + 1, most: ROWS };
            assert_eq!(self.session.push_draft(id, &[Token(1); ROWS + 1]), Err(many));
        }
        assert_eq!(format!("{:?}", self.session), before);
    }

    fn step(&mut self) {
        let before = format!("{:?}", self.session);
        let pending = self.plain.values().any(|plain| !plain.pending.is_empty());
        match self.session.step() {
            Err(SessionError::Rows(RowsError::Pages { .. })) => {
                self.refused += 1;
                assert_eq!(format!("{:?}", self.session), before, "nothing changes");
                let prompt = self.plain.values().any(|plain| plain.wanted > 0 && !plain.pending.is_empty());
                let free = self.session.free_pages();
                assert!(free.contains(&0) || !prompt, "a prompt can go on with {free:?} pages");
                assert!(!self.plain.values().any(Plain::has_room), "a sequence can go on in its page");
            }
            Err(error) => panic!("{error:?}"),
            Ok(done) if !pending => {
                assert!(done.is_empty());
                assert_eq!(format!("{:?}", self.session), before, "a step without tokens does nothing");
            }
            Ok(done) => self.ran(&done),
        }
    }

    /// Compares what has run with the model.
    fn ran(&mut self, done: &[SequenceId]) {
        let limits = self.session.limits().clone();
        let mut rows = 0;
        for (&id, plain) in &mut self.plain {
            let (from, had) = (plain.ran.len(), !plain.pending.is_empty());
            let count = self.session.len(id).expect("it exists") - from;
            rows += count;
            plain.stepped = if count > 0 { plain.stepped.max(from) } else { plain.stepped };
            for (gone, group) in plain.gone.iter_mut().zip(&limits.groups).filter(|_| count > 0) {
                // What the next row reads, were it so many positions before.
                let first = group.reach.map_or(0, |reach| from.saturating_sub(ROLLBACK) as i64 + 1 - reach as i64);
                *gone = (*gone).max(first.max(0) as usize / PAGE);
            }
            plain.ran.extend(plain.pending.drain(..count));
            assert_eq!(self.session.pending(id), Ok(plain.pending.len()));
            assert_eq!(done.contains(&id), had && plain.pending.is_empty(), "{id}");
            let wanted = from + plain.wanted.min(count)..plain.ran.len();
            let expected: Vec<Vec<f32>> = wanted.map(|position| plain.found(position, &limits)).collect();
            assert_eq!(self.session.all_logits(id).collect::<Vec<_>>(), expected, "{id}");
            assert_eq!(self.session.logits(id), expected.last().map(Vec::as_slice));
            plain.wanted = plain.wanted.saturating_sub(count);
            self.longest = self.longest.max(plain.ran.len());
        }
        assert!(rows > 0 && rows <= ROWS, "{rows}");
    }

    fn check_pages(&self) {
        let shared = self.plain.values().any(|plain| plain.shares);
        for (group, free) in self.session.free_pages().into_iter().enumerate() {
            let kept = |plain: &Plain| RowLimits::pages_of(plain.ran.len()) - plain.gone[group];
            let (most, taken) = (self.plain.values().map(kept).sum(), PAGES - free);
            assert!(taken == most || shared && taken < most, "{taken} of {most} pages of group {group}");
        }
        assert!(self.session.ids().eq(self.plain.keys().copied()));
    }
}

#[test]
fn sequences_are_as_if_each_were_alone() {
    let [refused, ..] = played(&all(), 300, 150);
    assert!(refused > 100, "pages were short only {refused} times");
}

#[test]
fn sequences_with_a_window_are_as_if_no_page_were_given_back() {
    let [refused, given_back, longest] = played(&window(), 300, 400);
    assert!(refused > 100, "pages were short only {refused} times");
    assert!(given_back > 100, "only {given_back} forks and rollbacks needed a page that was given back");
    assert!(longest > PAGES * PAGE, "the longest sequence has only {longest} positions");
}

#[test]
fn sequences_of_several_groups_are_as_if_each_had_one() {
    for reaches in [&[None, Some(75)][..], &[Some(200), Some(75), Some(1)]] {
        let [refused, given_back, longest] = played(&limits(14 * PAGE, reaches), 80, 400);
        assert!(refused > 50, "pages were short only {refused} times");
        assert!(given_back > 30, "only {given_back} forks and rollbacks needed a page that was given back");
        assert!(longest > 5 * PAGE, "the longest sequence has only {longest} positions");
    }
}

/// Plays so many games of so many turns. Returns how often steps, and forks and rollbacks, were
/// refused for want of pages, and the positions of the longest sequence.
fn played(limits: &RowLimits, games: u64, turns: u32) -> [usize; 3] {
    let mut found = [0; 3];
    for number in 0..games {
        let mut game = Game::new(number, limits.clone());
        for _ in 0..turns {
            game.turn();
            game.check_pages();
        }
        for id in game.session.ids().collect::<Vec<_>>() {
            game.session.drop(id).expect("it exists");
        }
        let pages: Vec<usize> = limits.groups.iter().map(|group| group.pages).collect();
        assert_eq!(game.session.free_pages(), pages, "no page is lost");
        found[0] += game.refused as usize;
        found[1] += game.given_back as usize;
        found[2] = found[2].max(game.longest);
    }
    found
}

/// The contract by its definition: rows of a sequence are neighbours with the same tables, one for
/// each group, which have a page for each position that a row reads; what a row writes, no other
/// sequence has and its own has once.
fn keeps_contract(limits: &RowLimits, rows: &[PlacedRow]) -> bool {
    if rows.is_empty() || rows.len() > ROWS || rows.iter().any(|row| row.pos.index() >= limits.positions) {
        return false;
    }
    let sequences: Vec<&[PlacedRow]> = rows.chunk_by(|a, b| a.pages == b.pages).collect();
    let consecutive = |rows: &&[PlacedRow]| rows.windows(2).all(|pair| pair[0].pos.0 + 1 == pair[1].pos.0);
    let groups = limits.groups.iter().enumerate();
    rows.iter().all(|row| row.pages.iter().len() == limits.groups.len())
        && sequences.iter().all(consecutive)
        && groups.into_iter().all(|(number, group)| keeps_contract_of(group, number, &sequences))
}

/// The contract of a group.
fn keeps_contract_of(of: &PageGroup, number: usize, sequences: &[&[PlacedRow]]) -> bool {
    let table = |row: &PlacedRow| row.pages.of(number).to_vec();
    let fits = |row: &PlacedRow| {
        let (pos, exists) = (row.pos.index(), |page: u32| (page as usize) < of.pages);
        let reads = |position: usize| of.reach.is_none_or(|reach| position + reach > pos);
        let page = |position: usize| match table(row).get(position / PAGE) {
            Some(&HOLE) => !reads(position),
            page => page.is_some_and(|&page| exists(page)),
        };
        (0..=pos).all(page)
    };
    if !sequences.iter().flat_map(|rows| rows.iter()).all(fits) {
        return false;
    }
    // Pages that a sequence has up to its last row, with their place in its table.
    let seen = |sequence: usize| {
        let last = sequences[sequence].last().map_or(0, |row| row.pos.index() / PAGE);
        let pages = table(&sequences[sequence][0])[..=last].to_vec().into_iter().enumerate();
        pages.filter(|&(_, page)| page != HOLE).map(move |(block, page)| (sequence, block, page))
    };
    let all: Vec<(usize, usize, u32)> = (0..sequences.len()).flat_map(seen).collect();
    let alone = |sequence: usize, row: &PlacedRow| {
        let block = row.pos.index() / PAGE;
        let own = table(row)[block];
        all.iter().filter(|(.., page)| *page == own).eq([&(sequence, block, own)])
    };
    sequences.iter().enumerate().all(|(sequence, rows)| rows.iter().all(|row| alone(sequence, row)))
}

#[test]
fn any_page_tables_are_checked_by_the_contract() {
    any_page_tables(&all(), 1000);
    any_page_tables(&limits(4 * PAGE + 10, &[Some(75)]), 1000);
    any_page_tables(&limits(4 * PAGE + 10, &[None, Some(75)]), 300);
}

fn any_page_tables(limits: &RowLimits, least: u32) {
    let (mut kept, mut holes) = (0, 0);
    for number in 0..20_000 {
        let mut rng = Rng::new(12, number);
        let mut rows: Vec<PlacedRow> = Vec::new();
        for _ in 0..rng.below(4) {
            let blocks = rng.below(5);
            let mut table = |group: &PageGroup| -> Arc<[u32]> {
                let window = group.reach.is_some() || rng.chance(5);
                let few = if window && rng.chance(60) { rng.below(3) } else { 0 };
                let page = |block| if block < few { HOLE } else { rng.below(PAGES as u32 + 1) };
                (0..blocks).map(page).collect()
            };
            let pages: PageTables = limits.groups.iter().map(&mut table).collect();
            let far = rng.chance(10);
            let first = rng.below(if far { u32::MAX - 9 } else { PAGE as u32 * (blocks + 1) });
            let (step, count) = (u32::from(!rng.chance(10)), rng.between(1, 5));
            let row = |n| PlacedRow {
                token: Token(0),
                pos: Pos(first + n * step),
                pages: pages.clone(),
                wanted: false,
                choice: None,
            };
            rows.extend((0..count).map(row));
        }
        let keeps = keeps_contract(limits, &rows);
        assert_eq!(contract::check(limits, &rows).is_ok(), keeps, "{rows:?}");
        kept += u32::from(keeps);
        holes += u32::from(keeps && rows.iter().any(|row| row.pages.iter().any(|table| table.contains(&HOLE))));
    }
    let windows = limits.groups.iter().any(|group| group.reach.is_some());
    assert!(kept > least && (holes > 20 || !windows), "{kept}, {holes} with holes");
}
