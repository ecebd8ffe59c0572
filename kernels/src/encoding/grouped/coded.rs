//! Groups taken apart for a device.

use super::codes::{Codes, Integers};
use super::scale::Scale;
use super::{GROUP, Grouped};
use crate::encoding::Coded;

impl<C: Codes, S: Scale, const LEN: usize> Coded for Grouped<C, S, LEN> {
    const BITS: usize = C::Stored::BITS;
    const GROUPS: usize = LEN / GROUP;
    const BLOCK: usize = Self::BYTES;
    /// Scale and zero point are loaded together, so their bytes are padded to a power of two.
    const SCALES: usize = Self::HEAD.next_power_of_two();
    const MOVED: &'static [(u32, u32)] = C::MOVED;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        C::Stored::codes(&block[Self::HEAD + group * Self::STEP..][..Self::STEP])
    }

    fn set_codes(block: &mut [u8], group: usize, codes: &[u8; GROUP]) {
        C::Stored::set_codes(&mut block[Self::HEAD + group * Self::STEP..][..Self::STEP], *codes);
    }

    fn scales(block: &[u8], scales: &mut [u8]) {
        let (head, filling) = scales.split_at_mut(Self::HEAD);
        head.copy_from_slice(&block[..Self::HEAD]);
        filling.fill(0);
    }

    fn set_scales(block: &mut [u8], scales: &[u8]) {
        block[..Self::HEAD].copy_from_slice(&scales[..Self::HEAD]);
    }
}
