//! What a launch is told.

use super::image::Record;
use cudarc::driver::DeviceRepr;

/// Launch parameters; mirrors `Params` of `vm/image.cuh`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Params {
    pub(super) tape: u64,
    pub(super) tape_at: u64,
    pub(super) records: u64,
    pub(super) record_at: u64,
    pub(super) packets: u64,
    pub(super) constants: u64,
    pub(super) embedding: u64,
    pub(super) kv: u64,
    pub(super) inv_freq: u64,
    pub(super) forced: u64,
    pub(super) tokens: u64,
    pub(super) logits: u64,
    pub(super) fault: u64,
    pub(super) trace: u64,
    pub(super) arguments: u64,
    pub(super) plain: u64,
    pub(super) scratch: u64,
    pub(super) budget_ns: u64,
    pub(super) seed: u64,
    pub(super) epoch: u32,
    pub(super) pos: u32,
    pub(super) steps: u32,
    pub(super) forced_count: u32,
    pub(super) hidden: u32,
    pub(super) vocab: u32,
    pub(super) kv_blocks: u32,
    pub(super) rope_scale: f32,
    pub(super) inv_temperature: f32,
    pub(super) eps: f32,
    pub(super) score_scale: f32,
    pub(super) rotary: u32,
    pub(super) stop_count: u32,
    pub(super) stops: [u32; 8],
    pub(super) draw: u32,
    pub(super) logit_stride: u32,
    pub(super) filter: u32,
    pub(super) top_k: u32,
    pub(super) top_p: f32,
    pub(super) min_log: f32,
    pub(super) scratch_len: u32,
}

// SAFETY: plain data whose layout is that of the device's struct: 8-byte fields first, then 4-byte fields.
unsafe impl DeviceRepr for Params {}
// SAFETY: plain data, 16 words.
unsafe impl DeviceRepr for Record {}
