//! Groups the attention of a layer: head norms, rotary embeddings, appends and attention itself.

use super::division::Division;
use super::form::{AttentionForm, RotaryTable, SMALL_HEAD, run_of};
use super::phase;
use crate::fused::Decoder;
use crate::layer_norm::CENTRED;
use crate::linear::group::together;
use amk::ir::program::BufferKind;
use amk::ir::schedule::Schedule;
use amk::ir::{DType, Param, TensorId};
use amk_cuda::image::abi::SCRATCH_FLOATS;
use amk_cuda::plan::{Flow, FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;
use amk_cuda::{is_wide, row_scratch};

const CAPPED: &str = "amk_kernels::capped_attention";
const ATTENTION: [&str; 3] = ["amk_kernels::attention", "amk_kernels::window_attention", CAPPED];

/// Query heads that may share a key head: the columns of a product of the tensor cores.
const MOST_GROUP: u32 = 8;

/// Maximum number of kinds of attention in a function: each has its own code.
const MOST_KINDS: usize = 2;

const HEAD_NORM: &str = "amk_kernels::head_norm";
const WHOLE_NORM: &str = "amk_kernels::rms_norm";

/// Elements between the queries of two heads in a step of rows.
const QUERY_PAD: u32 = 8;

/// Elements of a tile of keys: heads are whole tiles.
const HEAD_TILE: u32 = 16;
/// Elements in a line of a row's values: if queries and keys are whole lines, the data that follows
/// them is adjacent.
const LINE: u32 = 64;
/// Elements of a head whose values are divided between two warps.
const LONG_HEAD: u32 = 256;

/// Attention as one fused group.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    /// The calls, `attention` first.
    pub(crate) calls: Vec<usize>,
    /// Query, key and value, before norm and rotary embedding.
    pub(crate) qkv: [TensorId; 3],
    /// Weights of the norms of queries and keys.
    pub(crate) norms: Option<Norms>,
    /// The output.
    pub(crate) result: TensorId,
    /// Constants shared by all attentions of the function.
    pub(crate) heads: Heads,
    /// Constants that may differ between layers of two kinds.
    pub(crate) kind: Kind,
}

/// Weights of the norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Norms {
    /// Of each head.
    Heads([TensorId; 2]),
    /// Of all heads together.
    Whole([TensorId; 2]),
}

/// Sizes and constants shared by all attentions of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heads {
    /// Scale of attention scores.
    pub(crate) score_scale: f32,
    /// Query heads.
    pub(crate) count: u32,
    /// Key heads with their copies, positions and head dim: the shape of a cache.
    pub(crate) cache: [u32; 3],
    /// Copies of each key head, which divide its query heads among themselves.
    pub(crate) copies: u32,
    /// Whether queries and keys are normalised per head.
    pub(crate) normed: bool,
}

/// Constants of the attentions of some layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kind {
    /// The rotation of queries and keys, if there is one.
    pub(crate) rotation: Option<Rotation>,
    /// The number of last positions that are attended to, unless all are.
    pub(crate) window: Option<u32>,
    /// The soft cap on the scores, if there is one.
    pub(crate) cap: Option<f32>,
}

/// A rotation of heads by their position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rotation {
    /// The frequencies, radians per position.
    pub(crate) freqs: TensorId,
    /// Scale of rotated values.
    pub(crate) scale: f32,
    /// Number of leading elements of a head that are rotated.
    pub(crate) turned: u32,
}

/// Finds the attentions of a function and the projections of their queries, keys and values.
pub(crate) struct Attentions;

