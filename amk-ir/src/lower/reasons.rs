//! Reasons as text, without duplicates: a reason that holds in every iteration of a loop is one
//! line.

use core::fmt::Write;
use std::collections::{BTreeMap, BTreeSet};

/// The loop indices of a call and their values.
pub type Iteration = BTreeMap<String, i64>;

/// Lines without repetitions, in the order in which they first occur; `reasons` are texts about
/// calls, each with the call's iteration. Texts that differ only in numbers within names, where the
/// number is the index of a loop, become one line with the index and its range. A line states the
/// number of its calls.
pub fn once<'i>(reasons: impl Iterator<Item = (String, &'i Iteration)>) -> Vec<String> {
    let mut alike: BTreeMap<Vec<String>, Vec<Row<'_>>> = BTreeMap::new();
    for (order, (text, iteration)) in reasons.enumerate() {
        let (words, numbers) = split(&text);
        alike.entry(words).or_default().push(Row { order, numbers, iteration });
    }
    let mut lines = BTreeMap::new();
    for (words, rows) in alike {
        merge(&words, rows, &mut lines);
    }
    lines.into_values().collect()
}

/// A text's numbers, and its call.
struct Row<'i> {
    /// Where it occurs.
    order: usize,
    numbers: Vec<i64>,
    iteration: &'i Iteration,
}

/// A text as the words around the numbers in its names, and these numbers.
fn split(text: &str) -> (Vec<String>, Vec<i64>) {
    let (mut words, mut numbers) = (vec![String::new()], Vec::new());
    for (part, piece) in text.split('`').enumerate() {
        if part > 0 {
            push(&mut words, '`');
        }
        let mut rest = piece;
        // Every second part is a name.
        while part % 2 == 1
            && let Some(start) = rest.find(|c: char| c.is_ascii_digit())
        {
            let end = rest[start..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |len| start + len);
            rest[..start].chars().for_each(|c| push(&mut words, c));
            match rest[start..end].parse() {
                Ok(number) if rest[start..end] == i64::to_string(&number) => {
                    numbers.push(number);
                    words.push(String::new());
                }
                _ => rest[start..end].chars().for_each(|c| push(&mut words, c)),
            }
            rest = &rest[end..];
        }
        rest.chars().for_each(|c| push(&mut words, c));
    }
    (words, numbers)
}

fn push(words: &mut [String], c: char) {
    words.last_mut().into_iter().for_each(|word| word.push(c));
}

/// Adds the lines of texts with the same words to `lines`.
fn merge(words: &[String], rows: Vec<Row<'_>>, lines: &mut BTreeMap<usize, String>) {
    let Some(first) = rows.first() else { return };
    let mut columns = Vec::with_capacity(first.numbers.len());
    for column in 0..first.numbers.len() {
        let Some(found) = Column::of(&rows, column) else {
            // Not an index: a line for each number, as far as the other columns do not differ too.
            let mut parts: BTreeMap<i64, Vec<Row<'_>>> = BTreeMap::new();
            rows.into_iter().for_each(|row| parts.entry(row.numbers[column]).or_default().push(row));
            return parts.into_values().for_each(|rows| merge(words, rows, lines));
        };
        columns.push(found);
    }
    lines.insert(first.order, line(words, &rows, &columns));
}

/// How a number changes from text to text.
enum Column {
    Constant(i64),
    /// A loop index plus a constant.
    Index(String, i64),
}

impl Column {
    fn of(rows: &[Row<'_>], column: usize) -> Option<Self> {
        let first = rows.first()?;
        let number = first.numbers[column];
        if rows.iter().all(|row| row.numbers[column] == number) {
            return Some(Self::Constant(number));
        }
        first.iteration.iter().find_map(|(index, value)| {
            let offset = number - value;
            let follows = |row: &Row<'_>| {
                row.iteration.get(index).is_some_and(|value| value.checked_add(offset) == Some(row.numbers[column]))
            };
            rows.iter().all(follows).then(|| Self::Index(index.clone(), offset))
        })
    }
}

