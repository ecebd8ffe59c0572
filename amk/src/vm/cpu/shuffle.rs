//! The adversarial order: one thread runs the tasks of all workers, choosing at random each time
//! among those that could run next.
//!
//! Every order of tasks that the queues and the waits allow is possible.

use super::engine::{Aborted, Engine, Launch};
use super::rng::Rng;
use crate::registry::Frame;
use amk_ir::{Queues, TaskId, WorkerId};
use core::time::Duration;

/// Where the workers are in a launch.
struct Shuffle<'e, 'l> {
    engine: &'e Engine,
    launch: &'l Launch,
    /// By worker: how many tasks of its queue it has run in this launch, or the ticket it holds.
    places: Vec<Place>,
    /// The next ticket.
    ticket: usize,
}

#[derive(Clone, Copy)]
enum Place {
    Queue(usize),
    Free,
    Holds(usize),
}

/// The next action of a worker.
enum Next {
    Nothing,
    Draw,
    Run { number: usize, task: TaskId },
}

/// Runs a launch in the order of a seed.
pub(super) fn run(engine: &Engine, launch: &Launch, rng: &mut Rng) -> Result<(), Aborted> {
    let place = match &engine.program().queues {
        Queues::Static(_) => Place::Queue(0),
        Queues::Ticket { .. } => Place::Free,
    };
    let workers = engine.program().queues.workers() as usize;
    let mut shuffle = Shuffle { engine, launch, places: vec![place; workers], ticket: 0 };
    let mut frame = Frame::new();
    loop {
        let able: Vec<WorkerId> = (0..workers).map(WorkerId::from).filter(|&worker| shuffle.is_able(worker)).collect();
        let Some(&worker) = able.get(rng.below(able.len() as u64) as usize) else { return shuffle.end() };
        shuffle.go(worker, &mut frame)?;
    }
}

impl<'e> Shuffle<'e, '_> {
    fn next(&self, worker: WorkerId) -> Next {
        let steps = self.launch.steps.len();
        let queue: &[TaskId] = match &self.engine.program().queues {
            Queues::Static(queues) => &queues[worker.index()],
            Queues::Ticket { order, .. } => order,
        };
        let at = |place: usize| match queue.get(place % queue.len().max(1)) {
            Some(&task) if place < steps * queue.len() => Next::Run { number: place / queue.len(), task },
            _ => Next::Nothing,
        };
        match self.places[worker.index()] {
            Place::Queue(place) | Place::Holds(place) => at(place),
            Place::Free if self.ticket < steps * queue.len() => Next::Draw,
            Place::Free => Next::Nothing,
        }
    }

    fn is_able(&self, worker: WorkerId) -> bool {
        match self.next(worker) {
            Next::Nothing => false,
            Next::Draw => true,
            Next::Run { number, task } => {
                let step = self.launch.first + number as u64;
                self.engine.may_start(step) && self.engine.pending(task, step, self.launch.steps[number].pos).is_none()
            }
        }
    }

    fn go(&mut self, worker: WorkerId, frame: &mut Frame<'e>) -> Result<(), Aborted> {
        match self.next(worker) {
            Next::Nothing => {}
            Next::Draw => {
                self.places[worker.index()] = Place::Holds(self.ticket);
                self.ticket += 1;
            }
            Next::Run { number, task } => {
                // SAFETY: the waits are over, and there is one thread.
                unsafe { self.engine.run(worker, task, self.launch, number, frame)? };
                self.advance(worker);
            }
        }
        Ok(())
    }

    /// The worker has run its task.
    fn advance(&mut self, worker: WorkerId) {
        self.places[worker.index()] = match self.places[worker.index()] {
            Place::Queue(place) => {
                let length = match &self.engine.program().queues {
                    Queues::Static(queues) => queues[worker.index()].len(),
                    Queues::Ticket { .. } => 0,
                };
                if length > 0 && (place + 1).is_multiple_of(length) {
                    self.engine.advance();
                }
                Place::Queue(place + 1)
            }
            Place::Free | Place::Holds(_) => {
                self.engine.advance();
                Place::Free
            }
        };
    }

    /// No worker can continue: all are done, or some wait forever.
    fn end(&self) -> Result<(), Aborted> {
        for worker in (0..self.places.len()).map(WorkerId::from) {
            if let Next::Run { number, task } = self.next(worker) {
                let step = self.launch.first + number as u64;
                let (counter, wanted) =
                    self.engine.pending(task, step, self.launch.steps[number].pos).unwrap_or((0, 0));
                let stall = self.engine.stall(worker, task, counter, wanted, Duration::ZERO);
                return Err(self.engine.fail(Box::new(stall).into()));
            }
        }
        Ok(())
    }
}
