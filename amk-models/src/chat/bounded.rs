//! minijinja's filters and methods whose results are larger than their inputs, within a budget.

use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, Value, filters};

use super::budget::Budget;
use super::{jinja2, python_text};

/// How many bytes of text a filter makes at most of a text and arguments.
type Bound = fn(&Budget, &str, &[Value]) -> Result<usize, Error>;

/// Replaces the filters of the environment by ones that keep to the budget.
pub(super) fn add_to(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    for (name, filter, bound) in of_texts() {
        add(environment, name, budget, filter, move |budget, value, arguments| {
            value.as_str().map_or(Ok(()), |text| budget.check_size(bound(budget, text, arguments)?))
        });
    }
    for (name, filter) in of_lists() {
        add(environment, name, budget, filter, move |budget, value, arguments| match name {
            "join" => check_join(budget, value, arguments),
            "batch" | "slice" => {
                budget.check_items(value)?;
                let count = arguments.first().and_then(Value::as_usize);
                budget.check_size(count.unwrap_or_default().saturating_mul(size_of::<Value>()))
            }
            _ => budget.check_items(value),
        });
    }
    let budget = Arc::clone(budget);
    environment.add_filter("string", move |value: &Value| -> Result<Value, Error> {
        if value.as_str().is_some() {
            return Ok(value.clone());
        }
        budget.check(value)?;
        checked(&budget, python_text::str(value).into())
    });
}

