//! The residual: an instruction that copies a value from other workers, and the start of a residual
//! on the device.

mod decode;
mod formula;
mod group;
mod phase;

pub(crate) use decode::{ADOPT, EMBED, lookup};
pub(crate) use group::{Embedding, add};
pub use phase::{Adopt, Embed};
pub(crate) use phase::{embedded, held, hold, look_up};

use amk::prelude::*;

/// `y = x`: copies other workers' results into the worker's own memory.
///
/// `x: [N]`, `y: [N]` f32.
#[instruction(
    op = "adopt",
    shape = "x: [N] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
)]
pub fn adopt(x: &Tensor) -> Tensor {
    x.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_it_gets() {
        assert_eq!(adopt(&Tensor::from([1.0, -2.0])).data(), [1.0, -2.0]);
    }
}
