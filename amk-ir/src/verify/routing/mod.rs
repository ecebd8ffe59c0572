//! Data-dependent edges: the program is proven for every table that keeps its contract.

mod contract;
mod order;
mod reason;
mod stand_in;
mod words;

pub(super) use contract::{reference, references};
pub(super) use order::RoutedOrder;
pub use reason::{Given, NoTable, NoTile, Uncounted};
pub(super) use words::words;

use super::found::Found;
use super::sync::Sync;
use super::violation::{TooMuch, Violation};
use crate::{Program, TaskId};

/// Stand-ins for a program with tables.
pub(super) struct Routing {
    /// The program with the least order.
    pub(super) least: Program,
    /// The waits of all routings at once.
    pub(super) most: Sync,
    pub(super) order: RoutedOrder,
}

impl Routing {
    /// `None` if tables or their uses break their contracts.
    pub(super) fn of(program: &Program, found: &mut Found) -> Option<Self> {
        contract::check(program, found);
        if !found.is_empty() {
            return None;
        }
        let least = stand_in::least(program);
        let Some(waits) = stand_in::most(program, &least) else {
            found.push(Violation::TooMuch(TooMuch::Routes { task: TaskId(0) }));
            return None;
        };
        let mut most = Sync::default();
        most.compile(&waits);
        Some(Self { least, most, order: RoutedOrder::of(program) })
    }

    /// Translates violations found in the stand-in back to the program.
    pub(super) fn restore(program: &Program, mut violations: Vec<Violation>) -> Vec<Violation> {
        stand_in::restore(program, &mut violations);
        violations
    }
}
