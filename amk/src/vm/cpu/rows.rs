//! Steps of rows.

use super::area::Moment;
use super::engine::{Launch, Step};
use super::error::VmError;
use super::memory::Bound;
use super::{Output, Vm, whole};
use crate::rows::{PageEdit, PlacedRow, RowLimits, RowVm, contract};
use crate::tensor::Token;
use amk_ir::{Buffer, BufferId, BufferKind, DType};

impl RowVm for Vm {
    type Error = VmError;

    /// A program without rows has steps of 0 rows.
    fn limits(&self) -> RowLimits {
        let program = self.program();
        let rows = program.rows.unwrap_or(0) as usize;
        RowLimits { rows, positions: program.positions as usize, groups: self.groups.clone() }
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), VmError> {
        let pages = self.groups.get(edit.group).map_or(0, |group| group.pages);
        if let Some(page) = edit.change.pages().find(|&page| page as usize >= pages) {
            return Err(VmError::NoPage { group: self.limits().name(edit.group), page, pages });
        }
        for bound in self.engine.plan.memory.all() {
            if let Bound::State(state) = bound {
                // SAFETY: no worker runs now, and no view of a state is kept.
                unsafe { state.edit_page(edit) };
            }
        }
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), VmError> {
        self.check_rows(&rows)?;
        let step = Step { pos: rows[0].pos, tokens: Vec::new() };
        self.launch(Launch { first: self.steps, steps: vec![step], rows })?;
        self.outputs = self.read_outputs(Moment { step: self.steps - 1, ..Moment::REST });
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        let Some(Output::Tensor(all)) = self.outputs.first() else { return &[] };
        let len = all.len() / all.shape().first().copied().unwrap_or(1).max(1);
        all.data().get(row * len..(row + 1) * len).unwrap_or(&[])
    }
}

impl Vm {
    /// The outputs of a row of the last step that are tokens, in the order of the program's
    /// buffers.
    pub fn row_tokens(&self, row: usize) -> Vec<Token> {
        let program = self.program();
        let is_token = |buffer: &Buffer| (buffer.kind, buffer.dtype) == (BufferKind::Output, DType::U32);
        let outputs = program.buffers.iter().enumerate().filter(|(_, buffer)| is_token(buffer));
        let token = |(index, buffer): (usize, &Buffer)| {
            let Bound::Home(home) = self.engine.plan.memory.bound(BufferId::from(index)) else { return None };
            // SAFETY: no worker runs now.
            let words =
                unsafe { whole(home, buffer)?.load_words(Moment { step: self.steps.checked_sub(1)?, ..Moment::REST }) };
            words.get(row).copied().map(Token)
        };
        outputs.filter_map(token).collect()
    }

    fn check_rows(&self, rows: &[PlacedRow]) -> Result<(), VmError> {
        if self.engine.failure().is_some() {
            return Err(VmError::Poisoned);
        }
        self.program().rows.ok_or(VmError::NoRows)?;
        let tokens = self.engine.plan.memory.token_inputs.len();
        if tokens > 1 {
            return Err(VmError::Tokens { expected: tokens, found: 1 });
        }
        contract::check(&self.limits(), rows)?;
        Ok(())
    }
}
