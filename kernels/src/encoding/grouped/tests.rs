//! Groups against their definitions.

use super::{GroupCodes, GroupFormat};
use crate::testing::random;
use amk::Encoding;
use amk::ir::DType;
use half::f16;

fn find(name: &str) -> &'static Encoding {
    Encoding::find(name).unwrap_or_else(|| panic!("{name} should be registered"))
}

fn decode(encoding: &Encoding, block: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; encoding.block];
    (encoding.decode)(block, &mut out);
    out
}

#[test]
fn a_group_is_scale_zero_and_codes() {
    let zero = [f16::from_f32(0.25).to_le_bytes().as_slice(), &[3], &[0x50; 32]].concat();
    let out = decode(find("int4:64:zero"), &zero);
    // Low nibbles are the first half of each 32 elements.
    assert_eq!((out[0], out[15], out[16], out[32], out[63]), (-0.75, -0.75, 0.5, -0.75, 0.5));
    let bytes = [0.1f32.to_le_bytes().as_slice(), &[130; 127], &[0]].concat();
    let out = decode(find("int8:128:f32"), &bytes);
    assert_eq!((out[0], out[127]), (2.0 * 0.1, -128.0 * 0.1));
    let floats = [half::bf16::from_f32(3.0).to_le_bytes().as_slice(), &[0x38; 31], &[0xfe]].concat();
    let out = decode(find("fp8:32:bf16"), &floats);
    assert_eq!((out[0], out[31]), (3.0, -448.0 * 3.0));
}

#[test]
fn elements_become_the_nearest_values() {
    let elements: Vec<f32> = random(9, 512).iter().map(|x| x * 0.3 + 0.1).collect();
    let grouped = || Encoding::all().filter(|encoding| encoding.name.contains(':'));
    assert_eq!(grouped().count(), 45);
    for encoding in grouped() {
        let mut blocks = vec![0xff; encoding.bytes_of(elements.len())];
        encoding.encode.expect("it encodes")(&elements, &mut blocks);
        assert_eq!(encoding.check_blocks(&blocks), Ok(()));
        let groups = elements.chunks(encoding.block);
        for (group, block) in groups.zip(blocks.chunks(encoding.bytes)) {
            let decoded = decode(encoding, block);
            let (low, high) = group.iter().fold((0f32, 0f32), |(low, high), x| (low.min(*x), high.max(*x)));
            let (largest, reach) = (high.max(-low), high - low);
            // Half a step, and what the rounding of a scale of 8 bits does to the largest; the most
            // positive element of symmetric codes is half a step away, too.
            let step = match encoding.name.split(':').collect::<Vec<_>>()[..] {
                ["int4", _, "zero", ..] => reach / 15.0,
                ["int8", _, "zero", ..] => reach / 255.0,
                ["int4", ..] => largest / 7.5,
                ["int8", ..] => largest / 127.5,
                _ => largest / 14.0,
            };
            let off = group.iter().zip(&decoded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 0.51 * step + 0.004 * largest, "{encoding}: {off} with steps of {step}");
        }
    }
}

#[test]
fn zeros_give_zeros() {
    for name in ["int4:32", "int4:64:zero:bf16", "int8:128", "fp8:128"] {
        let encoding = find(name);
        let mut block = vec![0xff; encoding.bytes];
        encoding.encode.expect("it encodes")(&vec![0.0; encoding.block], &mut block);
        assert!(decode(encoding, &block).iter().all(|&x| x == 0.0), "{name}");
    }
}

#[test]
fn defects_of_a_group_are_named() {
    let check = |name: &str, head: &[u8], code: u8| {
        let mut block = vec![code; find(name).bytes];
        block[..head.len()].copy_from_slice(head);
        find(name).check_blocks(&block).expect_err("a defect").to_string()
    };
    assert_eq!(check("int4:32:zero", &[0, 0, 16], 0), "block 0 of int4:32:zero has a zero that is none of its codes");
    assert_eq!(check("fp8:32", &[0; 4], 0xff), "block 0 of fp8:32 has an element that is not a number");
    assert_eq!(
        check("fp8:32", &f32::MAX.to_le_bytes(), 0),
        "block 0 of fp8:32 has a scale with which elements are not finite"
    );
    assert_eq!(check("int8:64:bf16", &[0x80, 0x7f], 0), "block 0 of int8:64:bf16 has a scale that is not finite");
}

#[test]
fn blocks_are_taken_apart_and_put_together() {
    for encoding in Encoding::all().filter(|encoding| encoding.name.contains(':')) {
        let format = GroupFormat::of(encoding).expect("it is by groups");
        assert_eq!((format.encoding(), format.len), (Some(encoding), encoding.block));
        assert_eq!(format.block_bytes(), encoding.bytes);
        let block: Vec<u8> = (0..encoding.bytes).map(|i| (i * 29 + 7) as u8).collect();
        let mut codes = vec![0; format.len];
        let (scale, zero) = format.split(&block, &mut codes);
        assert_eq!((scale, zero.is_some()), (&block[..format.scale_bytes()], format.zero));
        let mut joined = vec![0; encoding.bytes];
        format.join(scale, zero.unwrap_or(0), &codes, &mut joined);
        assert_eq!(joined, block, "{encoding}");
    }
    assert_eq!(GroupFormat::of(find("Q4_0")), None);
    let odd = GroupFormat { codes: GroupCodes::Int4, zero: false, scale: DType::F16, len: 48 };
    assert_eq!(odd.encoding(), None);
}
