//! Joining: whether a call may run in the tasks of the call that computes its input.
//!
//! There are two conditions, which are the same for every VM. The value passes only between these
//! two calls ([`passes`]). And each tile of the second call reads exactly what the same tile of the
//! first writes, either for given tiles ([`Tiles::agree`]) or for any tiling of the calls
//! ([`cut_alike`], which is sufficient: the tiling can then be chosen later).

use super::flow::Flow;
use super::tile::{Cut, Part, cuts, free_tile, parts, parts_at};
use super::unfused::Unfused;
use super::unroll::PlannedOperand;
use crate::expr::{Expr, Op};
use crate::graph_error::GraphError;
use crate::signature::{ParamKind, Signature, Span};
use crate::{Region, TensorId};
use std::ops::Range;

/// Returns the only call that writes a value and the only one that reads it.
///
/// # Errors
/// Other writers or readers, or none.
pub fn passes(flow: &Flow<'_>, value: TensorId) -> Result<(usize, usize), Unfused> {
    let name = || flow.tensor(value).name.clone();
    let ops = |calls: &[usize]| calls.iter().map(|&call| flow.op(call)).collect();
    let mut readers = flow.readers(value).to_vec();
    readers.dedup();
    match (flow.writers(value), readers.as_slice()) {
        (&[writer], &[reader]) => Ok((writer, reader)),
        ([], _) => Err(Unfused::NoProducer),
        ([_], []) => Err(Unfused::Unread { value: name() }),
        ([_], _) => Err(Unfused::Shared { value: name(), readers: ops(&readers) }),
        (writers, _) => Err(Unfused::Rewritten { value: name(), writers: ops(writers) }),
    }
}

/// Checks that calls in eager order agree tile by tile for any tiling of the first one, if the
/// others are tiled like it: all along one extent, and every value that one of them writes and
/// another uses only by the tile.
///
/// # Errors
/// The first call, or value, for which this does not hold.
pub fn cut_alike(flow: &Flow<'_>, calls: &[usize]) -> Result<(), Unfused> {
    let Some((&lead, others)) = calls.split_first() else { return Ok(()) };
    if flow.signature(lead).is_none_or(|signature| signature.grid.len() != 1) {
        return Err(Unfused::NoTiles { producer: flow.op(lead) });
    }
    let shared = |call: usize, operand: &PlannedOperand| {
        flow.conflicting(operand).any(|other| other != call && calls.binary_search(&other).is_ok())
    };
    for &call in calls {
        let tile = flow.signature(call).and_then(tile);
        let by_tile = |operand: &PlannedOperand| tile.as_ref().is_some_and(|tile| operand.spans == [tile.clone()]);
        let operands = &flow.call(call).operands;
        if let Some(other) = operands.iter().find(|operand| shared(call, operand) && !by_tile(operand)) {
            return Err(disagree(flow, call, other.tensor));
        }
    }
    let free =
        |call: usize| flow.signature(call).is_some_and(|s| s.grid.iter().any(|grid| free_tile(s, grid).is_some()));
    if let Some(&call) = others.iter().find(|&&call| !free(call)) {
        return Err(Unfused::FixedTile { call: flow.op(call) });
    }
    let theirs = extent(flow, lead);
    match others.iter().find(|&&call| theirs.is_none() || extent(flow, call) != theirs) {
        Some(&call) => {
            Err(Unfused::Extents { producer: flow.op(lead), theirs, own: extent(flow, call).unwrap_or_default() })
        }
        None => Ok(()),
    }
}

/// Whether a call has one grid variable, and every operand is a vector tiled only by it:
/// `y[n..n+T] <- x[n..n+T]`.
pub(super) fn element_wise(signature: &Signature) -> bool {
    let Some(tile) = tile(signature) else { return false };
    let regions = signature.params.iter().filter_map(|param| match &param.kind {
        ParamKind::Tensor { region, .. } => Some(region),
        _ => None,
    });
    regions
        .chain(signature.results.iter().map(|result| &result.region))
        .all(|region| region.as_slice() == std::slice::from_ref(&tile))
}

