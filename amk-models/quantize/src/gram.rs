//! Second moments of a projection's inputs, and their factor.

use amk::{Tensor, Weight};
use amk_kernels::linear_rows;

/// Part of each element's mean square that is added to it before the factorisation. GPTQ (Frantar
/// et al. 2022, arXiv:2210.17323, section 3.3) adds a part of the mean over all elements, which a
/// few elements of large models dominate: then nothing is left of the others.
const DAMPING: f64 = 0.01;

/// Part of the mean over all elements that is added, too, for elements that are always 0.
const LEAST: f64 = 1e-9;

/// Elements whose products are formed at a time: what lies above the diagonal blocks is mirrored.
const BLOCK: usize = 64;

/// The sum of `x x^T` over the inputs `x: [K]` of a projection.
#[derive(Clone, PartialEq, Debug)]
pub struct Gram {
    size: usize,
    /// `[K, K]`, symmetric.
    sums: Vec<f64>,
    rows: usize,
}

impl Gram {
    /// That of no inputs of `size` elements.
    pub fn new(size: usize) -> Self {
        Self { size, sums: vec![0.0; size * size], rows: 0 }
    }

    /// Elements of an input.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Inputs so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of one of this size.
    pub(crate) fn bytes(size: usize) -> usize {
        size * size * size_of::<f64>()
    }

    /// Adds the inputs `[R, K]`, whose products are summed in f32.
    ///
    /// # Panics
    /// When they are not whole inputs.
    pub fn add(&mut self, inputs: &[f32]) {
        let (size, rows) = (self.size, inputs.len() / self.size.max(1));
        assert_eq!(inputs.len(), rows * size, "inputs of {size} elements");
        if rows == 0 {
            return;
        }
        let mut columns = vec![0.0; inputs.len()];
        for (row, input) in inputs.chunks_exact(size).enumerate() {
            input.iter().enumerate().for_each(|(column, &x)| columns[column * rows + row] = x);
        }
        let fits = "the shape fits the elements";
        let all = Weight::f32(&[size, rows], columns.clone()).expect(fits);
        for (number, block) in columns.chunks(BLOCK * rows).enumerate() {
            let (first, count) = (number * BLOCK, block.len() / rows);
            let x = Tensor::new(&[count, rows], block.to_vec()).expect(fits);
            let products = linear_rows(&x, &all.slice(&[0..first + count, 0..rows]));
            self.add_block(first, first + count, products.data());
        }
        self.rows += rows;
    }

    /// Adds the products of the elements from `first` to `end` with those before `end`, and their
    /// mirror images.
    fn add_block(&mut self, first: usize, end: usize, products: &[f32]) {
        for (i, row) in (first..end).zip(products.chunks_exact(end)) {
            for (j, &product) in row.iter().enumerate() {
                self.sums[i * self.size + j] += f64::from(product);
                if j < first {
                    self.sums[j * self.size + i] += f64::from(product);
                }
            }
        }
    }

    /// The mean square of each element of the inputs, `[K]`; 1 without inputs.
    pub fn mean_squares(&self) -> Vec<f32> {
        if self.rows == 0 {
            return vec![1.0; self.size];
        }
        let diagonal = self.sums.iter().step_by(self.size + 1);
        diagonal.map(|&sum| (sum / self.rows as f64) as f32).collect()
    }

    /// The mean of `(d x)^2` over the inputs, for the error `d: [K]` of a row of weights.
    pub fn mean_square_of(&self, row: &[f32]) -> f64 {
        let products = self
            .sums
            .chunks_exact(self.size.max(1))
            .zip(row)
            .map(|(sums, &a)| f64::from(a) * sums.iter().zip(row).map(|(sum, &b)| sum * f64::from(b)).sum::<f64>());
        products.sum::<f64>() / self.rows.max(1) as f64
    }

    /// The upper triangular `U: [K, K]` with `U^T U = H^-1`, where `H` is, damped, the mean of
    /// `x x^T` over the inputs with their elements in this order; the identity where all are 0.
    ///
    /// With the order of the elements reversed, a Cholesky factor of `H` is upper triangular:
    /// `H = V V^T`. So `H^-1 = V^-T V^-1`, and `U` is `V^-1`.
    pub fn inverse_factor(&self, order: &[usize]) -> Vec<f32> {
        let size = self.size;
        let trace: f64 = self.sums.iter().step_by(size + 1).sum();
        if !(trace.is_finite() && trace > 0.0) {
            return identity(size);
        }
        let least = LEAST * trace / size as f64;
        let mut reversed = Vec::with_capacity(size * size);
        for &i in order.iter().rev() {
            let row = &self.sums[i * size..][..size];
            reversed.extend(order.iter().rev().map(|&j| row[j]));
        }
        reversed.iter_mut().step_by(size + 1).for_each(|element| *element += DAMPING * *element + least);
        cholesky(&mut reversed, size);
        let inverse = invert_lower(&reversed, size);
        // The sums are `rows` times the means.
        let scale = (self.rows as f64).sqrt();
        inverse.iter().rev().map(|&element| (element * scale) as f32).collect()
    }
}

