//! From the calls of a function to the tasks that the device runs.
//!
//! What the fast device code computes in one go becomes a group (`group.rs`); a group becomes phases, and a phase one task a worker:
//!
//! | phase | task of a worker |
//! |---|---|
//! | embed | the residual of the rows it owns |
//! | adopt | the same from packets, where the residual was made elsewhere |
//! | project | norm of the whole input, its rows of a projection (query, key and value together) |
//! | attend | one kv head over one split of the cache, with head norms, rotary embedding and the append |
//! | combine | slices of 32 dims of a head: the splits' results by their log-sum-exp |
//! | residual | its rows of the output or down projection, added to the residual it owns |
//! | gated | norm, its rows of gate and up, the activation |
//! | head | norm, its rows of the logits |
//! | best, choose | its best logit; the best of all |
//! | probe | between them, for top-k, top-p and min-p: its share of what is above some levels, see [`super::choose`] |
//!
//! Any other call is a phase of its own: one task a tile of the instruction's own `task` clause, by its generic device body
//! ([`Generic`]). A call that reads its producer's tiles one by one joins its tasks (`chain.rs`), and a
//! weight that a crate registers as a [`Stream`] comes through the ring. With [`Precision::F32`] every
//! call is a phase of its own. A state of such a call stays with one worker.
//!
//! Everything between workers is a packet; steps are pipelined. Every worker reads every worker's best before it goes on, so no
//! packet of one step is written while another worker still reads it in the step before: the verifier decides that, not this page.

mod attention;
mod calls;
mod chain;
mod exchange;
mod flow;
mod generic;
mod group;
mod instruction;
mod operand;
mod planner;
mod product;
mod spread;

pub use generic::{Body, Generic, Sequence, Step, View};

use super::choose::{Choosing, MOST_ROWS};
use super::schedule::{DeviceSchedule, MOST_RING_SLOTS};
use super::stream::Stream;
use amk_ir::graph::Graph;
use amk_ir::lower::unroll::Unrolled;
use amk_ir::{BufferId, BufferKind, Constants, DType, Program};
use flow::Flow;
use group::group;
use planner::Planner;
use std::collections::HashSet;
use std::ops::Range;

/// Rows of a weight tile.
pub const UNIT: u32 = 8;
/// Positions of a cache block.
pub const BLOCK: u32 = 64;
/// Dims of a head that one warp combines.
pub const SLICE: u32 = 32;

/// In what numbers a program computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// bf16 weights; bf16 activations between fast tasks, f32 within and between all others.
    #[default]
    BF16,
    /// f32 weights and activations, in generic tasks alone: for comparisons, not for speed.
    F32,
}

/// The function has a form that the device code does not compute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the CUDA VM cannot run this: {what}, at `{at}`; the CPU VM computes it")]
pub struct Unsupported {
    /// What was found or expected.
    pub what: String,
    /// The call.
    pub at: String,
}

/// Sizes that the device code is made for. Those of fast attention are 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Elements of a row of the embedding table that fast tasks read.
    pub hidden: u32,
    /// Logits.
    pub vocab: u32,
    /// Rows of the smallest embedding table: a token is below.
    pub tokens: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Positions of the context.
    pub context: u32,
    /// Splits of a kv head's cache.
    pub splits: u32,
}

/// What the workers do in a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// The residual of the token.
    Embed {
        /// The residual.
        to: BufferId,
    },
    /// A residual from packets.
    Adopt {
        /// The packets.
        from: BufferId,
        /// The residual.
        to: BufferId,
        /// How many adoptions are before it.
        number: u32,
    },
    /// A projection.
    Gemv(Gemv),
    /// Attention of a layer.
    Attend {
        /// The layer.
        layer: usize,
    },
    /// The splits' results.
    Combine {
        /// The layer.
        layer: usize,
    },
    /// A call by its generic device body.
    Generic(Generic),
    /// The worker's best logit.
    Best,
    /// A look at what is above some levels.
    Probe {
        /// The round.
        round: usize,
    },
    /// The next token.
    Choose,
}

