//! Groups the attention of a layer: head norms, rotary embeddings, appends and attention itself.

use super::phase;
use crate::fused::Decoder;
use crate::linear::group::together;
use amk::ir::program::BufferKind;
use amk::ir::schedule::Schedule;
use amk::ir::{DType, TensorId};
use amk_cuda::plan::{Flow, FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;

const ATTENTION: [&str; 2] = ["amk_kernels::attention", "amk_kernels::window_attention"];

/// Attention as one fused group.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    /// The calls, `attention` first.
    pub(crate) calls: Vec<usize>,
    /// Query, key and value, before norm and rotary embedding.
    pub(crate) qkv: [TensorId; 3],
    /// Weights of the per-head norms of queries and keys.
    pub(crate) head_norms: Option<[TensorId; 2]>,
    /// The output.
    pub(crate) result: TensorId,
    /// Constants and sizes.
    pub(crate) rotary: Rotary,
}

/// Constants shared by all attentions of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rotary {
    /// Rotary frequencies, radians per position.
    pub(crate) freqs: TensorId,
    /// Scale of rotated values.
    pub(crate) rope_scale: f32,
    /// Scale of attention scores.
    pub(crate) score_scale: f32,
    /// Query heads.
    pub(crate) heads: u32,
    /// Key heads, positions and head dim: the shape of a cache.
    pub(crate) cache: [u32; 3],
    /// Whether queries and keys are normalised per head.
    pub(crate) normed: bool,
    /// Elements of a head that are rotated, the first ones.
    pub(crate) turned: u32,
    /// The last positions that are attended to, where these are not all.
    pub(crate) window: Option<u32>,
}

/// Finds the attentions of a function and the projections of their queries, keys and values.
pub(crate) struct Attentions;

impl Fusion for Attentions {
    fn group(&self, grouping: &mut Grouping<'_>) {
        let flow = grouping.flow;
        let norms = ["amk_kernels::rms_norm", "amk_kernels::head_norm"];
        let mut of_norms = grouping.calls().filter(|&at| norms.contains(&flow.path(at)));
        let eps = of_norms.next().and_then(|at| flow.float(at)).unwrap_or(0.0);
        grouping.shared.entry::<Decoder>().eps = eps;
        for at in grouping.calls().filter(|&at| grouping.may_lead(at)).collect::<Vec<_>>() {
            let known = grouping.shared.entry::<Decoder>().rotary;
            if !ATTENTION.contains(&flow.path(at)) {
                continue;
            }
            match attention_at(flow, grouping.schedule, at, eps, known) {
                Ok(attention) => {
                    grouping.shared.entry::<Decoder>().rotary = Some(attention.rotary);
                    let qkv = attention.qkv;
                    grouping.push(attention);
                    together(grouping, &qkv);
                }
                Err(because) => grouping.refuse(at, because),
            }
        }
    }
}

impl FusedGroup for Attention {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn packed(&self) -> Vec<TensorId> {
        self.qkv.to_vec()
    }

    fn keeps_state(&self) -> bool {
        true
    }

    /// Queries, keys and values are contiguous.
    fn begin(&self, planner: &mut Planner<'_>) {
        for value in self.qkv {
            planner.value(value, DType::BF16);
        }
        let freqs = planner.known(self.rotary.freqs);
        let most = planner.plan.schedule.splits;
        let workers = planner.plan.schedule.workers;
        let decoder = planner.plan.shared.entry::<Decoder>();
        decoder.freqs = Some(freqs);
        decoder.splits = (workers / self.rotary.cache[0]).min(most);
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        phase::plan(self, planner)
    }
}

/// An operand is missing, which a checked graph rules out.
const MALFORMED: &str = "it has other operands than attention has";
/// The body computes `rope` of queries and keys itself.
const NOT_ROTATED: &str = "its queries and keys do not each come through a `rope` of their own";

