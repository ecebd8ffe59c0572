//! With tickets one worker is enough, so a wait is for an earlier task.

use amk::prelude::*;
use amk_kernels::add;

#[megakernel(
    dims(HIDDEN),
    inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 16)),
    schedule(workers = 2, queue = ticket),
    events(b_done)
)]
fn kernel(x: &Tensor) -> Tensor {
    #[wait(b_done == 1)]
    let a = add(x, x);
    #[signal(b_done)]
    let b = add(x, x);
    add(&a, &b)
}

fn main() {}
