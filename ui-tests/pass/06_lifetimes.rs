//! Lifetimes leave a function what it is.

use amk::prelude::*;
use amk_kernels::add;

#[instruction(op = "same", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
fn same<'a>(x: &'a Tensor) -> Tensor {
    x.data().iter().copied().collect()
}

#[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]), instances(tiny(HIDDEN = 64)))]
fn kernel<'a, 'b>(x: &'a Tensor) -> Tensor
where
    'a: 'b,
{
    // A variable may be called as its instruction.
    let same = same(x);
    add(&same, x)
}

fn main() {
    let x: Tensor = [1.0, 2.0].into_iter().collect();
    assert_eq!(kernel(&x).data(), [2.0, 4.0]);
    assert_eq!(KERNEL.graph().expect("a graph").body.len(), 2);
}
