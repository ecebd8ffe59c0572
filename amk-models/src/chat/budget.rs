//! The budget of one run of a template: fuel bounds its instructions, and this budget the size of
//! their values and the time.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Bytes that a value counts in addition to its text.
const VALUE_SIZE: usize = 32;
/// Bytes a value may have for no conversation at all.
const LEAST: usize = 1 << 20;
/// Maximum size of a value, as a multiple of the size of the arguments.
const OF_ARGUMENTS: usize = 16;
/// Maximum size of all values of a run together, as a multiple of the maximum size of one.
const TOTAL: usize = 128;
/// Values inside of values; JSON has at most 128.
const MAX_DEPTH: usize = 150;
/// A conversation takes milliseconds.
const MAX_TIME: Duration = Duration::from_secs(10);

/// The bounds of one run, and the remaining amounts.
pub(super) struct Budget {
    /// The most bytes of a value.
    most: usize,
    /// Bytes that may still be made.
    left: AtomicUsize,
    end: Instant,
}

impl Budget {
    /// For a template with these arguments.
    pub(super) fn for_arguments(arguments: &Value) -> Result<Self, Error> {
        let mut size = 0;
        measure(arguments, usize::MAX, MAX_DEPTH, &mut size)?;
        let most = LEAST.saturating_add(size.saturating_mul(OF_ARGUMENTS));
        Ok(Self { most, left: most.saturating_mul(TOTAL).into(), end: Instant::now() + MAX_TIME })
    }

    /// Refuses a value that is too large or too deep; returns its size.
    pub(super) fn check(&self, value: &Value) -> Result<usize, Error> {
        if Instant::now() > self.end {
            return Err(refused(format_args!("it runs longer than {} s", MAX_TIME.as_secs())));
        }
        let mut size = 0;
        measure(value, self.most, MAX_DEPTH, &mut size)?;
        Ok(size)
    }

    /// Refuses `bytes` of a text or list before it is made.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.most { Err(too_large(self.most)) } else { Ok(()) }
    }

    /// Refuses a list that is made of as many items as `value`.
    pub(super) fn check_items(&self, value: &Value) -> Result<(), Error> {
        match value.len() {
            Some(items) if value.as_str().is_none() => self.check_size(items.saturating_mul(VALUE_SIZE)),
            _ => Ok(()),
        }
    }

    /// Takes `bytes` from the remaining amount.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Error> {
        let less = |left: usize| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => {
                let total = self.most.saturating_mul(TOTAL);
                Err(refused(format_args!("its texts have more than {total} bytes together")))
            }
        }
    }
}

/// Adds the bytes of `value` to `size`, up to `most`.
fn measure(value: &Value, most: usize, depth: usize, size: &mut usize) -> Result<(), Error> {
    let text = value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len));
    *size = size.saturating_add(VALUE_SIZE + text.unwrap_or_default());
    if *size > most {
        return Err(too_large(most));
    }
    let Some(inside) = depth.checked_sub(1) else {
        return Err(refused(format_args!("a value has more than {MAX_DEPTH} others inside of one another")));
    };
    // Without a length it is made while it is read, and some can be read only once.
    let Some(object) = value.as_object().filter(|_| value.len().is_some()) else { return Ok(()) };
    match value.kind() {
        ValueKind::Map => {
            for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                measure(&key, most, inside, size)?;
                measure(&value, most, inside, size)?;
            }
        }
        _ => {
            for item in object.try_iter().into_iter().flatten() {
                measure(&item, most, inside, size)?;
            }
        }
    }
    Ok(())
}

/// The value, unless it is a namespace or has one inside.
pub(super) fn without_namespace(value: Value) -> Result<Value, Error> {
    if has_namespace(&value, MAX_DEPTH) {
        return Err(refused("a namespace cannot be assigned to a field of a namespace"));
    }
    Ok(value)
}

fn has_namespace(value: &Value, depth: usize) -> bool {
    let Some(object) = value.as_object().filter(|_| value.len().is_some()) else { return false };
    // The type is private to minijinja.
    if object.type_name().ends_with("::Namespace") || depth == 0 {
        return true;
    }
    match value.kind() {
        ValueKind::Map => {
            object.try_iter_pairs().into_iter().flatten().any(|(_, value)| has_namespace(&value, depth - 1))
        }
        _ => object.try_iter().into_iter().flatten().any(|item| has_namespace(&item, depth - 1)),
    }
}

fn too_large(most: usize) -> Error {
    refused(format_args!("a value has more than {most} bytes"))
}

/// The template asks for more than it may have.
pub(super) fn refused(what: impl Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_takes_long_is_refused() {
        let budget = Budget { end: Instant::now(), ..Budget::for_arguments(&Value::from(())).unwrap() };
        let error = budget.check(&Value::from(1)).unwrap_err();
        assert_eq!(error.detail(), Some("it runs longer than 10 s"));
    }

    #[test]
    fn a_long_conversation_has_a_larger_budget() {
        let text = Value::from("x".repeat(2 << 20));
        assert!(Budget::for_arguments(&Value::from(1)).unwrap().check(&text).is_err());
        assert!(Budget::for_arguments(&text).unwrap().check(&Value::from(vec![text; 3])).is_ok());
    }
}
