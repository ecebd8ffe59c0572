//! The weights that a GPU reads.

use amk_cuda::Precision;
use amk_models::model::WeightFormat;

/// The format of weights for a GPU that computes in `precision`.
pub fn weight_format(precision: Precision) -> WeightFormat {
    match precision {
        Precision::BF16 => WeightFormat::BF16,
        Precision::F32 => WeightFormat::F32,
    }
}
