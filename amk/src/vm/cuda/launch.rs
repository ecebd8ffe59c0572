//! The VM: memory, launches and what comes back.

use super::error::{CudaError, Stuck};
use super::image::{Image, Record};
use super::nvrtc::compile_cached;
use super::pattern::Decoder;
use super::plan::{BLOCK, Choices, Phase, Plan, plan};
use super::source::{CHUNK, DeviceCode, depth, generate};
use super::tape;
use super::target::GpuTarget;
use crate::megakernel::Megakernel;
use crate::tensor::{Row, Weight};
use crate::vm::Bindings;
use amk_ir::BufferId;
use amk_ir::graph::Instance;
use amk_ir::lower::unroll::unroll;
use amk_ir::schedule::Schedule;
use amk_ir::verify::{Verified, verify};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PinnedHostSlice,
    PushKernelArg, sys,
};
use half::bf16;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Launch parameters; mirrors `Params` of `vm/image.cuh`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Params {
    tape: u64,
    tape_at: u64,
    records: u64,
    record_at: u64,
    packets: u64,
    constants: u64,
    embedding: u64,
    kv: u64,
    inv_freq: u64,
    forced: u64,
    tokens: u64,
    logits: u64,
    fault: u64,
    trace: u64,
    budget_ns: u64,
    seed: u64,
    epoch: u32,
    pos: u32,
    steps: u32,
    forced_count: u32,
    hidden: u32,
    vocab: u32,
    kv_blocks: u32,
    rope_scale: f32,
    inv_temperature: f32,
    eps: f32,
    score_scale: f32,
    rotary: u32,
    stop_count: u32,
    stops: [u32; 8],
}

// SAFETY: plain data whose layout is that of the device's struct: 8-byte fields first, then 4-byte fields.
unsafe impl DeviceRepr for Params {}
// SAFETY: plain data, 16 words.
unsafe impl DeviceRepr for Record {}

/// What a launch does besides greedy steps.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// 0: the most likely token; else tokens are drawn at this temperature.
    pub temperature: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Tokens that end the launch, at most 8.
    pub stops: Vec<u32>,
    /// Keep the logits of all steps.
    pub logits: bool,
    /// Time after which a launch that has not ended is stopped.
    pub deadline: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { temperature: 0.0, seed: 0, stops: Vec::new(), logits: false, deadline: Duration::from_secs(20) }
    }
}

/// What a launch gave.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The token chosen after each step.
    pub tokens: Vec<u32>,
    /// The logits `[steps, VOCAB]`, where they were asked for.
    pub logits: Vec<f32>,
    /// Time of the launch on the device.
    pub time: Duration,
}

/// A decoder on a GPU.
pub struct Vm {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    function: CudaFunction,
    target: &'static GpuTarget,
    plan: Plan,
    verified: Verified,
    params: Params,
    packets: CudaSlice<u64>,
    fault: CudaSlice<u32>,
    tokens: PinnedHostSlice<u32>,
    logits: Option<CudaSlice<f32>>,
    host_logits: Vec<f32>,
    /// Keeps the memory behind `params` alive.
    _memory: Memory,
}

struct Memory {
    _tape: CudaSlice<u8>,
    _tables: [CudaSlice<u64>; 1],
    _records: CudaSlice<Record>,
    _record_at: CudaSlice<u32>,
    _constants: CudaSlice<bf16>,
    _embedding: CudaSlice<bf16>,
    _kv: CudaSlice<u8>,
    _freqs: CudaSlice<f32>,
}

