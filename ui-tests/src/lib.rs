//! Compile-time acceptance and rejection cases