/// The text filters, each with a bound on its result.
fn of_texts() -> [(&'static str, Value, Bound); 14] {
    [
        ("capitalize", Value::from_function(filters::capitalize), unchanged),
        ("center", Value::from_function(jinja2::center), unchanged),
        ("e", Value::from_function(filters::escape), unchanged),
        ("escape", Value::from_function(filters::escape), unchanged),
        ("format", Value::from_function(filters::format), formatted),
        ("indent", Value::from_function(filters::indent), indented),
        ("lower", Value::from_function(filters::lower), unchanged),
        ("replace", Value::from_function(filters::replace), replaced),
        ("split", Value::from_function(filters::split), unchanged),
        ("title", Value::from_function(filters::title), unchanged),
        ("trim", Value::from_function(filters::trim), unchanged),
        ("truncate", Value::from_function(jinja2::truncate), unchanged),
        ("upper", Value::from_function(filters::upper), unchanged),
        ("urlencode", Value::from_function(filters::urlencode), unchanged),
    ]
}

/// The filters that make lists, or texts of them.
fn of_lists() -> [(&'static str, Value); 20] {
    [
        ("batch", Value::from_function(filters::batch)),
        ("slice", Value::from_function(filters::slice)),
        ("join", Value::from_function(filters::join)),
        ("list", Value::from_function(filters::list)),
        ("map", Value::from_function(filters::map)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("reverse", Value::from_function(filters::reverse)),
        ("groupby", Value::from_function(filters::groupby)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("sum", Value::from_function(filters::sum)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("last", Value::from_function(filters::last)),
        ("lines", Value::from_function(filters::lines)),
        ("pprint", Value::from_function(filters::pprint)),
    ]
}

fn add(
    environment: &mut Environment<'_>,
    name: &'static str,
    budget: &Arc<Budget>,
    filter: Value,
    check: impl Fn(&Budget, &Value, &[Value]) -> Result<(), Error> + Send + Sync + 'static,
) {
    let budget = Arc::clone(budget);
    environment.add_filter(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let arguments = arguments.into_values();
        if let Some((value, others)) = arguments.split_first() {
            check(&budget, value, others)?;
        }
        checked(&budget, filter.call(state, &arguments)?)
    });
}

/// Returns the result of a filter or a method, if it is not too large.
pub(super) fn checked(budget: &Budget, made: Value) -> Result<Value, Error> {
    let size = made.as_str().map(str::len).or_else(|| Some(made.len()?.saturating_mul(size_of::<Value>())));
    let size = size.unwrap_or_default();
    budget.check_size(size)?;
    budget.take(size)?;
    Ok(made)
}

/// Refuses a method's arguments if its result would be too large.
pub(super) fn check_method(budget: &Budget, value: &Value, method: &str, arguments: &[Value]) -> Result<(), Error> {
    let Some(text) = value.as_str() else { return Ok(()) };
    match method {
        "format" => budget.check_size(braces_formatted(budget, text, arguments)?),
        "replace" => budget.check_size(replaced(budget, text, arguments)?),
        "join" => match arguments {
            [list] => check_join(budget, list, std::slice::from_ref(value)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Refuses to join too many items, or too long ones, with the first of `arguments` between them.
fn check_join(budget: &Budget, list: &Value, arguments: &[Value]) -> Result<(), Error> {
    let (_, named): (&[Value], Kwargs) = from_args(arguments)?;
    let between = arguments.first().filter(|first| first.as_str().is_some()).cloned();
    let between = between.or(named.get("d")?).and_then(|text| Some(text.as_str()?.len()));
    let items = list.len().unwrap_or_default();
    let size = budget.check(list)?;
    budget.check_size(size.saturating_add(items.saturating_mul(between.unwrap_or_default())))
}

/// `escape` and `urlencode` write a byte as at most five.
fn unchanged(_: &Budget, text: &str, _: &[Value]) -> Result<usize, Error> {
    Ok(text.len())
}

fn replaced(_: &Budget, text: &str, arguments: &[Value]) -> Result<usize, Error> {
    let [Some(from), Some(to)] = [0, 1].map(|at| arguments.get(at).and_then(Value::as_str)) else {
        return Ok(text.len());
    };
    let found = if from.is_empty() { text.len() + 1 } else { text.matches(from).count() };
    Ok(text.len().saturating_add(found.saturating_mul(to.len())))
}

fn indented(_: &Budget, text: &str, arguments: &[Value]) -> Result<usize, Error> {
    let (_, named): (&[Value], Kwargs) = from_args(arguments)?;
    let width = arguments.first().and_then(Value::as_usize).or(named.get("width")?).unwrap_or(4);
    let lines = text.matches('\n').count() + 1;
    Ok(text.len().saturating_add(lines.saturating_mul(width)))
}

/// `text % arguments`.
fn formatted(budget: &Budget, text: &str, arguments: &[Value]) -> Result<usize, Error> {
    let fields = text.split('%').skip(1).map(|field| match field.strip_prefix('(') {
        Some(key) => key.split_once(')').map_or("", |(_, field)| field),
        None => field,
    });
    let specification =
        |field: &'_ str| -> usize { field.find(|c| !"#- +.0123456789".contains(c)).unwrap_or(field.len()) };
    written(budget, text, arguments, fields.map(|field| &field[..specification(field)]))
}

/// `text.format(arguments)`.
fn braces_formatted(budget: &Budget, text: &str, arguments: &[Value]) -> Result<usize, Error> {
    let fields = text.split('{').skip(1).map(|field| field.split_once('}').map_or(field, |(field, _)| field));
    written(budget, text, arguments, fields.map(|field| field.split_once(':').map_or("", |(_, field)| field)))
}

/// The most bytes of a text with fields of these widths and precisions.
fn written<'a>(
    budget: &Budget,
    text: &str,
    arguments: &[Value],
    fields: impl Iterator<Item = &'a str>,
) -> Result<usize, Error> {
    let longest = arguments.iter().map(|argument| budget.check(argument)).collect::<Result<Vec<_>, _>>()?;
    let longest = longest.into_iter().max().unwrap_or_default();
    let mut size = text.len();
    for field in fields {
        let numbers = field.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        let widths = numbers.map(|digits| digits.parse().unwrap_or(usize::MAX));
        size = widths.fold(size.saturating_add(longest), usize::saturating_add);
    }
    Ok(size)
}
