//! From a decoder to the tasks that the device runs: one a worker and phase.
//!
//! | phase | task of a worker |
//! |---|---|
//! | embed | the residual of the rows it owns |
//! | project | norm of the whole input, its rows of a projection (query, key and value together) |
//! | attend | one kv head over one split of the cache, with head norms, rotary embedding and the append |
//! | combine | slices of 32 dims of a head: the splits' results by their log-sum-exp |
//! | residual | its rows of the output or down projection, added to the residual it owns |
//! | gated | norm, its rows of gate and up, the activation |
//! | head | norm, its rows of the logits |
//! | best, choose | its best logit; the best of all |
//! | probe | between them, for top-k, top-p and min-p: its share of what is above some levels, see [`super::choose`] |
//!
//! Everything between workers is a packet; steps are pipelined. Every worker reads every worker's best before it goes on, so no
//! packet of one step is written while another worker still reads it in the step before: the verifier decides that, not this page.

#![allow(clippy::single_range_in_vec_init, reason = "a region is a list of ranges, one a dimension")]

use super::choose::{Choosing, FIELDS, LEVELS, MOST_ROWS, ROUNDS, SEARCH, SHARES};
use super::pattern::{Decoder, Unsupported};
use super::schedule::DeviceSchedule;
use amk_ir::lower::unroll::Unrolled;
use amk_ir::{
    Access, Bound, Buffer, BufferId, BufferKind, Call, DType, Exchange, Instruction, InstructionId, Interval, Limits,
    OpId, Operand, OperandSpec, Param, Program, Queues, Region, Steps, Task, TaskId,
};
use std::ops::Range;
use std::slice::from_ref;

/// Rows of a weight tile.
pub const UNIT: u32 = 8;
/// Positions of a cache block.
pub const BLOCK: u32 = 64;
/// Dims of a head that one warp combines.
pub const SLICE: u32 = 32;

/// Sizes of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Hidden size.
    pub hidden: u32,
    /// Vocabulary.
    pub vocab: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Size of the MLP.
    pub ffn: u32,
    /// Positions of the cache.
    pub context: u32,
    /// Splits of a kv head's cache.
    pub splits: u32,
}

/// What the workers do in a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// See [`Work`].
    Embed,
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
    /// The splits' log-sum-exps.
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
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Phase, worker and part of each task.
    pub tasks: Vec<(usize, u32, Work)>,
    /// The layers' buffers.
    pub layers: Vec<LayerBuffers>,
    /// Sizes.
    pub sizes: Sizes,
    /// What was chosen.
    pub schedule: DeviceSchedule,
    /// The embedding table.
    pub embedding: BufferId,
    /// The tokens, one a worker.
    pub token: BufferId,
    /// What the workers tell one another to choose a token.
    pub choosing: Choosing,
    /// Rotary frequencies.
    pub freqs: BufferId,
    /// The residual that the embedding starts.
    pub residual: BufferId,
    /// The logits.
    pub logits: BufferId,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Factor on rotated values.
    pub rope_scale: f32,
    /// Factor on the attention scores.
    pub score_scale: f32,
}

/// Instructions of the device's program, in the order of [`instructions`].
#[derive(Clone, Copy)]
#[repr(u32)]
enum Op {
    Embed,
    RmsNorm,
    Linear,
    AddBias,
    Add,
    SiluMul,
    Attend,
    AttendNormed,
    Combine,
    Best,
    FirstProbe,
    Probe,
    Choose,
}

