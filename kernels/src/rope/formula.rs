//! f64 reference formula for the rotary embedding.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::rope", rope);

/// Rotates the pair `(x[j], x[j + R])` of a head by the angle `pos * freqs[j]`, which is defined as
/// rounded to f32.
pub(crate) fn rope(o: &mut Operands) -> Vec<Exact> {
    let (x, freqs, dim, scale) = (o.data(0), o.data(1), o.dims[0], o.floats[0]);
    let half = freqs.len();
    let element = |i: usize| {
        let (head, d) = (i / dim * dim, i % dim);
        if d >= 2 * half {
            return Exact::copied(x[i]);
        }
        let j = d % half;
        let (sine, cosine) = f64::from(o.pos as f32 * freqs[j] as f32).sin_cos();
        let (a, b) = (x[head + j], x[head + j + half]);
        let terms = if d < half { [a * cosine, -b * sine] } else { [b * cosine, a * sine] };
        Exact::sum(terms.map(|term| scale * term))
    };
    (0..x.len()).map(element).collect()
}
