//! Values as Python prints them.

use std::fmt::{Result, Write};
use std::sync::LazyLock;

use fancy_regex::Regex;
use minijinja::Value;
use minijinja::value::ValueKind;

use super::python_float;

/// `str(value)` of Python.
pub(super) fn str(value: &Value) -> String {
    if value.as_str().is_some() || value.is_undefined() {
        return value.to_string();
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, value);
    text
}

/// Whether a value is a floating-point number.
fn float(value: &Value) -> Option<f64> {
    let is_float = value.is_number() && !value.is_integer();
    is_float.then(|| f64::try_from(value.clone()).ok()).flatten()
}

/// Writes `repr(value)` of Python.
fn write(text: &mut String, value: &Value) -> Result {
    if let Some(number) = float(value) {
        return text.write_str(&python_float::repr(number));
    }
    if let Some(value) = value.as_str() {
        return write_quoted(text, value);
    }
    // Those without a length, and objects such as macros, have a text of their own.
    let Some(object) = value.as_object().filter(|object| value.len().is_some() && !has_own_text(object.type_name()))
    else {
        return write!(text, "{value:?}");
    };
    let (open, close) = match value.kind() {
        ValueKind::Map => ('{', "}"),
        _ if value.is_tuple() => ('(', if value.len() == Some(1) { ",)" } else { ")" }),
        ValueKind::Seq | ValueKind::Iterable => ('[', "]"),
        _ => return write!(text, "{value:?}"),
    };
    text.push(open);
    for (at, (key, item)) in object.try_iter_pairs().into_iter().flatten().enumerate() {
        text.push_str(if at == 0 { "" } else { ", " });
        if open == '{' {
            write(text, &key)?;
            text.push_str(": ");
        }
        write(text, &item)?;
    }
    text.push_str(close);
    Ok(())
}

/// Writes `repr` of a Python string.
fn write_quoted(text: &mut String, value: &str) -> Result {
    let quote = if value.contains('\'') && !value.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for char in value.chars() {
        match char {
            '\\' => text.push_str(r"\\"),
            '\n' => text.push_str(r"\n"),
            '\r' => text.push_str(r"\r"),
            '\t' => text.push_str(r"\t"),
            _ if char == quote => write!(text, "\\{char}")?,
            _ if is_printable(char) => text.push(char),
            '\0'..='\u{ff}' => write!(text, "\\x{:02x}", u32::from(char))?,
            '\u{100}'..='\u{ffff}' => write!(text, "\\u{:04x}", u32::from(char))?,
            _ => write!(text, "\\U{:08x}", u32::from(char))?,
        }
    }
    text.push(quote);
    Ok(())
}

/// `isprintable` of a Python character.
fn is_printable(char: char) -> bool {
    static UNPRINTABLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[\p{C}\p{Z}]").expect("the classes should be known"));
    let mut bytes = [0; 4];
    // A text that is one character cannot exceed the limits of matching.
    matches!(char, ' '..='~') || !UNPRINTABLE.is_match(char.encode_utf8(&mut bytes)).unwrap_or(false)
}

/// Whether minijinja prints the type other than as a list or dictionary.
fn has_own_text(type_name: &str) -> bool {
    ["::Macro", "::Loop", "::Closure"].iter().any(|own| type_name.ends_with(own))
}

#[cfg(test)]
mod tests {
    use super::str;
    use minijinja::Value;
    use minijinja::value::Tuple;

    #[test]
    fn values_are_printed_as_python_prints_them() {
        // str(value) of Python 3.11.
        let item = Value::from_pairs([("a\n'", Value::from(1e16)), ("b", Value::from(true))]);
        let list = Value::from(vec![item, Value::from(()), Value::from(5e-5), Value::from("é")]);
        assert_eq!(str(&list), r#"[{"a\n'": 1e+16, 'b': True}, None, 5e-05, 'é']"#);
        assert_eq!(str(&Value::from(Tuple::from([Value::from(1.0)]))), "(1.0,)");
        assert_eq!(str(&Value::from(Tuple::default())), "()");
        assert_eq!(str(&Value::from("a\n'")), "a\n'");
        // `repr` of the same texts.
        for (text, repr) in [
            ("a\u{a0}b\u{ad}", r"'a\xa0b\xad'"),
            ("\u{200b}\u{2028}\u{202e}\u{3000}\u{feff}", r"'\u200b\u2028\u202e\u3000\ufeff'"),
            ("👩\u{200d}👧\u{e000}\u{378}\u{e0001}", r"'👩\u200d👧\ue000\u0378\U000e0001'"),
            ("\0\x1b\x7f\u{85}\r\t\\", r"'\x00\x1b\x7f\x85\r\t\\'"),
            ("é '\"", r#"'é \'"'"#),
        ] {
            assert_eq!(str(&Value::from(vec![text])), format!("[{repr}]"));
        }
        assert_eq!(str(&Value::from(u128::MAX)), u128::MAX.to_string());
    }
}
