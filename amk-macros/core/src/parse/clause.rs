//! The clauses of `#[instruction]`, which are text: shapes, tiles, the task, multiples.

use amk_ir::expr::{Expr, Op};
use amk_ir::signature::{GridSig, Span, TileSig};
use std::collections::HashSet;

/// A syntax error in a clause: the byte offset in its text, and the expected syntax.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClauseError {
    /// Byte offset.
    pub(crate) at: usize,
    /// The expected syntax.
    pub(crate) message: String,
}

type Result<T> = std::result::Result<T, ClauseError>;

/// `x: [K], w: [N, K], head_dim: D -> y: [N]`
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ShapeClause {
    /// Operands and sizes by parameter name, as written.
    pub(crate) params: Vec<(String, Extents)>,
    /// Results with their shapes.
    pub(crate) results: Vec<(String, Vec<Expr>)>,
}

/// The shape clause's entry for a parameter.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Extents {
    /// `name: [K, N]`: a tensor.
    Shape(Vec<Expr>),
    /// `name: D`: a size.
    Size(Expr),
}

/// `n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]`
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct TaskClause {
    /// The iteration variables.
    pub(crate) grid: Vec<GridSig>,
    /// The regions written, left of the arrow.
    pub(crate) writes: Vec<(String, Vec<Span>)>,
    /// The regions read, right of the arrow.
    pub(crate) reads: Vec<(String, Vec<Span>)>,
}

/// Reads a shape clause.
pub(crate) fn shape(text: &str) -> Result<ShapeClause> {
    let mut reader = Reader::new(text);
    let mut clause = ShapeClause::default();
    while !reader.at_end() && !reader.eat("->") {
        let name = reader.name("a parameter's name")?;
        reader.expect(":")?;
        let extents =
            if reader.peek("[") { Extents::Shape(reader.shape()?) } else { Extents::Size(reader.expr(&[",", "->"])?) };
        clause.params.push((name, extents));
        if !reader.eat(",") && !reader.at_end() && !reader.peek("->") {
            return Err(reader.error("expected `,` or `->`"));
        }
    }
    if text.contains("->") {
        let several = reader.eat("(");
        loop {
            let name = reader.name("a result's name")?;
            reader.expect(":")?;
            clause.results.push((name, reader.shape()?));
            if !(several && reader.eat(",")) {
                break;
            }
        }
        if several {
            reader.expect(")")?;
        }
    }
    reader.end()?;
    Ok(clause)
}

/// Reads a task clause.
pub(crate) fn task(text: &str) -> Result<TaskClause> {
    let mut reader = Reader::new(text);
    let mut clause = TaskClause::default();
    let head = text.find("<-").map_or(text, |arrow| &text[..arrow]);
    if head.contains(':') {
        loop {
            clause.grid.push(reader.grid()?);
            if !reader.eat(",") {
                break;
            }
        }
        reader.expect(":")?;
    }
    clause.writes = reader.regions("<-")?;
    reader.expect("<-")?;
    clause.reads = reader.regions("")?;
    reader.end()?;
    Ok(clause)
}

/// Reads `T = 16, U = D`.
pub(crate) fn tiles(text: &str) -> Result<Vec<TileSig>> {
    let mut reader = Reader::new(text);
    let mut tiles = Vec::new();
    while !reader.at_end() {
        let name = reader.name("a tile's name")?;
        reader.expect("=")?;
        tiles.push(TileSig { name, default: reader.expr(&[","])? });
        reader.eat(",");
    }
    Ok(tiles)
}

