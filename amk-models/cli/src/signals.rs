//! Signals that ask the process to end.

use std::io::Result;

/// The exit code after SIGINT.
const INTERRUPTED: i32 = 130;
/// The exit code after SIGTERM.
#[cfg(unix)]
const TERMINATED: i32 = 143;

/// Listens for them, in a runtime of tokio.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Completes when the process is asked to end, with its exit code.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
        }
    }
}

/// Listens for them, in a runtime of tokio.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Listens from the first wait on.
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self)
    }

    /// Completes when the process is asked to end, with its exit code.
    pub(crate) async fn next(&mut self) -> i32 {
        // Where there are no signals, nothing asks.
        let _ = tokio::signal::ctrl_c().await;
        INTERRUPTED
    }
}
