//! `amk dump schedule`.

use super::Dump;
use crate::check::read_source;
use crate::options::print;
use amk::ir::lower::{Decided, Lowered, lower};
use amk::ir::schedule::Schedule;
use amk::ir::shapes;
use amk::ir::text::{is_graph, parse_graph};
use amk_models::model::find_instance;
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;

impl Dump {
    /// Prints which calls run in one task and how they are cut; with `--why` also why others do
    /// not.
    pub(super) fn print_schedule(&self) -> Result<()> {
        let mut text = String::new();
        for Lowered { program, decided, .. } in self.lowered()? {
            writeln!(text, "{}: {} tasks on {} workers", program.name, program.tasks.len(), program.queues.workers())?;
            write!(text, "{decided}")?;
            if self.why {
                why(&mut text, &decided)?;
            }
        }
        print(&text)
    }

    /// The model's instance, lowered; or each instance of a graph's text.
    fn lowered(&self) -> Result<Vec<Lowered>> {
        let Some(path) = &self.program else {
            let (family, instance) = find_instance(self.instance_name())?;
            let schedule = self.instance.schedule(&family, &instance, Schedule::default())?;
            return Ok(vec![family.kernel.lower(&instance, Some(&schedule))?]);
        };
        let source = read_source(path)?;
        if !is_graph(&source) {
            bail!("{} is not a graph, whose text starts with a line such as `graph @name`", path.display());
        }
        let mut graph = parse_graph(&source).with_context(|| format!("cannot read {}", path.display()))?;
        let mut errors = shapes::check(&mut graph);
        let (sound, mut all) = (errors.is_empty(), Vec::new());
        for instance in graph.instances.iter().filter(|_| sound) {
            match lower(&graph, instance) {
                Ok(lowered) => all.push(lowered),
                Err(found) => {
                    errors = found;
                    break;
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(all),
            [first, ..] => bail!("{} cannot be lowered: {first}", path.display()),
        }
    }
}

fn why(text: &mut String, decided: &Decided) -> std::fmt::Result {
    let lines = decided.unfused();
    if lines.is_empty() {
        return writeln!(text, "every fusion that is asked for or possible is done");
    }
    lines.iter().try_for_each(|line| writeln!(text, "{line}"))
}
