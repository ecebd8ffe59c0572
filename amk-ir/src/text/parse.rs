//! The reader of the text format.

use super::cursor::{Cursor, Parsed, is_digits, list};
use super::error::{ParseCause, ParseError, tick};
use super::print::{EVENT, KINDS, dtype_of};
use super::table::at_routed;
use crate::{
    Access, Bound, Buffer, BufferId, BufferKind, Call, CallRows, DType, Element, EventId, EventTensor, Exchange,
    Instruction, InstructionId, Interval, MAX_RANK, OpId, Operand, OperandSpec, Param, Program, Queues, Region, Routed,
    Steps, Task, TaskId, Wait, WorkerId,
};
use std::collections::HashMap;

/// The lines of a text's entities, from 1; by entity index.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The `program` line.
    pub program: u32,
    /// The `limits` line, 0 if there is none.
    pub limits: u32,
    /// Of the instructions.
    pub instructions: Vec<u32>,
    /// Of the buffers.
    pub buffers: Vec<u32>,
    /// Of the tables.
    pub tables: Vec<u32>,
    /// Of the event tensors.
    pub events: Vec<u32>,
    /// Of the tasks.
    pub tasks: Vec<u32>,
    /// Of the workers, or the one `ticket` line.
    pub queues: Vec<u32>,
}

/// Reads a program.
///
/// # Errors
/// [`ParseError`] at the first line and column that is not of the format. A program that reads well
/// can still be wrong in every way that the verifier knows.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    parse_with_lines(text).map(|(program, _)| program)
}

/// Parses a program, and returns the lines of its entities.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_lines(text: &str) -> Result<(Program, Lines), ParseError> {
    let mut parser = Parser::default();
    parser.program.positions = 1;
    let mut last = 0;
    for (n, line) in text.lines().enumerate() {
        last = u32::try_from(n + 1).unwrap_or(u32::MAX);
        let mut cursor = Cursor::new(line, last);
        if !cursor.at_end() {
            parser.line(&mut cursor, last)?;
            cursor.end()?;
        }
    }
    if parser.lines.program == 0 {
        let help = Some("start with a line such as `program @name`".to_owned());
        return Err(ParseError { line: last.max(1), column: 1, cause: ParseCause::NoProgram, help });
    }
    Ok((parser.program, parser.lines))
}

#[derive(Default)]
pub(super) struct Parser {
    pub(super) program: Program,
    pub(super) lines: Lines,
    /// Instructions by name; `None` where several have the name.
    by_name: HashMap<String, Option<InstructionId>>,
    seen_positions: bool,
    seen_rows: bool,
    seen_steps: bool,
}

impl Parser {
    fn line(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        let start = cursor.clone();
        let word = cursor.word("a word")?;
        let once = |seen: bool| match seen {
            true => Err(start.error(ParseCause::Repeated { what: word.to_owned() })),
            false => Ok(()),
        };
        match word {
            "program" => {
                once(self.lines.program != 0)?;
                self.lines.program = line;
                self.program.name = cursor.name(true)?;
                Ok(())
            }
            "positions" => {
                once(std::mem::replace(&mut self.seen_positions, true))?;
                self.program.positions = cursor.u32("a number of positions")?;
                Ok(())
            }
            "rows" => {
                once(std::mem::replace(&mut self.seen_rows, true))?;
                self.program.rows = Some(cursor.u32("a number of rows")?);
                Ok(())
            }
            "steps" => {
                once(std::mem::replace(&mut self.seen_steps, true))?;
                self.steps(cursor)
            }
            "limits" => {
                once(self.lines.limits != 0)?;
                self.lines.limits = line;
                self.limits(cursor)
            }
            "dim" => self.dim(cursor),
            "instruction" => self.instruction(cursor, line),
            "op" => self.op(cursor),
            "buffer" => self.buffer(cursor, line),
            "table" => self.table(cursor, line),
            "event" => self.event(cursor, line),
            "task" => self.task(cursor, line),
            "worker" => self.worker(cursor, line),
            "ticket" => {
                once(matches!(self.program.queues, Queues::Ticket { .. }))?;
                if !self.lines.queues.is_empty() {
                    return Err(start.error(ParseCause::MixedQueues));
                }
                self.ticket(cursor, line)
            }
            _ => {
                let mut error = start.error(ParseCause::UnknownLine { word: word.to_owned() });
                error.help = Some(format!("lines start with {LINE_WORDS}"));
                Err(error)
            }
        }
    }

