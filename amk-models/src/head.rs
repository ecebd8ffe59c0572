//! The output head: the ops that make a model's logits of the states of its last norm.

use amk::ir::graph::{Arg, CallNode, Graph, Node};
use std::collections::BTreeSet;

/// The weight that the first of these ops reads, in every page.
pub const LM_HEAD: &str = "w.ends.lm_head";

/// The graph without its head: its result is the states. `None` if no op outside of loops reads the
/// head's weight.
pub fn states(graph: &Graph) -> Option<Graph> {
    let at = start(graph)?;
    let [Arg::Value(result), ..] = call(&graph.body[at])?.args[..] else { return None };
    Some(Graph { body: graph.body[..at].to_vec(), results: vec![result], ..graph.clone() })
}

/// The fields of a graph's layouts that its head alone reads.
pub(crate) fn fields(graph: &Graph) -> BTreeSet<String> {
    let Some(at) = start(graph) else { return BTreeSet::new() };
    // Fields of layers have paths of their own.
    let read = |body: &[Node]| body.iter().filter_map(call).flat_map(paths).collect::<BTreeSet<_>>();
    let (states, head) = graph.body.split_at(at);
    &read(head) - &read(states)
}

/// The number of the statement that the head starts with.
fn start(graph: &Graph) -> Option<usize> {
    let reads_head = |call: &CallNode| paths(call).any(|path| path == LM_HEAD);
    graph.body.iter().position(|node| call(node).is_some_and(reads_head))
}

fn call(node: &Node) -> Option<&CallNode> {
    match node {
        Node::Call(call) => Some(call),
        _ => None,
    }
}

fn paths(call: &CallNode) -> impl Iterator<Item = String> {
    call.args.iter().filter_map(|arg| match arg {
        Arg::Field(path) => Some(path.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FAMILIES;

    #[test]
    fn every_family_has_states_that_its_logits_are_made_of() {
        for family in FAMILIES {
            let graph = family.kernel.graph().unwrap();
            let states = states(graph).unwrap_or_else(|| panic!("`{}` has none", family.name));
            assert!(states.body.len() < graph.body.len() && states.results != graph.results);
        }
        assert!(states(&Graph::default()).is_none());
    }

    #[test]
    fn a_head_reads_its_weight_and_its_bias_and_no_field_of_the_states() {
        let fields = |name: &str| {
            let family = FAMILIES.into_iter().find(|family| family.name == name).unwrap();
            fields(family.kernel.graph().unwrap()).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(fields("llama"), [LM_HEAD]);
        assert_eq!(fields("phi"), [LM_HEAD, "w.head_bias"]);
        assert_eq!(fields("cohere"), [LM_HEAD, "w.logit_scale"]);
    }
}
