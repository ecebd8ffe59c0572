//! The content of the device memory for a program's weights.

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

/// The origin of a run's bytes.
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
    /// As for [`Self::shared`].
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

    /// Adds the rows of a weight, which end at `end` at most. Returns the address after them.
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

    /// Adds the workers' tapes, which are at an address one after the other.
    ///
    /// # Errors
    /// [`CudaError::Unbound`], [`CudaError::Layout`], and [`CudaError::Image`] if a worker's
    /// pieces are not as long as its tape.
    pub(super) fn tapes(&mut self, image: &'p Image, to: u64) -> Result<(), CudaError> {
        let mut known: HashMap<BufferId, &Weight> = HashMap::new();
        let weight = |id: BufferId| match known.get(&id) {
            Some(weight) => Ok(*weight),
            None => bound(self.plan, self.bindings, id).inspect(|weight| _ = known.insert(id, weight)),
        };
        self.runs.extend(tapes(&image.pieces, &image.tape_at, to, BUFFER, weight)?);
        Ok(())
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

/// The runs of the workers' tapes, which begin at these distances from an address; a run has at
/// most this many bytes unless it is a single part. Workers take turns: their tapes have a layer's
/// weights at about the same distance, so that files are read from start to end.
fn tapes<'p>(
    pieces: &'p [Vec<Piece>],
    tape_at: &[u64],
    to: u64,
    most: u64,
    mut weight: impl FnMut(BufferId) -> Result<&'p Weight, CudaError>,
) -> Result<Vec<Run<Source<'p>>>, CudaError> {
    let (mut known, mut turns) = (Shapes::default(), Vec::<Vec<Run<Source<'p>>>>::new());
    for (worker, pieces) in pieces.iter().enumerate() {
        let mut tape = Tape { runs: Vec::new(), next: to + tape_at[worker], most };
        for piece in pieces {
            let weights = piece.parts.iter().map(|part| weight(part.weight)).collect::<Result<Vec<_>, _>>()?;
            tape.add(Part::all(piece, &weights, most, &mut known)?);
        }
        if tape.next != to + tape_at[worker + 1] {
            let (at, what) = (format!("worker {worker}"), "has a tape of other bytes than its records".to_owned());
            return Err(CudaError::Image { at, what });
        }
        turns.resize_with(turns.len().max(tape.runs.len()), Vec::new);
        turns.iter_mut().zip(tape.runs).for_each(|(turn, run)| turn.push(run));
    }
    Ok(turns.into_iter().flatten().collect())
}

/// The runs of a tape.
struct Tape<'p> {
    runs: Vec<Run<Source<'p>>>,
    /// The address after the last run.
    next: u64,
    /// Maximum number of bytes of a run, unless it is a single part.
    most: u64,
}