    fn steps(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.program.steps = if cursor.eat_word("barrier") {
            Steps::Barrier
        } else if cursor.eat_word("pipelined") {
            Steps::Pipelined
        } else {
            return cursor.expected("`barrier` or `pipelined`");
        };
        Ok(())
    }

    fn limits(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let limits = &mut self.program.limits;
        let mut seen = Vec::new();
        while !cursor.at_end() {
            let what = cursor.peek_word();
            if seen.contains(&what) {
                return Err(cursor.error(ParseCause::Repeated { what: what.to_owned() }));
            }
            seen.push(what);
            if cursor.eat_word("workers") {
                limits.workers = cursor.u32("a number of workers")?;
            } else if cursor.eat_word("local") {
                limits.local_bytes = cursor.number(u64::MAX, "a number of bytes")?;
            } else if cursor.eat_word("memory") {
                limits.memory_bytes = cursor.number(u64::MAX, "a number of bytes")?;
            } else {
                return cursor.expected("`workers`, `local` or `memory`");
            }
        }
        Ok(())
    }

    fn dim(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let start = cursor.clone();
        let name = cursor.word_or_quoted("the name of a dim")?;
        cursor.expect("=", "`=`")?;
        let value = cursor.u32("the value of the dim")?;
        match self.program.dims.insert(name.clone(), value) {
            Some(_) => Err(start.error(ParseCause::Repeated { what: name })),
            None => Ok(()),
        }
    }

    fn instruction(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        next_id(cursor, InstructionId::PREFIX, self.program.instructions.len(), "the id of an instruction, as `i0`")?;
        let path = cursor.quoted()?;
        let name = cursor.word_or_quoted("the name of the instruction")?;
        let mut operands = Vec::new();
        list(cursor, "(", ")", |c| {
            let access = if c.eat_word("mut") {
                Access::Update
            } else if c.eat_word("out") {
                Access::Write
            } else {
                Access::Read
            };
            operands.push(OperandSpec { name: c.word_or_quoted("the name of an operand")?, access });
            Ok(())
        })?;
        if cursor.eat("->") {
            list(cursor, "(", ")", |c| {
                operands.push(OperandSpec { name: c.word_or_quoted("the name of an operand")?, access: Access::Write });
                Ok(())
            })?;
        }
        let mut params = Vec::new();
        if !cursor.at_end() {
            list(cursor, "{", "}", |c| {
                params.push(c.word_or_quoted("the name of a parameter")?);
                Ok(())
            })?;
        }
        let id = InstructionId::from(self.program.instructions.len());
        self.by_name.entry(name.clone()).and_modify(|known| *known = None).or_insert(Some(id));
        self.program.instructions.push(Instruction { name, path, operands, params });
        self.lines.instructions.push(line);
        Ok(())
    }

    fn op(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        next_id(cursor, OpId::PREFIX, self.program.ops.len(), "the id of an op, as `o0`")?;
        let label = cursor.quoted()?;
        self.program.ops.push(label);
        Ok(())
    }

    fn buffer(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        next_id(cursor, BufferId::PREFIX, self.program.buffers.len(), "the id of a buffer, as `b0`")?;
        let name = cursor.name(true)?;
        let kind = buffer_kind(cursor)?;
        let dtype = dtype(cursor)?;
        let mut shape = Vec::new();
        list(cursor, "[", "]", |c| {
            shape.push(c.u32("an extent")?);
            Ok(())
        })?;
        let mut exchange = Exchange::Counter;
        if cursor.eat_word("packet") {
            let slots = cursor.number(u64::from(u8::MAX), "a number of slots")? as u8;
            exchange = Exchange::Packet { slots };
        }
        let place = if cursor.eat_word("at") { Some(cursor.number(u64::MAX, "an offset in bytes")?) } else { None };
        self.program.buffers.push(Buffer { name, kind, dtype, shape, exchange, place });
        self.lines.buffers.push(line);
        Ok(())
    }

    fn event(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        next_id(cursor, EVENT, self.program.events.len(), "the id of an event tensor, as `e0`")?;
        let name = cursor.name(false)?;
        let mut shape = Vec::new();
        if !cursor.at_end() {
            list(cursor, "[", "]", |c| {
                shape.push(c.u32("an extent")?);
                Ok(())
            })?;
        }
        self.program.events.push(EventTensor { name, shape });
        self.lines.events.push(line);
        Ok(())
    }

