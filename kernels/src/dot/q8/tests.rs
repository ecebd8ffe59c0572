//! Every instruction set against the definition in the parent's head comment.

use super::{Plain, products_of, q8_products, rounded};
use crate::encoding::{GROUP, IntegerBlocks, code, five, four, k, q8_0};
use crate::testing::{random, random_blocks};
use amk::Encoding;
use amk::tensor::Q8Block;
use proptest::prelude::*;

type Products = fn(&[Q8Block], usize, &[u8], usize, &mut [f32]);

fn plain<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    products_of::<BYTES, B>(Plain, xs, vectors, rows, stride, out);
}

/// The products of an encoding by the instruction sets of this machine, with their names.
fn paths<const BYTES: usize, B: IntegerBlocks<BYTES>>() -> Vec<(&'static str, Products)> {
    let mut paths: Vec<(&'static str, Products)> =
        vec![("dispatched", q8_products::<BYTES, B>), ("plain", plain::<BYTES, B>)];
    #[cfg(target_arch = "x86_64")]
    {
        use super::{avx2, avx512};
        if avx2::is_there() {
            // SAFETY: the processor supports the function's target features.
            paths.push(("AVX2", |xs, vectors, rows, stride, out| unsafe {
                avx2::products::<BYTES, B>(xs, vectors, rows, stride, out);
            }));
        }
        if avx2::has_vnni() {
            // SAFETY: the processor supports the function's target features.
            paths.push(("AVX-VNNI", |xs, vectors, rows, stride, out| unsafe {
                avx2::vnni_products::<BYTES, B>(xs, vectors, rows, stride, out);
            }));
        }
        if avx512::is_there() {
            // SAFETY: the processor supports the function's target features.
            paths.push(("AVX-512", |xs, vectors, rows, stride, out| unsafe {
                avx512::products::<BYTES, B>(xs, vectors, rows, stride, out);
            }));
        }
    }
    paths
}

/// A product by the definition.
fn defined<const BYTES: usize, B: IntegerBlocks<BYTES>>(x: &[Q8Block], row: &[u8]) -> f32 {
    let blocks = row.as_chunks::<BYTES>().0;
    let mut y = 0.0f32;
    for (number, x) in x.iter().enumerate() {
        let (block, group) = (&blocks[number / B::GROUPS], number % B::GROUPS);
        let (codes, scales) = (B::codes(block, group), B::scales(block, group));
        let code = |i: usize| B::TABLE.map_or(codes[i], |table| table[usize::from(codes[i])]);
        let product = |i: usize| (i32::from(code(i)) - B::BIAS) * i32::from(x.codes[i]);
        let dots = [(0..16).map(product).sum(), (16..GROUP).map(product).sum::<i32>()];
        if B::HALVES {
            y = scales[0].mul_add(x.scale * dots[0] as f32, y);
            y = scales[1].mul_add(x.scale * dots[1] as f32, y);
        } else {
            y = scales[0].mul_add(x.scale * (dots[0] + dots[1]) as f32, y);
        }
        if B::ADDEND {
            y = B::addend(block, group).mul_add(x.scale * (x.sums[0] + x.sums[1]) as f32, y);
        }
    }
    y
}

/// Compares all instruction sets with the definition, and the definition with the decoded weights.
fn check<const BYTES: usize, B: IntegerBlocks<BYTES>>(name: &str, shape: [usize; 4], seed: u64) {
    let encoding = Encoding::find(name).expect("it should be registered");
    let [vectors, count, blocks, apart] = shape;
    let (len, stride) = (blocks * encoding.block, (blocks + apart) * BYTES);
    let rows = random_blocks(seed, encoding, (blocks + apart) * count);
    let xs = rounded(&random(seed + 1, vectors * len));
    let row = |n: usize| &rows[n * stride..][..blocks * BYTES];
    let expected: Vec<f32> = xs
        .chunks(len / GROUP)
        .flat_map(|x| (0..count).map(move |n| (x, n)))
        .map(|(x, n)| defined::<BYTES, B>(x, row(n)))
        .collect();
    for (path, products) in paths::<BYTES, B>() {
        let mut out = vec![f32::NAN; vectors * count];
        products(&xs, vectors, &rows, stride, &mut out);
        // The largest scales of MXFP4 make infinities, and these NaNs of any sign.
        let bits = |all: &[f32]| all.iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&expected), "{name} by {path}: {shape:?}");
    }
    let mut decoded = vec![0.0; len];
    (encoding.decode)(row(0), &mut decoded);
    let terms = decoded.iter().enumerate().map(|(i, w)| {
        let x = &xs[i / GROUP];
        f64::from(*w) * f64::from(x.scale) * f64::from(x.codes[i % GROUP])
    });
    let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
    let error = (f64::from(expected[0]) - exact).abs();
    // Elements with the largest scales of MXFP4 are infinite, their products with zeros are not.
    let comparable = expected[0].is_finite() && size.is_finite();
    assert!(!comparable || error <= 1e-5 * size, "{name}: {} instead of {exact}", expected[0]);
}

