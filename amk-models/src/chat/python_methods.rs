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
