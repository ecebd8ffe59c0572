//! Blocks against gguf-py (`gguf.quants`, gguf 0.19.0): the same bytes, the same bits. The numbers
//! are printed by `tests/golden/make_encodings.py`.

use crate::dot::{products, weight_products};
use crate::testing::{random, random_blocks};
use amk::tensor::Row;
use amk::{Encoding, Weight};
use half::f16;

/// All encodings in blocks.
fn blocks() -> impl Iterator<Item = &'static Encoding> {
    Encoding::all().filter(|encoding| encoding.float.is_none())
}

fn find(name: &str) -> &'static Encoding {
    Encoding::find(name).expect("it should be registered")
}

/// Byte `i` is `31 i² + 73 i + 11 mod 256`, with the given binary16 values written over it.
fn block(len: usize, halves: &[(usize, f32)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| ((i * i * 31 + i * 73 + 11) % 256) as u8).collect();
    for &(at, value) in halves {
        bytes[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    }
    bytes
}

/// FNV-1a of the bytes.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn blocks_decode_as_in_gguf_py() {
    const D: (usize, f32) = (0, 0.37);
    const M: (usize, f32) = (2, -1.9);
    let check = |name: &str, halves: &[(usize, f32)], first_and_last: [f32; 2], expected: u64| {
        let encoding = find(name);
        let mut out = vec![f32::NAN; encoding.block];
        (encoding.decode)(&block(encoding.bytes, halves), &mut out);
        // Two values first: they say more than a hash when a decoder is wrong.
        assert_eq!([out[0], out[out.len() - 1]], first_and_last, "{name}");
        assert_eq!(hash(out.iter().flat_map(|value| value.to_le_bytes())), expected, "{name}: {out:?}");
    };
    check("Q4_0", &[D], [0.370_117_2, 2.220_703_1], 0x92c8_58c8_6223_9f97);
    check("Q4_1", &[D, M], [3.651_367_2, -1.160_156_2], 0x98f1_9e35_5e03_50a7);
    check("Q5_0", &[D], [4.811_523_4, -3.701_171_9], 0xe329_87ca_41dc_f09a);
    check("Q5_1", &[D, M], [5.131_836, 7.722_656_2], 0x7463_0068_41c7_f600);
    check("Q8_0", &[D], [9.252_93, 30.719_727], 0xc982_618f_db14_9118);
    check("Q4_K", &[D, M], [162.317_38, 126.458_01], 0x0c92_d8a9_58d3_3d12);
    check("Q5_K", &[D, M], [345.895_5, 525.444_34], 0xa536_4ee6_ae40_7ef4);
    check("Q6_K", &[(208, 0.37)], [-529.637_7, 452.283_2], 0xe127_6917_4293_875e);
    check("IQ4_NL", &[D], [4.811_523_4, 32.940_43], 0x63b3_55d4_578d_fb04);
    check("MXFP4", &[], [1.805_559_3e-35, -6.018_531e-36], 0x8deb_78ce_6077_ccc6);
}

#[test]
fn blocks_encode_as_in_gguf_py() {
    let ramp: Vec<f32> = (0..256).map(|i| (i * 37 % 256 - 100) as f32 / 64.0).collect();
    for (name, expected) in [
        ("Q4_0", 0xb627_7267_7ddb_76dd),
        ("Q4_1", 0xfbee_56e9_affb_c910),
        ("Q5_0", 0xacfc_e328_e5c9_de88),
        ("Q5_1", 0x1069_b104_719c_f974),
        ("Q8_0", 0x788a_5c8b_4abe_71d2),
        ("MXFP4", 0x1a09_d2f4_e949_aad8),
    ] {
        let encoding = find(name);
        let mut blocks = vec![0; encoding.byte_len(ramp.len()).expect("whole blocks")];
        encoding.encode.expect("it encodes")(&ramp, &mut blocks);
        assert_eq!(hash(blocks), expected, "{name}");
    }
}

/// The root mean square of what encoding changes, over the elements' own.
fn error(encoding: &Encoding, elements: &[f32]) -> f32 {
    let mut blocks = vec![0; encoding.bytes_of(elements.len())];
    encoding.encode.expect("it encodes")(elements, &mut blocks);
    encoding.check_blocks(&blocks).expect("blocks of a weight");
    let mut decoded = vec![0.0; elements.len()];
    (encoding.decode)(&blocks, &mut decoded);
    let square = |x: f32| x * x;
    let off: f32 = elements.iter().zip(&decoded).map(|(a, b)| square(a - b)).sum();
    (off / elements.iter().copied().map(square).sum::<f32>()).sqrt()
}