fn instructions() -> Vec<Instruction> {
    use Access::{Read, Update, Write};
    let instruction = |path: &str, operands: &[(&str, Access)], params: &[&str]| Instruction {
        name: path.rsplit(':').next().unwrap_or(path).to_owned(),
        path: path.to_owned(),
        operands: operands.iter().map(|&(name, access)| OperandSpec { name: name.to_owned(), access }).collect(),
        params: params.iter().map(|&name| name.to_owned()).collect(),
    };
    let attention = [
        ("q", Read),
        ("k", Read),
        ("v", Read),
        ("freqs", Read),
        ("keys", Update),
        ("values", Update),
        ("y", Write),
        ("lse", Write),
    ];
    let normed: Vec<_> = [("q_norm", Read), ("k_norm", Read)].into_iter().chain(attention).collect();
    vec![
        instruction("amk_kernels::embed", &[("table", Read), ("token", Read), ("y", Write)], &[]),
        instruction("amk_kernels::rms_norm", &[("x", Read), ("w", Read), ("y", Write)], &["eps"]),
        instruction("amk_kernels::linear", &[("x", Read), ("w", Read), ("y", Write)], &[]),
        instruction("amk_kernels::add_bias", &[("x", Read), ("w", Read), ("y", Write)], &[]),
        instruction("amk_kernels::add", &[("a", Read), ("b", Read), ("y", Write)], &[]),
        instruction("amk_kernels::silu_mul", &[("gate", Read), ("up", Read), ("y", Write)], &[]),
        instruction("amk::vm::cuda::attention_split", &attention, &["pos"]),
        instruction("amk::vm::cuda::normed_attention_split", &normed, &["pos"]),
        instruction("amk::vm::cuda::combine_splits", &[("partial", Read), ("lse", Read), ("y", Write)], &[]),
        instruction("amk::vm::cuda::best", &[("logits", Read), ("best", Write), ("shares", Write)], &[]),
        instruction(
            "amk::vm::cuda::first_probe",
            &[("logits", Read), ("best", Read), ("shares", Read), ("found", Write), ("search", Write)],
            &[],
        ),
        instruction(
            "amk::vm::cuda::probe",
            &[("logits", Read), ("before", Read), ("search", Read), ("found", Write), ("narrowed", Write)],
            &[],
        ),
        instruction(
            "amk::vm::cuda::choose",
            &[("best", Read), ("found", Read), ("search", Read), ("token", Write)],
            &[],
        ),
    ]
}

struct Planner<'a> {
    plan: Plan,
    decoder: &'a Decoder,
    /// Bytes of the tape of each worker so far.
    load: Vec<u64>,
    queues: Vec<Vec<TaskId>>,
}

/// Plans the tasks of a decoder.
///
/// # Errors
/// [`Unsupported`] where a shape is outside what the device code computes.
pub fn plan(decoder: &Decoder, unrolled: &Unrolled, schedule: DeviceSchedule) -> Result<Plan, Unsupported> {
    let sizes = sizes(decoder, unrolled, schedule)?;
    let workers = schedule.workers as usize;
    let program = Program {
        name: "decode.cuda".into(),
        positions: sizes.context,
        steps: Steps::Pipelined,
        limits: Limits { workers: schedule.workers, ..Limits::default() },
        instructions: instructions(),
        buffers: unrolled
            .buffers
            .iter()
            .filter(|buffer| matches!(buffer.kind, BufferKind::Weight | BufferKind::Output))
            .cloned()
            .collect(),
        ..Program::default()
    };
    // Weights and the logits keep their names; their ids change with what is left out.
    let known = |id: BufferId| -> BufferId {
        let name = unrolled.buffers.get(id.index()).map(|buffer| buffer.name.as_str());
        BufferId::from(program.buffers.iter().position(|buffer| Some(buffer.name.as_str()) == name).unwrap_or(0))
    };
    let decoder = &decoder.map(known);
    let plan = Plan {
        phases: Vec::new(),
        tasks: Vec::new(),
        layers: Vec::new(),
        sizes,
        schedule,
        embedding: decoder.embedding,
        token: BufferId(0),
        choosing: Choosing::default(),
        freqs: decoder.freqs,
        residual: BufferId(0),
        logits: decoder.logits,
        eps: decoder.eps,
        rope_scale: decoder.rope_scale,
        score_scale: decoder.score_scale,
        program,
    };
    let mut planner = Planner { plan, decoder, load: vec![0; workers], queues: vec![Vec::new(); workers] };
    planner.run();
    planner.plan.program.queues = Queues::Static(planner.queues);
    Ok(planner.plan)
}

