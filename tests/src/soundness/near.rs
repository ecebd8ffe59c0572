//! Near misses: accepted programs that a single edit makes unsafe.

use super::{Verifier, codes, opinion};
use crate::mutate::{self, Class, Mutation};
use crate::oracle::Verdict;
use amk_ir::{Program, text};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Edits that leave a program whole and may take away an order that it needs.
pub const EDITS: [Class; 19] = [
    Class::DropWait,
    Class::LowerWait,
    Class::RedirectWait,
    Class::DropSignal,
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
    Class::FewerSlots,
    Class::PacketToCounter,
    Class::CounterToPacket,
    Class::Pipeline,
    Class::MorePositions,
];

/// A safe program, and an edit of each class that makes it unsafe, with the oracle's word for why.
#[derive(Clone, Debug)]
pub struct NearMiss {
    /// The program.
    pub program: Program,
    /// Of each class that has one: an edit, and `race` or `deadlock`.
    pub edits: BTreeMap<Class, (Mutation, &'static str)>,
}

impl NearMiss {
    /// Searches for such edits of a safe program; `each` judges every edited program.
    pub fn of(program: &Program, mut each: impl FnMut(&Program) -> Verdict) -> Self {
        let mut edits = BTreeMap::new();
        for mutation in EDITS.into_iter().flat_map(|class| mutate::sites(program, class)) {
            let kind = each(&mutation.apply(program)).kind();
            if matches!(kind, "race" | "deadlock") {
                edits.entry(mutation.class).or_insert((mutation, kind));
            }
        }
        Self { program: program.clone(), edits }
    }

    /// The program's text behind its edits: `; race: DropWait at Wait(t2, 0, None)`.
    pub fn print(&self) -> String {
        let mut printed = "; safe, and these edits make it unsafe\n".to_owned();
        for (mutation, kind) in self.edits.values() {
            let _ = writeln!(printed, "; {kind}: {mutation}");
        }
        printed + &text::print(&self.program)
    }

    /// Takes the program of a printed near miss and its edits to the verifier and the oracle again.
    ///
    /// # Errors
    /// The difference from the printed verdicts.
    pub fn replay(verifier: Verifier, printed: &str) -> Result<(), String> {
        let program = text::parse(printed).map_err(|error| error.to_string())?;
        let (codes, verdict) = (verifier(&program), opinion(&program));
        if !codes.is_empty() || !verdict.is_safe() {
            return Err(format!("the program: {verdict}, {codes:?}"));
        }
        for line in printed.lines().skip(1).map_while(|line| line.strip_prefix("; ")) {
            let (kind, edit) = line.split_once(": ").ok_or_else(|| format!("no edit: `{line}`"))?;
            let mut sites = EDITS.into_iter().flat_map(|class| mutate::sites(&program, class));
            let mutation = sites.find(|site| site.to_string() == edit).ok_or_else(|| format!("no place: `{edit}`"))?;
            let edited = mutation.apply(&program);
            let (codes, verdict) = (verifier(&edited), opinion(&edited));
            if codes.is_empty() || verdict.kind() != kind {
                return Err(format!("{edit}: {verdict}, {codes:?}"));
            }
        }
        Ok(())
    }

    /// A smaller program that is accepted, and that edits of the same classes make unsafe.
    pub fn shrink(self) -> Self {
        let classes: Vec<Class> = self.edits.keys().copied().collect();
        let of = |program: &Program| Self::of(program, opinion);
        let keeps = |program: &Program| {
            codes(program).is_empty() && opinion(program).is_safe() && of(program).edits.keys().eq(&classes)
        };
        of(&crate::shrink::shrink(self.program, keeps))
    }
}
