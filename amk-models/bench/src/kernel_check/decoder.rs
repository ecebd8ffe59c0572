//! The device's fused bodies, in decoders of random sizes: an annotated function of two layers, in
//! bf16, against its formulas in f64.
//!
//! The error that bf16 causes is measured, not guessed: the function runs in f64 several times with
//! every intermediate value rounded to one of its two bf16 neighbours at random, the nearer more
//! often. The root mean square of the changes is the unit of the error. Such rounding deviates half
//! again as much as rounding to nearest, and a fused body rounds fewer values; its additional
//! roundings (the shares of a softmax) are averaged over positions.

use super::CheckError;
use super::draw::Draw;
use super::exact::Machine;
use super::measure::{Bodies, Checked, Oracle, largest};
use amk::encoding::Encoding;
use amk::formula::Exact;
use amk::ir::graph::Instance;
use amk::ir::schedule::{Ring, Schedule};
use amk::ir::verify::{Rejected, verify};
use amk::ir::{Buffer, BufferKind, Call, DType, Program};
use amk::layout::{Source, SourceError, WeightRequest};
use amk::registry::Registry;
use amk::rows::{PoolSize, RowVm, SequenceId};
use amk::session::{Session, SessionError};
use amk::vm::{Bindings, cpu};
use amk::{Pos, Token, Weight};
use amk_cuda::plan::Plan;
use amk_cuda::{
    self as cuda, CudaError, GpuTarget, Precision, RowsVm, RunOptions, TARGETS, Vm, VmOptions, WeightForms, plan_for,
};
use amk_kernels::fused::Decoder as Fused;
use amk_models::model::{Family, Model};
use half::bf16;
use std::collections::BTreeMap;
use std::path::Path;

/// The largest error of a logit in deviations. The normal errors of a hundred thousand logits are
/// within five, but the deviation is estimated from a few runs and from all logits of a step.
pub const MOST_DEVIATIONS: f64 = 8.0;
/// The same in f32: there every term of a sum is rounded, not the sum alone. Families whose norms
/// subtract a mean reach 35 in tests; a deviation of bf16 is 65,536 of these.
pub const MOST_DEVIATIONS_OF_F32: f64 = 64.0;
/// Runs with random roundings that the deviation is taken from.
const ROUNDED: u64 = 5;
/// How much smaller a rounding to f32 is than one to bf16.
const F32_PER_BF16: f64 = 65536.0;
/// Steps from position 0 on: past three blocks of a cache.
const NEAR: u32 = 201;
/// Steps at the end of the context. The positions between are never written, so they hold 0.
const FAR: u32 = 2;
/// Layers at most. With one layer a step has hardly more chunks than the ring has slots, so an
/// appended row is soon read again.
const LAYERS: u32 = 2;
/// Elements of a query at most.
const MOST_QUERY: u32 = 3072;
/// The most rows of a step: of narrow bodies, and of wide ones with products of few and of many
/// columns.
pub(super) const ROWS: [u32; 3] = [8, 24, 48];
/// Tries to find sizes of which the device fuses all.
const TRIES: usize = 200;

/// A decoder over random weights, a schedule by which a device runs it, and the tokens that it is
/// fed.
pub struct Decoder {
    pub(super) model: Model,
    pub(super) schedule: Schedule,
    /// Tokens of the first positions, then of the last [`FAR`].
    tokens: Vec<u32>,
}

/// Whether the device's fused bodies compute every call of a family where sizes allow.
///
/// # Errors
/// [`CudaError`] of its plan.
pub fn fused_as_a_whole(family: Family) -> Result<bool, CudaError> {
    let sizes = [("VOCAB", 96), ("HIDDEN", 96), ("LAYERS", 2), ("HEADS", 4), ("KV_HEADS", 2), ("HEAD_DIM", 64)];
    let sizes = sizes.into_iter().chain([("ROTARY", 64), ("FFN", 160), ("WINDOW", 128), ("TAPS", 3), ("CONTEXT", 400)]);
    let graph = family.kernel.graph()?;
    let sizes = sizes.filter(|(name, _)| graph.dims.iter().any(|dim| dim == name));
    let dims = sizes.map(|(name, value)| (name.to_owned(), value)).collect();
    let instance = Instance { name: "plain".into(), dims, ..Instance::default() };
    let target = TARGETS.iter().find(|target| target.name == "h200").unwrap_or(&TARGETS[0]);
    let schedule = Schedule { workers: 6, run: 2, ..target.schedule() };
    Ok(plan_for(family.kernel, &instance, &schedule, Precision::BF16)?.bodies.is_empty())
}