/// A projection phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemv {
    /// What comes in.
    pub input: Input,
    /// Weight of the norm of the input.
    pub norm: Option<BufferId>,
    /// Elements of the input.
    pub k: u32,
    /// The weights, one below the other; gate and up row by row in turn.
    pub weights: Vec<BufferId>,
    /// Their biases.
    pub biases: Vec<Option<BufferId>>,
    /// What happens to the product.
    pub output: Output,
}

/// What comes into a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The row of the embedding table.
    Embedding,
    /// A packet buffer.
    Packets(BufferId),
}

/// What happens to a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Published, one buffer a weight.
    Store(Vec<BufferId>),
    /// Added to the residual and published.
    Residual {
        /// The residual before.
        before: BufferId,
        /// The residual after.
        after: BufferId,
        /// Its packets.
        packets: BufferId,
    },
    /// `silu(gate) * up`, published.
    Gated(BufferId),
    /// The logits.
    Logits(BufferId),
}

/// A worker's part of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Rows, in elements of the phase's output (gated: of its result).
    Rows(Range<u32>),
    /// A kv head and a split of its cache.
    Split {
        /// The kv head.
        head: u32,
        /// The split.
        split: u32,
    },
    /// A tile of generic calls.
    Tile(u32),
    /// The worker itself.
    Own,
}

/// The buffers of a layer that attention works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBuffers {
    /// Query, key and value packets.
    pub qkv: [BufferId; 3],
    /// The caches, one slice a split.
    pub caches: [BufferId; 2],
    /// The splits' outputs.
    pub partial: BufferId,
    /// The splits' log-sum-exps. They have no packets of their own: one is in the packet of each
    /// two dims of an output.
    pub lse: BufferId,
    /// The attention's result.
    pub attended: BufferId,
    /// Head norms of queries and keys.
    pub head_norms: Option<[BufferId; 2]>,
}

/// A program for the device and what each of its tasks is.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The program, not verified.
    pub program: Program,
    /// The floats and flags that it was made with.
    pub constants: Constants,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Phase, worker and part of each task.
    pub tasks: Vec<(usize, u32, Work)>,
    /// The layers' buffers, of fast attention.
    pub layers: Vec<LayerBuffers>,
    /// Generic device bodies.
    pub bodies: Vec<Body>,
    /// Sequences of bodies that generic tasks run.
    pub sequences: Vec<Sequence>,
    /// Sizes.
    pub sizes: Sizes,
    /// What was chosen.
    pub schedule: DeviceSchedule,
    /// In what numbers it computes.
    pub precision: Precision,
    /// The embedding table that fast tasks read.
    pub embedding: Option<BufferId>,
    /// The tokens, one a worker.
    pub token: BufferId,
    /// What the workers tell one another to choose a token.
    pub choosing: Choosing,
    /// Rotary frequencies of fast attention.
    pub freqs: Option<BufferId>,
    /// The logits.
    pub logits: BufferId,
    /// Epsilon of the norms in fast tasks.
    pub eps: f32,
    /// Factor on rotated values in fast attention.
    pub rope_scale: f32,
    /// Factor on the scores of fast attention.
    pub score_scale: f32,
}

