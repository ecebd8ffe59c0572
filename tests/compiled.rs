//! Device code for GPUs that need not be there.

use amk_cuda::{Cubin, CudaError};
use std::collections::HashMap;
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
