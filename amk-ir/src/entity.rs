//! Entities: small typed indices that print the same in `Debug`, in the text format and in errors.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The text format's prefix of this entity.
            pub const PREFIX: &'static str = $prefix;

            /// The index into the table that owns the entity.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            /// Saturates: a table of more than `u32::MAX` entries is refused by the verifier's
            /// structure family.
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

entity!(/// A task: one or more instruction calls on one tile, run by one worker.
    TaskId, "t");
entity!(/// An event tensor.
    EventId, "e");
entity!(/// A buffer.
    BufferId, "b");
entity!(/// A worker: a thread block or a CPU thread.
    WorkerId, "w");
entity!(/// An instruction of the program's table.
    InstructionId, "i");
entity!(/// A table that data-dependent edges depend on.
    TableId, "r");
entity!(/// An op of the graph, as unrolled for an instance.
    OpId, "o");
entity!(/// A value of the graph: a variable of the source.
    ValueId, "v");
entity!(/// A tensor of an unrolled function: what a value of the graph is in one iteration.
    TensorId, "x");
