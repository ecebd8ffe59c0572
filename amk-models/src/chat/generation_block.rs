//! The block `{% generation %}` of templates that are trained with.
//!
//! transformers marks the assistant's words with it and renders its body in a new scope. A `with`
//! block without variables is such a scope.

use super::percent_format;

/// Returns `source` with `generation` blocks written as `with` blocks. Whitespace control and line
/// numbers do not change.
pub(super) fn as_scope(source: &str) -> String {
    let mut written = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = tag_start(rest) {
        let (before, opening) = rest.split_at(start);
        let (tag, mut after) = opening.split_at(tag_len(opening));
        written.push_str(before);
        match statement(tag) {
            Some("generation" | "endgeneration") => written.push_str(&tag.replacen("generation", "with", 1)),
            Some("raw") => {
                let (raw, end) = after.split_at(after.find("endraw").unwrap_or(after.len()));
                written.extend([tag, raw]);
                after = end;
            }
            None if tag.starts_with("{#") => written.push_str(tag),
            _ => written.push_str(&percent_format::as_filter(tag)),
        }
        rest = after;
    }
    written + rest
}

/// Where the next block, expression or comment starts.
fn tag_start(text: &str) -> Option<usize> {
    ["{%", "{{", "{#"].into_iter().filter_map(|opening| text.find(opening)).min()
}

/// Bytes of the tag that `text` starts with. Its end does not count inside a string.
fn tag_len(text: &str) -> usize {
    let (end, has_strings) = match text.as_bytes().get(1) {
        Some(b'%') => ("%}", true),
        Some(b'{') => ("}}", true),
        _ => ("#}", false),
    };
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices().skip(end.len()) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if text[at..].starts_with(end) => return at + end.len(),
            None if has_strings && matches!(c, '\'' | '"') => quote = Some(c),
            None => {}
        }
    }
    text.len()
}

/// Returns the text inside a block's tag; `None` for expressions and comments.
fn statement(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    Some(inside.trim_matches(['-', '+']).trim())
}

#[cfg(test)]
mod tests {
    use super::as_scope;

    #[test]
    fn only_the_tags_of_the_block_change() {
        let source = "é{%- generation -%}a{%+ endgeneration +%}{%generation%}\n{% endgeneration\n%}";
        assert_eq!(as_scope(source), "é{%- with -%}a{%+ endwith +%}{%with%}\n{% endwith\n%}");
        for kept in [
            "{{ '{% generation %}' }} generation",
            r#"{% set a = "\"%}{% generation %}" %}"#,
            "{# ' #}{{ generation }}{% set generation = 1 %}",
            "{% raw %}{{ ' {% generation %}{% endraw %}",
            "{% generation",
            "{",
        ] {
            assert_eq!(as_scope(kept), kept);
        }
        assert_eq!(as_scope("{# ' #}{% generation %}"), "{# ' #}{% with %}");
    }
}
