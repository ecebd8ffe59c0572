//! `strftime_now` of chat templates: the current time by a Python format.

use jiff::Zoned;
use minijinja::{Error, ErrorKind};

/// `time` by the conversion specifiers of C and Python; one that is not known is an error.
pub(super) fn format(time: &Zoned, format: &str) -> Result<String, Error> {
    let written = jiff::fmt::strtime::format(format, time);
    written.map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}")))
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn specifiers_are_those_of_python() {
        let time = "2024-07-26T09:05:03+02:00[+02:00]".parse().unwrap();
        assert_eq!(format(&time, "%d %b %Y").unwrap(), "26 Jul 2024");
        assert_eq!(format(&time, "%A, %B %d, %Y %H:%M:%S").unwrap(), "Friday, July 26, 2024 09:05:03");
        assert!(format(&time, "%!").is_err());
    }
}
