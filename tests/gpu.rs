//! The GPU, which all tests of this process share, and those that code is compiled for.

use amk_cuda::{CudaError, GpuTarget, TARGETS, probe};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

static GPU: Mutex<()> = Mutex::new(());

/// Waits until no other test uses the GPU: tests fill its memory, measure times and run into
/// deadlines. Without a GPU nobody waits.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    present().ok()?;
    // A test that failed leaves nothing behind: its VM is dropped.
    Some(GPU.lock().unwrap_or_else(PoisonError::into_inner))
}

/// One target of each architecture: the code of others differs in numbers alone.
pub(crate) fn of_each_architecture() -> Vec<&'static GpuTarget> {
    let mut seen = BTreeSet::new();
    let mut targets: Vec<_> = TARGETS.iter().rev().filter(|target| seen.insert(target.architecture)).collect();
    targets.reverse();
    targets
}

/// The folder of compiled device code that tests share.
pub(crate) fn cubins() -> PathBuf {
    std::env::temp_dir().join("amk-test-cubins")
}

/// Why no GPU is available, found out before a checkpoint is loaded.
pub(crate) fn present() -> Result<(), String> {
    match probe() {
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => Err(error.to_string()),
        _ => Ok(()),
    }
}
