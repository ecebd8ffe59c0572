//! Keywords of a JSON schema that no grammar enforces: refused if strict, otherwise ignored.

use super::GrammarError;
use llguidance::derivre::RegexBuilder;
use llguidance::{panic_utils, regex_to_lark};
use serde_json::{Map, Value};
use std::panic::AssertUnwindSafe;

/// Keywords whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose values are schemas by name.
const NAMED: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Bounds are doubles, which have all whole numbers below this one.
const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// A schema without the keywords that cannot be enforced.
///
/// # Errors
/// It is `strict` and has one.
pub(super) fn enforceable(mut schema: Value, strict: bool) -> Result<Value, GrammarError> {
    check(&mut schema, strict)?;
    Ok(schema)
}

fn check(schema: &mut Value, strict: bool) -> Result<(), GrammarError> {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().try_for_each(|schema| check(schema, strict)),
        Value::Object(keywords) => {
            check_keywords(keywords, strict)?;
            keywords.iter_mut().try_for_each(|(keyword, value)| match value {
                _ if DATA.contains(&keyword.as_str()) => Ok(()),
                Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                    named.values_mut().try_for_each(|schema| check(schema, strict))
                }
                _ => check(value, strict),
            })
        }
        _ => Ok(()),
    }
}

fn check_keywords(keywords: &mut Map<String, Value>, strict: bool) -> Result<(), GrammarError> {
    if !strict {
        keywords.retain(|keyword, value| obstacle(keyword, value).is_none());
        return Ok(());
    }
    let found = keywords.iter().find_map(|(keyword, value)| Some((keyword, obstacle(keyword, value)?)));
    match found {
        Some((keyword, why)) => Err(GrammarError::NotEnforced(format!("`{keyword}` cannot be enforced: {why}"))),
        None => Ok(()),
    }
}

/// Returns why a keyword cannot be enforced, if it cannot.
fn obstacle(keyword: &str, value: &Value) -> Option<String> {
    let of_pattern = |pattern: &str| {
        let why = || format!("`{pattern}` is not in the syntax of Rust's `regex`, without look-around");
        (!is_regular(pattern)).then(why)
    };
    match (keyword, value) {
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "const" | "enum", _) => {
            let number = inexact(value)?;
            Some(format!("{number} is not between -2^53 and 2^53"))
        }
        ("multipleOf", Value::Number(number)) => {
            let fits = number.as_f64().is_none_or(|number| digits(number) <= f64::from(u32::MAX));
            (!fits).then(|| format!("the digits of {number} are a number above {}", u32::MAX))
        }
        ("pattern", Value::String(pattern)) => of_pattern(pattern),
        ("patternProperties", Value::Object(properties)) => properties.keys().find_map(|pattern| of_pattern(pattern)),
        ("$ref", Value::String(reference)) if reference != "#" && !reference.starts_with("#/") => {
            Some(format!("`{reference}` is not in the schema itself, as `#/$defs/..` is"))
        }
        _ => None,
    }
}

/// A number in a value that is not [`EXACT`].
fn inexact(value: &Value) -> Option<&Value> {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() >= EXACT).then_some(value),
        Value::Array(values) => values.iter().find_map(inexact),
        Value::Object(fields) => fields.values().find_map(inexact),
        _ => None,
    }
}

/// The digits of a number as a whole number, which llguidance has 32 bits for.
fn digits(number: f64) -> f64 {
    let mut digits = number.abs();
    while digits.fract() != 0.0 {
        digits *= 10.0;
    }
    digits
}

/// Whether a schema's pattern is a regular expression.
fn is_regular(pattern: &str) -> bool {
    let parse = || RegexBuilder::new().mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    panic_utils::catch_unwind(AssertUnwindSafe(parse)).is_ok()
}
