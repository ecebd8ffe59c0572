//! Random small programs, about half of them safe: the waits are derived from the eager order, and
//! then some are spoilt.
//!
//! [`program()`] draws buffers, then tasks that mostly read written elements, then queues, then
//! counters for every conflict that the queues do not order. A pipelined program mostly gets
//! closing tasks that keep a worker from overtaking the others by a step.

mod arena;
pub mod attack;
mod boxes;
mod buffers;
mod grow;
mod relay;
mod rng;
mod sync;
mod tasks;

pub use grow::grow;
pub use rng::Rng;

use amk_ir::{Access, Instruction, OperandSpec, Program, Queues, Region, Steps, TaskId};

/// A program under construction.
struct Draft<'a> {
    rng: &'a mut Rng,
    program: Program,
    /// Of each buffer: tiles written so far.
    written: Vec<Vec<Region>>,
    size: Size,
    /// Whether now and then something is left out or mixed up.
    careless: bool,
}

/// How large programs are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Fewest and most tasks; at most 120.
    pub tasks: (u32, u32),
    /// Numbers of workers, drawn from evenly.
    pub workers: &'static [u32],
    /// Fewest and most buffers that are written.
    pub buffers: (u32, u32),
    /// The largest number of rows of a buffer.
    pub rows: u32,
}

impl Size {
    /// Every interleaving can be explored.
    pub const SMALL: Self = Self { tasks: (2, 7), workers: &[1, 2, 2, 2, 2, 3, 3, 3, 3, 4], buffers: (1, 3), rows: 4 };
    /// As large as a layer of a model.
    pub const LARGE: Self = Self { tasks: (12, 80), workers: &[2, 3, 4, 6, 8], buffers: (3, 9), rows: 16 };
}

/// Draws a program.
pub fn program(rng: &mut Rng, size: Size) -> Program {
    let careless = rng.chance(40);
    let program = Program { name: "drawn".into(), ..Program::default() };
    let mut draft = Draft { rng, program, written: Vec::new(), size, careless };
    draft.program.positions = if draft.rng.chance(60) { 1 } else { draft.rng.between(2, 4) };
    let pipelined = draft.rng.chance(35);
    let ticket = draft.rng.chance(if pipelined { 10 } else { 30 });
    let workers = *draft.rng.pick(size.workers).unwrap_or(&1);
    let closed = pipelined && !ticket && workers > 1 && draft.rng.chance(75);
    if pipelined {
        draft.program.steps = Steps::Pipelined;
    }
    draft.buffers();
    let (fewest, most) = size.tasks;
    let tasks = draft.rng.between(fewest, if closed { most - workers } else { most });
    draft.tasks(tasks);
    draft.share_memory();
    draft.queues(ticket, workers);
    draft.synchronise(if closed { sync::Closing::Whole } else { sync::Closing::Open }, &[]);
    draft.program
}

impl Draft<'_> {
    /// Gives the tasks to workers, mostly in eager order.
    fn queues(&mut self, ticket: bool, workers: u32) {
        let tasks = self.program.tasks.len() as u32;
        let mut order: Vec<TaskId> = (0..tasks).map(TaskId).collect();
        if tasks > 1 && self.careless && self.rng.chance(30) {
            let at = self.rng.below(tasks - 1) as usize;
            order.swap(at, at + 1);
        }
        self.program.queues = if ticket {
            Queues::Ticket { workers, order }
        } else {
            let mut queues = vec![Vec::new(); workers as usize];
            for task in order {
                queues[self.rng.below(workers) as usize].push(task);
            }
            Queues::Static(queues)
        };
    }

    /// The instruction of these accesses.
    fn instruction(&mut self, accesses: &[Access]) -> amk_ir::InstructionId {
        instruction(&mut self.program, accesses)
    }
}

/// Gives the tasks of a program to workers, and makes them wait for the conflicts that the queues
/// do not order.
pub fn ordered(rng: &mut Rng, program: Program, ticket: bool, workers: u32, careless: bool) -> Program {
    let mut draft = Draft { rng, program, written: Vec::new(), size: Size::SMALL, careless };
    draft.queues(ticket, workers);
    draft.synchronise(sync::Closing::Open, &[]);
    draft.program
}

/// The instruction of these accesses in a program's table, added if it is not there.
pub fn instruction(program: &mut Program, accesses: &[Access]) -> amk_ir::InstructionId {
    let letter = |access: &Access| match access {
        Access::Read => 'r',
        Access::Update => 'u',
        Access::Write => 'w',
    };
    let name: String = "f".chars().chain(accesses.iter().map(letter)).collect();
    let known = program.instructions.iter().position(|instruction| instruction.name == name);
    let at = known.unwrap_or_else(|| {
        let spec = |(n, &access): (usize, &Access)| OperandSpec { name: format!("x{n}"), access };
        let operands = accesses.iter().enumerate().map(spec).collect();
        program.instructions.push(Instruction { path: format!("drawn::{name}"), name, operands, params: Vec::new() });
        program.instructions.len() - 1
    });
    at.into()
}

/// Whether two tiles of a buffer share an element at some position.
fn intersects(one: &Region, other: &Region, positions: u32) -> bool {
    (0..u64::from(positions)).any(|at| {
        let pairs = one.intervals().iter().zip(other.intervals());
        pairs.into_iter().all(|(a, b)| a.lo.at(at).max(b.lo.at(at)) < a.hi.at(at).min(b.hi.at(at)))
    })
}