/// Returns the attention that ends in call `at`, if the fused code supports its form and it shares
/// the constants of those found so far.
///
/// # Errors
/// The reason why not.
fn attention_at(
    flow: &Flow<'_>,
    schedule: &Schedule,
    at: usize,
    eps: f32,
    known: Option<Rotary>,
) -> Result<Attention, String> {
    let operand = |at: usize, number: usize| flow.operand(at, number).ok_or(MALFORMED);
    let mut calls = vec![at];
    let caches = [operand(at, 1)?, operand(at, 2)?];
    // Only this attention may use the caches, because it chooses their layout.
    let appends = caches.map(|cache| match flow.users(cache) {
        [append, user] if *user == at && flow.path(*append) == "amk_kernels::kv_append" => Some(*append),
        _ => None,
    });
    let [Some(key_append), Some(value_append)] = appends else {
        return Err("its caches are not used by one `kv_append` each and by it alone".to_owned());
    };
    calls.extend([key_append, value_append]);
    let rotated = [(operand(at, 0)?, at), (operand(key_append, 1)?, key_append)];
    let mut ropes = Vec::new();
    let mut bare = Vec::new();
    let mut norms = Vec::new();
    for (value, user) in rotated {
        let rope = flow.made_by(value, "amk_kernels::rope").filter(|_| flow.only_for(value, user));
        let rope = rope.ok_or(NOT_ROTATED)?;
        ropes.push(rope);
        let mut from = operand(rope, 0)?;
        if let Some(norm) = flow.made_by(from, "amk_kernels::head_norm") {
            if !flow.only_for(from, rope) || flow.float(norm) != Some(eps) {
                return Err("its head norms have other readers, or another epsilon than the first norm".to_owned());
            }
            norms.push(operand(norm, 1)?);
            calls.push(norm);
            from = operand(norm, 0)?;
        }
        bare.push(from);
    }
    calls.extend(&ropes);
    let (&[query_rope, key_rope], &[q, k]) = (&ropes[..], &bare[..]) else { return Err(NOT_ROTATED.to_owned()) };
    let v = operand(value_append, 1)?;
    let head_norms = match norms[..] {
        [] => None,
        [q, k] => Some([q, k]),
        _ => return Err("either its queries or its keys are normalised, not both".to_owned()),
    };
    let &[kv_heads, positions, head_dim] = flow.shape(caches[0]) else { return Err(MALFORMED.to_owned()) };
    let freqs = operand(key_rope, 1)?;
    let rotary = Rotary {
        freqs,
        rope_scale: flow.float(key_rope).ok_or(MALFORMED)?,
        score_scale: flow.float(at).ok_or(MALFORMED)?,
        heads: flow.shape(q)[0] / head_dim,
        cache: [kv_heads, positions, head_dim],
        normed: head_norms.is_some(),
        turned: 2 * flow.shape(freqs)[0],
        window: flow.number(at).filter(|&window| window < positions),
    };
    let result = flow.result(at).ok_or(MALFORMED)?;
    let alike = flow.operand(query_rope, 1) == Some(freqs)
        && flow.call(query_rope).params == flow.call(key_rope).params
        && flow.number(key_rope) == Some(head_dim)
        && flow.shape(caches[1]) == flow.shape(caches[0])
        && q != k
        && k != v
        && q != v;
    if !alike {
        return Err("its queries, keys and caches differ in rotation or shape".to_owned());
    }
    if let Some(because) = rotary.refused(schedule) {
        return Err(because);
    }
    let computed = positions == flow.unrolled.positions
        && [q, k, v, result].iter().all(|&value| flow.kind(value) == BufferKind::Activation);
    if !computed {
        return Err("its inputs, its result or its cache have other uses or lengths".to_owned());
    }
    match known.is_none_or(|known| known == rotary) {
        true => Ok(Attention { calls, qkv: [q, k, v], head_norms, result, rotary }),
        false => Err("its sizes or constants differ from those of an attention before it".to_owned()),
    }
}

impl Rotary {
    /// Why the fast code does not compute attentions of these sizes.
    fn refused(&self, schedule: &Schedule) -> Option<String> {
        let ([kv_heads, _, head_dim], heads) = (self.cache, self.heads);
        if head_dim != 64 && head_dim != 128 {
            return Some(format!("its heads have {head_dim} elements, and 64 or 128 are computed"));
        }
        if !self.turned.is_multiple_of(4) || self.turned > head_dim {
            return Some(format!("{} elements of a head are rotated, and multiples of 4 are computed", self.turned));
        }
        if !heads.is_multiple_of(kv_heads) || !(1..=8).contains(&(heads / kv_heads)) {
            return Some(format!("{heads} query heads share {kv_heads} key heads, and up to 8 may share one"));
        }
        let workers = schedule.workers;
        (kv_heads > workers).then(|| format!("it has {kv_heads} key heads on {workers} workers"))
    }
}
