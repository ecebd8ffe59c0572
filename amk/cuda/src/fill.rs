//! Fills device memory: threads write runs of bytes to a few buffers, one thread copies these while
//! the next are written.

use super::error::CudaError;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

/// Bytes of a buffer, unless a run needs more.
pub(super) const BUFFER: u64 = 4 << 20;

/// Copies that may be in flight while the next buffer is waited for.
const IN_FLIGHT: usize = 4;

/// Consecutive bytes of device memory.
pub(super) struct Run<T> {
    /// Their address.
    pub(super) to: u64,
    pub(super) bytes: usize,
    /// From which they are written.
    pub(super) content: T,
}

/// Memory that buffers are copied to.
pub(super) trait Target: Sync {
    type Buffer: Send;
    /// A copy in flight.
    type Copy;

    /// Returns a buffer of `bytes` bytes.
    fn buffer(&self, bytes: usize) -> Result<Self::Buffer, CudaError>;
    /// Returns the bytes of a buffer that is not being copied.
    fn bytes<'b>(&self, buffer: &'b mut Self::Buffer) -> Result<&'b mut [u8], CudaError>;
    /// Starts a copy of a buffer's first bytes. [`fill`] does not touch the buffer until the copy
    /// ends.
    fn copy(&self, from: &Self::Buffer, bytes: usize, to: u64) -> Result<Self::Copy, CudaError>;
    /// Waits for the end of a copy.
    fn wait(&self, copy: Self::Copy) -> Result<(), CudaError>;
}

/// A buffer after its run, given by number, was written.
type Written<B> = (usize, B, Result<(), CudaError>);

/// Fills runs, which `threads` threads write in order. `progress` is called with the fraction of
/// bytes copied.
///
/// # Errors
/// The first error of `write` or of the target. No copy is in flight then.
pub(super) fn fill<D: Target, T: Sync>(
    target: &D,
    runs: &[Run<T>],
    threads: usize,
    write: impl Fn(&T, &mut [u8]) -> Result<(), CudaError> + Sync,
    progress: &mut dyn FnMut(f64),
) -> Result<(), CudaError> {
    let bytes = runs.iter().map(|run| run.bytes).max().unwrap_or(0);
    let threads = threads.min(runs.len());
    let (free, taken) = channel();
    for _ in 0..(threads + IN_FLIGHT).min(runs.len()) {
        // The receiver is here.
        let _ = free.send(target.buffer(bytes)?);
    }
    let (taken, next) = (Mutex::new(taken), AtomicUsize::new(0));
    let work = |written: Sender<Written<D::Buffer>>| {
        while let Some((at, run)) = nth(runs, next.fetch_add(1, Ordering::Relaxed)) {
            let buffer = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(mut buffer) = buffer else { break };
            let result = target.bytes(&mut buffer).and_then(|bytes| write(&run.content, &mut bytes[..run.bytes]));
            if written.send((at, buffer, result)).is_err() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let (send, written) = channel();
        for _ in 0..threads {
            let (send, work) = (send.clone(), &work);
            scope.spawn(move || work(send));
        }
        drop(send);
        // Both channels end here, and so the threads.
        copy(target, runs, written, free, progress)
    })
}

fn nth<T>(all: &[T], at: usize) -> Option<(usize, &T)> {
    Some((at, all.get(at)?))
}

