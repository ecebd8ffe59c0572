//! f64 reference formulas for sums.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::add", add);
formula!("amk_kernels::add_bias", add);

/// `z[i] = x[i] + y[i]`.
fn add(o: &mut Operands) -> Vec<Exact> {
    o.data(0).iter().zip(o.data(1)).map(|(&x, &y)| Exact::sum([x, y])).collect()
}
