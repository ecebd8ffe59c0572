//! Greedy choice.

mod formula;

use amk::prelude::*;

/// Returns the index of the largest element, the lowest of several. NaNs are never chosen.
///
/// `x: [N]` f32, the logits. The token is below `N`, and 0 when all elements are NaN.
#[instruction(op = "argmax", shape = "x: [N] -> token: [1]", task = "token[..] <- x[..]", cuda = "body.cuh")]
pub fn argmax(x: &Tensor) -> Token {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, &value) in x.data().iter().enumerate() {
        if value > best.1 {
            best = (index as u32, value);
        }
    }
    Token(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_first_largest() {
        assert_eq!(argmax(&Tensor::from([1.0, 3.0, f32::NAN, 3.0])), Token(1));
        assert_eq!(argmax(&Tensor::from([f32::NAN, -5.0])), Token(1));
        assert_eq!(argmax(&Tensor::from([f32::NAN, f32::NEG_INFINITY])), Token(0));
    }
}
