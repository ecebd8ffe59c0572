//! Chains: calls by generic device bodies that one task computes, found by following the data.

use super::UNIT;
use super::flow::Flow;
use crate::stream::Stream;
use amk_ir::lower::parts::{Cut, Part, cuts, parts, parts_at};
use amk_ir::program::BufferKind;
use amk_ir::schedule::Schedule;
use amk_ir::signature::ParamKind;
use amk_ir::{Access, DType, TensorId};
use std::collections::HashSet;
use std::ops::Range;

/// Calls by their generic device bodies, each of which reads the result of the previous one.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The calls in order.
    pub(super) calls: Vec<usize>,
    /// How the first call's weight streams.
    pub(super) stream: Option<&'static Stream>,
    /// What the first one reads as packets of bf16 pairs.
    pub(super) packed: Vec<TensorId>,
}

impl Chain {
    /// One call, with plain loads.
    pub(super) fn of(at: usize) -> Self {
        Self { calls: vec![at], stream: None, packed: Vec::new() }
    }
}

/// The tiles of a call that may get followers.
struct Tiles {
    /// How its grid is cut, where its tile is free.
    cuts: Option<Vec<Range<i64>>>,
    parts: Vec<Part>,
}

/// Forms chains of `calls`; those of `excluded` stay alone and do not stream.
///
/// A call joins the tasks of its producer where it is the only reader of the result and each of its
/// tiles reads exactly the region that the same tile of the producer writes. A tile of free size is
/// cut like the producer's.
pub(super) fn chains(flow: &Flow<'_>, schedule: &Schedule, calls: &[usize], excluded: &HashSet<usize>) -> Vec<Chain> {
    let free: HashSet<usize> = calls.iter().copied().filter(|at| !excluded.contains(at)).collect();
    let mut taken = HashSet::new();
    let mut chains = Vec::new();
    for &at in calls {
        if !taken.insert(at) {
            continue;
        }
        let mut chain = Chain::of(at);
        if free.contains(&at) {
            streamed(flow, &mut chain);
            let mut tiles = tiles(flow, schedule, at);
            while let Some((next, of_next)) = tiles.as_ref().and_then(|tiles| follower(flow, schedule, &chain, tiles)) {
                if !free.contains(&next) || !taken.insert(next) {
                    break;
                }
                chain.calls.push(next);
                tiles = Some(of_next);
            }
        }
        chains.push(chain);
    }
    chains
}

/// Lets the weight of a chain's call stream where a stream of its instruction takes it.
fn streamed(flow: &Flow<'_>, chain: &mut Chain) {
    let at = chain.calls[0];
    let Some((stream, weight)) =
        Stream::of(flow.path(at)).and_then(|stream| Some((stream, named(flow, at, stream.operand)?)))
    else {
        return;
    };
    let (buffer, shape) = (flow.tensor(weight), flow.shape(weight));
    let packed: Option<Vec<TensorId>> = stream.arrives.iter().map(|name| named(flow, at, name)).collect();
    let (Some(packed), &[rows, columns]) = (packed, shape) else { return };
    let stateless = flow.call(at).operands.iter().all(|operand| flow.kind(operand.tensor) != BufferKind::State);
    let arrives = packed.iter().all(|&value| flow.shape(value)[0].is_multiple_of(8));
    if buffer.dtype == DType::BF16 && stateless && arrives && by_rows(flow, at, weight) && (stream.takes)(rows, columns)
    {
        (chain.stream, chain.packed) = (Some(stream), packed);
    }
}

/// The tensor of a call's parameter.
pub(super) fn named(flow: &Flow<'_>, at: usize, name: &str) -> Option<TensorId> {
    let params = &flow.signature(at)?.params;
    let mut tensors = params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. }));
    flow.operand(at, tensors.position(|param| param.name == name)?)
}

/// Whether a call's tiles are rows of the weight and nothing else of it.
fn by_rows(flow: &Flow<'_>, at: usize, weight: TensorId) -> bool {
    let cut = i64::from(flow.shape(weight)[0]);
    let halves = [0..cut / 2, cut / 2..cut];
    let tiles = parts_at(flow.graph, flow.unrolled, flow.call(at), &halves).ok().flatten().unwrap_or_default();
    let fits = |(part, rows): (&Part, &Range<i64>)| {
        let mut operands = part.operands.iter().filter(|operand| operand.tensor == weight);
        let region = operands.next().map(|operand| operand.region);
        let fixed =
            |region: amk_ir::Region| region.intervals().iter().map(|i| i.lo.base..i.hi.base).collect::<Vec<_>>();
        region.map(fixed) == Some(vec![rows.start as u32..rows.end as u32, 0..flow.shape(weight)[1]])
    };
    tiles.len() == 2 && tiles.iter().zip(&halves).all(fits)
}

fn cut(schedule: &Schedule) -> Cut {
    Cut { workers: schedule.workers, unit: UNIT }
}

fn tiles(flow: &Flow<'_>, schedule: &Schedule, at: usize) -> Option<Tiles> {
    let cut = cut(schedule);
    let cuts = cuts(flow.graph, flow.call(at), cut).ok()?;
    Some(Tiles { cuts, parts: parts(flow.graph, flow.unrolled, flow.call(at), cut).ok()? })
}

