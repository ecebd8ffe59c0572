//! Checks of a template's values while it runs: fuel bounds its instructions, but not the size of
//! the values that they produce.
//!
//! minijinja has no hook for an assignment, so one is inserted into the source: each block's tag is
//! followed by `{% if [values]|checked(bytes, new) %}{% endif %}`. The values are those that the
//! tag names, `new` states whether the tag created them, as a `set` does, and `bytes` is the length
//! of the text up to the next block. The insertion has no line break and ends like the tag before
//! it, so that whitespace and line numbers do not change.

use super::tags::{Block, assignment, group_len, is_word, items};

/// The filter that checks values: [`Budget::check`](super::budget::Budget::check).
pub(super) const CHECKED: &str = "checked";
/// The filter that refuses namespaces: a namespace in itself is endless.
pub(super) const NO_NAMESPACE: &str = "without_namespace";

/// Writes checks into a source.
#[derive(Default)]
pub(super) struct Checks<'a> {
    /// The names of open `set` blocks, which are given at their end.
    set_blocks: Vec<&'a str>,
}

impl<'a> Checks<'a> {
    /// The check after a tag before `text` bytes of text.
    pub(super) fn after(&mut self, block: &Block<'a>, text: usize) -> String {
        let is_unclosed = block.closing.is_empty();
        if is_unclosed || matches!(block.keyword, "raw" | "block" | "break" | "continue") {
            return String::new();
        }
        let names = self.names(block).join(",");
        let is_new = matches!(block.keyword, "set" | "endset");
        format!("{{% if [{names}]|{CHECKED}({text},{is_new}) %}}{{% endif {}", block.closing)
    }

    /// The names that the tag gives values to.
    fn names(&mut self, block: &Block<'a>) -> Vec<&'a str> {
        match block.keyword {
            "set" => match assignment(block.rest) {
                Some((target, _)) => items(target),
                None => {
                    self.set_blocks.push(block.rest.split('|').next().unwrap_or_default().trim());
                    Vec::new()
                }
            },
            "endset" => self.set_blocks.pop().into_iter().collect(),
            "for" => items(before_in(block.rest)),
            "with" => items(block.rest).into_iter().filter_map(|item| Some(assignment(item)?.0.trim())).collect(),
            "macro" => parameters(block.rest.trim_start_matches(is_word).trim_start()),
            "call" => parameters(block.rest),
            _ => Vec::new(),
        }
    }
}

/// A `set` tag of a namespace's field with a value that is checked first.
pub(super) fn of_field(block: &Block<'_>) -> Option<String> {
    let (target, value) =
        assignment(block.rest).filter(|(target, _)| block.keyword == "set" && target.contains('.'))?;
    let (opening, closing) = block.tag.split_once(block.rest)?;
    Some(format!("{opening}{target}=({value})|{NO_NAMESPACE}{closing}"))
}

/// The targets of a `for` tag.
fn before_in(rest: &str) -> &str {
    let is_in = |at: &usize| !rest[..*at].ends_with(is_word) && !rest[at + 2..].starts_with(is_word);
    let end = rest.match_indices("in").map(|(at, _)| at).find(is_in);
    &rest[..end.unwrap_or_default()]
}

/// The names of the parameters in brackets that `text` starts with.
fn parameters(text: &str) -> Vec<&str> {
    let inside = text[..group_len(text)].strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let name = |item| assignment(item).map_or(item, |(name, _)| name);
    items(inside.unwrap_or_default()).into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::tags::{Part, parts};

    #[test]
    fn a_check_has_the_names_of_its_tag() {
        let mut checks = Checks::default();
        for (tag, expected) in [
            ("{% set a, b.c = 1, 2 -%}", "{% if [a,b.c]|checked(7,true) %}{% endif -%}"),
            ("{% set d | upper %}", "{% if []|checked(7,true) %}{% endif %}"),
            ("{% endset +%}", "{% if [d]|checked(7,true) %}{% endif +%}"),
            ("{% for k, inner\nin a in b %}", "{% if [k,inner]|checked(7,false) %}{% endif %}"),
            ("{%with e = f(g=1), h=','%}", "{% if [e,h]|checked(7,false) %}{% endif %}"),
            ("{% macro f(a, b=[1, 2]) %}", "{% if [a,b]|checked(7,false) %}{% endif %}"),
            ("{% call(x) f(y) %}", "{% if [x]|checked(7,false) %}{% endif %}"),
            ("{% call f(y) %}", "{% if []|checked(7,false) %}{% endif %}"),
            ("{% else %}", "{% if []|checked(7,false) %}{% endif %}"),
            ("{% raw %}", ""),
        ] {
            let Some(Part::Block(block)) = parts(tag).next() else { panic!("{tag} is a block") };
            assert_eq!(checks.after(&block, 7), expected, "{tag}");
        }
    }
}
