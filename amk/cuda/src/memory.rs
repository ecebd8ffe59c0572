//! Device memory of a launch: tapes, records, tables, caches and packets.

use super::boxes;
use super::content::Content;
use super::device::check_room;
use super::error::CudaError;
use super::fault::FAULT_WORDS;
use super::image::abi::VmParams;
use super::image::{Image, Record, blocks};
use super::pages::Pools;
use super::params::Params;
use super::plain;
use super::plan::{Plan, UNIT};
use super::run::RunOptions;
use super::set::{SharedMemory, body_sets};
use amk::rows::{GroupName, PageChange, PageEdit};
use amk::tensor::{Inputs, Row, Weight};
use amk::vm::Bindings;
use amk_ir::BufferId;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceRepr, result};
use half::bf16;
use std::ops::Range;
use std::sync::Arc;

/// Weights, states and caches, which programs with the same layout may share.
pub(super) struct Resident {
    tape: CudaSlice<u8>,
    constants: CudaSlice<bf16>,
    /// Memory shared by the fused bodies, in the order of the registered sets.
    shared: Vec<CudaSlice<u8>>,
    plain: CudaSlice<u8>,
    /// Where pages begin in the plain memory.
    states: u64,
    pools: Pools,
    /// Bytes of a page of each group, in each of the shared memories and in the plain one.
    page_sizes: Vec<Vec<u64>>,
}

/// Memory that a program's launches read and write.
pub(super) struct Memory {
    pub(super) resident: Arc<Resident>,
    tape_at: CudaSlice<u64>,
    /// Boxes of the tape.
    boxes: Option<CudaSlice<u8>>,
    records: CudaSlice<Record>,
    record_at: CudaSlice<u32>,
    /// Tiles and parameters of generic tasks.
    arguments: CudaSlice<u32>,
    /// Scratch in which generic tasks lay out their operands.
    scratch: CudaSlice<f32>,
    scratch_len: u32,
    packets: Arc<CudaSlice<u64>>,
    /// The number of leading 8-byte words that are absent until a step writes them.
    absent: usize,
    /// Words that are 0 at first.
    zeros: Range<usize>,
    pub(super) fault: CudaSlice<u32>,
}

