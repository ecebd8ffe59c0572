//! Errors of graphs, instances and schedules, with their locations.

use crate::text::OneLine;
use core::fmt;

/// A finding of [`crate::shapes`] or [`crate::lower`]. Codes are `AMK06xx`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphError {
    /// The stable code.
    pub code: &'static str,
    /// The call or assignment of the source ([`crate::graph::CallNode::site`]) at fault; `None`:
    /// the declaration.
    pub site: Option<u32>,
    /// The argument of that call.
    pub arg: Option<u32>,
    /// One line: the defect and the name of the defective item in the user's source.
    pub headline: String,
    /// Facts.
    pub notes: Vec<String>,
    /// One edit that mends it.
    pub help: String,
}

impl GraphError {
    /// A finding about a declaration.
    pub fn new(code: &'static str, headline: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, site: None, arg: None, headline: headline.into(), notes: Vec::new(), help: help.into() }
    }

    /// The same about a call.
    #[must_use]
    pub fn at(mut self, site: u32) -> Self {
        self.site = Some(site);
        self
    }

    /// The same about an argument.
    #[must_use]
    pub fn arg(mut self, arg: usize) -> Self {
        self.arg = Some(arg as u32);
        self
    }

    /// The same with a fact.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A schedule or an instance may contain any text as a name.
        write!(f, "{}: {}", self.code, OneLine(&self.headline))?;
        for note in &self.notes {
            write!(f, "\nnote: {}", OneLine(note))?;
        }
        write!(f, "\nhelp: {}", OneLine(&self.help))
    }
}

impl std::error::Error for GraphError {}