/// The first GPU and its record.
fn open() -> Result<(Arc<CudaContext>, &'static GpuTarget), CudaError> {
    // SAFETY: looks for the library and nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    if CudaContext::device_count().unwrap_or(0) == 0 {
        return Err(CudaError::NoDevice);
    }
    let context = CudaContext::new(0)?;
    let device = context.name()?;
    let target = GpuTarget::of_device(&device).map_err(|refused| CudaError::Refused {
        device: device.clone(),
        reason: refused
            .map_or("there is no record of it; see GpuTarget".to_owned(), |refused| refused.reason.to_owned()),
    })?;
    let number = |attribute| context.attribute(attribute).map(|value| u64::try_from(value).unwrap_or(0));
    for (what, found, expected) in [
        (
            "the compute capability's major number",
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            target.capability.0,
        ),
        (
            "the compute capability's minor number",
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            target.capability.1,
        ),
        (
            "the number of multiprocessors",
            number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            target.multiprocessors,
        ),
        (
            "a block's shared memory",
            number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            target.shared_bytes,
        ),
    ] {
        let expected = u64::from(expected);
        if found != expected {
            return Err(CudaError::Mismatch { device, target: target.name, what, found, expected });
        }
    }
    Ok((context, target))
}

/// The record of the first GPU, after it was compared with the device.
///
/// # Errors
/// No driver, no device, a GPU without a record or one that differs from it.
pub fn probe() -> Result<&'static GpuTarget, CudaError> {
    open().map(|(_, target)| target)
}

impl Vm {
    /// Loads a decoder onto the first GPU. `cache` keeps compiled device code; `progress` sees the fraction of weights packed.
    ///
    /// # Errors
    /// Any of [`CudaError`] but those of a run.
    pub fn new(
        kernel: &Megakernel,
        instance: &Instance,
        bindings: &Bindings,
        code: DeviceCode,
        cache: &Path,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, CudaError> {
        let (context, target) = open()?;
        let plan = plan_for(kernel, instance, target)?;
        let verified = verify(plan.program.clone()).map_err(Box::new)?;
        let image = Image::build(&verified, &plan)?;
        let cubin = compile_cached(&generate(code, &plan, target), target.architecture, cache)?;
        // SAFETY: all memory of this VM is used on one stream.
        unsafe { context.disable_event_tracking() };
        let function = context.load_module(cudarc::nvrtc::Ptx::from_binary(cubin.bytes))?.load_function("amk_vm")?;
        let ring = i32::try_from(target.ring_slots * CHUNK).unwrap_or(i32::MAX);
        function
            .set_attribute(sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, ring)?;
        let stream = context.new_stream()?;
        let sizes = plan.sizes;
        let kv_blocks = sizes.context.div_ceil(BLOCK) + 1;
        let block_bytes = u64::from(BLOCK * sizes.head_dim * 4);
        let kv_bytes = plan.layers.len() as u64 * u64::from(sizes.kv_heads) * u64::from(kv_blocks) * block_bytes;
        let tape_bytes = image.tape_at.last().copied().unwrap_or(0);
        let table_bytes = u64::from(sizes.vocab) * u64::from(sizes.hidden) * 2;
        let needed = kv_bytes + tape_bytes + table_bytes + u64::from(image.packets) * 8;
        let (free, total) = context.mem_get_info()?;
        if needed > free as u64 {
            return Err(CudaError::Memory { needed, free: free as u64, total: total as u64 });
        }
        let weight = |id: BufferId| bound(&plan, bindings, id);
        let tape = upload_tapes(&stream, &plan, &image, bindings, progress)?;
        let embedding = stream.clone_htod(&to_bf16(weight(plan.embedding)?))?;
        let mut constants = vec![bf16::ZERO; image.constant_len as usize];
        for &(id, at) in &image.constants {
            let values = to_bf16(weight(id)?);
            constants[at as usize..at as usize + values.len()].copy_from_slice(&values);
        }
        let constants = stream.clone_htod(&constants)?;
        let freqs = stream.clone_htod(&weight(plan.freqs)?.to_f32())?;
        let tape_at = stream.clone_htod(&image.tape_at)?;
        let records = stream.clone_htod(&image.records)?;
        let record_at = stream.clone_htod(&image.record_at)?;
        let kv = stream.alloc_zeros::<u8>(kv_bytes as usize)?;
        let packets = stream.alloc_zeros::<u64>(image.packets as usize)?;
        let fault = stream.alloc_zeros::<u32>(8)?;
        // SAFETY: every word is written before it is read: `run` clears what a launch may write.
        let tokens =
            unsafe { context.alloc_pinned_with_flags::<u32>(sizes.context as usize, sys::CU_MEMHOSTALLOC_DEVICEMAP) }?;
        let params = Params {
            tape: address(&tape, &stream),
            tape_at: address(&tape_at, &stream),
            records: address(&records, &stream),
            record_at: address(&record_at, &stream),
            packets: address(&packets, &stream),
            constants: address(&constants, &stream),
            embedding: address(&embedding, &stream),
            kv: address(&kv, &stream),
            inv_freq: address(&freqs, &stream),
            tokens: tokens.as_ptr()? as u64,
            fault: address(&fault, &stream),
            epoch: 1,
            hidden: sizes.hidden,
            vocab: sizes.vocab,
            kv_blocks,
            rope_scale: plan.rope_scale,
            eps: plan.eps,
            score_scale: plan.score_scale,
            rotary: sizes.head_dim / 2,
            ..Params::default()
        };
        let memory = Memory {
            _tape: tape,
            _tables: [tape_at],
            _records: records,
            _record_at: record_at,
            _constants: constants,
            _embedding: embedding,
            _kv: kv,
            _freqs: freqs,
        };
        stream.synchronize()?;
        Ok(Self {
            context,
            stream,
            function,
            target,
            plan,
            verified,
            params,
            packets,
            fault,
            tokens,
            logits: None,
            host_logits: Vec::new(),
            _memory: memory,
        })
    }

    /// The verified program that the image was made from.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// The GPU's record.
    pub fn target(&self) -> &'static GpuTarget {
        self.target
    }

