//! The VM of programs with rows: a launch a step.

use super::device::open;
use super::error::CudaError;
use super::fault;
use super::image::Image;
use super::image::abi::{CHUNK, RowWords, VmParams};
use super::launch::{Ready, load};
use super::memory::{Memory, Resident, address};
use super::options::VmOptions;
use super::params::Params;
use super::plan::{Plan, WeightForms};
use super::run::RunOptions;
use super::schedule::row_scratch;
use super::target::GpuTarget;
use amk::Megakernel;
use amk::rows::{PageEdit, PlacedRow, RowLimits, RowVm, contract};
use amk::vm::Bindings;
use amk_ir::graph::Instance;
use amk_ir::verify::Verified;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg, sys,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A decoder on a GPU whose steps have rows. Make a [`amk::session::Session`] of it.
pub struct RowsVm {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    function: CudaFunction,
    target: &'static GpuTarget,
    plan: Plan,
    verified: Verified,
    image: Image,
    memory: Memory,
    params: VmParams,
    logits: CudaSlice<f32>,
    /// The logits of the wanted rows of the last step, in their order.
    host_logits: PinnedHostSlice<f32>,
    /// Rows and page tables of a step.
    rows: CudaSlice<u32>,
    /// The number of each wanted row of the last step.
    wanted: HashMap<usize, usize>,
    time: Duration,
}

/// Words of a row.
const ROW_WORDS: usize = size_of::<RowWords>() / 4;

/// Timeout of a step.
const DEADLINE: Duration = Duration::from_secs(20);

impl RowsVm {
    /// Loads a decoder onto the first GPU, for steps of up to as many rows as the options' schedule
    /// has, over `pages` pages of [`amk::rows::PAGE`] positions. `cache` keeps compiled device
    /// code; `progress` is called with the fraction of weights packed.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] where a call has no body for rows, and as [`super::Vm::new`].
    pub fn new(
        kernel: &Megakernel,
        instance: &Instance,
        bindings: &Bindings,
        cache: &Path,
        options: &VmOptions,
        pages: u32,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, CudaError> {
        let (context, target) = open()?;
        let forms = WeightForms::of(options.precision, bindings);
        let Ready { plan, verified, image } =
            Ready::with_pages(kernel, instance, target, options, &forms, None, pages)?;
        let rows = plan.rows().ok_or(CudaError::NoRows)?;
        bindings.check(verified.constants())?;
        // SAFETY: memory is used on a single stream.
        unsafe { context.disable_event_tracking() };
        let function = load(&context, target, &plan, cache, options)?;
        let stream = context.new_stream()?;
        let resident = Resident::upload(&context, &stream, &plan, &image, bindings, progress)?;
        let memory = Memory::around(Arc::new(resident), &stream, &plan, &image)?;
        let len = rows as usize * plan.sizes.vocab as usize;
        let logits = stream.alloc_zeros::<f32>(len)?;
        // SAFETY: only what a step has copied there is read.
        let host_logits = unsafe { context.alloc_pinned_with_flags::<f32>(len, sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        let table = RowLimits::pages_of(plan.sizes.context as usize);
        let row_words = stream.alloc_zeros::<u32>(rows as usize * (ROW_WORDS + table))?;
        let params = VmParams {
            logits: address(&logits, &stream),
            logit_stride: plan.sizes.vocab,
            steps: 1,
            budget_ns: DEADLINE.as_nanos() as u64,
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
            image,
            memory,
            params,
            logits,
            host_logits,
            rows: row_words,
            wanted: HashMap::new(),
            time: Duration::ZERO,
        })
    }

    /// Returns the verified program of the image.
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Returns the plan of the program.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the GPU's target record.
    pub fn target(&self) -> &'static GpuTarget {
        self.target
    }

    /// Returns the context, for measurements.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the time of the last step on the device.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Uploads rows and page tables. Returns the addresses of both.
    fn upload(&mut self, rows: &[PlacedRow]) -> Result<[u64; 2], CudaError> {
        let most = RowLimits::pages_of(self.plan.sizes.context as usize);
        self.wanted.clear();
        let mut words = Vec::with_capacity(rows.len() * ROW_WORDS);
        let mut tables: Vec<u32> = Vec::new();
        let mut known: HashMap<&[u32], u32> = HashMap::new();
        for (number, row) in rows.iter().enumerate() {
            let pages = *known.entry(&row.pages).or_insert_with(|| {
                let first = tables.len() as u32;
                tables.extend(row.pages.iter().take(most));
                first
            });
            let wanted = if row.wanted {
                let count = self.wanted.len();
                self.wanted.insert(number, count);
                count as u32 + 1
            } else {
                0
            };
            let RowWords { token, pos, pages, wanted } = RowWords { token: row.token.0, pos: row.pos.0, pages, wanted };
            words.extend([token, pos, pages, wanted]);
        }
        let at = words.len() as u64 * 4;
        words.extend(tables);
        self.stream.memcpy_htod(&words, &mut self.rows.slice_mut(0..words.len()))?;
        let rows = address(&self.rows, &self.stream);
        Ok([rows, rows + at])
    }

    fn launch(&self, params: &Params) -> Result<Duration, CudaError> {
        let ring = self.plan.schedule.ring.slots * CHUNK;
        let config = LaunchConfig {
            grid_dim: (self.plan.schedule.workers, 1, 1),
            block_dim: (self.target.threads(), 1, 1),
            shared_mem_bytes: ring + row_scratch(self.plan.rows().unwrap_or(0)),
        };
        let params = params.block();
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.stream.record_event(timed)?;
        // SAFETY: the parameters match `amk_vm`. What they point to outlives the launch, which ends
        // before this function returns. The image encodes a verified program, and the rows keep
        // the contract of a step.
        unsafe { self.stream.launch_builder(&self.function).arg(&params).launch_cooperative(config) }?;
        let end = self.stream.record_event(timed)?;
        let millis = start.elapsed_ms(&end)?;
        Ok(Duration::from_secs_f64(f64::from(millis) / 1e3))
    }

    /// Returns the fault of the launch with this epoch, after which packets start anew.
    fn check_fault(&mut self, epoch: u32) -> Result<(), CudaError> {
        if self.stream.clone_dtoh(&self.memory.fault.slice(0..1))? == [0] {
            return Ok(());
        }
        let words = self.stream.clone_dtoh(&self.memory.fault)?;
        let Image { packet_at, events, .. } = &self.image;
        let stuck = fault::decode(&words, &self.plan.program, packet_at, events, epoch);
        if stuck.is_some() {
            self.forget()?;
        }
        stuck.map_or(Ok(()), |stuck| Err(CudaError::Stuck(stuck)))
    }

    /// Restarts the epochs: clears all counters.
    fn forget(&mut self) -> Result<(), CudaError> {
        self.params.epoch = 1;
        self.memory.forget(&self.stream)
    }
}

impl RowVm for RowsVm {
    type Error = CudaError;

