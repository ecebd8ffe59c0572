//! Python's `'text' % value` in templates, as the filter `format`.

use super::tags::{group_len, is_word, string_len};

/// Maximum nesting of values that are written as the filter: templates are untrusted.
const MAX_DEPTH: usize = 8;

/// Returns the tag of a block or an expression with `'text' % value` written as
/// `'text'|format(value)`.
pub(super) fn as_filter(tag: &str) -> String {
    as_filter_at(tag, 0)
}

fn as_filter_at(tag: &str, depth: usize) -> String {
    let mut written = String::with_capacity(tag.len());
    let mut rest = tag;
    while let Some(start) = rest.find(['\'', '"']) {
        let (before, opening) = rest.split_at(start);
        let (text, after) = opening.split_at(string_len(opening));
        written.extend([before, text]);
        rest = after;
        if depth < MAX_DEPTH
            && let Some(operand) = after.trim_start().strip_prefix('%').map(str::trim_start)
            && let length @ 1.. = operand_len(operand)
        {
            let (value, after) = operand.split_at(length);
            // A tuple has the arguments.
            let tuple = value.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            let values = tuple.filter(|_| group_len(value) == length).unwrap_or(value);
            written.extend(["|format(", &as_filter_at(values, depth + 1), ")"]);
            rest = after;
        }
    }
    written + rest
}

/// The length in bytes of the operand at the start of `text`: a text, a group or a name, with its
/// attributes, items, calls and filters.
fn operand_len(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let filter = rest.trim_start().strip_prefix('|').map(|filter| rest.len() - filter.trim_start().len());
        at += match rest.chars().next() {
            Some('\'' | '"') if at == 0 => string_len(rest),
            Some('(') => group_len(rest),
            Some('[') if at > 0 => group_len(rest),
            Some('.') if at > 0 => 1,
            Some(c) if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => match filter {
                Some(filter) if at > 0 => filter,
                _ => return at,
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::as_filter;

    #[test]
    fn the_value_after_the_operator_is_an_argument() {
        for (tag, expected) in [
            ("{{ '%s' % x }}", "{{ '%s'|format(x) }}"),
            ("{{ '%s, %s' % (a, f('(', b)) ~ c }}", "{{ '%s, %s'|format(a, f('(', b)) ~ c }}"),
            ("{{ \"%s\"%m['a'].b | upper + 'é' }}", "{{ \"%s\"|format(m['a'].b | upper) + 'é' }}"),
            ("{{ '%s' % ('%d' % n) }}", "{{ '%s'|format('%d'|format(n)) }}"),
            ("{{ '\\'%s' % (a).b }}", "{{ '\\'%s'|format((a).b) }}"),
        ] {
            assert_eq!(as_filter(tag), expected);
        }
        for kept in
            ["{% set a = 'x' %}", "{% if a == 'x'%}", "{{ n % 2 }}", "{{ 'a % b' }}", "{{ '%s' % -1 }}", "{{ 'é"]
        {
            assert_eq!(as_filter(kept), kept);
        }
        for cut in ["{{ '%s' % (a", "{{ '%s' % f(']", "{{ '%s' %", "{{ '%s' % )", "{{ '%s' % (é"] {
            as_filter(cut);
        }
        as_filter(&"'' % (".repeat(100_000));
    }
}
