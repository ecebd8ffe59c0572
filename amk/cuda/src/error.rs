//! Errors of the CUDA VM.

use super::layout::LayoutError;
use super::plan::Unsupported;
use super::schedule::ScheduleError;
use amk::MegakernelError;
use amk::tensor::Inputs;
use amk::vm::OtherConstant;
use amk_ir::text::Shown;
use amk_ir::verify::Rejected;
use cudarc::driver::DriverError;

/// An error that keeps the CUDA VM from running, or stopped it.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// No driver is installed.
    #[error(
        "no CUDA driver: `libcuda` is not on this machine; \
         install NVIDIA's driver (580 or newer for CUDA 13, 525 for CUDA 12)"
    )]
    NoDriver,
    /// No device was found.
    #[error("the CUDA driver is there, but sees no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// The device is known not to work.
    #[error("the GPU {device} is not supported: {reason}")]
    Refused {
        /// The device's name.
        device: String,
        /// The reason.
        reason: String,
    },
    /// The device differs from its target record.
    #[error("the GPU {device} is not what the record `{target}` says: {what} is {found}, expected {expected}")]
    Mismatch {
        /// The device's name.
        device: String,
        /// The record.
        target: &'static str,
        /// The property that differs.
        what: &'static str,
        /// The device's value.
        found: u64,
        /// The record's value.
        expected: u64,
    },
    /// NVRTC is missing.
    #[error(
        "no NVRTC: `libnvrtc` is not on this machine; \
         install the CUDA runtime compiler (`pip install nvidia-cuda-nvrtc`) and put its folder on LD_LIBRARY_PATH"
    )]
    NoNvrtc,
    /// NVRTC rejected the generated source.
    #[error("NVRTC does not compile the device code:\n{log}")]
    Compile {
        /// NVRTC's messages.
        log: String,
    },
    /// The device code does not support the form of the function.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The schedule does not fit the GPU.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The graph cannot be lowered.
    #[error(transparent)]
    Megakernel(#[from] MegakernelError),
    /// The verifier rejected the program.
    #[error("the verifier refused the device's program:\n{0}")]
    Rejected(Box<Rejected>),
    /// The decoded image differs from the verified program.
    #[error("the device image is not the verified program: {at}: {what}")]
    Image {
        /// The task, the worker or the table.
        at: String,
        /// The field and the problem with it.
        what: String,
    },
    /// The packed bytes of a tile layout do not unpack to the weight's rows.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A bound layout has a different constant from the program's.
    #[error(transparent)]
    Constant(#[from] OtherConstant),
    /// A weight is missing.
    #[error("nothing is bound to the weight `{}`", Shown(_0))]
    Unbound(String),
    /// A weight asks for inputs that no device body supports.
    #[error("the weight bound to `{}` takes inputs in {inputs}, which is for a CPU", Shown(weight))]
    Inputs {
        /// The weight.
        weight: String,
        /// Its inputs.
        inputs: Inputs,
    },
    /// A weight differs in length from its buffer.
    #[error("the weight bound to `{}` has {found} elements, expected {expected}", Shown(name))]
    Misshapen {
        /// The buffer.
        name: String,
        /// Elements of the buffer.
        expected: u64,
        /// Elements of the weight.
        found: u64,
    },
    /// Not enough device memory.
    #[error(
        "out of device memory: {needed} bytes are needed, {free} of {total} are free; \
         use a shorter context or a larger GPU"
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Total bytes of the device.
        total: u64,
    },
    /// A VM with rows was requested, and the schedule has none.
    #[error("the schedule has no rows; give it some: {{\"rows\": {{\"most\": 8}}}}")]
    NoRows,
    /// A VM of one row was requested, and the schedule has rows.
    #[error("the schedule has rows, and this runs steps of one; `amk serve` and `amk generate --prompts` have rows")]
    Rows,
    /// The rows of a step break its contract.
    #[error(transparent)]
    Contract(amk::rows::contract::Breach),
    /// A page does not exist.
    #[error("page {page}{group} does not exist; there are {pages}")]
    NoPage {
        /// The group.
        group: amk::rows::GroupName,
        /// The page.
        page: u32,
        /// Pages that exist.
        pages: usize,
    },
    /// The requested positions are outside the context.
    #[error("positions {from}..{to} are outside the context of {positions}")]
    Positions {
        /// First position.
        from: u64,
        /// One past the last.
        to: u64,
        /// Positions of the context.
        positions: u64,
    },
    /// A token is outside an embedding table.
    #[error("token {token} is outside the vocabulary of {tokens}")]
    Token {
        /// The token.
        token: u32,
        /// Rows of the table.
        tokens: u32,
    },
    /// No trace is available.
    #[error("there is no trace: {0}")]
    Trace(&'static str),
    /// A launch was given no start token.
    #[error("a launch needs at least one token and one step")]
    Empty,
    /// A wait did not end.
    #[error("{0}")]
    Stuck(Stuck),
    /// The context is dead: every later call fails, and the driver cannot give this process a new
    /// one.
    #[error(
        "the CUDA context died ({0}); \
         the GPU is lost to this process, which can go on with the CPU VM; a new process has it again"
    )]
    Dead(DriverError),
    /// A driver call failed.
    #[error("the CUDA driver says: {0}")]
    Driver(DriverError),
    /// The cubin cache is unusable.
    #[error("the cache {path} cannot be used: {cause}")]
    Cache {
        /// The file.
        path: String,
        /// The reason.
        cause: std::io::Error,
    },
}

/// The wait that was pending at the deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The worker.
    pub worker: u32,
    /// The task, as printed in the program.
    pub task: String,
    /// The event or packet it waited for.
    pub event: String,
    /// The expected epoch. For a counter, the number of arrivals since the packets were cleared.
    pub wanted: u32,
    /// The value found instead.
    pub found: u32,
    /// The step of the launch.
    pub step: u32,
}

impl core::fmt::Display for Stuck {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { worker, task, event, wanted, found, step } = self;
        write!(
            f,
            "step {step} of the launch did not end: worker {worker}, task {task}, waited for {event}: \
             wanted {wanted}, found {found}"
        )
    }
}

impl From<DriverError> for CudaError {
    fn from(error: DriverError) -> Self {
        use cudarc::driver::sys::cudaError_enum as Code;
        match error.0 {
            // After these errors every call in the context fails.
            Code::CUDA_ERROR_ECC_UNCORRECTABLE
            | Code::CUDA_ERROR_ILLEGAL_ADDRESS
            | Code::CUDA_ERROR_LAUNCH_TIMEOUT
            | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | Code::CUDA_ERROR_ASSERT
            | Code::CUDA_ERROR_HARDWARE_STACK_ERROR
            | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | Code::CUDA_ERROR_MISALIGNED_ADDRESS
            | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | Code::CUDA_ERROR_INVALID_PC
            | Code::CUDA_ERROR_LAUNCH_FAILED => Self::Dead(error),
            _ => Self::Driver(error),
        }
    }
}

impl From<Box<Rejected>> for CudaError {
    fn from(rejected: Box<Rejected>) -> Self {
        Self::Rejected(rejected)
    }
}