    /// Positions of the context.
    pub fn positions(&self) -> usize {
        self.plan.sizes.context as usize
    }

    /// Bytes of weights that a step reads.
    pub fn weight_bytes(&self) -> u64 {
        let Self { plan, .. } = self;
        let of = |phase: &Phase| match phase {
            Phase::Gemv(gemv) => {
                gemv.weights.iter().map(|&weight| u64::from(plan.extent(weight)) * u64::from(gemv.k) * 2).sum()
            }
            _ => 0,
        };
        plan.phases.iter().map(of).sum()
    }

    /// Bytes of the cache that a step at `pos` reads.
    pub fn cache_bytes(&self, pos: u32) -> u64 {
        let sizes = self.plan.sizes;
        self.plan.layers.len() as u64 * u64::from(sizes.kv_heads) * u64::from(sizes.head_dim) * 4 * u64::from(pos)
    }

    /// One step: the logits `[VOCAB]` of the token after `token` at `pos`.
    ///
    /// # Errors
    /// As [`Vm::run`].
    pub fn step(&mut self, token: u32, pos: u32) -> Result<&[f32], CudaError> {
        let run = self.run(&[token], pos, 1, &RunOptions { logits: true, ..RunOptions::default() }, &mut |_| {})?;
        self.host_logits = run.logits;
        Ok(&self.host_logits)
    }

