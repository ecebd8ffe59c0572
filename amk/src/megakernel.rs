//! The `static` that `#[megakernel]` emits next to the function.

use crate::registry::Entry;
use amk_ir::graph::{Graph, Instance};
use amk_ir::graph_error::GraphError;
use amk_ir::lower::unroll::{Unrolled, unroll};
use amk_ir::lower::{Lowered, lower, lower_with};
use amk_ir::schedule::Schedule;
use amk_ir::verify::{Rejected, Verified, certify, verify_with};
use std::any::TypeId;
use std::sync::OnceLock;

/// An annotated function as data: the graph from which programs are made.
pub struct Megakernel {
    name: &'static str,
    json: &'static str,
    calls: &'static [Called],
    graph: OnceLock<Result<Graph, MegakernelError>>,
}

/// The path of an instruction in the graph, and the type of the function that is called for it.
pub type Called = (&'static str, fn() -> TypeId);

/// Reasons why an annotated function yields no program.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MegakernelError {
    /// The graph was written by a different version of amk.
    #[error("the graph of `{kernel}` cannot be read ({cause}); build its crate with this version of amk")]
    Graph {
        /// The function's name.
        kernel: String,
        /// The cause.
        cause: String,
    },
    /// The function calls a function other than the graph's instruction: a function of the same
    /// name shadows an instruction imported by a glob, but not the companion macro from which
    /// `#[megakernel]` reads the signature.
    #[error(
        "`{kernel}` calls a function that hides the instruction `{instruction}` of its graph; rename the function, or \
         import the instruction by its name"
    )]
    Hidden {
        /// The function's name.
        kernel: String,
        /// The instruction's path.
        instruction: String,
    },
    /// The function does not declare this instance.
    #[error("`{kernel}` has no instance `{instance}`; it has: {known}")]
    NoInstance {
        /// The function's name.
        kernel: String,
        /// The requested name.
        instance: String,
        /// The declared instances, separated by commas.
        known: String,
    },
    /// The graph cannot be lowered for these dims or with this schedule.
    #[error("`{kernel}` cannot be lowered for `{instance}`:\n{}", lines(errors))]
    Lower {
        /// The function's name.
        kernel: String,
        /// The instance's name.
        instance: String,
        /// The errors.
        errors: Vec<GraphError>,
    },
    /// The verifier rejects the program.
    #[error("`{kernel}` is not safe to run:\n{rejected}")]
    Rejected {
        /// The function's name.
        kernel: String,
        /// The report.
        rejected: Box<Rejected>,
    },
}

/// Formats the errors, each text once with its number of occurrences: the layers of a model share
/// theirs.
fn lines(errors: &[GraphError]) -> String {
    let mut texts: Vec<(String, usize)> = Vec::new();
    for text in errors.iter().map(GraphError::to_string) {
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => texts.push((text, 1)),
        }
    }
    let line = |(text, count): &(String, usize)| match count {
        1 => text.clone(),
        _ => format!("{text}\n  note: {count} times"),
    };
    texts.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl Megakernel {
    /// Makes the kernel of the function `name` from its graph as JSON and the functions that it
    /// calls, which must be the graph's instructions. Called by `#[megakernel]`.
    pub const fn new(name: &'static str, graph: &'static str, calls: &'static [Called]) -> Self {
        Self { name, json: graph, calls, graph: OnceLock::new() }
    }

    /// The function's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the graph, with symbolic dims. It is parsed once.
    ///
    /// # Errors
    /// [`MegakernelError::Graph`] or [`MegakernelError::Hidden`].
    pub fn graph(&self) -> Result<&Graph, MegakernelError> {
        self.graph.get_or_init(|| self.read()).as_ref().map_err(Clone::clone)
    }

    fn read(&self) -> Result<Graph, MegakernelError> {
        let kernel = || self.name.to_owned();
        for entry in inventory::iter::<Entry> {
            let called = self.calls.iter().find(|(path, _)| *path == entry.path);
            if called.is_some_and(|(_, function)| function() != (entry.function)()) {
                return Err(MegakernelError::Hidden { kernel: kernel(), instruction: entry.path.to_owned() });
            }
        }
        serde_json::from_str(self.json)
            .map_err(|error| MegakernelError::Graph { kernel: kernel(), cause: error.to_string() })
    }

    /// Returns the declared instance with this name.
    ///
    /// # Errors
    /// [`MegakernelError::NoInstance`], and the errors of [`Self::graph`].
    pub fn instance(&self, name: &str) -> Result<&Instance, MegakernelError> {
        let graph = self.graph()?;
        graph.instances.iter().find(|instance| instance.name == name).ok_or_else(|| {
            let known: Vec<&str> = graph.instances.iter().map(|instance| instance.name.as_str()).collect();
            let (kernel, instance) = (self.name.to_owned(), name.to_owned());
            MegakernelError::NoInstance { kernel, instance, known: known.join(", ") }
        })
    }

    /// Lowers the program for an instance, which may be declared or made from a checkpoint's
    /// configuration, with `schedule`; if it is `None`, with the instance's own schedule or else
    /// the function's.
    ///
    /// # Errors
    /// [`MegakernelError::Lower`].
    pub fn lower(&self, instance: &Instance, schedule: Option<&Schedule>) -> Result<Lowered, MegakernelError> {
        let graph = self.graph()?;
        let lowered = match schedule {
            Some(schedule) => lower_with(graph, instance, schedule),
            None => lower(graph, instance),
        };
        lowered.map_err(|errors| self.not_lowered(instance, errors))
    }

    /// Returns the calls of an instance, before they are tiled into tasks.
    ///
    /// # Errors
    /// [`MegakernelError::Lower`].
    pub fn unrolled(&self, instance: &Instance, schedule: &Schedule) -> Result<Unrolled, MegakernelError> {
        unroll(self.graph()?, instance, schedule).map_err(|errors| self.not_lowered(instance, errors))
    }

    fn not_lowered(&self, instance: &Instance, errors: Vec<GraphError>) -> MegakernelError {
        MegakernelError::Lower { kernel: self.name.to_owned(), instance: instance.name.clone(), errors }
    }

    /// Returns the verified program for an instance, with a schedule as in [`Self::lower`].
    ///
    /// # Errors
    /// [`MegakernelError::Lower`] or [`MegakernelError::Rejected`].
    pub fn verified(&self, instance: &Instance, schedule: Option<&Schedule>) -> Result<Verified, MegakernelError> {
        let Lowered { program, constants, .. } = self.lower(instance, schedule)?;
        let verified = verify_with(program, constants).map_err(|rejected| MegakernelError::Rejected {
            kernel: self.name.to_owned(),
            rejected: Box::new(rejected),
        })?;
        if cfg!(debug_assertions) {
            second_opinion(&verified);
        }
        Ok(verified)
    }
}

/// Checks the certificate of a program, if it has one that is small enough to check.
///
/// # Panics
/// If the checker refuses it, which means that the verifier has accepted a program that it cannot
/// prove safe.
fn second_opinion(verified: &Verified) {
    let Ok(certificate) = certify(verified) else { return };
    match amk_checker::check(verified.program(), &certificate) {
        Ok(()) | Err(amk_checker::Refusal::TooLarge { .. }) => {}
        Err(refusal) => panic!("the certificate of `{}` is refused: {refusal}", verified.program().name),
    }
}
