//! Rows of weights as blocks: each by itself, or so that later elements make up for the errors of
//! earlier ones.

use crate::gram::Gram;
use crate::search::search;
use amk::encoding::Encode;
use amk_kernels::encoding::{Grid, Step};

/// How rows become blocks.
pub(crate) enum Rounding<'a> {
    /// The encoding's own: scales that reach the largest elements.
    Nearest(Encode),
    /// Scales with the least squared error, weighted by the importance of the columns, `[K]`.
    Searched { grid: Grid, importance: &'a [f32] },
    /// GPTQ.
    Compensated { grid: Grid, by: &'a Compensation },
}

/// The errors that later elements of a row make up for.
pub(crate) struct Compensation {
    /// The columns in the order in which they are rounded.
    order: Vec<usize>,
    /// The factor of [`Gram::inverse_factor`] in that order, `[K, K]`.
    factor: Vec<f32>,
    /// The cost of each column's error, `[K]`.
    importance: Vec<f32>,
}

impl Compensation {
    pub(crate) fn new(gram: &Gram) -> Self {
        let squares = gram.mean_squares();
        let mut order: Vec<usize> = (0..gram.size()).collect();
        order.sort_by(|&a, &b| squares[b].total_cmp(&squares[a]));
        let factor = gram.inverse_factor(&order);
        let mut importance = vec![0.0; gram.size()];
        let pivots = factor.iter().step_by(gram.size() + 1);
        order.iter().zip(pivots).for_each(|(&column, pivot)| importance[column] = 1.0 / (pivot * pivot));
        Self { order, factor, importance }
    }
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
            Self::Compensated { grid, by } => compensated(grid, row, by, block, blocks),
        }
    }
}

/// The code of the nearest value; of a block of zeros code 0, whose value is 0.
fn nearest(grid: Grid, step: Step, x: f32) -> i32 {
    if step.scale == 0.0 { 0 } else { grid.code(step, x) }
}

/// GPTQ (Frantar et al. 2022, arXiv:2210.17323, algorithm 1): elements are rounded one after the
/// other, and what one loses goes to those that follow, in the proportions that keep the output
/// closest for the inputs seen.
///
/// The largest inputs come first, while there are many others to make up for them; blocks still
/// consist of neighbours, so their scales are searched before, with what an element's error costs
/// after that compensation.
fn compensated(grid: Grid, row: &mut [f32], by: &Compensation, block: usize, blocks: &mut [u8]) {
    let (columns, bytes) = (row.len(), blocks.len() / (row.len() / block));
    let parts = row.chunks(block).zip(by.importance.chunks(block));
    let steps: Vec<Step> = parts.map(|(elements, importance)| search(grid, elements, importance)).collect();
    let mut ordered: Vec<f32> = by.order.iter().map(|&column| row[column]).collect();
    let mut codes = vec![0; columns];
    for (place, &column) in by.order.iter().enumerate() {
        let (step, factors) = (steps[column / block], &by.factor[place * columns..][place..columns]);
        let code = nearest(grid, step, ordered[place]);
        codes[column] = code;
        let lost = (ordered[place] - grid.value(step, code)) / factors[0];
        ordered[place..].iter_mut().zip(factors).for_each(|(element, factor)| *element -= lost * factor);
    }
    let parts = steps.into_iter().zip(codes.chunks(block)).zip(blocks.chunks_mut(bytes));
    parts.for_each(|((step, codes), block)| grid.join(step, codes, block));
}
