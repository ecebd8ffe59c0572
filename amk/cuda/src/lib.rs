//! The CUDA VM: a whole decode step in one persistent launch.
//!
//! ```text
//! Graph ─unroll─► calls ─group, plan─► Program ─verify─► Verified ─image─► records, tapes ─► one cooperative launch
//! ```
//!
//! The VM knows no instruction: crates register fused bodies, their records and their device code
//! ([`set::BodySet`]). The generated `dispatch` ([`source`]) specialises it for the program.
//! Building this crate does not require CUDA. The driver and NVRTC are loaded at run time, and if
//! one is missing, the error explains what to install.

mod body;
mod boxes;
mod ceiling;
mod code;
mod content;
pub mod cost;
mod device;
mod error;
mod extensions;
mod fault;
mod fill;
pub mod image;
mod launch;
mod layout;
pub mod lines;
mod memory;
pub mod nvrtc;
mod options;
mod pages;
mod params;
mod plain;
pub mod plan;
mod pointwise;
mod ring;
mod rows;
mod run;
mod schedule;
pub mod set;
pub mod source;
mod start;
mod stream;
pub mod tape;
mod target;
mod trace;

pub use ceiling::Ceiling;
pub use cost::{CostModel, Prediction};
pub use device::{OpenGpu, probe};
pub use error::{CudaError, Stuck};
pub use extensions::Extensions;
pub use image::Image;
pub use inventory;
pub use launch::{Vm, plan_for};
pub use layout::{Layout, LayoutError, PADDING, bf16_bytes};

pub use code::DeviceCode;
pub use nvrtc::{Cubin, compile};
pub use options::{Faults, VmOptions};
pub use pages::{Pool, Pools};
pub use params::Params;
pub use plan::{Precision, Unsupported, WeightForms};
pub use pointwise::{Pointwise, PointwiseError};
pub use ring::{LONGEST_SLOT, SLOT_ALIGNED, row_scratch};
pub use rows::{RowsVm, with_exchange};
pub use run::{Run, RunOptions};
pub use schedule::{MOST_RING_SLOTS, ScheduleError, is_wide};
pub use start::StartTimes;
pub use stream::{Stream, StreamError};
pub use target::{GpuTarget, Refused, TARGETS};
pub use trace::{LoaderWaits, OpSummary, Parts, Summary, TaskTrace, Trace};
