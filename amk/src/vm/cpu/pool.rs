//! The worker threads. They persist between launches: they first poll for the next one, then sleep.

use super::engine::{Engine, Launch};
use super::error::VmError;
use super::worker::Worker;
use amk_ir::WorkerId;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Polls for the next launch before a thread goes to sleep: the time between two steps of a decoder
/// is short.
const POLLS: u32 = 2000;

/// Threads for all workers but worker 0, which is the caller's.
pub(super) struct Pool {
    engine: Arc<Engine>,
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
    seed: Option<u64>,
}

/// Where threads wait for a launch.
struct Gate {
    /// Launches so far.
    number: AtomicU64,
    order: Mutex<Order>,
    opened: Condvar,
    /// Threads that have finished the launch.
    finished: AtomicUsize,
}

/// A command to the threads.
enum Order {
    Wait,
    Run(Arc<Launch>),
    End,
}

impl Pool {
    /// Starts the threads.
    pub(super) fn new(engine: Arc<Engine>, seed: Option<u64>) -> Result<Self, VmError> {
        let gate = Gate {
            number: AtomicU64::new(0),
            order: Mutex::new(Order::Wait),
            opened: Condvar::new(),
            finished: AtomicUsize::new(0),
        };
        let workers = engine.program().queues.workers();
        let mut pool = Self { engine, gate: Arc::new(gate), threads: Vec::new(), seed };
        for id in 1..workers {
            let (engine, gate) = (Arc::clone(&pool.engine), Arc::clone(&pool.gate));
            let work = move || serve(&engine, &gate, WorkerId(id), seed);
            let thread = std::thread::Builder::new().name(format!("amk {}", WorkerId(id))).spawn(work);
            pool.threads.push(thread.map_err(|error| VmError::Thread { cause: error.to_string() })?);
        }
        Ok(pool)
    }

    /// Runs a launch with all workers and returns when all are done.
    pub(super) fn run(&mut self, launch: Launch) {
        if self.engine.program().queues.workers() == 0 {
            return;
        }
        let launch = Arc::new(launch);
        self.engine.ticket.store(0, Ordering::Relaxed);
        self.gate.finished.store(0, Ordering::Relaxed);
        self.gate.open(Order::Run(Arc::clone(&launch)));
        // A failure is in the engine.
        let _ = Worker::new(&self.engine, WorkerId(0), self.seed).run(&launch);
        let mut polls = 0;
        while self.gate.finished.load(Ordering::Acquire) < self.threads.len() {
            polls += 1;
            if polls < POLLS { core::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.gate.open(Order::End);
        for thread in self.threads.drain(..) {
            // A panic of a worker was reported as a failure of its step.
            let _ = thread.join();
        }
    }
}

/// A worker thread.
fn serve(engine: &Engine, gate: &Gate, id: WorkerId, seed: Option<u64>) {
    let mut worker = Worker::new(engine, id, seed);
    let mut seen = 0;
    while let Some(launch) = gate.next(&mut seen) {
        // A failure is in the engine.
        let _ = worker.run(&launch);
        gate.finished.fetch_add(1, Ordering::Release);
    }
}

impl Gate {
    fn open(&self, order: Order) {
        let mut current = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        *current = order;
        // With the lock held, so that a thread that has just seen the old number is asleep when it
        // is notified.
        self.number.fetch_add(1, Ordering::Release);
        drop(current);
        self.opened.notify_all();
    }

    /// The launch after number `seen`; `None` at the end.
    fn next(&self, seen: &mut u64) -> Option<Arc<Launch>> {
        let is_new = || self.number.load(Ordering::Acquire) != *seen;
        for poll in 0..POLLS {
            if is_new() {
                break;
            }
            // Yields in between, so that threads do not hold each other up if there are more than
            // cores.
            if poll % 64 == 0 { std::thread::yield_now() } else { core::hint::spin_loop() }
        }
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let order = self.opened.wait_while(order, |_| !is_new()).unwrap_or_else(PoisonError::into_inner);
        *seen = self.number.load(Ordering::Acquire);
        match &*order {
            Order::Run(launch) => Some(Arc::clone(launch)),
            Order::Wait | Order::End => None,
        }
    }
}