/// The interval `n..n + T` of the one grid variable.
fn tile(signature: &Signature) -> Option<Span> {
    let [grid] = signature.grid.as_slice() else { return None };
    let lo = Expr::name(&grid.var);
    let hi = Expr::binary(Op::Add, lo.clone(), grid.step.clone());
    Some(Span::Range { lo, hi })
}

/// The extent of a call's first grid variable.
fn extent(flow: &Flow<'_>, call: usize) -> Option<i64> {
    let grid = flow.signature(call)?.grid.first()?;
    grid.extent.eval(&|name| flow.call(call).env.get(name).copied()).ok()
}

fn disagree(flow: &Flow<'_>, call: usize, value: TensorId) -> Unfused {
    Unfused::TilesDisagree { call: flow.op(call), value: flow.tensor(value).name.clone() }
}

/// The tiles of a call, whose tasks other calls may join.
#[derive(Clone, Debug)]
pub struct Tiles {
    /// The call.
    pub call: usize,
    /// The tiling of its grid, if the size of its tile is free.
    pub cuts: Option<Vec<Range<i64>>>,
    /// Its tiles in order.
    pub parts: Vec<Part>,
}

impl Tiles {
    /// Returns the tiles of a call that runs separately.
    ///
    /// # Errors
    /// A grid or a region without a value, or more tasks than a program may have.
    pub fn alone(flow: &Flow<'_>, call: usize, cut: Cut) -> Result<Self, GraphError> {
        let planned = flow.call(call);
        let cuts = cuts(flow.graph, planned, cut)?;
        Ok(Self { call, cuts, parts: parts(flow.graph, flow.unrolled, planned, cut)? })
    }

    /// Returns the tiles of a call that is tiled at `cuts`; `None` if that is impossible.
    ///
    /// # Errors
    /// A grid or a region without a value.
    pub fn at(flow: &Flow<'_>, call: usize, cuts: &[Range<i64>]) -> Result<Option<Self>, GraphError> {
        let parts = parts_at(flow.graph, flow.unrolled, flow.call(call), cuts)?;
        Ok(parts.map(|parts| Self { call, cuts: Some(cuts.to_vec()), parts }))
    }

    /// Returns the tiles of a call in the tasks of this one: tiled like it if both tiles are free,
    /// and separately otherwise.
    ///
    /// # Errors
    /// A grid or a region without a value, or more tasks than a program may have.
    pub fn follower(&self, flow: &Flow<'_>, call: usize, cut: Cut) -> Result<Self, GraphError> {
        let alike = self.cuts.as_ref().map_or(Ok(None), |cuts| Self::at(flow, call, cuts))?;
        alike.map_or_else(|| Self::alone(flow, call, cut), Ok)
    }

