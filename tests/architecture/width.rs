//! Prose fits a hundred columns: comments of Rust sources, and pages in Markdown.

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

/// Sources and pages under `folder`, but not in build outputs, packages of npm or hidden folders.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if name != "target" && name != "node_modules" {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
}

/// The text of a comment line after its marker; `None` for code.
fn comment(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("//")?;
    let rest = rest.strip_prefix(['/', '!']).unwrap_or(rest);
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// The numbers of the lines of prose that are too long. Blocks of code, tables and links have the
/// width that they need.
fn too_long(text: &str, rust: bool) -> Vec<usize> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(prose) = (if rust { comment(line) } else { Some(line) }) else {
            fenced = false;
            continue;
        };
        let fence = prose.trim_start().starts_with("```");
        fenced ^= fence;
        let block = fenced || fence || prose.starts_with("    ") || prose.trim_start().starts_with('|');
        let link = prose.contains("](") || prose.contains("://");
        if !block && !link && line.chars().count() > COLUMNS {
            found.push(number);
        }
    }
    found
}

#[test]
fn comments_and_pages_fit_a_hundred_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate has a parent folder");
    let mut paths = Vec::new();
    files(root, &mut paths);
    let mut found = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path).expect("it can be read");
        let rust = path.extension().is_some_and(|extension| extension == "rs");
        let shown = path.strip_prefix(root).unwrap_or(path).display();
        found.extend(too_long(&text, rust).iter().map(|number| format!("{shown}:{number}")));
    }
    assert!(found.is_empty(), "longer than {COLUMNS} columns:\n{}", found.join("\n"));
    assert!(paths.len() > 300, "only {} files were found", paths.len());
}

#[test]
fn long_lines_of_prose_are_found() {
    let word = "word ".repeat(20) + "end";
    let rust = format!(
        "/// {word}\nlet text = \"{word}\";\n    // {word}\n\
         /// ```text\n//! {word}\n/// ```\n//! | {word} |\n// {word}\n"
    );
    assert_eq!(too_long(&rust, true), [1, 3, 8]);
    let page = format!("{word}\n```\n{word}\n```\n* {word}\n| {word} |\n\n    {word}\n[{word}](page.md)\n{word}\n");
    assert_eq!(too_long(&page, false), [1, 5, 10]);
    assert!(too_long(&"é".repeat(COLUMNS), false).is_empty());
}
