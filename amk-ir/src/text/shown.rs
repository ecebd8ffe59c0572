//! Names and foreign messages in lines of text.

use core::fmt::{self, Write};

/// A name as it appears in the text format: unprintable characters are escaped as in JSON, as are
/// quotes, backticks and backslashes. A name can therefore neither end its line, move the cursor
/// nor imitate the closing quote.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            '`' => escape(f, c),
            _ => on_one_line(f, c),
        })
    }
}

/// A foreign message on one line: unprintable characters are escaped as in JSON.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| on_one_line(f, c))
    }
}

fn on_one_line(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '"' | '\'' | '\\' => out.write_char(c),
        // The standard library decides which characters are printable; it escapes all others.
        _ if c.escape_debug().len() == 1 => out.write_char(c),
        _ => escape(out, c),
    }
}

fn escape(out: &mut impl Write, c: char) -> fmt::Result {
    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
}

/// At most `longest` characters of a name, shown; the middle of a longer one is left out.
pub(crate) fn clipped(name: &str, longest: usize) -> String {
    let is_longer = |text: &str| text.chars().nth(longest).is_some();
    if !is_longer(name) {
        let shown = Shown(name).to_string();
        if !is_longer(&shown) {
            return shown;
        }
    }
    // The end of a path is more telling than its start.
    let room = longest / 4;
    let mut start = pieces(name.chars(), room);
    let mut end = pieces(name.chars().rev(), longest.saturating_sub(room + 2));
    // Between its parts, where it has some.
    let ends_part = |piece: &String| matches!(piece.as_str(), "." | "_" | ":" | " ");
    if let Some(at) = (1..start.len()).rev().find(|&at| ends_part(&start[at])) {
        start.truncate(at);
    }
    if let Some(at) = (1..end.len()).rev().find(|&at| ends_part(&end[at])) {
        end.truncate(at);
    }
    end.reverse();
    format!("{}..{}", start.concat(), end.concat())
}

/// Characters as they are shown, as long as there is room for them.
fn pieces(chars: impl Iterator<Item = char>, room: usize) -> Vec<String> {
    let shown = chars.map(|c| Shown(c.encode_utf8(&mut [0; 4])).to_string());
    let fits = |used: &mut usize, piece: String| {
        *used += piece.chars().count();
        (*used <= room).then_some(piece)
    };
    shown.scan(0, fits).collect()
}

#[cfg(test)]
mod tests {
    use super::{OneLine, Shown, clipped};

    #[test]
    fn what_is_printable_stands_for_itself() {
        for name in ["w.layers[3].wq", "h = linear(x, w.up)", "gr\u{f6}\u{df}e", "\u{5c64}", "it's"] {
            assert_eq!(Shown(name).to_string(), name);
            assert_eq!(OneLine(name).to_string(), name);
        }
        let hostile = "a\nb\u{1b}[2K\u{7f}\u{9b}\u{202e}\u{2028}\u{e0041}`\"\\\u{301}";
        let shown = r#"a\nb\u001b[2K\u007f\u009b\u202e\u2028\udb40\udc41\u0060\"\\\u0301"#;
        assert_eq!(Shown(hostile).to_string(), shown);
        assert_eq!(OneLine("unknown field `a\n\"\u{1b}`").to_string(), r#"unknown field `a\n"\u001b`"#);
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(clipped("w.layers[3].attn.q", 40), "w.layers[3].attn.q");
        assert_eq!(clipped("w.layers[3].attn.query", 20), "w..attn.query");
        assert_eq!(clipped(&"\u{1b}".repeat(1 << 20), 20), r"..\u001b\u001b");
        assert_eq!(clipped(&"\n".repeat(6), 10), r"\n..\n\n\n");
    }
}