    /// One launch of `steps` steps from position `pos`: the first take the tokens `tokens`, each later one the token chosen before
    /// it. `see` gets each chosen token as the device makes it.
    ///
    /// # Errors
    /// Positions outside the context, a wait that does not end, a failing driver.
    pub fn run(
        &mut self,
        tokens: &[u32],
        pos: u32,
        steps: u32,
        options: &RunOptions,
        see: &mut dyn FnMut(u32),
    ) -> Result<Run, CudaError> {
        let (from, to) = (u64::from(pos), u64::from(pos) + u64::from(steps));
        if to > u64::from(self.plan.sizes.context) {
            return Err(CudaError::Positions { from, to, positions: u64::from(self.plan.sizes.context) });
        }
        if tokens.is_empty() || steps == 0 {
            return Err(CudaError::Empty);
        }
        if self.params.epoch > u32::MAX / 2 {
            self.forget()?;
        }
        let forced = self.stream.clone_htod(tokens)?;
        if options.logits {
            let len = steps as usize * self.plan.sizes.vocab as usize;
            if self.logits.as_ref().is_none_or(|logits| logits.len() < len) {
                self.logits = Some(self.stream.alloc_zeros::<f32>(len)?);
            }
        }
        let mut params = self.params;
        params.forced = address(&forced, &self.stream);
        params.forced_count = tokens.len() as u32;
        params.logits =
            self.logits.as_ref().filter(|_| options.logits).map_or(0, |logits| address(logits, &self.stream));
        params.budget_ns = u64::try_from(options.deadline.as_nanos()).unwrap_or(u64::MAX);
        params.seed = options.seed;
        params.pos = pos;
        params.steps = steps;
        params.inv_temperature = if options.temperature > 0.0 { 1.0 / options.temperature } else { 0.0 };
        params.stop_count = options.stops.len().min(params.stops.len()) as u32;
        params.stops.iter_mut().zip(&options.stops).for_each(|(to, &stop)| *to = stop);
        self.params.epoch += steps;
        self.tokens.as_mut_slice()?[..steps as usize].fill(0);
        let time = self.launch(&params, steps, see)?;
        self.watch()?;
        let tokens = self.tokens.as_slice()?[..steps as usize]
            .iter()
            .take_while(|&&token| token != 0)
            .map(|&token| token - 1)
            .collect();
        let logits = match &self.logits {
            Some(logits) if options.logits => {
                self.stream.clone_dtoh(&logits.slice(..steps as usize * self.plan.sizes.vocab as usize))?
            }
            _ => Vec::new(),
        };
        Ok(Run { tokens, logits, time })
    }

    fn launch(&self, params: &Params, steps: u32, see: &mut dyn FnMut(u32)) -> Result<Duration, CudaError> {
        let config = LaunchConfig {
            grid_dim: (self.plan.choices.workers, 1, 1),
            block_dim: (self.target.threads(), 1, 1),
            shared_mem_bytes: self.target.ring_slots * CHUNK,
        };
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.stream.record_event(timed)?;
        // SAFETY: the parameters are those of `amk_vm`; what they point to lives as long as `self`, and the launch ends before
        // this function returns. The image is that of a verified program.
        unsafe { self.stream.launch_builder(&self.function).arg(params).launch_cooperative(config) }?;
        let end = self.stream.record_event(timed)?;
        let made = self.tokens.as_ptr()?;
        let mut seen = 0;
        loop {
            let done = end.try_is_complete().map_err(CudaError::Dead)?;
            while seen < steps as usize {
                // SAFETY: `seen` is below the length of the pinned slice; the device writes whole words.
                let token = unsafe { made.add(seen).read_volatile() };
                if token == 0 {
                    break;
                }
                see(token - 1);
                seen += 1;
            }
            if done {
                break;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        let millis = start.elapsed_ms(&end).map_err(CudaError::Dead)?;
        Ok(Duration::from_secs_f64(f64::from(millis) / 1e3))
    }

    /// What the watchdog wrote.
    fn watch(&mut self) -> Result<(), CudaError> {
        let fault = self.stream.clone_dtoh(&self.fault).map_err(CudaError::Dead)?;
        let &[abort, worker, task, kind, step, place, wanted, found] = fault.as_slice() else { return Ok(()) };
        if abort == 0 {
            return Ok(());
        }
        let label = self
            .plan
            .program
            .tasks
            .get(task as usize)
            .and_then(|task| task.op)
            .and_then(|op| self.plan.program.ops.get(op.index()));
        let event = match kind {
            1 => format!("packet {place}"),
            2 => format!("ring slot {place} to be filled"),
            3 => format!("ring slot {place} to be read"),
            _ => "no packet: it is slow, not stuck".to_owned(),
        };
        let stuck = Stuck {
            worker,
            task: format!("t{task} ({})", label.map_or("?", String::as_str)),
            event,
            wanted,
            found,
            step,
        };
        self.forget()?;
        Err(CudaError::Stuck(stuck))
    }

    /// Starts the epochs again: no packet is of any step.
    fn forget(&mut self) -> Result<(), CudaError> {
        self.stream.memset_zeros(&mut self.packets)?;
        self.stream.memset_zeros(&mut self.fault)?;
        self.params.epoch = 1;
        Ok(())
    }

    /// The context, for those who measure.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

/// The plan of an instance for a GPU: what [`Vm::new`] makes the image from.
///
/// # Errors
/// [`CudaError::Unsupported`], and those of lowering.
pub fn plan_for(kernel: &Megakernel, instance: &Instance, target: &GpuTarget) -> Result<Plan, CudaError> {
    let graph = kernel.graph()?;
    let lower = |errors| crate::megakernel::MegakernelError::Lower {
        kernel: kernel.name().to_owned(),
        instance: instance.name.clone(),
        errors,
    };
    let unrolled = unroll(graph, instance, &Schedule::default()).map_err(lower)?;
    let decoder = Decoder::find(graph, &unrolled)?;
    Ok(plan(&decoder, &unrolled, Choices { workers: target.multiprocessors, run: 4 })?)
}

fn address<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    slice.device_ptr(stream).0
}

fn bound<'b>(plan: &Plan, bindings: &'b Bindings, id: BufferId) -> Result<&'b Weight, CudaError> {
    let name = plan.program.buffers.get(id.index()).map(|buffer| buffer.name.as_str()).unwrap_or_default();
    bindings.weights().get(name).ok_or_else(|| CudaError::Unbound(name.to_owned()))
}