#[test]
fn numbered_values_encode_themselves() {
    for (name, scale) in [("IQ4_NL", 0.25f32), ("MXFP4", 2.0)] {
        let encoding = find(name);
        let head = if name == "MXFP4" { vec![128] } else { f16::from_f32(scale).to_le_bytes().to_vec() };
        // The low nibble of byte `i` is code `i`: element `i`. The high ones are -0 in one of them.
        let block: Vec<u8> = head.into_iter().chain(0..16).collect();
        let mut elements = vec![0.0; 32];
        (encoding.decode)(&block, &mut elements);
        let mut encoded = vec![0xff; block.len()];
        encoding.encode.expect("it encodes")(&elements, &mut encoded);
        let mut again = vec![0.0; 32];
        (encoding.decode)(&encoded, &mut again);
        assert_eq!(again, elements, "{name}");
        assert_eq!(encoded[..block.len() - 16], block[..block.len() - 16], "{name}");
    }
    let elements = random(5, 2048);
    let errors = ["IQ4_NL", "MXFP4", "Q4_0"].map(|name| error(find(name), &elements));
    assert!(errors[0] < 0.1 && errors[1] < 0.15 && errors[2] < 0.1, "{errors:?}");
}

#[test]
fn blocks_of_256_are_near_what_they_encode() {
    let mixed: Vec<f32> = random(5, 2048).iter().zip(0..).map(|(x, i)| x * (1 + i / 256) as f32 + 0.3).collect();
    for (name, most) in [("Q4_K", 0.08), ("Q5_K", 0.04), ("Q6_K", 0.03)] {
        let error = error(find(name), &mixed);
        assert!(error > 0.0 && error < most, "{name}: {error}");
    }
    // Zeros, one sign, and groups a thousand times as large as others.
    for name in ["Q4_K", "Q5_K", "Q6_K"] {
        let encode = |elements: &[f32]| {
            let mut blocks = vec![0xaa; find(name).bytes_of(elements.len())];
            find(name).encode.expect("it encodes")(elements, &mut blocks);
            let mut decoded = vec![1.0; elements.len()];
            (find(name).decode)(&blocks, &mut decoded);
            decoded
        };
        assert!(encode(&[0.0; 256]).iter().all(|&x| x == 0.0), "{name}");
        for elements in [[2.5; 256], [-2.5; 256], core::array::from_fn(|i| if i < 32 { 1000.0 } else { 1.0 })] {
            let far = encode(&elements).iter().zip(&elements).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far <= elements[0].abs() * 0.04, "{name}: {far} of {}", elements[0]);
        }
    }
}

#[test]
fn products_from_blocks_have_the_bits_of_decoded_rows() {
    for encoding in blocks() {
        for (blocks, count) in [(1, 1), (2, 9), (3, 19), (5, 16)] {
            let (len, stride) = (blocks * encoding.block, (blocks + 1) * encoding.block);
            let bytes = random_blocks(7, encoding, (blocks + 1) * count);
            let mut wide = vec![0.0; stride * count];
            (encoding.decode)(&bytes, &mut wide);
            let xs = random(3, 3 * len);
            let bits = |out: &[f32]| out.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let (mut straight, mut decoded) = (vec![0.0; count], vec![0.0; count]);
            products(&xs[..len], Row::Blocks(encoding, &bytes), stride, &mut straight);
            products(&xs[..len], Row::F32(&wide), stride, &mut decoded);
            assert_eq!(bits(&straight), bits(&decoded), "{count} rows of {blocks} blocks of {encoding}");
            let (mut straight, mut decoded) = (vec![0.0; 3 * count], vec![0.0; 3 * count]);
            let part = |weight: Weight| weight.slice(&[0..count, 0..len]);
            weight_products(&xs, 3, &part(Weight::from_vec(encoding, &[count, stride], bytes).unwrap()), &mut straight);
            weight_products(&xs, 3, &part(Weight::f32(&[count, stride], wide).unwrap()), &mut decoded);
            assert_eq!(bits(&straight), bits(&decoded), "3 vectors by {count} rows of {blocks} blocks of {encoding}");
        }
    }
}

#[test]
fn scales_that_are_not_finite_are_refused() {
    for encoding in blocks() {
        let error = encoding.check_blocks(&vec![0xff; encoding.bytes]).unwrap_err();
        assert_eq!(error.to_string(), format!("block 0 of {encoding} has a scale that is not finite"));
        assert_eq!(encoding.check_blocks(&random_blocks(7, encoding, 4)), Ok(()));
    }
}
