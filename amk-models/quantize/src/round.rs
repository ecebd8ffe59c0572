//! Rows of weights as blocks: each by itself, or so that later elements make up for the errors of
//! earlier ones.

use crate::search::search;
use amk::encoding::Encode;
use amk_kernels::encoding::Grid;

/// How rows become blocks.
pub(crate) enum Rounding<'a> {
    /// The encoding's own: scales that reach the largest elements.
    Nearest(Encode),
    /// Scales with the least squared error, weighted by the importance of the columns, `[K]`.
    Searched { grid: Grid, importance: &'a [f32] },
    /// GPTQ, with the factor of [`crate::gram::Gram::inverse_factor`], `[K, K]`.
    Compensated { grid: Grid, factor: &'a [f32] },
}

impl Rounding<'_> {
    /// The blocks of a row, each `block` elements.
    pub(crate) fn row(&self, row: &mut [f32], block: usize, blocks: &mut [u8]) {
        match *self {
            Self::Nearest(encode) => encode(row, blocks),
            Self::Searched { grid, importance } => {
                let bytes = blocks.len() / (row.len() / block);
                let parts = row.chunks(block).zip(importance.chunks(block)).zip(blocks.chunks_mut(bytes));
                let mut codes = vec![0; block];
                for ((elements, importance), blocks) in parts {
                    let step = search(grid, elements, importance);
                    codes.iter_mut().zip(elements).for_each(|(code, &x)| *code = nearest(grid, step, x));
                    grid.join(step, &codes, blocks);
                }
            }
            Self::Compensated { grid, factor } => compensated(grid, row, factor, block, blocks),
        }
    }
}

/// The code of the nearest value; of a block of zeros code 0, whose value is 0.
fn nearest(grid: Grid, step: amk_kernels::encoding::Step, x: f32) -> i32 {
    if step.scale == 0.0 { 0 } else { grid.code(step, x) }
}

/// GPTQ (Frantar et al. 2022, arXiv:2210.17323, algorithm 1): elements are rounded in the order of
/// the columns, and what one loses goes to the later ones, in the proportions that keep the output
/// closest for the inputs seen. A block's scale is searched when its first element is reached, with
/// what each element's error costs after that compensation.
fn compensated(grid: Grid, row: &mut [f32], factor: &[f32], block: usize, blocks: &mut [u8]) {
    let (columns, bytes) = (row.len(), blocks.len() / (row.len() / block));
    let importance: Vec<f32> = factor.iter().step_by(columns + 1).map(|pivot| 1.0 / (pivot * pivot)).collect();
    let mut codes = vec![0; block];
    for (number, blocks) in blocks.chunks_mut(bytes).enumerate() {
        let first = number * block;
        let step = search(grid, &row[first..first + block], &importance[first..first + block]);
        for column in first..first + block {
            let code = nearest(grid, step, row[column]);
            codes[column - first] = code;
            let factors = &factor[column * columns..][column..columns];
            let lost = (row[column] - grid.value(step, code)) / factors[0];
            row[column..].iter_mut().zip(factors).for_each(|(element, factor)| *element -= lost * factor);
        }
        grid.join(step, &codes, blocks);
    }
}
