//! Numbers that Python writes into JSON and JSON does not have.

use std::borrow::Cow;

const LITERALS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// The text with these numbers as strings: a field that is read expects a number and refuses them,
/// and in others they do not matter.
pub(super) fn as_strings(text: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = str::from_utf8(text) else { return Cow::Borrowed(text) };
    let mut written = String::new();
    let (mut rest, mut in_string) = (text, false);
    while let Some(char) = rest.chars().next() {
        let literal = LITERALS.into_iter().find(|literal| !in_string && rest.starts_with(literal));
        let taken = match char {
            '\\' if in_string => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            _ => literal.map_or(char.len_utf8(), str::len),
        };
        in_string ^= char == '"';
        match literal {
            Some(literal) => written.extend(["\"", literal, "\""]),
            None => written.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    Cow::Owned(written.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::as_strings;

    #[test]
    fn literals_outside_of_strings_are_written_as_strings() {
        let text = r#"{"NaN \" NaN\\": [0.0, Infinity, -Infinity], "é": NaN}"#;
        let expected = r#"{"NaN \" NaN\\": [0.0, "Infinity", "-Infinity"], "é": "NaN"}"#;
        assert_eq!(as_strings(text.as_bytes()), expected.as_bytes());
        assert_eq!(as_strings(b"\xff NaN"), b"\xff NaN".as_slice());
        assert_eq!(as_strings(br#"{"a\"#), br#"{"a\"#.as_slice());
    }
}
