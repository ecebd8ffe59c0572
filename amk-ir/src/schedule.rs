//! The schedule: how a graph becomes tasks on workers. Data, never code; it cannot change results,
//! only speed.

use crate::DType;
use crate::program::{Limits, Steps};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a graph becomes tasks on workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// Workers: thread blocks or CPU threads.
    pub workers: u32,
    /// Tile of each op, by the instruction's name; others are [`Tile::PerWorker`].
    pub tiles: BTreeMap<String, Tile>,
    /// One queue a worker, or one for all.
    pub queue: QueuePolicy,
    /// Which worker gets which task of an op.
    pub assign: Assign,
    /// How one step follows the other.
    pub steps: Steps,
    /// Element type in which weights are stored.
    pub weights: DType,
    /// Ops fused into their producer's or consumer's task, by instruction name.
    pub fuse: Vec<Fusion>,
    /// Resource limits of the target.
    pub limits: Limits,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            workers: 8,
            tiles: BTreeMap::new(),
            queue: QueuePolicy::Static,
            assign: Assign::RoundRobin,
            steps: Steps::Barrier,
            weights: DType::BF16,
            fuse: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// The tile of an op's grid variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tile {
    /// Elements a tile; must divide the extent.
    Size(u32),
    /// About one tile a worker, in units of the instruction's default tile.
    PerWorker,
    /// One tile.
    Whole,
}

/// One queue a worker, or one for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePolicy {
    /// One ordered list a worker.
    #[default]
    Static,
    /// One ordered list from which free workers take the next task.
    Ticket,
}

/// Which worker gets which task of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Assign {
    /// Tile `i` goes to worker `i mod workers`.
    #[default]
    RoundRobin,
    /// Each task goes to the worker with the fewest bytes so far.
    Balanced,
}

/// A fusion of ops into one task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fusion {
    /// The instruction whose op is fused.
    pub op: String,
    /// The destination.
    pub into: FuseInto,
}

/// Where a fused op goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FuseInto {
    /// The task that produces its input tile, where the tiles agree (element-wise epilogues).
    Producer,
    /// Every task that consumes its result, recomputed there (cheap prologues such as norms).
    Consumers,
}