impl Resident {
    /// Fills the device memory for an image, and checks that `others` more bytes will fit.
    ///
    /// # Errors
    /// [`CudaError::Memory`], [`CudaError::Unbound`], and failing driver calls.
    pub(super) fn upload(
        context: &CudaContext,
        stream: &Arc<CudaStream>,
        plan: &Plan,
        image: &Image,
        bindings: &Bindings,
        others: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, CudaError> {
        let memories = image.memories();
        let bytes = |memory: &SharedMemory| memory.bytes + image.pools.bytes(&memory.pages);
        let shared_bytes: u64 = memories.iter().map(bytes).sum();
        let tape_bytes = image.tape_at.last().copied().unwrap_or(0);
        let plain_bytes = image.plain.bytes + image.pools.bytes(&image.plain.pages);
        check_room(context, shared_bytes + tape_bytes + plain_bytes + others)?;
        let weight = |id: BufferId| bound(plan, bindings, id);
        let mut constants = vec![bf16::ZERO; image.constant_len as usize];
        for &(id, at) in &image.constants {
            let values = to_bf16(weight(id)?);
            constants[at as usize..at as usize + values.len()].copy_from_slice(&values);
        }
        let zeros = |bytes: u64| stream.alloc_zeros::<u8>(bytes.max(1) as usize);
        let shared = memories.iter().map(|memory| zeros(bytes(memory))).collect::<Result<Vec<_>, _>>()?;
        let (tape, mut plain) = (zeros(tape_bytes)?, zeros(plain_bytes)?);
        plain::upload_states(stream, plan, image, bindings, &mut plain)?;
        let mut content = Content::new(plan, bindings);
        for (memory, bytes) in memories.iter().zip(&shared) {
            content.shared(memory, address(bytes, stream))?;
        }
        content.plain(image, address(&plain, stream))?;
        content.tapes(image, address(&tape, stream))?;
        content.upload(stream, progress)?;
        Ok(Self {
            tape,
            plain,
            constants: copied(stream, &constants)?,
            shared,
            states: image.plain.bytes,
            pools: image.pools.clone(),
            page_sizes: image.page_sizes(),
        })
    }

    /// Copies or clears a page of every state of a group. Positions after those that a row may see
    /// count for nothing, so that a page is cleared when a sequence gets it, and as a whole.
    ///
    /// # Errors
    /// [`CudaError::NoPage`], and failing driver calls.
    pub(super) fn edit_page(&self, stream: &CudaStream, group: GroupName, edit: PageEdit) -> Result<(), CudaError> {
        let (from, to) = match edit.change {
            PageChange::Copy { from, to } => (Some(from), to),
            PageChange::Clear { page, first: 0 } => (None, page),
            PageChange::Clear { .. } => return Ok(()),
        };
        let pool = self.pools.0.get(edit.group);
        let (first, pages) = pool.map_or((0, 0), |pool| (pool.first, pool.group.pages));
        if let Some(page) = edit.change.pages().find(|&page| page as usize >= pages) {
            return Err(CudaError::NoPage { group, page, pages });
        }
        let plain = address(&self.plain, stream) + self.states;
        let memories = self.shared.iter().map(|memory| address(memory, stream)).chain([plain]);
        let of_group = |sizes: &Vec<u64>| sizes.get(edit.group).copied().unwrap_or(0);
        let memories = memories.zip(self.page_sizes.iter().map(of_group));
        for (start, bytes) in memories.filter(|&(_, bytes)| bytes > 0) {
            let place = |page: u32| start + (u64::from(first) + u64::from(page)) * bytes;
            // SAFETY: both pages are within the memory, which has `pages` of them from `first` on
            // and outlives the stream's work: it is freed on the same stream. Programs that share
            // it also run there.
            unsafe {
                match from {
                    None => result::memset_d8_async(place(to), 0, bytes as usize, stream.cu_stream())?,
                    Some(from) => {
                        result::memcpy_dtod_async(place(to), place(from), bytes as usize, stream.cu_stream())?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Returns the bytes that an image needs in addition to the resident ones and its packets.
    pub(super) fn bytes(plan: &Plan, image: &Image) -> u64 {
        let floats = plain::scratch(plan, image) as u64;
        floats * 4 + image.plain.words.len() as u64 * 4
    }

    /// Returns the bytes of an image's packets and counters.
    pub(super) fn packet_bytes(image: &Image) -> u64 {
        u64::from(image.packets) * 8
    }

    /// Allocates memory for the packets and counters of the largest of several images, which run in
    /// turn and keep nothing there from one step to the next. Words that no step has written are
    /// NaN.
    ///
    /// # Errors
    /// [`CudaError::Memory`], and failing driver calls.
    pub(super) fn packets_of<'i>(
        stream: &Arc<CudaStream>,
        images: impl Iterator<Item = &'i Image>,
    ) -> Result<Arc<CudaSlice<u64>>, CudaError> {
        let words = images.map(|image| image.packets as usize).max().unwrap_or(0).max(1);
        check_room(stream.context(), words as u64 * 8)?;
        Ok(Arc::new(nans(stream, words)?))
    }

    /// Allocates the memory of an image whose weights are resident. If `packets` is not given (see
    /// [`Self::packets_of`]), it gets its own. Otherwise [`Self::forget`] must be called before the
    /// first step, and before every step that follows one of another image.
    ///
    /// # Errors
    /// [`CudaError::Memory`], and failing driver calls.
    pub(super) fn around(
        resident: Arc<Resident>,
        stream: &Arc<CudaStream>,
        plan: &Plan,
        image: &Image,
        packets: Option<Arc<CudaSlice<u64>>>,
    ) -> Result<Self, CudaError> {
        let own = if packets.is_none() { Self::packet_bytes(image) } else { 0 };
        check_room(stream.context(), Self::bytes(plan, image) + own)?;
        // A worker prefetches one record.
        let records: Vec<Record> = image.records.iter().copied().chain([Record::default()]).collect();
        let values = image.row_words * blocks(&plan.program); // 0 without rows
        let boxes = boxes::upload(stream, plan, image, address(&resident.tape, stream))?;
        let packets = match packets {
            Some(packets) => packets,
            None => Arc::new(stream.alloc_zeros::<u64>(image.packets as usize)?),
        };
        let memory = Self {
            resident,
            boxes,
            tape_at: stream.clone_htod(&image.tape_at)?,
            records: stream.clone_htod(&records)?,
            record_at: stream.clone_htod(&image.record_at)?,
            arguments: copied(stream, &image.plain.words)?,
            scratch: stream.alloc_zeros::<f32>(plain::scratch(plan, image).max(1))?,
            scratch_len: image.plain.scratch,
            packets,
            absent: if plan.has_row_packets() { values as usize } else { 0 },
            zeros: values as usize..image.packets as usize,
            fault: stream.alloc_zeros::<u32>(FAULT_WORDS * (1 + plan.schedule.workers as usize))?,
        };
        memory.clear_rows(stream)?;
        Ok(memory)
    }

    /// Returns a copy of a state of generic tasks.
    ///
    /// # Errors
    /// Failing driver calls.
    pub(super) fn state(
        &self,
        stream: &Arc<CudaStream>,
        plan: &Plan,
        image: &Image,
        name: &str,
    ) -> Result<Option<Vec<f32>>, CudaError> {
        plain::state(stream, &self.resident.plain, plan, image, name)
    }

    /// Returns the parameters that are the same in every launch.
    pub(super) fn params(&self, image: &Image, stream: &CudaStream) -> VmParams {
        let Resident { tape, constants, plain, .. } = &*self.resident;
        VmParams {
            tape: address(tape, stream),
            tape_at: address(&self.tape_at, stream),
            records: address(&self.records, stream),
            record_at: address(&self.record_at, stream),
            packets: address(&*self.packets, stream),
            constants: address(constants, stream),
            arguments: address(&self.arguments, stream),
            plain: address(plain, stream),
            scratch: address(&self.scratch, stream),
            scratch_len: self.scratch_len,
            boxes: self.boxes.as_ref().map_or(0, |boxes| address(boxes, stream)),
            fault: address(&self.fault, stream),
            epoch: 1,
            vocab: image.vocab.next_multiple_of(UNIT),
            ..VmParams::default()
        }
    }

    /// Returns the parameters of a launch: the VM's own, and the registered bodies'.
    pub(super) fn all_params(
        &self,
        stream: &CudaStream,
        image: &Image,
        own: &VmParams,
        options: &RunOptions,
    ) -> Params {
        let mut params = Params::default();
        params.push(own);
        let mut addresses = self.resident.shared.iter().map(|memory| address(memory, stream));
        for set in body_sets() {
            let count = set.shared.memories(image).len();
            let at: Vec<u64> = addresses.by_ref().take(count).collect();
            set.shared.bind(image, &at, &mut params);
            if let Some(sampling) = set.sampling {
                sampling.bind(options, own.forced_count, &mut params);
            }
        }
        params
    }

    /// Clears packets, counters and the fault, and restarts the epochs.
    ///
    /// # Errors
    /// Failing driver calls.
    pub(super) fn forget(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let Range { start, end } = self.zeros.clone();
        let at = address(&*self.packets, stream) + (start * size_of::<u64>()) as u64;
        // SAFETY: the packets have so many words, and are used on this stream alone.
        unsafe { result::memset_d8_async(at, 0, (end - start) * size_of::<u64>(), stream.cu_stream()) }?;
        self.clear_rows(stream)?;
        Ok(stream.memset_zeros(&mut self.fault)?)
    }

    /// Makes the packets of rows absent: NaNs.
    fn clear_rows(&self, stream: &CudaStream) -> Result<(), CudaError> {
        match self.absent.min(self.packets.len()) {
            0 => Ok(()),
            // SAFETY: the packets have so many words, and are used on this stream alone.
            words => unsafe { set_nans(stream, address(&*self.packets, stream), words * size_of::<u64>()) },
        }
    }
}

/// Memory for rows of logits. Words that no task writes are NaN, which neither argmax nor a draw
/// picks: after the logits of a row, these are the logits of the rows that the last unit lacks.
pub(super) fn logits(stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<f32>, CudaError> {
    nans(stream, len)
}

/// Memory of NaNs, at least one element.
fn nans<T: DeviceRepr>(stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<T>, CudaError> {
    // SAFETY: all bytes are set on the stream before anything else is done with them.
    let memory = unsafe { stream.alloc::<T>(len) }?;
    // SAFETY: the memory has `len` elements, and is used on this stream alone.
    unsafe { set_nans(stream, address(&memory, stream), len * size_of::<T>()) }?;
    Ok(memory)
}

/// Fills memory with NaNs.
///
/// # Safety
/// There are `bytes` bytes at `at`, at least one, and nothing else uses them before the stream
/// reaches this operation.
unsafe fn set_nans(stream: &CudaStream, at: u64, bytes: usize) -> Result<(), CudaError> {
    const NANS: u8 = 0xff;
    // SAFETY: the caller's.
    Ok(unsafe { result::memset_d8_async(at, NANS, bytes, stream.cu_stream()) }?)
}

/// Copies a slice to the device. An empty one becomes a single element that is never read.
pub(super) fn copied<T: DeviceRepr + Default>(
    stream: &Arc<CudaStream>,
    values: &[T],
) -> Result<CudaSlice<T>, CudaError> {
    let none = [T::default()];
    Ok(stream.clone_htod(if values.is_empty() { &none[..] } else { values })?)
}

pub(super) fn address<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    slice.device_ptr(stream).0
}

pub(super) fn bound<'b>(plan: &Plan, bindings: &'b Bindings, id: BufferId) -> Result<&'b Weight, CudaError> {
    let name = plan.program.buffers.get(id.index()).map(|buffer| buffer.name.as_str()).unwrap_or_default();
    let weight = bindings.weights().get(name).ok_or_else(|| CudaError::Unbound(name.to_owned()))?;
    match weight.inputs() {
        Inputs::F32 => Ok(weight),
        inputs => Err(CudaError::Inputs { weight: name.to_owned(), inputs }),
    }
}

pub(super) fn to_bf16(weight: &Weight) -> Vec<bf16> {
    let mut out = Vec::with_capacity(weight.len());
    for row in 0..weight.rows() {
        match weight.row(row) {
            Row::BF16(row) => out.extend_from_slice(row),
            other => out.extend(other.to_f32().iter().map(|&value| bf16::from_f32(value))),
        }
    }
    out
}
