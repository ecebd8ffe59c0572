//! The device's tiles of weights (`kernels/src/linear/tile`), compiled for this machine: decoded,
//! and multiplied with one to four tiles a warp, each kind has the elements that its encoding
//! defines. Without a C++ compiler it says "skipped". NVRTC compiles them for every target, too.

use crate::native;
use amk::Encoding;
use amk_cuda::{CudaError, PADDING, TARGETS, compile};
use amk_kernels::fused::TileKind;
use amk_run::sampler::philox;
use core::fmt::Write as _;
use half::bf16;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Columns of the rows: tiles for packs of any length, and three to a warp leave none over.
const COLUMNS: usize = 768;
const TILES: usize = COLUMNS / 32;
/// Of two units.
const ROWS: usize = 16;
const VECTORS: usize = 8;
/// Tiles of a warp, at most.
const DEPTHS: usize = 4;

/// All kinds, by the names of their encodings.
fn kinds() -> Vec<&'static TileKind> {
    let mut kinds: Vec<_> = TileKind::registered().chain([TileKind::of(None, 0)]).collect();
    kinds.sort_by_key(|kind| kind.layout.encoding.name);
    kinds
}

/// The device code of the kinds, without what it builds on, and a call of `f` with a tile of one.
fn code(kinds: &[&TileKind]) -> String {
    let mut code = native::text("linear/tile/tile.cuh") + &native::text("linear/tile/pairs.cuh");
    let of_kinds: BTreeSet<_> = kinds.iter().map(|kind| kind.code.files).collect();
    of_kinds.into_iter().flatten().for_each(|(_, text)| code.push_str(&native::plain(text)));
    code.push_str("template <class F> AMK_DEVICE void by_kind(u32 kind, F f) {\n");
    for (number, kind) in kinds.iter().enumerate() {
        let _ = writeln!(code, "    if (kind == {number}) f({}());", kind.cpp);
    }
    code + "}\n"
}

/// Random numbers from -1 to 1, the same for the same seed.
fn random(seed: u64, len: usize) -> Vec<f32> {
    let word = |at: usize| philox::word(seed, 0, at as u32);
    (0..len).map(|at| (f64::from(word(at)) / f64::from(u32::MAX) * 2.0 - 1.0) as f32).collect()
}

/// Rows of blocks with all their codes: encoded elements, of which most bytes are drawn anew.
fn rows(encoding: &Encoding, seed: u64) -> Vec<u8> {
    let elements: Vec<f32> = random(seed, ROWS * COLUMNS).iter().map(|x| x * 0.05).collect();
    let mut rows = vec![0; encoding.bytes_of(elements.len())];
    encoding.encode.expect("it encodes")(&elements, &mut rows);
    for (number, block) in rows.chunks_mut(encoding.bytes).enumerate() {
        for at in 4..encoding.bytes {
            let before = std::mem::replace(&mut block[at], philox::word(seed, number as u64 + 1, at as u32) as u8);
            if encoding.check_blocks(block).is_err() {
                block[at] = before;
            }
        }
    }
    rows
}

struct Found {
    decoded: Vec<f32>,
    rounded: Vec<f32>,
    /// Of each depth, of one unit at a time, of both, of tiles in lanes of their own, and of pairs
    /// with 16 columns, of each row with each vector.
    products: Vec<f32>,
}

/// The products that the device code computes of rows of each kind.
fn run(kinds: &[&TileKind], rows: &[Vec<u8>], vectors: &[bf16]) -> Option<Vec<Found>> {
    let (_folder, program) = native::build(&code(kinds), "tiles", &[])?;
    let mut input = Vec::new();
    for (number, (kind, rows)) in kinds.iter().zip(rows).enumerate() {
        let of_rows: Vec<&[u8]> = rows.chunks_exact(rows.len() / ROWS).collect();
        input.extend([number as u32, TILES as u32].iter().flat_map(|word| word.to_le_bytes()));
        for unit in of_rows.chunks(ROWS / 2) {
            input.extend(kind.layout.packed(unit, COLUMNS as u32).expect("the layout should keep the rows"));
        }
        input.extend(vectors.iter().flat_map(|x| x.to_le_bytes()));
    }
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it should start");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it should end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    writer.join().expect("the writer").expect("all should be read");
    let floats: Vec<f32> = output.stdout.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let of_kind = floats.chunks(2 * ROWS * COLUMNS + 4 * DEPTHS * ROWS * VECTORS).map(|floats| {
        let (decoded, others) = floats.split_at(ROWS * COLUMNS);
        let (rounded, products) = others.split_at(ROWS * COLUMNS);
        Found { decoded: decoded.to_vec(), rounded: rounded.to_vec(), products: products.to_vec() }
    });
    Some(of_kind.collect())
}

