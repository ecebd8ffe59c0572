//! Running one task.

use super::area::Moment;
use super::engine::Launch;
use super::observer::{ObservedCall, Observer};
use super::plan::{ArgumentPlan, CallPlan, ResultPlan, TaskPlan};
use crate::registry::{Argument, Frame, Output};
use crate::rows::{PageTables, PlacedRow};
use crate::tensor::Token;
use amk_ir::{CallRows, TaskId};
use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reasons why a task fails.
pub(super) enum TaskFailure {
    Panicked(String),
    Result { number: usize, expected: String, found: String },
}

/// The inputs of a call other than tensors, of a step or of one of its rows.
#[derive(Clone, Copy)]
struct Given<'a> {
    moment: Moment,
    /// By token input.
    tokens: &'a [Token],
    /// The page tables of the row's sequence.
    pages: Option<&'a PageTables>,
    watch: Option<Watch<'a>>,
}

/// The observer of a call, and the call's identity.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub(super) observer: &'a dyn Observer,
    pub(super) task: TaskId,
    /// The call's number in the task.
    pub(super) number: usize,
}

impl Watch<'_> {
    /// Shows the call that the frame is filled for.
    fn show(self, rows: &[usize], frame: &Frame<'_>) {
        let Self { observer, task, number } = self;
        observer.see(&ObservedCall { task, number, rows, arguments: frame.arguments() });
    }
}

/// Runs the calls of a task in order, in step `number` of a launch that starts at the step of
/// `moment`.
///
/// # Safety
/// The program is verified, and every wait of the task is satisfied, so that until the task's
/// signals no one else writes what it reads or accesses what it writes. `moment.locals` is the
/// worker's own memory, as large as the plan requires.
pub(super) unsafe fn run<'p>(
    task: &'p TaskPlan,
    moment: Moment,
    (launch, number): (&Launch, usize),
    watch: Option<Watch<'_>>,
    frame: &mut Frame<'p>,
) -> Result<(), TaskFailure> {
    let calls = AssertUnwindSafe(|| {
        task.calls.iter().enumerate().try_for_each(|(call_number, call)| {
            let watch = watch.map(|watch| Watch { number: call_number, ..watch });
            let given = Given { moment, tokens: &launch.steps[number].tokens, pages: None, watch };
            match call.rows {
                // SAFETY: as the caller promises.
                None => unsafe { run_call(call, given, frame) },
                // SAFETY: as the caller promises.
                Some(rows) => unsafe { run_rows(call, rows, given, &launch.rows, frame) },
            }
        })
    });
    let outcome = catch_unwind(calls).unwrap_or_else(|panic| Err(TaskFailure::Panicked(message(&*panic))));
    // Also after a panic: views must not outlive the task.
    frame.clear();
    outcome
}

/// Runs a call for the rows of it that are in the step.
///
/// # Safety
/// As for [`run`].
unsafe fn run_rows<'p>(
    call: &'p CallPlan,
    of: CallRows,
    given: Given<'_>,
    rows: &[PlacedRow],
    frame: &mut Frame<'p>,
) -> Result<(), TaskFailure> {
    let first = of.first as usize;
    let asked = rows.iter().enumerate().take(of.end as usize).skip(first);
    let asked = asked.filter(|(_, row)| row.wanted || !of.wanted);
    let at = |(number, row): (usize, &PlacedRow)| Moment {
        pos: row.pos,
        row: number,
        row_of_call: number - first,
        ..given.moment
    };
    if let Some(many) = call.many {
        let moments: Vec<Moment> = asked.clone().map(at).collect();
        if moments.len() > 1 {
            // SAFETY: as the caller promises.
            return unsafe { run_many(call, many, &moments, given.watch, frame) };
        }
    }
    for (number, row) in asked {
        let tokens = core::slice::from_ref(&row.token);
        let given = Given { moment: at((number, row)), tokens, pages: Some(&row.pages), ..given };
        // SAFETY: as the caller promises.
        unsafe { run_call(call, given, frame)? };
    }
    Ok(())
}

