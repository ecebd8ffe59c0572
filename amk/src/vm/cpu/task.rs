//! Running one task.

use super::area::Moment;
use super::plan::{ArgumentPlan, CallPlan, ResultPlan, TaskPlan};
use crate::registry::{Argument, Frame, Output};
use crate::tensor::Token;
use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a task failed.
pub(super) enum TaskFailure {
    Panicked(String),
    Result { number: usize, expected: String, found: String },
}

/// Runs the calls of a task in order.
///
/// # Safety
/// The program is verified, and every wait of the task is over: so, until the task's signals,
/// nobody else writes what it reads nor touches what it writes. `moment.locals` is the worker's
/// own, as large as the plan says.
pub(super) unsafe fn run<'p>(
    task: &'p TaskPlan,
    moment: Moment,
    tokens: &[Token],
    frame: &mut Frame<'p>,
) -> Result<(), TaskFailure> {
    let calls = AssertUnwindSafe(|| {
        // SAFETY: as the caller promises.
        task.calls.iter().try_for_each(|call| unsafe { run_call(call, moment, tokens, frame) })
    });
    let outcome = catch_unwind(calls).unwrap_or_else(|panic| Err(TaskFailure::Panicked(message(&*panic))));
    // Also after a panic: views must not outlive the task.
    frame.clear();
    outcome
}

/// # Safety
/// As [`run`].
unsafe fn run_call<'p>(
    call: &'p CallPlan,
    moment: Moment,
    tokens: &[Token],
    frame: &mut Frame<'p>,
) -> Result<(), TaskFailure> {
    frame.clear();
    for argument in &call.arguments {
        // SAFETY: as the caller promises.
        frame.push(unsafe { make(argument, moment, tokens) });
    }
    (call.run)(frame);
    for (number, result) in call.results.iter().enumerate() {
        let output = frame.take_result(number);
        // SAFETY: as the caller promises; the call is over, so none of its views is left.
        unsafe { store(result, output, moment) }.map_err(|(expected, found)| TaskFailure::Result {
            number,
            expected,
            found,
        })?;
    }
    Ok(())
}

/// # Safety
/// As [`run`].
unsafe fn make<'p>(argument: &'p ArgumentPlan, moment: Moment, tokens: &[Token]) -> Argument<'p> {
    match argument {
        // SAFETY: nobody writes the region before the task's signals, and the frame drops the
        // tensor before them.
        ArgumentPlan::Tensor(area) => Argument::Tensor(unsafe { area.tensor(moment) }),
        // SAFETY: likewise; the task reads the table, which orders it after the tasks that write
        // it.
        ArgumentPlan::RoutedTensor(routed) => Argument::Tensor(unsafe { routed.at(moment).tensor(moment) }),
        ArgumentPlan::Weight(weight) => Argument::Weight(weight),
        // SAFETY: as for routed tensors.
        ArgumentPlan::PickedWeight(picked) => Argument::Weight(unsafe { picked.at(moment) }),
        // SAFETY: nobody else accesses the region in conflict before the task's signals, and the
        // frame drops the view before.
        ArgumentPlan::State { state, region } => Argument::State(unsafe { state.view(region, moment.pos) }),
        ArgumentPlan::TokenInput(input) => Argument::Token(tokens.get(*input).copied().unwrap_or_default()),
        // SAFETY: nobody writes the region before the task's signals.
        ArgumentPlan::Token(area) => Argument::Token(Token(unsafe { area.load_word(moment) })),
        ArgumentPlan::Float(value) => Argument::Float(*value),
        ArgumentPlan::Dim(value) => Argument::Dim(*value),
        ArgumentPlan::Pos => Argument::Pos(moment.pos),
    }
}

/// Stores a result; else returns the expected and the actual form.
///
/// # Safety
/// As [`run`].
unsafe fn store(result: &ResultPlan, output: Option<Output>, moment: Moment) -> Result<(), (String, String)> {
    let found = |output: Option<Output>| match output {
        Some(Output::Tensor(tensor)) => format!("{:?}", tensor.shape()),
        Some(Output::Token(_)) => "a token".to_owned(),
        None => "nothing".to_owned(),
    };
    let routed;
    let area = match result {
        ResultPlan::Tensor(area) => area,
        ResultPlan::RoutedTensor(of_table) => {
            // SAFETY: the task reads the table, which orders it after the tasks that write it.
            routed = unsafe { of_table.at(moment) };
            &routed
        }
        ResultPlan::Token(area) => {
            let Some(Output::Token(token)) = output else { return Err(("a token".to_owned(), found(output))) };
            // SAFETY: nobody else touches the region before the task's signals.
            unsafe { area.store_word(moment, token.0) };
            return Ok(());
        }
    };
    match output {
        Some(Output::Tensor(tensor)) if *tensor.shape() == *area.extents_at(moment.pos) => {
            // SAFETY: nobody else touches the region before the task's signals.
            unsafe { area.store(moment, tensor.data()) };
            Ok(())
        }
        output => Err((format!("{:?}", area.extents_at(moment.pos)), found(output))),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)").to_owned()
}
