//! NVRTC: compiles source to a cubin, cached by its inputs.

use super::error::CudaError;
use super::lines::GENERATED;
use cudarc::driver::sys::CUfunction_attribute_enum::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
};
use cudarc::driver::{CudaContext, CudaFunction};
use cudarc::nvrtc::{Ptx, result, sys};
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// The machine code.
    pub bytes: Vec<u8>,
    /// The compiler's messages: registers, spills and shared memory. Empty on a cache hit.
    pub log: String,
}

/// Compiles for an architecture such as `sm_90a`.
///
/// # Errors
/// [`CudaError::NoNvrtc`], [`CudaError::Compile`].
pub fn compile(source: &str, architecture: &str) -> Result<Cubin, CudaError> {
    compile_with(source, architecture, &[])
}

/// Checks that code compiles. Hardly anything is optimised, which takes a fraction of the time.
/// NVRTC keeps to that: what the process compiles later is slow code.
///
/// # Errors
/// As for [`compile`].
pub fn check(source: &str, architecture: &str) -> Result<(), CudaError> {
    let options: &[&str] = if version() < Some((13, 0)) { &[] } else { &["--Ofast-compile=max"] };
    compile_with(source, architecture, options).map(drop)
}

/// Returns the version of NVRTC, if it is installed.
pub fn version() -> Option<(i32, i32)> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: only looks for the library; then both numbers are written.
    unsafe {
        sys::is_culib_present() && sys::nvrtcVersion(&raw mut major, &raw mut minor) == sys::nvrtcResult::NVRTC_SUCCESS
    }
    .then_some((major, minor))
}

fn compile_with(source: &str, architecture: &str, others: &[&str]) -> Result<Cubin, CudaError> {
    if version().is_none() {
        return Err(CudaError::NoNvrtc);
    }
    let failed = |error: result::NvrtcError| CudaError::Compile { log: error.to_string() };
    let nul = |_| CudaError::Compile { log: "the source has a NUL byte".into() };
    let (text, name) = (CString::new(source).map_err(nul)?, CString::new(GENERATED).map_err(nul)?);
    let program = result::create_program(&text, Some(&name)).map_err(failed)?;
    let architecture = format!("--gpu-architecture={architecture}");
    let options = [&[&architecture, "--std=c++17", "--ptxas-options=-v", "-default-device"], others].concat();
    // SAFETY: `program` was just created and is destroyed below, once.
    let compiled = unsafe { result::compile_program(program, &options) };
    // SAFETY: as above; the log of a compiled program is a C string.
    let log = unsafe { result::get_program_log(program) }.map_err(failed)?;
    // SAFETY: NVRTC ends the log with a NUL.
    let log = unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy().into_owned();
    let bytes = match compiled {
        Ok(()) => cubin(program).map_err(failed),
        Err(_) => Err(CudaError::Compile { log: log.clone() }),
    };
    // SAFETY: destroyed once, and not used after.
    unsafe { result::destroy_program(program) }.map_err(failed)?;
    Ok(Cubin { bytes: bytes?, log })
}

fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0usize;
    // SAFETY: `program` was compiled; `size` is written.
    unsafe { sys::nvrtcGetCUBINSize(program, &raw mut size) }.result()?;
    let mut bytes = vec![0u8; size];
    // SAFETY: the buffer has the size that NVRTC asked for.
    unsafe { sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()) }.result()?;
    Ok(bytes)
}

/// Compiles as [`compile`] does, and caches the result in `folder` under a hash of the source, the
/// architecture and the version of amk.
///
/// # Errors
/// As for [`compile`], and [`CudaError::Cache`].
pub fn compile_cached(source: &str, architecture: &str, folder: &Path) -> Result<Cubin, CudaError> {
    let mut hash = DefaultHasher::new();
    (source, architecture, env!("CARGO_PKG_VERSION")).hash(&mut hash);
    let path = folder.join(format!("{architecture}-{:016x}.cubin", hash.finish()));
    if let Ok(bytes) = std::fs::read(&path)
        && bytes.starts_with(b"\x7fELF")
    {
        return Ok(Cubin { bytes, log: String::new() });
    }
    let cubin = compile(source, architecture)?;
    let cache = |cause| CudaError::Cache { path: path.display().to_string(), cause };
    std::fs::create_dir_all(folder).map_err(cache)?;
    let part = path.with_extension(format!("part{}", std::process::id()));
    std::fs::write(&part, &cubin.bytes).map_err(cache)?;
    std::fs::rename(&part, &path).map_err(cache)?;
    Ok(cubin)
}

/// Loads a kernel of a compiled program. `shared_bytes` is called with the size of its variables in
/// shared memory, and returns the size of the dynamic shared memory.
///
/// # Errors
/// Failing driver calls.
pub(super) fn kernel(
    context: &Arc<CudaContext>,
    cubin: Cubin,
    name: &str,
    shared_bytes: impl FnOnce(u32) -> u32,
) -> Result<CudaFunction, CudaError> {
    let function = context.load_module(Ptx::from_binary(cubin.bytes))?.load_function(name)?;
    let own = function.get_attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?.unsigned_abs();
    let bytes = i32::try_from(shared_bytes(own)).unwrap_or(i32::MAX);
    function.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)?;
    Ok(function)
}