    fn task(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        next_id(cursor, TaskId::PREFIX, self.program.tasks.len(), "the id of a task, as `t0`")?;
        let mut task = Task::default();
        if !cursor.eat(":") {
            task.op = Some(OpId(cursor.id(OpId::PREFIX, "`:` or the id of an op, as `o0`")?));
            cursor.expect(":", "`:`")?;
        }
        if !cursor.at_end() && !matches!(cursor.peek_word(), "wait" | "signal") {
            task.calls.push(self.call(cursor)?);
            while cursor.eat_word("then") {
                task.calls.push(self.call(cursor)?);
            }
        }
        if cursor.eat_word("wait") {
            self.wait(cursor, &mut task)?;
            while cursor.eat(",") {
                self.wait(cursor, &mut task)?;
            }
        }
        if cursor.eat_word("signal") {
            self.signal(cursor, &mut task)?;
            while cursor.eat(",") {
                self.signal(cursor, &mut task)?;
            }
        }
        if !cursor.at_end() {
            return cursor.expected("`rows`, `then`, `wait`, `signal` or the end of the line");
        }
        self.program.tasks.push(task);
        self.lines.tasks.push(line);
        Ok(())
    }

    fn call(&self, cursor: &mut Cursor<'_>) -> Parsed<Call> {
        let instruction = self.called(cursor)?;
        let mut operands = Vec::new();
        list(cursor, "(", ")", |c| {
            operands.push(self.operand(c, Access::Read)?);
            Ok(())
        })?;
        if cursor.eat("->") {
            list(cursor, "(", ")", |c| {
                operands.push(self.operand(c, Access::Write)?);
                Ok(())
            })?;
        }
        let mut params = Vec::new();
        if cursor.eat("{") {
            while !cursor.eat("}") {
                params.push(param(cursor)?);
                if !cursor.eat(",") {
                    cursor.expect("}", "`,` or `}`")?;
                    break;
                }
            }
        }
        let rows = if cursor.eat_word("rows") { Some(call_rows(cursor)?) } else { None };
        Ok(Call { instruction, operands, params, rows })
    }

    fn called(&self, cursor: &mut Cursor<'_>) -> Parsed<InstructionId> {
        let start = cursor.clone();
        let word = cursor.peek_word();
        if word.strip_prefix(InstructionId::PREFIX).is_some_and(is_digits) {
            return cursor.id(InstructionId::PREFIX, "the id of an instruction").map(InstructionId);
        }
        let word = cursor.word("the name of an instruction")?;
        match self.by_name.get(word) {
            Some(Some(id)) => Ok(*id),
            Some(None) => {
                let mut error = start.error(ParseCause::Ambiguous { kind: "instructions", name: word.to_owned() });
                error.help = Some("call it by its id, as `i0(..)`".to_owned());
                Err(error)
            }
            None => {
                let mut error = start.error(ParseCause::NotDeclared { kind: "instruction", name: word.to_owned() });
                let known: Vec<_> = self.program.instructions.iter().take(8).map(|i| tick(&i.name)).collect();
                error.help = (!known.is_empty()).then(|| format!("declared above: {}", known.join(", ")));
                Err(error)
            }
        }
    }

    /// An operand; `access` holds unless a mark overrides it.
    fn operand(&self, cursor: &mut Cursor<'_>, access: Access) -> Parsed<Operand> {
        let early = cursor.eat_word("early");
        let access = if cursor.eat_word("mut") {
            Access::Update
        } else if cursor.eat_word("out") {
            Access::Write
        } else {
            access
        };
        let buffer = BufferId(cursor.id(BufferId::PREFIX, "the id of a buffer, as `b0`")?);
        let shape = self.program.buffers.get(buffer.index()).map(|b| b.shape.as_slice());
        let mut intervals = Vec::new();
        let mut routed: Option<Routed> = None;
        let start = cursor.clone();
        list(cursor, "[", "]", |c| {
            if intervals.is_empty() && at_routed(c) {
                routed = Some(self.routed(c)?);
                intervals.push(whole(&start, buffer, shape, 0)?);
            } else {
                intervals.push(interval(c, buffer, shape, intervals.len())?);
            }
            Ok(())
        })?;
        if routed.is_none() && cursor.eat_word("by") {
            routed = Some(self.routed(cursor)?);
        }
        let found = intervals.len();
        let region = Region::new(&intervals).ok_or_else(|| start.error(ParseCause::Rank { found, max: MAX_RANK }))?;
        Ok(Operand { buffer, region, access, early, routed })
    }

