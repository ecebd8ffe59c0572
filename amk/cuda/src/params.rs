//! The parameters of a launch: the VM's own, followed by those that each set of bodies registers.

use super::image::Record;
use super::image::abi::VmParams;
use super::image::declare::{DeviceField, Struct};
use super::set::{body_sets, row_structs};
use core::fmt::Write as _;
use cudarc::driver::DeviceRepr;

/// Words of 8 bytes that the parameters of a launch have at most.
const WORDS: usize = 64;

/// The parameters as the kernel takes them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ParamBlock([u64; WORDS]);

// SAFETY: plain data. The kernel reads its leading bytes as `Params`, whose layout both sides take
// from the same declarations.
unsafe impl DeviceRepr for ParamBlock {}
// SAFETY: plain data, 16 words.
unsafe impl DeviceRepr for Record {}

/// Parameters in the order of their structs.
#[derive(Default)]
pub struct Params(Vec<u8>);

impl Params {
    /// Appends a struct.
    pub fn push(&mut self, of: &impl DeviceField) {
        // Each is a base class of one struct, and has fields of 8 bytes.
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        of.put(&mut self.0);
    }

    /// The bytes in words of 4.
    pub fn words(&self) -> Vec<u32> {
        let (words, _) = self.0.as_chunks::<4>();
        words.iter().map(|&word| u32::from_ne_bytes(word)).collect()
    }

    /// The parameters, as the kernel takes them.
    pub(super) fn block(&self) -> ParamBlock {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(self.0.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
        ParamBlock(words)
    }
}

/// Renders `Params`, with the parameters of the VM and of all sets, and in programs with rows of
/// the row code.
pub(super) fn text(has_rows: bool) -> String {
    let of_rows = if has_rows { row_structs().1 } else { Vec::new() };
    let registered: Vec<&Struct> = body_sets().into_iter().flat_map(|set| set.params).chain(of_rows).collect();
    let bytes = registered.iter().fold(size_of::<VmParams>(), |bytes, of| bytes.next_multiple_of(8) + of.bytes);
    assert!(bytes <= WORDS * 8, "the registered bodies have {bytes} bytes of parameters, over {}", WORDS * 8);
    let mut out = "\n// The parameters of a launch.\nstruct Params : VmParams".to_owned();
    registered.iter().for_each(|of| {
        let _ = write!(out, ", {}", of.name);
    });
    let bytes = bytes.next_multiple_of(8);
    let _ = writeln!(out, " {{}};\nstatic_assert(sizeof(Params) == {bytes}, \"as the host has it\");");
    out
}
