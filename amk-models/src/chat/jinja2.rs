//! Filters and tests as in Jinja2, where minijinja lacks them or differs.

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, Value, filters};

use super::padding;

/// Adds them to the environment, replacing minijinja's.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", is_sequence);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("wordcount", minijinja_contrib::filters::wordcount);
}

/// Whether the value has a length and items, as strings and mappings do.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
}

/// Values that are not numbers become 0.
fn int(state: &State, value: &Value, default: Option<Value>, base: Option<u32>, named: Kwargs) -> Result<Value, Error> {
    let default = default_of(default, &named, 0.into())?;
    filters::int(state, value, Some(default), base, named)
}

/// Values that are not numbers become 0.
fn float(state: &State, value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = default_of(default, &named, 0.0.into())?;
    filters::float(state, value, Some(default), named)
}

fn default_of(positional: Option<Value>, named: &Kwargs, otherwise: Value) -> Result<Value, Error> {
    match positional {
        Some(default) => Ok(default),
        None => Ok(named.get::<Option<Value>>("default")?.unwrap_or(otherwise)),
    }
}

/// Spaces on both sides.
pub(super) fn center(text: &str, width: Option<usize>) -> Result<String, Error> {
    padding::justify(text, width.unwrap_or(80), ' ', padding::middle)
}

/// Also takes its arguments by position.
pub(super) fn truncate(state: &mut State, value: &Value, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let arguments = arguments.into_values();
    let (positional, named): (&[Value], Kwargs) = from_args(&arguments)?;
    let positional = ["length", "killwords", "end", "leeway"].into_iter().zip(positional.iter().cloned());
    let named = named.args().map(|name| Ok((name, named.get(name)?)));
    let arguments = positional.map(Ok).chain(named).collect::<Result<Kwargs, Error>>()?;
    minijinja_contrib::filters::truncate(state, value, arguments)
}
