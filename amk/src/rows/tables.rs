//! Page tables.

use std::sync::Arc;

/// The entry of a page table for a page that was returned to the pool; no row of the step reads it.
pub const HOLE: u32 = u32::MAX;

/// The page tables of a sequence: for each group, the page of each block of [`super::PAGE`]
/// positions, or [`HOLE`] if it was returned. Equal tables belong to the same sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageTables(Arc<[Arc<[u32]>]>);

impl PageTables {
    /// The table of a group; empty if there is no such group.
    pub fn of(&self, group: usize) -> &[u32] {
        self.0.get(group).map_or(&[], |table| table)
    }

    /// The table of a group, shared.
    pub(crate) fn shared(&self, group: usize) -> Arc<[u32]> {
        self.0.get(group).map_or_else(|| Arc::from([]), Arc::clone)
    }

    /// The tables, group by group.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.0.iter().map(|table| &**table)
    }
}

impl FromIterator<Arc<[u32]>> for PageTables {
    fn from_iter<I: IntoIterator<Item = Arc<[u32]>>>(tables: I) -> Self {
        Self(tables.into_iter().collect())
    }
}

/// The table of the only group.
impl From<&[u32]> for PageTables {
    fn from(table: &[u32]) -> Self {
        Self(Arc::from([Arc::from(table)]))
    }
}

impl<const N: usize> From<[u32; N]> for PageTables {
    fn from(table: [u32; N]) -> Self {
        table[..].into()
    }
}
