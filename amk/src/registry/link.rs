//! The functions behind the instructions that a program calls.

use super::{Frame, Registry, RegistryError};
use amk_ir::callee::{Callee, Form, Unfit};
use amk_ir::{Call, InstructionId, Program, TaskId};
use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of mismatched forms of calls that are kept.
const KEPT: usize = 1000;

/// A linked function.
pub struct Function {
    /// Calls it on the frame's operands.
    pub run: fn(&mut Frame<'_>),
    /// The same for several rows at once, see [`super::Entry::rows`].
    pub many: Option<fn(&mut Frame<'_>)>,
    /// Its signature, and the sources of its arguments.
    pub callee: Callee,
}

/// The functions that a program calls, and the reasons why some cannot be called.
#[derive(Default)]
pub struct Linked {
    /// The functions, by instruction.
    pub functions: BTreeMap<InstructionId, Function>,
    /// Instructions without a function.
    pub missing: Vec<RegistryError>,
    /// Instructions and calls that do not match the functions.
    pub unfit: Vec<Unfit>,
}

impl Registry {
    /// Resolves a program's instructions and compares them with the linked functions: declarations
    /// with signatures, and each call's operands, parameters and tiles with the function's.
    /// Instructions that are not called are ignored.
    pub fn link(&self, program: &Program) -> Linked {
        let mut linker =
            Linker { registry: self, program, seen: HashMap::new(), forms: HashMap::new(), out: Linked::default() };
        for (n, task) in program.tasks.iter().enumerate() {
            for (k, call) in task.calls.iter().enumerate() {
                linker.call(TaskId::from(n), k as u32, call);
            }
        }
        linker.out
    }
}

struct Linker<'a> {
    registry: &'a Registry,
    program: &'a Program,
    /// Resolved instructions, and whether each has a function.
    seen: HashMap<InstructionId, bool>,
    /// Calls repeat the same forms: each form is compared once. For a misfit, the place of its
    /// finding.
    forms: HashMap<(InstructionId, Form), Option<usize>>,
    out: Linked,
}

impl Linker<'_> {
    fn call(&mut self, task: TaskId, number: u32, call: &Call) {
        if !self.is_linked(call.instruction) {
            return;
        }
        let Some(Function { callee, .. }) = self.out.functions.get(&call.instruction) else { return };
        match self.forms.entry((call.instruction, Form::of(self.program, call))) {
            Slot::Occupied(known) => {
                let finding = known.get().and_then(|place| self.out.unfit.get_mut(place));
                if let Some(Unfit::Call { alike, .. }) = finding {
                    *alike += 1;
                }
            }
            Slot::Vacant(form) => {
                let misfit = callee.check(&form.key().1).err();
                let finding = misfit.map(|misfit| Unfit::call(task, number, callee, misfit));
                form.insert(finding.is_some().then_some(self.out.unfit.len()));
                self.out.unfit.extend(finding.filter(|_| self.out.unfit.len() < KEPT));
            }
        }
    }

    fn is_linked(&mut self, id: InstructionId) -> bool {
        if let Some(&linked) = self.seen.get(&id) {
            return linked;
        }
        // An instruction that the program does not have is the verifier's to refuse.
        let linked = self.program.instructions.get(id.index()).is_some_and(|instruction| {
            let entry = self.registry.get(&instruction.path);
            match entry.and_then(|entry| Ok((entry.run, entry.rows, entry.signature()?))) {
                Ok((run, many, signature)) => match Callee::new(instruction, signature) {
                    Ok(callee) => {
                        self.out.functions.insert(id, Function { run, many, callee });
                        true
                    }
                    Err(why) => {
                        self.out.unfit.push(Unfit::Declaration { instruction: id, why });
                        false
                    }
                },
                Err(error) => {
                    self.out.missing.push(error);
                    false
                }
            }
        });
        self.seen.insert(id, linked);
        linked
    }
}