fn line(words: &[String], rows: &[Row<'_>], columns: &[Column]) -> String {
    let mut text = words.first().cloned().unwrap_or_default();
    for (column, word) in columns.iter().zip(&words[1..]) {
        // Writing to a string cannot fail.
        let _ = match column {
            Column::Constant(number) => write!(text, "{number}"),
            Column::Index(index, 0) => write!(text, "{index}"),
            Column::Index(index, offset) => write!(text, "{index}{offset:+}"),
        };
        text.push_str(word);
    }
    let indices: BTreeSet<&str> = columns
        .iter()
        .filter_map(|c| if let Column::Index(index, _) = c { Some(index.as_str()) } else { None })
        .collect();
    let iterations: BTreeSet<Vec<i64>> =
        rows.iter().map(|row| indices.iter().map(|&i| row.iteration[i]).collect()).collect();
    let mut notes = Vec::new();
    if rows.len() > iterations.len() {
        notes.push(format!("{} calls", rows.len()));
    }
    notes.extend(
        indices.iter().map(|&index| format!("{index} in {}", ranges(rows.iter().map(|row| row.iteration[index])))),
    );
    if notes.is_empty() { text } else { format!("{text} ({})", notes.join(", ")) }
}

/// Numbers as ranges: `0..4, 6..7`.
fn ranges(numbers: impl Iterator<Item = i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for number in numbers.collect::<BTreeSet<i64>>() {
        match ranges.last_mut() {
            Some((_, end)) if *end == number => *end += 1,
            _ => ranges.push((number, number + 1)),
        }
    }
    ranges.iter().map(|(start, end)| format!("{start}..{end}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(reasons: &[(&str, &[(&str, i64)])]) -> Vec<String> {
        let iteration =
            |indices: &[(&str, i64)]| indices.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let iterations: Vec<Iteration> = reasons.iter().map(|(_, indices)| iteration(indices)).collect();
        once(reasons.iter().map(|(text, _)| (*text).to_owned()).zip(&iterations))
    }

    #[test]
    fn what_holds_in_every_iteration_is_one_line() {
        let found = shown(&[
            ("`w.layers[0].up` is 52 x 32", &[("layer", 0)]),
            ("`add`: no rule", &[("layer", 0)]),
            ("`w.layers[1].up` is 52 x 32", &[("layer", 1)]),
            ("`add`: no rule", &[("layer", 1)]),
            ("`w.layers[2].up` is 52 x 32", &[("layer", 2)]),
        ]);
        assert_eq!(found, ["`w.layers[layer].up` is 52 x 32 (layer in 0..3)", "`add`: no rule (2 calls)"]);
    }

    #[test]
    fn numbers_that_are_not_an_index_stay_apart() {
        // Two values an iteration, of which one has the number of the index in its name by chance;
        // an iteration without; a value of the iteration before.
        let found = shown(&[
            ("`h.1.0` is read", &[("i", 0)]),
            ("`h.2.0` is read", &[("i", 0)]),
            ("`h.1.1` is read", &[("i", 1)]),
            ("`h.2.1` is read", &[("i", 1)]),
            ("`h.1.3` is read", &[("i", 3)]),
            ("`x.0` is kept", &[("i", 1)]),
            ("`x.1` is kept", &[("i", 2)]),
            ("it makes 5 calls", &[("i", 5)]),
            ("it makes 6 calls", &[("i", 6)]),
            ("`v1` and `v2`", &[]),
            ("`v2` and `v3`", &[]),
        ]);
        let expected = [
            "`h.1.i` is read (i in 0..2, 3..4)",
            "`h.2.i` is read (i in 0..2)",
            "`x.i-1` is kept (i in 1..3)",
            "it makes 5 calls",
            "it makes 6 calls",
            "`v1` and `v2`",
            "`v2` and `v3`",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn calls_of_one_iteration_are_counted() {
        let found = shown(&[
            ("`m.0` is read", &[("i", 0), ("k", 7)]),
            ("`m.0` is read", &[("i", 0), ("k", 8)]),
            ("`m.1` is read", &[("i", 1), ("k", 7)]),
            ("`m.1` is read", &[("i", 1), ("k", 8)]),
        ]);
        assert_eq!(found, ["`m.i` is read (4 calls, i in 0..2)"]);
        let nested: Vec<String> = shown(&[
            ("`m.0.7`", &[("i", 0), ("k", 7)]),
            ("`m.0.8`", &[("i", 0), ("k", 8)]),
            ("`m.1.7`", &[("i", 1), ("k", 7)]),
        ]);
        assert_eq!(nested, ["`m.i.k` (i in 0..2, k in 7..9)"]);
        // Numbers that do not print as they were read stay words.
        assert_eq!(shown(&[("`m007`", &[]), ("`m99999999999999999999`", &[])]), ["`m007`", "`m99999999999999999999`"]);
    }
}
