//! Where two tiles meet.
//!
//! Tile `x` at position `p` and tile `y` at position `q` share an element if in each dimension both
//! are not empty and each begins before the other ends. Bounds have slope 0 or 1, so each of these
//! inequalities limits `p`, `q` or `q - p`. A bound `max(0, pos - N)` is below another where both 0
//! and `pos - N` are; another is below it where it is below `pos - N`, as none is below 0.

use amk_ir::{Bound, Region};

/// Whole numbers, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Span {
    const ALL: Self = Self { first: i64::MIN / 4, last: i64::MAX / 4 };

    pub(crate) fn new(first: impl Into<i64>, last: impl Into<i64>) -> Self {
        Self { first: first.into(), last: last.into() }
    }

    pub(crate) fn has(self, number: i64) -> bool {
        self.first <= number && number <= self.last
    }

    /// The intersection, or `None` when it is empty.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        let both = Self { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }
}

/// The tiles meet exactly where `p`, `q` and `q - p` are in these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meet {
    p: Span,
    q: Span,
    apart: Span,
}

/// The steps of a launch, as far as two accesses in it can be apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distances {
    /// Positions of the first of the two.
    pub(crate) starts: Span,
    /// All positions.
    pub(crate) positions: Span,
    /// Distances are multiples of it: the slots of a packet buffer, else 1.
    pub(crate) slots: i64,
}

impl Distances {
    /// With one position, all steps are there.
    pub(crate) fn is_still(&self) -> bool {
        self.positions.first == self.positions.last
    }

    /// The least distance that is allowed and at least `least`.
    pub(crate) fn from(&self, least: i64) -> i64 {
        let times = (least.max(1) + self.slots - 1) / self.slots;
        times * self.slots
    }
}

/// Whose position moves a bound.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    P,
    Q,
}

impl Meet {
    /// Where the two regions of one buffer meet; `None`: nowhere.
    pub(crate) fn of(x: &Region, y: &Region) -> Option<Self> {
        let mut meet = Self { p: Span::ALL, q: Span::ALL, apart: Span::ALL };
        for (x, y) in x.intervals().iter().zip(y.intervals()) {
            meet.less((x.lo, Of::P), (x.hi, Of::P))?;
            meet.less((y.lo, Of::Q), (y.hi, Of::Q))?;
            meet.less((x.lo, Of::P), (y.hi, Of::Q))?;
            meet.less((y.lo, Of::Q), (x.hi, Of::P))?;
        }
        Some(meet)
    }

    /// Adds the inequality `a < b`; `None` where it never holds.
    fn less(&mut self, (a, of_a): (Bound, Of), b: (Bound, Of)) -> Option<()> {
        if a.pos && a.behind {
            self.line_less((Bound::fixed(0), of_a), b)?;
        }
        self.line_less((a, of_a), b)
    }

    /// The same for the lines of the bounds.
    fn line_less(&mut self, (a, of_a): (Bound, Of), (b, of_b): (Bound, Of)) -> Option<()> {
        let constant = |bound: Bound| match bound.pos && bound.behind {
            true => -i64::from(bound.base),
            false => i64::from(bound.base),
        };
        let gap = constant(b) - constant(a);
        match (a.pos, b.pos) {
            (true, false) => {
                let own = self.of_mut(of_a);
                own.last = own.last.min(gap - 1);
            }
            (false, true) => {
                let own = self.of_mut(of_b);
                own.first = own.first.max(1 - gap);
            }
            (true, true) if of_a != of_b => match of_a {
                Of::P => self.apart.first = self.apart.first.max(1 - gap),
                Of::Q => self.apart.last = self.apart.last.min(gap - 1),
            },
            _ if gap <= 0 => return None,
            _ => {}
        }
        Some(())
    }

    fn of_mut(&mut self, of: Of) -> &mut Span {
        match of {
            Of::P => &mut self.p,
            Of::Q => &mut self.q,
        }
    }

