//! From groups to phases and tasks.

use super::attention::Attention;
use super::flow::Flow;
use super::generic::tiled;
use super::group::{EMBED, Group, Groups};
use super::instruction::instructions;
use super::product::{Delivered, Product};
use super::spread::{even, level, rotated};
use super::{BLOCK, Gemv, Input, LayerBuffers, Output, Phase, Plan, Precision, SLICE, Sizes, UNIT, Unsupported, Work};
use crate::choose::{Choosing, FIELDS, LEVELS, ROUNDS, SEARCH, SHARES};
use crate::schedule::DeviceSchedule;
use amk_ir::{Buffer, BufferId, BufferKind, Call, DType, Exchange, Limits, OpId, Program, Queues, Steps, Task, TaskId};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

pub(super) struct Planner<'a> {
    pub(super) flow: &'a Flow<'a>,
    pub(super) groups: &'a Groups,
    pub(super) plan: Plan,
    /// Bytes of the tape of each worker so far.
    pub(super) load: Vec<u64>,
    /// Rows of each worker in the last projection that is not a residual's.
    last: Vec<u32>,
    queues: Vec<Vec<TaskId>>,
    /// Buffers of the program by those of the unrolled function: weights, inputs, states, the packets of values, the logits.
    pub(super) buffers: HashMap<BufferId, BufferId>,
    names: HashSet<String>,
    /// The value whose row of the table every reader looks up.
    embedded: Option<BufferId>,
    /// The residual that the workers hold: which value, in which buffer.
    held: Option<(BufferId, BufferId)>,
    adoptions: u32,
    /// Each worker's rows of the logits.
    pub(super) rows: Vec<Range<u32>>,
}

impl<'a> Planner<'a> {
    /// The plan of some groups.
    pub(super) fn run(
        flow: &'a Flow<'a>,
        groups: &'a Groups,
        logits: BufferId,
        schedule: DeviceSchedule,
        precision: Precision,
    ) -> Result<Plan, Unsupported> {
        let workers = schedule.workers as usize;
        let mut planner = Self {
            flow,
            groups,
            plan: empty(flow, groups, schedule, precision)?,
            load: vec![0; workers],
            last: vec![0; workers],
            queues: vec![Vec::new(); workers],
            buffers: HashMap::new(),
            names: HashSet::new(),
            embedded: None,
            held: None,
            adoptions: 0,
            rows: vec![0..0; workers],
        };
        planner.begin(logits);
        let mut tiles = tiled(flow, groups, schedule.workers)?;
        for group in &groups.list {
            match group {
                Group::Embed(at) => planner.embed(*at),
                Group::Product(product) => planner.product(product),
                Group::Attention(attention) => planner.attention(attention),
                Group::Chain(chain) => planner.chain(chain, tiles.remove(&chain.calls[0]))?,
            }
        }
        let rows: Vec<Work> = planner.rows.iter().cloned().map(Work::Rows).collect();
        planner.phase(Phase::Best, rows.clone());
        (0..ROUNDS).for_each(|round| planner.phase(Phase::Probe { round }, rows.clone()));
        planner.phase(Phase::Choose, vec![Work::Own; workers]);
        planner.plan.program.queues = Queues::Static(planner.queues);
        Ok(planner.plan)
    }

    /// What every program has: weights, inputs and logits under their names, the tokens, what chooses them; and q, k and v of each
    /// attention one after the other.
    fn begin(&mut self, logits: BufferId) {
        for (at, buffer) in self.flow.unrolled.buffers.iter().enumerate() {
            let input = buffer.kind == BufferKind::Input && buffer.dtype == DType::F32;
            if input || matches!(buffer.kind, BufferKind::Weight | BufferKind::Output) {
                self.names.insert(buffer.name.clone());
                self.plan.program.buffers.push(buffer.clone());
                self.buffers.insert(BufferId::from(at), BufferId::from(self.plan.program.buffers.len() - 1));
            }
        }
        let workers = self.plan.schedule.workers;
        self.plan.logits = self.known(logits);
        self.plan.token = self.buffer("token", BufferKind::State, DType::U32, &[workers], Exchange::Counter);
        self.plan.choosing = self.choosing(workers);
        if let Some(turn) = self.groups.turn {
            self.plan.freqs = Some(self.known(turn.freqs));
        }
        for group in &self.groups.list {
            if let Group::Attention(attention) = group {
                attention.qkv.iter().for_each(|&value| {
                    self.value(value, DType::BF16);
                });
            }
        }
    }

