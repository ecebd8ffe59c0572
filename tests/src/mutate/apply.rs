//! Making the mutant.

use super::{Class, Mutation, Site};
use crate::generate::instruction;
use amk_ir::{
    Access, Bound, BufferId, BufferKind, Element, EventId, Exchange, InstructionId, Interval, Operand, Param, Program,
    Queues, Region, Steps, Task, TaskId, Wait,
};

impl Mutation {
    /// The mutant; the program itself where the site is not in it.
    pub fn apply(&self, program: &Program) -> Program {
        let mut mutant = program.clone();
        // A site that is not in the program changes nothing.
        let _ = change(&mut mutant, self.class, self.site);
        mutant
    }
}

fn change(program: &mut Program, class: Class, site: Site) -> Option<()> {
    match site {
        Site::Program => whole(program, class),
        Site::Wait(task, n, to) => wait(program.tasks.get_mut(task.index())?, class, n, to),
        Site::Task(task, on) => {
            let fan_in = program.tasks.iter().filter(|task| task.signals.contains(&on)).count() as u32;
            program.tasks.get_mut(task.index())?.waits.push(Wait { on, threshold: fan_in });
            Some(())
        }
        Site::Signal(task, n, to) => signal(program.tasks.get_mut(task.index())?, class, n, to),
        Site::Entry(worker, at, to) => entry(&mut program.queues, class, worker, at, to),
        Site::Pair(one, other) => swap(program, one, other),
        Site::Tile { task, call, operand, .. } if class == Class::DropOperand => {
            drop_operand(program, task, call, operand)
        }
        Site::Tile { task, call, operand, .. } if class == Class::UnknownBuffer => {
            let unknown = BufferId::from(program.buffers.len());
            program.tasks.get_mut(task.index())?.calls.get_mut(call)?.operands.get_mut(operand)?.buffer = unknown;
            Some(())
        }
        Site::Tile { task, call, operand, dim, up } => {
            let operand = program.tasks.get_mut(task.index())?.calls.get_mut(call)?.operands.get_mut(operand)?;
            tile(operand, class, dim, up)
        }
        Site::Call(task, n) if class != Class::DropCall => {
            let call = program.tasks.get_mut(task.index())?.calls.get_mut(n)?;
            match class {
                Class::ExtraParam => call.params.push(Param::U32(1)),
                _ => call.instruction = InstructionId::from(program.instructions.len()),
            }
            Some(())
        }
        Site::Call(task, call) => {
            let calls = &mut program.tasks.get_mut(task.index())?.calls;
            (call < calls.len()).then(|| drop(calls.remove(call)))
        }
        Site::Buffer(id) => buffer(program, class, id),
        Site::Buffers(one, other) => {
            for id in [one, other] {
                program.buffers.get_mut(id.index())?.place = Some(0);
            }
            Some(())
        }
        Site::Event(id) => {
            let extent = program.events.get_mut(id.index())?.shape.first_mut()?;
            *extent = extent.saturating_sub(1);
            Some(())
        }
    }
}

fn whole(program: &mut Program, class: Class) -> Option<()> {
    match class {
        Class::Pipeline => program.steps = Steps::Pipelined,
        Class::Barrier => program.steps = Steps::Barrier,
        Class::FewerPositions => program.positions = program.positions.saturating_sub(1),
        Class::MorePositions => program.positions = program.positions.saturating_add(1),
        Class::NoWorkers => match &mut program.queues {
            Queues::Static(queues) => queues.clear(),
            Queues::Ticket { workers, .. } => *workers = 0,
        },
        Class::LessMemory => {
            let bytes = program.buffers.iter().map(|buffer| buffer.bytes()).sum::<u64>();
            program.limits.memory_bytes = bytes - bytes % 3;
        }
        Class::FewerResident => program.limits.workers = program.queues.workers() - 1,
        _ => {
            let Queues::Static(queues) = &program.queues else { return None };
            let order = (0..program.tasks.len()).map(TaskId::from).collect();
            program.queues = Queues::Ticket { workers: queues.len() as u32, order };
        }
    }
    Some(())
}

fn wait(task: &mut Task, class: Class, n: usize, to: Option<Element>) -> Option<()> {
    let wait = task.waits.get_mut(n)?;
    match class {
        Class::LowerWait => wait.threshold = wait.threshold.saturating_sub(1),
        Class::RaiseWait => wait.threshold = wait.threshold.saturating_add(1),
        Class::RedirectWait => wait.on = to?,
        Class::UnknownCounter => wait.on.event = EventId(u32::from(u16::MAX)),
        Class::RepeatWait => {
            let again = *wait;
            task.waits.push(again);
        }
        _ => drop(task.waits.remove(n)),
    }
    Some(())
}

fn signal(task: &mut Task, class: Class, n: usize, to: Option<Element>) -> Option<()> {
    let signal = task.signals.get_mut(n)?;
    match class {
        Class::RedirectSignal => *signal = to?,
        Class::RepeatSignal => {
            let again = *signal;
            task.signals.push(again);
        }
        _ => drop(task.signals.remove(n)),
    }
    Some(())
}

