//! The oracle on programs whose verdict is known.
