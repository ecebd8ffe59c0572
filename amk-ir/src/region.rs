//! Tile regions: boxes of half-open intervals whose bounds may move with the position.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The largest rank of a buffer.
pub const MAX_RANK: usize = 4;

/// A bound of an interval: `base`, `base + pos` where `pos` is the position of the step, or
/// `max(0, pos - base)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Bound {
    /// The constant part, in elements.
    pub base: u32,
    /// Whether the position of the step is added.
    pub pos: bool,
    /// Whether the constant is subtracted from the position, clamped at 0.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub behind: bool,
}

impl Bound {
    /// A bound that is the same at every position.
    pub const fn fixed(base: u32) -> Self {
        Self { base, pos: false, behind: false }
    }

    /// The bound `pos + base`.
    pub const fn at_pos(base: u32) -> Self {
        Self { base, pos: true, behind: false }
    }

    /// The bound `max(0, pos - back)`.
    pub const fn behind(back: u32) -> Self {
        Self { base: back, pos: true, behind: back > 0 }
    }

    /// Returns `max(0, pos + offset)`; `None` if the constant has over 32 bits.
    pub fn from_pos(offset: i64) -> Option<Self> {
        let base = u32::try_from(offset.unsigned_abs()).ok()?;
        Some(if offset < 0 { Self::behind(base) } else { Self::at_pos(base) })
    }

    /// Returns the bound one greater at every position; `None` if there is none, or it has over 32
    /// bits.
    pub fn next(self) -> Option<Self> {
        let base = self.base.checked_add(1)?;
        (!self.behind).then_some(Self { base, ..self })
    }

    /// Returns the constant that is added to 0 or to the position. The bound is that sum, clamped
    /// at 0.
    pub fn offset(self) -> i64 {
        let base = i64::from(self.base);
        if self.pos && self.behind { -base } else { base }
    }

    /// Returns the lines whose maximum is the bound at each position: whether a line moves, and its
    /// value at position 0.
    pub(crate) fn lines(self) -> impl Iterator<Item = (bool, i64)> {
        let floor = (self.pos && self.behind).then_some((false, 0));
        [(self.pos, self.offset())].into_iter().chain(floor)
    }

    /// The bound's value at position `pos`, in elements.
    pub fn at(self, pos: u64) -> u64 {
        let base = u64::from(self.base);
        match (self.pos, self.behind) {
            (false, _) => base,
            (true, false) => pos + base,
            (true, true) => pos.saturating_sub(base),
        }
    }
}

/// A [`Bound`] as JSON has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    base: u32,
    pos: bool,
    #[serde(default)]
    behind: bool,
}

impl TryFrom<Fields> for Bound {
    type Error = &'static str;

    fn try_from(Fields { base, pos, behind }: Fields) -> Result<Self, Self::Error> {
        match (pos, behind) {
            (false, false) => Ok(Self::fixed(base)),
            (true, false) => Ok(Self::at_pos(base)),
            (true, true) => Ok(Self::behind(base)),
            (false, true) => Err("a bound that does not move is behind no position"),
        }
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

    /// Whether it moves with the position.
    pub const fn moves(&self) -> bool {
        self.lo.pos || self.hi.pos
    }

    /// Returns the number of elements at position `pos`; 0 if the bounds cross.
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
        match (self.pos, self.offset()) {
            (false, base) => write!(f, "{base}"),
            (true, 0) => write!(f, "pos"),
            (true, base @ 1..) => write!(f, "pos+{base}"),
            (true, base) => write!(f, "max(0, pos{base})"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_behind_the_position_stops_at_0() {
        let behind = Bound::behind(3);
        assert_eq!([0, 2, 3, 4, 9].map(|pos| behind.at(pos)), [0, 0, 0, 1, 6]);
        assert_eq!((behind.to_string(), behind.offset(), behind.next()), ("max(0, pos-3)".to_owned(), -3, None));
        assert_eq!((Bound::behind(0), Bound::from_pos(-3)), (Bound::at_pos(0), Some(behind)));
        let json = serde_json::to_string(&behind).expect("a bound");
        assert_eq!(serde_json::from_str::<Bound>(&json).expect("a bound"), behind);
        assert!(serde_json::from_str::<Bound>(r#"{"base": 1, "pos": false, "behind": true}"#).is_err());
    }
}