fn sizes(decoder: &Decoder, unrolled: &Unrolled, schedule: DeviceSchedule) -> Result<Sizes, Unsupported> {
    let refuse = |what: String| Unsupported { what, at: "the whole decoder".into() };
    let shape = |id: BufferId| unrolled.buffers.get(id.index()).map(|buffer| buffer.shape.clone()).unwrap_or_default();
    let first = decoder.layers.first().ok_or_else(|| refuse("no layers".into()))?;
    let ([vocab, hidden], [kv_heads, context, head_dim]) = (&shape(decoder.head)[..], &shape(first.cache)[..]) else {
        return Err(refuse("a head or a cache of another rank".into()));
    };
    let (vocab, hidden, kv_heads, context, head_dim) = (*vocab, *hidden, *kv_heads, *context, *head_dim);
    let rows = |id| shape(id).first().copied().unwrap_or(0);
    let heads = rows(first.qkv[0].weight) / head_dim.max(1);
    let ffn = rows(first.gate);
    let splits = (schedule.workers / kv_heads.max(1)).max(1);
    let group = heads / kv_heads.max(1);
    let freqs = rows(decoder.freqs);
    for (holds, what) in [
        (head_dim == 64 || head_dim == 128, format!("heads of {head_dim} elements (64 or 128 are computed)")),
        (freqs * 2 == head_dim, format!("a rotary embedding of {} of {head_dim} elements", freqs * 2)),
        ((1..=8).contains(&group), format!("{group} query heads for a key head (1 to 8 are computed)")),
        (
            hidden % 32 == 0 && ffn % 32 == 0 && vocab % 8 == 0,
            format!("sizes {hidden}, {ffn} and {vocab} (multiples of 32, 32 and 8 are computed)"),
        ),
        (
            hidden.div_ceil(schedule.workers * UNIT) * UNIT <= 512,
            format!("hidden size {hidden} on {} workers", schedule.workers),
        ),
        (
            (vocab / UNIT).div_ceil(schedule.workers) * UNIT <= MOST_ROWS,
            format!("{vocab} tokens on {} workers", schedule.workers),
        ),
        (
            kv_heads <= schedule.workers && vocab / UNIT >= schedule.workers,
            format!("{} workers for {kv_heads} key heads and {vocab} tokens", schedule.workers),
        ),
    ] {
        if !holds {
            return Err(refuse(what));
        }
    }
    Ok(Sizes { hidden, vocab, heads, kv_heads, head_dim, ffn, context, splits })
}

