//! The vector registers of the machine.

/// The widest registers for f32 that the processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    /// 32 of 16 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 16 of 8 lanes, with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The target's baseline: on aarch64 it includes vectors and fused multiply-add.
    Plain,
}

impl Level {
    #[inline(always)]
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Plain
    }

    /// All that the processor can run.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        match Self::best() {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => vec![Self::Plain, Self::Avx2, Self::Avx512],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => vec![Self::Plain, Self::Avx2],
            Self::Plain => vec![Self::Plain],
        }
    }
}
