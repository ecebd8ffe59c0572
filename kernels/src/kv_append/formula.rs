//! f64 reference formula for the KV append.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::kv_append", kv_append);

/// `cache[g, pos, d] = x[g * D + d]`.
fn kv_append(o: &mut Operands) -> Vec<Exact> {
    let (x, pos) = (o.tensors[1].clone(), o.pos);
    let cache = o.state(0);
    let (positions, dim) = (cache.shape[1], cache.shape[2]);
    for (g, x) in x.data.chunks_exact(dim).enumerate() {
        cache.data[(g * positions + pos) * dim..][..dim].copy_from_slice(x);
    }
    Vec::new()
}
