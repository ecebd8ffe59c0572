//! Names: the nearest of several, and the list of legal ones, for messages.

/// The candidate that `name` was likely meant to be.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + name.chars().count() / 4;
    candidates
        .into_iter()
        .map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The edit that mends an unknown name: the nearest candidate, one of the candidates, or none.
pub(crate) fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, candidates.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None if candidates.clone().into_iter().next().is_none() => "remove it".to_owned(),
        None => format!("use one of {}", list(candidates)),
    }
}

/// "`a`, `b`, `c`"; "(none)" of nothing.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { "(none)".to_owned() } else { quoted.join(", ") }
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        assert_eq!(nearest("HIDEN", ["HIDDEN", "FFN"]), Some("HIDDEN"));
        assert_eq!(nearest("x", ["HIDDEN", "FFN"]), None);
        assert_eq!(suggestion("x", ["HIDDEN", "FFN"]), "use one of `HIDDEN`, `FFN`");
        assert_eq!(suggestion("x", []), "remove it");
    }
}
