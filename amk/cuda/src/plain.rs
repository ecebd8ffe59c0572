//! Plain memory: weights, inputs and states of generic tasks, in the layout of their buffers.

use super::error::CudaError;
use super::image::Image;
use super::plan::Plan;
use amk::vm::Bindings;
use amk_ir::{BufferId, BufferKind};
use cudarc::driver::{CudaSlice, CudaStream};
use std::sync::Arc;

/// Floats of the scratch areas, one per worker, in which generic tasks lay out their operands.
pub(super) fn scratch(plan: &Plan, image: &Image) -> usize {
    plan.schedule.workers as usize * image.plain.scratch as usize
}

/// Uploads the bound states of generic tasks; others start at 0, as do paged states.
///
/// # Errors
/// Failing driver calls.
pub(super) fn upload_states(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    image: &Image,
    bindings: &Bindings,
    bytes: &mut CudaSlice<u8>,
) -> Result<(), CudaError> {
    for &(id, at) in &image.plain.buffers {
        let buffer = plan.program.buffers.get(id.index()).filter(|buffer| buffer.kind == BufferKind::State);
        let Some(state) = buffer.and_then(|buffer| bindings.states().get(&buffer.name)) else { continue };
        let content: Vec<u8> = state.to_vec().iter().flat_map(|value| value.to_le_bytes()).collect();
        let at = at as usize;
        stream.memcpy_htod(&content, &mut bytes.slice_mut(at..at + content.len()))?;
        stream.synchronize()?;
    }
    Ok(())
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
