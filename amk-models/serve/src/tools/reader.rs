//! Parses the calls in the text of an answer as it arrives.

use super::Form;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A call that a model asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// A JSON object, exactly as the model wrote it.
    pub(crate) arguments: String,
}

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Text(String),
    Call(Call),
}

/// Separates calls from text. Text that may become a call is held back; if it does not, it is
/// returned as text.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    form: Form,
    /// The names of the functions.
    names: Vec<String>,
    parallel: bool,
    held: String,
    /// Whether the held text is inside a call.
    inside: bool,
    /// Whether something has been seen.
    begun: bool,
    calls: usize,
    /// White space behind a call, which is text if more follows.
    spaces: String,
}

impl Reader {
    pub(super) fn new(form: Form, names: Vec<String>, parallel: bool) -> Self {
        let [held, spaces] = [const { String::new() }; 2];
        Self { form, names, parallel, held, inside: false, begun: false, calls: 0, spaces }
    }

    /// Takes more of the text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        match self.form {
            Form::Tagged => while self.tagged(&mut parts) {},
            Form::Bare => self.bare(&mut parts),
        }
        parts
    }

    /// The text has ended.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let held = core::mem::take(&mut self.held);
        if self.inside && self.form == Form::Tagged {
            // The end may have come inside the tag that ends a call, or before it.
            let whole = &held[..held.len() - partial(&held, CLOSE)];
            match call(whole) {
                Some(_) => self.call(whole, &mut parts),
                None => self.text(&format!("{OPEN}{held}"), &mut parts),
            }
        } else if self.inside {
            self.call(&held, &mut parts);
        } else {
            self.text(&held, &mut parts);
        }
        parts
    }

    /// Whether there was a call.
    pub(crate) fn called(&self) -> bool {
        self.calls > 0
    }

    /// Advances to the next tag; returns whether there was one.
    fn tagged(&mut self, parts: &mut Vec<Part>) -> bool {
        let tag = if self.inside { CLOSE } else { OPEN };
        let mut found = self.held.match_indices(tag).map(|(at, _)| at);
        let Some(at) = found.find(|&at| !self.inside || !ends_in_string(&self.held[..at])) else {
            if !self.inside {
                let rest = self.held.split_off(self.held.len() - partial(&self.held, tag));
                let text = core::mem::replace(&mut self.held, rest);
                self.text(&text, parts);
            }
            return false;
        };
        let after = self.held.split_off(at + tag.len());
        let before = core::mem::replace(&mut self.held, after);
        let before = &before[..at];
        if self.inside {
            self.call(before, parts);
        } else {
            self.text(before, parts);
        }
        self.inside = !self.inside;
        true
    }

    /// An answer that begins as an object is kept until it ends; another is text.
    fn bare(&mut self, parts: &mut Vec<Part>) {
        let begin = self.held.trim_start();
        if begin.is_empty() || self.inside {
            return;
        }
        if begin.starts_with('{') && !self.begun {
            self.inside = true;
        } else {
            let text = core::mem::take(&mut self.held);
            self.text(&text, parts);
        }
    }

    /// Adds text. Behind a call its white space is kept until more text follows.
    fn text(&mut self, text: &str, parts: &mut Vec<Part>) {
        self.spaces.push_str(text);
        let end = if self.called() { self.spaces.trim_end().len() } else { self.spaces.len() };
        let rest = self.spaces.split_off(end);
        let text = core::mem::replace(&mut self.spaces, rest);
        if text.is_empty() {
            return;
        }
        self.begun = true;
        match parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(&text),
            _ => parts.push(Part::Text(text)),
        }
    }

    /// Parses what a model wrote as a call.
    fn call(&mut self, text: &str, parts: &mut Vec<Part>) {
        let known = |call: &Call| self.form == Form::Tagged || self.names.contains(&call.name);
        match call(text).filter(known) {
            Some(_) if self.calls > 0 && !self.parallel => {}
            Some(call) => {
                self.calls += 1;
                self.spaces.clear();
                parts.push(Part::Call(call));
            }
            None => self.text(text, parts),
        }
    }
}

/// The number of bytes at the end of a text that may begin the tag.
fn partial(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|&length| text.ends_with(&tag[..length])).unwrap_or(0)
}

/// Whether a string of some JSON has no end yet, so that a tag after it belongs to the string.
fn ends_in_string(json: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = inside,
            b'"' => inside = !inside,
            _ => {}
        }
    }
    inside
}

