//! Rotary position embedding.

pub(crate) mod formula;

use amk::prelude::*;

/// Rotates the pair `(x[j], x[j + R])` of each head by the angle `pos * freqs[j]`, for `j < R`, and
/// scales it:
///
/// ```text
/// y[j]     = scale * (x[j] * cos(pos * freqs[j]) - x[j + R] * sin(pos * freqs[j]))
/// y[j + R] = scale * (x[j + R] * cos(pos * freqs[j]) + x[j] * sin(pos * freqs[j]))
/// ```
///
/// Elements of a head from `2 R` on are unchanged (partial rotary embedding). `x: [N]` f32 of `N /
/// head_dim` heads; `freqs: [R]` in radians per position, `2 R <= head_dim`; `scale` is the
/// attention factor of scaled frequencies (yarn), else 1; `y: [N]` f32. Source: Su et al.,
/// RoFormer, 2021, with the element order of `LlamaRotaryEmbedding` (`rotate_half`).
///
/// # Panics
/// If the lengths do not match.
#[instruction(
    op = "rope",
    shape = "x: [N], freqs: [R], head_dim: D -> y: [N]",
    multiples = "N % D",
    task = "h in 0..N step D: y[h..h+D] <- x[h..h+D], freqs[..]",
    cuda = "body.cuh"
)]
pub fn rope(x: &Tensor, freqs: &Weight, head_dim: usize, scale: f32, pos: Pos) -> Tensor {
    let freqs = freqs.row(0).to_f32();
    let half = freqs.len();
    assert!(
        head_dim > 0 && x.len().is_multiple_of(head_dim) && 2 * half <= head_dim,
        "`rope` of x: [{}] with heads of {head_dim} and {half} frequencies",
        x.len()
    );
    // The angle in f32, as in the reference.
    let turns: Vec<(f32, f32)> = freqs.iter().map(|freq| (pos.0 as f32 * freq).sin_cos()).collect();
    let mut y = x.data().to_vec();
    for head in y.chunks_exact_mut(head_dim) {
        let (first, rest) = head.split_at_mut(half);
        for ((a, b), (sin, cos)) in first.iter_mut().zip(rest).zip(&turns) {
            let (sin, cos) = (sin * scale, cos * scale);
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
    Tensor::from(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_the_formula_in_f64(
            heads in 1usize..5, half in 1usize..40, more in 0usize..30, pos in 0u32..4096, scale in 0.5f32..2.0,
        ) {
            let dim = 2 * half + more;
            let x = random(u64::from(pos), heads * dim);
            let freqs: Vec<f32> = (0..half).map(|j| 10000f32.powf(-(j as f32) / half as f32)).collect();
            let mut exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            for head in exact.chunks_mut(dim) {
                for j in 0..half {
                    let (sin, cos) = f64::from(pos as f32 * freqs[j]).sin_cos();
                    let (a, b) = (head[j], head[j + half]);
                    head[j] = f64::from(scale) * (a * cos - b * sin);
                    head[j + half] = f64::from(scale) * (b * cos + a * sin);
                }
            }
            let table = Weight::f32(&[half], freqs).unwrap();
            let y = rope(&Tensor::from(x), &table, dim, scale, Pos(pos));
            close(y.data(), &exact, 1e-5);
        }
    }
}
