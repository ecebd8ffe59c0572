//! The body's forms, each lowered with hand-made records.