    /// The same with `y` first.
    pub(crate) fn mirrored(self) -> Self {
        let apart = Span { first: -self.apart.last, last: -self.apart.first };
        Self { p: self.q, q: self.p, apart }
    }

    /// The positions, of those given, at which they meet in one step.
    pub(crate) fn in_step(&self, positions: Span) -> Option<Span> {
        if self.apart.has(0) { self.p.and(self.q)?.and(positions) } else { None }
    }

    /// Whether they meet at any two positions.
    pub(crate) fn ever(&self, positions: Span) -> bool {
        let both = self.p.and(positions).zip(self.q.and(positions));
        both.is_some_and(|(p, q)| self.apart.and(Span::new(q.first - p.last, q.last - p.first)).is_some())
    }

    /// The least distance at which they meet, `x` first, and the first position of `x` where they
    /// do: these decide (L8).
    pub(crate) fn least(&self, distances: Distances) -> Option<(i64, i64)> {
        if distances.is_still() {
            return self.in_step(distances.positions).map(|at| (distances.slots, at.first));
        }
        let p = self.p.and(distances.starts)?;
        let q = self.q.and(distances.positions)?;
        let apart = self.apart.and(Span::new(q.first - p.last, q.last - p.first))?;
        let distance = distances.from(apart.first);
        (distance <= apart.last).then(|| (distance, p.first.max(q.first - distance)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_ir::Interval;

    /// All bounds of one dimension up to 3.
    fn regions() -> Vec<Region> {
        let bounds = || (0..4).flat_map(|base| [Bound::fixed(base), Bound::at_pos(base), Bound::behind(base)]);
        let intervals = bounds().flat_map(|lo| bounds().map(move |hi| Interval { lo, hi }));
        intervals.map(|interval| Region::new(&[interval]).expect("rank 1")).collect()
    }

    fn share(x: &Region, p: i64, y: &Region, q: i64) -> bool {
        let ends = |region: &Region, at: i64| {
            let interval = region.intervals()[0];
            interval.lo.at(at as u64)..interval.hi.at(at as u64)
        };
        ends(x, p).any(|element| ends(y, q).contains(&element))
    }

    #[test]
    fn tiles_meet_where_they_share_an_element() {
        let positions = Span::new(0, 3);
        for x in &regions() {
            for y in &regions() {
                let meet = Meet::of(x, y);
                let shared = |p, q| share(x, p, y, q);
                let ever = (0..4).any(|p| (0..4).any(|q| shared(p, q)));
                assert_eq!(meet.is_some_and(|meet| meet.ever(positions)), ever, "{x} {y}");
                for starts in [Span::new(0, 3), Span::new(1, 2), Span::new(2, 2)] {
                    let here: Vec<i64> = (starts.first..=starts.last).filter(|&p| shared(p, p)).collect();
                    let found = meet.and_then(|meet| meet.in_step(starts));
                    let found: Vec<i64> = found.into_iter().flat_map(|span| span.first..=span.last).collect();
                    assert_eq!(found, here, "{x} {y}");
                    for slots in [1, 2] {
                        let apart = |d: &i64| {
                            d % slots == 0 && (starts.first..=starts.last).any(|p| p + d < 4 && shared(p, p + d))
                        };
                        let least = meet.and_then(|meet| meet.least(Distances { starts, positions, slots }));
                        assert_eq!(least.map(|(d, _)| d), (1..4).find(apart), "{x} {y}");
                        assert!(least.is_none_or(|(d, p)| starts.has(p) && shared(p, p + d)), "{x} {y}");
                        let mirrored =
                            meet.and_then(|meet| meet.mirrored().least(Distances { starts, positions, slots }));
                        let swapped =
                            Meet::of(y, x).and_then(|meet| meet.least(Distances { starts, positions, slots }));
                        assert_eq!(mirrored, swapped, "{x} {y}");
                    }
                }
            }
        }
    }
}
