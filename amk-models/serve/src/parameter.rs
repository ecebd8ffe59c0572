//! Parameters of a request by the names of OpenAI's API, wherever it is read.

use serde_json::Value;

/// Stop strings of one request at most.
const MOST_STOPS: usize = 16;

/// A parameter that is not what its name asks for.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("`{name}` is {value}, expected {expected}")]
pub struct ParameterError {
    name: &'static str,
    value: Value,
    expected: String,
}

/// A seed. Negative ones are seeds too.
///
/// # Errors
/// It is not a whole number of 64 bits with a sign.
pub fn seed(name: &'static str, value: &Value) -> Result<u64, ParameterError> {
    let expected = || format!("a whole number from {} to {}", i64::MIN, i64::MAX);
    value.as_i64().map(i64::cast_unsigned).ok_or_else(|| error(name, value, expected()))
}

/// A number of tokens to write at most.
///
/// # Errors
/// It is not a whole number, or 0.
pub fn max_tokens(name: &'static str, value: &Value) -> Result<usize, ParameterError> {
    let number = value.as_u64().filter(|&number| number > 0).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| error(name, value, "a whole number of at least 1"))
}

/// Strings that end a text: one, or a list.
///
/// # Errors
/// It is neither, there are too many, or one is empty.
pub fn stop(name: &'static str, value: &Value) -> Result<Vec<String>, ParameterError> {
    let texts = match value {
        Value::Array(texts) if texts.len() <= MOST_STOPS => texts,
        one => core::slice::from_ref(one),
    };
    let text = |text: &Value| text.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let expected = || format!("a text or up to {MOST_STOPS} texts, none of them empty");
    texts.iter().map(text).collect::<Option<_>>().ok_or_else(|| error(name, value, expected()))
}

fn error(name: &'static str, value: &Value, expected: impl Into<String>) -> ParameterError {
    ParameterError { name, value: value.clone(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_seed_is_any_number_of_64_bits_with_a_sign() {
        assert_eq!(seed("seed", &json!(-1)), Ok(u64::MAX));
        assert_eq!(seed("seed", &json!(i64::MAX)), Ok(i64::MAX.cast_unsigned()));
        let error = seed("seed", &json!(9_223_372_036_854_775_808_u64)).unwrap_err().to_string();
        assert!(error.starts_with("`seed` is 9223372036854775808, expected a whole number from -92"), "{error}");
        assert!(seed("seed", &json!(1.5)).is_err() && seed("seed", &json!("1")).is_err());
    }

    #[test]
    fn at_least_one_token_is_written() {
        assert_eq!(max_tokens("max_tokens", &json!(1)), Ok(1));
        for none in [json!(0), json!(-1), json!(1.5), json!("5")] {
            let error = max_tokens("max_tokens", &none).unwrap_err().to_string();
            assert_eq!(error, format!("`max_tokens` is {none}, expected a whole number of at least 1"));
        }
    }

    #[test]
    fn no_stop_string_is_empty() {
        assert_eq!(stop("stop", &json!("a")), Ok(vec!["a".to_owned()]));
        assert_eq!(stop("stop", &json!(["a", "b"])), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(stop("stop", &json!([])), Ok(Vec::new()));
        for wrong in [json!(""), json!(["a", ""]), json!(5), json!([null]), json!(vec!["a"; 17])] {
            assert!(stop("stop", &wrong).unwrap_err().to_string().contains("none of them empty"), "{wrong}");
        }
    }
}
