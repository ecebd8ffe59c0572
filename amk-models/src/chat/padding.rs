//! Characters that pad a text to a width.

use minijinja::{Error, ErrorKind};

/// Widest filled text, in characters: a template is not trusted with memory.
const MAX_WIDTH: usize = 1 << 16;

/// Returns as many `filler` characters as `text` lacks to a width of `width`.
pub(super) fn fill(filler: char, width: usize, text: &str) -> Result<String, Error> {
    if width > MAX_WIDTH {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a width of {width} is more than {MAX_WIDTH}")));
    }
    Ok(filler.to_string().repeat(width.saturating_sub(text.chars().count())))
}
