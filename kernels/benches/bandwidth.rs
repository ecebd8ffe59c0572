//! Measures the rate at which `linear` streams weights against the machine's read bandwidth, in one
//! run.
//!
//! `cargo bench -p amk-kernels --bench bandwidth`

use amk::Encoding;
use amk::measure::read_bandwidth;
use amk::prelude::*;
use amk::tensor::Inputs;
use amk_kernels::linear;
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// Rows of 2048 elements: a matrix far larger than a last-level cache.
const ROWS: usize = 65_536;
const COLUMNS: usize = 2048;
const TILE: usize = 256;
const PASSES: usize = 5;

/// Returns the bytes per second at which `threads` threads together compute `linear` of the whole
/// weight, tile by tile, in the best pass.
fn rate(weight: &Weight, threads: usize) -> f64 {
    let x = Tensor::from(vec![0.5; COLUMNS]);
    let barrier = Barrier::new(threads);
    let share = ROWS / threads;
    let run = |thread: usize| {
        let tiles = (thread * share..(thread + 1) * share).step_by(TILE);
        let tiles: Vec<Weight> = tiles.map(|row| weight.slice(&[row..(row + TILE).min(ROWS), 0..COLUMNS])).collect();
        core::array::from_fn(|_| {
            barrier.wait();
            let start = Instant::now();
            tiles.iter().for_each(|tile| drop(std::hint::black_box(linear(&x, tile))));
            barrier.wait();
            start.elapsed().as_secs_f64()
        })
    };
    let seconds: Vec<[f64; PASSES]> = std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (1..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let own = run(0);
        handles.into_iter().filter_map(|handle| handle.join().ok()).chain([own]).collect()
    });
    let slowest = |pass: usize| seconds.iter().map(|thread| thread[pass]).fold(0.0, f64::max);
    let best = (0..PASSES).map(slowest).fold(f64::INFINITY, f64::min);
    weight.bytes() as f64 / best
}

/// A weight of one byte over and over, which is a block of finite numbers in every encoding.
fn filled(encoding: &'static Encoding) -> Option<Weight> {
    const BYTE: u8 = 0x3c;
    let bytes = vec![BYTE; encoding.byte_len(ROWS * COLUMNS)?];
    Weight::from_bytes(encoding, &[ROWS, COLUMNS], Arc::new(bytes), 0).ok()
}

/// Prints the rate of a weight beside the memory's.
fn show(weight: &Weight, threads: usize, memory: f64) {
    let (encoding, inputs, rate) = (weight.encoding(), weight.inputs(), rate(weight, threads));
    let elements = rate * encoding.block as f64 / encoding.bytes as f64;
    println!(
        "  {encoding:>7}, inputs in {inputs:>3}: {:5.1} GB/s, {:3.0}%, {:5.2} G elements/s",
        rate / 1e9,
        100.0 * rate / memory,
        elements / 1e9
    );
}

fn main() {
    let mut encodings: Vec<_> = Encoding::all().collect();
    encodings.sort_by_key(|encoding| (encoding.float.is_none(), encoding.name));
    for threads in [1, 2] {
        let memory = read_bandwidth(threads);
        println!("{threads} threads: memory reads at {:.1} GB/s", memory / 1e9);
        for weight in encodings.iter().filter_map(|encoding| filled(encoding)) {
            show(&weight, threads, memory);
            if let Ok(weight) = weight.with_inputs(Inputs::Q8) {
                show(&weight, threads, memory);
            }
        }
    }
}
