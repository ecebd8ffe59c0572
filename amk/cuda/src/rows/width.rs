//! A program for some of the steps, and its launches.

use crate::error::CudaError;
use crate::fault;
use crate::image::Image;
use crate::image::abi::VmParams;
use crate::launch::Ready;
use crate::memory::{Memory, Resident, address};
use crate::params::Params;
use crate::plan::Plan;
use crate::run::RunOptions;
use crate::target::GpuTarget;
use crate::trace;
use amk_ir::verify::Verified;
use cudarc::driver::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg, sys};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a step.
const DEADLINE: Duration = Duration::from_secs(20);

/// The program for steps of up to some number of rows, or of exactly one.
pub(super) struct Width {
    function: CudaFunction,
    pub(super) plan: Plan,
    pub(super) verified: Verified,
    pub(super) image: Image,
    pub(super) memory: Memory,
    pub(super) trace: Option<CudaSlice<u64>>,
    params: VmParams,
    /// Bytes of dynamic shared memory.
    shared_bytes: u32,
    /// Whether the last launch was abandoned.
    abandoned: PinnedHostSlice<u32>,
}

impl Width {
    pub(super) fn new(
        stream: &Arc<CudaStream>,
        function: CudaFunction,
        Ready { plan, verified, image }: Ready,
        resident: Arc<Resident>,
        packets: Option<Arc<CudaSlice<u64>>>,
        traced: bool,
    ) -> Result<Self, CudaError> {
        let memory = Memory::around(resident, stream, &plan, &image, packets)?;
        let trace = trace::room(stream, &plan.program, traced)?;
        let params = VmParams {
            trace: trace.as_ref().map_or(0, |trace| address(trace, stream)),
            logit_stride: plan.sizes.padded_vocab(),
            steps: 1,
            budget_ns: DEADLINE.as_nanos() as u64,
            ..memory.params(&image, stream)
        };
        let shared_bytes = function.get_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?.unsigned_abs();
        // SAFETY: a launch copies the word there before it is read.
        let abandoned = unsafe { stream.context().alloc_pinned_with_flags(1, sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        Ok(Self { function, plan, verified, image, memory, trace, params, shared_bytes, abandoned })
    }

    /// Whether it runs steps of `rows` rows.
    pub(super) fn fits(&self, rows: usize) -> bool {
        self.plan.rows().is_some_and(|most| rows <= most as usize)
    }

    /// Runs a step, with the parameters that `step` derives from those common to all steps; `bind`
    /// appends the ones that only this program has, and `host_work` is called while it runs.
    /// Returns the time of the launch.
    pub(super) fn step(
        &mut self,
        stream: &Arc<CudaStream>,
        target: &GpuTarget,
        step: impl FnOnce(VmParams) -> VmParams,
        options: &RunOptions,
        bind: impl FnOnce(&mut Params) -> Result<(), CudaError>,
        host_work: &mut dyn FnMut(),
    ) -> Result<Duration, CudaError> {
        if self.params.epoch > u32::MAX / 2 {
            self.forget(stream)?;
        }
        let mut params = self.memory.all_params(stream, &self.image, &step(self.params), options);
        bind(&mut params)?;
        let time = self.launch(stream, target, &params, host_work)?;
        let epoch = self.params.epoch;
        self.params.epoch += 1;
        self.check_fault(stream, epoch)?;
        Ok(time)
    }

    fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        target: &GpuTarget,
        params: &Params,
        host_work: &mut dyn FnMut(),
    ) -> Result<Duration, CudaError> {
        let config = LaunchConfig {
            grid_dim: (self.plan.schedule.workers, 1, 1),
            block_dim: (target.threads(), 1, 1),
            shared_mem_bytes: self.shared_bytes,
        };
        let params = params.block();
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(timed)?;
        // SAFETY: the parameters match `amk_vm`. What they point to outlives the launch, which ends
        // before this function returns. The image encodes a verified program, and the rows keep
        // the contract of a step.
        unsafe { stream.launch_builder(&self.function).arg(&params).launch_cooperative(config) }?;
        let end = stream.record_event(timed)?;
        stream.memcpy_dtoh(&self.memory.fault.slice(0..1), &mut self.abandoned)?;
        host_work();
        stream.synchronize()?; // which spins; the event of pinned memory would block
        let millis = start.elapsed_ms(&end)?;
        Ok(Duration::from_secs_f64(f64::from(millis) / 1e3))
    }

    /// Returns the fault of the launch with this epoch; the epochs then restart.
    fn check_fault(&mut self, stream: &Arc<CudaStream>, epoch: u32) -> Result<(), CudaError> {
        if self.abandoned.as_slice()? == [0] {
            return Ok(());
        }
        let words = stream.clone_dtoh(&self.memory.fault)?;
        let Image { packet_at, row_words, events, .. } = &self.image;
        let stuck = fault::decode(&words, &self.plan.program, packet_at, *row_words, events, epoch);
        if stuck.is_some() {
            self.forget(stream)?;
        }
        stuck.map_or(Ok(()), |stuck| Err(CudaError::Stuck(stuck)))
    }

    /// Restarts the epochs: clears packets and counters.
    pub(super) fn forget(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        self.params.epoch = 1;
        self.memory.forget(stream)
    }
}
