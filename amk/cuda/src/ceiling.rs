//! The peak rate at which a GPU reads its memory, the baseline for the time of a step.

use super::code;
use super::device::{check_room, open};
use super::error::CudaError;
use super::image::abi::CHUNK;
use super::lines;
use super::memory::address;
use super::nvrtc::{compile_cached, kernel};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, sys};
use std::path::Path;
use std::sync::Arc;

/// Bytes read by all workers together: far more than the L2 cache holds.
const BYTES: u64 = 4 << 30;
/// Bytes generated on the host; the rest are copies.
const SEED_BYTES: usize = 64 << 20;
/// Threads of the kernel: 16 warps that read and one that issues the copies.
const THREADS: u32 = 17 * 32;
/// Launches before timing starts.
const WARM_UP: usize = 2;

/// A bare ring on the first GPU, ready to be timed.
pub struct Ceiling {
    stream: Arc<CudaStream>,
    function: CudaFunction,
    data: CudaSlice<u8>,
    out: CudaSlice<u32>,
    workers: u32,
    chunks: u32,
    slots: u32,
}

impl Ceiling {
    /// Compiles the kernel `amk_ceiling` and fills memory with random bytes.
    ///
    /// # Errors
    /// If there is no GPU, no NVRTC or too little memory, or a driver call fails.
    pub fn new(cache: &Path) -> Result<Self, CudaError> {
        let (context, target) = open()?;
        let (workers, slots) = (target.multiprocessors, target.ring.slots);
        let code = compile_cached(&lines::numbered(&code::CEILING.text()), target.architecture, cache)?;
        let function = kernel(&context, code, "amk_ceiling", |_| slots * CHUNK)?;
        check_room(&context, BYTES)?;
        let chunks = (BYTES / u64::from(workers) / u64::from(CHUNK)) as u32;
        let stream = context.new_stream()?;
        let len = chunks as usize * workers as usize * CHUNK as usize;
        let mut data = stream.alloc_zeros::<u8>(len)?;
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let seed: Vec<u8> = (0..SEED_BYTES / 8)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .collect();
        for from in (0..len).step_by(SEED_BYTES) {
            let part = SEED_BYTES.min(len - from);
            stream.memcpy_htod(&seed[..part], &mut data.slice_mut(from..from + part))?;
        }
        let out = stream.alloc_zeros::<u32>(1)?;
        stream.synchronize()?;
        let ceiling = Self { stream, function, data, out, workers, chunks, slots };
        for _ in 0..WARM_UP {
            ceiling.sample()?;
        }
        Ok(ceiling)
    }

    /// Reads all bytes once and returns the rate in bytes per second.
    ///
    /// # Errors
    /// Failing driver calls.
    pub fn sample(&self) -> Result<f64, CudaError> {
        let config = LaunchConfig {
            grid_dim: (self.workers, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: self.slots * CHUNK,
        };
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let (data, out) = (address(&self.data, &self.stream), address(&self.out, &self.stream));
        let start = self.stream.record_event(timed)?;
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&data).arg(&self.chunks).arg(&self.slots).arg(&out);
        // SAFETY: the parameters match `amk_ceiling`. Every block reads `chunks` chunks of `data`,
        // which holds them for all workers, and `self` outlives the launch because `elapsed_ms`
        // waits for it.
        unsafe { launch.launch(config) }?;
        let end = self.stream.record_event(timed)?;
        let seconds = f64::from(start.elapsed_ms(&end)?) / 1e3;
        Ok(self.data.len() as f64 / seconds)
    }
}
