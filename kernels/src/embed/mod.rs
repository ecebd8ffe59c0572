//! Token embedding.

mod formula;

use amk::prelude::*;

/// Returns the token's row of the table: `y = table[token]`.
///
/// `table: [V, H]` in any encoding; `token` below `V`; `y: [H]` f32, exact. Source:
/// `torch.nn.Embedding`.
///
/// # Panics
/// If the table is not a matrix or does not have the row.
#[instruction(
    op = "embed",
    shape = "table: [V, K], token: [1] -> y: [K]",
    task = "y[..] <- table[.., ..], token[..]",
    cuda = "body.cuh"
)]
pub fn embed(table: &Weight, token: Token) -> Tensor {
    assert!(
        matches!(table.shape(), [rows, _] if token.index() < *rows),
        "token {token} of a table {:?}",
        table.shape()
    );
    Tensor::from(table.row(token.index()).to_f32().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn gives_the_row_of_the_token() {
        let table = Weight::bf16(&[3, 2], (0..6).map(|i| bf16::from_f32(i as f32)).collect()).unwrap();
        assert_eq!(embed(&table, Token(2)).data(), [4.0, 5.0]);
    }

    #[test]
    #[should_panic(expected = "token 3 of a table [3, 2]")]
    fn a_token_outside_the_vocabulary_is_named() {
        embed(&Weight::f32(&[3, 2], vec![0.0; 6]).unwrap(), Token(3));
    }
}
