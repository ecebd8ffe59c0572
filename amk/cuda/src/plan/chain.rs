//! Chains: calls with generic device bodies that one task computes, found by following the data.

use super::UNIT;
use super::missed::{Because, Lacks, Missed};
use crate::stream::Stream;
use amk_ir::lower::Unfused;
use amk_ir::lower::flow::Flow;
use amk_ir::lower::join::{Tiles, passes};
use amk_ir::lower::tile::{Cut, Part, parts_at};
use amk_ir::program::BufferKind;
use amk_ir::schedule::Schedule;
use amk_ir::signature::ParamKind;
use amk_ir::{Access, DType, TensorId};
use std::collections::HashSet;
use std::ops::Range;

/// Calls by their generic device bodies; each reads the result of the previous one.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The calls in order.
    pub(super) calls: Vec<usize>,
    /// How the first call's weight streams.
    pub(super) stream: Option<&'static Stream>,
    /// Operands that the first call reads as packets of bf16 pairs.
    pub(super) packed: Vec<TensorId>,
}

impl Chain {
    /// One call, with plain loads.
    pub(super) fn of(at: usize) -> Self {
        Self { calls: vec![at], stream: None, packed: Vec::new() }
    }
}

/// Forms chains of `calls`: a call joins the tasks of its producer by the rule of
/// [`amk_ir::lower::join`], if values can pass within a task. Calls in `excluded` stay separate and
/// do not stream. The reasons against joining and streaming are added to `missed`.
pub(super) fn chains(
    flow: &Flow<'_>,
    schedule: &Schedule,
    calls: &[usize],
    excluded: &HashSet<usize>,
    missed: &mut Vec<Missed>,
) -> Vec<Chain> {
    let generic: HashSet<usize> = calls.iter().copied().collect();
    let mut taken = HashSet::new();
    let mut chains = Vec::new();
    for &at in calls {
        if !taken.insert(at) {
            continue;
        }
        fused_producers(flow, at, &generic, missed);
        let mut chain = Chain::of(at);
        if !excluded.contains(&at) {
            let stream = match schedule.rows {
                Some(_) => Err(Because::Rows),
                None => streamed(flow, &mut chain),
            };
            if let Err(because) = stream {
                missed.extend(weight(flow, at).map(|_| Missed::of(flow, at, Lacks::Stream, because)));
            }
            let mut tiles = Tiles::alone(flow, at, cut(schedule.workers)).ok();
            while let Some(before) = &tiles {
                match follower(flow, schedule, &chain, before) {
                    Ok((next, _)) if !generic.contains(&next) || excluded.contains(&next) || !taken.insert(next) => {
                        break;
                    }
                    Ok((next, of_next)) => {
                        let producer = flow.op(*chain.calls.last().unwrap_or(&at));
                        let follows = Because::Follows { producer };
                        missed.extend(weight(flow, next).map(|_| Missed::of(flow, next, Lacks::Stream, follows)));
                        chain.calls.push(next);
                        tiles = Some(of_next);
                    }
                    Err(because) => {
                        let readers = apart(flow, &chain, &generic);
                        missed.extend(readers.map(|next| Missed::of(flow, next, Lacks::Producer, because.clone())));
                        break;
                    }
                }
            }
        }
        chains.push(chain);
    }
    // A call that joined one producer lacks no other.
    let joined: HashSet<usize> = chains.iter().flat_map(|chain| &chain.calls[1..]).copied().collect();
    missed.retain(|missed| missed.lacks != Lacks::Producer || !joined.contains(&missed.call));
    chains.iter().for_each(|chain| note_joined(flow, chain, missed));
    chains
}

/// Says of a chain's later calls that they join; a fusion that refused one keeps its reason.
fn note_joined(flow: &Flow<'_>, chain: &Chain, missed: &mut [Missed]) {
    let [lead, joined @ ..] = &chain.calls[..] else { return };
    let of_joined = missed.iter_mut().filter(|missed| joined.contains(&missed.call));
    for missed in of_joined.filter(|missed| missed.because == Because::NoRule) {
        missed.because = Because::Joined { lead: flow.op(*lead) };
    }
}

/// Records a producer of a call that runs in a fused body, whose tasks a generic call cannot join.
fn fused_producers(flow: &Flow<'_>, at: usize, generic: &HashSet<usize>, missed: &mut Vec<Missed>) {
    let read = flow.call(at).operands.iter().filter(|operand| operand.access == Access::Read);
    let mut writers = read.filter_map(|operand| flow.writer(operand.tensor));
    if let Some(producer) = writers.find(|writer| !generic.contains(writer)) {
        let producer = flow.op(producer);
        missed.push(Missed::of(flow, at, Lacks::Producer, Because::FusedProducer { producer }));
    }
}

/// The generic calls that read the results of a chain without being in its tasks.
fn apart<'f>(flow: &'f Flow<'_>, chain: &Chain, generic: &'f HashSet<usize>) -> impl Iterator<Item = usize> + 'f {
    let result = chain.calls.last().and_then(|&last| flow.result(last));
    let readers = result.map_or(&[][..], |result| flow.users(result));
    let own = chain.calls.clone();
    readers.iter().copied().filter(move |next| generic.contains(next) && !own.contains(next))
}

