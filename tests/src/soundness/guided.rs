//! A guided search: programs that show something new are kept and changed further.
//!
//! A novelty is a new pair of words about a program: its features, how far its workers run ahead,
//! the oracle's verdict, the verifier's reasons. Accepted programs are preferred, and each that is
//! new is taken to pieces by all its single edits.

use super::near::NearMiss;
use super::{Family, Label, Tally, Verifier, cause, draw, features};
use crate::generate::{Rng, grow};
use crate::mutate::Class;
use crate::oracle::{Horizon, Verdict, read, withhold};
use amk_ir::{Program, text, verify};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// The state of a search.
pub struct Guided {
    rng: Rng,
    verifier: Verifier,
    families: Vec<Family>,
    seed: u64,
    /// Programs that showed something new, accepted and refused ones.
    pools: [Vec<Program>; 2],
    /// Pairs of words seen.
    seen: FxHashSet<u64>,
    /// By features: the near miss with most edits.
    near: FxHashMap<u64, NearMiss>,
    /// The counts.
    pub tally: Tally,
}

/// Programs of more tasks, or with more positions, are not changed further.
const TASKS: usize = 14;
const POSITIONS: u32 = 13;

/// Changes of programs in a pool: those that do not mostly take away all meaning.
const CHANGES: [Class; 25] = [
    Class::DropWait,
    Class::LowerWait,
    Class::RaiseWait,
    Class::RedirectWait,
    Class::WaitForLater,
    Class::DropSignal,
    Class::RedirectSignal,
    Class::SwapQueue,
    Class::MoveTask,
    Class::SplitWorker,
    Class::SwapEager,
    Class::ShiftTile,
    Class::WidenTile,
    Class::NarrowTile,
    Class::FollowPosition,
    Class::FollowBound,
    Class::FallBehind,
    Class::Alias,
    Class::FewerSlots,
    Class::MoreSlots,
    Class::PacketToCounter,
    Class::CounterToPacket,
    Class::FewerPositions,
    Class::DropCall,
    Class::DropOperand,
];

impl Guided {
    /// A search that starts from programs of some families.
    pub fn new(verifier: Verifier, families: &[Family], seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, 0),
            verifier,
            families: families.to_vec(),
            seed,
            pools: Default::default(),
            seen: FxHashSet::default(),
            near: FxHashMap::default(),
            tally: Tally::default(),
        }
    }

    /// Judges at least so many programs more, counting edits.
    pub fn run(&mut self, programs: u64) {
        let end = self.judged() + programs;
        while self.judged() < end {
            let number = self.judged();
            let program = self.next(number);
            let (accepted, verdict) = self.judge(Label::Guided, &program);
            if accepted && verdict.is_safe() && self.is_new(&program, &verdict) {
                self.take_to_pieces(&program);
                self.pools[0].push(program);
            } else if !accepted && verdict != Verdict::TooLarge && self.is_new(&program, &verdict) {
                self.pools[1].push(program);
            }
        }
    }

    fn judged(&self) -> u64 {
        self.tally.total().programs
    }

    fn judge(&mut self, label: Label, program: &Program) -> (bool, Verdict) {
        let number = self.judged();
        let (codes, verdict) = self.tally.judge(self.verifier, (label, program), number);
        (codes.is_empty(), verdict)
    }

    /// A program that is drawn, or a changed one of a pool, mostly of the accepted.
    fn next(&mut self, number: u64) -> Program {
        let pool = &self.pools[usize::from(self.rng.chance(25))];
        if !pool.is_empty() && self.rng.chance(80) {
            let at = if self.rng.chance(50) { self.rng.below(pool.len() as u32) as usize } else { pool.len() - 1 };
            let mut program = pool[at - self.rng.below(at.min(40) as u32 + 1) as usize].clone();
            let grown = self.rng.chance(60);
            if grown {
                grow(&mut self.rng, &mut program);
            }
            let fewest = u32::from(!grown);
            super::draw::mutate(&mut self.rng, &mut program, &CHANGES, fewest, fewest + 1);
            if program.tasks.len() <= TASKS && program.positions <= POSITIONS {
                return program;
            }
        }
        let family = *self.rng.pick(&self.families).unwrap_or(&Family::Small);
        draw(family, self.seed, number).1
    }

    /// Whether a pair of words of a program has not been seen.
    fn is_new(&mut self, program: &Program, verdict: &Verdict) -> bool {
        let words: Vec<u64> = words(program, verdict).iter().map(hash).collect();
        let mut new = false;
        for (at, one) in words.iter().enumerate() {
            for other in &words[..=at] {
                new |= self.seen.insert(one.rotate_left(17) ^ other);
            }
        }
        new
    }

    /// Judges all single edits, and keeps the program if they show more than another program's with
    /// the same features.
    fn take_to_pieces(&mut self, program: &Program) {
        let miss = NearMiss::of(program, |edited| {
            let (accepted, verdict) = self.judge(Label::Edit, edited);
            if accepted && verdict.is_safe() && self.is_new(edited, &verdict) {
                self.pools[0].push(edited.clone());
            }
            verdict
        });
        let known = self.near.entry(hash(&features(program))).or_insert_with(|| miss.clone());
        let rank = |miss: &NearMiss| (miss.edits.len(), usize::MAX - miss.program.tasks.len());
        if rank(&miss) > rank(known) {
            *known = miss;
        }
    }

    /// Near misses that together cover all features, at most so many, shrunk.
    pub fn near_misses(self, most: usize) -> Vec<NearMiss> {
        let mut left: Vec<NearMiss> = self.near.into_values().filter(|miss| !miss.edits.is_empty()).collect();
        left.sort_by_key(|miss| text::print(&miss.program));
        let mut covered = BTreeSet::new();
        let mut chosen = Vec::new();
        let pairs = |miss: &NearMiss| -> Vec<(&'static str, Class)> {
            let classes = || miss.edits.keys().copied();
            features(&miss.program).into_iter().flat_map(|word| classes().map(move |class| (word, class))).collect()
        };
        while chosen.len() < most {
            let adds = |miss: &NearMiss| pairs(miss).iter().filter(|pair| !covered.contains(*pair)).count();
            let Some(at) = (0..left.len()).max_by_key(|&at| adds(&left[at])).filter(|&at| adds(&left[at]) > 0) else {
                break;
            };
            let miss = left.swap_remove(at).shrink();
            covered.extend(pairs(&miss));
            chosen.push(miss);
        }
        chosen
    }
}

/// Returns the words about a program.
fn words(program: &Program, verdict: &Verdict) -> Vec<String> {
    let mut words: Vec<String> = features(program).into_iter().map(str::to_owned).collect();
    words.push(verdict.kind().to_owned());
    words.push(format!("{} tasks", program.tasks.len().min(12) / 2));
    words.push(format!("{} workers", program.queues.workers().min(6)));
    words.push(format!("{} positions", program.positions.min(6)));
    let causes: BTreeSet<String> = verify::check(program).iter().map(cause).collect();
    words.extend(causes);
    if verdict.is_safe()
        && let Ok(source) = read::read(&text::print(program))
        && let Some((ahead, apart)) = withhold::distances(&source, Horizon::default())
    {
        words.push(format!("{} steps ahead", ahead.min(8)));
        words.push(format!("{} steps apart", apart.min(8)));
    }
    words
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}