    fn choosing(&mut self, workers: u32) -> Choosing {
        let (kind, slots) = (BufferKind::Activation, Exchange::Packet { slots: 2 });
        let best = self.buffer("best", kind, DType::F32, &[workers, 2], slots);
        let shares = self.packets("shares", DType::F32, &[workers, SHARES]);
        let found = core::array::from_fn(|round| {
            self.packets(&format!("found.{round}"), DType::F32, &[workers, LEVELS, FIELDS])
        });
        let search = core::array::from_fn(|round| {
            self.activation(&format!("search.{round}"), DType::F32, &[workers, SEARCH], Exchange::Counter)
        });
        Choosing { best, shares, found, search }
    }

    /// The rows of a residual that each worker owns.
    fn owned(&self, rows: u32) -> Vec<Range<u32>> {
        let units = even(rows / UNIT, self.plan.schedule.workers);
        units.iter().map(|units| units.start * UNIT..units.end * UNIT).collect()
    }

    fn embed(&mut self, at: usize) {
        let (Some(value), Some(table)) = (self.flow.result(at), self.flow.operand(at, 0)) else { return };
        let hidden = self.flow.shape(value)[0];
        self.plan.sizes.hidden = hidden;
        self.plan.embedding = Some(self.known(table));
        self.embedded = Some(value);
        let to = self.activation("residual", DType::F32, &[hidden], Exchange::Counter);
        self.held = Some((value, to));
        let owned = self.owned(hidden);
        self.phase(Phase::Embed { to }, owned.into_iter().map(Work::Rows).collect());
    }

    fn product(&mut self, product: &Product) {
        let input = match self.embedded == Some(product.input) {
            true => Input::Embedding,
            false => Input::Packets(self.known(product.input)),
        };
        let weights: Vec<BufferId> = product.weights.iter().map(|&weight| self.known(weight)).collect();
        let rows: u32 = weights.iter().map(|&weight| self.plan.extent(weight)).sum();
        let gemv = |planner: &Self, output| Gemv {
            input,
            norm: product.norm.map(|norm| planner.known(norm)),
            k: product.k,
            weights: weights.clone(),
            biases: product.biases.iter().map(|bias| bias.map(|bias| planner.known(bias))).collect(),
            output,
        };
        match &product.output {
            Delivered::Store(values) => {
                let outputs = values.iter().map(|&value| self.value(value, DType::BF16)).collect();
                let gemv = gemv(self, Output::Store(outputs));
                self.gemv(gemv, rows, 1);
            }
            &Delivered::Gated(value) => {
                let to = self.value(value, DType::BF16);
                let gemv = gemv(self, Output::Gated(to));
                self.gemv(gemv, rows, 2);
            }
            Delivered::Logits => {
                let gemv = gemv(self, Output::Logits(self.plan.logits));
                let parts = self.gemv(gemv, rows, 1);
                self.rows = parts;
            }
            &Delivered::Residual { before, after } => {
                let before = self.residual(before, rows);
                let name = format!("residual.{}", self.flow.buffer(after).name);
                let held = self.activation(&name, DType::F32, &[rows], Exchange::Counter);
                let packets = self.value(after, DType::BF16);
                self.held = Some((after, held));
                let gemv = gemv(self, Output::Residual { before, after: held, packets });
                let owned = self.owned(rows);
                self.streams(&owned, product.k);
                self.phase(Phase::Gemv(gemv), owned.into_iter().map(Work::Rows).collect());
            }
        }
    }

    /// The buffer in which the workers hold a residual; they take it from its packets where they hold another.
    fn residual(&mut self, value: BufferId, rows: u32) -> BufferId {
        if let Some((held, buffer)) = self.held
            && held == value
        {
            return buffer;
        }
        let from = self.known(value);
        let name = format!("adopted.{}.{}", self.adoptions, self.flow.buffer(value).name);
        let to = self.activation(&name, DType::F32, &[rows], Exchange::Counter);
        let owned = self.owned(rows);
        let phase = Phase::Adopt { from, to, number: self.adoptions };
        self.adoptions += 1;
        self.phase(phase, owned.into_iter().map(Work::Rows).collect());
        to
    }