impl Fusion for Attentions {
    fn group(&self, grouping: &mut Grouping<'_>) {
        let flow = grouping.flow;
        let norms = [HEAD_NORM, WHOLE_NORM].into_iter().chain(CENTRED);
        let norms: Vec<&str> = norms.collect();
        let mut of_norms = grouping.calls().filter(|&at| norms.contains(&flow.path(at)));
        let eps = of_norms.next().and_then(|at| flow.float(at)).unwrap_or(0.0);
        grouping.shared.entry::<Decoder>().eps = eps;
        for at in grouping.calls().filter(|&at| grouping.may_lead(at)).collect::<Vec<_>>() {
            if !ATTENTION.contains(&flow.path(at)) {
                continue;
            }
            let attention = attention_at(flow, grouping.schedule, at, eps);
            match attention.and_then(|attention| attention.beside(grouping.groups::<Attention>())) {
                Ok(attention) => {
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
        let form = self.form(planner);
        let decoder = planner.plan.shared.entry::<Decoder>();
        decoder.score_scale = self.heads.score_scale;
        if !decoder.forms.contains(&form) {
            decoder.forms.push(form);
        }
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        phase::plan(self, planner)
    }
}

impl Attention {
    /// Returns it, if a plan may contain it beside `others`.
    ///
    /// # Errors
    /// The reason why it may not.
    fn beside<'o>(self, others: impl Iterator<Item = &'o Self>) -> Result<Self, String> {
        let mut kinds: Vec<Kind> = Vec::new();
        for other in others {
            if other.heads != self.heads {
                return Err("its sizes or constants differ from an earlier attention's".to_owned());
            }
            if other.kind != self.kind && !kinds.contains(&other.kind) {
                kinds.push(other.kind);
            }
        }
        match kinds.len() < MOST_KINDS {
            true => Ok(self),
            false => Err(format!("there are {MOST_KINDS} other kinds of attention before it")),
        }
    }

    /// Returns its form in a plan, to which it adds its table of frequencies.
    pub(super) fn form(&self, planner: &mut Planner<'_>) -> AttentionForm {
        let Kind { rotation, window, cap } = self.kind;
        let table = rotation.map(|Rotation { freqs, scale, turned }| RotaryTable {
            freqs: planner.known(freqs),
            scale,
            len: turned / 2,
        });
        let schedule = &planner.plan.schedule;
        let [kv_heads, _, head_dim] = self.heads.cache;
        let division = Division::new(&planner.plan, [kv_heads, self.heads.count, head_dim], self.heads.score_scale);
        let (splits, run) = match planner.plan.is_wide() {
            true => (division.parts, 1),
            false => ((schedule.workers / kv_heads).min(schedule.splits), run_of(schedule, head_dim)),
        };
        let tables = &mut planner.plan.shared.entry::<Decoder>().tables;
        let table = table.map(|table| {
            let known = tables.iter().position(|known| *known == table);
            known.unwrap_or_else(|| {
                tables.push(table);
                tables.len() - 1
            })
        });
        let turned = rotation.map_or(0, |rotation| rotation.turned);
        let (group, copies, normed) = (self.heads.count / kv_heads, self.heads.copies, self.heads.normed);
        AttentionForm { head_dim, group, kv_heads, copies, splits, run, normed, turned, table, window, cap }
    }
}

/// An operand is missing, which a checked graph rules out.
const MALFORMED: &str = "it has other operands than attention has";
/// The body computes `rope` of queries and keys itself, or they have none.
const NOT_ROTATED: &str = "its queries and keys do not each come through a `rope` of their own, and not both without";

/// Returns the attention that ends in call `at`, if the fused code supports its form.
///
/// # Errors
/// The reason why not.
fn attention_at(flow: &Flow<'_>, schedule: &Schedule, at: usize, eps: f32) -> Result<Attention, String> {
    let operand = |at: usize, number: usize| flow.operand(at, number).ok_or(MALFORMED);
    let mut calls = vec![at];
    let caches = [operand(at, 1)?, operand(at, 2)?];
    if caches[0] == caches[1] {
        return Err("its keys and its values are in one cache".to_owned());
    }
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
        ropes.push(rope);
        let (mut from, reader) = match rope {
            Some(rope) => (operand(rope, 0)?, rope),
            None => (value, user),
        };
        let made_by = |path| flow.made_by(from, path);
        if let Some(norm) = made_by(HEAD_NORM).or_else(|| made_by(WHOLE_NORM)) {
            if !flow.only_for(from, reader) || flow.float(norm) != Some(eps) {
                return Err("its norms have other readers, or another epsilon than the first norm".to_owned());
            }
            norms.push((flow.path(norm), operand(norm, 1)?));
            calls.push(norm);
            from = operand(norm, 0)?;
        }
        bare.push(from);
    }
    calls.extend(ropes.iter().flatten());
    let (&[query_rope, key_rope], &[q, k]) = (&ropes[..], &bare[..]) else { return Err(MALFORMED.to_owned()) };
    let v = operand(value_append, 1)?;
    let norms = match norms[..] {
        [] => None,
        [(HEAD_NORM, q), (HEAD_NORM, k)] => Some(Norms::Heads([q, k])),
        [(WHOLE_NORM, q), (WHOLE_NORM, k)] => Some(Norms::Whole([q, k])),
        _ => return Err("its queries and its keys are not normalised alike".to_owned()),
    };
    if schedule.cache == Some(DType::F32) {
        return Err("its caches are kept in f32, and bf16 and e4m3 are computed".to_owned());
    }
    let &[kv_heads, positions, head_dim] = flow.shape(caches[0]) else { return Err(MALFORMED.to_owned()) };
    let count = flow.shape(q)[0] / head_dim;
    let copies = copies(count, kv_heads).ok_or_else(|| {
        format!("{count} query heads share {kv_heads} key heads, and up to {MOST_GROUP} or a multiple may share one")
    })?;
    let heads = Heads {
        score_scale: flow.float(at).ok_or(MALFORMED)?,
        count,
        cache: [kv_heads * copies, positions, head_dim],
        copies,
        normed: matches!(norms, Some(Norms::Heads(_))),
    };
    let rotation_of = |rope: Option<usize>| match rope {
        Some(rope) if flow.number(rope) == Some(head_dim) => {
            let (freqs, scale) = (operand(rope, 1)?, flow.float(rope).ok_or(MALFORMED)?);
            Ok(Some(Rotation { freqs, scale, turned: 2 * flow.shape(freqs)[0] }))
        }
        Some(_) => Err("its queries or keys are rotated as heads of another size"),
        None => Ok(None),
    };
    let rotations = [rotation_of(query_rope)?, rotation_of(key_rope)?];
    if rotations[0].is_some() != rotations[1].is_some() {
        return Err(NOT_ROTATED.to_owned());
    }
    let kind = Kind {
        rotation: rotations[1],
        window: flow.number(at).filter(|&window| window < positions),
        cap: capped_at(flow, at),
    };
    let result = flow.result(at).ok_or(MALFORMED)?;
    let alike =
        rotations[0] == rotations[1] && flow.shape(caches[1]) == flow.shape(caches[0]) && q != k && k != v && q != v;
    if !alike {
        return Err("its queries, keys and caches differ in rotation or shape".to_owned());
    }
    if heads.normed && kind.cap.is_some() {
        return Err("its heads are normalised and its scores bounded".to_owned());
    }
    if kind.rotation.is_none() && (heads.normed || kind.cap.is_some()) {
        return Err("its heads are not rotated, and normalised or its scores bounded".to_owned());
    }
    if let Some(because) = heads.refused(schedule).or_else(|| kind.refused(head_dim)) {
        return Err(because);
    }
    let computed = positions == flow.unrolled.positions
        && [q, k, v, result].iter().all(|&value| flow.kind(value) == BufferKind::Activation);
    if !computed {
        return Err("its inputs, its result or its cache have other uses or lengths".to_owned());
    }
    Ok(Attention { calls, qkv: [q, k, v], norms, result, heads, kind })
}

/// Returns the number of copies of each of `kv_heads` key heads, such that at most [`MOST_GROUP`]
/// of the `heads` query heads share one: each copy is appended to and read as a head of its own.
fn copies(heads: u32, kv_heads: u32) -> Option<u32> {
    let group = Some(heads / kv_heads).filter(|&group| heads.is_multiple_of(kv_heads) && group > 0)?;
    (1..=MOST_GROUP).find(|copies| group.is_multiple_of(*copies) && group / copies <= MOST_GROUP)
}

/// Returns the soft cap on an attention's scores, if it has one.
fn capped_at(flow: &Flow<'_>, at: usize) -> Option<f32> {
    let mut floats = flow.call(at).params.iter().filter_map(|param| match param {
        Param::F32(value) => Some(*value),
        _ => None,
    });
    floats.nth(1).filter(|_| flow.path(at) == CAPPED)
}

impl Heads {
    /// The reason why the fast code does not support attentions of these sizes.
    fn refused(&self, schedule: &Schedule) -> Option<String> {
        let ([kv_heads, _, head_dim], heads) = (self.cache, self.count);
        let whole = head_dim > 0 && head_dim.is_multiple_of(HEAD_TILE);
        if head_dim != LONG_HEAD && !(whole && head_dim <= SMALL_HEAD) {
            return Some(format!(
                "its heads have {head_dim} elements, and multiples of {HEAD_TILE} up to {SMALL_HEAD}, or {LONG_HEAD}, \
                 are computed"
            ));
        }
        let (queries, keys) = (heads * head_dim, kv_heads / self.copies * head_dim);
        if !queries.is_multiple_of(LINE) || !keys.is_multiple_of(LINE) {
            return Some(format!(
                "its queries have {queries} elements and its keys {keys}, and multiples of {LINE} are computed"
            ));
        }
        let workers = schedule.workers;
        if kv_heads > workers {
            return Some(format!("it has {kv_heads} key heads on {workers} workers"));
        }
        let queries = heads / kv_heads * (head_dim + QUERY_PAD) * 2;
        let shares = schedule.rows.map(|rows| row_scratch(rows.most, schedule.ring.slots));
        let shares_fit = shares.is_none_or(|bytes| heads / kv_heads * head_dim * 4 <= bytes);
        let fits = is_wide(schedule) || (queries <= SCRATCH_FLOATS * 4 && shares_fit);
        (!fits).then(|| format!("the queries of a row, {heads} of {head_dim} elements, exceed a worker's memory"))
    }
}

impl Kind {
    /// The reason why the fast code does not support attentions of this kind.
    fn refused(&self, head_dim: u32) -> Option<String> {
        let Rotation { turned, .. } = self.rotation?;
        if !turned.is_multiple_of(4) || turned > head_dim {
            return Some(format!("{turned} elements of a head are rotated, and multiples of 4 are computed"));
        }
        let part = head_dim > SMALL_HEAD && turned < head_dim;
        part.then(|| format!("a part of its heads of {head_dim} elements is rotated, and all of them is computed"))
    }
}
