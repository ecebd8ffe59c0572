//! One worker's way through a launch.

use super::engine::{Aborted, Engine, Launch};
use super::rng::Rng;
use crate::registry::Frame;
use amk_ir::{Queues, TaskId, WorkerId};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

/// A worker. Its frame is kept from task to task.
pub(super) struct Worker<'p> {
    engine: &'p Engine,
    id: WorkerId,
    frame: Frame<'p>,
    /// Delays tasks at random.
    delays: Option<Rng>,
}

impl<'p> Worker<'p> {
    /// Worker `id`; with a seed it delays its tasks at random.
    pub(super) fn new(engine: &'p Engine, id: WorkerId, seed: Option<u64>) -> Self {
        let delays = seed.map(|seed| Rng::new(seed.wrapping_mul(0x0101_0101).wrapping_add(u64::from(id.0))));
        Self { engine, id, frame: Frame::new(), delays }
    }

    /// This worker's part of a launch.
    pub(super) fn run(&mut self, launch: &Launch) -> Result<(), Aborted> {
        match &self.engine.program().queues {
            Queues::Static(queues) => self.run_queue(&queues[self.id.index()], launch),
            Queues::Ticket { order, .. } => self.draw_tickets(order, launch),
        }
    }

    fn run_queue(&mut self, queue: &[TaskId], launch: &Launch) -> Result<(), Aborted> {
        for number in 0..if queue.is_empty() { 0 } else { launch.steps.len() } {
            self.engine.wait_for_step(self.id, launch.first + number as u64)?;
            for &task in queue {
                self.task(task, launch, number)?;
            }
            self.engine.advance();
        }
        Ok(())
    }

    fn draw_tickets(&mut self, order: &[TaskId], launch: &Launch) -> Result<(), Aborted> {
        loop {
            let ticket = self.engine.ticket.fetch_add(1, Ordering::Relaxed) as usize;
            let (number, place) = (ticket / order.len().max(1), ticket % order.len().max(1));
            let Some(&task) = order.get(place).filter(|_| number < launch.steps.len()) else { return Ok(()) };
            self.engine.wait_for_step(self.id, launch.first + number as u64)?;
            self.task(task, launch, number)?;
            self.engine.advance();
        }
    }

    fn task(&mut self, task: TaskId, launch: &Launch, number: usize) -> Result<(), Aborted> {
        let step = launch.first + number as u64;
        self.delay();
        self.engine.wait_for_task(self.id, task, step, launch.steps[number].pos)?;
        self.delay();
        // SAFETY: the waits are over, and this thread is the worker.
        unsafe { self.engine.run(self.id, task, launch, number, &mut self.frame) }
    }

    /// Nothing mostly; sometimes a few microseconds on the core, sometimes without it.
    fn delay(&mut self) {
        let Some(rng) = &mut self.delays else { return };
        match rng.below(8) {
            0 => std::thread::yield_now(),
            1 => {
                let (start, length) = (Instant::now(), Duration::from_micros(rng.below(40)));
                while start.elapsed() < length {
                    core::hint::spin_loop();
                }
            }
            2 if rng.below(8) == 0 => std::thread::sleep(Duration::from_micros(rng.below(200))),
            _ => {}
        }
    }
}
