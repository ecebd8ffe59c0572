//! What the device memory of a program's weights is filled with.

use super::error::CudaError;
use super::fill::{BUFFER, Run, Target, fill};
use super::image::Image;
use super::memory::bound;
use super::plan::Plan;
use super::set::{SharedForm, SharedMemory};
use super::tape::{Part, Piece, Shapes};
use amk::encoding::{BF16, F32};
use amk::tensor::Weight;
use amk::vm::Bindings;
use amk_ir::{BufferId, BufferKind, DType};
use cudarc::driver::{CudaEvent, CudaStream, PinnedHostSlice, result, sys};
use half::bf16;
use std::collections::HashMap;
use std::ops::Range;

/// The weights of a program, by their places on the device.
pub(super) struct Content<'p> {
    plan: &'p Plan,
    bindings: &'p Bindings,
    runs: Vec<Run<Source<'p>>>,
}

/// Where the bytes of a run come from.
enum Source<'p> {
    /// Parts of a tape, one after the other.
    Tape(Vec<Part<'p>>),
    /// Rows of a weight as floats.
    Rows { weight: &'p Weight, rows: Range<usize>, form: SharedForm },
}

impl<'p> Content<'p> {
    pub(super) fn new(plan: &'p Plan, bindings: &'p Bindings) -> Self {
        Self { plan, bindings, runs: Vec::new() }
    }

    /// Adds the weights of shared memory at an address.
    ///
    /// # Errors
    /// [`CudaError::Unbound`] and [`CudaError::Misshapen`].
    pub(super) fn shared(&mut self, memory: &SharedMemory, mut to: u64) -> Result<(), CudaError> {
        let end = to + memory.bytes;
        for &(id, form) in &memory.content {
            to = self.rows(id, form, to, end)?;
        }
        Ok(())
    }

    /// Adds the weights and inputs of generic tasks, whose memory is at an address.
    ///
    /// # Errors
    /// As [`Self::shared`].
    pub(super) fn plain(&mut self, image: &Image, to: u64) -> Result<(), CudaError> {
        let plan = self.plan;
        for &(id, at) in &image.plain.buffers {
            let Some(buffer) = plan.program.buffers.get(id.index()) else { continue };
            let form = if buffer.dtype == DType::BF16 { SharedForm::BF16 } else { SharedForm::F32 };
            if buffer.kind != BufferKind::State {
                self.rows(id, form, to + at, u64::MAX)?;
            }
        }
        Ok(())
    }

    /// Adds the rows of a weight, which end at `end` at most. Returns the address behind them.
    fn rows(&mut self, id: BufferId, form: SharedForm, to: u64, end: u64) -> Result<u64, CudaError> {
        let weight = bound(self.plan, self.bindings, id)?;
        let buffer = &self.plan.program.buffers[id.index()];
        let (expected, found) = (buffer.len(), weight.len() as u64);
        let of_row = form.bytes() * weight.row_len();
        let behind = to + (of_row * weight.rows()) as u64;
        if found != expected || behind > end {
            return Err(CudaError::Misshapen { name: buffer.name.clone(), expected, found });
        }
        let step = (BUFFER as usize / of_row.max(1)).max(1);
        for first in (0..weight.rows()).step_by(step) {
            let rows = first..weight.rows().min(first + step);
            let (to, bytes) = (to + (first * of_row) as u64, rows.len() * of_row);
            self.runs.push(Run { to, bytes, content: Source::Rows { weight, rows, form } });
        }
        Ok(behind)
    }

    /// Adds the workers' tapes, which are at an address one after the other. Workers take turns:
    /// their tapes have a layer's weights at about the same distance, so that files are read from
    /// the start to the end.
    ///
    /// # Errors
    /// [`CudaError::Unbound`], [`CudaError::Layout`], and [`CudaError::Image`] where a worker's
    /// pieces are not as long as its tape.
    pub(super) fn tapes(&mut self, image: &'p Image, to: u64) -> Result<(), CudaError> {
        let (mut weights, mut known) = (HashMap::new(), Shapes::default());
        let mut turns: Vec<Vec<Run<Source<'p>>>> = Vec::new();
        for (worker, pieces) in image.pieces.iter().enumerate() {
            let (start, end) = (to + image.tape_at[worker], to + image.tape_at[worker + 1]);
            let mut tape = Tape { runs: Vec::new(), next: start };
            for piece in pieces {
                let of_parts = self.of_parts(piece, &mut weights)?;
                tape.add(Part::all(piece, &of_parts, BUFFER, &mut known)?);
            }
            if tape.next != end {
                let (at, what) = (format!("worker {worker}"), "has a tape of other bytes than its records".to_owned());
                return Err(CudaError::Image { at, what });
            }
            for (turn, run) in tape.runs.into_iter().enumerate() {
                match turns.get_mut(turn) {
                    Some(turn) => turn.push(run),
                    None => turns.push(vec![run]),
                }
            }
        }
        self.runs.extend(turns.into_iter().flatten());
        Ok(())
    }

    /// The matrix of each part of a piece.
    fn of_parts(&self, piece: &Piece, known: &mut HashMap<BufferId, &'p Weight>) -> Result<Vec<&'p Weight>, CudaError> {
        let mut weight = |id: BufferId| match known.get(&id) {
            Some(weight) => Ok(*weight),
            None => bound(self.plan, self.bindings, id).inspect(|weight| _ = known.insert(id, weight)),
        };
        piece.parts.iter().map(|part| weight(part.weight)).collect()
    }

    /// Writes everything on all cores and copies it to the device. `progress` gets the fraction of
    /// bytes that are copied.
    ///
    /// # Errors
    /// [`CudaError::Layout`], and failing driver calls.
    pub(super) fn upload(&self, stream: &CudaStream, progress: &mut dyn FnMut(f64)) -> Result<(), CudaError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        fill(&Pinned { stream }, &self.runs, threads, Source::write, progress)
    }
}

/// The runs of a tape.
struct Tape<'p> {
    runs: Vec<Run<Source<'p>>>,
    /// The address behind the last.
    next: u64,
}

