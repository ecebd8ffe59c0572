//! Integer expressions over named dims and indices, with a parser, evaluation and a polynomial
//! normal form.
//!
//! Division is floor division; `a /^ b` is division rounded up, `max(a, b)` the larger of the two.
//! Two expressions are [`Expr::same`] if their normal forms agree: polynomials with integer
//! coefficients whose atoms are names, quotients that do not divide evenly, and maxima that cannot
//! be decided.

use core::fmt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An integer expression.
#[derive(Clone, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Expr {
    /// A constant.
    Const(i64),
    /// A dim, an index or another name.
    Name(String),
    /// An operation on two expressions.
    Binary(Op, Box<Self>, Box<Self>),
}

/// A binary operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient rounded down.
    Div,
    /// Quotient rounded up.
    CeilDiv,
    /// Remainder of [`Op::Div`].
    Rem,
    /// The larger one.
    Max,
}

impl Op {
    const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::CeilDiv => "/^",
            Self::Rem => "%",
            Self::Max => "max",
        }
    }

    const fn precedence(self) -> u8 {
        match self {
            Self::Add | Self::Sub => 1,
            Self::Mul | Self::Div | Self::CeilDiv | Self::Rem => 2,
            Self::Max => 3,
        }
    }
}

/// The reasons why an expression has no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EvalError {
    /// The name has no value here.
    Unknown(String),
    /// A quotient or remainder by zero.
    DivisionByZero,
    /// The value does not fit 64 bits.
    Overflow,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "`{name}` has no value here"),
            Self::DivisionByZero => f.write_str("division by zero"),
            Self::Overflow => f.write_str("the value does not fit 64 bits"),
        }
    }
}

impl std::error::Error for EvalError {}

impl EvalError {
    /// The error as a headline about `what`; the name alone if it is the whole expression.
    pub(crate) fn about(&self, what: &dyn fmt::Display) -> String {
        let (what, why) = (what.to_string(), self.to_string());
        if why.starts_with(&format!("`{what}`")) { why } else { format!("`{what}` has no value: {why}") }
    }
}

/// Terms of a normal form at most.
const MOST_TERMS: usize = 4096;
/// Its size at most, see `Polynomial::size`.
const MOST_ATOMS: usize = 1 << 16;

/// A parse error: its byte offset and the expected syntax.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Byte offset in the text.
    pub at: usize,
    /// The expected syntax.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseError {}

