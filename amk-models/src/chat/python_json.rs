//! JSON as Python's `json.dumps` writes it: `", "` and `": "` between items, where serde_json
//! writes no space.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The text of `value`; with `indent`, one item a line; with `ensure_ascii`, other characters as
/// `\u` escapes.
///
/// # Errors
/// When the value has no JSON form, such as an object with keys that are not strings.
pub(super) fn dumps(
    value: &impl Serialize,
    indent: Option<usize>,
    ensure_ascii: bool,
) -> Result<String, serde_json::Error> {
    let mut text = Vec::new();
    match indent {
        Some(indent) => {
            let spaces = vec![b' '; indent];
            value.serialize(&mut Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(&spaces)))?;
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut text, OneLine))?,
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(if ensure_ascii { escape(&text) } else { text })
}

/// Everything outside ASCII as UTF-16 escapes. Only strings contain such characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Function {
        name: &'static str,
        list: [Option<f64>; 2],
        text: &'static str,
    }

    const FUNCTION: Function = Function { name: "f", list: [Some(2.5), None], text: "é😀\"\n" };

    #[test]
    fn spacing_is_pythons() {
        // json.dumps(value, ensure_ascii=False) and json.dumps(value) of Python 3.11.
        let expected = r#"{"name": "f", "list": [2.5, null], "text": "é😀\"\n"}"#;
        assert_eq!(dumps(&FUNCTION, None, false).unwrap(), expected);
        let expected = r#"{"name": "f", "list": [2.5, null], "text": "\u00e9\ud83d\ude00\"\n"}"#;
        assert_eq!(dumps(&FUNCTION, None, true).unwrap(), expected);
    }

    #[test]
    fn indented_text_has_one_item_a_line() {
        let value = serde_json::json!({"a": [1, 2]});
        assert_eq!(dumps(&value, Some(4), false).unwrap(), "{\n    \"a\": [\n        1,\n        2\n    ]\n}");
    }
}
