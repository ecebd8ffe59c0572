//! JSON as Python's `json.dumps` writes it.

use std::io;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use super::budget::{Budget, refused};
use super::{padding, python_float};

/// `tojson` of transformers, with its arguments.
pub(super) fn filter(budget: &Budget, value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let ensure_ascii: Option<bool> = arguments.get("ensure_ascii")?;
    let sort_keys: Option<bool> = arguments.get("sort_keys")?;
    let style = Style::new(arguments.get("indent")?, arguments.get("separators")?)?;
    arguments.assert_all_used()?;
    budget.check(value)?;
    let sorted = (sort_keys == Some(true)).then(|| sorted(value));
    let mut text = Bounded { text: Vec::new(), budget };
    let written = sorted.as_ref().unwrap_or(value).serialize(&mut Serializer::with_formatter(&mut text, style));
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))?;
    let text = String::from_utf8_lossy(&text.text).into_owned();
    Ok(Value::from_safe_string(if ensure_ascii == Some(true) { escape(&text) } else { text }))
}

/// The value with the keys of its dictionaries in order.
fn sorted(value: &Value) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    match value.kind() {
        ValueKind::Map => {
            let mut items: Vec<_> = object.try_iter_pairs().into_iter().flatten().collect();
            items.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::from_pairs(items.into_iter().map(|(key, value)| (key, sorted(&value))))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            object.try_iter().into_iter().flatten().map(|item| sorted(&item)).collect()
        }
        _ => value.clone(),
    }
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

/// A text that keeps to a budget.
struct Bounded<'a> {
    text: Vec<u8>,
    budget: &'a Budget,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let checked = self.budget.check_size(self.text.len() + bytes.len());
        checked.map_err(|error| io::Error::other(error.detail().unwrap_or_default().to_owned()))?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text between items.
#[derive(Default)]
struct Style {
    /// The indent of a level; if there is one, items are on separate lines.
    indent: Option<String>,
    item: String,
    key: String,
    level: usize,
    /// Whether the list or object being written has items.
    has_items: bool,
}

impl Style {
    fn new(indent: Option<Value>, separators: Option<Vec<String>>) -> Result<Self, Error> {
        let indent = match indent.filter(|indent| !indent.is_none()) {
            None => None,
            Some(indent) => Some(match (indent.as_str(), indent.as_i64()) {
                (Some(text), _) => text.to_owned(),
                (None, Some(spaces)) => padding::fill(' ', usize::try_from(spaces).unwrap_or_default(), "")?,
                _ => return Err(refused(format_args!("tojson: indent is a {}", indent.kind()))),
            }),
        };
        let [item, key] = match separators {
            Some(pair) => <[String; 2]>::try_from(pair)
                .map_err(|pair| refused(format_args!("tojson: {} separators, not 2", pair.len())))?,
            None => [if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()],
        };
        Ok(Self { indent, item, key, ..Self::default() })
    }

    fn begin(&mut self) {
        self.level += 1;
        self.has_items = false;
    }

    fn begin_item<W: ?Sized + io::Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.begin_line(writer)
    }

    fn end<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level -= 1;
        if self.has_items {
            self.begin_line(writer)?;
        }
        writer.write_all(bracket)
    }

    fn begin_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        (0..self.level).try_for_each(|_| writer.write_all(indent.as_bytes()))
    }
}

impl Formatter for Style {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(python_float::repr(value).as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin();
        CompactFormatter.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin();
        CompactFormatter.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }
}