impl Expr {
    /// The expression `name`.
    pub fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into())
    }

    /// Returns `left op right`, folded if both are constants.
    pub fn binary(op: Op, left: Self, right: Self) -> Self {
        let folded = match (&left, &right) {
            (Self::Const(a), Self::Const(b)) => apply(op, *a, *b).ok(),
            _ => None,
        };
        folded.map_or_else(|| Self::Binary(op, Box::new(left), Box::new(right)), Self::Const)
    }

    /// Whether a quotient or a remainder in it is by the number 0, so that it has no value.
    pub fn divides_by_zero(&self) -> bool {
        let Self::Binary(op, left, right) = self else { return false };
        let divides = matches!(op, Op::Div | Op::CeilDiv | Op::Rem);
        (divides && **right == Self::Const(0)) || left.divides_by_zero() || right.divides_by_zero()
    }

    /// The value, with `value` resolving names.
    pub fn eval(&self, value: &dyn Fn(&str) -> Option<i64>) -> Result<i64, EvalError> {
        match self {
            Self::Const(c) => Ok(*c),
            Self::Name(name) => value(name).ok_or_else(|| EvalError::Unknown(name.clone())),
            Self::Binary(op, a, b) => apply(*op, a.eval(value)?, b.eval(value)?),
        }
    }

    /// Returns the expression as `slope * variable + base`, given the values of the other names;
    /// `None` if it is not built in that form.
    pub fn affine(&self, variable: &str, value: &dyn Fn(&str) -> Option<i64>) -> Result<Option<(i64, i64)>, EvalError> {
        let Self::Binary(op, a, b) = self else {
            let moves = matches!(self, Self::Name(name) if name == variable);
            return if moves { Ok(Some((1, 0))) } else { Ok(Some((0, self.eval(value)?))) };
        };
        let (Some((a_slope, a)), Some((b_slope, b))) = (a.affine(variable, value)?, b.affine(variable, value)?) else {
            return Ok(None);
        };
        let slope = match (op, a_slope, b_slope) {
            (_, 0, 0) => 0,
            (Op::Add | Op::Sub, ..) => apply(*op, a_slope, b_slope)?,
            (Op::Mul, _, 0) => apply(*op, a_slope, b)?,
            (Op::Mul, 0, _) => apply(*op, a, b_slope)?,
            _ => return Ok(None),
        };
        Ok(Some((slope, apply(*op, a, b)?)))
    }

    /// The expression with names replaced where `with` returns an expression.
    #[must_use]
    pub fn substitute(&self, with: &dyn Fn(&str) -> Option<Self>) -> Self {
        match self {
            Self::Const(_) => self.clone(),
            Self::Name(name) => with(name).unwrap_or_else(|| self.clone()),
            Self::Binary(op, a, b) => Self::binary(*op, a.substitute(with), b.substitute(with)),
        }
    }

    /// Calls `visit` with each name in the expression.
    pub fn names(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::Const(_) => {}
            Self::Name(name) => visit(name),
            Self::Binary(_, a, b) => {
                a.names(visit);
                b.names(visit);
            }
        }
    }

    /// Number of names, numbers and operations.
    pub fn size(&self) -> usize {
        match self {
            Self::Const(_) | Self::Name(_) => 1,
            Self::Binary(_, a, b) => 1 + a.size() + b.size(),
        }
    }

    /// Whether both have the same value for all values of their names, as far as normal forms show.
    /// A normal form that is very large, or has numbers beyond 64 bits, shows nothing.
    pub fn same(&self, other: &Self) -> bool {
        self == other
            || Polynomial::of(self).zip(Polynomial::of(other)).is_some_and(|(normal, of_other)| normal == of_other)
    }

    /// Whether it is at least `other` if no name is negative, as far as normal forms show.
    pub(crate) fn is_at_least(&self, other: &Self) -> bool {
        let difference = Polynomial::of(self).zip(Polynomial::of(other)).and_then(|(of, less)| of.plus(&less, -1));
        difference.is_some_and(|difference| difference.is_never_negative())
    }

    /// Reads an expression: names, numbers, `+ - * / /^ %`, `max(a, b)` and parentheses.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut cursor = Cursor { text, at: 0, room: LARGEST, folds: true };
        let expr = cursor.sum()?;
        cursor.space();
        if cursor.at < text.len() {
            return Err(cursor.error("expected an operator"));
        }
        Ok(expr)
    }

    /// Reads the expression at the start of a text as it is written, with no constants folded:
    /// the inverse of printing. Also returns its length in bytes.
    pub(crate) fn parse_prefix(text: &str) -> Result<(Self, usize), ParseError> {
        let mut cursor = Cursor { text, at: 0, room: LARGEST, folds: false };
        let expr = cursor.sum()?;
        Ok((expr, cursor.at))
    }
}

fn apply(op: Op, a: i64, b: i64) -> Result<i64, EvalError> {
    let value = match op {
        Op::Add => a.checked_add(b),
        Op::Sub => a.checked_sub(b),
        Op::Mul => a.checked_mul(b),
        Op::Div | Op::CeilDiv | Op::Rem if b == 0 => return Err(EvalError::DivisionByZero),
        Op::Div => a.checked_div_euclid(b),
        Op::CeilDiv => b.checked_sub(1).and_then(|less| a.checked_add(less)).and_then(|sum| sum.checked_div_euclid(b)),
        Op::Rem => a.checked_rem_euclid(b),
        Op::Max => Some(a.max(b)),
    };
    value.ok_or(EvalError::Overflow)
}

/// Limit on operations and parentheses in an expression: the tree is walked recursively.
const LARGEST: u32 = 256;

struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Operations and parentheses that may still come.
    room: u32,
    /// Whether operations on constants are replaced by their value.
    folds: bool,
}