impl<'p> Tape<'p> {
    /// Adds parts, to the last run if its buffer has enough space.
    fn add(&mut self, parts: Vec<Part<'p>>) {
        for part in parts {
            let (to, bytes) = (self.next, part.bytes());
            self.next += bytes;
            match self.runs.last_mut() {
                Some(Run { bytes: filled, content: Source::Tape(parts), .. })
                    if *filled as u64 + bytes <= self.most =>
                {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::tests::Memory;
    use crate::layout::{Layout, LayoutError, PADDING, bf16_bytes, tests::ROWS};
    use crate::tape::WeightRows;

    /// Rows in units of 8, the last of which is filled up, in groups of 16: the first bytes of all
    /// rows of a unit, the second ones, ..
    const UNITS: Layout = Layout {
        name: "units",
        encoding: &BF16,
        group: 16,
        bytes: |rows, columns| bf16_bytes(rows.next_multiple_of(8), columns),
        apart: |_| Vec::new(),
        pack: |rows, packed| {
            let mut packed = packed.iter_mut();
            for unit in rows.chunks(8) {
                for column in 0..rows[0].len() {
                    let bytes = (0..8).map(|row| unit.get(row).map_or(PADDING, |row| row[column]));
                    packed.by_ref().zip(bytes).for_each(|(to, byte)| *to = byte);
                }
            }
        },
        unpack: |packed, columns| {
            let bytes = 2 * columns as usize;
            let row = |unit: &[u8], row: usize| unit.iter().skip(row).step_by(8).copied().collect::<Vec<_>>();
            packed.chunks(8 * bytes).flat_map(|unit| (0..8).flat_map(move |n| row(unit, n))).collect()
        },
    };

    fn piece(layout: Layout, interleaved: bool, parts: &[(u32, Range<u32>)]) -> Piece {
        let parts = parts.iter().map(|(weight, rows)| WeightRows { weight: BufferId(*weight), rows: rows.clone() });
        Piece { k: 32, interleaved, layout, parts: parts.collect() }
    }

    /// Two matrices of bf16 and one of f32, which is rounded.
    fn weights() -> [Weight; 3] {
        let elements = |first: u16| (0..64 * 32).map(move |at: u16| bf16::from_bits(first + at));
        let plain = |first: u16| Weight::bf16(&[64, 32], elements(first).collect()).unwrap();
        let exact = elements(0x4000).map(|x| x.to_f32() * 1.001).collect();
        [plain(0), plain(0x3000), Weight::f32(&[64, 32], exact).unwrap()]
    }

    fn workers() -> Vec<Vec<Piece>> {
        vec![
            vec![piece(UNITS, false, &[(0, 0..40), (1, 0..3)]), piece(ROWS, false, &[(2, 0..1)])],
            vec![piece(UNITS, true, &[(0, 40..60), (1, 3..23)]), piece(UNITS, false, &[(2, 1..64)])],
            vec![],
            vec![piece(ROWS, true, &[(0, 60..61), (1, 60..61), (2, 60..61)])],
        ]
    }

    /// A tape as it is defined: each piece's rows one by one, packed together.
    fn straight(pieces: &[Piece], weights: &[Weight]) -> Vec<u8> {
        let rounded = |row: usize, weight: &Weight| {
            let elements = weight.row(row).to_f32();
            elements.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect::<Vec<u8>>()
        };
        let packed = pieces.iter().map(|piece| {
            let parts = piece.parts.iter().enumerate();
            let mut rows: Vec<(usize, usize, Vec<u8>)> = parts
                .flat_map(|(part, of)| of.rows.clone().enumerate().map(move |(nth, row)| (part, of, nth, row)))
                .map(|(part, of, nth, row)| (part, nth, rounded(row as usize, &weights[of.weight.index()])))
                .collect();
            if piece.interleaved {
                rows.sort_by_key(|&(part, nth, _)| (nth, part));
            }
            let rows: Vec<&[u8]> = rows.iter().map(|(.., row)| &row[..]).collect();
            let mut packed = vec![0; piece.bytes() as usize];
            (piece.layout.pack)(&rows, &mut packed);
            packed
        });
        packed.flatten().collect()
    }

    fn bounds(tapes: &[Vec<u8>]) -> Vec<u64> {
        let lengths = tapes.iter().map(|tape| tape.len() as u64);
        [0].into_iter()
            .chain(lengths.scan(0, |end, bytes| {
                Some({
                    *end += bytes;
                    *end
                })
            }))
            .collect()
    }

    #[test]
    fn tapes_have_the_bytes_of_their_pieces_whatever_is_packed_at_once() {
        let (weights, pieces) = (weights(), workers());
        let expected: Vec<Vec<u8>> = pieces.iter().map(|pieces| straight(pieces, &weights)).collect();
        let tape_at = bounds(&expected);
        for most in [1, 700, 2048, 5000, 1 << 20] {
            let runs = tapes(&pieces, &tape_at, 16, most, |id| Ok(&weights[id.index()])).unwrap();
            assert!(runs.iter().all(|run| run.bytes as u64 <= most.max(1024)), "{most}");
            let memory = Memory::new(16 + expected.concat().len());
            fill(&memory, &runs, 3, Source::write, &mut |_| {}).unwrap();
            assert!(memory.bytes()[16..] == expected.concat(), "{most}");
        }
        let runs = tapes(&pieces, &tape_at, 0, 2048, |id| Ok(&weights[id.index()])).unwrap();
        let starts: Vec<u64> = runs.iter().take(4).map(|run| run.to).collect();
        assert_eq!(starts, [0, tape_at[1], tape_at[3], 2048], "workers take turns");
    }

    #[test]
    fn a_tape_of_other_bytes_and_a_wrong_layout_are_refused() {
        let (weights, pieces) = (weights(), workers());
        let tapes_of = |pieces: &[Vec<Piece>], tape_at: &[u64]| {
            let runs = tapes(pieces, tape_at, 0, 1 << 20, |id| Ok(&weights[id.index()]))?;
            let memory = Memory::new(tape_at.last().copied().unwrap_or(0) as usize);
            fill(&memory, &runs, 2, Source::write, &mut |_| {})
        };
        let mut tape_at = bounds(&pieces.iter().map(|pieces| straight(pieces, &weights)).collect::<Vec<_>>());
        tapes_of(&pieces, &tape_at).unwrap();
        let wrong = Layout { unpack: |packed, _| packed.to_vec(), ..UNITS };
        let mut other = pieces.clone();
        other[1][0].layout = wrong;
        let error = tapes_of(&other, &tape_at).unwrap_err();
        assert!(matches!(error, CudaError::Layout(LayoutError::Unpacked { layout: "units", row: 0 })), "{error}");
        tape_at[4] += 16;
        let error = tapes_of(&pieces, &tape_at).unwrap_err();
        assert!(matches!(&error, CudaError::Image { at, .. } if at == "worker 3"), "{error}");
    }

    #[test]
    fn rows_become_floats_of_their_form() {
        let [_, plain, exact] = weights();
        for (form, weight) in [(SharedForm::BF16, &plain), (SharedForm::BF16, &exact), (SharedForm::F32, &plain)] {
            let mut bytes = vec![0; 2 * 32 * form.bytes()];
            Source::Rows { weight, rows: 5..7, form }.write(&mut bytes).unwrap();
            let elements = &weight.to_f32()[5 * 32..7 * 32];
            let expected: Vec<u8> = match form {
                SharedForm::BF16 => elements.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
                SharedForm::F32 => elements.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            assert!(bytes == expected, "{form:?}");
        }
    }
}
