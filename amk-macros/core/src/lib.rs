//! The amk macros as an ordinary library: parse, lower, check, expand
