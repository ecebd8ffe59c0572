//! A bounded pool of pages with reference counts.

/// The pages of a VM. The users of a page are the sequences that name it.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    users: Vec<u32>,
    /// Pages without users; the last is taken next.
    free: Vec<u32>,
    /// Whether a page may still hold data of an earlier user.
    used: Vec<bool>,
}

impl Pool {
    pub(super) fn new(pages: u32) -> Self {
        let count = pages as usize;
        Self { users: vec![0; count], free: (0..pages).rev().collect(), used: vec![false; count] }
    }

    pub(super) fn pages(&self) -> usize {
        self.users.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free page for one user; also returns whether it may still hold data of an earlier
    /// user.
    pub(super) fn take(&mut self) -> Option<(u32, bool)> {
        let page = self.free.pop()?;
        self.users[page as usize] = 1;
        Some((page, std::mem::replace(&mut self.used[page as usize], true)))
    }

    /// Adds a user to a page.
    pub(super) fn share(&mut self, page: u32) {
        self.users[page as usize] += 1;
    }

    /// Users of a page.
    pub(super) fn users(&self, page: u32) -> u32 {
        self.users[page as usize]
    }

    /// Removes a user from a page.
    pub(super) fn release(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(page);
        }
    }
}
