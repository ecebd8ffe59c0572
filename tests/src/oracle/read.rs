//! The oracle's own reader of the `.amk` text: the format's description, and nothing of the program
//! crate.

use super::source::{Access, Bound, Buffer, Call, Counter, Kind, Operand, Queues, Rows, Signature, Source, Task};

/// Reads a program.
///
/// # Errors
/// The line and what the reader expected there.
pub fn read(text: &str) -> Result<Source, String> {
    let mut source = Source { positions: 1, ..Source::default() };
    for (number, line) in text.lines().enumerate() {
        let mut line = Line { rest: code(line).trim() };
        if !line.rest.is_empty() {
            statement(&mut source, &mut line)
                .and_then(|()| if line.rest.is_empty() { Ok(()) } else { Err("the end of the line".into()) })
                .map_err(|expected| format!("line {}: expected {expected} before `{}`", number + 1, line.rest))?;
        }
    }
    Ok(source)
}

/// The line without its comment.
fn code(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn statement(source: &mut Source, line: &mut Line) -> Result<(), String> {
    match line.word() {
        "program" => line.name().map(drop),
        "positions" => line.number().map(|n| source.positions = n),
        "rows" => line.number().map(|n| source.rows = Some(n)),
        "steps" => match line.word() {
            "barrier" => Ok(()),
            "pipelined" => {
                source.pipelined = true;
                Ok(())
            }
            _ => Err("`barrier` or `pipelined`".into()),
        },
        "limits" => limits(source, line),
        "dim" | "op" => {
            line.rest = "";
            Ok(())
        }
        "instruction" => instruction(line).map(|i| source.instructions.push(i)),
        "buffer" => {
            line.dense('b', source.buffers.len())?;
            buffer(line).map(|b| source.buffers.push(b))
        }
        "event" => {
            line.dense('e', source.events.len())?;
            event(line).map(|e| source.events.push(e))
        }
        "task" => {
            line.dense('t', source.tasks.len())?;
            task(&source.events, line).map(|t| source.tasks.push(t))
        }
        "worker" => worker(source, line),
        "ticket" => {
            let workers = line.number()?;
            line.expect(":")?;
            source.queues = Queues::Ticket { workers, order: entries(line)? };
            Ok(())
        }
        word => Err(format!("a statement, not `{word}`,")),
    }
}

fn limits(source: &mut Source, line: &mut Line) -> Result<(), String> {
    while !line.rest.is_empty() {
        let slot = match line.word() {
            "workers" => &mut source.resident,
            "local" => &mut source.local_bytes,
            "memory" => &mut source.memory_bytes,
            _ => return Err("`workers`, `local` or `memory`".into()),
        };
        *slot = Some(line.number()?);
    }
    Ok(())
}

/// `i0 "path" name(x, mut y) -> (z) { p, q }`
fn instruction(line: &mut Line) -> Result<Signature, String> {
    line.entity('i')?;
    line.name()?;
    let mut signature = Signature { name: line.name()?, ..Signature::default() };
    line.list("(", ")", |line| {
        let access = access(line).unwrap_or(Access::Read);
        signature.accesses.push(access);
        line.name().map(drop)
    })?;
    if line.eat("->") {
        line.list("(", ")", |line| {
            signature.accesses.push(Access::Write);
            line.name().map(drop)
        })?;
    }
    if line.rest.starts_with('{') {
        line.list("{", "}", |line| {
            signature.params += 1;
            line.name().map(drop)
        })?;
    }
    Ok(signature)
}

/// `mut` or `out`, if one is here.
fn access(line: &mut Line) -> Option<Access> {
    let marks = [("mut", Access::Update), ("out", Access::Write)];
    marks.into_iter().find(|(mark, _)| line.keyword(mark)).map(|(_, access)| access)
}

/// `@name kind dtype[shape] packet N at N`
fn buffer(line: &mut Line) -> Result<Buffer, String> {
    line.expect("@")?;
    line.token()?;
    let kind = match line.word() {
        "weight" => Kind::Weight,
        "input" => Kind::Input,
        "activation" => Kind::Activation,
        "output" => Kind::Output,
        "state" => Kind::State,
        "local" => Kind::Local,
        _ => return Err("a buffer kind".into()),
    };
    let width = match line.word() {
        "f32" | "i32" | "u32" => 4,
        "f16" | "bf16" => 2,
        "i8" | "u8" => 1,
        _ => return Err("an element type".into()),
    };
    let shape = line.numbers()?;
    let (mut slots, mut place) = (None, None);
    while !line.rest.is_empty() {
        match line.word() {
            "packet" => slots = Some(line.number()?),
            "at" => place = Some(line.number()?),
            _ => return Err("`packet` or `at`".into()),
        }
    }
    Ok(Buffer { kind, width, shape, slots, place, unread: Vec::new() })
}

/// `@name[shape]`, or `@name` for one counter.
fn event(line: &mut Line) -> Result<Vec<u64>, String> {
    line.expect("@")?;
    if line.quoted().transpose()?.is_none() {
        line.skip(line.rest.find(|c: char| c.is_whitespace() || c == '[').unwrap_or(line.rest.len()));
    }
    if line.rest.starts_with('[') { line.numbers() } else { Ok(Vec::new()) }
}

/// `o0: call then call wait .. signal ..`, behind the task's own id.
fn task(events: &[Vec<u64>], line: &mut Line) -> Result<Task, String> {
    if line.rest.starts_with('o') {
        line.entity('o')?;
    }
    line.expect(":")?;
    let mut task = Task::default();
    while !(line.rest.is_empty() || line.at_keyword("wait") || line.at_keyword("signal")) {
        task.calls.push(call(line)?);
        if !line.keyword("then") {
            break;
        }
    }
    if line.keyword("wait") {
        loop {
            let on = counter(events, line)?;
            line.expect(">=")?;
            task.waits.push((on, line.number()?));
            if !line.eat(",") {
                break;
            }
        }
    }
    if line.keyword("signal") {
        loop {
            task.signals.push(counter(events, line)?);
            if !line.eat(",") {
                break;
            }
        }
    }
    Ok(task)
}

/// `e0`, `e0[1, 2]`, or the row-major index of a tensor of another rank.
fn counter(events: &[Vec<u64>], line: &mut Line) -> Result<Counter, String> {
    let event = line.entity('e')?;
    let at = if line.rest.starts_with('[') { line.numbers()? } else { Vec::new() };
    let shape = events.get(event).map_or(&[][..], |shape| shape);
    let index = match at[..] {
        [index] if shape.len() != 1 => index,
        _ if at.len() == shape.len() && at.iter().zip(shape).all(|(at, extent)| at < extent) => {
            at.iter().zip(shape).fold(0, |index, (at, extent)| index * extent + at)
        }
        _ => u64::MAX,
    };
    Ok(Counter { event, index })
}

fn call(line: &mut Line) -> Result<Call, String> {
    let mut call = Call { name: line.name()?, ..Call::default() };
    line.list("(", ")", |line| operand(line, Access::Read).map(|o| call.operands.push(o)))?;
    if line.eat("->") {
        line.list("(", ")", |line| operand(line, Access::Write).map(|o| call.operands.push(o)))?;
    }
    if line.rest.starts_with('{') {
        line.list("{", "}", |line| {
            call.params += 1;
            let end = line.rest.find([',', '}']).ok_or("`}`")?;
            line.skip(end);
            Ok(())
        })?;
    }
    if line.keyword("rows") {
        let first = line.number()?;
        line.expect("..")?;
        let end = line.number()?;
        call.rows = Some(Rows { first, end, wanted: line.keyword("wanted") });
    }
    Ok(call)
}

fn operand(line: &mut Line, side: Access) -> Result<Operand, String> {
    let mut early = line.keyword("early");
    let access = access(line).unwrap_or(side);
    early |= line.keyword("early");
    let buffer = line.entity('b')?;
    let mut tile = Vec::new();
    line.list("[", "]", |line| interval(line).map(|i| tile.push(i)))?;
    Ok(Operand { buffer, tile, access, early })
}

fn interval(line: &mut Line) -> Result<Option<(Bound, Bound)>, String> {
    if line.eat("..") {
        return Ok(None);
    }
    let lo = bound(line)?;
    let hi = match line.eat("..") {
        true => bound(line)?,
        false if lo.back => return Err("`..`".into()),
        false => Bound { base: lo.base + 1, ..lo },
    };
    Ok(Some((lo, hi)))
}

fn bound(line: &mut Line) -> Result<Bound, String> {
    if line.keyword("max") {
        ["(", "0", ",", "pos", "-"].into_iter().try_for_each(|token| line.expect(token))?;
        let base = line.number()?;
        line.expect(")")?;
        return Ok(Bound { pos: true, base, back: true });
    }
    if !line.eat("pos") {
        return Ok(Bound { pos: false, base: line.number()?, back: false });
    }
    let base = if line.eat("+") { line.number()? } else { 0 };
    Ok(Bound { pos: true, base, back: false })
}

fn worker(source: &mut Source, line: &mut Line) -> Result<(), String> {
    let Queues::Static(queues) = &mut source.queues else { return Err("no worker next to a ticket queue".into()) };
    line.dense('w', queues.len())?;
    line.expect(":")?;
    queues.push(entries(line)?);
    Ok(())
}

fn entries(line: &mut Line) -> Result<Vec<usize>, String> {
    let mut tasks = Vec::new();
    while !line.rest.is_empty() {
        tasks.push(line.entity('t')?);
    }
    Ok(tasks)
}

/// The rest of a line; every method skips the blanks after its token.
struct Line<'a> {
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest.trim_start();
        taken
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.rest.starts_with(what);
        if found {
            self.skip(what.len());
        }
        found
    }

    fn expect(&mut self, what: &str) -> Result<(), String> {
        if self.eat(what) { Ok(()) } else { Err(format!("`{what}`")) }
    }

    fn end_of_word(&self) -> usize {
        self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len())
    }

    /// A run of letters, digits and underscores; may be empty.
    fn word(&mut self) -> &'a str {
        self.skip(self.end_of_word())
    }

    fn at_keyword(&self, keyword: &str) -> bool {
        &self.rest[..self.end_of_word()] == keyword
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let found = self.at_keyword(keyword);
        if found {
            self.word();
        }
        found
    }

    fn number(&mut self) -> Result<u64, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        self.skip(end).parse().map_err(|_| "a number".into())
    }

    /// A quoted name, if there is one here.
    fn quoted(&mut self) -> Option<Result<String, String>> {
        let mut chars = self.rest.strip_prefix('"')?.char_indices();
        let mut name = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.skip(at + 2);
                    return Some(Ok(name));
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                c => name.push(c),
            }
        }
        Some(Err("a closing quote".into()))
    }

    /// A name, quoted or a word; an `@` before it is dropped.
    fn name(&mut self) -> Result<String, String> {
        self.eat("@");
        if let Some(name) = self.quoted() {
            return name;
        }
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || "_.:".contains(c))).unwrap_or(self.rest.len());
        if end == 0 { Err("a name".into()) } else { Ok(self.skip(end).to_owned()) }
    }

    /// A name, quoted or up to the next blank.
    fn token(&mut self) -> Result<String, String> {
        if let Some(name) = self.quoted() {
            return name;
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        if end == 0 { Err("a name".into()) } else { Ok(self.skip(end).to_owned()) }
    }

    fn entity(&mut self, prefix: char) -> Result<usize, String> {
        let digits = self.rest.strip_prefix(prefix).ok_or(format!("`{prefix}` and a number"))?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let id = digits[..end].parse().map_err(|_| format!("`{prefix}` and a number"))?;
        self.skip(1 + end);
        Ok(id)
    }

    fn dense(&mut self, prefix: char, next: usize) -> Result<(), String> {
        let id = self.entity(prefix)?;
        if id == next { Ok(()) } else { Err(format!("`{prefix}{next}`, not `{prefix}{id}`,")) }
    }

    fn list(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(open)?;
        while !self.eat(close) {
            item(self)?;
            if !self.eat(",") && !self.rest.starts_with(close) {
                return Err(format!("`,` or `{close}`"));
            }
        }
        Ok(())
    }

    fn numbers(&mut self) -> Result<Vec<u64>, String> {
        let mut numbers = Vec::new();
        self.list("[", "]", |line| line.number().map(|n| numbers.push(n)))?;
        Ok(numbers)
    }
}
