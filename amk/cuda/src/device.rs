//! The GPU and its target record.

use super::error::CudaError;
use super::target::GpuTarget;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, sys};
use std::sync::Arc;

/// Checks that enough device memory is free.
///
/// # Errors
/// [`CudaError::Memory`] and failing driver calls.
pub(super) fn check_room(context: &CudaContext, needed: u64) -> Result<(), CudaError> {
    let (free, total) = context.mem_get_info()?;
    if needed > free as u64 {
        return Err(CudaError::Memory { needed, free: free as u64, total: total as u64 });
    }
    Ok(())
}

/// Opens the first GPU and returns its record.
pub(super) fn open() -> Result<(Arc<CudaContext>, &'static GpuTarget), CudaError> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    if CudaContext::device_count().unwrap_or(0) == 0 {
        return Err(CudaError::NoDevice);
    }
    let context = CudaContext::new(0)?;
    let device = context.name()?;
    let target = GpuTarget::of_device(&device).map_err(|refused| CudaError::Refused {
        device: device.clone(),
        reason: refused
            .map_or("there is no record of it; see GpuTarget".to_owned(), |refused| refused.reason.to_owned()),
    })?;
    let number = |attribute| context.attribute(attribute).map(|value| u64::try_from(value).unwrap_or(0));
    for (what, found, expected) in [
        (
            "the compute capability's major number",
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            target.capability.0,
        ),
        (
            "the compute capability's minor number",
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            target.capability.1,
        ),
        (
            "the number of multiprocessors",
            number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            target.multiprocessors,
        ),
        (
            "a block's shared memory",
            number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            target.shared_bytes,
        ),
    ] {
        let expected = u64::from(expected);
        if found != expected {
            return Err(CudaError::Mismatch { device, target: target.name, what, found, expected });
        }
    }
    Ok((context, target))
}

/// Returns the record of the first GPU, checked against the device.
///
/// # Errors
/// No driver, no device, a GPU without a record, or a GPU that differs from its record.
pub fn probe() -> Result<&'static GpuTarget, CudaError> {
    open().map(|(_, target)| target)
}

/// The first GPU, kept open: its context is created once for all VMs that are created while this
/// exists.
#[derive(Clone, Debug)]
pub struct OpenGpu {
    target: &'static GpuTarget,
    _context: Arc<CudaContext>,
}

impl OpenGpu {
    /// Opens it.
    ///
    /// # Errors
    /// As for [`probe`].
    pub fn new() -> Result<Self, CudaError> {
        let (context, target) = open()?;
        Ok(Self { target, _context: context })
    }

    /// Its record.
    pub fn target(&self) -> &'static GpuTarget {
        self.target
    }
}