    /// A projection of `rows` rows, spread so that the bytes of the tapes stay level; `fold` rows give one element. Gives the parts.
    fn gemv(&mut self, gemv: Gemv, rows: u32, fold: u32) -> Vec<Range<u32>> {
        let owned = self.owned(self.plan.sizes.hidden);
        // An attention may come next: who has no rows of the residual after it has it, so nothing to do before it, either.
        let spared = |worker: usize| matches!(gemv.output, Output::Store(_)) && owned[worker].is_empty();
        let mut order: Vec<usize> = (0..self.load.len()).collect();
        order.sort_by_key(|&worker| (spared(worker), self.load[worker]));
        let units = level(rows / UNIT, &order);
        let rows: Vec<Range<u32>> = units.into_iter().map(|units| units.start * UNIT..units.end * UNIT).collect();
        self.streams(&rows, gemv.k);
        let parts: Vec<Range<u32>> = rows.into_iter().map(|rows| rows.start / fold..rows.end / fold).collect();
        self.last = parts.iter().map(|rows| rows.end - rows.start).collect();
        self.phase(Phase::Gemv(gemv), parts.iter().cloned().map(Work::Rows).collect());
        parts
    }

    /// Adds a projection's rows of `k` weights to the tapes' bytes.
    fn streams(&mut self, rows: &[Range<u32>], k: u32) {
        for (rows, load) in rows.iter().zip(&mut self.load) {
            *load += u64::from(rows.end - rows.start) * u64::from(k) * 2;
        }
    }

    fn attention(&mut self, attention: &Attention) {
        let layer = self.plan.layers.len();
        let Sizes { heads, kv_heads, head_dim, context, splits, .. } = self.plan.sizes;
        let name = |what: &str| format!("{what}.{layer}");
        let run = BLOCK * self.plan.schedule.run;
        let share = context.div_ceil(run * splits) * run;
        let shape = [kv_heads, splits, share, head_dim];
        let caches = ["keys", "values"]
            .map(|what| self.buffer(&name(what), BufferKind::State, DType::BF16, &shape, Exchange::Counter));
        let buffers = LayerBuffers {
            qkv: attention.qkv.map(|value| self.known(value)),
            caches,
            partial: self.packets(&name("partial"), DType::F32, &[heads, splits, head_dim]),
            lse: self.packets(&name("lse"), DType::F32, &[heads, splits]),
            attended: self.value(attention.result, DType::BF16),
            head_norms: attention.head_norms.map(|norms| norms.map(|norm| self.known(norm))),
        };
        self.plan.layers.push(buffers);
        let mut works = vec![Work::Rows(0..0); self.load.len()];
        for (n, worker) in (0..kv_heads * splits).zip(self.attending(layer)) {
            works[worker] = Work::Split { head: n % kv_heads, split: n / kv_heads };
        }
        let slices = self.merging(layer, &works);
        self.phase(Phase::Attend { layer }, works);
        self.phase(Phase::Combine { layer }, slices.into_iter().map(Work::Rows).collect());
    }

    /// The workers for the splits of a layer's heads, in the order in which these become active; others in each layer.
    ///
    /// All wait for the first ones at every position, so these have least to do right before (of the projection) and right after it (of
    /// the residual). The others' shares are merged before the residual: those without rows of it are left free for that.
    fn attending(&self, layer: usize) -> Vec<usize> {
        let Sizes { hidden, kv_heads, .. } = self.plan.sizes;
        let owned = self.owned(hidden);
        let mut order = rotated((0..owned.len()).collect(), layer * 17);
        order.sort_by_key(|&worker| (self.last[worker], owned[worker].len()));
        if let Some(others) = order.get_mut(kv_heads as usize..) {
            others.sort_by_key(|&worker| (self.last[worker], Reverse(owned[worker].len())));
        }
        order
    }

    /// Who merges which slices of a layer's heads: who has the last splits, as long as these are not active. A worker that has nothing
    /// else to do looks for the shares when they come; one that attends asks for them afterwards. Of about equal ones, who has no rows of
    /// the residual, which comes next.
    fn merging(&self, layer: usize, works: &[Work]) -> Vec<Range<u32>> {
        let Sizes { hidden, heads, head_dim, splits, .. } = self.plan.sizes;
        let owned = self.owned(hidden);
        let split = |worker: usize| match works[worker] {
            Work::Split { split, .. } => split,
            _ => splits,
        };
        let quarter = |worker: usize| split(worker) * 4 / splits.max(1);
        let mut order = rotated((0..works.len()).collect(), layer * 29);
        order.retain(|&worker| split(worker) >= splits / 4); // the others attend from short contexts on
        order.sort_by_key(|&worker| (Reverse(quarter(worker)), owned[worker].len(), Reverse(split(worker))));
        let slices = heads * head_dim / SLICE;
        order.truncate(slices as usize);
        let mut parts = vec![0..0; works.len()];
        for (&worker, part) in order.iter().zip(even(slices, order.len() as u32)) {
            parts[worker] = part;
        }
        parts
    }

    /// The program's buffer for one that is there.
    pub(super) fn known(&self, id: BufferId) -> BufferId {
        self.buffers.get(&id).copied().unwrap_or(BufferId(u32::MAX))
    }