impl Planner<'_> {
    fn run(&mut self) {
        let Sizes { hidden, vocab, heads, kv_heads, head_dim, ffn, context, splits } = self.plan.sizes;
        let workers = self.plan.schedule.workers;
        self.plan.token = self.buffer("token", BufferKind::State, DType::U32, &[workers], Exchange::Counter);
        self.plan.choosing = self.choosing(workers);
        let owned = even(hidden / UNIT, workers);
        let owned: Vec<Range<u32>> = owned.iter().map(|units| units.start * UNIT..units.end * UNIT).collect();
        let mut residual = self.activation("residual", DType::F32, &[hidden], Exchange::Counter);
        self.plan.residual = residual;
        self.phase(Phase::Embed, owned.iter().cloned().map(Work::Rows).collect());
        let mut input = Input::Embedding;
        for (l, layer) in self.decoder.layers.iter().enumerate() {
            let name = |what: &str| format!("{what}.{l}");
            let parts = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim];
            let qkv = [0, 1, 2].map(|n| self.packets(&name(["q", "k", "v"][n]), DType::BF16, &[parts[n]]));
            let share = context.div_ceil(BLOCK * self.plan.schedule.run * splits) * BLOCK * self.plan.schedule.run;
            let caches = ["keys", "values"].map(|what| {
                self.buffer(
                    &name(what),
                    BufferKind::State,
                    DType::BF16,
                    &[kv_heads, splits, share, head_dim],
                    Exchange::Counter,
                )
            });
            let buffers = LayerBuffers {
                qkv,
                caches,
                partial: self.packets(&name("partial"), DType::F32, &[heads, splits, head_dim]),
                lse: self.packets(&name("lse"), DType::F32, &[heads, splits]),
                attended: self.packets(&name("attended"), DType::BF16, &[heads * head_dim]),
                head_norms: layer.head_norms,
            };
            let attended = buffers.attended;
            self.plan.layers.push(buffers);
            self.gemv(
                Gemv {
                    input,
                    norm: Some(layer.attn_norm),
                    k: hidden,
                    weights: layer.qkv.iter().map(|projection| projection.weight).collect(),
                    biases: layer.qkv.iter().map(|projection| projection.bias).collect(),
                    output: Output::Store(qkv.to_vec()),
                },
                parts.iter().sum(),
                1,
            );
            self.phase(Phase::Attend { layer: l }, self.splits(l));
            let slices = rotated(even(heads * head_dim / SLICE, workers), l * 29);
            self.phase(Phase::Combine { layer: l }, slices.into_iter().map(Work::Rows).collect());
            for (weight, k, from, what) in
                [(layer.out, heads * head_dim, attended, "mid"), (layer.down, ffn, BufferId(0), "out")]
            {
                let from = if what == "mid" { from } else { self.gated(l, layer, input) };
                let after = self.activation(&format!("residual.{what}.{l}"), DType::F32, &[hidden], Exchange::Counter);
                let packets = self.packets(&format!("x.{what}.{l}"), DType::BF16, &[hidden]);
                let output = Output::Residual { before: residual, after, packets };
                let bytes = u64::from(k) * 2;
                owned
                    .iter()
                    .enumerate()
                    .for_each(|(worker, rows)| self.load[worker] += u64::from(rows.end - rows.start) * bytes);
                let gemv = Gemv {
                    input: Input::Packets(from),
                    norm: None,
                    k,
                    weights: vec![weight],
                    biases: vec![None],
                    output,
                };
                self.phase(Phase::Gemv(gemv), owned.iter().cloned().map(Work::Rows).collect());
                residual = after;
                input = Input::Packets(packets);
            }
        }
        let output = Output::Logits(self.plan.logits);
        let head = Gemv {
            input,
            norm: Some(self.decoder.norm),
            k: hidden,
            weights: vec![self.decoder.head],
            biases: vec![None],
            output,
        };
        self.gemv(head, vocab, 1);
        let rows: Vec<Work> = (0..workers).map(|worker| Work::Rows(self.plan.head_rows(worker))).collect();
        self.phase(Phase::Best, rows.clone());
        (0..ROUNDS).for_each(|round| self.phase(Phase::Probe { round }, rows.clone()));
        self.phase(Phase::Choose, (0..workers).map(|_| Work::Own).collect());
    }

    fn choosing(&mut self, workers: u32) -> Choosing {
        let (kind, slots) = (BufferKind::Activation, Exchange::Packet { slots: 2 });
        let best = self.buffer("best", kind, DType::U32, &[workers, 2], slots);
        let shares = self.packets("shares", DType::F32, &[workers, SHARES]);
        let found = core::array::from_fn(|round| {
            self.packets(&format!("found.{round}"), DType::U32, &[workers, LEVELS, FIELDS])
        });
        let search = core::array::from_fn(|round| {
            self.activation(&format!("search.{round}"), DType::U32, &[workers, SEARCH], Exchange::Counter)
        });
        Choosing { best, shares, found, search }
    }

    /// Gate and up of a layer; gives the packets of the result.
    fn gated(&mut self, l: usize, layer: &super::pattern::DecoderLayer, input: Input) -> BufferId {
        let Sizes { hidden, ffn, .. } = self.plan.sizes;
        let to = self.packets(&format!("mlp.{l}"), DType::BF16, &[ffn]);
        let weights = vec![layer.gate, layer.up];
        self.gemv(
            Gemv {
                input,
                norm: Some(layer.mlp_norm),
                k: hidden,
                weights,
                biases: vec![None; 2],
                output: Output::Gated(to),
            },
            2 * ffn,
            2,
        );
        to
    }

    /// A projection of `rows` rows, spread so that the bytes of the tapes stay level; `fold` rows give one element.
    fn gemv(&mut self, gemv: Gemv, rows: u32, fold: u32) {
        let bytes = u64::from(gemv.k) * 2 * u64::from(UNIT);
        let parts = level(rows / UNIT, &mut self.load, bytes);
        let works =
            parts.into_iter().map(|units| Work::Rows(units.start * UNIT / fold..units.end * UNIT / fold)).collect();
        self.phase(Phase::Gemv(gemv), works);
    }

    /// Who has which split of which head in a layer: another worker in each layer, so that uneven splits even out.
    fn splits(&self, layer: usize) -> Vec<Work> {
        let Sizes { kv_heads, splits, .. } = self.plan.sizes;
        let workers = self.plan.schedule.workers as usize;
        let mut works = vec![Work::Rows(0..0); workers];
        for n in 0..kv_heads * splits {
            works[(n as usize + layer * 17) % workers] = Work::Split { head: n / splits, split: n % splits };
        }
        works
    }

    fn buffer(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[u32], exchange: Exchange) -> BufferId {
        self.plan.program.buffers.push(Buffer {
            name: name.to_owned(),
            kind,
            dtype,
            shape: shape.to_vec(),
            exchange,
            place: None,
        });
        BufferId::from(self.plan.program.buffers.len() - 1)
    }

    fn activation(&mut self, name: &str, dtype: DType, shape: &[u32], exchange: Exchange) -> BufferId {
        self.buffer(name, BufferKind::Activation, dtype, shape, exchange)
    }

    fn packets(&mut self, name: &str, dtype: DType, shape: &[u32]) -> BufferId {
        self.activation(name, dtype, shape, Exchange::Packet { slots: 1 })
    }

    /// Adds a phase: a task for every worker that has a part of it.
    fn phase(&mut self, phase: Phase, works: Vec<Work>) {
        let label = phase.label();
        self.plan.program.ops.push(label);
        let op = OpId::from(self.plan.program.ops.len() - 1);
        self.plan.phases.push(phase);
        let at = self.plan.phases.len() - 1;
        for (worker, work) in works.into_iter().enumerate() {
            if matches!(&work, Work::Rows(rows) if rows.is_empty()) {
                continue;
            }
            let calls = self.plan.calls(at, worker as u32, &work);
            let id = TaskId::from(self.plan.program.tasks.len());
            self.plan.program.tasks.push(Task { op: Some(op), calls, ..Task::default() });
            self.plan.tasks.push((at, worker as u32, work));
            self.queues[worker].push(id);
        }
    }
}

