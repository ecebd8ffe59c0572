//! What a step costs, before it is measured: a simulation of the workers with the memory shared between them.
//!
//! A worker's stream brings the bytes of its tape and of its caches in the order of its tasks, as far ahead of them as the ring and the
//! lookahead reach. All streams share the memory's rate; a pace or few bytes in flight may hold one back further. A phase starts
//! on a worker when its own task before is done and, one hop after the last of the others, their results are there; it ends when it
//! has computed and its last bytes have come. The chain of hops and what the streams could not bring ahead is the time of a step.

use super::plan::{BLOCK, Gemv, Output, Phase, Plan, UNIT, Work};
use super::schedule::DeviceSchedule;
use super::source::{CHUNK, GROUP_UNITS, TILE, TILE_K, WARPS, cut, waits};
use super::trace::weight_bytes;
use amk_ir::TaskId;
use std::collections::VecDeque;

/// What parts of a step cost on a kind of GPU. Times are nanoseconds, rates bytes a nanosecond (GB/s).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostModel {
    /// Rate at which the memory is read, by the bare ring.
    pub read: f64,
    /// Share of the mean rate that the slowest worker's stream has while all read.
    pub slowest: f64,
    /// Clock, in cycles a nanosecond.
    pub clock: f64,
    /// From asking for bytes until they have landed, where the memory is idle.
    pub latency: f64,
    /// From when a stream at its share has brought a task's last bytes until the task has computed with them: queues before the
    /// memory, landing, the last slot.
    pub tail: f64,
    /// From one worker's last result to another's inputs.
    pub hop: f64,
    /// KiB before a packet in the memory's queue for a slot in flight, while all streams read and no pace holds them back.
    pub crowd: f64,
    /// A projection beside its units: fragments of the input, the warps' sums, delivering.
    pub project: f64,
    /// Eight rows of a projection beside their bytes.
    pub unit: f64,
    /// Rate at which a worker computes products.
    pub product: f64,
    /// Each further wait for a part of a long input.
    pub pass: f64,
    /// Attention beside its cache, and for each 256 elements of a head's queries.
    pub attend: [f64; 2],
    /// A turn of attention: each warp takes 16 positions, for each 64 elements of a head.
    pub turn: f64,
    /// Joining the outputs of all warps; with less than a block in the cache there are only few.
    pub gather: f64,
    /// Publishing a split's share in place of a result.
    pub partial: f64,
    /// Merging splits, the warps of a slice meeting where it takes more than one, and for each of these.
    pub combine: [f64; 3],
    /// Choosing a token.
    pub choose: f64,
}

/// The H200, fitted to the times of SmolLM2-135M, Qwen3-0.6B, Llama-3.2-1B and Llama-3.1-8B at
/// positions 0, 128, 1024, 8192 and 32768 and to what a pace is worth to them: at most 4.4% off, 1.5%
/// in the mean. Held out were the other positions between 0 and 32768 and TinyLlama-1.1B,
/// Qwen2.5-0.5B, Qwen2.5-7B and Qwen3-8B: at most 8.7% off, 2.1% in the mean. These times do not
/// determine `slowest`, `latency`, `pass` and `choose`, which were set by hand.
pub(super) const H200: CostModel = CostModel {
    read: 4579.0,
    slowest: 0.985,
    clock: 1.98,
    latency: 900.0,
    tail: 2344.7,
    hop: 338.6,
    crowd: 27.8,
    project: 112.2,
    unit: 92.6,
    product: 138.4,
    pass: 345.0,
    attend: [343.4, 153.3],
    turn: 1682.6,
    gather: 232.2,
    partial: 63.5,
    combine: [747.0, 70.7, 127.4],
    choose: 6000.0,
};

/// The H100: the H200 with the rate of its own bare ring. All of its steps were held out: at most 11.9% off (Qwen2.5-0.5B at 128,
/// SmolLM2 at 32768 11.5%, else below 10%), 3.5% in the mean.
pub(super) const H100: CostModel = CostModel { read: 3090.0, ..H200 };

/// Share of the datasheet's rate that a bare ring reaches: that of the H200.
const REACHED: f64 = 0.954;

/// Warps of a team that merges a slice look at this many splits each.
const LOOK: u32 = 8;

/// What a step is predicted to cost, nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// Time of a step among others.
    pub step: f64,
    /// Its bytes at the memory's rate: no step is faster.
    pub floor: f64,
    /// Bytes that it reads.
    pub bytes: u64,
}