fn entry(queues: &mut Queues, class: Class, worker: usize, at: usize, to: usize) -> Option<()> {
    if let (Queues::Static(queues), Class::SplitWorker) = (&mut *queues, class) {
        queues.push(Vec::new());
    }
    let mut lists: Vec<&mut Vec<TaskId>> = match queues {
        Queues::Static(queues) => queues.iter_mut().collect(),
        Queues::Ticket { order, .. } => vec![order],
    };
    let list = lists.get_mut(worker)?;
    let task = *list.get(at)?;
    match class {
        Class::SwapQueue if at + 1 < list.len() => list.swap(at, at + 1),
        Class::SwapQueue => return None,
        Class::RepeatEntry => list.push(task),
        Class::DropEntry => drop(list.remove(at)),
        _ => {
            list.remove(at);
            let target = lists.get_mut(to)?;
            let behind = target.iter().position(|&other| other > task).unwrap_or(target.len());
            target.insert(behind, task);
        }
    }
    Some(())
}

/// Exchanges two tasks in eager order; each stays where it is queued.
fn swap(program: &mut Program, one: TaskId, other: TaskId) -> Option<()> {
    if one.index().max(other.index()) >= program.tasks.len() {
        return None;
    }
    program.tasks.swap(one.index(), other.index());
    let lists: Vec<&mut Vec<TaskId>> = match &mut program.queues {
        Queues::Static(queues) => queues.iter_mut().collect(),
        Queues::Ticket { order, .. } => vec![order],
    };
    for task in lists.into_iter().flatten() {
        if *task == one {
            *task = other;
        } else if *task == other {
            *task = one;
        }
    }
    Some(())
}

/// Changes a tile; `None` where the dimension is not there.
pub(super) fn tile(operand: &mut Operand, class: Class, dim: usize, up: bool) -> Option<()> {
    match class {
        Class::Early => operand.early = true,
        Class::ChangeAccess => {
            operand.access = match operand.access {
                Access::Read => Access::Update,
                Access::Update => Access::Write,
                Access::Write => Access::Read,
            };
        }
        Class::ChangeRank => {
            let intervals = [operand.region.intervals(), &[Interval::fixed(0, 1)]].concat();
            operand.region = Region::new(&intervals)?;
        }
        _ => return bounds(operand, class, dim, up),
    }
    Some(())
}

fn bounds(operand: &mut Operand, class: Class, dim: usize, up: bool) -> Option<()> {
    let Interval { lo, hi } = operand.region.intervals_mut().get_mut(dim)?;
    let shift = |bound: &mut Bound, up: bool| match (bound.behind, up) {
        (true, up) => *bound = Bound::behind(if up { bound.base - 1 } else { bound.base.saturating_add(1) }),
        (false, true) => bound.base = bound.base.saturating_add(1),
        (false, false) => bound.base = bound.base.saturating_sub(1),
    };
    let follow = |bound: &mut Bound| *bound = Bound { pos: !bound.pos, behind: false, ..*bound };
    match (class, up) {
        (Class::ShiftTile, up) => {
            shift(lo, up);
            shift(hi, up);
        }
        (Class::WidenTile, true) => shift(hi, true),
        (Class::WidenTile, false) => shift(lo, false),
        (Class::NarrowTile, true) => shift(hi, false),
        (Class::NarrowTile, false) => shift(lo, true),
        (Class::FollowBound, true) => follow(hi),
        (Class::FollowBound, false) => follow(lo),
        (Class::FallBehind, true) => *hi = Bound::behind(hi.base.max(1)),
        (Class::FallBehind, false) => *lo = Bound::behind(lo.base.max(1)),
        _ => {
            follow(lo);
            *hi = Bound { pos: lo.pos, behind: false, ..*hi };
        }
    }
    Some(())
}

/// Takes an operand out of a call, which becomes a call of the instruction without it.
fn drop_operand(program: &mut Program, task: TaskId, call: usize, operand: usize) -> Option<()> {
    let body = program.tasks.get(task.index())?.calls.get(call)?;
    let mut accesses: Vec<Access> = body.operands.iter().map(|operand| operand.access).collect();
    if operand >= accesses.len() {
        return None;
    }
    accesses.remove(operand);
    let known = instruction(program, &accesses);
    let body = program.tasks.get_mut(task.index())?.calls.get_mut(call)?;
    body.operands.remove(operand);
    body.instruction = known;
    body.params.clear();
    Some(())
}

fn buffer(program: &mut Program, class: Class, id: BufferId) -> Option<()> {
    let buffer = program.buffers.get_mut(id.index())?;
    match class {
        Class::FewerSlots => match &mut buffer.exchange {
            Exchange::Packet { slots } => *slots = slots.saturating_sub(1),
            Exchange::Counter => return None,
        },
        Class::MoreSlots => match &mut buffer.exchange {
            Exchange::Packet { slots } => *slots = slots.saturating_add(1),
            Exchange::Counter => return None,
        },
        Class::PacketToCounter => buffer.exchange = Exchange::Counter,
        Class::CounterToPacket => {
            buffer.exchange = Exchange::Packet { slots: 1 };
            buffer.place = None;
        }
        Class::Misalign => buffer.place = Some(buffer.place? + 1),
        Class::ReadOnly => buffer.kind = BufferKind::Weight,
        Class::ForgetState => buffer.kind = BufferKind::Activation,
        Class::MakeLocal => {
            buffer.kind = BufferKind::Local;
            buffer.place = None;
        }
        _ => {
            let extent = buffer.shape.first_mut()?;
            *extent = extent.saturating_sub(1);
        }
    }
    Some(())
}
