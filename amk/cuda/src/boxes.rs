//! Boxes on the tapes: tensor maps with which one copy loads runs of bytes at a regular distance.

use super::error::CudaError;
use super::image::Image;
use super::image::abi::{BOX_RUN, BOX_SIZES, TENSOR_MAP, TapeBoxes};
use super::image::declare::DeviceField as _;
use super::plan::Plan;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUtensorMap};
use cudarc::driver::{CudaSlice, CudaStream};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The first GPUs that copy boxes, by the major number of their compute capability.
const SINCE: i32 = 9;

/// Bytes of an element of a map.
const WORD: u32 = 8;

/// Bytes between the places where boxes may begin.
const STEP: u64 = 16;

const _: () = assert!(size_of::<TapeBoxes>() == 128 && size_of::<CUtensorMap>() == TENSOR_MAP as usize);

/// Describes the boxes of the tapes at an address, if steps have enough rows to copy them.
///
/// # Errors
/// Failing driver calls.
pub(super) fn upload(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    image: &Image,
    tape: u64,
) -> Result<Option<CudaSlice<u8>>, CudaError> {
    let major = || stream.context().attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    if !plan.is_wide() || major()? < SINCE {
        return Ok(None);
    }
    let mut boxes = TapeBoxes::default();
    let mut maps = Vec::new();
    let bytes = image.tape_at.last().copied().unwrap_or(0);
    for (to, apart) in boxes.apart.iter_mut().zip(distances(image)) {
        (*to, boxes.count) = (apart, boxes.count + 1);
        for size in 0..BOX_SIZES {
            maps.push(map(tape, bytes, apart, 1 << size)?);
        }
    }
    let mut table = Vec::new();
    boxes.put(&mut table);
    maps.iter().flat_map(|map| map.opaque).for_each(|word| word.put(&mut table));
    Ok(Some(stream.clone_htod(&table)?))
}

/// The distances between runs on the tapes.
fn distances(image: &Image) -> BTreeSet<u32> {
    let pieces = image.pieces.iter().flatten();
    pieces.flat_map(|piece| (piece.layout.apart)(piece.k)).collect()
}

/// Returns the map of boxes of `runs` runs that are `apart` bytes apart.
fn map(tape: u64, bytes: u64, apart: u32, runs: u32) -> Result<CUtensorMap, CudaError> {
    let mut map = CUtensorMap { opaque: [0; 16] };
    let words = BOX_RUN / WORD;
    let extents = [u64::from(words), 1 << (BOX_SIZES - 1), bytes.div_ceil(STEP).clamp(1, 1 << 32)];
    let strides = [u64::from(apart), STEP];
    let (shape, every) = ([words, runs, 1], [1; 3]);
    // SAFETY: `map` and the arrays of three or two elements live through the call, which reads and
    // writes nothing at the tape's address.
    let encoded = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
            extents.len() as u32,
            tape as *mut core::ffi::c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            shape.as_ptr(),
            every.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    encoded.result()?;
    Ok(map)
}