impl Cursor<'_> {
    fn error(&self, message: &str) -> ParseError {
        ParseError { at: self.at, message: message.to_owned() }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes `token` and the space before it, if it comes next.
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest();
        let found = rest.trim_start().starts_with(token);
        if found {
            self.at += rest.len() - rest.trim_start().len() + token.len();
        }
        found
    }

    fn binary(&self, op: Op, left: Expr, right: Expr) -> Expr {
        match self.folds {
            true => Expr::binary(op, left, right),
            false => Expr::Binary(op, Box::new(left), Box::new(right)),
        }
    }

    fn deeper(&mut self) -> Result<(), ParseError> {
        let room = self.room.checked_sub(1);
        self.room = room.ok_or_else(|| self.error(&format!("more than {LARGEST} operations and parentheses")))?;
        Ok(())
    }

    fn sum(&mut self) -> Result<Expr, ParseError> {
        let mut left = self.product()?;
        loop {
            let op = if self.eat("+") {
                Op::Add
            } else if !self.rest().trim_start().starts_with("->") && self.eat("-") {
                Op::Sub
            } else {
                return Ok(left);
            };
            self.deeper()?;
            let right = self.product()?;
            left = self.binary(op, left, right);
        }
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        let mut left = self.atom()?;
        loop {
            let op = if self.eat("*") {
                Op::Mul
            } else if self.eat("/^") {
                Op::CeilDiv
            } else if self.eat("/") {
                Op::Div
            } else if self.eat("%") {
                Op::Rem
            } else {
                return Ok(left);
            };
            self.deeper()?;
            let right = self.atom()?;
            left = self.binary(op, left, right);
        }
    }

    /// `a, b)` of `max(a, b)`.
    fn larger(&mut self) -> Result<Expr, ParseError> {
        self.deeper()?;
        let left = self.sum()?;
        if !self.eat(",") {
            return Err(self.error("expected `,`"));
        }
        let right = self.sum()?;
        if self.eat(")") { Ok(self.binary(Op::Max, left, right)) } else { Err(self.error("expected `)`")) }
    }

    fn atom(&mut self) -> Result<Expr, ParseError> {
        if self.eat("(") {
            self.deeper()?;
            let inner = self.sum()?;
            return if self.eat(")") { Ok(inner) } else { Err(self.error("expected `)`")) };
        }
        self.space();
        let sign = if self.rest().starts_with('-') { "-" } else { "" };
        let after = &self.rest()[sign.len()..];
        let word: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match word.chars().next() {
            Some(first) if first.is_ascii_digit() => {
                let digits = format!("{sign}{}", word.replace('_', ""));
                let value = digits.parse().map_err(|_| self.error(&format!("`{sign}{word}` is not a number")))?;
                self.at += sign.len() + word.len();
                Ok(Expr::Const(value))
            }
            Some(_) if sign.is_empty() => {
                self.at += word.len();
                if word == Op::Max.symbol() && self.eat("(") {
                    return self.larger();
                }
                Ok(Expr::Name(word))
            }
            _ => Err(self.error("expected a dim, an index or a number")),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Const(c) => write!(f, "{c}"),
            Self::Name(name) => f.write_str(name),
            Self::Binary(Op::Max, a, b) => write!(f, "max({a}, {b})"),
            Self::Binary(op, a, b) => {
                write_side(f, a, op.precedence())?;
                write!(f, " {} ", op.symbol())?;
                write_side(f, b, op.precedence() + 1)
            }
        }
    }
}

fn write_side(f: &mut fmt::Formatter<'_>, side: &Expr, at_least: u8) -> fmt::Result {
    match side {
        Expr::Binary(op, ..) if op.precedence() < at_least => write!(f, "({side})"),
        Expr::Const(c) if *c < 0 => write!(f, "({c})"),
        _ => write!(f, "{side}"),
    }
}

impl Serialize for Expr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A sum of integer multiples of products of atoms.
#[derive(Clone, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Default)]
struct Polynomial(BTreeMap<Vec<Atom>, i64>);

/// A factor of a product: a name, or an operation that does not reduce to a polynomial.
#[derive(Clone, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
enum Atom {
    Name(String),
    Opaque(Op, Polynomial, Polynomial),
}

impl Polynomial {
    fn constant(c: i64) -> Self {
        Self(if c == 0 { BTreeMap::new() } else { BTreeMap::from([(Vec::new(), c)]) })
    }

