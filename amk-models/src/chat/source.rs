//! A template's source in the form that minijinja accepts: `generation` blocks and `'text' % value`
//! are rewritten, and checks of the template's values are inserted.

use std::borrow::Cow;

use super::checks::{self, Checks};
use super::limits::{self, LimitError, OpenBlocks};
use super::percent_format;
use super::tags::{Block, Part, parts};

/// The source to render for `source`, with the same whitespace and line numbers. Its line breaks
/// are `\n`, as Jinja2 has them.
pub(super) fn prepared(source: &str) -> Result<String, LimitError> {
    limits::check_source(source)?;
    let source = &source.replace("\r\n", "\n").replace('\r', "\n");
    let mut written = String::with_capacity(2 * source.len());
    let (mut checks, mut open) = (Checks::default(), OpenBlocks::default());
    let mut line = 1;
    let parts: Vec<Part<'_>> = parts(source).collect();
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Raw(text) => written.push_str(text),
            Part::Expression(tag) => {
                limits::check_tag(tag, line)?;
                written.push_str(&percent_format::as_filter(tag));
            }
            Part::Block(block) => {
                open.enter(block, line)?;
                limits::check_tag(block.tag, line)?;
                written.push_str(&tag(block));
                written.push_str(&checks.after(block, text_len(&parts[at + 1..])));
            }
        }
        line += part.text().matches('\n').count();
    }
    Ok(written)
}

/// Bytes of the text before the next block.
fn text_len(parts: &[Part<'_>]) -> usize {
    let before = parts.iter().take_while(|part| !matches!(part, Part::Block(_)));
    before.map(|part| if let Part::Raw(text) = part { text.len() } else { 0 }).sum()
}

/// The tag of a block as minijinja takes it.
fn tag<'a>(block: &Block<'a>) -> Cow<'a, str> {
    match block.keyword {
        // transformers marks the assistant's words with it, for training, and renders its body in
        // a new scope, which a `with` block without variables is.
        "generation" | "endgeneration" => block.tag.replacen("generation", "with", 1).into(),
        _ => percent_format::as_filter(&checks::of_field(block).unwrap_or_else(|| block.tag.to_owned())).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::prepared;

    /// The prepared source without its checks.
    fn unchecked(source: &str) -> String {
        let mut rest = prepared(source).unwrap();
        while let Some(start) = rest.find("{% if [") {
            let length = rest[start..].find("endif").unwrap();
            let end = start + length + rest[start + length..].find("%}").unwrap() + 2;
            rest.replace_range(start..end, "");
        }
        rest
    }

    #[test]
    fn a_generation_block_is_a_scope() {
        let source = "é{%- generation -%}a{%+ endgeneration +%}{%generation%}\n{% endgeneration\n%}";
        assert_eq!(unchecked(source), "é{%- with -%}a{%+ endwith +%}{%with%}\n{% endwith\n%}");
        for kept in [
            "{{ '{% generation %}' }} generation",
            r#"{% set a = "\"%}{% generation %}" %}"#,
            "{# ' #}{{ generation }}{% set generation = 1 %}",
            "{% raw %}{{ ' {% generation %}{% endraw %}",
            "{% generation",
            "{",
        ] {
            assert_eq!(unchecked(kept), kept);
        }
        assert_eq!(unchecked("{# ' #}{% generation %}"), "{# ' #}{% with %}");
    }

    #[test]
    fn a_check_counts_the_text_up_to_the_next_block() {
        let checked = prepared("{% for a in b -%} x{{ a }}y\n{%- endfor %}").unwrap();
        let body = "{% if [a]|checked(4,false) %}{% endif -%} x{{ a }}y\n";
        assert_eq!(
            checked,
            format!("{{% for a in b -%}}{body}{{%- endfor %}}{{% if []|checked(0,false) %}}{{% endif %}}")
        );
    }

    #[test]
    fn long_and_deep_sources_are_refused() {
        for (source, expected) in [
            ("x".repeat(1 << 19), "the template has 524288 bytes, more than 262144"),
            (
                format!("\n{}", "{% if 1 %}".repeat(101)),
                "more than 100 blocks or `elif` inside of one another (line 2)",
            ),
            (
                format!("{{{{ {}1 }}}}", "-".repeat(251)),
                "more than 250 operators or brackets inside of one another (line 1)",
            ),
            (format!("{{{{ [{}] }}}}", "1+1,".repeat(65)), "more than 64 concatenations or slices in a tag (line 1)"),
            (format!("{{{{ [{}] }}}}", "a[:1],".repeat(65)), "more than 64 concatenations or slices in a tag (line 1)"),
            ("{{ 1*1*1 }}{{ f(*a, **b) * 1 }}".to_owned(), "more than 2 multiplications in a tag (line 1)"),
            (
                format!("{{{{ {}1{} }}}}", "''~[".repeat(5), "]".repeat(5)),
                "more than 4 lists inside of one another are concatenated (line 1)",
            ),
        ] {
            assert_eq!(prepared(&source).unwrap_err().to_string(), expected);
        }
        assert!(prepared(&"{{ a.b[0]|c }}{% if d %}{% endif %}".repeat(1000)).is_ok());
        assert!(prepared(&format!("{{{{ [{}] }}}}", "a.b|c, ".repeat(1000))).is_ok());
    }

    #[test]
    fn a_source_is_read_once() {
        let start = std::time::Instant::now();
        prepared(&"{% with %}x{% endwith %}".repeat(10_000)).unwrap();
        prepared(&"{{ '' % ( }}".repeat(10_000)).unwrap_err();
        prepared(&"{ ".repeat(100_000)).unwrap();
        assert!(start.elapsed().as_secs() < 5);
    }
}
