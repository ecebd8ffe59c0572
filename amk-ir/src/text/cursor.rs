//! A cursor over one line of the text format.

use super::error::{ParseCause, ParseError};
use crate::expr::Expr;

/// Reads one line from left to right; a comment ends it.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a name needs no quotes after `@`; brackets only where no shape follows the name.
pub(super) fn is_plain_name(name: &str, brackets: bool) -> bool {
    !name.is_empty() && name.chars().all(|c| is_name_char(c, brackets))
}

/// Whether a name needs neither quotes nor `@`.
pub(super) fn is_plain_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_word)
}

fn is_name_char(c: char, brackets: bool) -> bool {
    is_word(c) || matches!(c, '.' | '-' | ':' | '/') || (brackets && matches!(c, '[' | ']'))
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, line: u32) -> Self {
        let mut cursor = Self { text, at: 0, line };
        cursor.skip_space();
        cursor
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        if self.rest().starts_with(';') {
            self.at = self.text.len();
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.skip_space();
    }

    /// The error `cause` at the cursor.
    pub(super) fn error(&self, cause: ParseCause) -> ParseError {
        let column = self.text.get(..self.at).map_or(0, |before| before.chars().count()) + 1;
        ParseError { line: self.line, column: u32::try_from(column).unwrap_or(u32::MAX), cause, help: None }
    }

    /// The error that `expected` is missing at the cursor.
    pub(super) fn expected<T>(&self, expected: &'static str) -> Parsed<T> {
        let found = match self.peek_word() {
            "" => self.rest().chars().next().map_or(String::new(), String::from),
            word => word.to_owned(),
        };
        Err(self.error(ParseCause::Expected { expected, found }))
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(super) fn end(&self) -> Parsed<()> {
        if self.at_end() { Ok(()) } else { self.expected("the end of the line") }
    }

    /// Takes `symbol` if it comes next.
    pub(super) fn eat(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        if found {
            self.advance(symbol.len());
        }
        found
    }

    pub(super) fn expect(&mut self, symbol: &str, expected: &'static str) -> Parsed<()> {
        if self.eat(symbol) { Ok(()) } else { self.expected(expected) }
    }

    /// The word here, without taking it; empty if there is none.
    pub(super) fn peek_word(&self) -> &'a str {
        let rest = self.rest();
        rest.split(|c: char| !is_word(c)).next().unwrap_or("")
    }

    /// Takes `word` if it comes next as a whole word.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.advance(word.len());
        }
        found
    }

    pub(super) fn word(&mut self, expected: &'static str) -> Parsed<&'a str> {
        let word = self.peek_word();
        if word.is_empty() {
            return self.expected(expected);
        }
        self.advance(word.len());
        Ok(word)
    }

    /// A word or a quoted string.
    pub(super) fn word_or_quoted(&mut self, expected: &'static str) -> Parsed<String> {
        if self.rest().starts_with('"') { self.quoted() } else { self.word(expected).map(str::to_owned) }
    }

    /// A name after `@`.
    pub(super) fn name(&mut self, brackets: bool) -> Parsed<String> {
        if !self.rest().starts_with('@') {
            return self.expected("a name that starts with `@`");
        }
        self.at += 1;
        self.bare_name(brackets)
    }

    /// A name without `@`, or a quoted string.
    pub(super) fn bare_name(&mut self, brackets: bool) -> Parsed<String> {
        let rest = self.rest();
        if rest.starts_with('"') {
            return self.quoted();
        }
        let end = rest.find(|c: char| !is_name_char(c, brackets)).unwrap_or(rest.len());
        if end == 0 {
            return self.expected("a name");
        }
        let name = rest.get(..end).unwrap_or("").to_owned();
        self.advance(end);
        Ok(name)
    }

    /// A string in double quotes, with JSON's escapes.
    pub(super) fn quoted(&mut self) -> Parsed<String> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
        match values.next() {
            Some(Ok(value)) if self.rest().starts_with('"') => {
                let end = values.byte_offset();
                self.advance(end);
                Ok(value)
            }
            _ => self.expected("a string in double quotes"),
        }
    }

    /// Whether `symbol` comes next.
    pub(super) fn at_symbol(&self, symbol: &str) -> bool {
        self.rest().starts_with(symbol)
    }

    /// Takes a dot and digits, as in `x.2`, if they come next as a whole.
    pub(super) fn eat_numbered(&mut self) -> bool {
        let Some(after) = self.rest().strip_prefix('.') else { return false };
        let digits = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
        let found = is_digits(after.get(..digits).unwrap_or(""));
        if found {
            self.advance(1 + digits);
        }
        found
    }

    /// An expression over dims and indices.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        let read = Expr::parse_prefix(self.rest());
        let (expr, bytes) = read.map_err(|error| {
            self.at += error.at;
            self.error(ParseCause::Expression { why: error.message })
        })?;
        self.advance(bytes);
        Ok(expr)
    }

    /// The text from `start` to the cursor's end.
    pub(super) fn since(&self, start: &Self) -> &'a str {
        self.text.get(start.at..self.at).unwrap_or("").trim_end()
    }

    /// Whether a number comes next.
    pub(super) fn at_digit(&self) -> bool {
        self.rest().starts_with(|c: char| c.is_ascii_digit())
    }

    pub(super) fn number(&mut self, max: u64, expected: &'static str) -> Parsed<u64> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest.get(..end).unwrap_or("");
        if digits.is_empty() {
            return self.expected(expected);
        }
        match digits.parse::<u64>() {
            Ok(number) if number <= max => {
                self.advance(end);
                Ok(number)
            }
            _ => Err(self.error(ParseCause::TooLarge { number: digits.to_owned(), max })),
        }
    }

    pub(super) fn u32(&mut self, expected: &'static str) -> Parsed<u32> {
        self.number(u64::from(u32::MAX), expected).map(|n| n as u32)
    }

    /// An id as `t12`.
    pub(super) fn id(&mut self, prefix: &str, expected: &'static str) -> Parsed<u32> {
        let word = self.peek_word();
        let Some(digits) = word.strip_prefix(prefix).filter(|d| is_digits(d)) else {
            return self.expected(expected);
        };
        let Ok(index) = digits.parse::<u32>() else {
            return Err(self.error(ParseCause::TooLarge { number: word.to_owned(), max: u64::from(u32::MAX) }));
        };
        self.advance(word.len());
        Ok(index)
    }

    /// Characters up to one of the delimiters of a parameter list.
    pub(super) fn scalar(&mut self) -> Parsed<&'a str> {
        let rest = self.rest();
        let end = rest.find(|c: char| matches!(c, ',' | ')' | '}' | ';') || c.is_whitespace()).unwrap_or(rest.len());
        let scalar = rest.get(..end).unwrap_or("");
        if scalar.is_empty() {
            return self.expected("a parameter");
        }
        self.advance(end);
        Ok(scalar)
    }
}

/// A list with commas between its items.
pub(super) fn list(
    cursor: &mut Cursor<'_>,
    open: &'static str,
    close: &'static str,
    mut item: impl FnMut(&mut Cursor<'_>) -> Parsed<()>,
) -> Parsed<()> {
    let (opening, closing) = match open {
        "(" => ("`(`", "`,` or `)`"),
        "[" => ("`[`", "`,` or `]`"),
        _ => ("`{`", "`,` or `}`"),
    };
    cursor.expect(open, opening)?;
    if cursor.eat(close) {
        return Ok(());
    }
    loop {
        item(cursor)?;
        if !cursor.eat(",") {
            return cursor.expect(close, closing);
        }
    }
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