/// Plans the tasks of a function that takes a token and gives the logits of the next.
///
/// # Errors
/// [`Unsupported`] with the first call that the device cannot compute.
pub fn plan(
    graph: &Graph,
    unrolled: &Unrolled,
    schedule: &DeviceSchedule,
    precision: Precision,
) -> Result<Plan, Unsupported> {
    let flow = Flow::new(graph, unrolled);
    Stream::check_linked().map_err(|error| Unsupported { what: error.to_string(), at: graph.name.clone() })?;
    let logits = logits(&flow)?;
    let vocab = flow.shape(logits)[0];
    // Every worker has a part of the logits.
    let workers = schedule.workers.min(vocab / UNIT);
    let schedule = DeviceSchedule { workers, ..*schedule };
    if (vocab / UNIT).div_ceil(workers) * UNIT > MOST_ROWS {
        return Err(Unsupported { what: format!("{vocab} tokens on {workers} workers"), at: graph.name.clone() });
    }
    let mut without = HashSet::new();
    loop {
        let groups = group(&flow, &schedule, precision, &without);
        let mut plan = Planner::run(&flow, &groups, logits, schedule, precision)?;
        plan.exchange();
        if plan.layers.is_empty() || plan.fills_the_ring() {
            return Ok(plan);
        }
        without.extend((0..unrolled.calls.len()).filter(|&at| flow.path(at) == "amk_kernels::attention"));
    }
}

/// The one result of the function: the logits.
fn logits(flow: &Flow<'_>) -> Result<BufferId, Unsupported> {
    let refuse = |what: &str, at: &str| Err(Unsupported { what: what.to_owned(), at: at.to_owned() });
    let buffers = &flow.unrolled.buffers;
    let mut outputs = (0..buffers.len()).map(BufferId::from).filter(|&id| flow.kind(id) == BufferKind::Output);
    let (Some(logits), None) = (outputs.next(), outputs.next()) else {
        return refuse("a function must give one result, the logits", &flow.graph.name);
    };
    let buffer = flow.buffer(logits);
    if let Some(&user) = flow.users(logits).first() {
        return Err(flow.refuse(user, "what the function gives is read again"));
    }
    match (buffer.dtype, &buffer.shape[..]) {
        (DType::F32, &[vocab]) if vocab >= UNIT && vocab.is_multiple_of(UNIT) => Ok(logits),
        _ => refuse("logits must be a vector of a multiple of 8 elements", &buffer.name),
    }
}

impl Plan {
    /// The projections, in the order of their phases.
    pub(super) fn projections(&self) -> impl Iterator<Item = &Gemv> {
        self.phases.iter().filter_map(|phase| if let Phase::Gemv(gemv) = phase { Some(gemv) } else { None })
    }

    /// Whether a buffer has no packets of its own: its elements travel in those of another.
    pub(super) fn travels(&self, buffer: BufferId) -> bool {
        self.layers.iter().any(|layer| layer.lse == buffer)
    }

    /// How the weight of a phase of generic tasks streams.
    pub(super) fn stream(&self, phase: usize) -> Option<&'static Stream> {
        let Some(Phase::Generic(generic)) = self.phases.get(phase) else { return None };
        self.sequences.get(generic.sequence)?.stream
    }

    /// Whether a step takes every slot of the ring at least once: then the loader cannot fetch a cache block of the next step
    /// before the consumers have appended to it in this one.
    pub(super) fn fills_the_ring(&self) -> bool {
        let mut pieces = vec![0; self.schedule.workers as usize];
        for (phase, worker, _) in &self.tasks {
            let streams = matches!(self.phases[*phase], Phase::Gemv(_)) || self.stream(*phase).is_some();
            pieces[*worker as usize] += u32::from(streams);
        }
        pieces.iter().all(|&pieces| pieces >= MOST_RING_SLOTS)
    }
}

impl Phase {
    /// What programs and traces call it.
    fn label(&self) -> String {
        match self {
            Self::Embed { .. } => "embed".into(),
            Self::Adopt { .. } => "adopt".into(),
            Self::Gemv(gemv) => match gemv.output {
                Output::Store(_) => "project",
                Output::Residual { .. } => "residual",
                Output::Gated(_) => "gated",
                Output::Logits(_) => "head",
            }
            .into(),
            Self::Attend { layer } => format!("attend {layer}"),
            Self::Combine { layer } => format!("combine {layer}"),
            Self::Generic(generic) => generic.label.clone(),
            Self::Best => "best".into(),
            Self::Probe { round } => format!("probe {round}"),
            Self::Choose => "choose".into(),
        }
    }
}
