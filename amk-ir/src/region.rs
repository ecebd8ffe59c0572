//! Tile regions: boxes of half-open intervals whose bounds may move with the position.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The largest rank of a buffer.
pub const MAX_RANK: usize = 4;

/// A bound of an interval: `base`, or `base + pos` where `pos` is the position of the step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The constant part, in elements.
    pub base: u32,
    /// Whether the position of the step is added.
    pub pos: bool,
}

impl Bound {
    /// A bound that is the same at every position.
    pub const fn fixed(base: u32) -> Self {
        Self { base, pos: false }
    }

    /// The bound `pos + base`.
    pub const fn at_pos(base: u32) -> Self {
        Self { base, pos: true }
    }

    /// The bound's value at position `pos`, in elements.
    pub fn at(self, pos: u64) -> u64 {
        u64::from(self.base) + if self.pos { pos } else { 0 }
    }
}

/// The half-open interval `lo..hi` of element indices in one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// The first element.
    pub lo: Bound,
    /// One past the last element.
    pub hi: Bound,
}

impl Interval {
    /// The interval `lo..hi` at every position.
    pub const fn fixed(lo: u32, hi: u32) -> Self {
        Self { lo: Bound::fixed(lo), hi: Bound::fixed(hi) }
    }

    /// Number of elements at position `pos`; 0 where the bounds cross.
    pub fn len_at(self, pos: u64) -> u64 {
        self.hi.at(pos).saturating_sub(self.lo.at(pos))
    }
}

/// A box of up to [`MAX_RANK`] intervals.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    rank: u8,
    dims: [Interval; MAX_RANK],
}

impl Region {
    /// The box with these intervals, outermost dimension first; `None` over [`MAX_RANK`] of them.
    pub fn new(intervals: &[Interval]) -> Option<Self> {
        let mut dims = [Interval::fixed(0, 0); MAX_RANK];
        dims.get_mut(..intervals.len())?.copy_from_slice(intervals);
        Some(Self { rank: intervals.len() as u8, dims })
    }

    /// All of a buffer of the given shape (at most [`MAX_RANK`] dimensions are kept).
    pub fn full(shape: &[u32]) -> Self {
        let mut dims = [Interval::fixed(0, 0); MAX_RANK];
        for (dim, &extent) in dims.iter_mut().zip(shape) {
            *dim = Interval::fixed(0, extent);
        }
        Self { rank: shape.len().min(MAX_RANK) as u8, dims }
    }

    /// The intervals, outermost dimension first.
    pub fn intervals(&self) -> &[Interval] {
        &self.dims[..usize::from(self.rank)]
    }

    /// The intervals, for editing.
    pub fn intervals_mut(&mut self) -> &mut [Interval] {
        &mut self.dims[..usize::from(self.rank)]
    }

    /// Number of elements at position `pos`, saturating.
    pub fn len_at(&self, pos: u64) -> u64 {
        self.intervals().iter().fold(1, |n, i| n.saturating_mul(i.len_at(pos)))
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pos, self.base) {
            (false, base) => write!(f, "{base}"),
            (true, 0) => write!(f, "pos"),
            (true, base) => write!(f, "pos+{base}"),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.lo, self.hi)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        for (n, interval) in self.intervals().iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{interval}")?;
        }
        write!(f, "]")
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Region {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.intervals().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let intervals = Vec::<Interval>::deserialize(deserializer)?;
        Self::new(&intervals).ok_or_else(|| serde::de::Error::custom("a region has at most 4 dimensions"))
    }
}
