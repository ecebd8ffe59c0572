//! What all tasks share: which buffers stand behind the parameters of a launch, and its numbers.

use crate::plan::{BLOCK, Plan};
use amk_ir::BufferId;

/// What all tasks share.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// The embedding table that fused tasks read.
    pub embedding: Option<BufferId>,
    /// Rotary frequencies of fused attention.
    pub freqs: Option<BufferId>,
    /// The logits.
    pub logits: BufferId,
    /// The tokens, one a worker.
    pub token: BufferId,
    /// Keys and values of each layer of fused attention, in the order of their memory.
    pub caches: Vec<[BufferId; 2]>,
    /// The constants of fused attention, where there is one.
    pub attention: Option<AttentionForm>,
    /// Elements of a row of the embedding table.
    pub hidden: u32,
    /// Logits.
    pub vocab: u32,
    /// Blocks of a kv head's cache in a layer.
    pub kv_blocks: u32,
    /// Rotary frequencies.
    pub rotary: u32,
    /// Factor on rotated values.
    pub rope_scale: f32,
    /// Epsilon of every RMSNorm of a fused task.
    pub eps: f32,
    /// Factor on attention scores.
    pub score_scale: f32,
}

/// The constants with which fused attention is compiled: the arguments of `Attention` in
/// `turns.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionForm {
    /// Elements of a head.
    pub head_dim: u32,
    /// Query heads of a kv head.
    pub group: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Splits of a kv head's cache.
    pub splits: u32,
    /// Blocks that a split takes before the next takes its turn.
    pub run: u32,
    /// Whether queries and keys are normed head by head.
    pub normed: bool,
}

impl Fixed {
    /// What the tasks of a plan share.
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            embedding: plan.embedding,
            freqs: plan.freqs,
            logits: plan.logits,
            token: plan.token,
            caches: plan.layers.iter().map(|layer| layer.caches).collect(),
            attention: AttentionForm::of(plan),
            hidden: plan.sizes.hidden,
            vocab: plan.sizes.vocab,
            kv_blocks: plan.sizes.context.div_ceil(BLOCK) + 1,
            rotary: plan.sizes.head_dim / 2,
            rope_scale: plan.rope_scale,
            eps: plan.eps,
            score_scale: plan.score_scale,
        }
    }

    /// Bytes of the caches of fused attention.
    pub(crate) fn kv_bytes(&self) -> u64 {
        let of_layer = self.attention.map_or(0, |form| {
            u64::from(form.kv_heads) * u64::from(self.kv_blocks) * u64::from(BLOCK * form.head_dim * 4)
        });
        self.caches.len() as u64 * of_layer
    }
}

impl AttentionForm {
    /// The form of a plan's attentions, all of which are alike.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let sizes = plan.sizes;
        (!plan.layers.is_empty()).then(|| Self {
            head_dim: sizes.head_dim,
            group: sizes.heads / sizes.kv_heads,
            kv_heads: sizes.kv_heads,
            splits: sizes.splits,
            run: plan.schedule.run,
            normed: plan.layers.iter().any(|layer| layer.head_norms.is_some()),
        })
    }
}
