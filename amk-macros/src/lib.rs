//! The amk procedural macros
