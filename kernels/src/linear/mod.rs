//! Matrix times vector: the instruction, and the fused projections of the device.

pub(crate) mod blocks;
pub(crate) mod columns;
mod decode;
mod decode_columns;
mod formula;
pub(crate) mod group;
mod layout;
pub(crate) mod phase;
mod pointwise;
pub(crate) mod source;
pub(crate) mod split_k;
mod tile;

pub use columns::{Columns, PartialSums, Reduce};
pub(crate) use decode::{ADDENDS, GEMV};
pub(crate) use decode_columns::REDUCE;
pub use phase::{Gemv, Input, Output, Published, Tiles};
pub use pointwise::Function;
pub use split_k::{Addends, Owner, SplitK};
pub use tile::{TileKind, coded};

use crate::dot::weight_products;
use amk::prelude::*;

/// `y = w x`: `y[n] = sum over k of w[n, k] * x[k]`, accumulated in f32 in an order that is the
/// same for every tile. With [`amk::tensor::Inputs::Q8`] `x` is rounded to bytes first, and
/// products of up to 32 elements are sums of integers.
///
/// `x: [K]` f32, `w: [N, K]` in any encoding; `y: [N]` f32. Source: `torch.nn.Linear` without
/// bias.
///
/// # Panics
/// If `w` is not a matrix with rows of `x`'s length.
#[instruction(
    op = "linear",
    shape = "x: [K], w: [N, K] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]",
    rows = "linear_rows",
    cuda = "body.cuh"
)]
pub fn linear(x: &Tensor, w: &Weight) -> Tensor {
    let x = x.data();
    assert!(matches!(w.shape(), [_, k] if *k == x.len()), "`linear` of x: [{}] and w: {:?}", x.len(), w.shape());
    let mut y = vec![0.0; w.rows()];
    weight_products(x, 1, w, &mut y);
    Tensor::from(y)
}

/// [`linear`] of several vectors: `y[r, n] = sum over k of w[n, k] * x[r, k]`, each row with the
/// bits of [`linear`], and `w` read once.
///
/// `x: [R, K]` f32, `w: [N, K]` in any encoding; `y: [R, N]` f32.
///
/// # Panics
/// If `w` is not a matrix with rows of the length of `x`'s.
pub fn linear_rows(x: &Tensor, w: &Weight) -> Tensor {
    let (&[rows, k], &[n, columns]) = (x.shape(), w.shape()) else {
        panic!("`linear_rows` of x: {:?} and w: {:?}", x.shape(), w.shape())
    };
    assert_eq!(k, columns, "`linear_rows` of x: {:?} and w: {:?}", x.shape(), w.shape());
    let mut y = vec![0.0; rows * n];
    weight_products(x.data(), rows, w, &mut y);
    Tensor::new(&[rows, n], y).unwrap_or_else(|_| Tensor::from([]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, random};
    use half::{bf16, f16};
    use proptest::prelude::*;

    #[test]
    fn columns_out_of_order_meet_their_inputs() {
        let encoding = amk::Encoding::find("int4:32").expect("it should be registered");
        let (x, elements) = (Tensor::from(random(1, 64)), random(2, 5 * 64));
        let order: Vec<u32> = (0..64).map(|column| (column * 29 + 3) % 64).collect();
        let mut blocks = vec![0; encoding.bytes_of(elements.len())];
        encoding.encode.expect("it encodes")(&elements, &mut blocks);
        let stored = Weight::from_vec(encoding, &[5, 64], blocks).unwrap();
        let weight = stored.clone().with_order(order.as_slice().into()).unwrap();
        let gathered: Tensor = order.iter().map(|&column| x.data()[column as usize]).collect();
        let y = linear(&x, &weight);
        assert_eq!(y, linear(&gathered, &stored), "the sum is in the stored order");
        let exact = |row: usize| {
            let row = weight.row(row).to_f32();
            row.iter().zip(x.data()).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        close(y.data(), &(0..5).map(exact).collect::<Vec<f64>>(), 1e-5);
        let two = Tensor::new(&[2, 64], [x.data(), gathered.data()].concat()).unwrap();
        assert_eq!(linear_rows(&two, &weight).data()[..5], *y.data());
    }

    proptest! {
        #[test]
        fn equals_the_sum_in_f64(rows in 1usize..20, columns in 1usize..300, seed in 0u64..1000) {
            let (x, w) = (random(seed, columns), random(seed + 1, rows * columns));
            let naive = |w: &[f32]| -> Vec<f64> {
                let product = |(w, x): (&f32, &f32)| f64::from(*w) * f64::from(*x);
                w.chunks(columns).map(|row| row.iter().zip(&x).map(product).sum()).collect()
            };
            let input = Tensor::from(x.as_slice());
            let half: Vec<f16> = w.iter().map(|&w| f16::from_f32(w)).collect();
            let narrow: Vec<bf16> = w.iter().map(|&w| bf16::from_f32(w)).collect();
            for weight in [
                Weight::f32(&[rows, columns], w).unwrap(),
                Weight::f16(&[rows, columns], half).unwrap(),
                Weight::bf16(&[rows, columns], narrow).unwrap(),
            ] {
                close(linear(&input, &weight).data(), &naive(&weight.to_f32()), 1e-5);
            }
        }

        #[test]
        fn a_tile_gives_the_bits_of_the_whole(rows in 1usize..20, columns in 1usize..200, at in 0usize..20) {
            let at = at % (rows + 1);
            let w = Weight::f32(&[rows, columns], random(1, rows * columns)).unwrap();
            let x = Tensor::from(random(2, columns));
            let whole = linear(&x, &w).into_vec();
            let parts = [0..at, at..rows].map(|part| linear(&x, &w.slice(&[part, 0..columns])).into_vec());
            prop_assert_eq!(whole, parts.concat());
        }
    }

    #[test]
    #[should_panic(expected = "`linear` of x: [3] and w: [2, 4]")]
    fn shapes_must_agree() {
        linear(&Tensor::from([0.0; 3]), &Weight::f32(&[2, 4], vec![0.0; 8]).unwrap());
    }
}
