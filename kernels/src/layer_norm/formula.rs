//! f64 reference formulas for layer norms.

use amk::formula;
use amk::formula::{Exact, Operands};

formula!("amk_kernels::layer_norm", layer_norm);
formula!("amk_kernels::centred_norm", centred_norm);

/// `(x[i] - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)`. The mean is a sum, whose rounding counts
/// in each difference; the variance's counts as a factor.
fn centred(x: &[f64], eps: f64) -> Vec<Exact> {
    let count = x.len() as f64;
    let mean = Exact::sum(x.iter().map(|x| x / count));
    let variance = x.iter().map(|x| (x - mean.value).powi(2)).sum::<f64>() / count;
    let scale = 1.0 / (variance + eps).sqrt();
    // An error of the mean moves all differences, and so the variance by the sum of its effects.
    let slope = mean.magnitude * scale;
    let element = |x: &f64| {
        let value = (x - mean.value) * scale;
        Exact { value, magnitude: (x.abs() + mean.magnitude) * scale + value.abs() * (1.0 + slope) }
    };
    x.iter().map(element).collect()
}

/// [`centred`] with a weight for each element.
fn centred_norm(o: &mut Operands) -> Vec<Exact> {
    let normed = centred(o.data(0), o.floats[0]).into_iter();
    let scaled = |(x, w): (Exact, &f64)| Exact { value: w * x.value, magnitude: w.abs() * x.magnitude };
    normed.zip(o.data(1)).map(scaled).collect()
}

/// [`centred_norm`] and a bias.
fn layer_norm(o: &mut Operands) -> Vec<Exact> {
    let normed = centred_norm(o).into_iter();
    let biased =
        |(x, bias): (Exact, &f64)| Exact { value: x.value + bias, magnitude: x.magnitude + x.value.abs() + bias.abs() };
    normed.zip(o.data(2)).map(biased).collect()
}
