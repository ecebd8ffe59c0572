//! Methods of Python's strings and lists that templates call and `minijinja_contrib::pycompat` does
//! not have.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::padding;

/// Evaluates `value.method(arguments)` for methods that minijinja lacks.
pub(super) fn call(state: &mut State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let found = match value.as_str() {
        Some(text) => of_string(text, method, arguments)?,
        None if value.kind() == ValueKind::Seq => of_list(value, method, arguments)?,
        None => None,
    };
    match found {
        Some(found) => Ok(found),
        None => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn of_string(text: &str, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    if method == "rsplit" {
        let (separator, limit): (Option<&str>, Option<i64>) = from_args(arguments)?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let parts = rsplit(text, separator, limit)?;
        return Ok(Some(parts.into_iter().map(Value::from).collect()));
    }
    if method == "zfill" {
        let (width,) = from_args(arguments)?;
        return zfill(text, width).map(|filled| Some(Value::from(filled)));
    }
    if ["center", "ljust", "rjust"].contains(&method) {
        let (width, filler): (i64, Option<char>) = from_args(arguments)?;
        let width = usize::try_from(width).unwrap_or(0);
        let left: fn(usize, usize) -> usize = match method {
            "ljust" => |_, _| 0,
            "rjust" => |missing, _| missing,
            _ => padding::middle,
        };
        let padded = padding::justify(text, width, filler.unwrap_or(' '), left)?;
        return Ok(Some(Value::from(padded)));
    }
    if method == "splitlines" {
        let (ends,): (Option<bool>,) = from_args(arguments)?;
        return Ok(Some(split_lines(text, ends == Some(true)).into_iter().map(Value::from).collect()));
    }
    if method == "title" {
        let () = from_args(arguments)?;
        return Ok(Some(title(text).into()));
    }
    if !["index", "partition", "removeprefix", "removesuffix", "rpartition"].contains(&method) {
        return Ok(None);
    }
    let (part,): (&str,) = from_args(arguments)?;
    Ok(Some(match method {
        "index" => match text.find(part) {
            Some(at) => Value::from(text[..at].chars().count()),
            None => return Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
        },
        "partition" => match text.split_once(separator(part)?) {
            Some((before, after)) => texts([before, part, after]),
            None => texts([text, "", ""]),
        },
        "rpartition" => match text.rsplit_once(separator(part)?) {
            Some((before, after)) => texts([before, part, after]),
            None => texts(["", "", text]),
        },
        "removeprefix" => Value::from(text.strip_prefix(part).unwrap_or(text)),
        _ => Value::from(text.strip_suffix(part).unwrap_or(text)),
    }))
}

fn of_list(list: &Value, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    if method != "index" {
        return Ok(None);
    }
    let (wanted,): (&Value,) = from_args(arguments)?;
    match list.try_iter()?.position(|item| item == *wanted) {
        Some(at) => Ok(Some(Value::from(at))),
        None => Err(Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in list"))),
    }
}

/// Splits `text` from its end at most `limit` times, at whitespace if no separator is given.
fn rsplit<'a>(text: &'a str, separator: Option<&str>, limit: usize) -> Result<Vec<&'a str>, Error> {
    let mut parts: Vec<_> = match separator {
        Some(part) => text.rsplitn(limit.saturating_add(1), self::separator(part)?).collect(),
        None => {
            let mut rest = text.trim_end();
            let mut parts = Vec::new();
            while parts.len() < limit
                && let Some((before, word)) = rest.rsplit_once(char::is_whitespace)
            {
                parts.push(word);
                rest = before.trim_end();
            }
            parts.extend((!rest.is_empty()).then_some(rest));
            parts
        }
    };
    parts.reverse();
    Ok(parts)
}

fn separator(text: &str) -> Result<&str, Error> {
    match text {
        "" => Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        text => Ok(text),
    }
}

/// `text` with zeros between its sign and the rest, up to `width` characters.
fn zfill(text: &str, width: usize) -> Result<String, Error> {
    let (sign, digits) = text.split_at(text.starts_with(['+', '-']).into());
    let zeros = padding::fill('0', width, text)?;
    Ok(format!("{sign}{zeros}{digits}"))
}

/// The lines of `text`, with what ends them or without, at all ends that Python knows.
fn split_lines(text: &str, ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some(end) = rest.find(is_end) {
        let from = &rest[end..];
        let after = from.strip_prefix("\r\n").or_else(|| from.strip_prefix(is_end)).unwrap_or_default();
        lines.push(if ends { &rest[..rest.len() - after.len()] } else { &rest[..end] });
        rest = after;
    }
    lines.extend((!rest.is_empty()).then_some(rest));
    lines
}

/// `text` with a capital after everything that is not a letter: `It'S`.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        match in_word {
            true => titled.extend(c.to_lowercase()),
            false => titled.extend(c.to_uppercase()),
        }
        in_word = c.is_lowercase() || c.is_uppercase();
    }
    titled
}

fn texts(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from)))
}