/// The costs on a GPU that was not measured: those of the H200, with the GPU's own rate of memory.
pub(super) const fn unmeasured(datasheet_gb_per_s: f32) -> CostModel {
    CostModel { read: datasheet_gb_per_s as f64 * REACHED, ..H200 }
}

/// A phase as the simulation sees it.
struct Stage {
    /// By worker: what it does, if it has a part.
    parts: Vec<Option<Part>>,
    /// Whether it needs the results of other workers.
    hops: bool,
    /// What every task takes beside its part.
    fixed: f64,
}

#[derive(Clone, Copy, Default)]
struct Part {
    /// Bytes that the stream brings.
    bytes: f64,
    /// Slots of the ring that they take.
    slots: f64,
    /// Bytes that the task reads itself.
    unasked: f64,
    /// Time with all bytes there.
    busy: f64,
}

impl CostModel {
    /// Predicts a step of a plan at position `pos`.
    pub fn predict(&self, plan: &Plan, pos: u32) -> Prediction {
        let stages = self.stages(plan, pos);
        let bytes: f64 =
            stages.iter().flat_map(|stage| stage.parts.iter().flatten()).map(|part| part.bytes + part.unasked).sum();
        let floor = bytes / self.read;
        let mut machine = Machine::new(self, &plan.schedule);
        // The first step starts with empty rings. How busy the memory is in a step tells the one before.
        let first = machine.step(&stages, 1.0);
        let before = machine.step(&stages, (floor / first).min(1.0));
        let after = machine.step(&stages, (floor / (before - first)).min(1.0));
        Prediction { step: (after - before).max(floor), floor, bytes: bytes as u64 }
    }

    fn stages(&self, plan: &Plan, pos: u32) -> Vec<Stage> {
        let workers = plan.schedule.workers as usize;
        let mut parts = vec![vec![None; workers]; plan.phases.len()];
        for ((phase, worker, work), task) in plan.tasks.iter().zip(0..) {
            if let (Some(kind), Some(of_phase)) = (plan.phases.get(*phase), parts.get_mut(*phase))
                && let Some(part) = of_phase.get_mut(*worker as usize)
            {
                *part = self.part(plan, kind, work, pos).map(|part| self.reading(plan, kind, task, part));
            }
        }
        let with_parts = plan.phases.iter().zip(parts).filter(|(_, parts)| parts.iter().any(Option::is_some));
        let stage = |(phase, parts): (&Phase, _)| {
            let (hops, fixed) = match phase {
                Phase::Gemv(_) => (true, self.project),
                Phase::Attend { .. } => (true, self.attend[0]),
                Phase::Combine { .. } => (true, self.combine[0]),
                Phase::Choose => (true, self.choose),
                Phase::Embed { .. } | Phase::Best => (false, 0.0),
                _ => (true, self.project),
            };
            Stage { parts, hops, fixed }
        };
        with_parts.map(stage).collect()
    }

    /// A worker's part of a phase; `None` where it has nothing to do at this position.
    fn part(&self, plan: &Plan, phase: &Phase, work: &Work, pos: u32) -> Option<Part> {
        let active = splits_in_use(plan, pos);
        match (phase, work) {
            (Phase::Gemv(gemv), Work::Rows(rows)) => Some(self.product(gemv, rows.end - rows.start)),
            (Phase::Attend { .. }, &Work::Split { split, .. }) => {
                let cached = cached_positions(plan, pos, split);
                (split < active).then(|| self.attention(plan, cached, active == 1))
            }
            (Phase::Combine { .. }, Work::Rows(slices)) => {
                (active > 1).then(|| Part { busy: self.merge(active, slices.end - slices.start), ..Part::default() })
            }
            // Only filters look at levels; a prediction is of greedy steps.
            (Phase::Probe { .. }, _) => None,
            _ => Some(Part::default()),
        }
    }

    /// A generic task whose weights do not stream reads them itself when its turn has come: nothing is
    /// brought ahead.
    fn reading(&self, plan: &Plan, phase: &Phase, task: u32, part: Part) -> Part {
        let Phase::Generic(generic) = phase else { return part };
        let bytes = weight_bytes(&plan.program, TaskId(task)) as f64;
        if let Some(stream) = plan.sequences.get(generic.sequence).and_then(|sequence| sequence.stream) {
            let columns = streamed_columns(plan, TaskId(task));
            let slots = bytes / f64::from((stream.block)(columns).max(1));
            return Part { bytes, slots, busy: part.busy + bytes / self.product, ..part };
        }
        let share = self.read / f64::from(plan.schedule.workers.max(1));
        Part { unasked: bytes, busy: part.busy + bytes / share, ..part }
    }