impl Phase {
    fn label(&self) -> String {
        match self {
            Self::Embed => "embed".into(),
            Self::Gemv(gemv) => match gemv.output {
                Output::Store(_) => "project",
                Output::Residual { .. } => "residual",
                Output::Gated(_) => "gated",
                Output::Logits(_) => "head",
            }
            .into(),
            Self::Attend { layer } => format!("attend {layer}"),
            Self::Combine { layer } => format!("combine {layer}"),
            Self::Best => "best".into(),
            Self::Probe { round } => format!("probe {round}"),
            Self::Choose => "choose".into(),
        }
    }
}

/// The calls of a task.
struct Calls<'p> {
    plan: &'p mut Plan,
    calls: Vec<Call>,
}

impl Calls<'_> {
    fn of(&mut self, phase: usize, worker: u32, work: &Work) {
        let Some(kind) = self.plan.phases.get(phase).cloned() else { return };
        match (kind, work) {
            (Phase::Embed, Work::Rows(rows)) => self.embed(worker, rows.clone(), self.plan.residual),
            (Phase::Gemv(gemv), Work::Rows(rows)) => self.gemv(&gemv, worker, rows),
            (Phase::Attend { layer }, &Work::Split { head, split }) => self.attend(layer, head, split),
            (Phase::Combine { layer }, Work::Rows(slices)) => self.combine(layer, slices),
            (Phase::Best, Work::Rows(rows)) => {
                let Choosing { best, shares, .. } = self.plan.choosing;
                let own = worker..worker + 1;
                let operands = vec![
                    read(self.plan.logits, from_ref(rows)),
                    write(best, &[own.clone(), 0..2]),
                    write(shares, &[own, 0..SHARES]),
                ];
                self.call(Op::Best, operands, Vec::new());
            }
            (Phase::Probe { round }, Work::Rows(rows)) => self.probe(round, worker, rows),
            (Phase::Choose, _) => {
                let Choosing { best, found, search, .. } = self.plan.choosing;
                let (own, all) = (worker..worker + 1, 0..self.plan.schedule.workers);
                let operands = vec![
                    read(best, &[all.clone(), 0..2]),
                    read(found[ROUNDS - 1], &[all, 0..LEVELS, 0..FIELDS]),
                    read(search[ROUNDS - 1], &[own.clone(), 0..SEARCH]),
                    write(self.plan.token, &[own]),
                ];
                self.call(Op::Choose, operands, Vec::new());
            }
            _ => {}
        }
    }

    fn embed(&mut self, worker: u32, columns: Range<u32>, to: BufferId) {
        let (table, token, vocab) = (self.plan.embedding, self.plan.token, self.plan.sizes.vocab);
        let local = self.plan.buffer_kind(to) == BufferKind::Local;
        let to = if local { write(to, &[0..columns.end - columns.start]) } else { write(to, from_ref(&columns)) };
        self.call(
            Op::Embed,
            vec![early(table, &[0..vocab, columns]), read(token, &[worker..worker + 1]), to],
            Vec::new(),
        );
    }

    fn gemv(&mut self, gemv: &Gemv, worker: u32, rows: &Range<u32>) {
        let k = gemv.k;
        let mut x = match gemv.input {
            Input::Packets(buffer) => buffer,
            Input::Embedding => {
                let x = self.local(k);
                self.embed(worker, 0..k, x);
                x
            }
        };
        if let Some(weight) = gemv.norm {
            let h = self.local(k);
            let eps = Param::F32(self.plan.eps);
            self.call(Op::RmsNorm, vec![read(x, &[0..k]), early(weight, &[0..k]), write(h, &[0..k])], vec![eps]);
            x = h;
        }
        let x = read(x, &[0..k]);
        let n = rows.end - rows.start;
        match &gemv.output {
            Output::Store(outputs) => {
                let mut before = 0;
                for ((&weight, &bias), &to) in gemv.weights.iter().zip(&gemv.biases).zip(outputs) {
                    let extent = self.plan.extent(to);
                    let part = rows.start.max(before).saturating_sub(before)
                        ..rows.end.min(before + extent).saturating_sub(before);
                    before += extent;
                    if part.is_empty() {
                        continue;
                    }
                    let Some(bias) = bias else {
                        self.linear(x, weight, part.clone(), write(to, &[part]));
                        continue;
                    };
                    let len = part.end - part.start;
                    let y = self.local(len);
                    self.linear(x, weight, part.clone(), write(y, &[0..len]));
                    self.call(
                        Op::AddBias,
                        vec![read(y, &[0..len]), early(bias, from_ref(&part)), write(to, &[part])],
                        Vec::new(),
                    );
                }
            }
            &Output::Residual { before, after, packets } => {
                let y = self.local(n);
                self.linear(x, gemv.weights[0], rows.clone(), write(y, &[0..n]));
                for to in [after, packets] {
                    self.call(
                        Op::Add,
                        vec![read(before, from_ref(rows)), read(y, &[0..n]), write(to, from_ref(rows))],
                        Vec::new(),
                    );
                }
            }
            &Output::Gated(to) => {
                let [gate, up] = [0, 1].map(|part| {
                    let y = self.local(n);
                    self.linear(x, gemv.weights[part], rows.clone(), write(y, &[0..n]));
                    y
                });
                self.call(
                    Op::SiluMul,
                    vec![read(gate, &[0..n]), read(up, &[0..n]), write(to, from_ref(rows))],
                    Vec::new(),
                );
            }
            &Output::Logits(to) => self.linear(x, gemv.weights[0], rows.clone(), write(to, from_ref(rows))),
        }
    }

    fn probe(&mut self, round: usize, worker: u32, rows: &Range<u32>) {
        let Choosing { best, shares, found, search } = self.plan.choosing;
        let (own, all) = (worker..worker + 1, 0..self.plan.schedule.workers);
        let (op, before) = match round.checked_sub(1) {
            None => (Op::FirstProbe, [read(best, &[all.clone(), 0..2]), read(shares, &[all, 0..SHARES])]),
            Some(before) => (
                Op::Probe,
                [read(found[before], &[all, 0..LEVELS, 0..FIELDS]), read(search[before], &[own.clone(), 0..SEARCH])],
            ),
        };
        let mut operands = vec![read(self.plan.logits, from_ref(rows))];
        operands.extend(before);
        operands.push(write(found[round], &[own.clone(), 0..LEVELS, 0..FIELDS]));
        operands.push(write(search[round], &[own, 0..SEARCH]));
        self.call(op, operands, Vec::new());
    }

    fn linear(&mut self, x: Operand, weight: BufferId, rows: Range<u32>, to: Operand) {
        let k = self.plan.row_len(weight);
        self.call(Op::Linear, vec![x, early(weight, &[rows, 0..k]), to], Vec::new());
    }

    fn attend(&mut self, layer: usize, head: u32, split: u32) {
        let Sizes { heads, kv_heads, head_dim, .. } = self.plan.sizes;
        let group = heads / kv_heads;
        let (queries, share) = (head * group..(head + 1) * group, self.plan.share(layer));
        let Some(LayerBuffers { qkv: [q, k, v], caches: [keys, values], partial, lse, head_norms, .. }) =
            self.plan.layers.get(layer).cloned()
        else {
            return;
        };
        let own = head * head_dim..(head + 1) * head_dim;
        let cache =
            |buffer| operand(buffer, &[head..head + 1, split..split + 1, 0..share, 0..head_dim], Access::Update, false);
        let operands = vec![
            read(q, &[queries.start * head_dim..queries.end * head_dim]),
            read(k, std::slice::from_ref(&own)),
            read(v, &[own]),
            early(self.plan.freqs, &[0..head_dim / 2]),
            cache(keys),
            cache(values),
            write(partial, &[queries.clone(), split..split + 1, 0..head_dim]),
            write(lse, &[queries, split..split + 1]),
        ];
        let Some(norms) = head_norms else { return self.call(Op::Attend, operands, vec![Param::Pos]) };
        let operands = norms.into_iter().map(|norm| early(norm, &[0..head_dim])).chain(operands).collect();
        self.call(Op::AttendNormed, operands, vec![Param::Pos]);
    }

    fn combine(&mut self, layer: usize, slices: &Range<u32>) {
        let Sizes { head_dim, splits, .. } = self.plan.sizes;
        let Some(LayerBuffers { partial, lse, attended, .. }) = self.plan.layers.get(layer).cloned() else { return };
        let each = head_dim / SLICE;
        for slice in slices.clone() {
            let (head, d) = (slice / each, slice % each * SLICE);
            let operands = vec![
                read(partial, &[head..head + 1, 0..splits, d..d + SLICE]),
                read(lse, &[head..head + 1, 0..splits]),
                write(attended, &[slice * SLICE..(slice + 1) * SLICE]),
            ];
            self.call(Op::Combine, operands, Vec::new());
        }
    }

    fn local(&mut self, len: u32) -> BufferId {
        let buffers = &mut self.plan.program.buffers;
        let name = format!("local{}", buffers.len());
        buffers.push(Buffer {
            name,
            kind: BufferKind::Local,
            dtype: DType::F32,
            shape: vec![len],
            exchange: Exchange::Counter,
            place: None,
        });
        BufferId::from(buffers.len() - 1)
    }

    fn call(&mut self, op: Op, operands: Vec<Operand>, params: Vec<Param>) {
        self.calls.push(Call { instruction: InstructionId(op as u32), operands, params });
    }
}

