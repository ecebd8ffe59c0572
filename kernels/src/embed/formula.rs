//! f64 reference formula for the embedding.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::embed", embed);

/// `y[i] = table[token, i]`.
fn embed(o: &mut Operands) -> Vec<Exact> {
    let (width, token) = (o.tensor(0).shape[1], o.data(1)[0] as usize);
    o.data(0)[token * width..][..width].iter().map(|&x| Exact::copied(x)).collect()
}