fn identity(size: usize) -> Vec<f32> {
    let mut identity = vec![0.0; size * size];
    identity.iter_mut().step_by(size + 1).for_each(|element| *element = 1.0);
    identity
}

/// The lower triangular factor of a positive definite matrix, in its place.
fn cholesky(matrix: &mut [f64], size: usize) {
    for i in 0..size {
        let (before, rest) = matrix.split_at_mut(i * size);
        let row = &mut rest[..size];
        for j in 0..i {
            let other = &before[j * size..][..=j];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let square = row[i] - dot(&row[..i], &row[..i]);
        // Damping keeps it above 0 but for rounding.
        row[i] = square.max(f64::MIN_POSITIVE).sqrt();
        row[i + 1..].fill(0.0);
    }
}

/// The inverse of a lower triangular matrix.
fn invert_lower(lower: &[f64], size: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; size * size];
    for i in 0..size {
        let (before, rest) = inverse.split_at_mut(i * size);
        let (row, factors) = (&mut rest[..size], &lower[i * size..][..=i]);
        for (k, &factor) in factors[..i].iter().enumerate() {
            let other = &before[k * size..][..=k];
            row.iter_mut().zip(other).for_each(|(sum, &x)| *sum -= factor * x);
        }
        row[i] = 1.0;
        row[..=i].iter_mut().for_each(|element| *element /= factors[i]);
    }
    inverse
}

/// In four sums, so that it becomes vector code.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (a, b) in a.0.iter().zip(b.0) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let rest: f64 = a.1.iter().zip(b.1).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn sums_are_those_of_the_definition() {
        let inputs = random(3, 10 * 7);
        let mut gram = Gram::new(7);
        gram.add(&inputs[..21]);
        gram.add(&inputs[21..]);
        assert_eq!((gram.rows(), gram.size()), (10, 7));
        for i in 0..7 {
            for j in 0..7 {
                let exact: f64 = inputs.chunks(7).map(|x| f64::from(x[i]) * f64::from(x[j])).sum();
                assert!((gram.sums[i * 7 + j] - exact).abs() < 1e-5);
            }
        }
        let row = random(4, 7);
        let outputs = inputs.chunks(7).map(|x| x.iter().zip(&row).map(|(x, w)| x * w).sum::<f32>());
        let exact = outputs.map(|y| f64::from(y).powi(2)).sum::<f64>() / 10.0;
        assert!((gram.mean_square_of(&row) - exact).abs() < 1e-5);
        assert!((f64::from(gram.mean_squares()[2]) - gram.sums[16] / 10.0).abs() < 1e-6);
    }

    #[test]
    fn the_factor_is_that_of_the_damped_inverse() {
        let (size, mut gram) = (9, Gram::new(9));
        let order = [3, 1, 8, 0, 2, 7, 6, 5, 4];
        gram.add(&random(5, 9 * 40));
        let factor: Vec<f64> = gram.inverse_factor(&order).into_iter().map(f64::from).collect();
        assert!((0..size).all(|i| (0..i).all(|j| factor[i * size + j] == 0.0)), "it is upper triangular");
        let damped = |i: usize, j: usize| {
            let sum = gram.sums[order[i] * size + order[j]];
            if i == j { (1.0 + DAMPING) * sum / 40.0 } else { sum / 40.0 }
        };
        let inverse = |i: usize, j: usize| (0..size).map(|k| factor[k * size + i] * factor[k * size + j]).sum::<f64>();
        for i in 0..size {
            for j in 0..size {
                let product: f64 = (0..size).map(|k| damped(i, k) * inverse(k, j)).sum();
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((product - expected).abs() < 1e-4, "element {i}, {j} is {product}");
            }
        }
    }

    #[test]
    fn inputs_of_zeros_have_the_identity() {
        let mut gram = Gram::new(3);
        gram.add(&[0.0; 6]);
        assert_eq!(gram.inverse_factor(&[0, 1, 2]), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }
}