impl Plan {
    /// The calls of a worker's part of a phase; adds their local buffers to the program.
    pub(super) fn calls(&mut self, phase: usize, worker: u32, work: &Work) -> Vec<Call> {
        let mut calls = Calls { plan: self, calls: Vec::new() };
        calls.of(phase, worker, work);
        calls.calls
    }

    /// Whether two lists of calls are the same but for the ids of their local buffers, which must have the same shapes.
    pub(super) fn same_calls(&self, other: &Self, theirs: &[Call], ours: &[Call]) -> bool {
        let same = |a: &Operand, b: &Operand| {
            let local =
                self.buffer_kind(a.buffer) == BufferKind::Local && other.buffer_kind(b.buffer) == BufferKind::Local;
            let buffers = if local { self.shape(a.buffer) == other.shape(b.buffer) } else { a.buffer == b.buffer };
            buffers && (a.region, a.access, a.early) == (b.region, b.access, b.early)
        };
        ours.len() == theirs.len()
            && ours.iter().zip(theirs).all(|(a, b)| {
                a.instruction == b.instruction
                    && a.params == b.params
                    && a.operands.len() == b.operands.len()
                    && a.operands.iter().zip(&b.operands).all(|(a, b)| same(a, b))
            })
    }

    fn shape(&self, buffer: BufferId) -> &[u32] {
        self.program.buffers.get(buffer.index()).map_or(&[], |buffer| &buffer.shape)
    }

