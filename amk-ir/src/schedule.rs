//! The schedule: how a graph becomes tasks on workers. Data, never code; it cannot change results,
//! only speed.

mod limits;
mod partial;
mod tile;

pub use limits::{CACHES, MOST_RING_SLOTS, range};
pub use partial::{Changed, PartialRing, PartialSchedule};

use crate::DType;
use crate::program::{Limits, Steps};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a graph becomes tasks on workers, and how these run.
///
/// Each VM has a default schedule: [`Schedule::default`] on a CPU, and one for each GPU. A
/// function, an instance or a file gives a [`PartialSchedule`] that overrides it. A VM refuses a
/// field that it cannot honour ([`Schedule::unhonoured`]).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "PartialSchedule", from = "PartialSchedule")]
pub struct Schedule {
    /// Workers: thread blocks or CPU threads.
    pub workers: u32,
    /// Tile of each op, by the instruction's name; others are [`Tile::PerWorker`].
    pub tiles: BTreeMap<String, Tile>,
    /// One queue per worker, or a single one.
    pub queue: QueuePolicy,
    /// The assignment of an op's tasks to workers.
    pub assign: Assign,
    /// How one step follows the other.
    pub steps: Steps,
    /// The rows of a step; `None`: a step is one call of the function.
    pub rows: Option<RowSchedule>,
    /// Element type in which weights are stored.
    pub weights: DType,
    /// Element type of KV caches, that is, of states `[heads, positions, ..]` of which a call reads
    /// all positions up to its own. One of [`CACHES`]; `None`: f32 on a CPU; on a GPU bf16, or f32
    /// if it computes in f32.
    pub cache: Option<DType>,
    /// Whether calls run together in one task. Set it to false to measure what fusion is worth.
    pub fusion: bool,
    /// Ops fused into their producer's or consumer's task, by instruction name.
    pub fuse: Vec<Fusion>,
    /// Maximum number of splits of a cache along its positions.
    pub splits: u32,
    /// Number of consecutive 64-position blocks of a cache that go to one split before the next
    /// split's turn; an even number.
    pub run: u32,
    /// KiB of weights charged to a worker that attends at every position when the rows of the
    /// layer's next projection are distributed: it begins late, and so gets fewer rows.
    pub late: u32,
    /// KiB by which splitting the columns of left-over units over workers must shorten the longest
    /// task of a projection. In wide steps of rows, an eighth of the bytes by which sharing columns
    /// must reduce what a worker copies. 0: no columns are split.
    pub split_k: u32,
    /// The ring through which streamed weights come.
    pub ring: Ring,
    /// How tasks of different workers wait for each other.
    pub exchange: ExchangeBy,
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
            rows: None,
            weights: DType::BF16,
            cache: None,
            fusion: true,
            fuse: Vec::new(),
            splits: 1,
            run: 2,
            late: 0,
            split_k: 0,
            ring: Ring::default(),
            exchange: ExchangeBy::Counters,
            limits: Limits::default(),
        }
    }
}

/// The ring of a worker, through which streamed weights come; all zero where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ring {
    /// Slots of 32 KiB: how far ahead of the tasks their weights are fetched.
    pub slots: u32,
    /// Slots that a worker has on their way at most: full ones, and more where weights fill only
    /// about a half of theirs.
    pub in_flight: u32,
    /// Minimum number of clock cycles per 4 KiB: the worker's share of the bandwidth. Further
    /// requests would only queue up ahead of the packets. A ring that runs low is not paced. 0: no
    /// pace.
    pub pace: u32,
    /// KiB that are brought into the L2 cache ahead of the ring; 0: none.
    pub lookahead: u32,
}

/// The rows of a step, and how many of them a task takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSchedule {
    /// The most rows of a step.
    pub most: u32,
    /// Rows of a task that streams no weights; `None`: blocks that are two a worker at most, and
    /// with their tiles 128 tasks or one a worker. A task that does takes all rows, so that its
    /// weights are read once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
}

/// How tasks of different workers wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeBy {
    /// Every word carries its epoch: a reader waits for the words themselves.
    Packets,
    /// A task waits for counters that the tasks that it depends on have signalled.
    Counters,
    /// All workers meet after every phase that publishes.
    Barrier,
}

impl ExchangeBy {
    /// The name in schedules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Counters => "counters",
            Self::Barrier => "barrier",
        }
    }
}

/// The tile of an op's grid variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tile {
    /// Elements a tile; must divide the extent.
    Size(u32),
    /// About one tile per worker, in units of the instruction's default tile.
    PerWorker,
    /// One tile.
    Whole,
}

/// One queue per worker, or a single one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePolicy {
    /// One ordered list a worker.
    #[default]
    Static,
    /// One ordered list from which free workers take the next task.
    Ticket,
}

/// The assignment of an op's tasks to workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Assign {
    /// Tile `i` goes to worker `i mod workers`.
    #[default]
    #[serde(alias = "round_robin")]
    RoundRobin,
    /// Each task goes to the worker with the fewest bytes so far.
    Balanced,
}

/// A fusion of ops into one task.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fusion {
    /// The instruction whose op is fused.
    pub op: String,
    /// The destination.
    pub into: FuseInto,
}

/// Where a fused op goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FuseInto {
    /// The task that produces its input tile, where the tiles agree (element-wise epilogues).
    Producer,
    /// Every task that consumes its result, recomputed there (cheap prologues such as norms).
    Consumers,
}