#[test]
fn every_kind_has_the_elements_of_its_encoding_and_their_products() {
    let kinds = kinds();
    let rows: Vec<Vec<u8>> = (1..).zip(&kinds).map(|(seed, kind)| rows(kind.layout.encoding, seed)).collect();
    let vectors: Vec<bf16> = random(99, VECTORS * COLUMNS).into_iter().map(bf16::from_f32).collect();
    let Some(found) = run(&kinds, &rows, &vectors) else { return println!("skipped: no C++ compiler") };
    assert_eq!(found.len(), kinds.len());
    for ((kind, rows), found) in kinds.iter().zip(&rows).zip(&found) {
        let encoding = kind.layout.encoding;
        let mut elements = vec![0.0; ROWS * COLUMNS];
        (encoding.decode)(rows, &mut elements);
        assert!(found.decoded == elements, "{encoding}: decoded");
        let largest = elements.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        // Half a step of bf16 a rounding, of which a shift adds one.
        let roundings =
            if encoding.name.ends_with("_1") || ["Q4_K", "Q5_K"].contains(&encoding.name) { 2.0 } else { 1.0 };
        for (exact, rounded) in elements.iter().zip(&found.rounded) {
            let bound = roundings / 256.0 * exact.abs() + largest / 16384.0;
            assert!((exact - rounded).abs() <= bound, "{encoding}: {exact} is rounded to {rounded}");
        }
        for (at, &product) in found.products.iter().enumerate() {
            let (row, vector) = (at / VECTORS % ROWS, at % VECTORS);
            let row = &elements[row * COLUMNS..][..COLUMNS];
            let x = vectors[vector * COLUMNS..][..COLUMNS].iter().map(|x| f64::from(*x));
            let terms = row.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
            let (expected, bound) = (terms.sum::<f64>(), 2e-6 * f64::from(largest) * COLUMNS as f64);
            let off = (f64::from(product) - expected).abs();
            assert!(off < bound, "{encoding}, number {at}: {product} is not {expected}");
        }
    }
}

/// The rows of padding with which the last unit is filled have products that nothing takes for the
/// largest: NaNs, or where an encoding has none, the kind takes whole units alone.
#[test]
fn padding_has_no_products_that_are_numbers() {
    let kinds = kinds();
    let is_nan = |encoding: &Encoding| {
        let mut elements = vec![0.0; encoding.block];
        (encoding.decode)(&vec![PADDING; encoding.bytes], &mut elements);
        elements.iter().all(|x| x.is_nan())
    };
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| is_nan(kind.layout.encoding)).collect();
    assert!(kinds.contains(&TileKind::of(None, 0)), "{kinds:?}");
    println!("{} kinds pad", kinds.len());
    let rows: Vec<Vec<u8>> =
        kinds.iter().map(|kind| vec![PADDING; kind.layout.encoding.bytes_of(ROWS * COLUMNS)]).collect();
    let vectors: Vec<bf16> = random(99, VECTORS * COLUMNS).into_iter().map(bf16::from_f32).collect();
    let Some(found) = run(&kinds, &rows, &vectors) else { return println!("skipped: no C++ compiler") };
    for (kind, found) in kinds.iter().zip(&found) {
        let mut values = found.products.iter().chain(&found.rounded);
        assert!(values.all(|x| x.is_nan()), "{}", kind.layout.encoding);
    }
}

/// A kernel that multiplies tiles of each kind.
const KERNEL: &str = "
template <class T> AMK_DEVICE void multiply(u32 lane, Fragment (&x)[4], float* y) {
    T tiles[4];
    float sums[4];
    const typename T::Place place(0, lane, T::named(lane));
    T::template load<4>(tiles, place, 0, lane, 4);
    for (int j = 0; j < 4; j++) T::prepare(x[j], sums[j]);
    *y = T::template product<4>(tiles, [&](int j) { return x[j]; }, [&](int j) { return sums[j]; });
}
extern \"C\" __global__ void multiply_tiles(const uint4* x, float* y, u32 kind) {
    Fragment inputs[4];
    for (int j = 0; j < 4; j++) inputs[j] = {x[j].x, x[j].y};
    by_kind(kind, [&](auto tile) { multiply<decltype(tile)>(threadIdx.x, inputs, y); });
}
";

#[test]
fn every_kind_compiles_for_every_target() {
    let base = format!("{}#define AMK_TILE 512\n", native::text("vm/ptx.cuh"));
    let code = native::plain(&(base + &code(&kinds()) + KERNEL));
    for architecture in TARGETS.iter().map(|target| target.architecture).collect::<BTreeSet<_>>() {
        match compile(&code, architecture) {
            Ok(cubin) => assert!(!cubin.bytes.is_empty()),
            Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
            Err(error) => panic!("{architecture}: {error}"),
        }
    }
}
