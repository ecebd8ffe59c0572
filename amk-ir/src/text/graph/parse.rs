//! The reader of graphs.

use super::super::cursor::{Cursor, Parsed, is_digits, list};
use super::super::error::{ParseCause, ParseError, tick};
use super::super::parse::dtype;
use super::names::{Declared, Reference, at_path, path, reference};
use super::print::type_text;
use super::{instance, layout, signature};
use crate::expr::{Expr, Op};
use crate::graph::{Arg, CallNode, EventDecl, Graph, KernelParam, KernelParamKind, Node, SignalMap, Value, WaitMap};
use crate::layout::Layout;
use crate::{DType, InstructionId, ValueId};
use std::collections::{BTreeMap, HashMap};

/// The lines of a graph's text, from 1.
#[derive(Clone, Debug, Default)]
pub struct GraphLines {
    /// The `graph` line.
    pub graph: u32,
    /// The `schedule` line, 0 if there is none.
    pub schedule: u32,
    /// The instances, by index.
    pub instances: Vec<u32>,
    /// The calls and assignments, by [`CallNode::site`]; of several with one site the first.
    pub sites: BTreeMap<u32, u32>,
}

/// Whether a text is a graph's and not a program's: its first word decides.
pub fn is_graph(text: &str) -> bool {
    let mut source = Source::new(text);
    source.next().is_some_and(|cursor| cursor.peek_word() == "graph")
}

/// Reads a graph. Its shapes are not checked; [`crate::shapes::check`] does that.
///
/// # Errors
/// [`ParseError`] at the first line and column that is not of the format.
pub fn parse_graph(text: &str) -> Result<Graph, ParseError> {
    parse_graph_with_lines(text).map(|(graph, _)| graph)
}

/// Reads a graph, and returns the lines of its parts.
///
/// # Errors
/// As [`parse_graph`].
pub fn parse_graph_with_lines(text: &str) -> Result<(Graph, GraphLines), ParseError> {
    let mut source = Source::new(text);
    let mut reader = Reader::default();
    while let Some(mut cursor) = source.next() {
        reader.line(&mut cursor, &mut source)?;
        cursor.end()?;
    }
    if reader.lines.graph == 0 {
        return Err(ParseError {
            line: source.line.max(1),
            column: 1,
            cause: ParseCause::NoGraph,
            help: Some("start with a line such as `graph @name`".to_owned()),
        });
    }
    Ok((reader.graph, reader.lines))
}

/// Limit on the nesting of blocks: they are walked recursively.
const DEEPEST: usize = 64;

