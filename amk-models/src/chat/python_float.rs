//! Floating-point numbers as Python writes them.

/// `repr(number)` of Python.
pub(super) fn repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse().unwrap_or(0_i32) {
        -4..16 => format!("{number:?}"),
        exponent => format!("{digits}e{exponent:+03}"),
    }
}

#[cfg(test)]
mod tests {
    use super::repr;

    #[test]
    fn numbers_are_those_of_python() {
        // repr(number) of Python 3.11.
        for expected in [
            "5e-05",
            "1.5e-07",
            "1e+16",
            "1e+22",
            "1e+300",
            "0.0001",
            "123456789012345.0",
            "1234567890123456.8",
            "0.0",
            "-0.0",
            "2.5",
            "-1.25e-10",
            "9999999999999998.0",
            "1.7976931348623157e+308",
            "5e-324",
            "0.1",
            "nan",
            "-inf",
        ] {
            assert_eq!(repr(expected.parse().unwrap()), expected);
        }
    }
}