/// The expected logits, and their deviation in each step.
pub struct Expected {
    exact: Logits<Exact>,
    deviations: Vec<f64>,
}

/// A run of a random decoder that begins or has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderRun {
    /// The number of its case, from 0 on.
    pub case: usize,
    /// The most rows of a step; `None`: a step is one call of the function.
    pub rows: Option<u32>,
    /// The largest error in the unit of the check; `None`: it begins.
    pub error: Option<f64>,
}

/// The logits of each step.
pub type Logits<T> = Vec<Vec<T>>;

impl Decoder {
    /// Random sizes, weights and schedule: matrices in some of these encodings, and in bf16 if
    /// there are none. `whole`: the device fuses all, if it can; else some calls remain separate
    /// tasks among the fused ones.
    ///
    /// # Errors
    /// [`CheckError::NoShape`] where no such sizes were found.
    pub(super) fn random(
        family: Family,
        target: &GpuTarget,
        whole: bool,
        encodings: &[&'static Encoding],
        draw: &mut Draw,
    ) -> Result<Self, CheckError> {
        let whole = whole && fused_as_a_whole(family)?;
        for _ in 0..TRIES {
            let mut dims = dims(draw, whole);
            only_of(family, &mut dims)?;
            // Rows of whole packs of blocks, and others.
            let blocks = draw.of(&[1, 4]);
            for name in ["HIDDEN", "FFN"] {
                let block = encodings.iter().map(|encoding| blocks * encoding.block as u32).max().unwrap_or(1);
                dims.entry(name.to_owned()).and_modify(|dim| *dim = dim.next_multiple_of(block));
            }
            let schedule = schedule(draw, target, &dims);
            if dims["KV_HEADS"] > schedule.workers || dims["HEADS"] * dims["HEAD_DIM"] > MOST_QUERY {
                continue;
            }
            let (flags, floats) = (BTreeMap::new(), BTreeMap::new());
            let instance = Instance { name: "decoder".into(), dims, flags, floats, schedule: None };
            let plan = plan_for(family.kernel, &instance, &schedule, Precision::BF16)?;
            let layers = plan.shared.get::<Fused>().map_or(0, |fused| fused.layers.len() + fused.convolutions.len());
            if (layers == instance.dims["LAYERS"] as usize && plan.bodies.is_empty()) == whole {
                return Self::drawn(family, instance.dims, schedule, NEAR, encodings, draw);
            }
        }
        Err(CheckError::NoShape(path(family)))
    }

    /// A decoder of these dims, for `steps` steps from position 0 on and some at the end of its
    /// context, which is longer.
    ///
    /// # Errors
    /// [`CheckError::Model`] where a shape does not fit.
    pub fn new(
        family: Family,
        dims: BTreeMap<String, u32>,
        schedule: Schedule,
        steps: u32,
        seed: u64,
    ) -> Result<Self, CheckError> {
        Self::drawn(family, dims, schedule, steps, &[], &mut Draw::new(seed))
    }

    /// The same, its matrices in these encodings.
    pub(super) fn drawn(
        family: Family,
        dims: BTreeMap<String, u32>,
        schedule: Schedule,
        steps: u32,
        encodings: &[&'static Encoding],
        draw: &mut Draw,
    ) -> Result<Self, CheckError> {
        let vocab = dims.get("VOCAB").copied().unwrap_or(1);
        let mut model = Model::build(family, "decoder", dims, &mut Drawn::new(draw, encodings))?;
        model.keep_caches(schedule.cache)?;
        let tokens = (0..steps + FAR).map(|_| draw.below(vocab)).collect();
        Ok(Self { model, schedule, tokens })
    }

    /// The device's plan.
    ///
    /// # Errors
    /// [`CheckError::Cuda`].
    pub fn plan(&self, precision: Precision) -> Result<Plan, CheckError> {
        let forms = WeightForms::of(precision, &self.model.bindings);
        Ok(plan_for(self.model.family.kernel, &self.model.instance, &self.schedule, forms)?)
    }

    /// Its weights and constants.
    pub fn bindings(&self) -> &Bindings {
        &self.model.bindings
    }

    /// The fused bodies of the device program.
    ///
    /// # Errors
    /// [`CheckError::Cuda`].
    pub fn bodies(&self) -> Result<Bodies, CheckError> {
        let plan = self.plan(Precision::BF16)?;
        let mut bodies = Bodies::new();
        for (task, &(phase, ..)) in plan.program.tasks.iter().zip(&plan.tasks) {
            if plan.phases[phase].generic().is_none() {
                let instructions = bodies.entry(plan.phases[phase].kind().label()).or_default();
                let path = |call: &Call| plan.program.instructions[call.instruction.index()].path.clone();
                instructions.extend(task.calls.iter().map(path));
            }
        }
        Ok(bodies)
    }

    /// First position and tokens of each launch.
    fn launches(&self) -> [(u32, &[u32]); 2] {
        let (near, far) = self.tokens.split_at(self.near());
        [(0, near), (self.model.instance.dims["CONTEXT"] - FAR, far)]
    }

    /// Steps from position 0 on.
    pub fn near(&self) -> usize {
        self.tokens.len() - FAR as usize
    }

    fn steps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.launches().into_iter().flat_map(|(first, tokens)| (first..).zip(tokens.iter().copied()))
    }

    /// The annotated function in f32, at the first positions. At the last it would add up a
    /// thousand equal shares, whose roundings go in one direction.
    pub fn eager(&mut self) -> Logits<f32> {
        let steps: Vec<_> = self.steps().take(self.near()).collect();
        steps.into_iter().map(|(pos, token)| (self.model.eager)(Token(token), Pos(pos)).into_vec()).collect()
    }

    /// The logits of the first GPU, in bf16, each step a call of the function. NaN where its token
    /// does not have the largest logit.
    ///
    /// # Errors
    /// As [`Vm::new`] and [`Vm::run`].
    pub fn on_cuda(&self, cache: &Path) -> Result<Logits<f32>, CudaError> {
        let options = VmOptions { schedule: Some(self.schedule.clone().into()), ..VmOptions::default() };
        let Model { family, instance, bindings, .. } = &self.model;
        let mut vm = Vm::new(family.kernel, instance, bindings, cache, &options, &mut |_| {})?;
        let mut logits = Logits::new();
        for (first, tokens) in self.launches() {
            let options = RunOptions { logits: true, ..RunOptions::default() };
            let run = vm.run(tokens, first, tokens.len() as u32, &options, &mut |_| {})?;
            for (n, row) in run.logits.chunks(instance.dims["VOCAB"] as usize).enumerate() {
                let token = run.tokens.get(n).copied().unwrap_or(u32::MAX);
                logits.push(if is_argmax(row, token) { row.to_vec() } else { vec![f32::NAN; row.len()] });
            }
        }
        Ok(logits)
    }

    /// The logits of a device program on the CPU, its tasks in some legal order. NaN where a
    /// worker's choice is not the token of the largest logit.
    ///
    /// # Errors
    /// [`CheckError::Rejected`] or [`CheckError::Cpu`].
    pub fn on_program(&self, program: Program, mode: cpu::Mode) -> Result<Logits<f32>, CheckError> {
        let holds_tokens = |buffer: &&Buffer| (buffer.kind, buffer.dtype) == (BufferKind::State, DType::U32);
        let token = program.buffers.iter().find(holds_tokens);
        let (name, workers) = token.map_or((String::new(), 0), |token| (token.name.clone(), token.len() as usize));
        let rejected = |report: Rejected| CheckError::Rejected {
            path: path(self.model.family),
            shapes: self.sizes(),
            report: report.to_string(),
        };
        let verified = verify(program).map_err(rejected)?;
        let options = cpu::Options { mode, ..cpu::Options::default() };
        let mut vm = cpu::Vm::with(verified, &self.model.bindings, &Registry::linked()?, options)?;
        let mut logits = Logits::new();
        for (pos, token) in self.steps() {
            vm.set_tokens(&name, &vec![Token(token); workers])?;
            let mut row = vm.step(Token(token), Pos(pos))?.data().to_vec();
            let tokens = vm.tokens(&name).unwrap_or_default();
            if !tokens.iter().all(|token| is_argmax(&row, token.0)) {
                row.fill(f32::NAN);
            }
            logits.push(row);
        }
        Ok(logits)
    }

    /// The CPU VM of a device program whose steps have rows.
    ///
    /// # Errors
    /// As [`Self::on_program`].
    pub fn rows_on_cpu(
        &self,
        program: Program,
        mode: cpu::Mode,
        pages: impl Into<PoolSize>,
    ) -> Result<cpu::Vm, CheckError> {
        let rejected = |report: Rejected| CheckError::Rejected {
            path: path(self.model.family),
            shapes: self.sizes(),
            report: report.to_string(),
        };
        let verified = verify(program).map_err(rejected)?;
        let options = cpu::Options { mode, pages: Some(pages.into()), ..cpu::Options::default() };
        Ok(cpu::Vm::with(verified, &self.model.bindings, &Registry::linked()?, options)?)
    }

    /// The findings of `by` on the same decoder with steps of rows; `None` where there is no plan
    /// for them.
    pub(super) fn in_rows<T>(
        &mut self,
        target: &GpuTarget,
        most: u32,
        by: impl FnOnce(&Self) -> Result<T, CheckError>,
    ) -> Result<Option<T>, CheckError> {
        let Schedule { workers, run, splits, late, split_k, cache, .. } = self.schedule;
        let rows = Schedule { workers, run, splits, late, split_k, cache, ..target.row_schedule(most) };
        let one_row = std::mem::replace(&mut self.schedule, rows);
        let fused = target.check(&self.schedule).is_ok() && self.plan(Precision::BF16).is_ok();
        let found = if fused { by(self).map(Some) } else { Ok(None) };
        self.schedule = one_row;
        found
    }

    /// The logits of chunks of rows on the first GPU, among other sequences, and the fused bodies.
    fn on_cuda_in_rows(&self, cache: &Path) -> Result<(Logits<f32>, Bodies), CheckError> {
        let positions = self.model.instance.dims["CONTEXT"] as usize;
        let vm = self.rows_on_cuda(cache, PoolSize::sequences(3, positions))?;
        let vm_rows = vm.limits().rows;
        let logits = self.on_rows(vm, vm_rows - 2, 2).map_err(|error| match error {
            SessionError::Rows(error) => CheckError::Rows(error),
            SessionError::Vm(error) => CheckError::Cuda(error),
        })?;
        Ok((logits, self.bodies()?))
    }

    /// The VM of the first GPU whose steps have the rows of the decoder's schedule.
    ///
    /// # Errors
    /// As [`RowsVm::new`].
    pub fn rows_on_cuda(&self, cache: &Path, pages: impl Into<PoolSize>) -> Result<RowsVm, CudaError> {
        let options = VmOptions { schedule: Some(self.schedule.clone().into()), ..VmOptions::default() };
        let Model { family, instance, bindings, .. } = &self.model;
        RowsVm::new(family.kernel, instance, bindings, cache, &options, &pages.into(), &mut |_| {})
    }

    /// The logits of the first positions by a VM with rows, `chunk` tokens of the sequence a step.
    /// In every second step there are also rows of `company` other sequences, which run the same
    /// tokens from their second on.
    ///
    /// # Errors
    /// As [`Session::step`].
    pub fn on_rows<V: RowVm>(
        &self,
        vm: V,
        chunk: usize,
        company: usize,
    ) -> Result<Logits<f32>, SessionError<V::Error>> {
        let mut session = Session::new(vm);
        let own = session.add();
        let others: Vec<SequenceId> = (0..company).map(|_| session.add()).collect();
        let tokens: Vec<Token> = self.tokens[..self.near()].iter().copied().map(Token).collect();
        let mut logits = Logits::new();
        for (number, chunk) in tokens.chunks(chunk).enumerate() {
            if number % 2 == 1 {
                for &other in &others {
                    let next = tokens[(session.len(other)? + 1) % tokens.len()];
                    session.push(other, &[next])?;
                }
            }
            session.push_draft(own, chunk)?;
            while session.pending(own)? > 0 {
                session.step()?;
            }
            logits.extend(session.all_logits(own).map(<[f32]>::to_vec));
        }
        Ok(logits)
    }

    /// Returns the logits by the formulas; `None` where an instruction has no formula.
    ///
    /// # Errors
    /// [`CheckError::Formula`] or [`CheckError::Unbound`].
    pub fn expected(&self, seed: u64) -> Result<Option<Expected>, CheckError> {
        let Some(machine) = self.machine()? else { return Ok(None) };
        let steps: Vec<_> = self.steps().collect();
        let run = |mut machine: Machine| -> Result<Logits<Exact>, CheckError> {
            steps.iter().map(|&(pos, token)| logits(&mut machine, token, pos)).collect()
        };
        let machines = (0..ROUNDED).map(|n| machine.rounding(seed + n)).chain([machine.clone()]);
        let mut runs: Vec<Logits<Exact>> = std::thread::scope(|scope| {
            let threads: Vec<_> = machines.map(|machine| scope.spawn(|| run(machine))).collect();
            let failed = |_| Err(CheckError::Formula(path(self.model.family)));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).collect::<Result<_, _>>()
        })?;
        let exact = runs.pop().unwrap_or_default();
        let deviation = |step: usize| {
            let errors = runs.iter().flat_map(|run| run[step].iter().zip(&exact[step]));
            let (sum, count) = errors.fold((0.0, 0.0), |(sum, count), (rounded, exact)| {
                (sum + (rounded.value - exact.value).powi(2), count + 1.0)
            });
            f64::sqrt(sum / count)
        };
        let deviations = (0..exact.len()).map(deviation).collect();
        Ok(Some(Expected { exact, deviations }))
    }