    fn limits(&self) -> RowLimits {
        RowLimits {
            rows: self.plan.rows().unwrap_or(0) as usize,
            positions: self.plan.sizes.context as usize,
            pages: self.plan.pages as usize,
        }
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), CudaError> {
        self.memory.edit_page(&self.stream, self.plan.pages, edit)
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), CudaError> {
        contract::check(self.limits(), &rows).map_err(CudaError::Contract)?;
        let known = self.plan.sizes.tokens;
        if let Some(row) = rows.iter().find(|row| row.token.0 >= known) {
            return Err(CudaError::Token { token: row.token.0, tokens: known });
        }
        if self.params.epoch > u32::MAX / 2 {
            self.forget()?;
        }
        let [row_words, page_tables] = self.upload(&rows)?;
        let params = VmParams { rows: row_words, page_tables, row_count: rows.len() as u32, ..self.params };
        self.time = self.launch(&self.memory.all_params(&self.stream, &self.image, &params, &RunOptions::default()))?;
        self.params.epoch += 1;
        self.check_fault(params.epoch)?;
        let len = self.wanted.len() * self.plan.sizes.vocab as usize;
        self.stream.memcpy_dtoh(&self.logits.slice(0..len), &mut self.host_logits)?;
        Ok(self.stream.synchronize()?)
    }

    fn logits(&self, row: usize) -> &[f32] {
        let vocab = self.plan.sizes.vocab as usize;
        let all = self.host_logits.as_slice().unwrap_or(&[]);
        let own = |number: &usize| all.get(number * vocab..(number + 1) * vocab);
        self.wanted.get(&row).and_then(own).unwrap_or(&[])
    }
}
