//! Limits on the size of a program, which is counted before anything is created, so that no value
//! of a dim can exhaust memory.

use super::group::Group;
use super::tile::Axis;
use super::unroll::{PlannedCall, Unrolled};
use crate::expr::Expr;
use crate::graph::{Graph, Node};
use crate::graph_error::GraphError;
use crate::program::EventTensor;
use std::collections::BTreeMap;

/// Calls and assignments of an unrolled function.
const MOST_STATEMENTS: u64 = 65_536;
/// Rounds of loops that are counted one by one, in all branches together.
const MOST_ROUNDS: u64 = 4 * MOST_STATEMENTS;
/// Calls of all tasks.
const MOST_CALLS: u64 = 524_288;
/// Calls that run in one task.
pub(super) const MOST_FUSED: usize = 256;
/// Counters of hand-written event tensors.
const MOST_COUNTERS: u64 = 1_048_576;
/// Maximum number of pairs of tasks whose tiles are compared for overlap.
const MOST_PAIRS: u64 = 1 << 27;

/// Help for a program with rows that is too large.
const LARGER_BLOCKS: &str = "choose larger blocks of rows, as `rows(most = 64, block = 16)`, fewer `workers` \
                             (`--threads`), or fewer rows (`--rows`)";

/// Refuses an instance whose loops unroll to more statements than a program may have.
pub(super) fn statements(graph: &Graph, instance: &str, dims: &BTreeMap<String, i64>) -> Result<(), GraphError> {
    let mut count = Count { dims, indices: BTreeMap::new(), longest: None, left: MOST_ROUNDS };
    let statements = count.of(&graph.body);
    if statements <= MOST_STATEMENTS {
        return Ok(());
    }
    let headline =
        format!("instance `{instance}` unrolls to {statements} calls and assignments, the limit is {MOST_STATEMENTS}");
    let error = GraphError::new("AMK0616", headline, "give the dims that the loops count to smaller values");
    Err(match count.longest {
        Some((rounds, head)) => error.note(format!("`{head}` runs {rounds} times")),
        None => error,
    })
}

/// The statements of an unrolled body; a round of a loop counts as one at least.
struct Count<'g> {
    dims: &'g BTreeMap<String, i64>,
    indices: BTreeMap<String, i64>,
    /// Maximum number of iterations of a loop, and its head.
    longest: Option<(u64, String)>,
    /// Number of iterations that may still be counted one by one.
    left: u64,
}

impl Count<'_> {
    fn of(&mut self, nodes: &[Node]) -> u64 {
        nodes.iter().fold(0, |sum, node| {
            sum.saturating_add(match node {
                Node::Call(_) | Node::Bind { .. } => 1,
                Node::If { then, otherwise, .. } => self.of(then).max(self.of(otherwise)),
                Node::Loop { index, extent, body } => self.repeated(index, extent, body),
            })
        })
    }

    fn repeated(&mut self, index: &str, extent: &Expr, body: &[Node]) -> u64 {
        let value = extent.eval(&|name| self.indices.get(name).or_else(|| self.dims.get(name)).copied());
        // An extent without a value is reported where the loop is unrolled.
        let rounds = value.ok().and_then(|rounds| u64::try_from(rounds).ok()).unwrap_or(0);
        if self.longest.as_ref().is_none_or(|(most, _)| rounds > *most) {
            self.longest = Some((rounds, format!("for {index} in 0..{extent}")));
        }
        if !counts_to(body, index) {
            return rounds.saturating_mul(self.of(body).max(1));
        }
        let mut sum = 0u64;
        for round in 0..rounds {
            if sum > MOST_STATEMENTS || self.left == 0 {
                sum = sum.max(MOST_STATEMENTS + 1);
                break;
            }
            self.left -= 1;
            self.indices.insert(index.to_owned(), round as i64);
            sum = sum.saturating_add(self.of(body).max(1));
        }
        self.indices.remove(index);
        sum
    }
}

/// Whether the extent of a loop in the body contains this name.
fn counts_to(nodes: &[Node], index: &str) -> bool {
    nodes.iter().any(|node| match node {
        Node::Call(_) | Node::Bind { .. } => false,
        Node::If { then, otherwise, .. } => counts_to(then, index) || counts_to(otherwise, index),
        Node::Loop { extent, body, .. } => {
            let mut found = false;
            extent.names(&mut |name| found |= name == index);
            found || counts_to(body, index)
        }
    })
}

/// Refuses groups that repeat more calls in their tasks than may be, before these are made.
pub(super) fn repeated(graph: &Graph, calls: usize, site: u32) -> Result<(), GraphError> {
    if calls <= MOST_FUSED {
        return Ok(());
    }
    let headline = format!("a task of `{}` would repeat {calls} calls, the limit is {MOST_FUSED}", graph.name);
    Err(GraphError::new("AMK0616", headline, "fuse fewer instructions into `consumers`").at(site))
}

/// Refuses groups of more calls than the tasks of a program may make, were each of them one task.
pub(super) fn grouped(graph: &Graph, calls: usize, site: u32) -> Result<(), GraphError> {
    let calls = calls as u64;
    if calls <= MOST_CALLS { Ok(()) } else { Err(too_many(graph, calls).at(site)) }
}

