//! Instructions of another crate, against the formulas that it registers.

use amk::registry::Registry;
use amk_bench::kernel_check::{Oracle, dtypes, on_cpu};
use amk_fast_instruction as _;
use amk_user_instruction as _;

#[test]
fn instructions_of_another_crate_keep_to_their_formulas() {
    let registry = Registry::linked().expect("the registry");
    let of_user =
        ["affine", "relu_squared_mul", "scale_by", "softcap"].map(|name| format!("amk_user_instruction::{name}"));
    let of_fast = ["capped_linear", "squared_relu"].map(|name| format!("amk_fast_instruction::{name}"));
    for name in of_user.iter().chain(&of_fast) {
        let entry = registry.get(name).expect("the instruction");
        for &dtype in dtypes(entry, false).expect("a signature") {
            let checked = on_cpu(entry, dtype, 30, 5).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(checked.ok && checked.oracle == Oracle::F64, "{checked:?}");
        }
    }
}
