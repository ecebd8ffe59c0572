//! Random weights for shapes without a checkpoint, to measure and to compare VMs.

use amk::Weight;
use amk::encoding::{BF16, Encoding};
use amk::layout::{Source, SourceError, WeightRequest};
use half::bf16;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Random weights: every matrix is a window of one pool, so that billions of them are made in a
/// second and held once.
pub(crate) struct Random {
    pool: Arc<dyn AsRef<[u8]> + Send + Sync>,
    encoding: &'static Encoding,
    next: usize,
    head_dim: u32,
}

/// Elements of the pool beyond the largest matrix: windows of the same size begin at different
/// places.
const SPARE: usize = 16 << 20;
/// From one window to the next.
const STRIDE: usize = 7_919_011;
/// Standard deviation of the weights, as in common initialisers.
const DEVIATION: f32 = 0.02;

/// Elements that are encoded at a time, whole blocks.
const BATCH: usize = 1 << 12;

impl Random {
    /// For the dims of a model of this crate, in an encoding, or in bf16 if elements cannot be
    /// encoded or rows are not whole blocks.
    pub(crate) fn new(dims: &BTreeMap<String, u32>, encoding: &'static Encoding) -> Self {
        let dim = |name: &str| dims.get(name).copied().unwrap_or(1);
        let largest = ["VOCAB", "FFN", "HEADS"].map(|rows| dim(rows) as usize * dim("HIDDEN") as usize);
        let heads = largest[2] * dim("HEAD_DIM") as usize;
        let len = largest[0].max(largest[1]).max(heads) + SPARE;
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Sum of four bytes: near enough to a normal of deviation 148.
            let sum: i64 = state.to_le_bytes()[..4].iter().map(|&byte| i64::from(byte) - 127).sum();
            bf16::from_f32(sum as f32 * (DEVIATION / 148.0)).to_f32()
        };
        let rows = [dim("HIDDEN"), dim("FFN"), dim("HEADS") * dim("HEAD_DIM")];
        let whole = rows.iter().all(|&row| (row as usize).is_multiple_of(encoding.block));
        let (encoding, encode) = match encoding.encode.filter(|_| whole) {
            Some(encode) => (encoding, encode),
            None => (&BF16, BF16.encode.expect("bf16 can be encoded")),
        };
        let mut pool = vec![0; encoding.bytes_of(len.next_multiple_of(BATCH))];
        let mut elements = [0.0; BATCH];
        for blocks in pool.chunks_mut(encoding.bytes_of(BATCH)) {
            elements.fill_with(&mut draw);
            encode(&elements, blocks);
        }
        Self { pool: Arc::new(pool), encoding, next: 0, head_dim: dim("HEAD_DIM") }
    }
}

impl Source for Random {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let len: usize = request.shape.iter().product();
        if request.shape.len() == 1 {
            // A norm's weight or a bias: near 1, so that activations keep their size.
            let values = (0..len).map(|i| bf16::from_f32(1.0 + 0.1 * ((i * 37 % 19) as f32 / 9.0 - 1.0))).collect();
            return Ok(Weight::bf16(request.shape, values)?);
        }
        let room = self.encoding.elements((*self.pool).as_ref().len()) - len;
        // The embedding table and the head are the same window: tied.
        self.next = if request.path.starts_with("ends") { 0 } else { (self.next + STRIDE) % room.max(1) };
        let first = self.next / self.encoding.block * self.encoding.block;
        Ok(Weight::from_bytes(self.encoding, request.shape, self.pool.clone(), self.encoding.bytes_of(first))?)
    }

    fn table(&mut self, _: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        let half = shape.first().copied().unwrap_or(0);
        Ok(Weight::f32(shape, (0..half).map(|j| 500_000f32.powf(-(j as f32) / half as f32)).collect())?)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        Ok(match path {
            "eps" => 1e-5,
            "score_scale" => (self.head_dim as f32).powf(-0.5),
            _ => 1.0,
        })
    }

    /// Of layers of two kinds, three of four have the flag.
    fn flag(&mut self, path: &str) -> Result<bool, SourceError> {
        let layer = path.strip_prefix("layers[").and_then(|rest| rest.split_once(']')?.0.parse::<usize>().ok());
        Ok(layer.is_some_and(|layer| layer % 4 != 3))
    }
}