/// Copies buffers as they come, and gives each back when its copy has ended.
fn copy<D: Target, T>(
    target: &D,
    runs: &[Run<T>],
    written: Receiver<Written<D::Buffer>>,
    free: Sender<D::Buffer>,
    progress: &mut dyn FnMut(f64),
) -> Result<(), CudaError> {
    let total = runs.iter().map(|run| run.bytes).sum::<usize>().max(1);
    let mut done = 0;
    let mut in_flight = VecDeque::new();
    let mut end = |(bytes, copy, buffer): (usize, D::Copy, D::Buffer)| {
        target.wait(copy)?;
        // Threads that have ended need none.
        let _ = free.send(buffer);
        done += bytes;
        progress(done as f64 / total as f64);
        Ok(())
    };
    let mut start = |(at, buffer, result): Written<D::Buffer>| {
        result?;
        let Run { to, bytes, .. } = runs[at];
        let copy = target.copy(&buffer, bytes, to)?;
        in_flight.push_back((bytes, copy, buffer));
        if in_flight.len() > IN_FLIGHT { in_flight.pop_front().map_or(Ok(()), &mut end) } else { Ok(()) }
    };
    let started = written.into_iter().try_for_each(&mut start);
    // After an error too: buffers that are being copied must not be freed.
    in_flight.into_iter().fold(started, |result, copy| result.and(end(copy)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Memory whose copies end when they are waited for.
    pub(crate) struct Memory {
        bytes: Mutex<Vec<u8>>,
        buffers: AtomicUsize,
        copies: AtomicUsize,
        /// The number of the copy that fails.
        fails: usize,
    }

    pub(crate) struct Buffer {
        bytes: Vec<u8>,
        busy: std::sync::Arc<AtomicBool>,
    }

    pub(crate) struct Copy {
        busy: std::sync::Arc<AtomicBool>,
    }

    impl Memory {
        pub(crate) fn new(bytes: usize) -> Self {
            let (buffers, copies) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Self { bytes: Mutex::new(vec![0; bytes]), buffers, copies, fails: usize::MAX }
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.bytes.lock().expect("nothing panics with it").clone()
        }
    }

    impl Target for Memory {
        type Buffer = Buffer;
        type Copy = Copy;

        fn buffer(&self, bytes: usize) -> Result<Buffer, CudaError> {
            self.buffers.fetch_add(1, Ordering::Relaxed);
            Ok(Buffer { bytes: vec![0; bytes], busy: std::sync::Arc::default() })
        }

        fn bytes<'b>(&self, buffer: &'b mut Buffer) -> Result<&'b mut [u8], CudaError> {
            assert!(!buffer.busy.load(Ordering::Relaxed), "a buffer in a copy");
            Ok(&mut buffer.bytes)
        }

        fn copy(&self, from: &Buffer, bytes: usize, to: u64) -> Result<Copy, CudaError> {
            if self.copies.fetch_add(1, Ordering::Relaxed) == self.fails {
                return Err(CudaError::Unbound("copy".to_owned()));
            }
            assert!(!from.busy.swap(true, Ordering::Relaxed), "a buffer in two copies");
            self.bytes.lock().unwrap()[to as usize..][..bytes].copy_from_slice(&from.bytes[..bytes]);
            Ok(Copy { busy: from.busy.clone() })
        }

        fn wait(&self, copy: Copy) -> Result<(), CudaError> {
            copy.busy.store(false, Ordering::Relaxed);
            Ok(())
        }
    }

    impl Drop for Buffer {
        fn drop(&mut self) {
            assert!(!self.busy.load(Ordering::Relaxed), "a buffer was dropped in its copy");
        }
    }

    /// Runs of different lengths one after the other, and the bytes that they write.
    fn runs(count: usize) -> (Vec<Run<u8>>, Vec<u8>) {
        let (mut runs, mut expected) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (bytes, content) = (number * 37 % 101, (number % 251) as u8 + 1);
            runs.push(Run { to: expected.len() as u64, bytes, content });
            expected.extend(vec![content; bytes]);
        }
        (runs, expected)
    }

    fn write(content: &u8, to: &mut [u8]) -> Result<(), CudaError> {
        to.fill(*content);
        Ok(())
    }

    #[test]
    fn every_byte_comes_from_few_buffers_each_in_one_copy_at_a_time() {
        for (count, threads, buffers) in [(0, 4, 0), (1, 4, 1), (3, 1, 3), (500, 1, 5), (500, 7, 11)] {
            let (runs, expected) = runs(count);
            let memory = Memory::new(expected.len());
            let mut seen = vec![0.0];
            fill(&memory, &runs, threads, write, &mut |done| seen.push(done)).unwrap();
            assert!(memory.bytes() == expected, "{count} runs, {threads} threads");
            assert_eq!(memory.buffers.load(Ordering::Relaxed), buffers);
            assert!(seen.is_sorted() && (expected.is_empty() || seen.last() == Some(&1.0)), "{seen:?}");
        }
    }

    #[test]
    fn the_error_of_a_thread_or_a_copy_ends_all() {
        let (runs, expected) = runs(500);
        let refuse = |content: &u8, to: &mut [u8]| match content {
            77 => Err(CudaError::Unbound("write".to_owned())),
            _ => write(content, to),
        };
        for threads in [1, 3] {
            let memory = Memory::new(expected.len());
            let error = fill(&memory, &runs, threads, refuse, &mut |_| {}).unwrap_err();
            assert!(matches!(error, CudaError::Unbound(what) if what == "write"));
            let memory = Memory { fails: 99, ..Memory::new(expected.len()) };
            let error = fill(&memory, &runs, threads, write, &mut |_| {}).unwrap_err();
            assert!(matches!(error, CudaError::Unbound(what) if what == "copy"));
        }
    }
}
