//! The registry: every `#[instruction]` of every linked crate, by path.
//!
//! `#[instruction]` submits an [`Entry`] through `inventory`, which works at link time: an
//! instruction is found if the binary uses its crate, even if only by `use that_crate as _;`.

mod frame;
mod link;

pub use frame::{Argument, Frame, Handle, Output};
pub use link::{Function, Linked};

use amk_ir::signature::Signature;
use amk_ir::text::Shown;
use std::any::TypeId;
use std::collections::BTreeMap;

/// The registration of an `#[instruction]`.
pub struct Entry {
    /// The function's path, such as `amk_kernels::linear`.
    pub path: &'static str,
    /// Its [`Signature`] as JSON.
    pub signature: &'static str,
    /// The function's type, which is unique to it.
    pub function: fn() -> TypeId,
    /// Calls the function on the frame's operands.
    pub run: fn(&mut Frame<'_>),
    /// Calls the function that computes several rows at once on the frame's operands. It has the
    /// same parameters, but its tensors have the rows as their first dimension, and the result of
    /// each row is bit-identical to a call of the function for that row. `None` if there is no such
    /// function.
    pub rows: Option<fn(&mut Frame<'_>)>,
    /// The text of its CUDA body, if it has one.
    pub cuda: Option<&'static str>,
}

inventory::collect!(Entry);

/// The reasons why an instruction cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegistryError {
    /// No linked crate registers it.
    #[error(
        "instruction `{}` is not linked into this program; add `use {} as _;` to it",
        Shown(path),
        Shown(crate_name)
    )]
    NotLinked {
        /// The instruction's path.
        path: String,
        /// Its first segment: the crate.
        crate_name: String,
    },
    /// The crate is linked, but does not register this instruction.
    #[error("crate `{}` registers no instruction `{}`; it has: {known}", Shown(crate_name), Shown(path))]
    Unknown {
        /// The instruction's path.
        path: String,
        /// Its first segment: the crate.
        crate_name: String,
        /// The names that the crate registers, separated by commas.
        known: String,
    },
    /// Two functions of one crate have the path.
    #[error("two instructions register as `{path}`; rename one of the functions")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// The signature was written by a different version of amk.
    #[error("the signature of `{path}` cannot be read ({cause}); build its crate with this version of amk")]
    Signature {
        /// The instruction's path.
        path: String,
        /// The defect of the JSON.
        cause: String,
    },
}

/// The linked instructions by path.
#[derive(Clone)]
pub struct Registry {
    entries: BTreeMap<&'static str, &'static Entry>,
}

impl Registry {
    /// All instructions that are linked into this program.
    ///
    /// # Errors
    /// [`RegistryError::Duplicate`].
    pub fn linked() -> Result<Self, RegistryError> {
        Self::of(inventory::iter::<Entry>)
    }

    /// These instructions.
    ///
    /// # Errors
    /// [`RegistryError::Duplicate`].
    pub fn of(entries: impl IntoIterator<Item = &'static Entry>) -> Result<Self, RegistryError> {
        let mut out = BTreeMap::new();
        for entry in entries {
            if out.insert(entry.path, entry).is_some() {
                return Err(RegistryError::Duplicate { path: entry.path.to_owned() });
            }
        }
        Ok(Self { entries: out })
    }

    /// The instructions in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.entries.values().copied()
    }

    /// The instruction with this path.
    ///
    /// # Errors
    /// [`RegistryError::NotLinked`] or [`RegistryError::Unknown`].
    pub fn get(&self, path: &str) -> Result<&'static Entry, RegistryError> {
        if let Some(entry) = self.entries.get(path) {
            return Ok(entry);
        }
        let crate_of = |path: &str| path.split("::").next().unwrap_or_default().to_owned();
        let crate_name = crate_of(path);
        let siblings: Vec<&str> = self.entries.keys().copied().filter(|known| crate_of(known) == crate_name).collect();
        let path = path.to_owned();
        Err(match siblings.as_slice() {
            [] => RegistryError::NotLinked { path, crate_name },
            known => RegistryError::Unknown { path, crate_name, known: known.join(", ") },
        })
    }
}

impl Entry {
    /// Calls the function on whole operands, one per parameter, and returns its results.
    ///
    /// # Panics
    /// If the function panics, or if the arguments do not match the signature.
    pub fn call<'a>(&self, arguments: impl IntoIterator<Item = Argument<'a>>) -> Vec<Output> {
        let mut frame = Frame::new();
        arguments.into_iter().for_each(|argument| frame.push(argument));
        (self.run)(&mut frame);
        (0..).map_while(|number| frame.take_result(number)).collect()
    }

    /// The signature.
    ///
    /// # Errors
    /// [`RegistryError::Signature`].
    pub fn signature(&self) -> Result<Signature, RegistryError> {
        serde_json::from_str(self.signature)
            .map_err(|error| RegistryError::Signature { path: self.path.to_owned(), cause: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn entry(path: &'static str) -> Entry {
        Entry { path, signature: "{}", function: TypeId::of::<()>, run: |_| {}, rows: None, cuda: None }
    }

    static ENTRIES: [Entry; 2] = [entry("ops::add"), entry("ops::mul")];

    #[test]
    fn a_missing_crate_is_told_from_a_missing_instruction() {
        let registry = Registry::of(&ENTRIES).unwrap();
        assert_eq!(registry.get("ops::add").unwrap().path, "ops::add");
        let missing = registry.get("other::add").err().unwrap().to_string();
        assert_eq!(missing, "instruction `other::add` is not linked into this program; add `use other as _;` to it");
        let unknown = registry.get("ops::sub").err().unwrap().to_string();
        assert_eq!(unknown, "crate `ops` registers no instruction `ops::sub`; it has: ops::add, ops::mul");
    }

    #[test]
    fn a_path_registers_once() {
        let twice = Registry::of(ENTRIES.iter().chain(&ENTRIES[..1]));
        assert_eq!(twice.err().unwrap(), RegistryError::Duplicate { path: "ops::add".into() });
    }
}
