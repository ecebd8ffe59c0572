//! Rotary position embeddings: from hyperparameters to inverse frequencies.
//!
//! The arithmetic follows transformers (`modeling_rope_utils.py`): tensors in f32, Python numbers
//! in f64, in the same order, so that frequencies agree to the last bit or two of the power
//! function.

use std::f64::consts::PI;

/// The rotary position embedding of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Leading elements of a head that are rotated, element `j` with element `j + rotary_dims/2`;
    /// even, at most the head.
    pub rotary_dims: usize,
    /// How the frequencies are stretched for long contexts.
    pub scaling: RopeScaling,
}

/// How frequencies are stretched for contexts longer than the model was trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// All by one factor (`linear`).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3.1: low frequencies are stretched by a factor, high ones are not, with a smooth
    /// transition between (`llama3`).
    Llama3 {
        /// The factor.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are stretched by `factor`.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context the model was trained on.
        original_context: f64,
    },
    /// YaRN (Peng et al. 2023, arXiv:2309.00071).
    Yarn {
        /// The factor.
        factor: f64,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations over the original context below which a frequency is stretched by `factor`.
        beta_slow: f64,
        /// Context the model was trained on.
        original_context: f64,
        /// Factor of cosine and sine.
        attention_factor: f64,
        /// Whether the bounds of the transition are rounded to whole dimensions.
        truncate: bool,
    },
    /// LongRoPE (Ding et al. 2024, arXiv:2402.13753): each frequency is divided by its own factor,
    /// one of two lists of `rotary_dims/2`.
    LongRope {
        /// The factors in a context up to `original_context`.
        short: Vec<f32>,
        /// The factors in a longer one.
        long: Vec<f32>,
        /// Context the model was trained on.
        original_context: f64,
        /// Factor of cosine and sine, whatever the context.
        attention_factor: f64,
    },
    /// Each frequency is divided by its own factor, `rotary_dims/2` of them. GGUF files store
    /// `llama3` scaling in this form.
    Factors(Vec<f32>),
}

/// The frequencies of a head's rotation: at position `p`, pair `j` turns by `p * inv_freq[j]`, and
/// cosine and sine are multiplied by `attention_factor`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeFrequencies {
    /// Radians per position, `[rotary_dims/2]`.
    pub inv_freq: Vec<f32>,
    /// Factor of cosine and sine; 1 except for YaRN and LongRoPE.
    pub attention_factor: f32,
}

impl RopeScaling {
    /// Whether it has a positive factor for each rotated pair, if it has lists of factors, and a
    /// positive overall factor.
    pub(super) fn fits(&self, rotary_dims: usize) -> bool {
        let usable = |factors: &[f32]| {
            factors.len() == rotary_dims / 2 && factors.iter().all(|&factor| factor.is_finite() && factor > 0.0)
        };
        match self {
            Self::LongRope { short, long, attention_factor, .. } => {
                usable(short) && usable(long) && attention_factor.is_finite() && *attention_factor > 0.0
            }
            Self::Factors(factors) => usable(factors),
            Self::Default | Self::Linear { .. } | Self::Llama3 { .. } | Self::Yarn { .. } => true,
        }
    }
}