/// Reads `Q % D, Q / D % G`.
pub(crate) fn multiples(text: &str) -> Result<Vec<(Expr, Expr)>> {
    let mut reader = Reader::new(text);
    let mut multiples = Vec::new();
    while !reader.at_end() {
        let at = reader.at;
        match reader.expr(&[","])? {
            Expr::Binary(Op::Rem, of, by) => multiples.push((*of, *by)),
            _ => return Err(ClauseError { at, message: "expected `A % B`: A is a multiple of B".to_owned() }),
        }
        reader.eat(",");
    }
    Ok(multiples)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Names seen in the current list: a second entry of the same name would be ignored.
    named: HashSet<&'a str>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, named: HashSet::new() }
    }

    fn rest(&mut self) -> &'a str {
        self.at = self.text.len() - self.text[self.at..].trim_start().len();
        &self.text[self.at..]
    }

    fn error(&mut self, message: impl Into<String>) -> ClauseError {
        self.rest();
        ClauseError { at: self.at, message: message.into() }
    }

    fn at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    fn end(&mut self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.error("expected the end of the clause")) }
    }

    fn peek(&mut self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.peek(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("expected `{token}`"))) }
    }

    fn name(&mut self, what: &str) -> Result<String> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if length == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error(format!("expected {what}")));
        }
        let name = &rest[..length];
        if !self.named.insert(name) {
            return Err(self.error(format!("`{name}` is named a second time")));
        }
        self.at += length;
        Ok(name.to_owned())
    }

    /// An expression up to one of `stops` outside parentheses, which stays unread.
    fn expr(&mut self, stops: &[&str]) -> Result<Expr> {
        let rest = self.rest();
        let length = extent(rest, stops);
        let expr = Expr::parse(rest[..length].trim_end())
            .map_err(|e| ClauseError { at: self.at + e.at, message: e.message })?;
        if expr.divides_by_zero() {
            return Err(self.error("a division by 0"));
        }
        self.at += length;
        Ok(expr)
    }

    /// `[A, B]`
    fn shape(&mut self) -> Result<Vec<Expr>> {
        self.expect("[")?;
        let mut extents = Vec::new();
        while !self.eat("]") {
            extents.push(self.expr(&[",", "]"])?);
            if !self.eat(",") && !self.peek("]") {
                return Err(self.error("expected `,` or `]`"));
            }
        }
        Ok(extents)
    }

    /// `n in 0..N step T`
    fn grid(&mut self) -> Result<GridSig> {
        let var = self.name("a grid variable")?;
        self.expect("in")?;
        if self.expr(&[".."])? != Expr::Const(0) {
            return Err(self.error("a grid variable starts at 0"));
        }
        self.expect("..")?;
        let extent = self.expr(&["step", ",", ":"])?;
        self.expect("step")?;
        let at = self.at;
        let step = self.expr(&[",", ":"])?;
        if matches!(step, Expr::Const(..1)) {
            self.at = at;
            return Err(self.error("a grid variable takes steps of 1 or more"));
        }
        Ok(GridSig { var, extent, step })
    }

    /// `y[n..n+T], z[..]` up to `stop`.
    fn regions(&mut self, stop: &str) -> Result<Vec<(String, Vec<Span>)>> {
        let mut regions = Vec::new();
        self.named.clear();
        while !self.at_end() && (stop.is_empty() || !self.peek(stop)) {
            let name = self.name("an operand's name")?;
            self.expect("[")?;
            let mut spans = Vec::new();
            while !self.eat("]") {
                spans.push(self.span()?);
                if !self.eat(",") && !self.peek("]") {
                    return Err(self.error("expected `,` or `]`"));
                }
            }
            regions.push((name, spans));
            if !self.eat(",") {
                break;
            }
        }
        Ok(regions)
    }

    /// `..`, `lo..hi`, or a single element.
    fn span(&mut self) -> Result<Span> {
        if self.eat("..") {
            return Ok(Span::Full);
        }
        let lo = self.expr(&["..", ",", "]"])?;
        let hi =
            if self.eat("..") { self.expr(&[",", "]"])? } else { Expr::binary(Op::Add, lo.clone(), Expr::Const(1)) };
        Ok(Span::Range { lo, hi })
    }
}

