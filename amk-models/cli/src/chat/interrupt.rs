//! Ctrl-C in a terminal: it stops an answer; between answers it ends the program.

use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const STOPPED: u8 = 2;

/// The current meaning of Ctrl-C.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self> {
        let interrupt = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let heard = interrupt.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if heard.0.compare_exchange(ANSWERING, STOPPED, SeqCst, SeqCst) == Err(IDLE) {
                        std::process::exit(130);
                    }
                }
            });
        });
        Ok(interrupt)
    }

    /// An answer begins.
    pub(super) fn begin(&self) {
        self.0.store(ANSWERING, SeqCst);
    }

    /// Whether the answer should stop.
    pub(super) fn stops(&self) -> bool {
        self.0.load(SeqCst) == STOPPED
    }

    /// The answer has ended.
    pub(super) fn end(&self) {
        self.0.store(IDLE, SeqCst);
    }
}