    fn buffer_kind(&self, buffer: BufferId) -> BufferKind {
        self.program.buffers.get(buffer.index()).map_or(BufferKind::Local, |buffer| buffer.kind)
    }

    /// Elements of a buffer of rank 1, rows of a matrix.
    pub(super) fn extent(&self, buffer: BufferId) -> u32 {
        self.shape(buffer).first().copied().unwrap_or(0)
    }

    fn row_len(&self, buffer: BufferId) -> u32 {
        self.shape(buffer).get(1).copied().unwrap_or(0)
    }

    fn share(&self, layer: usize) -> u32 {
        self.layers.get(layer).map_or(0, |layer| self.shape(layer.caches[0]).get(2).copied().unwrap_or(0))
    }

    /// The rows of the logits that a worker computes.
    fn head_rows(&self, worker: u32) -> Range<u32> {
        let is_head =
            |phase: usize| matches!(self.phases.get(phase), Some(Phase::Gemv(Gemv { output: Output::Logits(_), .. })));
        let found = self.tasks.iter().rev().find(|(phase, by, _)| *by == worker && is_head(*phase));
        match found {
            Some((_, _, Work::Rows(rows))) => rows.clone(),
            _ => 0..0,
        }
    }
}

impl Decoder {
    /// The decoder with other buffer ids.
    fn map(&self, to: impl Fn(BufferId) -> BufferId) -> Self {
        let mut decoder = self.clone();
        let Self { embedding, norm, head, logits, freqs, .. } = &mut decoder;
        for id in [embedding, norm, head, logits, freqs] {
            *id = to(*id);
        }
        for layer in &mut decoder.layers {
            for id in [
                &mut layer.attn_norm,
                &mut layer.out,
                &mut layer.mlp_norm,
                &mut layer.gate,
                &mut layer.up,
                &mut layer.down,
            ] {
                *id = to(*id);
            }
            for projection in &mut layer.qkv {
                projection.weight = to(projection.weight);
                projection.bias = projection.bias.map(&to);
            }
            layer.head_norms = layer.head_norms.map(|norms| norms.map(&to));
        }
        decoder
    }
}

