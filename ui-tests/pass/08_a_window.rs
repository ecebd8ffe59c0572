//! 8. An index map may be a window that ends with the position: `max(0, pos - W + 1)..pos + 1`.
//!
//! `W` is a dim, so the window belongs to the instance. The verifier decides the program for all
//! positions. A task has nothing but its window: reading a position before it panics, and with rows
//! the pages of such positions are given back.

use amk::layout::zeroed;
use amk::prelude::*;
use amk_kernels::append;

/// The sum of the last `window` vectors.
#[instruction(
    op = "sum_last",
    shape = "x: [C, N], window: W -> y: [N]",
    tile = "T = 4",
    task = "n in 0..N step T: y[n..n+T] <- x[max(0, pos - W + 1)..pos + 1, n..n+T]"
)]
pub fn sum_last(x: &State, window: usize, pos: Pos) -> Tensor {
    let end = pos.index() + 1;
    let mut sums = vec![0.0; x.shape()[1]];
    for at in end.saturating_sub(window)..end {
        sums.iter_mut().zip(x.row([at])).for_each(|(sum, x)| *sum += x);
    }
    Tensor::from(sums)
}

#[derive(WeightLayout)]
struct Inputs {
    #[state([CONTEXT, WIDTH])]
    x: State,
}

#[derive(WeightLayout)]
struct Settings {
    #[dim(WINDOW)]
    window: usize,
}

#[megakernel(
    dims(CONTEXT, WIDTH, WINDOW),
    inputs(x: [WIDTH]),
    instances(tiny(CONTEXT = 16, WIDTH = 8, WINDOW = 3)),
    schedule(workers = 2)
)]
fn moving_sum(x: &Tensor, w: &Settings, inputs: &mut Inputs, pos: Pos) -> Tensor {
    append(&mut inputs.x, x, pos);
    sum_last(&inputs.x, w.window, pos)
}

fn main() {
    let dims = MOVING_SUM.instance("tiny").expect("an instance").dims.clone();
    let mut inputs: Inputs = zeroed(&dims).expect("a state");
    let w = Settings { window: 3 };
    let mut sum = |pos: u32| moving_sum(&Tensor::from(vec![1.0 + pos as f32; 8]), &w, &mut inputs, Pos(pos)).data()[0];
    let sums: Vec<f32> = (0..5).map(&mut sum).collect();
    assert_eq!(sums, [1.0, 3.0, 6.0, 9.0, 12.0]);
}