/// The lines of a text that are not empty.
pub(super) struct Source<'a> {
    lines: std::str::Lines<'a>,
    /// The line that was read last.
    line: u32,
    depth: usize,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> Self {
        Self { lines: text.lines(), line: 0, depth: 0 }
    }

    fn next(&mut self) -> Option<Cursor<'a>> {
        loop {
            let line = self.lines.next()?;
            self.line = self.line.saturating_add(1);
            let cursor = Cursor::new(line, self.line);
            if !cursor.at_end() {
                return Some(cursor);
            }
        }
    }

    /// The next line of a block of this name.
    fn within(&mut self, block: &'static str) -> Parsed<Cursor<'a>> {
        self.next().ok_or(ParseError {
            line: self.line.max(1),
            column: 1,
            cause: ParseCause::Open { block },
            help: Some("close it with `}`".to_owned()),
        })
    }

    /// Enters a block that the line of this cursor opens.
    fn enter(&mut self, cursor: &Cursor<'_>) -> Parsed<()> {
        self.depth += 1;
        match self.depth > DEEPEST {
            true => Err(cursor.error(ParseCause::TooDeep { most: DEEPEST })),
            false => Ok(()),
        }
    }

    /// Reads the lines of a block up to its `}`.
    pub(super) fn block(
        &mut self,
        block: &'static str,
        mut item: impl FnMut(&mut Cursor<'_>, &mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        self.enter(&Cursor::new("", self.line))?;
        loop {
            let mut cursor = self.within(block)?;
            let closed = cursor.eat("}");
            if !closed {
                item(&mut cursor, self)?;
            }
            cursor.end()?;
            if closed {
                self.depth -= 1;
                return Ok(());
            }
        }
    }
}

/// `[A, B]`
pub(super) fn exprs(cursor: &mut Cursor<'_>) -> Parsed<Vec<Expr>> {
    let mut exprs = Vec::new();
    list(cursor, "[", "]", |cursor| {
        exprs.push(cursor.expr()?);
        Ok(())
    })?;
    Ok(exprs)
}

/// `A % B == 0` from behind `where`.
pub(super) fn multiple(cursor: &mut Cursor<'_>) -> Parsed<(Expr, Expr)> {
    let start = cursor.clone();
    let Expr::Binary(Op::Rem, of, by) = cursor.expr()? else {
        return start.expected("`A % B == 0`");
    };
    cursor.expect("==", "`==`")?;
    cursor.expect("0", "`0`")?;
    Ok((*of, *by))
}

/// The lines of a graph that occur once.
#[derive(Default)]
struct Seen {
    dims: bool,
    schedule: bool,
    function: bool,
}

#[derive(Default)]
struct Reader {
    graph: Graph,
    lines: GraphLines,
    seen: Seen,
    /// Layouts by the parameter's name, in the order of the text.
    layouts: Vec<(String, Layout)>,
    /// Signatures by name; `None` where several have the name.
    callable: HashMap<String, Option<u32>>,
    declared: Declared,
    /// The site of the next call or assignment.
    site: u32,
}

impl Reader {
    fn line(&mut self, cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<()> {
        let start = cursor.clone();
        let word = cursor.word("a word")?;
        let once = |seen: &mut bool| match std::mem::replace(seen, true) {
            true => Err(start.error(ParseCause::Repeated { what: word.to_owned() })),
            false => Ok(()),
        };
        match word {
            "graph" => {
                once(&mut (self.lines.graph != 0))?;
                self.lines.graph = source.line;
                self.graph.name = cursor.name(true)?;
            }
            "dims" => {
                once(&mut self.seen.dims)?;
                self.dims(cursor)?;
            }
            "where" => self.fact(cursor)?,
            "schedule" => {
                once(&mut self.seen.schedule)?;
                self.lines.schedule = source.line;
                self.graph.schedule = instance::schedule(cursor)?;
            }
            "instance" => {
                self.graph.instances.push(instance::instance(cursor)?);
                self.lines.instances.push(source.line);
            }
            "event" => {
                let name = cursor.word_or_quoted("the name of an event tensor")?;
                self.graph.events.push(EventDecl { name, shape: exprs(cursor)? });
            }
            "layout" => self.layouts.push(layout::layout(cursor, source)?),
            "instruction" => self.instruction(cursor, source)?,
            "value" => self.value(cursor)?,
            "fn" => {
                once(&mut self.seen.function)?;
                self.function(cursor, source)?;
            }
            _ => {
                let mut error = start.error(ParseCause::UnknownLine { word: word.to_owned() });
                error.help = Some(format!("lines start with {LINE_WORDS}"));
                return Err(error);
            }
        }
        Ok(())
    }

    fn dims(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        loop {
            self.graph.dims.push(cursor.word_or_quoted("the name of a dim")?);
            if !cursor.eat(",") {
                return Ok(());
            }
        }
    }

    /// `where A % B == 0` or `where A == B`.
    fn fact(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let mut ahead = cursor.clone();
        let dim = ahead.word_or_quoted("");
        match dim {
            Ok(dim) if ahead.eat("==") => {
                *cursor = ahead;
                self.graph.equalities.push((dim, cursor.expr()?));
            }
            _ => self.graph.multiples.push(multiple(cursor)?),
        }
        Ok(())
    }

    fn instruction(&mut self, cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<()> {
        let signature = signature::signature(cursor, source)?;
        let number = InstructionId::from(self.graph.signatures.len()).0;
        self.callable.entry(signature.name.clone()).and_modify(|known| *known = None).or_insert(Some(number));
        self.graph.signatures.push(signature);
        Ok(())
    }

    /// `value %0 x: f32[H]`
    fn value(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let start = cursor.clone();
        cursor.expect("%", "the number of a value, as `%0`")?;
        let (found, next) = (cursor.u32("the number of a value")?, self.graph.values.len());
        if found as usize != next {
            let (expected, found) = (format!("%{next}"), format!("%{found}"));
            return Err(start.error(ParseCause::OutOfOrder { expected, found }));
        }
        let Reference::Name(name) = reference(cursor)? else { return cursor.expected("the name of a value") };
        cursor.expect(":", "`:`")?;
        let (dtype, shape) = (dtype(cursor)?, exprs(cursor)?);
        self.declare(name, dtype, shape);
        Ok(())
    }

    fn declare(&mut self, name: String, dtype: DType, shape: Vec<Expr>) -> ValueId {
        let value = ValueId::from(self.graph.values.len());
        self.declared.add(&name, value);
        self.graph.values.push(Value { name, dtype, shape });
        value
    }

    fn function(&mut self, cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<()> {
        list(cursor, "(", ")", |cursor| {
            let name = cursor.word_or_quoted("the name of a parameter")?;
            cursor.expect(":", "`:`")?;
            let kind = self.param(cursor, &name)?;
            self.graph.params.push(KernelParam { name, kind });
            Ok(())
        })?;
        if let Some((name, _)) = self.layouts.first() {
            let (kind, name) = ("parameter", name.clone());
            return Err(cursor.error(ParseCause::NotDeclared { kind, name }));
        }
        cursor.expect("{", "`{`")?;
        cursor.end()?;
        source.enter(cursor)?;
        let (body, mut end) = self.statements(source, "fn")?;
        self.graph.body = body;
        if end.eat_word("return") {
            loop {
                self.graph.results.push(self.declared.known(&mut end)?);
                if !end.eat(",") {
                    break;
                }
            }
            end.end()?;
            end = source.within("fn")?;
        }
        end.expect("}", "`}`")?;
        source.depth -= 1;
        end.end()
    }

    fn param(&mut self, cursor: &mut Cursor<'_>, name: &str) -> Parsed<KernelParamKind> {
        if cursor.eat_word("pos") {
            Ok(KernelParamKind::Pos)
        } else if cursor.eat_word("token") {
            self.input(cursor, name, true).map(KernelParamKind::Token)
        } else if cursor.eat_word("tensor") {
            self.input(cursor, name, false).map(KernelParamKind::Tensor)
        } else {
            let start = cursor.clone();
            let layout = cursor.word_or_quoted("`token`, `tensor`, `pos` or the name of a layout")?;
            let at = self.layouts.iter().position(|(param, known)| param == name && known.name == layout);
            let missing = || start.error(ParseCause::NotDeclared { kind: "layout", name: format!("{name}: {layout}") });
            at.map(|at| KernelParamKind::Layout(self.layouts.remove(at).1)).ok_or_else(missing)
        }
    }

    /// The value of a token or of a tensor: its number, or its type behind the parameter's name.
    fn input(&mut self, cursor: &mut Cursor<'_>, name: &str, token: bool) -> Parsed<ValueId> {
        if cursor.at_symbol("%") {
            return self.declared.known(cursor);
        }
        let start = cursor.clone();
        let (dtype, shape) = match token && (cursor.at_symbol(",") || cursor.at_symbol(")")) {
            true => (DType::U32, vec![Expr::Const(1)]),
            false => (dtype(cursor)?, exprs(cursor)?),
        };
        self.assign(&start, name.to_owned(), Some((dtype, shape)))
    }

    /// The value of this name: declared here, or above with the same type.
    fn assign(&mut self, start: &Cursor<'_>, name: String, of: Option<(DType, Vec<Expr>)>) -> Parsed<ValueId> {
        match (self.declared.get(start, &name)?, of) {
            (None, Some((dtype, shape))) => Ok(self.declare(name, dtype, shape)),
            (None, None) => {
                let mut error = start.error(ParseCause::NotDeclared { kind: "value", name: name.clone() });
                error.help = Some(format!("give its type, as {}", tick(&format!("{name}: f32[H]"))));
                Err(error)
            }
            (Some(value), None) => Ok(value),
            (Some(value), Some(of)) => self.retyped(start, value, of).map(|()| value),
        }
    }

    fn retyped(&self, start: &Cursor<'_>, value: ValueId, (dtype, shape): (DType, Vec<Expr>)) -> Parsed<()> {
        let Some(known) = self.graph.values.get(value.index()) else { return Ok(()) };
        if known.dtype == dtype && known.shape == shape {
            return Ok(());
        }
        let before = type_text(known.dtype, &known.shape);
        Err(start.error(ParseCause::Retyped { name: known.name.clone(), before }))
    }

    /// The statements of a block, and the line that ends it: `}` or `return`.
    fn statements<'a>(&mut self, source: &mut Source<'a>, block: &'static str) -> Parsed<(Vec<Node>, Cursor<'a>)> {
        let mut nodes = Vec::new();
        loop {
            let mut cursor = source.within(block)?;
            if cursor.at_symbol("}") || (block == "fn" && cursor.peek_word() == "return") {
                return Ok((nodes, cursor));
            }
            nodes.push(self.statement(&mut cursor, source)?);
            cursor.end()?;
        }
    }

    /// The statements of a block that this line opens, and the line that ends it from behind `}`.
    fn nested<'a>(
        &mut self,
        cursor: &mut Cursor<'_>,
        source: &mut Source<'a>,
        block: &'static str,
    ) -> Parsed<(Vec<Node>, Cursor<'a>)> {
        cursor.expect("{", "`{`")?;
        cursor.end()?;
        source.enter(cursor)?;
        let (nodes, mut end) = self.statements(source, block)?;
        end.expect("}", "`}`")?;
        source.depth -= 1;
        Ok((nodes, end))
    }

    fn statement(&mut self, cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<Node> {
        if cursor.eat_word("for") {
            return self.repeated(cursor, source);
        }
        if cursor.eat_word("if") {
            return self.decided(cursor, source);
        }
        let line = source.line;
        let node = self.assignment(cursor)?;
        if let Node::Call(CallNode { site, .. }) | Node::Bind { site, .. } = node {
            self.site = site.wrapping_add(1);
            self.lines.sites.entry(site).or_insert(line);
        }
        Ok(node)
    }

    fn repeated(&mut self, cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<Node> {
        let index = cursor.word_or_quoted("the name of an index")?;
        if !cursor.eat_word("in") {
            return cursor.expected("`in`");
        }
        cursor.expect("0..", "`0..` and an extent")?;
        let extent = cursor.expr()?;
        let (body, end) = self.nested(cursor, source, "for")?;
        end.end()?;
        Ok(Node::Loop { index, extent, body })
    }

    fn decided(&mut self, cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<Node> {
        let flag = path(cursor)?;
        let (then, mut end) = self.nested(cursor, source, "if")?;
        let mut otherwise = Vec::new();
        if end.eat_word("else") {
            (otherwise, end) = self.nested(&mut end, source, "else")?;
        }
        end.end()?;
        Ok(Node::If { flag, then, otherwise })
    }

    /// `x: f32[H], y: f32[H] = split(..)` or `x: f32[H] = y`.
    fn assignment(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Node> {
        let start = cursor.clone();
        let mut targets = Vec::new();
        if !at_call(cursor) {
            loop {
                targets.push(target(cursor)?);
                if !cursor.eat(",") {
                    break;
                }
            }
            cursor.expect("=", "`,` or `=`")?;
        }
        if at_call(cursor) {
            let mut call = self.call(cursor)?;
            call.results = targets.into_iter().map(|target| self.target(target)).collect::<Parsed<_>>()?;
            self.events(cursor, &mut call)?;
            call.site = self.site(cursor)?;
            return Ok(Node::Call(call));
        }
        let from = self.declared.known(cursor)?;
        let mut targets = targets.into_iter();
        let (Some(mut to), None) = (targets.next(), targets.next()) else {
            return start.expected("one value on the left of a value");
        };
        if to.of.is_none() && !self.is_declared(&to.value) {
            to.of = self.graph.values.get(from.index()).map(|from| (from.dtype, from.shape.clone()));
        }
        let to = self.target(to)?;
        Ok(Node::Bind { site: self.site(cursor)?, to, from })
    }

    fn is_declared(&self, value: &Reference) -> bool {
        match value {
            Reference::Name(name) => self.declared.has(name),
            Reference::Number(value) => value.index() < self.graph.values.len(),
        }
    }

    fn target(&mut self, Target { start, value, of }: Target<'_>) -> Parsed<ValueId> {
        match value {
            Reference::Name(name) => self.assign(&start, name, of),
            Reference::Number(value) => {
                if let Some(of) = of {
                    self.retyped(&start, value, of)?;
                }
                Ok(value)
            }
        }
    }

    fn site(&self, cursor: &mut Cursor<'_>) -> Parsed<u32> {
        if cursor.eat_word("site") { cursor.u32("the number of a site") } else { Ok(self.site) }
    }

    /// Instruction and arguments of a call.
    fn call(&self, cursor: &mut Cursor<'_>) -> Parsed<CallNode> {
        let signature = self.called(cursor)?;
        let mut args = Vec::new();
        list(cursor, "(", ")", |cursor| {
            args.push(self.arg(cursor)?);
            Ok(())
        })?;
        Ok(CallNode { site: 0, signature, args, results: Vec::new(), signals: Vec::new(), waits: Vec::new() })
    }

    fn called(&self, cursor: &mut Cursor<'_>) -> Parsed<u32> {
        let start = cursor.clone();
        let word = cursor.word("the name of an instruction")?;
        if word.strip_prefix(InstructionId::PREFIX).is_some_and(is_digits) {
            return start.clone().id(InstructionId::PREFIX, "the id of an instruction");
        }
        match self.callable.get(word) {
            Some(Some(number)) => Ok(*number),
            Some(None) => {
                let mut error = start.error(ParseCause::Ambiguous { kind: "instructions", name: word.to_owned() });
                error.help = Some("call it by its number, as `i0(..)`".to_owned());
                Err(error)
            }
            None => {
                let mut error = start.error(ParseCause::NotDeclared { kind: "instruction", name: word.to_owned() });
                let known: Vec<_> = self.graph.signatures.iter().take(8).map(|known| tick(&known.name)).collect();
                error.help = (!known.is_empty()).then(|| format!("declared above: {}", known.join(", ")));
                Err(error)
            }
        }
    }

    fn arg(&self, cursor: &mut Cursor<'_>) -> Parsed<Arg> {
        if at_path(cursor) {
            return path(cursor).map(Arg::Field);
        }
        let start = cursor.clone();
        if let Ok(scalar) = cursor.scalar()
            && !is_digits(scalar)
            && let Ok(float) = scalar.parse::<f32>()
        {
            return Ok(Arg::Float(float));
        }
        *cursor = start.clone();
        if cursor.at_digit() || cursor.at_symbol("(") {
            return cursor.expr().map(Arg::Int);
        }
        if cursor.eat_word("pos") {
            return Ok(Arg::Pos);
        }
        if cursor.at_symbol("%") || cursor.at_symbol("\"") {
            return self.declared.known(cursor).map(Arg::Value);
        }
        let Ok(Reference::Name(name)) = reference(cursor) else {
            return start.expected("a value, a field, a number, a dim or `pos`");
        };
        match self.declared.get(&start, &name)? {
            Some(value) => Ok(Arg::Value(value)),
            // Dims and loop indices are not resolved here: lowering knows them.
            None => {
                *cursor = start;
                cursor.expr().map(Arg::Int)
            }
        }
    }

    /// `wait e[l] >= 2 signal f[l], f[0]` of a call.
    fn events(&self, cursor: &mut Cursor<'_>, call: &mut CallNode) -> Parsed<()> {
        if cursor.eat_word("wait") {
            loop {
                let (event, coordinates) = element(cursor)?;
                cursor.expect(">=", "`>=`")?;
                call.waits.push(WaitMap { event, coordinates, threshold: cursor.expr()? });
                if !cursor.eat(",") {
                    break;
                }
            }
        }
        if cursor.eat_word("signal") {
            loop {
                let (event, coordinates) = element(cursor)?;
                call.signals.push(SignalMap { event, coordinates });
                if !cursor.eat(",") {
                    break;
                }
            }
        }
        Ok(())
    }
}

const LINE_WORDS: &str = "`graph`, `dims`, `where`, `schedule`, `instance`, `event`, `layout`, `instruction`, \
                          `value` or `fn`";

/// A value that a statement assigns, with its type if the text has one.
struct Target<'a> {
    start: Cursor<'a>,
    value: Reference,
    of: Option<(DType, Vec<Expr>)>,
}

fn target<'a>(cursor: &mut Cursor<'a>) -> Parsed<Target<'a>> {
    let start = cursor.clone();
    let value = reference(cursor)?;
    let of = if cursor.eat(":") { Some((dtype(cursor)?, exprs(cursor)?)) } else { None };
    Ok(Target { start, value, of })
}

fn at_call(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    ahead.word("").is_ok() && ahead.at_symbol("(")
}

/// `e[l, 0]`
fn element(cursor: &mut Cursor<'_>) -> Parsed<(String, Vec<Expr>)> {
    let event = cursor.word_or_quoted("the name of an event tensor")?;
    Ok((event, exprs(cursor)?))
}
