//! Steps of a program with rows: who is in the step, at which positions, and in which pages.

use crate::generate::Rng;
use core::fmt;

/// A row of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its sequence.
    pub sequence: usize,
    /// Its position.
    pub position: u64,
    /// Whether its outputs are wanted.
    pub wanted: bool,
}

/// The rows of a step, and the memory of their sequences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The rows, in their order.
    pub rows: Vec<Row>,
    /// Positions of a page.
    pub page: u64,
    /// By group of states: the pages of each sequence, one for each block of positions up to its
    /// last row. Sequences without rows come after the others.
    pub tables: [Vec<Vec<usize>>; GROUPS],
}

/// Groups of states, which have page tables of their own.
pub const GROUPS: usize = 2;

/// The limits of a program's steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The most rows.
    pub rows: u64,
    /// Positions are below.
    pub positions: u64,
    /// Whether something moves with the position; if not, sequences begin at 0 only.
    pub moves: bool,
    /// Whether calls are made for wanted rows alone; if not, all rows are wanted, as that asks for
    /// more.
    pub wanted: bool,
}

/// Neighbouring rows of one sequence: how many, and the position of the first.
type Run = (u64, u64);

impl Step {
    /// A step in which every sequence has pages of its own.
    pub fn new(rows: Vec<Row>, page: u64) -> Self {
        let sequences = rows.iter().map(|row| row.sequence + 1).max().unwrap_or(0);
        let (mut next, mut tables) = (0, Vec::new());
        for sequence in 0..sequences {
            let rows = rows.iter().filter(|row| row.sequence == sequence);
            let blocks = rows.map(|row| row.position / page + 1).max().unwrap_or(0) as usize;
            tables.push((next..next + blocks).collect());
            next += blocks;
        }
        Self { rows, page, tables: core::array::from_fn(|_| tables.clone()) }
    }

    /// Lets sequences share the pages before their first rows, some with each other and all with
    /// forks that have no rows: of one group these, of the other those.
    fn share(&mut self, rng: &mut Rng) {
        let first = |sequence| self.rows.iter().find(|row| row.sequence == sequence).map_or(0, |row| row.position);
        let sequences = 0..self.tables[0].len();
        let full: Vec<usize> = sequences.map(|sequence| (first(sequence) / self.page) as usize).collect();
        for tables in &mut self.tables {
            for sequence in 1..tables.len() {
                let other = rng.below(sequence as u32) as usize;
                let most = full[sequence].min(full[other]) as u32;
                let shared = if rng.chance(50) { most } else { rng.below(most + 1) } as usize;
                let pages = tables[other][..shared].to_vec();
                tables[sequence][..shared].copy_from_slice(&pages);
            }
            let forks: Vec<Vec<usize>> =
                tables.iter().zip(&full).map(|(pages, &full)| pages[..full].to_vec()).collect();
            tables.extend(forks.into_iter().filter(|pages| !pages.is_empty()));
        }
    }

    /// Sequences that have a page of a group.
    pub fn users(&self, group: usize, page: usize) -> usize {
        self.tables[group].iter().filter(|pages| pages.contains(&page)).count()
    }

    /// Whether the step keeps the contract: rows of a sequence are neighbours at consecutive
    /// positions, and of each group the page of each row's own position is its sequence's alone,
    /// and there once.
    pub fn keeps_contract(&self) -> bool {
        let neighbours = self
            .rows
            .windows(2)
            .all(|pair| pair[0].sequence != pair[1].sequence || pair[0].position + 1 == pair[1].position);
        let together = self.rows.chunk_by(|one, other| one.sequence == other.sequence).map(|run| run[0].sequence);
        let mut sequences: Vec<usize> = together.collect();
        sequences.sort_unstable();
        let once = sequences.windows(2).all(|pair| pair[0] != pair[1]);
        let own = |row: &Row, tables: &Vec<Vec<usize>>| {
            let page = tables[row.sequence].get((row.position / self.page) as usize);
            let places = |page| tables.iter().flatten().filter(|&&other| other == page).count();
            page.is_some_and(|&page| places(page) == 1)
        };
        let in_all = |row: &Row| self.tables.iter().all(|tables| own(row, tables));
        neighbours && once && self.rows.iter().all(in_all)
    }
}

/// Steps that keep the contract: those of one sequence, from the most rows to one, then those of
/// several, with pages that they share. Over `most` of these, that many random ones.
pub fn steps(extent: Extent, most: usize) -> Vec<Step> {
    let rng = &mut Rng::new(extent.rows << 32 | extent.positions, most as u64);
    let mut all = Vec::new();
    runs(extent, extent.rows, &mut Vec::new(), &mut all);
    all.sort_by_key(|runs| core::cmp::Reverse(runs.iter().map(|(rows, _)| rows).sum::<u64>()));
    let (one, several): (Vec<_>, Vec<_>) = all.into_iter().partition(|runs| runs.len() == 1);
    let masks = |runs: &[Run]| {
        let rows = runs.iter().map(|(rows, _)| rows).sum::<u64>();
        let all = (1u64 << rows) - 1;
        if extent.wanted { (0..=all).rev().collect() } else { vec![all] }
    };
    let mut steps = Vec::new();
    for runs in &one {
        steps.extend(masks(runs).into_iter().map(|mask| step(runs, mask, rng)));
    }
    let count: usize = several.iter().map(|runs| masks(runs).len()).sum();
    if count <= most {
        for runs in &several {
            steps.extend(masks(runs).into_iter().map(|mask| step(runs, mask, rng)));
        }
    } else {
        for _ in 0..most {
            let Some(runs) = rng.pick(&several) else { break };
            let mask = *rng.pick(&masks(runs)).unwrap_or(&0);
            steps.push(step(runs, mask, rng));
        }
    }
    steps
}

/// All ways to go on with at most `left` rows.
fn runs(extent: Extent, left: u64, before: &mut Vec<Run>, all: &mut Vec<Vec<Run>>) {
    if !before.is_empty() {
        all.push(before.clone());
    }
    for rows in 1..=left.min(extent.positions) {
        let starts = if extent.moves { extent.positions - rows + 1 } else { 1 };
        for start in 0..starts {
            before.push((rows, start));
            runs(extent, left - rows, before, all);
            before.pop();
        }
    }
}

fn step(runs: &[Run], wanted: u64, rng: &mut Rng) -> Step {
    let mut rows = Vec::new();
    for (sequence, &(count, start)) in runs.iter().enumerate() {
        for position in start..start + count {
            rows.push(Row { sequence, position, wanted: wanted >> rows.len() & 1 == 1 });
        }
    }
    let mut step = Step::new(rows, u64::from(rng.between(1, 2)));
    step.share(rng);
    step
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |sequence: usize| char::from(b'A' + sequence as u8 % 26);
        f.write_str("step of")?;
        for row in &self.rows {
            write!(f, " {}@{}{}", name(row.sequence), row.position, if row.wanted { "" } else { " unwanted" })?;
        }
        write!(f, ", pages of {}:", self.page)?;
        for (number, tables) in self.tables.iter().enumerate() {
            write!(f, "{}", if number > 0 { ";" } else { "" })?;
            for (sequence, pages) in tables.iter().enumerate() {
                write!(f, " {} {pages:?}", name(sequence))?;
            }
        }
        Ok(())
    }
}
