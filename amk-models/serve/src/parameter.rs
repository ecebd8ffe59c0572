//! Parameters of a request by the names of OpenAI's API, wherever it is read.

use serde_json::Value;

/// Stop strings of one request at most.
const MOST_STOPS: usize = 16;

/// A parameter with an invalid value.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("`{name}` is {value}, expected {expected}")]
pub struct ParameterError {
    name: &'static str,
    value: Value,
    expected: String,
}

/// A seed, which may be negative.
///
/// # Errors
/// If it is not a signed 64-bit integer.
pub fn seed(name: &'static str, value: &Value) -> Result<u64, ParameterError> {
    let expected = || format!("a whole number from {} to {}", i64::MIN, i64::MAX);
    value.as_i64().map(i64::cast_unsigned).ok_or_else(|| error(name, value, expected()))
}

/// The maximum number of tokens to generate.
///
/// # Errors
/// If it is not an integer, or 0.
pub fn max_tokens(name: &'static str, value: &Value) -> Result<usize, ParameterError> {
    let number = value.as_u64().filter(|&number| number > 0).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| error(name, value, "a whole number of at least 1"))
}

/// The number of likeliest tokens to keep, or 0 for all. Some clients send -1 for all.
///
/// # Errors
/// If it is not an integer.
pub fn top_k(name: &'static str, value: &Value) -> Result<u32, ParameterError> {
    let number = value.as_i64().map(|number| u32::try_from(number.max(0)).unwrap_or(u32::MAX));
    number.ok_or_else(|| error(name, value, "a whole number"))
}

/// The probability that the kept tokens must reach. OpenAI's API allows 0, which keeps only the
/// likeliest.
///
/// # Errors
/// If it is not a number from 0 to 1.
pub fn top_p(name: &'static str, value: &Value) -> Result<f32, ParameterError> {
    let number = value.as_f64().filter(|number| (0.0..=1.0).contains(number));
    let number = number.map(|number| (number as f32).max(f32::MIN_POSITIVE));
    number.ok_or_else(|| error(name, value, "a number from 0 to 1"))
}

/// Strings that end a text: one, or a list.
///
/// # Errors
/// If it is neither, there are too many, or one is empty.
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
    fn the_likeliest_tokens_may_be_all_or_one() {
        assert_eq!([-1, 0, 7].map(|top| top_k("top_k", &json!(top))), [Ok(0), Ok(0), Ok(7)]);
        assert_eq!(top_k("top_k", &json!(1_u64 << 40)), Ok(u32::MAX));
        assert!(top_k("top_k", &json!(0.5)).is_err());
        assert_eq!([0.0, 1.0].map(|top| top_p("top_p", &json!(top))), [Ok(f32::MIN_POSITIVE), Ok(1.0)]);
        for wrong in [json!(-0.1), json!(1.5), json!("1")] {
            let error = top_p("top_p", &wrong).unwrap_err().to_string();
            assert_eq!(error, format!("`top_p` is {wrong}, expected a number from 0 to 1"));
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