/// The call that may follow a chain's last one, and its tiles.
fn follower(flow: &Flow<'_>, schedule: &Schedule, chain: &Chain, before: &Tiles) -> Option<(usize, Tiles)> {
    let last = *chain.calls.last()?;
    let result = only_result(flow, last)?;
    let &[next] = flow.users(result) else { return None };
    if !flow.only_for(result, next) || flow.tensor(result).dtype != DType::F32 {
        return None;
    }
    let after = match &before.cuts {
        Some(cuts) => match parts_at(flow.graph, flow.unrolled, flow.call(next), cuts).ok()? {
            Some(parts) => Tiles { cuts: Some(cuts.clone()), parts },
            None => tiles(flow, schedule, next)?,
        },
        None => tiles(flow, schedule, next)?,
    };
    let states = flow.call(next).operands.iter().any(|operand| flow.kind(operand.tensor) == BufferKind::State);
    let recut = chain.stream.is_some() && (states || after.cuts.is_none());
    (!recut && agree(result, before, &after)).then_some((next, after))
}

/// The one thing that a call writes.
fn only_result(flow: &Flow<'_>, at: usize) -> Option<TensorId> {
    let mut written = flow.call(at).operands.iter().filter(|operand| operand.access == Access::Write);
    let first = written.next()?;
    written.next().is_none().then_some(first.tensor)
}

/// Whether each tile of one call reads of `value` exactly what the same tile of the other writes.
fn agree(value: TensorId, before: &Tiles, after: &Tiles) -> bool {
    let of_value = |part: &Part| -> Vec<amk_ir::Region> {
        part.operands.iter().filter(|operand| operand.tensor == value).map(|operand| operand.region).collect()
    };
    let pairs = || before.parts.iter().zip(&after.parts);
    let fixed = |region: &amk_ir::Region| region.intervals().iter().all(|i| !i.lo.pos && !i.hi.pos);
    before.parts.len() == after.parts.len()
        && pairs().all(|(write, read)| {
            let written = of_value(write);
            matches!(&written[..], [written] if fixed(written) && of_value(read).iter().all(|read| read == written))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TARGETS;
    use amk::prelude::*;
    use amk_ir::schedule::Schedule;

    /// A row of a table.
    #[instruction(
        op = "row_of",
        shape = "table: [V, N], token: [1] -> y: [N]",
        task = "y[..] <- table[.., ..], token[..]"
    )]
    fn row_of(table: &Weight, token: Token) -> Tensor {
        table.row(token.index()).to_f32().iter().copied().collect()
    }

    /// Twice each element.
    #[instruction(
        op = "twice",
        shape = "x: [N] -> y: [N]",
        tile = "T = 16",
        task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
    )]
    fn twice(x: &Tensor) -> Tensor {
        x.data().iter().map(|x| 2.0 * x).collect()
    }

    /// Sums of elements, in larger tiles.
    #[instruction(
        op = "plus",
        shape = "x: [N], z: [N] -> y: [N]",
        tile = "T = 32",
        task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], z[n..n+T]"
    )]
    fn plus(x: &Tensor, z: &Tensor) -> Tensor {
        x.data().iter().zip(z.data()).map(|(x, z)| x + z).collect()
    }

    /// The elements the other way round: a tile needs all of them.
    #[instruction(op = "reversed", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
    fn reversed(x: &Tensor) -> Tensor {
        x.data().iter().rev().copied().collect()
    }

    /// A table.
    #[derive(WeightLayout)]
    struct Table {
        /// `[V, N]`.
        #[weight("table", [V, N])]
        table: Weight,
    }

    #[megakernel(dims(V, N), instances(small(V = 8, N = 128)))]
    #[expect(dead_code, reason = "only its graph is grouped")]
    fn wired(token: Token, w: &Table) -> Tensor {
        let a = twice(&row_of(&w.table, token));
        let c = twice(&plus(&a, &twice(&a)));
        twice(&reversed(&c))
    }

    #[test]
    fn a_call_joins_the_one_whose_tiles_it_alone_reads() {
        let instance = WIRED.instance("small").expect("the instance");
        let graph = WIRED.graph().expect("a graph");
        let unrolled = WIRED.unrolled(instance, &Schedule::default()).expect("its calls");
        let flow = Flow::new(graph, &unrolled);
        let schedule = Schedule { workers: 4, ..TARGETS[0].schedule() };
        let all: Vec<usize> = (0..unrolled.calls.len()).collect();
        let names = |without: &[usize]| -> Vec<String> {
            let chains = chains(&flow, &schedule, &all, &without.iter().copied().collect());
            let name = |&at: &usize| flow.signature(at).map_or("", |signature| &signature.name[..]);
            chains.iter().map(|chain| chain.calls.iter().map(name).collect::<Vec<_>>().join("+")).collect()
        };
        // Two calls read `a`. `reversed` reads all tiles of `c`, and its one tile is not cut like
        // those of the last `twice`.
        assert_eq!(names(&[]), ["row_of", "twice", "twice+plus+twice", "reversed", "twice"]);
        assert_eq!(names(&[2]), ["row_of", "twice", "twice", "plus+twice", "reversed", "twice"]);
        assert_eq!(names(&[3]), ["row_of", "twice", "twice", "plus", "twice", "reversed", "twice"]);
    }
}
