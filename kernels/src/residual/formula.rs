//! f64 reference formula for `adopt`.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::adopt", adopt);

/// `y[i] = x[i]`.
fn adopt(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().map(|&x| Exact::copied(x)).collect()
}