    fn wait(&self, cursor: &mut Cursor<'_>, task: &mut Task) -> Parsed<()> {
        if let Some(wait) = self.routed_wait(cursor)? {
            task.routed_waits.push(wait);
            return Ok(());
        }
        let on = self.element(cursor)?;
        cursor.expect(">=", "`>=`")?;
        task.waits.push(Wait { on, threshold: cursor.u32("a threshold")? });
        Ok(())
    }

    fn signal(&self, cursor: &mut Cursor<'_>, task: &mut Task) -> Parsed<()> {
        match self.routed_signal(cursor)? {
            Some(signal) => task.routed_signals.push(signal),
            None => task.signals.push(self.element(cursor)?),
        }
        Ok(())
    }

    fn element(&self, cursor: &mut Cursor<'_>) -> Parsed<Element> {
        let event = EventId(cursor.id(EVENT, "the id of an event tensor, as `e0`")?);
        let start = cursor.clone();
        let mut indices = Vec::new();
        if cursor.eat("[") {
            indices.push(cursor.u32("an index")?);
            while cursor.eat(",") {
                indices.push(cursor.u32("an index")?);
            }
            cursor.expect("]", "`,` or `]`")?;
        }
        match *indices.as_slice() {
            [] => Ok(Element { event, index: 0 }),
            [index] => Ok(Element { event, index }),
            _ => self.row_major(&start, event, &indices).map(|index| Element { event, index }),
        }
    }

    fn row_major(&self, start: &Cursor<'_>, event: EventId, indices: &[u32]) -> Parsed<u32> {
        let Some(EventTensor { shape, .. }) = self.program.events.get(event.index()) else {
            return Err(start.error(ParseCause::NotDeclared { kind: "event tensor", name: event.to_string() }));
        };
        row_major(start, shape, indices)
    }

    fn worker(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        if matches!(self.program.queues, Queues::Ticket { .. }) {
            return Err(cursor.error(ParseCause::MixedQueues));
        }
        let known = self.lines.queues.len();
        next_id(cursor, WorkerId::PREFIX, known, "the id of a worker, as `w0`")?;
        cursor.expect(":", "`:`")?;
        let tasks = tasks(cursor)?;
        if let Queues::Static(queues) = &mut self.program.queues {
            queues.push(tasks);
        }
        self.lines.queues.push(line);
        Ok(())
    }

    fn ticket(&mut self, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        let workers = cursor.u32("a number of workers")?;
        cursor.expect(":", "`:`")?;
        self.program.queues = Queues::Ticket { workers, order: tasks(cursor)? };
        self.lines.queues.push(line);
        Ok(())
    }
}

const LINE_WORDS: &str = "`program`, `positions`, `rows`, `steps`, `limits`, `dim`, `instruction`, `op`, `buffer`, \
                          `table`, `event`, `task`, `worker` or `ticket`";

/// The place of an element in row-major order.
pub(super) fn row_major(start: &Cursor<'_>, shape: &[u32], indices: &[u32]) -> Parsed<u32> {
    if shape.len() != indices.len() {
        return Err(start.error(ParseCause::Rank { found: indices.len(), max: shape.len() }));
    }
    let mut flat = 0u64;
    for (&index, &extent) in indices.iter().zip(shape) {
        if index >= extent {
            return Err(start.error(ParseCause::EventIndex { index: u64::from(index), extent }));
        }
        flat = flat.saturating_mul(u64::from(extent)).saturating_add(u64::from(index));
    }
    u32::try_from(flat)
        .map_err(|_| start.error(ParseCause::TooLarge { number: flat.to_string(), max: u64::from(u32::MAX) }))
}

/// The id that a line defines; it must be the next of its kind.
pub(super) fn next_id(cursor: &mut Cursor<'_>, prefix: &str, next: usize, expected: &'static str) -> Parsed<()> {
    let start = cursor.clone();
    let found = cursor.id(prefix, expected)?;
    if found as usize == next {
        return Ok(());
    }
    let (expected, found) = (format!("{prefix}{next}"), format!("{prefix}{found}"));
    let mut error = start.error(ParseCause::OutOfOrder { expected, found });
    error.help = Some("entities are numbered from 0 in the order of their lines".to_owned());
    Err(error)
}