    fn product(&self, gemv: &Gemv, elements: u32) -> Part {
        let fold = if matches!(gemv.output, Output::Gated(_)) { 2 } else { 1 };
        let units = elements * fold / UNIT;
        let bytes = f64::from(units) * f64::from(UNIT * gemv.k) * 2.0;
        let further = f64::from(waits(gemv) - 1);
        let busy = f64::from(units) * self.unit + bytes / self.product + further * self.pass;
        Part { bytes, slots: f64::from(slots(gemv.k, units)), busy, unasked: 0.0 }
    }

    /// A split's part of attention with that many positions in the cache. All warps take turns, so time grows by whole turns.
    fn attention(&self, plan: &Plan, cached: u32, whole: bool) -> Part {
        let sizes = plan.sizes;
        let bytes = f64::from(cached) * f64::from(sizes.head_dim) * 4.0;
        let queries = f64::from(sizes.heads / sizes.kv_heads.max(1) * sizes.head_dim) / 256.0;
        let turns = f64::from(cached.div_ceil(16 * WARPS).max(1)) * f64::from(sizes.head_dim) / 64.0;
        let gather = if cached < BLOCK { 0.0 } else { self.gather };
        let partial = if whole { 0.0 } else { self.partial };
        let busy = queries * self.attend[1] + turns * self.turn + gather + partial;
        Part { bytes, slots: (bytes / f64::from(CHUNK)).ceil(), busy, unasked: 0.0 }
    }

    /// Merges slices of the outputs of `active` splits, a team of warps a slice.
    fn merge(&self, active: u32, slices: u32) -> f64 {
        let team = (active.div_ceil(LOOK)).next_power_of_two().min(WARPS);
        let meet = if team > 1 { self.combine[1] } else { 0.0 };
        f64::from(slices.div_ceil(WARPS / team)) * (meet + self.combine[2] * f64::from(team))
    }
}

/// Elements of a row of the weight that a task's first call streams.
fn streamed_columns(plan: &Plan, task: TaskId) -> u32 {
    let call = plan.program.tasks.get(task.index()).and_then(|task| task.calls.first());
    let mut weights = call.into_iter().flat_map(|call| &call.operands).filter(|operand| operand.early);
    weights.find_map(|operand| operand.region.intervals().get(1)).map_or(0, |columns| columns.hi.base)
}

/// Slots of the ring that units of a projection take: a slot has whole blocks of one pass over a group.
fn slots(k: u32, units: u32) -> u32 {
    let (depth, passes) = cut(k);
    let (tiles, most) = (k.div_ceil(TILE_K), depth * WARPS);
    let of_pass = |units: u32, pass: u32| {
        let block = (tiles.saturating_sub(pass * most)).min(most) * TILE;
        CHUNK.checked_div(block).map_or(0, |blocks| units.div_ceil(blocks.max(1)))
    };
    let of_group = |units: u32| (0..passes).map(|pass| of_pass(units, pass)).sum::<u32>();
    units / GROUP_UNITS * of_group(GROUP_UNITS) + of_group(units % GROUP_UNITS)
}

/// Splits of a head's cache that have a position at or before `pos`.
fn splits_in_use(plan: &Plan, pos: u32) -> u32 {
    (pos / (BLOCK * plan.schedule.run) + 1).min(plan.sizes.splits)
}

/// Positions before `pos` that a split has in the cache.
fn cached_positions(plan: &Plan, pos: u32, split: u32) -> u32 {
    let run = BLOCK * plan.schedule.run;
    let (rounds, rest) = (pos / (run * plan.sizes.splits.max(1)), pos % (run * plan.sizes.splits.max(1)));
    rounds * run + rest.saturating_sub(split * run).min(run)
}

/// The workers of a simulated launch.
struct Machine<'c> {
    cost: &'c CostModel,
    /// Bytes a nanosecond of one stream.
    rate: f64,
    /// How much longer a hop takes while all streams read.
    crowd: f64,
    /// Slots of the ring that a stream may be ahead.
    window: f64,
    workers: Vec<Worker>,
}