fn to_bf16(weight: &Weight) -> Vec<bf16> {
    let mut out = Vec::with_capacity(weight.len());
    for row in 0..weight.rows() {
        match weight.row(row) {
            Row::BF16(row) => out.extend_from_slice(row),
            other => out.extend(other.to_f32().iter().map(|&value| bf16::from_f32(value))),
        }
    }
    out
}

/// Packs the workers' tapes on all cores and copies each to the device.
fn upload_tapes(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    image: &Image,
    bindings: &Bindings,
    progress: &mut dyn FnMut(f64),
) -> Result<CudaSlice<u8>, CudaError> {
    let workers = plan.choices.workers as usize;
    let depth = depth(plan);
    let mut weights = Vec::new();
    for phase in &plan.phases {
        let Phase::Gemv(gemv) = phase else {
            weights.push(Vec::new());
            continue;
        };
        weights.push(gemv.weights.iter().map(|&id| bound(plan, bindings, id)).collect::<Result<Vec<&Weight>, _>>()?);
    }
    let pack = |worker: usize| {
        let mut out = Vec::new();
        for piece in &image.pieces[worker] {
            if let Some(Phase::Gemv(gemv)) = plan.phases.get(piece.phase) {
                tape::pack(gemv, &weights[piece.phase], piece.units.clone(), depth, &mut out);
            }
        }
        out
    };
    let mut tape = stream.alloc_zeros::<u8>(image.tape_at.last().copied().unwrap_or(0) as usize)?;
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(workers);
    let (send, receive) = std::sync::mpsc::sync_channel::<(usize, Vec<bf16>)>(threads);
    std::thread::scope(|scope| -> Result<(), CudaError> {
        for _ in 0..threads {
            let (send, next, pack) = (send.clone(), &next, &pack);
            scope.spawn(move || {
                loop {
                    let worker = next.fetch_add(1, Ordering::Relaxed);
                    if worker >= workers || send.send((worker, pack(worker))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let receive = receive;
        for (done, (worker, packed)) in receive.iter().enumerate() {
            let (start, end) = (image.tape_at[worker] as usize, image.tape_at[worker + 1] as usize);
            // SAFETY: bf16 has no padding and every byte of the vector is initialised.
            let bytes = unsafe { core::slice::from_raw_parts(packed.as_ptr().cast::<u8>(), packed.len() * 2) };
            if bytes.len() != end - start {
                return Err(CudaError::Image { task: 0, what: "a tape has other bytes than its records" });
            }
            stream.memcpy_htod(bytes, &mut tape.slice_mut(start..end))?;
            stream.synchronize()?;
            progress((done + 1) as f64 / workers as f64);
        }
        Ok(())
    })?;
    Ok(tape)
}