impl Rope {
    /// Returns the frequencies and the attention factor for texts of up to `context` positions.
    ///
    /// With LongRoPE they depend on it. transformers switches from the short factors to the long
    /// ones within a text that becomes long, which leaves keys of both kinds in the cache; here, as
    /// in llama.cpp, a text has one kind of factors.
    pub fn frequencies(&self, context: usize) -> RopeFrequencies {
        let mut attention_factor = 1.0;
        let wavelengths = self.position_frequencies();
        let unscaled = wavelengths.iter().map(|wavelength| 1.0 / wavelength);
        let inv_freq = match &self.scaling {
            RopeScaling::Default => unscaled.collect(),
            &RopeScaling::Linear { factor } => unscaled.map(|freq| freq / factor as f32).collect(),
            RopeScaling::Factors(factors) => unscaled.zip(factors).map(|(freq, factor)| freq / factor).collect(),
            RopeScaling::LongRope { short, long, original_context, attention_factor: scale } => {
                attention_factor = *scale as f32;
                let factors = if context as f64 > *original_context { long } else { short };
                wavelengths.iter().zip(factors).map(|(wavelength, factor)| 1.0 / (factor * wavelength)).collect()
            }
            &RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => unscaled
                .map(|freq| llama3(freq, factor as f32, low_freq_factor, high_freq_factor, original_context))
                .collect(),
            &RopeScaling::Yarn { factor, attention_factor: scale, .. } => {
                attention_factor = scale as f32;
                let ramp = self.yarn_ramp();
                wavelengths.iter().zip(ramp).map(|(&wavelength, kept)| yarn(wavelength, factor as f32, kept)).collect()
            }
        };
        RopeFrequencies { inv_freq, attention_factor }
    }

    /// The divisors of the unscaled frequencies, `[rotary_dims/2]`.
    pub(super) fn factors(&self, context: usize) -> Vec<f32> {
        let unscaled = Self { scaling: RopeScaling::Default, ..self.clone() }.frequencies(context).inv_freq;
        unscaled.iter().zip(self.frequencies(context).inv_freq).map(|(unscaled, scaled)| unscaled / scaled).collect()
    }

    /// `theta^(2j / rotary_dims)`, the inverse of each unscaled frequency.
    fn position_frequencies(&self) -> Vec<f32> {
        let dims = self.rotary_dims as f32;
        let exponents = (0..self.rotary_dims / 2).map(|pair| (2 * pair) as f32 / dims);
        // Powers are taken in f64 of the f32 operands: correctly rounded, and the same on every
        // platform.
        exponents.map(|exponent| f64::from(self.theta as f32).powf(exponent.into()) as f32).collect()
    }

    /// How much of each frequency YaRN keeps: 1 below the passage, 0 above it.
    fn yarn_ramp(&self) -> Vec<f32> {
        let pairs = self.rotary_dims / 2;
        let RopeScaling::Yarn { beta_fast, beta_slow, original_context, truncate, .. } = self.scaling else {
            return vec![1.0; pairs];
        };
        let dims = self.rotary_dims as f64;
        let bound = |rotations: f64| dims * (original_context / (rotations * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
        let (low, high) = (bound(beta_fast), bound(beta_slow));
        let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, mut high) = (low.max(0.0), high.min(dims - 1.0));
        if low == high {
            high += 0.001;
        }
        (0..pairs).map(|pair| 1.0 - ((pair as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0)).collect()
    }
}

fn llama3(freq: f32, factor: f32, low_freq_factor: f64, high_freq_factor: f64, original_context: f64) -> f32 {
    let wavelength = (2.0 * PI) as f32 / freq;
    if wavelength > (original_context / low_freq_factor) as f32 {
        return freq / factor;
    }
    if wavelength < (original_context / high_freq_factor) as f32 {
        return freq;
    }
    let passage = (high_freq_factor - low_freq_factor) as f32;
    let smooth = (original_context as f32 / wavelength - low_freq_factor as f32) / passage;
    (1.0 - smooth) * freq / factor + smooth * freq
}

fn yarn(wavelength: f32, factor: f32, kept: f32) -> f32 {
    let (extrapolated, interpolated) = (1.0 / wavelength, 1.0 / (factor * wavelength));
    interpolated * (1.0 - kept) + extrapolated * kept
}

/// YaRN's default attention factor for a stretch by `factor` (section 3.4 of the paper, with
/// `mscale` of DeepSeek-V2).
pub(super) fn yarn_attention_factor(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// LongRoPE's default attention factor for a stretch by `factor`.
pub(super) fn longrope_attention_factor(factor: f64, original_context: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original_context.ln()).sqrt() }
}