fn buffer_kind(cursor: &mut Cursor<'_>) -> Parsed<BufferKind> {
    let word = cursor.peek_word();
    match KINDS.iter().find(|(_, name)| *name == word) {
        Some((kind, _)) => cursor.word("a kind").map(|_| *kind),
        None => cursor.expected("`weight`, `input`, `activation`, `output`, `state` or `local`"),
    }
}

/// An element type.
pub(super) fn dtype(cursor: &mut Cursor<'_>) -> Parsed<DType> {
    match dtype_of(cursor.peek_word()) {
        Some(dtype) => cursor.word("an element type").map(|_| dtype),
        None => cursor.expected("an element type, as `f32` or `bf16`"),
    }
}

fn interval(cursor: &mut Cursor<'_>, buffer: BufferId, shape: Option<&[u32]>, dim: usize) -> Parsed<Interval> {
    let start = cursor.clone();
    if cursor.eat("..") {
        return whole(&start, buffer, shape, dim);
    }
    let lo = bound(cursor)?;
    if cursor.eat("..") {
        return Ok(Interval { lo, hi: bound(cursor)? });
    }
    if lo.behind {
        return cursor.expected("`..`: `max(0, pos-N)` begins an interval");
    }
    match lo.next() {
        Some(hi) => Ok(Interval { lo, hi }),
        None => {
            let max = u64::from(u32::MAX) - 1;
            Err(start.error(ParseCause::TooLarge { number: lo.to_string(), max }))
        }
    }
}

/// All of a dimension.
fn whole(start: &Cursor<'_>, buffer: BufferId, shape: Option<&[u32]>, dim: usize) -> Parsed<Interval> {
    let Some(shape) = shape else {
        return Err(start.error(ParseCause::NotDeclared { kind: "buffer", name: buffer.to_string() }));
    };
    match shape.get(dim) {
        Some(&extent) => Ok(Interval::fixed(0, extent)),
        None => Err(start.error(ParseCause::Rank { found: dim + 1, max: shape.len() })),
    }
}

fn bound(cursor: &mut Cursor<'_>) -> Parsed<Bound> {
    if cursor.eat_word("pos") {
        let base = if cursor.eat("+") { cursor.u32("a number")? } else { 0 };
        return Ok(Bound::at_pos(base));
    }
    if cursor.eat_word("max") {
        for token in ["(", "0", ",", "pos", "-"] {
            cursor.expect(token, "`max(0, pos-N)`")?;
        }
        let back = cursor.u32("a number")?;
        cursor.expect(")", "`)`")?;
        return Ok(Bound::behind(back));
    }
    if cursor.at_digit() {
        return cursor.u32("a number").map(Bound::fixed);
    }
    cursor.expected("a bound: a number, `pos`, `pos+N` or `max(0, pos-N)`")
}

/// The rows of a call, after the word.
fn call_rows(cursor: &mut Cursor<'_>) -> Parsed<CallRows> {
    let first = cursor.u32("the first row")?;
    cursor.expect("..", "`..`")?;
    let end = cursor.u32("the end of the rows")?;
    Ok(CallRows { first, end, wanted: cursor.eat_word("wanted") })
}

fn param(cursor: &mut Cursor<'_>) -> Parsed<Param> {
    let start = cursor.clone();
    let scalar = cursor.scalar()?;
    if scalar == "pos" {
        return Ok(Param::Pos);
    }
    if is_digits(scalar) {
        return match scalar.parse() {
            Ok(n) => Ok(Param::U32(n)),
            Err(_) => start.clone().u32("a parameter").map(Param::U32),
        };
    }
    match scalar.parse::<f32>() {
        Ok(x) => Ok(Param::F32(x)),
        Err(_) => start.expected("a float, an unsigned integer or `pos`"),
    }
}

fn tasks(cursor: &mut Cursor<'_>) -> Parsed<Vec<TaskId>> {
    let mut tasks = Vec::new();
    while !cursor.at_end() {
        tasks.push(TaskId(cursor.id(TaskId::PREFIX, "the id of a task, as `t0`")?));
    }
    Ok(tasks)
}