/// The first weight matrix that a call reads.
fn weight(flow: &Flow<'_>, at: usize) -> Option<TensorId> {
    let read = flow.call(at).operands.iter().map(|operand| operand.tensor);
    read.into_iter().find(|&tensor| flow.kind(tensor) == BufferKind::Weight && flow.shape(tensor).len() == 2)
}

/// Lets the weight of a chain's call stream if a stream of its instruction accepts it.
fn streamed(flow: &Flow<'_>, chain: &mut Chain) -> Result<(), Because> {
    let at = chain.calls[0];
    let stream = Stream::of(flow.path(at)).ok_or(Because::NoStream)?;
    let weight = named(flow, at, stream.operand).ok_or(Because::NoStream)?;
    let (tensor, shape) = (flow.tensor(weight), flow.shape(weight));
    let name = || tensor.name.clone();
    let packed: Option<Vec<TensorId>> = stream.arrives.iter().map(|name| named(flow, at, name)).collect();
    let packed = packed.ok_or(Because::NoStream)?;
    let &[rows, columns] = shape else { return Err(Because::NotMatrix { weight: name() }) };
    if tensor.dtype != DType::BF16 {
        return Err(Because::NotMatrix { weight: name() });
    }
    if flow.call(at).operands.iter().any(|operand| flow.kind(operand.tensor) == BufferKind::State) {
        return Err(Because::State);
    }
    if let Some(&value) = packed.iter().find(|&&value| !flow.shape(value)[0].is_multiple_of(8)) {
        return Err(Because::Arrives { value: flow.tensor(value).name.clone() });
    }
    if !by_rows(flow, at, weight) {
        return Err(Because::NotByRows { weight: name() });
    }
    if !(stream.takes)(rows, columns) {
        return Err(Because::Shape { weight: name(), rows, columns });
    }
    (chain.stream, chain.packed) = (Some(stream), packed);
    Ok(())
}

/// The tensor of a call's parameter.
pub(super) fn named(flow: &Flow<'_>, at: usize, name: &str) -> Option<TensorId> {
    let params = &flow.signature(at)?.params;
    let mut tensors = params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. }));
    flow.operand(at, tensors.position(|param| param.name == name)?)
}

/// Whether a call's tiles are rows of the weight and no other part of it.
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

/// The tiling of calls with generic bodies.
pub(super) fn cut(workers: u32) -> Cut {
    Cut::per_worker(workers, UNIT)
}

/// The call that may follow a chain's last one, and its tiles.
fn follower(flow: &Flow<'_>, schedule: &Schedule, chain: &Chain, before: &Tiles) -> Result<(usize, Tiles), Because> {
    let result =
        only_result(flow, before.call).ok_or_else(|| Because::SeveralResults { producer: flow.op(before.call) })?;
    let tensor = flow.tensor(result);
    let value = || tensor.name.clone();
    if tensor.kind != BufferKind::Activation {
        return Err(Because::Unfused(Unfused::Kept { value: value(), kind: tensor.kind }));
    }
    let (_, next) = passes(flow, result).map_err(Because::Unfused)?;
    if tensor.dtype != DType::F32 {
        return Err(Because::Type { value: value(), dtype: tensor.dtype });
    }
    let untiled = |_| Because::Unfused(Unfused::TilesDisagree { call: flow.op(next), value: value() });
    let after = before.follower(flow, next, cut(schedule.workers)).map_err(untiled)?;
    let states = flow.call(next).operands.iter().any(|operand| flow.kind(operand.tensor) == BufferKind::State);
    if chain.stream.is_some() && (states || after.cuts.is_none()) {
        return Err(Because::Dealt { producer: flow.op(before.call) });
    }
    before.agree(flow, &after, result).map_err(Because::Unfused)?;
    Ok((next, after))
}

/// The one thing that a call writes.
fn only_result(flow: &Flow<'_>, at: usize) -> Option<TensorId> {
    let mut written = flow.call(at).operands.iter().filter(|operand| operand.access == Access::Write);
    let first = written.next()?;
    written.next().is_none().then_some(first.tensor)
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
            let chains = chains(&flow, &schedule, &all, &without.iter().copied().collect(), &mut Vec::new());
            let name = |&at: &usize| flow.signature(at).map_or("", |signature| &signature.name[..]);
            chains.iter().map(|chain| chain.calls.iter().map(name).collect::<Vec<_>>().join("+")).collect()
        };
        // Two calls read `a`. `reversed` reads all tiles of `c`, and its one tile is not cut like
        // the tiles of the last `twice`.
        assert_eq!(names(&[]), ["row_of", "twice", "twice+plus+twice", "reversed", "twice"]);
        assert_eq!(names(&[2]), ["row_of", "twice", "twice", "plus+twice", "reversed", "twice"]);
        assert_eq!(names(&[3]), ["row_of", "twice", "twice", "plus", "twice", "reversed", "twice"]);
        let lacks = |&at: &usize| Missed::of(&flow, at, Lacks::FusedBody, Because::NoRule);
        let mut missed: Vec<Missed> = all.iter().map(lacks).collect();
        chains(&flow, &schedule, &all, &HashSet::new(), &mut missed);
        let lines = crate::plan::lines(&missed);
        let joins = |line: &&String| line.contains("joins the tasks");
        let joined: Vec<&String> = lines.iter().filter(joins).collect();
        assert_eq!(joined, ["`plus` joins the tasks of `twice`", "`twice` joins the tasks of `twice`"], "{lines:#?}");
    }
}