/// The call that some JSON is.
fn call(text: &str) -> Option<Call> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(text.trim()).ok()?;
    let name = serde_json::from_str(object.get("name")?.get()).ok()?;
    let arguments = object.get("arguments").or_else(|| object.get("parameters")).map(|written| written.get());
    let arguments = match arguments {
        None | Some("null") => "{}".to_owned(),
        // Some models write them as a text, as the API does.
        Some(text) if text.starts_with('"') => serde_json::from_str(text).ok()?,
        Some(written) => written.to_owned(),
    };
    Some(Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"name": "add", "arguments": {"b": 2, "a": 1}}"#;

    fn added() -> Part {
        Part::Call(Call { name: "add".to_owned(), arguments: r#"{"b": 2, "a": 1}"#.to_owned() })
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    /// The parts of a text that arrives in pieces of this many characters, with its text joined.
    fn parts(form: Form, parallel: bool, whole: &str, size: usize) -> Vec<Part> {
        let mut reader = Reader::new(form, vec!["add".to_owned()], parallel);
        let characters: Vec<char> = whole.chars().collect();
        let pieces = characters.chunks(size).map(|piece| piece.iter().collect::<String>());
        let mut parts: Vec<Part> = pieces.flat_map(|piece| reader.push(&piece)).collect();
        parts.extend(reader.finish());
        assert_eq!(reader.called(), parts.iter().any(|part| matches!(part, Part::Call(_))));
        parts.into_iter().fold(Vec::new(), |mut joined: Vec<Part>, part| {
            match (joined.last_mut(), part) {
                (Some(Part::Text(before)), Part::Text(more)) => before.push_str(&more),
                (_, part) => joined.push(part),
            }
            joined
        })
    }

    #[track_caller]
    fn check(form: Form, whole: &str, expected: &[Part]) {
        for size in [1, 2, 7, 1000] {
            assert_eq!(parts(form, true, whole, size), expected, "{whole:?} by {size}");
        }
    }

    #[test]
    fn tagged_calls_are_told_from_text() {
        let one = format!("<tool_call>\n{CALL}\n</tool_call>");
        check(Form::Tagged, &one, &[added()]);
        check(Form::Tagged, &format!("I add.\n{one}\n{one}\n"), &[text("I add.\n"), added(), added()]);
        check(Form::Tagged, &format!("{one}\n\nIt is 3.\n\nI see.\n"), &[added(), text("\n\nIt is 3.\n\nI see.")]);
        check(Form::Tagged, "a < b, <tool> and <tool_cal", &[text("a < b, <tool> and <tool_cal")]);
        check(Form::Tagged, "<tool_call>no JSON</tool_call> ä", &[text("no JSON ä")]);
        // The end token may come instead of the tag.
        check(Form::Tagged, &format!("<tool_call>{CALL}"), &[added()]);
        check(Form::Tagged, &format!("<tool_call>{CALL}\n</tool_"), &[added()]);
        // A call that is cut is the text that the model wrote.
        let cut = format!("I add.\n<tool_call>\n{}", &CALL[..20]);
        check(Form::Tagged, &cut, &[text(&cut)]);
        assert_eq!(parts(Form::Tagged, false, &one.repeat(2), 5), [added()]);
    }

    #[test]
    fn a_tag_in_a_string_is_part_of_the_argument() {
        let arguments = r#"{"text": "see \"</tool_call>\" and </tool_call>, \\"}"#;
        let written = format!("{{\"name\": \"add\", \"arguments\": {arguments}}}");
        let note = Part::Call(call(&written).expect("a call"));
        check(Form::Tagged, &format!("<tool_call>\n{written}\n</tool_call> done"), &[note, text(" done")]);
        check(Form::Tagged, "<tool_call>one \" quote</tool_call>", &[text("<tool_call>one \" quote</tool_call>")]);
    }

    #[test]
    fn a_bare_call_is_the_whole_answer() {
        let bare = CALL.replace("arguments", "parameters");
        check(Form::Bare, &format!(" {bare}\n"), &[added()]);
        check(Form::Bare, "{\"name\": \"mul\"}", &[text("{\"name\": \"mul\"}")]);
        check(Form::Bare, &format!("See {bare}"), &[text(&format!("See {bare}"))]);
        check(Form::Bare, "", &[]);
    }

    #[test]
    fn arguments_are_what_the_model_wrote() {
        let of = |text: &str| call(&format!(r#"{{"arguments": {text}, "name": "add"}}"#)).map(|call| call.arguments);
        for written in [r#"{"a": 123456789012345678901234567890}"#, r#"{ "a":1.10, "b": "\u00e4", "a":1e400 }"#] {
            assert_eq!(of(written).as_deref(), Some(written));
        }
        assert_eq!(of("null").as_deref(), Some("{}"));
        assert_eq!(of(r#"{"a": 1"#), None);
    }

    #[test]
    fn arguments_may_be_missing_or_a_text() {
        let of = |text: &str| call(text).map(|call| call.arguments);
        assert_eq!(of(r#"{"name": "now"}"#).as_deref(), Some("{}"));
        assert_eq!(of(r#"{"name": "now", "arguments": "{\"a\": 1}"}"#).as_deref(), Some("{\"a\": 1}"));
        assert_eq!(of("[]"), None);
    }
}
