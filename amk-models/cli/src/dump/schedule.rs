//! `amk dump schedule`.

use super::Dump;
use crate::check::read_source;
use crate::options::{Device, print};
use amk::ir::lower::{Decided, Lowered, lower};
use amk::ir::schedule::Schedule;
use amk::ir::text::{is_graph, parse_graph};
use amk::ir::{Program, shapes};
use amk_cuda::plan::{self, Plan};
use amk_models::model::find_instance;
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;

impl Dump {
    /// Prints which calls run in one task and how they are cut; with `--why` also why others do
    /// not.
    pub(super) fn print_schedule(&self) -> Result<()> {
        let mut text = String::new();
        if self.device == Device::Cuda {
            let (family, instance) = find_instance(self.instance_name())?;
            phases(&mut text, &self.device_plan(&family, &instance)?, self.why)?;
            return print(&text);
        }
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
            let schedule = self.instance.schedule(&family, &instance, |fields| fields.over(Schedule::default()))?;
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

/// The phases of a GPU's program, and what its calls lack.
fn phases(text: &mut String, plan: &Plan, why: bool) -> std::fmt::Result {
    let Program { name, tasks, queues, .. } = &plan.program;
    writeln!(text, "{name}: {} tasks on {} workers", tasks.len(), queues.workers())?;
    for (number, phase) in plan.phases.iter().enumerate() {
        let tasks = plan.tasks.iter().filter(|(of, ..)| *of == number).count();
        writeln!(text, "phase {number} {}: {tasks} task{}", phase.kind().label(), if tasks == 1 { "" } else { "s" })?;
    }
    if !why {
        return Ok(());
    }
    let lines = plan::lines(&plan.missed);
    if lines.is_empty() {
        return writeln!(text, "every call runs by a fused body");
    }
    lines.iter().try_for_each(|line| writeln!(text, "{line}"))
}

fn why(text: &mut String, decided: &Decided) -> std::fmt::Result {
    let lines = decided.unfused();
    if lines.is_empty() {
        return writeln!(text, "every fusion that is asked for or possible is done");
    }
    lines.iter().try_for_each(|line| writeln!(text, "{line}"))
}