/// Runs a call for several rows with its function for several rows.
///
/// # Safety
/// As for [`run`].
unsafe fn run_many<'p>(
    call: &'p CallPlan,
    many: fn(&mut Frame<'_>),
    moments: &[Moment],
    watch: Option<Watch<'_>>,
    frame: &mut Frame<'p>,
) -> Result<(), TaskFailure> {
    let given = Given { moment: moments[0], tokens: &[], pages: None, watch };
    frame.clear();
    for argument in &call.arguments {
        frame.push(match argument {
            // SAFETY: as in `make`.
            ArgumentPlan::Tensor(area) => unsafe { area.stacked(moments) }.map_or(Argument::Taken, Argument::Tensor),
            // SAFETY: as the caller promises.
            other => unsafe { make(other, given) },
        });
    }
    if let Some(watch) = watch {
        watch.show(&moments.iter().map(|moment| moment.row).collect::<Vec<_>>(), frame);
    }
    many(frame);
    for (number, result) in call.results.iter().enumerate() {
        let output = frame.take_result(number);
        let (ResultPlan::Tensor(area), Some(Output::Tensor(stack))) = (result, output) else {
            let expected = format!("a tensor of {} rows", moments.len());
            return Err(TaskFailure::Result { number, expected, found: "something else".to_owned() });
        };
        let extents = area.extents_at(given.moment.pos);
        if stack.shape().split_first() != Some((&moments.len(), &extents)) {
            let expected = format!("{} rows of {extents:?}", moments.len());
            return Err(TaskFailure::Result { number, expected, found: format!("{:?}", stack.shape()) });
        }
        for (&moment, row) in moments.iter().zip(stack.data().chunks(extents.elements().max(1))) {
            // SAFETY: as in `store`.
            unsafe { area.store(moment, row) };
        }
    }
    Ok(())
}

/// # Safety
/// As for [`run`].
unsafe fn run_call<'p>(call: &'p CallPlan, given: Given<'_>, frame: &mut Frame<'p>) -> Result<(), TaskFailure> {
    frame.clear();
    for argument in &call.arguments {
        // SAFETY: as the caller promises.
        frame.push(unsafe { make(argument, given) });
    }
    if let Some(watch) = given.watch {
        watch.show(&[given.moment.row], frame);
    }
    (call.run)(frame);
    for (number, result) in call.results.iter().enumerate() {
        let output = frame.take_result(number);
        // SAFETY: as the caller promises; the call is over, so none of its views is left.
        unsafe { store(result, output, given.moment) }.map_err(|(expected, found)| TaskFailure::Result {
            number,
            expected,
            found,
        })?;
    }
    Ok(())
}

/// # Safety
/// As for [`run`].
unsafe fn make<'p>(argument: &'p ArgumentPlan, given: Given<'_>) -> Argument<'p> {
    let moment = given.moment;
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
        ArgumentPlan::State { state, region } => {
            let paged = given.pages.map(|pages| state.in_pages(pages));
            // SAFETY: nobody else accesses the region in conflict before the task's signals, and
            // the frame drops the view before.
            Argument::State(unsafe { paged.as_ref().unwrap_or(state).view(region, moment.pos) })
        }
        ArgumentPlan::TokenInput(input) => Argument::Token(given.tokens.get(*input).copied().unwrap_or_default()),
        // SAFETY: nobody writes the region before the task's signals.
        ArgumentPlan::Token(area) => Argument::Token(Token(unsafe { area.load_word(moment) })),
        ArgumentPlan::Float(value) => Argument::Float(*value),
        ArgumentPlan::Dim(value) => Argument::Dim(*value),
        ArgumentPlan::Pos => Argument::Pos(moment.pos),
    }
}

/// Stores a result; if it does not match, returns the expected and the actual form.
///
/// # Safety
/// As for [`run`].
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
