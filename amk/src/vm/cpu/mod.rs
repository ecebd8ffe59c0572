//! The CPU VM.
