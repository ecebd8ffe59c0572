//! Plain memory: weights, inputs and states of generic tasks, in the layout of their buffers.

use super::error::CudaError;
use super::image::Image;
use super::memory::{bound, to_bf16};
use super::plan::Plan;
use amk::tensor::Weight;
use amk::vm::Bindings;
use amk_ir::{BufferId, BufferKind, DType};
use cudarc::driver::{CudaSlice, CudaStream};
use half::bf16;
use std::sync::Arc;

/// Floats of the scratch areas, one per worker, in which generic tasks lay out their operands.
pub(super) fn scratch(plan: &Plan, image: &Image) -> usize {
    plan.schedule.workers as usize * image.plain.scratch as usize
}

/// Fills in weights, inputs and states of generic tasks. Unbound states start at 0, and so do those
/// in pages.
///
/// # Errors
/// [`CudaError::Unbound`], and failing driver calls.
pub(super) fn upload(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    image: &Image,
    bindings: &Bindings,
    progress: &mut dyn FnMut(f64),
) -> Result<CudaSlice<u8>, CudaError> {
    let plain = &image.plain;
    let mut bytes = stream.alloc_zeros::<u8>(plain.bytes_with(plan.pages).max(1) as usize)?;
    for (done, &(id, at)) in plain.buffers.iter().enumerate() {
        if let Some(content) = content(plan, bindings, id)? {
            let at = at as usize;
            stream.memcpy_htod(&content, &mut bytes.slice_mut(at..at + content.len()))?;
            stream.synchronize()?;
        }
        progress((done + 1) as f64 / plain.buffers.len() as f64);
    }
    Ok(bytes)
}

/// Returns a copy of a state of generic tasks in `bytes`, or `None` if there is none of this name.
///
/// # Errors
/// Failing driver calls.
pub(super) fn state(
    stream: &Arc<CudaStream>,
    bytes: &CudaSlice<u8>,
    plan: &Plan,
    image: &Image,
    name: &str,
) -> Result<Option<Vec<f32>>, CudaError> {
    let buffer = |id: BufferId| plan.program.buffers.get(id.index());
    let named = |id| buffer(id).is_some_and(|buffer| buffer.kind == BufferKind::State && buffer.name == name);
    let Some(&(id, at)) = image.plain.buffers.iter().find(|(id, _)| named(*id)) else { return Ok(None) };
    let (at, len) = (at as usize, buffer(id).map_or(0, |buffer| buffer.bytes() as usize));
    let bytes = stream.clone_dtoh(&bytes.slice(at..at + len))?;
    Ok(Some(bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()))
}

/// Returns the initial contents of a buffer, or `None` for zeros.
fn content(plan: &Plan, bindings: &Bindings, id: BufferId) -> Result<Option<Vec<u8>>, CudaError> {
    let Some(buffer) = plan.program.buffers.get(id.index()) else { return Ok(None) };
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    if buffer.kind == BufferKind::State {
        return Ok(bindings.states().get(&buffer.name).map(|state| floats(&state.to_vec())));
    }
    let weight: &Weight = bound(plan, bindings, id)?;
    let len = buffer.len();
    if weight.len() as u64 != len {
        return Err(CudaError::Misshapen { name: buffer.name.clone(), expected: len, found: weight.len() as u64 });
    }
    Ok(Some(match buffer.dtype {
        DType::BF16 => to_bf16(weight).into_iter().flat_map(|value: bf16| value.to_le_bytes()).collect(),
        _ => floats(&weight.to_f32()),
    }))
}