fn too_many(graph: &Graph, calls: u64) -> GraphError {
    let headline = format!("the tasks of `{}` make {calls} calls, the limit is {MOST_CALLS}", graph.name);
    let help = "choose larger tiles, as `tile(OP = whole)`, fewer `workers` (`--threads`), or smaller dims";
    GraphError::new("AMK0616", headline, help)
}

/// Refuses tiles that make more tasks than a program may have; of each group the axes, and the
/// blocks of rows.
pub(super) fn tasks<'a>(
    graph: &Graph,
    unrolled: &Unrolled,
    groups: &[Group],
    cut: impl Iterator<Item = (&'a [Axis], u64)> + Clone,
) -> Result<(), GraphError> {
    let tasks = |axes: &[Axis], blocks: u64| axes.iter().fold(blocks, |tasks, axis| tasks.saturating_mul(axis.len()));
    let counted = groups.iter().zip(cut).map(|(group, (axes, blocks))| (group, tasks(axes, blocks), blocks));
    let calls = counted
        .clone()
        .fold(0u64, |sum, (group, tasks, _)| sum.saturating_add(tasks.saturating_mul(group.members.len() as u64)));
    let largest = counted.max_by_key(|(_, tasks, _)| *tasks).filter(|_| calls > MOST_CALLS);
    let Some((group, tasks, blocks)) = largest else { return Ok(()) };
    let lead = &unrolled.calls[group.members[group.lead].call];
    let mut error = too_many(graph, calls).note(format!("`{}` is cut into {tasks} tasks", lead.label)).at(lead.site);
    if blocks > 1 {
        error.help = LARGER_BLOCKS.to_owned();
    }
    Err(error)
}

/// Refuses a call that is tiled into more tasks than a program may have.
pub(super) fn parts(call: &PlannedCall, cuts: impl Iterator<Item = u64>) -> Result<(), GraphError> {
    let tasks = cuts.fold(1, u64::saturating_mul);
    if tasks <= MOST_CALLS {
        return Ok(());
    }
    let headline = format!("`{}` is cut into {tasks} tasks, the limit is {MOST_CALLS}", call.label);
    Err(GraphError::new("AMK0616", headline, "choose smaller dims").at(call.site))
}

/// Refuses event tensors with more counters than a program may have.
pub(super) fn counters(events: &[EventTensor]) -> Result<(), GraphError> {
    let counters = events.iter().fold(0u64, |sum, event| sum.saturating_add(event.len()));
    let largest = events.iter().max_by_key(|event| event.len()).filter(|_| counters > MOST_COUNTERS);
    largest.map_or(Ok(()), |event| {
        let headline = format!("`events(..)` has {counters} counters, the limit is {MOST_COUNTERS}");
        let error = GraphError::new("AMK0616", headline, "give the event tensors smaller extents");
        Err(error.note(format!("`{}` has {} of them", event.name, event.len())))
    })
}

/// Refuses a call whose tasks take more comparisons with earlier ones than a lowering may make.
pub(super) fn pairs(pairs: u64, has_rows: bool, label: &str, site: u32) -> Result<(), GraphError> {
    if pairs <= MOST_PAIRS {
        return Ok(());
    }
    let headline = format!("finding what tasks depend on takes over {MOST_PAIRS} comparisons of tiles");
    let help = "choose larger tiles, as `tile(OP = whole)`, fewer `workers` (`--threads`), or shorter loops";
    let help = if has_rows { LARGER_BLOCKS } else { help };
    Err(GraphError::new("AMK0616", headline, help).note(format!("up to the tasks of `{label}`")).at(site))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ValueId;

    fn body(extents: &[(&str, &str)]) -> Vec<Node> {
        let bind = vec![Node::Bind { site: 0, to: ValueId(0), from: ValueId(0) }];
        extents.iter().rev().fold(bind, |body, (index, extent)| {
            vec![Node::Loop { index: (*index).into(), extent: Expr::parse(extent).expect(extent), body }]
        })
    }

    fn count(body: &[Node]) -> u64 {
        let dims = BTreeMap::from([("N".to_owned(), 2_000_000_000)]);
        Count { dims: &dims, indices: BTreeMap::new(), longest: None, left: MOST_ROUNDS }.of(body)
    }

    #[test]
    fn loops_multiply_and_triangles_add() {
        assert_eq!(count(&body(&[("i", "3"), ("j", "5")])), 15);
        assert_eq!(count(&body(&[("i", "4"), ("j", "i + 1")])), 1 + 2 + 3 + 4);
        assert_eq!(count(&body(&[("i", "N"), ("j", "N"), ("k", "N")])), u64::MAX);
    }

    #[test]
    fn rounds_of_many_loops_are_counted_to_a_limit() {
        let triangles: Vec<Node> = (0..100_000).flat_map(|_| body(&[("i", "65536"), ("j", "i * 0")])).collect();
        assert!(count(&triangles) > MOST_STATEMENTS);
    }

    #[test]
    fn a_loop_that_does_nothing_still_counts() {
        let empty = |extent: &str| {
            vec![Node::Loop { index: "i".into(), extent: Expr::parse(extent).expect(extent), body: Vec::new() }]
        };
        assert_eq!(count(&empty("N")), 2_000_000_000);
        assert!(count(&body(&[("i", "N"), ("j", "i * 0")])) > MOST_STATEMENTS);
    }
}
