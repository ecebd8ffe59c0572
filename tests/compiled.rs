//! Device code for GPUs that need not be there.

use amk_cuda::{Cubin, CudaError, nvrtc};
use core::fmt::Display;
use std::collections::HashMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A compiled program, once there is one.
type Slot = Arc<Mutex<Option<Arc<Cubin>>>>;

/// By source and architecture, with the messages, of which a cache of files keeps nothing.
static CUBINS: LazyLock<Mutex<HashMap<(String, String), Slot>>> = LazyLock::new(Mutex::default);

/// Compiles as [`amk_cuda::compile`] does, once for all tests that compile the same.
pub(crate) fn compile(source: &str, architecture: &str) -> Result<Arc<Cubin>, CudaError> {
    let key = (source.to_owned(), architecture.to_owned());
    let slot = CUBINS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    let mut cubin = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cubin) = &*cubin {
        return Ok(cubin.clone());
    }
    let compiled = Arc::new(amk_cuda::compile(source, architecture)?);
    Ok(cubin.insert(compiled).clone())
}

/// Checks that code compiles, for tests that look at nothing else of it. `false` without NVRTC.
pub(crate) fn compiles(source: &str, architecture: &str, what: impl Display) -> bool {
    if nvrtc::version().is_none() {
        println!("skipped: no NVRTC");
        return false;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_compiles"))
        .arg(architecture)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it should start");
    child.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("all should be read");
    let output = child.wait_with_output().expect("it should end");
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    true
}
