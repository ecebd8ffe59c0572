//! Pages that explain the codes: what is wrong, why it matters, a small example, what to do.

mod callee;
mod language;
mod memory;
mod order;
mod routing;
mod rows;
mod structure;
mod symbolic;

use core::fmt;

/// The page of one code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The code's number: 302 for `AMK0302`.
    pub code: u16,
    /// One line.
    pub title: &'static str,
    /// The explanation. Indented lines are examples; one that starts with `program` is a program
    /// that has the violation.
    pub text: &'static str,
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "AMK{:04}: {}\n\n{}", self.code, self.title, self.text)
    }
}

impl Page {
    /// The program in the page that has the violation, in the text format.
    pub fn example(&self) -> Option<String> {
        let lines = self.text.lines().skip_while(|line| !line.starts_with("    program "));
        let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// All pages in the order of their codes.
pub fn pages() -> impl Iterator<Item = &'static Page> {
    let families = [
        structure::PAGES,
        order::PAGES,
        memory::PAGES,
        symbolic::PAGES,
        routing::PAGES,
        callee::PAGES,
        rows::PAGES,
        language::PAGES,
    ];
    families.into_iter().flatten()
}

/// The page of a code, written as `AMK0302` or `302`.
pub fn explain(code: &str) -> Option<&'static Page> {
    let digits = code.trim();
    let digits = digits.strip_prefix("AMK").or_else(|| digits.strip_prefix("amk")).unwrap_or(digits);
    let code: u16 = digits.parse().ok()?;
    pages().find(|page| page.code == code)
}
