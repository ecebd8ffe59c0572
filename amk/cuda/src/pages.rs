//! The pages of states on the device.
//!
//! A memory with states is divided into pages, one group's pages after another's.
//! The pages of a group are numbered from [`Pool::first`], with the same numbers in all memories:
//! page `n` begins at `n` times the size of a page of its group in that memory. So a body finds a
//! page from its number and that size alone. The page tables of a sequence have the entries of all
//! groups side by side, block by block.

use amk::rows::{HOLE, PageGroup, PageTables};

/// The pages of a group of states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Number of pages, and the number of last positions that rows read.
    pub group: PageGroup,
    /// The number of the first page on the device.
    pub first: u32,
}

/// The pages of all groups.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Pools(pub Vec<Pool>);

impl Pools {
    /// Numbers the pages of groups, for memories in which a page of each group has these sizes (0
    /// if there is none). A group's first number is the lowest for which its pages follow the
    /// previous groups' in all memories.
    pub(super) fn place(groups: &[PageGroup], memories: &[Vec<u64>]) -> Self {
        let mut ends = vec![0u64; memories.len()];
        let mut pools = Vec::with_capacity(groups.len());
        for (number, &group) in groups.iter().enumerate() {
            let size = |sizes: &Vec<u64>| sizes.get(number).copied().filter(|&bytes| bytes > 0);
            let sizes = memories.iter().map(size);
            let behind = sizes.clone().zip(&ends).filter_map(|(bytes, end)| Some(end.div_ceil(bytes?)));
            let first = behind.max().unwrap_or(0);
            for (bytes, end) in sizes.zip(&mut ends) {
                *end = bytes.map_or(*end, |bytes| (first + group.pages as u64).saturating_mul(bytes));
            }
            pools.push(Pool { group, first: u32::try_from(first).unwrap_or(u32::MAX) });
        }
        Self(pools)
    }

    /// The places of the pages of each group in a memory in which pages have these sizes.
    pub(super) fn places(&self, sizes: &[u64]) -> impl Iterator<Item = (u64, u64)> {
        let pools = self.0.iter().zip(sizes).filter(|&(_, &bytes)| bytes > 0);
        let end = |pool: &Pool| u64::from(pool.first).saturating_add(pool.group.pages as u64);
        pools.map(move |(pool, &bytes)| (u64::from(pool.first) * bytes, end(pool).saturating_mul(bytes)))
    }

    /// The bytes of a memory in which pages have these bytes.
    pub fn bytes(&self, sizes: &[u64]) -> u64 {
        self.places(sizes).map(|(_, end)| end).max().unwrap_or(0)
    }

    /// The entries of a sequence's page tables on the device: for each block of positions, the
    /// pages of all groups.
    pub fn entries(&self, tables: &PageTables) -> impl Iterator<Item = u32> {
        let blocks = tables.iter().map(<[u32]>::len).min().unwrap_or(0);
        let entry = |(table, pool): (&[u32], &Pool), block: usize| match table[block] {
            HOLE => HOLE,
            // Entries behind the block of a row may be any, and are not read.
            page => pool.first.checked_add(page).unwrap_or(HOLE),
        };
        (0..blocks).flat_map(move |block| tables.iter().zip(&self.0).map(move |of| entry(of, block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn group(pages: usize) -> PageGroup {
        PageGroup { pages, reach: None }
    }

    #[test]
    fn pages_of_one_group_have_their_own_numbers() {
        let pools = Pools::place(&[group(5)], &[vec![], vec![100], vec![7]]);
        assert_eq!(pools.0[0].first, 0);
        assert_eq!([pools.bytes(&[]), pools.bytes(&[100]), pools.bytes(&[7])], [0, 500, 35]);
        assert_eq!(pools.entries(&[3, HOLE, 1].into()).collect::<Vec<_>>(), [3, HOLE, 1]);
    }

    #[test]
    fn groups_lie_one_behind_the_other_in_every_memory() {
        let memories = [vec![100, 30, 0], vec![0, 8, 16]];
        let pools = Pools::place(&[group(5), group(10), group(3)], &memories);
        assert_eq!(pools.0.iter().map(|pool| pool.first).collect::<Vec<_>>(), [0, 17, 14]);
        let places = memories.map(|sizes| pools.places(&sizes).collect::<Vec<_>>());
        assert_eq!(places, [[(0, 500), (510, 810)], [(136, 216), (224, 272)]]);
        let tables: PageTables = [&[4, 0][..], &[HOLE, 9, 2], &[2, 1]].into_iter().map(Arc::from).collect();
        assert_eq!(pools.entries(&tables).collect::<Vec<_>>(), [4, HOLE, 16, 0, 26, 15]);
        let unread: PageTables = [&[4, 0][..], &[8, HOLE - 1], &[2, 1]].into_iter().map(Arc::from).collect();
        assert_eq!(pools.entries(&unread).collect::<Vec<_>>(), [4, 25, 16, 0, HOLE, 15]);
    }
}