fn operand(buffer: BufferId, ranges: &[Range<u32>], access: Access, early: bool) -> Operand {
    let intervals: Vec<Interval> =
        ranges.iter().map(|range| Interval { lo: Bound::fixed(range.start), hi: Bound::fixed(range.end) }).collect();
    let region = Region::new(&intervals).unwrap_or(Region::full(&[]));
    Operand { buffer, region, access, early, routed: None }
}

fn read(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Read, false)
}

/// A read of what no task of a launch writes: it may come before every wait.
fn early(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Read, true)
}

fn write(buffer: BufferId, ranges: &[Range<u32>]) -> Operand {
    operand(buffer, ranges, Access::Write, false)
}

/// `units` in order, evenly spread.
fn even(units: u32, workers: u32) -> Vec<Range<u32>> {
    let cut = |n: u32| (u64::from(units) * u64::from(n) / u64::from(workers.max(1))) as u32;
    (0..workers).map(|n| cut(n)..cut(n + 1)).collect()
}

/// `units` in order; those that do not divide go to the workers with the least load, which grows by `bytes` a unit.
fn level(units: u32, load: &mut [u64], bytes: u64) -> Vec<Range<u32>> {
    let workers = load.len().max(1) as u32;
    let mut counts = vec![units / workers; load.len()];
    let mut order: Vec<usize> = (0..load.len()).collect();
    order.sort_by_key(|&worker| load[worker]);
    order.iter().take((units % workers) as usize).for_each(|&worker| counts[worker] += 1);
    let mut next = 0;
    counts
        .iter()
        .zip(load)
        .map(|(&count, load)| {
            *load += u64::from(count) * bytes;
            next += count;
            next - count..next
        })
        .collect()
}

/// The parts moved on by some workers.
fn rotated(mut parts: Vec<Range<u32>>, by: usize) -> Vec<Range<u32>> {
    let len = parts.len().max(1);
    parts.rotate_right(by % len);
    parts
}
