//! Hand-written event tensors: `#[signal(e[..])]` and `#[wait(e[..] == n)]` become signals and
//! waits of the op's tasks.

use super::bound;
use super::task::TiledOp;
use super::unroll::{PlannedCall, Unrolled};
use crate::expr::Expr;
use crate::graph::Graph;
use crate::graph_error::GraphError;
use crate::program::{Element, EventTensor, Program, Wait};
use crate::{EventId, TaskId};
use std::collections::BTreeMap;

/// Ops with hand-written waits, which replace the derived ones.
pub(super) struct Explicit {
    pub(super) waits: Vec<bool>,
}

pub(super) fn apply(
    graph: &Graph,
    unrolled: &Unrolled,
    ops: &[TiledOp],
    program: &mut Program,
) -> Result<Explicit, Vec<GraphError>> {
    let dims = |name: &str| unrolled.dims.get(name).copied();
    let mut errors = Vec::new();
    for event in &graph.events {
        // An extent over 32 bits is over the limit of counters too.
        let extent = |extent: &Expr| extent.eval(&dims).map(|v| u32::try_from(v.max(0)).unwrap_or(u32::MAX));
        let shape: Result<Vec<u32>, _> = event.shape.iter().map(extent).collect();
        match shape {
            Ok(shape) => program.events.push(EventTensor { name: event.name.clone(), shape }),
            Err(error) => errors.push(GraphError::new(
                "AMK0606",
                format!("the extent of event tensor `{}`: {error}", event.name),
                "use declared dims",
            )),
        }
    }
    errors.extend(bound::counters(&program.events).err());
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut explicit = Explicit { waits: vec![false; ops.len()] };
    for (number, op) in ops.iter().enumerate() {
        let call = &unrolled.calls[op.call];
        explicit.waits[number] = !call.waits.is_empty();
        for (task, coordinates) in op.tasks.clone().zip(&op.coordinates) {
            let scope = Scope { dims: &unrolled.dims, call, coordinates };
            if let Err(error) = scope.task(program, TaskId::from(task)) {
                errors.push(error.at(call.site));
                break;
            }
        }
    }
    if errors.is_empty() { Ok(explicit) } else { Err(errors) }
}

struct Scope<'a> {
    dims: &'a BTreeMap<String, i64>,
    call: &'a PlannedCall,
    coordinates: &'a BTreeMap<String, i64>,
}

impl Scope<'_> {
    fn task(&self, program: &mut Program, task: TaskId) -> Result<(), GraphError> {
        for signal in &self.call.signals {
            let on = self.element(program, &signal.event, &signal.coordinates)?;
            program.tasks[task.index()].signals.push(on);
        }
        for wait in &self.call.waits {
            let on = self.element(program, &wait.event, &wait.coordinates)?;
            let threshold = self.number(&wait.threshold)?;
            let threshold = u32::try_from(threshold).unwrap_or(0);
            program.tasks[task.index()].waits.push(Wait { on, threshold });
        }
        Ok(())
    }

    fn number(&self, expr: &Expr) -> Result<i64, GraphError> {
        let value = |name: &str| {
            self.coordinates.get(name).or_else(|| self.call.indices.get(name)).or_else(|| self.dims.get(name)).copied()
        };
        expr.eval(&value).map_err(|error| {
            let known: Vec<&str> =
                self.coordinates.keys().chain(self.call.indices.keys()).map(String::as_str).collect();
            let help = format!("use tile numbers and loop indices ({}), dims and numbers", known.join(", "));
            GraphError::new("AMK0609", error.about(expr), help)
        })
    }

    fn element(&self, program: &Program, event: &str, coordinates: &[Expr]) -> Result<Element, GraphError> {
        let Some(index) = program.events.iter().position(|tensor| tensor.name == event) else {
            let known: Vec<&str> = program.events.iter().map(|tensor| tensor.name.as_str()).collect();
            let help = match known.is_empty() {
                true => format!("declare it: `events({event}[..])`"),
                false => format!("use one of: {}", known.join(", ")),
            };
            return Err(GraphError::new("AMK0609", format!("unknown event tensor `{event}`"), help));
        };
        let shape = &program.events[index].shape;
        if shape.len() != coordinates.len() {
            let headline = format!("`{event}` has {} dimensions, found {} coordinates", shape.len(), coordinates.len());
            return Err(GraphError::new("AMK0610", headline, "give one coordinate a dimension"));
        }
        let mut flat = 0u32;
        for (expr, &extent) in coordinates.iter().zip(shape) {
            let value = self.number(expr)?;
            let inside = u32::try_from(value).ok().filter(|&value| value < extent);
            let Some(inside) = inside else {
                let headline =
                    format!("coordinate `{expr}` = {value} is outside `{event}`, which has {extent} elements there");
                let tile: Vec<String> =
                    self.coordinates.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                let error =
                    GraphError::new("AMK0610", headline, "make the event tensor larger or the coordinate smaller");
                return Err(error.note(format!("at tile {}", tile.join(", "))));
            };
            flat = flat.saturating_mul(extent).saturating_add(inside);
        }
        Ok(Element { event: EventId::from(index), index: flat })
    }
}
