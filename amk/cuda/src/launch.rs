//! The VM: launches and their results.

use super::device::open;
use super::error::CudaError;
use super::fault;
use super::image::Image;
use super::image::abi::VmParams;
use super::memory::{Memory, Resident, address, logits};
use super::nvrtc::{Cubin, compile_cached, kernel};
use super::options::VmOptions;
use super::params::Params;
use super::plan::{Plan, Precision, WeightForms, plan};
use super::ring::RingMemory;
use super::run::{Run, RunOptions};
use super::set::{body_sets, sampling};
use super::source::{generate_for, uses_all_memory};
use super::target::GpuTarget;
use super::trace::{self, Trace};
use amk::Megakernel;
use amk::rows::PoolSize;
use amk::vm::Bindings;
use amk_ir::DType;
use amk_ir::graph::Instance;
use amk_ir::schedule::Schedule;
use amk_ir::verify::{Verified, verify_with};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg, sys,
};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A decoder on a GPU.
pub struct Vm {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    function: CudaFunction,
    target: &'static GpuTarget,
    plan: Plan,
    verified: Verified,
    params: VmParams,
    tokens: PinnedHostSlice<u32>,
    logits: Option<CudaSlice<f32>>,
    host_logits: Vec<f32>,
    memory: Memory,
    image: Image,
    trace: Option<CudaSlice<u64>>,
    options: VmOptions,
}

/// The first `len` of each `stride` floats.
fn unpadded(rows: &[f32], stride: usize, len: usize) -> Vec<f32> {
    rows.chunks_exact(stride).flat_map(|row| &row[..len]).copied().collect()
}

/// The token reported for a step whose draw the probes left undecided.
pub(super) const UNDECIDED: u32 = u32::MAX;

impl Vm {
    /// Loads a decoder onto the first GPU. `cache` keeps compiled device code; `progress` is called
    /// with the fraction of weights packed.
    ///
    /// # Errors
    /// Any [`CudaError`] except the errors of a run.
    pub fn new(
        kernel: &Megakernel,
        instance: &Instance,
        bindings: &Bindings,
        cache: &Path,
        options: &VmOptions,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, CudaError> {
        let (context, target) = open()?;
        let ready = Ready::new(kernel, instance, target, options, &WeightForms::of(options.precision, bindings), None)?;
        if ready.plan.rows().is_some() {
            return Err(CudaError::Rows);
        }
        bindings.check(ready.verified.constants())?;
        // SAFETY: memory is used on a single stream, also by VMs that share it.
        unsafe { context.disable_event_tracking() };
        let function = load(&context, target, &ready.plan, ready.code(target, cache, options)?)?;
        let stream = context.new_stream()?;
        let Ready { plan, image, .. } = &ready;
        let own = Memory::bytes(plan, image) + Memory::packet_bytes(image);
        let resident = Resident::upload(&context, &stream, plan, image, bindings, own, progress)?;
        Self::start(context, stream, target, function, ready, Arc::new(resident), options.clone())
    }

    /// Returns the VM of a program whose weights are on the device.
    fn start(
        context: Arc<CudaContext>,
        stream: Arc<CudaStream>,
        target: &'static GpuTarget,
        function: CudaFunction,
        ready: Ready,
        resident: Arc<Resident>,
        options: VmOptions,
    ) -> Result<Self, CudaError> {
        let Ready { plan, verified, image } = ready;
        let memory = Memory::around(resident, &stream, &plan, &image, None)?;
        // SAFETY: every word is written before it is read: `run` clears what a launch may write.
        let tokens = unsafe {
            context.alloc_pinned_with_flags::<u32>(plan.sizes.context as usize, sys::CU_MEMHOSTALLOC_DEVICEMAP)
        }?;
        let trace = trace::room(&stream, &plan.program, options.trace)?;
        let params = VmParams {
            tokens: tokens.as_ptr()? as u64,
            trace: trace.as_ref().map_or(0, |trace| address(trace, &stream)),
            ..memory.params(&image, &stream)
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
            tokens,
            logits: None,
            host_logits: Vec::new(),
            memory,
            image,
            trace,
            options,
        })
    }