impl<'p> Tape<'p> {
    /// Adds parts, to the last run where its buffer has room.
    fn add(&mut self, parts: Vec<Part<'p>>) {
        for part in parts {
            let (to, bytes) = (self.next, part.bytes());
            self.next += bytes;
            match self.runs.last_mut() {
                Some(Run { bytes: filled, content: Source::Tape(parts), .. }) if *filled as u64 + bytes <= BUFFER => {
                    *filled += bytes as usize;
                    parts.push(part);
                }
                _ => self.runs.push(Run { to, bytes: bytes as usize, content: Source::Tape(vec![part]) }),
            }
        }
    }
}

impl Source<'_> {
    /// Writes its bytes.
    fn write(&self, mut to: &mut [u8]) -> Result<(), CudaError> {
        match self {
            Self::Tape(parts) => {
                for part in parts {
                    let (own, others) = to.split_at_mut(part.bytes() as usize);
                    part.pack(own)?;
                    to = others;
                }
            }
            Self::Rows { weight, rows, form } => {
                let of_row = form.bytes() * weight.row_len();
                for (row, to) in rows.clone().zip(to.chunks_exact_mut(of_row.max(1))) {
                    form.write(weight, row, to);
                }
            }
        }
        Ok(())
    }
}

impl SharedForm {
    /// Bytes of an element.
    fn bytes(self) -> usize {
        match self {
            Self::BF16 => size_of::<bf16>(),
            Self::F32 => size_of::<f32>(),
        }
    }

    /// Writes a row of a weight.
    fn write(self, weight: &Weight, row: usize, to: &mut [u8]) {
        let stored = match self {
            Self::BF16 => &BF16,
            Self::F32 => &F32,
        };
        if weight.encoding() == stored {
            return to.copy_from_slice(weight.row_bytes(row));
        }
        let elements = weight.row(row).to_f32();
        match self {
            Self::BF16 => {
                let bytes = |x: f32| bf16::from_f32(x).to_le_bytes();
                to.as_chunks_mut().0.iter_mut().zip(&*elements).for_each(|(to, &x)| *to = bytes(x));
            }
            Self::F32 => to.as_chunks_mut().0.iter_mut().zip(&*elements).for_each(|(to, x)| *to = x.to_le_bytes()),
        }
    }
}

/// Copies from pinned memory on a stream.
struct Pinned<'s> {
    stream: &'s CudaStream,
}

impl Target for Pinned<'_> {
    type Buffer = PinnedHostSlice<u8>;
    type Copy = CudaEvent;

    fn buffer(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, CudaError> {
        // SAFETY: `fill` writes the bytes that it copies. Not write-combined memory: packing may
        // write in any order, and what is checked is read.
        Ok(unsafe { self.stream.context().alloc_pinned_with_flags(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }?)
    }

    fn bytes<'b>(&self, buffer: &'b mut PinnedHostSlice<u8>) -> Result<&'b mut [u8], CudaError> {
        Ok(buffer.as_mut_slice()?)
    }

    fn copy(&self, from: &PinnedHostSlice<u8>, bytes: usize, to: u64) -> Result<CudaEvent, CudaError> {
        let from = &from.as_slice()?[..bytes];
        // SAFETY: runs lie in memory that was allocated on this stream and outlives the copy, which
        // `fill` waits for before anything else is done with the buffer.
        unsafe { result::memcpy_htod_async(to, from, self.stream.cu_stream()) }?;
        Ok(self.stream.record_event(None)?)
    }

    fn wait(&self, copy: CudaEvent) -> Result<(), CudaError> {
        Ok(copy.synchronize()?)
    }
}
