//! Where an item was declared.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

/// The declaration site of an item: for messages, and to make the name of its companion unique.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The crate's name as Rust knows it: the first segment of registry paths.
    pub crate_name: String,
    /// The file, from the package's name on: `amk-kernels/src/linear.rs`.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl Origin {
    /// The origin of a span in the package that is being compiled, by Cargo's environment. `file`
    /// is the compiler's path.
    pub fn of_package(file: &str, line: usize, column: usize) -> Self {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let directory = variable("CARGO_MANIFEST_DIR");
        Self {
            crate_name: variable("CARGO_CRATE_NAME"),
            file: in_package(file, &directory, &variable("CARGO_PKG_NAME")),
            line,
            column,
        }
    }

    /// `file:line`.
    pub(crate) fn declared_at(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// A number that no other item of the crate has: a hash of the place, and a count where a
    /// user's macro makes several there.
    pub(crate) fn unique(&self, name: &str) -> String {
        static USED: Mutex<Option<HashMap<u32, u32>>> = Mutex::new(None);
        let place = fnv(&format!("{}:{}:{}:{}:{name}", self.crate_name, self.file, self.line, self.column));
        let mut used = USED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = used.get_or_insert_default().entry(place).or_default();
        *count += 1;
        if *count == 1 { format!("{place:08x}") } else { format!("{place:08x}_{count}") }
    }
}

/// The file as `package/path`, whatever directory the compiler was started in; a file outside of
/// the package by its name.
fn in_package(file: &str, directory: &str, package: &str) -> String {
    let (file, directory) = (Path::new(file), Path::new(directory));
    let names: Vec<_> = directory.components().collect();
    let inner = (0..names.len()).find_map(|skip| {
        let tail: PathBuf = names[skip..].iter().collect();
        file.strip_prefix(&tail).ok()
    });
    let inside = |file: &&Path| file.components().all(|component| matches!(component, Component::Normal(_)));
    let inner = inner.or(Some(file)).filter(inside).map(Path::to_string_lossy);
    match inner {
        Some(inner) if !package.is_empty() => format!("{package}/{}", inner.replace('\\', "/")),
        Some(inner) => inner.into_owned(),
        None => file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

/// FNV-1a, 32 bits: the same on every machine.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_the_package_on() {
        for file in ["kernels/src/linear.rs", "/home/user/amk/kernels/src/linear.rs", "src/linear.rs"] {
            assert_eq!(in_package(file, "/home/user/amk/kernels", "amk-kernels"), "amk-kernels/src/linear.rs");
        }
        for file in ["../elsewhere/linear.rs", "/elsewhere/linear.rs"] {
            assert_eq!(in_package(file, "/home/user/amk/kernels", "amk-kernels"), "linear.rs");
        }
    }

    #[test]
    fn items_made_at_one_place_have_different_numbers() {
        let origin = Origin { crate_name: "c".into(), file: "f".into(), line: 1, column: 1 };
        assert_ne!(origin.unique("a"), origin.unique("a"));
        assert_ne!(origin.unique("a"), origin.unique("b"));
    }
}