/// Bytes of `text` before the first of `stops` outside parentheses; a word stops only as a whole
/// word.
fn extent(text: &str, stops: &[&str]) -> usize {
    let mut depth = 0usize;
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let stop = stops.iter().any(|stop| {
            let word = stop.starts_with(in_word);
            text[at..].starts_with(stop)
                && !(word && (in_word(previous) || text[at + stop.len()..].starts_with(in_word)))
        });
        if depth == 0 && stop {
            return at;
        }
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        previous = c;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expr(text: &str) -> Expr {
        Expr::parse(text).expect(text)
    }

    fn range(lo: &str, hi: &str) -> Span {
        Span::Range { lo: expr(lo), hi: expr(hi) }
    }

    #[test]
    fn a_shape_clause_lists_operands_sizes_and_results() {
        let clause = shape("x: [N], head_dim: D, w: [N / 2, K+1] -> (y: [N], z: [1])").expect("clause");
        assert_eq!(clause.params[1], ("head_dim".into(), Extents::Size(expr("D"))));
        assert_eq!(clause.params[2], ("w".into(), Extents::Shape(vec![expr("N / 2"), expr("K + 1")])));
        assert_eq!(clause.results, [("y".into(), vec![expr("N")]), ("z".into(), vec![expr("1")])]);
        assert_eq!(shape("cache: [G, C, D], x: [G*D]").expect("no result").results, []);
    }

    #[test]
    fn a_task_clause_has_a_grid_and_two_sides() {
        let clause =
            task("h in 0..Q step D, m in 0..M step 1: y[h..h+D] <- q[h..h+D], k[h*G/Q, 0..pos+1, ..]").expect("clause");
        assert_eq!(clause.grid[0], GridSig { var: "h".into(), extent: expr("Q"), step: expr("D") });
        assert_eq!(clause.grid.len(), 2);
        assert_eq!(clause.writes, [("y".into(), vec![range("h", "h + D")])]);
        assert_eq!(clause.reads[1].1, [range("h*G/Q", "h*G/Q + 1"), range("0", "pos + 1"), Span::Full]);
        assert!(task("y[..] <- x[..]").expect("no grid").grid.is_empty());
    }

    #[test]
    fn tiles_and_multiples_are_lists() {
        assert_eq!(tiles("T = 16, U = D * 2").expect("tiles")[1], TileSig { name: "U".into(), default: expr("D * 2") });
        assert_eq!(
            multiples("Q % D, Q/D % G").expect("multiples"),
            [(expr("Q"), expr("D")), (expr("Q / D"), expr("G"))]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (at, text) in [(7, "x: [K, -> y"), (5, "x: [K"), (3, "x: -> y: [N]"), (0, ": [K]")] {
            assert_eq!(shape(text).expect_err(text).at, at, "{text}");
        }
        assert_eq!(task("n in 1..N step T: y[..] <- x[..]").expect_err("start").message, "a grid variable starts at 0");
        assert_eq!(task("n in 0..N: y[..] <- x[..]").expect_err("step").message, "expected `step`");
        assert_eq!(task("y[..]").expect_err("arrow").message, "expected `<-`");
        assert_eq!(multiples("Q / D").expect_err("rem").at, 0);
        let steps = ["n in 0..N step 0: y[..] <- x[..]", "n in 0..N step 2 - 3: y[..] <- x[..]"];
        for (at, text) in [15, 15].into_iter().zip(steps) {
            let error = task(text).expect_err(text);
            assert_eq!((error.at, error.message.as_str()), (at, "a grid variable takes steps of 1 or more"));
        }
        assert_eq!(task("n in 0..N step T: y[..] <- x[n / (1 - 1)..N]").expect_err("quotient").at, 29);
        assert_eq!(multiples("Q % D, Q % 0").expect_err("multiple").message, "a division by 0");
        assert_eq!(shape("x: [N /^ 0]").expect_err("extent").message, "a division by 0");
    }

    #[test]
    fn a_name_stands_once_in_a_list() {
        let shapes = ["x: [N], x: [M] -> y: [N]", "x: [N] -> (y: [N], y: [2 * N])", "x: [N] -> x: [N]"];
        for (text, at) in shapes.into_iter().zip([8, 19, 10]) {
            assert_eq!(shape(text).expect_err(text).at, at, "{text}");
        }
        let sides = [
            "y[..] <- x[n..n+1], x[0..1]",
            "s[0..1], s[..] <- x[..]",
            "n in 0..N step 1, n in 0..N step 1: y[n..n+1] <- x[..]",
        ];
        for (text, at) in sides.into_iter().zip([20, 9, 18]) {
            assert_eq!(task(text).expect_err(text).at, at, "{text}");
        }
        assert_eq!(tiles("T = 4, T = 8").expect_err("tile").message, "`T` is named a second time");
        assert!(task("s[0..1] <- s[0..1], x[..]").is_ok(), "an update is on both sides");
    }
}