#[derive(Clone, Default)]
struct Worker {
    /// When its last task was done.
    done: f64,
    /// When the stream had brought what is asked for so far.
    brought: f64,
    /// Slots taken so far.
    taken: f64,
    /// Where in the stream tasks began, and when: until then the stream had to stay within the window.
    starts: VecDeque<(f64, f64)>,
}

impl<'c> Machine<'c> {
    fn new(cost: &'c CostModel, schedule: &DeviceSchedule) -> Self {
        let share = cost.read / f64::from(schedule.workers.max(1));
        let paced = match schedule.pace {
            0 => f64::INFINITY,
            pace => 4096.0 * cost.clock / f64::from(pace),
        };
        let flying = f64::from(schedule.in_flight * CHUNK) / (cost.latency + f64::from(CHUNK) / share);
        let pressed = (paced / share - 1.0).clamp(0.0, 1.0);
        Self {
            cost,
            rate: (share * cost.slowest).min(paced).min(flying),
            crowd: 1024.0 * cost.crowd * f64::from(schedule.in_flight) * pressed / cost.read,
            window: f64::from(schedule.ring_slots) + f64::from(schedule.lookahead) * 1024.0 / f64::from(CHUNK),
            workers: vec![Worker::default(); schedule.workers as usize],
        }
    }

    /// Runs a step with the memory busy for that share of the time; gives its end.
    fn step(&mut self, stages: &[Stage], busy: f64) -> f64 {
        let hop = self.cost.hop + self.crowd * busy;
        for stage in stages {
            let last = self.workers.iter().map(|worker| worker.done).fold(0.0, f64::max);
            for (worker, part) in self.workers.iter_mut().zip(&stage.parts) {
                let Some(part) = part else { continue };
                let ready = if stage.hops { worker.done.max(last + hop) } else { worker.done };
                let brought = worker.bring(part.bytes, part.slots, ready, self.rate, self.window);
                let bytes_here = if part.bytes > 0.0 { brought + self.cost.tail } else { 0.0 };
                worker.done = (ready + part.busy).max(bytes_here) + stage.fixed;
            }
        }
        self.workers.iter().map(|worker| worker.done).fold(0.0, f64::max)
    }
}

impl Worker {
    /// When the stream has brought `bytes` more, in `slots` slots, for a task that starts at `ready`.
    fn bring(&mut self, bytes: f64, slots: f64, ready: f64, rate: f64, window: f64) -> f64 {
        if bytes <= 0.0 {
            return self.brought;
        }
        self.starts.push_back((self.taken, ready));
        // What lies a window behind what was asked for before holds nothing back any more.
        while self.starts.front().is_some_and(|(at, _)| at + window < self.taken) {
            self.starts.pop_front();
        }
        self.taken += slots;
        self.brought += bytes / rate;
        for (at, since) in &self.starts {
            let beyond = (self.taken - at - window).min(slots);
            if beyond > 0.0 {
                self.brought = self.brought.max(since + beyond / slots * bytes / rate);
            }
        }
        self.brought
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(worker: &mut Worker, tasks: &[(f64, f64)]) -> Vec<f64> {
        tasks.iter().map(|&(bytes, ready)| worker.bring(bytes, bytes, ready, 2.0, 100.0)).collect()
    }

    #[test]
    fn a_stream_runs_ahead_by_its_window_and_no_further() {
        // 40 bytes a task at 2 bytes a nanosecond; the second task starts late, at 200.
        let late = run(&mut Worker::default(), &[(40.0, 0.0), (40.0, 200.0), (40.0, 210.0), (40.0, 220.0)]);
        // Tasks 2 and 3 come while task 1 is waited for, up to byte 40 + 100; the rest from 200 on.
        assert_eq!(late, [20.0, 40.0, 60.0, 210.0]);
    }

    #[test]
    fn a_slot_has_whole_blocks_of_one_pass() {
        assert_eq!(slots(896, 1), 1, "a block of 14 KiB has a slot of its own");
        assert_eq!(slots(896, 10), 5, "two blocks a slot");
        assert_eq!(slots(4864, 1), 3, "a block in three passes");
        assert_eq!(slots(4864, 0), 0);
    }

    #[test]
    fn a_task_without_bytes_waits_for_no_stream() {
        assert_eq!(run(&mut Worker::default(), &[(0.0, 500.0), (10.0, 600.0)]), [0.0, 5.0]);
    }
}