    fn as_constant(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    fn atom(atom: Atom) -> Self {
        Self(BTreeMap::from([(vec![atom], 1)]))
    }

    /// Number of atoms, also of those within others, and of terms.
    fn size(&self) -> usize {
        let of = |atom: &Atom| match atom {
            Atom::Name(_) => 1,
            Atom::Opaque(_, a, b) => 1 + a.size() + b.size(),
        };
        self.0.keys().map(|product| 1 + product.iter().map(of).sum::<usize>()).sum()
    }

    /// Returns the normal form; `None` if it has more than [`MOST_TERMS`] terms or [`MOST_ATOMS`]
    /// atoms, or a number beyond 64 bits.
    fn of(expr: &Expr) -> Option<Self> {
        let normal = match expr {
            Expr::Const(c) => Self::constant(*c),
            Expr::Name(name) => Self::atom(Atom::Name(name.clone())),
            Expr::Binary(op, a, b) => Self::of(a)?.combined(*op, Self::of(b)?)?,
        };
        (normal.0.len() <= MOST_TERMS && normal.size() <= MOST_ATOMS).then_some(normal)
    }

    fn combined(self, op: Op, other: Self) -> Option<Self> {
        Some(match op {
            Op::Add => self.plus(&other, 1)?,
            Op::Sub => self.plus(&other, -1)?,
            Op::Mul => self.times(&other)?,
            Op::Div | Op::CeilDiv => self.over(&other).unwrap_or_else(|| Self::atom(Atom::Opaque(op, self, other))),
            Op::Rem if self.over(&other).is_some() => Self::constant(0),
            Op::Rem => Self::atom(Atom::Opaque(op, self, other)),
            Op::Max => match self.plus(&other, -1)?.as_constant() {
                Some(more) if more < 0 => other,
                Some(_) => self,
                None if other < self => Self::atom(Atom::Opaque(op, other, self)),
                None => Self::atom(Atom::Opaque(op, self, other)),
            },
        })
    }

    fn plus(&self, other: &Self, sign: i64) -> Option<Self> {
        let mut sum = self.0.clone();
        for (product, c) in &other.0 {
            let entry = sum.entry(product.clone()).or_default();
            *entry = entry.checked_add(c.checked_mul(sign)?)?;
        }
        sum.retain(|_, c| *c != 0);
        Some(Self(sum))
    }

    /// Returns the product; `None` if it would be too large before like terms are summed.
    fn times(&self, other: &Self) -> Option<Self> {
        let terms = self.0.len().checked_mul(other.0.len())?;
        let size = self.size() * other.0.len() + other.size() * self.0.len();
        if terms > MOST_TERMS || size > MOST_ATOMS {
            return None;
        }
        let mut out: BTreeMap<Vec<Atom>, i64> = BTreeMap::new();
        for (p, a) in &self.0 {
            for (q, b) in &other.0 {
                let mut product = [p.as_slice(), q.as_slice()].concat();
                product.sort();
                let sum = out.entry(product).or_default();
                *sum = sum.checked_add(a.checked_mul(*b)?)?;
            }
        }
        out.retain(|_, c| *c != 0);
        Some(Self(out))
    }

    /// Returns the quotient by a single product, if every term is a multiple of it.
    fn over(&self, divisor: &Self) -> Option<Self> {
        let (product, c) = divisor.0.iter().next().filter(|_| divisor.0.len() == 1)?;
        let mut out = BTreeMap::new();
        for (term, k) in &self.0 {
            let mut rest = term.clone();
            for atom in product {
                rest.remove(rest.iter().position(|a| a == atom)?);
            }
            (k.checked_rem(*c)? == 0).then_some(())?;
            out.insert(rest, k.checked_div(*c)?);
        }
        Some(Self(out))
    }

    /// Whether, judging by the signs, no value is negative if no name is.
    fn is_never_negative(&self) -> bool {
        let of = |atom: &Atom| match atom {
            Atom::Name(_) => true,
            Atom::Opaque(_, a, b) => a.is_never_negative() && b.is_never_negative(),
        };
        self.0.iter().all(|(product, c)| *c >= 0 && product.iter().all(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Expr {
        Expr::parse(text).expect(text)
    }

    #[test]
    fn normal_forms_decide_equality() {
        for (a, b) in [
            ("A + B*2", "2*B + A"),
            ("(A*D)/D", "A"),
            ("4*(N/4) % 4", "0"),
            ("A*(B+1)", "A*B + A"),
            ("max(A + 1, A)", "A + 1"),
            ("max(A, B) * 2", "2 * max(B, A)"),
        ] {
            assert!(parse(a).same(&parse(b)), "{a} = {b}");
        }
        for (a, b) in [("A/2*2", "A"), ("A", "B"), ("N/4", "N /^ 4")] {
            assert!(!parse(a).same(&parse(b)), "{a} != {b}");
        }
    }

    #[test]
    fn an_expression_of_any_length_takes_little() {
        let deep = format!("{}A{}", "(".repeat(100_000), ")".repeat(100_000));
        let long = vec!["A"; 100_000].join(" + ");
        for text in [deep, long] {
            assert!(Expr::parse(&text).is_err());
        }
        let wide = parse(&["(A + B + C + D + E + F + G)"; 30].join(" * "));
        assert!(wide.same(&wide) && !wide.same(&parse("A")));
    }

    #[test]
    fn nested_quotients_of_any_depth_take_little() {
        let deep = (0..48).fold("A / 3".to_owned(), |inner, _| format!("({inner}) / 3 * (A + B)"));
        let deep = parse(&deep);
        assert!(deep.same(&deep) && !deep.same(&parse("A")));
    }

    #[test]
    fn numbers_beyond_64_bits_show_nothing() {
        let large = "(A * 9223372036854775807 - B * 9223372036854775807)";
        assert!(!parse(&format!("{large} - B")).same(&parse(&format!("{large} + {large}"))));
        for text in ["A * -9223372036854775808 / -1", "A * -9223372036854775808 % -1"] {
            assert!(!parse(text).same(&parse("A")), "{text}");
        }
        assert_eq!(apply(Op::CeilDiv, 0, i64::MIN), Err(EvalError::Overflow));
    }

    #[test]
    fn signs_of_a_normal_form_bound_it() {
        for (a, b) in [("n + T", "n"), ("(n + 1) * D", "n * D"), ("A + B / 2", "A"), ("n", "n")] {
            assert!(parse(a).is_at_least(&parse(b)), "{a} >= {b}");
        }
        for (a, b) in [("n", "n + T"), ("A", "B"), ("A + (B - C) / 2", "A"), ("n * (N - n)", "0")] {
            assert!(!parse(a).is_at_least(&parse(b)), "{a}, {b}");
        }
    }

    #[test]
    fn what_is_made_as_a_line_is_affine() {
        let env = |name: &str| (name == "N").then_some(7);
        let affine = |text: &str| parse(text).affine("pos", &env);
        assert_eq!(affine("pos"), Ok(Some((1, 0))));
        assert_eq!(affine("N * (2 * pos + 1) - pos * (N % 4)"), Ok(Some((11, 7))));
        assert_eq!(affine("pos - pos + N / 2"), Ok(Some((0, 3))));
        for text in ["pos % 2048", "pos / 2", "N / (pos + 1)", "pos * pos", "max(0, pos)"] {
            assert_eq!(affine(text), Ok(None), "{text}");
        }
        assert_eq!(affine("pos + M"), Err(EvalError::Unknown("M".into())));
        assert_eq!(affine("pos + N / (N - 7)"), Err(EvalError::DivisionByZero));
    }

    #[test]
    fn text_round_trips() {
        for text in [
            "16 * n + 16",
            "(A + 1) * B",
            "A - (B - C)",
            "h * G / Q",
            "N /^ 16",
            "h / (Q / G)",
            "A + (-1)",
            "max(0, pos - W + 1)",
            "2 * max(A + 1, B)",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("-9223372036854775808"), Expr::Const(i64::MIN));
        assert!(Expr::parse("-A").is_err() && Expr::parse("-").is_err());
    }

    #[test]
    fn a_prefix_is_read_as_it_is_written() {
        for (text, printed, rest) in [
            ("N step T", "N", " step T"),
            ("h+D] <- x", "h + D", "] <- x"),
            ("2*3 - (1 + 1) -> y", "2 * 3 - (1 + 1)", " -> y"),
            ("A % 2 == 0", "A % 2", " == 0"),
            ("max(0, pos-W)..pos", "max(0, pos - W)", "..pos"),
        ] {
            let (expr, length) = Expr::parse_prefix(text).expect(text);
            assert_eq!((expr.to_string().as_str(), &text[length..]), (printed, rest));
        }
    }

    #[test]
    fn evaluation_floors_and_reports() {
        let env = |name: &str| (name == "N").then_some(7);
        assert_eq!(parse("N / 2 + N /^ 2 * 10 + N % 4").eval(&env), Ok(3 + 40 + 3));
        assert_eq!(parse("M").eval(&env), Err(EvalError::Unknown("M".into())));
        assert_eq!(parse("N / (N - 7)").eval(&env), Err(EvalError::DivisionByZero));
        assert!(Expr::parse("N +").is_err() && Expr::parse("N M").is_err());
        assert_eq!(parse("max(N - 9, 0) + max(N, 1)").eval(&env), Ok(7));
        assert_eq!(parse("max + 1"), Expr::binary(Op::Add, Expr::name("max"), Expr::Const(1)));
        assert!(Expr::parse("max(N)").is_err() && Expr::parse("max(N, 1").is_err());
    }

    #[test]
    fn what_would_overflow_the_stack_is_no_expression() {
        for text in ["(".repeat(1 << 20), "N+".repeat(1 << 20), "N*".repeat(1 << 20)] {
            assert_eq!(Expr::parse(&text).unwrap_err().message, "more than 256 operations and parentheses");
        }
        assert!(Expr::parse(&format!("N{}", " + N".repeat(256))).is_ok());
    }
}