    pub(super) fn machine(&self) -> Result<Option<Machine>, CheckError> {
        let Model { family, instance, bindings, .. } = &self.model;
        Machine::new(family.kernel, instance, bindings, DType::BF16, self.schedule.cache)
    }

    /// The logits of a machine.
    #[cfg(test)]
    pub(super) fn run(&self, mut machine: Machine) -> Logits<f32> {
        let narrow = |exact: Vec<Exact>| exact.iter().map(|exact| exact.value as f32).collect();
        let step = |(pos, token)| narrow(logits(&mut machine, token, pos).expect("formulas"));
        self.steps().map(step).collect()
    }

    /// The sizes, and the schedule fields that select the bodies.
    fn sizes(&self) -> String {
        let dim = |name: &str| self.model.instance.dims[name];
        let Schedule { workers, run, splits, .. } = self.schedule;
        format!(
            "HIDDEN = {}, FFN = {}, VOCAB = {}, {} x {} heads of {}, {} turned; {workers} \
            workers, {} splits, runs of {run}",
            dim("HIDDEN"),
            dim("FFN"),
            dim("VOCAB"),
            dim("KV_HEADS"),
            dim("HEADS") / dim("KV_HEADS"),
            dim("HEAD_DIM"),
            dim("ROTARY"),
            splits.min(workers / dim("KV_HEADS")),
        )
    }
}