    /// Checks that each tile of `after` reads from `value` exactly what the same tile of this call
    /// writes, at every position.
    ///
    /// # Errors
    /// How the tilings differ.
    pub fn agree(&self, flow: &Flow<'_>, after: &Self, value: TensorId) -> Result<(), Unfused> {
        let of_value = |part: &Part| -> Vec<Region> {
            part.operands.iter().filter(|operand| operand.tensor == value).map(|operand| operand.region).collect()
        };
        let fixed = |region: &Region| region.intervals().iter().all(|i| !i.moves());
        let alike = |(write, read): (&Part, &Part)| {
            let written = of_value(write);
            matches!(&written[..], [written] if fixed(written) && of_value(read).iter().all(|read| read == written))
        };
        if self.parts.len() == after.parts.len() && self.parts.iter().zip(&after.parts).all(alike) {
            return Ok(());
        }
        Err(cut_alike(flow, &[self.call, after.call]).err().unwrap_or_else(|| disagree(flow, after.call, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::unroll::unroll;
    use crate::schedule::Schedule;
    use crate::text::parse_graph;

    const GRAPH: &str = "
graph @g
dims H
instance one(H = 96)
layout w: W {
    up: weight[H, H] \"up\"
}
instruction linear(x: tensor[K], w: weight[N, K]) -> (y: f32[N]) {
    tile T = 16
    task n in 0..N step T: y[n..n + T] <- x[..], w[n..n + T, ..]
}
instruction add(a: tensor[N], b: tensor[N]) -> (y: f32[N]) {
    tile T = 32
    task n in 0..N step T: y[n..n + T] <- a[n..n + T], b[n..n + T]
}
instruction rotate(x: tensor[N]) -> (y: f32[N]) {
    task n in 0..N step 8: y[n..n + 8] <- x[n..n + 8]
}
instruction sum(x: tensor[N]) -> (y: f32[N]) {
}
fn (x: tensor f32[H], w: W) {
    a: f32[H] = linear(x, w.up)
    b: f32[H] = add(a, a)
    c: f32[H] = linear(b, w.up)
    d: f32[H] = rotate(c)
    e: f32[H] = rotate(d)
    s: f32[H] = sum(e)
    u: f32[H] = sum(s)
    y: f32[H] = add(u, x)
    z: f32[H] = add(y, x)
    v: f32[H] = add(y, z)
    return v
}
";

    type Verdict = Result<(), Unfused>;

    /// For each value that passes between two calls alone: the calls, whether they agree however
    /// they are cut, and whether they do at the cuts of some workers.
    fn decided(workers: u32) -> Vec<(String, Verdict, Verdict)> {
        let graph = parse_graph(GRAPH).expect("a graph");
        let unrolled = unroll(&graph, &graph.instances[0], &Schedule::default()).expect("its calls");
        let flow = Flow::new(&graph, &unrolled);
        let cut = Cut::per_worker(workers, 8);
        let values = (0..unrolled.tensors.len()).map(TensorId::from);
        let pairs = values.filter_map(|value| passes(&flow, value).ok().map(|(from, to)| (value, from, to)));
        pairs
            .map(|(value, from, to)| {
                let before = Tiles::alone(&flow, from, cut).expect("tiles");
                let after = before.follower(&flow, to, cut).expect("tiles");
                let names = format!("{} {} {}", flow.op(from), flow.tensor(value).name, flow.op(to));
                (names, cut_alike(&flow, &[from, to]), before.agree(&flow, &after, value))
            })
            .collect()
    }

    #[test]
    fn calls_that_are_cut_alike_agree_at_any_cuts() {
        let mut both = 0;
        for workers in [1, 2, 3, 5, 6, 12] {
            for (names, any, these) in decided(workers) {
                assert!(any.is_err() || these.is_ok(), "{names} on {workers} workers: {these:?}");
                both += usize::from(any.is_ok());
            }
        }
        assert_eq!(both, 2 * 6, "`add` after `linear`, and after `add`");
    }

    #[test]
    fn calls_of_fixed_or_whole_tiles_may_still_agree() {
        let found: Vec<(String, bool, String)> = decided(5)
            .into_iter()
            .map(|(names, any, these)| (names, any.is_ok(), these.map_or_else(|no| no.to_string(), |()| "yes".into())))
            .collect();
        let found: Vec<(&str, bool, &str)> =
            found.iter().map(|(names, any, these)| (names.as_str(), *any, these.as_str())).collect();
        let expected = [
            ("linear a add", true, "yes"),
            ("add b linear", false, "tiles disagree: `linear` does not cut `b` by its tile alone"),
            ("linear c rotate", false, "`rotate` sets the size of its tiles itself"),
            ("rotate d rotate", false, "yes"),
            ("rotate e sum", false, "tiles disagree: `sum` does not cut `e` by its tile alone"),
            ("sum s sum", false, "yes"),
            ("sum u add", false, "`sum` is not cut along one dimension"),
            ("add z add", true, "yes"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_value_passes_from_one_writer_to_one_reader() {
        let graph = parse_graph(GRAPH).expect("a graph");
        let unrolled = unroll(&graph, &graph.instances[0], &Schedule::default()).expect("its calls");
        let flow = Flow::new(&graph, &unrolled);
        let of = |name: &str| {
            let at = unrolled.tensors.iter().position(|tensor| tensor.name == name).expect(name);
            passes(&flow, TensorId::from(at)).map_err(|why| why.to_string())
        };
        assert_eq!(of("a"), Ok((0, 1)), "one call that reads it twice");
        assert_eq!(of("y"), Err("`y` is read by 2 calls of `add`".into()));
        assert_eq!(of("x"), Err("it reads no result of another call".into()));
        assert_eq!(of("v"), Err("no call reads `v`".into()));
    }
}
