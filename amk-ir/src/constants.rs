//! The constants of a kernel's layouts that a program was made with.

use std::collections::BTreeMap;

/// Values of float parameters and flags by path (`w.eps`), as far as a program depends on them, and
/// of dims.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Constants {
    /// The floats that are parameters of its calls.
    pub floats: BTreeMap<String, f32>,
    /// The flags that decide which calls it has.
    pub flags: BTreeMap<String, bool>,
    /// The values of all dim fields, and the lengths of lists: `w.layers[].window`,
    /// `w.layers.len()`. The elements of a list have the same.
    pub dims: BTreeMap<String, u64>,
}