    /// The packets of a value.
    pub(super) fn value(&mut self, id: BufferId, dtype: DType) -> BufferId {
        if let Some(&known) = self.buffers.get(&id) {
            return known;
        }
        let Buffer { name, shape, .. } = self.flow.buffer(id);
        let packets = self.packets(name, dtype, shape);
        self.buffers.insert(id, packets);
        packets
    }

    pub(super) fn buffer(
        &mut self,
        name: &str,
        kind: BufferKind,
        dtype: DType,
        shape: &[u32],
        exchange: Exchange,
    ) -> BufferId {
        let mut name = name.to_owned();
        while !self.names.insert(name.clone()) {
            name.push('_');
        }
        let shape = shape.to_vec();
        self.plan.program.buffers.push(Buffer { name, kind, dtype, shape, exchange, place: None });
        BufferId::from(self.plan.program.buffers.len() - 1)
    }

    fn activation(&mut self, name: &str, dtype: DType, shape: &[u32], exchange: Exchange) -> BufferId {
        self.buffer(name, BufferKind::Activation, dtype, shape, exchange)
    }

    fn packets(&mut self, name: &str, dtype: DType, shape: &[u32]) -> BufferId {
        self.activation(name, dtype, shape, Exchange::Packet { slots: 1 })
    }

    /// Adds a phase: a task for every worker that has a part of it. In choosing every worker has.
    fn phase(&mut self, phase: Phase, works: Vec<Work>) {
        let all = matches!(phase, Phase::Best | Phase::Probe { .. });
        let at = self.begin_phase(phase);
        for (worker, work) in works.into_iter().enumerate() {
            if all || !matches!(&work, Work::Rows(rows) if rows.is_empty()) {
                self.task(at, worker, work);
            }
        }
    }

    pub(super) fn begin_phase(&mut self, phase: Phase) -> usize {
        self.plan.program.ops.push(phase.label());
        self.plan.phases.push(phase);
        self.plan.phases.len() - 1
    }

    pub(super) fn task(&mut self, phase: usize, worker: usize, work: Work) {
        let calls: Vec<Call> = self.plan.calls(phase, worker as u32, &work);
        let id = TaskId::from(self.plan.program.tasks.len());
        self.plan.program.tasks.push(Task { op: Some(OpId::from(phase)), calls, ..Task::default() });
        self.plan.tasks.push((phase, worker as u32, work));
        self.queues[worker].push(id);
    }
}

fn empty(
    flow: &Flow<'_>,
    groups: &Groups,
    schedule: DeviceSchedule,
    precision: Precision,
) -> Result<Plan, Unsupported> {
    let name = &flow.graph.name;
    let instructions = instructions().map_err(|error| Unsupported { what: error.to_string(), at: name.clone() })?;
    let none = BufferId(u32::MAX);
    let context = flow.unrolled.positions;
    let logits = flow.unrolled.buffers.iter().find(|buffer| buffer.kind == BufferKind::Output);
    let vocab = logits.map_or(0, |logits| logits.shape[0]);
    let tables = (0..flow.unrolled.calls.len()).filter(|&at| flow.path(at) == EMBED);
    let rows = tables.filter_map(|at| flow.operand(at, 0)).map(|table| flow.shape(table)[0]);
    let tokens = rows.min().unwrap_or(u32::MAX);
    let mut sizes = Sizes { vocab, tokens, context, ..Sizes::default() };
    if let Some(turn) = groups.turn {
        let [kv_heads, _, head_dim] = turn.cache;
        let splits = (schedule.workers / kv_heads).min(schedule.splits);
        sizes = Sizes { heads: turn.heads, kv_heads, head_dim, splits, ..sizes };
    }
    Ok(Plan {
        program: Program {
            name: format!("{name}.cuda"),
            positions: context,
            steps: Steps::Pipelined,
            limits: Limits { workers: schedule.workers, ..Limits::default() },
            instructions,
            ..Program::default()
        },
        constants: flow.unrolled.constants.clone(),
        phases: Vec::new(),
        tasks: Vec::new(),
        layers: Vec::new(),
        bodies: Vec::new(),
        sequences: Vec::new(),
        sizes,
        schedule,
        precision,
        embedding: None,
        token: none,
        choosing: Choosing::default(),
        freqs: None,
        logits: none,
        eps: groups.eps,
        rope_scale: groups.turn.map_or(1.0, |turn| turn.rope_scale),
        score_scale: groups.turn.map_or(1.0, |turn| turn.score_scale),
    })
}