    /// Returns a second VM of the same decoder with another schedule, over the same weights and
    /// caches. A sequence can continue on either VM, but their launches must alternate. Returns
    /// `None` if the schedule places weights or caches differently, which requires a new VM.
    ///
    /// # Errors
    /// As for [`Vm::new`].
    pub fn with_schedule(
        &self,
        kernel: &Megakernel,
        instance: &Instance,
        cache: &Path,
        schedule: &Schedule,
    ) -> Result<Option<Self>, CudaError> {
        let options = VmOptions { schedule: Some(schedule.clone().into()), ..self.options.clone() };
        let ready = Ready::new(kernel, instance, self.target, &options, &self.plan.forms, Some(&self.verified))?;
        if ready.plan.phases != self.plan.phases || !ready.image.places_as(&self.image) {
            return Ok(None);
        }
        let function = load(&self.context, self.target, &ready.plan, ready.code(self.target, cache, &options)?)?;
        let resident = self.memory.resident.clone();
        Self::start(self.context.clone(), self.stream.clone(), self.target, function, ready, resident, options)
            .map(Some)
    }

    /// Returns the verified program of the image.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Returns the GPU's target record.
    pub fn target(&self) -> &'static GpuTarget {
        self.target
    }

    /// Returns the plan of the program.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the schedule in use.
    pub fn schedule(&self) -> &Schedule {
        &self.plan.schedule
    }

    /// Returns the precision in use.
    pub fn precision(&self) -> Precision {
        self.options.precision
    }

    /// Returns the context length in positions.
    pub fn positions(&self) -> usize {
        self.plan.sizes.context as usize
    }

    /// Returns the bytes of weights that a step reads.
    pub fn weight_bytes(&self) -> u64 {
        let of_phases = self.plan.phases.iter().map(|phase| phase.kind().weight_bytes(&self.plan));
        of_phases.sum()
    }

    /// Returns the bytes of the cache that a step at `pos` reads.
    pub fn cache_bytes(&self, pos: u32) -> u64 {
        body_sets().iter().map(|set| set.shared.state_bytes(&self.plan, pos)).sum()
    }

    /// Runs one step and returns the logits `[VOCAB]` for the token after `token` at `pos`.
    ///
    /// # Errors
    /// As for [`Vm::run`].
    pub fn step(&mut self, token: u32, pos: u32) -> Result<&[f32], CudaError> {
        let run = self.run(&[token], pos, 1, &RunOptions { logits: true, ..RunOptions::default() }, &mut |_| {})?;
        self.host_logits = run.logits;
        Ok(&self.host_logits)
    }

    /// Launches `steps` steps from position `pos`. The first steps take the tokens `tokens`, each
    /// later one the token chosen before it. `see` is called with each chosen token as the device
    /// produces it.
    ///
    /// # Errors
    /// Positions outside the context, a token outside the vocabulary, a wait that does not end, or
    /// a failing driver call.
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
        let known = self.plan.sizes.tokens;
        if let Some(&token) = tokens.iter().find(|&&token| token >= known) {
            return Err(CudaError::Token { token, tokens: known });
        }
        if self.params.epoch > u32::MAX / 2 {
            self.forget()?;
        }
        let forced = self.stream.clone_htod(tokens)?;
        let (vocab, stride) = (self.plan.sizes.vocab as usize, self.plan.sizes.padded_vocab() as usize);
        let keeps = sampling().is_some_and(|sampling| sampling.keeps_logits(options));
        let rows = if options.logits { steps as usize } else { usize::from(keeps) };
        if rows > 0 {
            let len = rows * stride;
            if self.logits.as_ref().is_none_or(|logits| logits.len() < len) {
                self.logits = Some(logits(&self.stream, len)?);
            }
        }
        let mut params = self.params;
        params.forced = address(&forced, &self.stream);
        params.forced_count = tokens.len() as u32;
        params.logits = self.logits.as_ref().filter(|_| rows > 0).map_or(0, |logits| address(logits, &self.stream));
        params.logit_stride = if options.logits { stride as u32 } else { 0 };
        params.budget_ns = u64::try_from(options.time_for(steps).as_nanos()).unwrap_or(u64::MAX);
        params.pos = pos;
        params.steps = steps;
        params.stop_count = options.stops.len().min(params.stops.len()) as u32;
        params.stops.iter_mut().zip(&options.stops).for_each(|(to, &stop)| *to = stop);
        self.tokens.as_mut_slice()?[..steps as usize].fill(0);
        let time = self.launch(&self.memory.all_params(&self.stream, &self.image, &params, options), steps, see)?;
        let made = &self.tokens.as_slice()?[..steps as usize];
        // A launch that ends at a stop token has fewer steps, and counters count only these.
        self.params.epoch += made.iter().take_while(|&&token| token != 0).count() as u32;
        self.watch(params.epoch)?;
        let made = &self.tokens.as_slice()?[..steps as usize];
        let tokens: Vec<u32> =
            made.iter().take_while(|&&token| token != 0 && token != UNDECIDED).map(|&token| token - 1).collect();
        let row = if options.logits { tokens.len() } else { 0 };
        let undecided = made.get(tokens.len()) == Some(&UNDECIDED);
        let fetch = |rows: Range<usize>| match &self.logits {
            Some(logits) => {
                let padded = self.stream.clone_dtoh(&logits.slice(rows.start * stride..rows.end * stride))?;
                Ok(if stride == vocab { padded } else { unpadded(&padded, stride, vocab) })
            }
            None => Ok::<_, CudaError>(Vec::new()),
        };
        Ok(Run {
            undecided: if undecided { Some(fetch(row..row + 1)?) } else { None },
            logits: if options.logits { fetch(0..steps as usize)? } else { Vec::new() },
            tokens,
            time,
        })
    }

    /// Launches `steps` steps from position `pos` and returns the trace of the last one.
    ///
    /// # Errors
    /// As for [`Vm::run`], and [`CudaError::Trace`] if the VM was made without
    /// [`VmOptions::trace`].
    pub fn trace(&mut self, pos: u32, steps: u32) -> Result<Trace, CudaError> {
        let words = self.trace.as_mut().ok_or(CudaError::Trace("the VM was made without traces"))?;
        self.stream.memset_zeros(words)?;
        self.run(&[1], pos, steps, &RunOptions::default(), &mut |_| {})?;
        let words = self.trace.as_ref().map(|words| self.stream.clone_dtoh(words)).transpose()?.unwrap_or_default();
        Trace::of_step(&self.plan, pos + steps - 1, &words)
    }

    fn launch(&self, params: &Params, steps: u32, see: &mut dyn FnMut(u32)) -> Result<Duration, CudaError> {
        let config = LaunchConfig {
            grid_dim: (self.plan.schedule.workers, 1, 1),
            block_dim: (self.target.threads(), 1, 1),
            shared_mem_bytes: RingMemory::of(&self.plan).bytes(),
        };
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let params = params.block();
        let start = self.stream.record_event(timed)?;
        // SAFETY: the parameters match `amk_vm`. What they point to outlives the launch, which ends
        // before this function returns. The image encodes a verified program.
        unsafe { self.stream.launch_builder(&self.function).arg(&params).launch_cooperative(config) }?;
        let end = self.stream.record_event(timed)?;
        let made = self.tokens.as_ptr()?;
        let mut seen = 0;
        loop {
            let done = end.try_is_complete()?;
            while seen < steps as usize {
                // SAFETY: `seen` is below the length of the pinned slice; the device writes whole
                // words.
                let token = unsafe { made.add(seen).read_volatile() };
                if token == 0 || token == UNDECIDED {
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
        let millis = start.elapsed_ms(&end)?;
        Ok(Duration::from_secs_f64(f64::from(millis) / 1e3))
    }

    /// Returns the fault of the launch whose first epoch was `epoch`.
    fn watch(&mut self, epoch: u32) -> Result<(), CudaError> {
        let words = self.stream.clone_dtoh(&self.memory.fault)?;
        let Image { packet_at, row_words, events, .. } = &self.image;
        let Some(stuck) = fault::decode(&words, &self.plan.program, packet_at, *row_words, events, epoch) else {
            return Ok(());
        };
        self.forget()?;
        Err(CudaError::Stuck(stuck))
    }

    /// Restarts the epochs: clears all packets and counters.
    fn forget(&mut self) -> Result<(), CudaError> {
        self.params.epoch = 1;
        self.memory.forget(&self.stream)
    }

    /// Returns a copy of a state of generic tasks, such as `kv.layers[3].k`. `None` if there is
    /// none of this name; the cache of fused attention has its own layout.
    ///
    /// # Errors
    /// Failing driver calls.
    pub fn state(&self, name: &str) -> Result<Option<Vec<f32>>, CudaError> {
        self.memory.state(&self.stream, &self.plan, &self.image, name)
    }

    /// Returns the context, for measurements.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

/// A verified program ready to launch, and its image.
pub(super) struct Ready {
    pub(super) plan: Plan,
    pub(super) verified: Verified,
    pub(super) image: Image,
}

impl Ready {
    /// Uses the schedule of the options, or the instance's, or else its function's. `known` was
    /// verified before.
    fn new(
        kernel: &Megakernel,
        instance: &Instance,
        target: &GpuTarget,
        options: &VmOptions,
        forms: &WeightForms,
        known: Option<&Verified>,
    ) -> Result<Self, CudaError> {
        Self::with_pages(kernel, instance, target, options, forms, known, None)
    }

    /// Like [`Self::new`], with pages for the states of programs with rows, beside steps of up to
    /// this many rows.
    pub(super) fn with_pages(
        kernel: &Megakernel,
        instance: &Instance,
        target: &GpuTarget,
        options: &VmOptions,
        forms: &WeightForms,
        known: Option<&Verified>,
        pages: Option<(&PoolSize, u32)>,
    ) -> Result<Self, CudaError> {
        let graph = kernel.graph()?;
        let fields = options.schedule.as_ref().unwrap_or(instance.schedule_in(graph));
        let schedule = target.complete(fields);
        target.check(&schedule)?;
        let mut plan = plan_for(kernel, instance, &schedule, forms.clone())?;
        if let Some((pages, rows)) = pages {
            plan.set_pages(pages, rows);
        }
        let verified = match known.filter(|known| *known.program() == plan.program) {
            Some(known) => known.clone(),
            None => verify_with(plan.program.clone(), plan.constants.clone()).map_err(Box::new)?,
        };
        let image = Image::build(&verified, &plan)?;
        Ok(Self { plan, verified, image })
    }

    /// Compiles its code, or takes it from the cache.
    pub(super) fn code(&self, target: &GpuTarget, cache: &Path, options: &VmOptions) -> Result<Cubin, CudaError> {
        compile_cached(&generate_for(&self.plan, target, options), target.architecture, cache)
    }
}

/// Loads the code of a plan.
pub(super) fn load(
    context: &Arc<CudaContext>,
    target: &GpuTarget,
    plan: &Plan,
    code: Cubin,
) -> Result<CudaFunction, CudaError> {
    let ring = RingMemory::of(plan).bytes();
    let bytes = |own| if uses_all_memory(plan) { target.shared_bytes.saturating_sub(own).max(ring) } else { ring };
    kernel(context, code, "amk_vm", bytes)
}

/// Returns the plan of an instance under a schedule, from which [`Vm::new`] makes the image.
///
/// # Errors
/// [`CudaError::Unsupported`] and errors of lowering.
pub fn plan_for(
    kernel: &Megakernel,
    instance: &Instance,
    schedule: &Schedule,
    forms: impl Into<WeightForms>,
) -> Result<Plan, CudaError> {
    let forms = forms.into();
    let weights = match forms.precision {
        Precision::BF16 => DType::BF16,
        Precision::F32 => DType::F32,
    };
    let unrolled = kernel.unrolled(instance, &Schedule { weights, cache: schedule.cache, ..Schedule::default() })?;
    Ok(plan(kernel.graph()?, &unrolled, schedule, &forms)?)
}