fn check_all(shape: [usize; 4], seed: u64) {
    check::<18, four::Symmetric>("Q4_0", shape, seed);
    check::<20, four::Affine>("Q4_1", shape, seed);
    check::<22, five::Symmetric>("Q5_0", shape, seed);
    check::<24, five::Affine>("Q5_1", shape, seed);
    check::<34, q8_0::Bytes>("Q8_0", shape, seed);
    check::<144, k::Four>("Q4_K", shape, seed);
    check::<176, k::Five>("Q5_K", shape, seed);
    check::<210, k::Six>("Q6_K", shape, seed);
    check::<18, code::Nonlinear>("IQ4_NL", shape, seed);
    check::<17, code::Microscaled>("MXFP4", shape, seed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_instruction_set_computes_the_definition(
        vectors in 1usize..20, count in 1usize..40, blocks in 1usize..4, apart in 0usize..2, seed in 0u64..1000,
    ) {
        check_all([vectors, count, blocks, apart], seed);
    }
}

#[test]
fn infinite_elements_times_zero_inputs_are_no_error() {
    (0..1000).for_each(|seed| check::<17, code::Microscaled>("MXFP4", [1, 1, 1, 0], seed));
}

#[test]
fn the_largest_codes_and_inputs_do_not_overflow() {
    let block = |codes: u8| {
        let mut block = [codes; 34];
        block[..2].copy_from_slice(&half::f16::from_f32(1.0).to_le_bytes());
        block
    };
    let xs = rounded(&[[3.0; GROUP], [-3.0; GROUP]].concat());
    assert_eq!((xs[0].codes, xs[1].codes, xs[1].sums), ([127; GROUP], [-127; GROUP], [-16 * 127; 2]));
    for codes in [0x80, 0x7f] {
        for (path, products) in paths::<34, q8_0::Bytes>() {
            let mut out = [0.0; 2];
            products(&xs, 2, &block(codes), 34, &mut out);
            let exact = f32::from(codes as i8) * 96.0;
            assert!((out[0] - exact).abs() < 1e-2 && out[1] == -out[0], "{path}: {out:?}");
        }
    }
}

#[test]
fn inputs_are_rounded_to_the_nearest_code() {
    let mut x = [0.0f32; 2 * GROUP];
    (x[0], x[1], x[2], x[3], x[31]) = (-2.54, 0.01, 0.03, 0.009, 2.54 / 2.0);
    let blocks = rounded(&x);
    // Steps of 0.02: the first half is as far from 0 as from 1, the second nearer to 2 than to 1.
    assert_eq!(blocks[0].codes[..5], [-127, 0, 2, 0, 0]);
    assert_eq!((blocks[0].codes[31], blocks[0].sums), (64, [-125, 64]));
    assert_eq!((blocks[0].scale, blocks[1].scale, blocks[1].codes), (2.54 / 127.0, 0.0, [0; GROUP]));
}

#[test]
fn inputs_that_are_not_finite_make_products_nan() {
    let row = random_blocks(1, Encoding::find("Q4_1").expect("it should be registered"), 1);
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut xs = [1.0; GROUP];
        xs[7] = x;
        for (path, products) in paths::<20, four::Affine>() {
            let mut out = [0.0];
            products(&rounded(&xs), 1, &row, 20, &mut out);
            assert!(out[0].is_nan(), "{path}: {x} gives {}", out[0]);
        }
    }
}

#[test]
fn inputs_too_small_for_a_scale_are_zeros() {
    for most in [f32::MIN_POSITIVE, 1e-45, 0.0] {
        let block = rounded(&[most; GROUP])[0];
        assert_eq!((block.scale, block.codes), (0.0, [0; GROUP]), "{most}");
    }
    assert_eq!(rounded(&[1e-36; GROUP])[0].codes, [0; GROUP]);
    assert_eq!(rounded(&[2e-36; GROUP])[0].codes, [127; GROUP]);
}
