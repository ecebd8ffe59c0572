//! The number of pages that a VM is created with.

use super::PageGroup;

/// The number of pages that a VM has for its sequences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolSize {
    /// This many in each group.
    Pages(usize),
    /// This many in each group, in order; groups without a number have as many as the last one
    /// named.
    Groups(Vec<usize>),
    /// As many as sequences of these lengths need at the same time. A long sequence needs few pages
    /// of a group whose rows read only its last positions.
    Sequences(Vec<usize>),
}

impl PoolSize {
    /// As many pages as `count` sequences of `positions` positions need at the same time.
    pub fn sequences(count: usize, positions: usize) -> Self {
        Self::Sequences(vec![positions; count])
    }

    /// Returns the groups with their pages, given the reach of each group, for steps of up to
    /// `rows` rows.
    pub fn groups(&self, reaches: impl IntoIterator<Item = Option<usize>>, rows: usize) -> Vec<PageGroup> {
        let pages = |number: usize, group: PageGroup| match self {
            Self::Pages(pages) => *pages,
            Self::Groups(pages) => pages.get(number).or(pages.last()).copied().unwrap_or(0),
            Self::Sequences(lens) => lens.iter().map(|&len| group.pages_at_once(len, rows)).sum(),
        };
        let groups = reaches.into_iter().map(|reach| PageGroup { pages: 0, reach }).enumerate();
        groups.map(|(number, group)| PageGroup { pages: pages(number, group), ..group }).collect()
    }
}

impl From<usize> for PoolSize {
    fn from(pages: usize) -> Self {
        Self::Pages(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::RowLimits;

    #[test]
    fn groups_have_the_pages_that_sequences_need_at_the_same_time() {
        let pages = |size: PoolSize| -> Vec<usize> {
            size.groups([None, Some(100), Some(1)], 8).iter().map(|group| group.pages).collect()
        };
        assert_eq!(pages(7.into()), [7, 7, 7]);
        assert_eq!(pages(PoolSize::Groups(vec![9, 4])), [9, 4, 4]);
        // 171 positions at a time lie in 4 pages at most, 72 in 3.
        assert_eq!(pages(PoolSize::sequences(2, 1000)), [32, 8, 6]);
        assert_eq!(pages(PoolSize::Sequences(vec![1000, 65, 0])), [18, 6, 5]);
        let limits = RowLimits { rows: 8, positions: 1000, groups: PoolSize::Pages(1).groups([None, Some(100)], 8) };
        assert_eq!(limits.pages_at_once(1000), [16, 4]);
    }
}
