//! The pages in `docs` and the pages at the root: every link leads somewhere, and the summary has
//! every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if plain.parent().is_some() => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it can be listed").map(|entry| entry.expect("it can be listed").path());
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// The lines of a page outside of blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut code = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            !code && !fence
        })
        .collect()
}

/// The targets of the links of a page, and the files that it includes, each with a `{{`.
fn links(text: &str) -> Vec<&str> {
    let prose = prose(text);
    let targets = prose.iter().flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    let included = text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next());
    targets.chain(included.map(|file| file.split(':').next().unwrap_or(file))).collect()
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the dead links of a page.
fn dead(page: &Path, text: &str) -> Vec<String> {
    let mut dead = Vec::new();
    for link in links(text).into_iter().filter(|link| !link.starts_with("https://")) {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { page.to_owned() } else { page.with_file_name("").join(file) };
        let found = match heading {
            "" => target.exists(),
            heading => fs::read_to_string(&target)
                .is_ok_and(|text| prose(&text).iter().any(|line| line.starts_with('#') && anchor(line) == heading)),
        };
        if !found {
            dead.push(format!("{}: {link}", page.display()));
        }
    }
    dead
}

#[test]
fn links_lead_somewhere() {
    let root_pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    let book = root().join("docs/src");
    let all = root_pages.into_iter().chain(pages(&book));
    let read = |page: PathBuf| (fs::read_to_string(&page).expect("it can be read"), page);
    let dead: Vec<String> = all.map(read).flat_map(|(text, page)| self::dead(&page, &text)).collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));

    // The check itself.
    let page = book.join("SUMMARY.md");
    let text =
        "[a](introduction.md#amk) [b](introduction.md#kma) [c](none.md) {{#include none.rs:3:}}\n```\n[d](x)\n```";
    let found: Vec<String> =
        self::dead(&page, text).iter().filter_map(|line| Some(line.split_once(": ")?.1.to_owned())).collect();
    assert_eq!(found, ["introduction.md#kma", "none.md", "none.rs"]);
}

#[test]
fn the_summary_has_every_page_and_pages_link_within_the_book() {
    let book = root().join("docs/src");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("it can be read");
    let mut listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(|link| plain(&book.join(link))).collect();
    listed.insert(plain(&book.join("SUMMARY.md")));
    let present: BTreeSet<PathBuf> = pages(&book).iter().map(|page| plain(page)).collect();
    assert_eq!(listed, present);
    assert!(present.len() > 15, "{}", present.len());
    // A rendered book has no other files of the repository.
    for page in present {
        let text = fs::read_to_string(&page).expect("it can be read");
        let prose = prose(&text).join("\n");
        for link in links(&prose).into_iter().filter(|link| !link.starts_with("https://") && !link.starts_with('#')) {
            let target = plain(&page.with_file_name("").join(link));
            assert!(target.starts_with(plain(&book)), "{}: {link} is not in the book", page.display());
        }
    }
}