impl Expected {
    /// The largest error of the logits of the first steps in deviations, and the number of its
    /// step.
    pub fn error(&self, found: &Logits<f32>) -> (f64, usize) {
        let of_step = |((exact, deviation), found): ((&Vec<Exact>, &f64), &Vec<f32>)| {
            let off = |(exact, &found): (&Exact, &f32)| (f64::from(found) - exact.value).abs() / deviation;
            if exact.len() == found.len() { largest(exact.iter().zip(found).map(off)) } else { f64::INFINITY }
        };
        let errors: Vec<f64> = self.exact.iter().zip(&self.deviations).zip(found).map(of_step).collect();
        let error = if errors.is_empty() { f64::INFINITY } else { largest(errors.iter().copied()) };
        (error, errors.iter().position(|other| other.total_cmp(&error).is_eq()).unwrap_or(0))
    }
}

/// Whether a token has the largest logit, the lowest id of several.
fn is_argmax(logits: &[f32], token: u32) -> bool {
    let chosen = logits.get(token as usize).copied().unwrap_or(f32::NAN);
    logits.iter().position(|&x| x >= chosen) == Some(token as usize) && logits.iter().all(|&x| x <= chosen)
}

/// The last call of a decoder makes the logits.
fn logits(machine: &mut Machine, token: u32, pos: u32) -> Result<Vec<Exact>, CheckError> {
    Ok(machine.step(token, pos)?.pop().unwrap_or_default())
}

