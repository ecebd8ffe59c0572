//! The tags of a template: blocks, expressions and comments, found as minijinja's lexer finds them.

/// A part of a template's source.
pub(super) enum Part<'a> {
    /// Text between tags, or a comment: written as it is.
    Raw(&'a str),
    /// `{{ … }}`.
    Expression(&'a str),
    /// `{% … %}`.
    Block(Block<'a>),
}

impl<'a> Part<'a> {
    /// The source of the part.
    pub(super) fn text(&self) -> &'a str {
        match *self {
            Self::Raw(text) | Self::Expression(text) => text,
            Self::Block(block) => block.tag,
        }
    }
}

/// The tag of a block.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    /// With its delimiters.
    pub(super) tag: &'a str,
    /// The kind of block: `if`, `endif`, `set` and the like.
    pub(super) keyword: &'a str,
    /// The text after the keyword.
    pub(super) rest: &'a str,
    /// The closing delimiter, which determines whether whitespace after the tag is kept.
    pub(super) closing: &'a str,
}

impl<'a> Block<'a> {
    fn new(tag: &'a str) -> Self {
        let closing = ["-%}", "+%}", "%}"].into_iter().find(|closing| tag.ends_with(closing)).unwrap_or_default();
        let inside = tag.strip_prefix("{%").and_then(|inside| inside.strip_suffix(closing));
        // A tag without an end is left for minijinja to reject.
        let inside = inside.filter(|_| !closing.is_empty()).unwrap_or_default();
        let inside = inside.trim_start_matches(['-', '+']).trim();
        let (keyword, rest) = inside.split_at(inside.find(|c| !is_word(c)).unwrap_or(inside.len()));
        let rest = rest.trim_start();
        Self { tag, keyword, rest, closing }
    }
}

/// Returns the parts of `source`, in order.
pub(super) fn parts(source: &str) -> Parts<'_> {
    Parts { rest: source, raw: false }
}

pub(super) struct Parts<'a> {
    rest: &'a str,
    /// Whether the text of a `raw` block comes next.
    raw: bool,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let length = match tag_start(self.rest) {
            _ if self.raw => raw_len(self.rest),
            Some(0) => tag_len(self.rest),
            Some(start) => start,
            None => self.rest.len(),
        };
        let (part, rest) = self.rest.split_at(length);
        self.rest = rest;
        if std::mem::take(&mut self.raw) || !part.starts_with("{%") && !part.starts_with("{{") {
            return Some(Part::Raw(part));
        }
        if part.starts_with("{{") {
            return Some(Part::Expression(part));
        }
        let block = Block::new(part);
        self.raw = block.keyword == "raw" && block.rest.is_empty();
        Some(Part::Block(block))
    }
}

/// Where the next block, expression or comment starts.
fn tag_start(text: &str) -> Option<usize> {
    let is_tag = |at: &usize| matches!(text.as_bytes().get(at + 1), Some(b'%' | b'{' | b'#'));
    text.match_indices('{').map(|(at, _)| at).find(is_tag)
}

/// The length in bytes of the tag at the start of `text`. Its end does not count inside strings and
/// brackets.
fn tag_len(text: &str) -> usize {
    let end = match text.as_bytes().get(1) {
        Some(b'%') => "%}",
        Some(b'{') => "}}",
        _ => return text[2..].find("#}").map_or(text.len(), |end| 2 + end + 2),
    };
    let (mut at, mut depth) = (2, 0_usize);
    while let Some(c) = text[at..].chars().next() {
        match c {
            _ if depth == 0 && text[at..].starts_with(end) => return at + end.len(),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += match c {
            '\'' | '"' => string_len(&text[at..]),
            _ => c.len_utf8(),
        };
    }
    text.len()
}

/// Bytes before the `endraw` tag.
fn raw_len(text: &str) -> usize {
    let ends = |at: &usize| {
        let tag = without_marker(&text[at + 2..]).trim_ascii_start();
        let tag = tag.strip_prefix("endraw").map(|tag| without_marker(tag.trim_ascii_start()));
        tag.is_some_and(|tag| tag.starts_with("%}"))
    };
    text.match_indices("{%").map(|(at, _)| at).find(ends).unwrap_or(text.len())
}

/// `text` without the marker of whitespace control that it may start with.
fn without_marker(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

/// The length in bytes of the string at the start of `text`.
pub(super) fn string_len(text: &str) -> usize {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    let mut escaped = false;
    for (at, c) in characters {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if Some(c) == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Bytes of the group in brackets that `text` starts with.
pub(super) fn group_len(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in outside_strings(text) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// The characters of `text` outside of strings, each with its place.
pub(super) fn outside_strings(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let (start, c) = (at, text[at..].chars().next()?);
            if !matches!(c, '\'' | '"') {
                at += c.len_utf8();
                return Some((start, c));
            }
            at += string_len(&text[at..]);
        }
    })
}

/// Target and value of a `set` tag that has both.
pub(super) fn assignment(rest: &str) -> Option<(&str, &str)> {
    let at = top_level(rest).find(|&(_, c)| c == '=')?.0;
    Some((rest[..at].trim(), &rest[at + 1..]))
}

/// Splits `text` at its commas.
pub(super) fn items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    for end in top_level(text).filter(|&(_, c)| c == ',').map(|(at, _)| at).chain([text.len()]) {
        items.push(text[start..end].trim());
        start = end + 1;
    }
    items.retain(|item| !item.is_empty());
    items
}

/// The characters of `text` outside of strings and brackets.
fn top_level(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut depth = 0_usize;
    outside_strings(text).filter(move |&(_, c)| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    })
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::{Part, parts};

    fn tags(source: &str) -> Vec<&str> {
        let tag = |part| match part {
            Part::Expression(tag) => Some(tag),
            Part::Block(block) => Some(block.tag),
            Part::Raw(_) => None,
        };
        parts(source).filter_map(tag).collect()
    }

    #[test]
    fn tags_end_where_the_lexer_ends_them() {
        for tag in ["{{ '}}' }}", "{{ {'a': {}}}}", "{% set a = \"\\\"%}\" %}", "{%- if a -%}", "{{ [a, '\\'}}'] }}"] {
            assert_eq!(tags(&format!("{{ é{tag}}} }}")), [tag]);
        }
        assert_eq!(tags("{# {{ ' #}{{ a }}{ {"), ["{{ a }}"]);
        assert_eq!(tags("{{ 'a"), ["{{ 'a"]);
    }

    #[test]
    fn a_raw_block_ends_at_its_end_only() {
        let source = "{% raw %}endraw {{ ' {%-- endraw %}{{ a }}{%- endraw +%}{{ b }}";
        assert_eq!(tags(source), ["{% raw %}", "{%- endraw +%}", "{{ b }}"]);
        assert_eq!(tags("{% raw %}{{ a }}"), ["{% raw %}"]);
    }
}
