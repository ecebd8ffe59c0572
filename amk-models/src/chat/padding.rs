//! Characters that pad a text to a width.

use minijinja::{Error, ErrorKind};

/// Widest filled text, in characters: a template is not trusted with memory.
const MAX_WIDTH: usize = 1 << 16;

/// `text` in `width` characters. `left` says how many of the missing ones come before it, of how
/// many and in which width.
pub(super) fn justify(
    text: &str,
    width: usize,
    filler: char,
    left: fn(usize, usize) -> usize,
) -> Result<String, Error> {
    let fill = fill(filler, width, text)?;
    let missing = fill.chars().count();
    let (before, after) = fill.split_at(left(missing, width) * filler.len_utf8());
    Ok(format!("{before}{text}{after}"))
}

/// How many characters come before a text in the middle: of an odd number Python puts one more to
/// the left in an odd width, to the right in an even one.
pub(super) fn middle(missing: usize, width: usize) -> usize {
    missing / 2 + (missing & width & 1)
}

/// Returns as many `filler` characters as `text` lacks to a width of `width`.
pub(super) fn fill(filler: char, width: usize, text: &str) -> Result<String, Error> {
    if width > MAX_WIDTH {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a width of {width} is more than {MAX_WIDTH}")));
    }
    Ok(filler.to_string().repeat(width.saturating_sub(text.chars().count())))
}
