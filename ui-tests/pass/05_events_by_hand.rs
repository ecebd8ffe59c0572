//! 5. Events by hand: for experts who want other counters than those that are derived.
//!
//! `events(..)` declares event tensors, arrays of counters. `#[signal(e[..])]` on a statement makes
//! every task of its op signal an element when it is done; `#[wait(e[..] == n)]` makes every task
//! wait for n signals, in place of the waits that would be derived. Coordinates are over the tile
//! numbers of the op's own grid variables, loop indices and dims. A wait that is not enough, or
//! that never comes, is a compile error: see `fail/`.

use amk::prelude::*;
use amk_kernels::{add, linear};

#[derive(WeightLayout)]
pub struct Mlp {
    #[weight("up", [FFN, HIDDEN])]
    pub up: Weight,
    #[weight("down", [HIDDEN, FFN])]
    pub down: Weight,
}

#[megakernel(
    dims(HIDDEN, FFN),
    inputs(x: [HIDDEN]),
    instances(tiny(HIDDEN = 64, FFN = 128)),
    schedule(workers = 4, tile(linear = 32, add = 16)),
    events(up_done, down_done[HIDDEN / 32])
)]
pub fn residual(x: &Tensor, w: &Mlp) -> Tensor {
    // Four tiles of 32 signal one counter.
    #[signal(up_done)]
    let h = linear(x, &w.up);
    // Every tile of `down` reads all of `h`; tile n signals a counter of its own.
    #[wait(up_done == FFN / 32)]
    #[signal(down_done[n])]
    let y = linear(&h, &w.down);
    // Two tiles of 16 read what one tile of 32 has written.
    #[wait(down_done[n / 2] == 1)]
    let z = add(x, &y);
    z
}

fn main() {
    let instance = RESIDUAL.instance("tiny").expect("an instance");
    let program = RESIDUAL.lower(instance, None).expect("a program").program;
    assert_eq!(program.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["up_done", "down_done"]);
}