/// Checks an annotated function on the CPU, in f32: the unit is 2^-16 of the deviation caused by
/// rounding to bf16. `see` is called with each run.
///
/// # Errors
/// Any [`CheckError`].
pub fn decoder_on_cpu(
    family: Family,
    target: &GpuTarget,
    cases: usize,
    seed: u64,
    see: &mut dyn FnMut(DecoderRun),
) -> Result<Checked, CheckError> {
    let checked = Checked::new(&path(family), DType::BF16, Oracle::Deviation, MOST_DEVIATIONS_OF_F32);
    check(checked, family, target, &[], cases, seed, |case, decoder, expected| {
        let mut note = |error| see(DecoderRun { case, rows: None, error });
        note(None);
        let (error, step) = expected.error(&decoder.eager());
        let error = error * F32_PER_BF16;
        note(Some(error));
        Ok((error, step))
    })
}

/// Checks the fused bodies of the first GPU. `cache` keeps compiled device code; `see` is called
/// with each run.
///
/// # Errors
/// Any [`CheckError`].
pub fn decoder_on_cuda(
    family: Family,
    encodings: &[&'static Encoding],
    cases: usize,
    seed: u64,
    cache: &Path,
    see: &mut dyn FnMut(DecoderRun),
) -> Result<Checked, CheckError> {
    let target = cuda::probe()?;
    let mut checked = Checked::new(&path(family), DType::BF16, Oracle::Deviation, MOST_DEVIATIONS);
    checked.encodings = encodings.iter().map(|encoding| encoding.name).collect();
    let mut bodies = Bodies::new();
    let checked = check(checked, family, target, encodings, cases, seed, |case, decoder, expected| {
        let mut note = |rows, error| see(DecoderRun { case, rows, error });
        note(None, None);
        let mut error = expected.error(&decoder.on_cuda(cache)?);
        note(None, Some(error.0));
        let mut add = |of: Bodies| of.into_iter().for_each(|(body, its)| bodies.entry(body).or_default().extend(its));
        add(decoder.bodies()?);
        for most in ROWS {
            note(Some(most), None);
            let Some(found) = decoder.in_rows(target, most, |rows| rows.on_cuda_in_rows(cache))? else { continue };
            add(found.1);
            let of_rows = expected.error(&found.0);
            note(Some(most), Some(of_rows.0));
            // `max` would drop a NaN.
            error = if of_rows.0 <= error.0 { error } else { of_rows };
        }
        Ok(error)
    })?;
    Ok(Checked { bodies, ..checked })
}

/// Every fourth decoder has a form of which the device fuses a part only.
fn check(
    mut checked: Checked,
    family: Family,
    target: &GpuTarget,
    encodings: &[&'static Encoding],
    cases: usize,
    seed: u64,
    mut error: impl FnMut(usize, &mut Decoder, &Expected) -> Result<(f64, usize), CheckError>,
) -> Result<Checked, CheckError> {
    let mut draw = Draw::new(seed);
    for case in 0..cases {
        let mut decoder = Decoder::random(family, target, case % 4 != 3, encodings, &mut draw)?;
        let Some(expected) = decoder.expected(seed)? else {
            checked.skipped = Some("an instruction has no formula");
            return Ok(checked);
        };
        let (error, step) = error(case, &mut decoder, &expected)?;
        let pos = decoder.steps().nth(step).map_or(0, |(pos, _)| pos);
        checked.note(&format!("{}; at {pos}", decoder.sizes()), error);
    }
    Ok(checked)
}

/// Returns the name of an annotated function in tables.
pub fn path(family: Family) -> String {
    format!("amk_models::{}::decode", family.name)
}

fn dims(draw: &mut Draw, whole: bool) -> BTreeMap<String, u32> {
    let (kv_heads, group) = (1 + draw.below(8), 1 + draw.below(8));
    let mut head_dim = draw.of(&[64, 64, 128, 128, 256, 48, 80, 96, 112]);
    // An input that is read in one pass; more rarely one of two passes behind one wait, or behind a
    // wait each.
    let mut ffn =
        if draw.below(4) == 0 { draw.of(&[2080, 3104]) + 32 * draw.below(15) } else { 32 * (8 + draw.below(32)) };
    if !whole {
        match draw.below(2) {
            0 => head_dim = 72,
            _ => ffn += 8,
        }
    }
    let rotary = head_dim / 4 * draw.of(&[4, 4, 4, 3, 2, 1]);
    let dims = [
        ("VOCAB", 8 * (32 + draw.below(96)) - draw.of(&[0, 0, 0, 3])),
        ("HIDDEN", 32 * (8 + draw.below(16))),
        ("LAYERS", 1 + draw.below(LAYERS)),
        ("HEADS", kv_heads * group),
        ("KV_HEADS", kv_heads),
        ("HEAD_DIM", head_dim),
        ("ROTARY", rotary),
        ("FFN", ffn),
        ("WINDOW", 1 + draw.below(200)),
        ("TAPS", 3),
        ("CONTEXT", 1000 + draw.below(200)),
    ];
    dims.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Leaves the dims that the family's function has.
fn only_of(family: Family, dims: &mut BTreeMap<String, u32>) -> Result<(), CheckError> {
    let graph = family.kernel.graph()?;
    dims.retain(|name, _| graph.dims.contains(name));
    Ok(())
}

/// A schedule by which every worker has a part of every projection, as fused attention wants it.
fn schedule(draw: &mut Draw, target: &GpuTarget, dims: &BTreeMap<String, u32>) -> Schedule {
    let own = target.schedule();
    let most = own.workers.min(dims["HIDDEN"] / 8).min(dims["VOCAB"] / 8);
    Schedule {
        workers: 8 + draw.below(most.saturating_sub(7)),
        run: draw.of(&[2, 4]),
        splits: draw.of(&[1, 2, 3, own.workers]),
        ring: Ring { in_flight: 1 + draw.below(own.ring.slots), lookahead: draw.of(&[0, 64]), ..own.ring },
        late: draw.of(&[0, 0, 4, 32]),
        split_k: draw.of(&[0, 1, 1]),
        ..own
    }
}

/// Weights that keep activations near 1, so that scores, gates and residuals all count.
struct Drawn<'d> {
    draw: &'d mut Draw,
    /// Encodings of matrices whose rows are whole blocks.
    encodings: &'d [&'static Encoding],
    /// The number of the next encoding.
    next: usize,
}

impl<'d> Drawn<'d> {
    fn new(draw: &'d mut Draw, encodings: &'d [&'static Encoding]) -> Self {
        let next = if encodings.is_empty() { 0 } else { draw.below(encodings.len() as u32) as usize };
        Self { draw, encodings, next }
    }

    /// The encoding of a matrix, one after the other. Gate and up have one, so that they are one
    /// projection.
    fn encoding(&mut self, request: &WeightRequest<'_>) -> Option<&'static Encoding> {
        let &[_, k] = request.shape else { return None };
        let encoding = *self.encodings.get(self.next % self.encodings.len().max(1))?;
        if request.name.contains("embed_tokens") || !k.is_multiple_of(encoding.block) {
            return None;
        }
        self.next += usize::from(!request.name.contains("gate_proj"));
        Some(encoding)
    }
}

impl Source for Drawn<'_> {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let (least, most) = match *request.shape {
            // The terms of a product add up to a deviation of 1: a uniform number's is its range
            // over the root of 12.
            [_, k] if !request.name.contains("embed_tokens") => {
                let most = f64::sqrt(3.0 / k as f64);
                (-most, most)
            }
            [_] if !request.name.ends_with("bias") => (0.5, 1.5),
            _ => (-1.0, 1.0),
        };
        let draw = |_| bf16::from_f64(least + (most - least) * self.draw.unit());
        let elements: Vec<bf16> = (0..request.shape.iter().product()).map(draw).collect();
        let Some((encoding, encode)) = self.encoding(request).and_then(|of| Some((of, of.encode?))) else {
            return Ok(Weight::bf16(request.shape, elements)?);
        };
        let elements: Vec<f32> = elements.into_iter().map(bf16::to_f32).collect();
        let mut blocks = vec![0; encoding.bytes_of(elements.len())];
        encode(&elements, &mut blocks);
        Ok(Weight::from_vec(encoding, request.shape, blocks)?)
    }

    /// Other frequencies in each table.
    fn table(&mut self, path: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        let len: usize = shape.iter().product();
        let theta = if path.starts_with("local") { 100f32 } else { 10_000.0 };
        Ok(Weight::f32(shape, (0..len).map(|j| theta.powf(-(j as f32) / len as f32)).collect())?)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        Ok(match path {
            "eps" => self.draw.of(&[1e-5, 1e-6]),
            "score_scale" => self.draw.of(&[0.125, 0.2]),
            "embedding_scale" => self.draw.of(&[1.25, 2.0]),
            // The bounds count.
            "score_cap" | "logit_cap" => self.draw.of(&[1.0, 2.0]),
            _ => self.draw.of(&[1.0, 1.25]),
        })
    }

    /// Every kind of layer where there are two.
    fn flag(&mut self, path: &str) -> Result<bool, SourceError> {
        Ok(path.starts_with("layers[0]"))
    }
}
