//! The built-in fused bodies as a set: their data about a whole plan, and the state that their
//! tasks share on the device. They use nothing that is unavailable to other crates.

pub use crate::abi::GEMV_INPUT_BIT;
use crate::abi::{DecoderParams, PARAMS};
use crate::attention::{
    APPEND, ATTEND_ROWS, Attentions, BLOCK_PARTS, JOIN, JOIN_PARTS, JOIN_ROWS, PARTS, SPLIT, cache_of, copies,
};
pub use crate::attention::{
    Append, Attend, AttendRows, AttentionForm, BLOCK, BlockParts, Combine, JoinParts, JoinRows, LayerBuffers, Partials,
    Parts, RotaryTable, SLICE,
};
use crate::choose::{BEST, CHOOSE, Choice, PROBE, ROWS};
pub use crate::choose::{Best, Choose, ChooseRows, Draw, Probe};
use crate::cuda::{DEVICE, ROW_DEVICE, TYPES};
use crate::layer_norm::CentredNorms;
use crate::linear::group::Projections;
use crate::linear::source;
use crate::linear::{ADDENDS, GEMV, REDUCE};
pub use crate::linear::{
    Addends, Columns, Function, Gemv, Input, Output, Owner, PartialSums, Published, Reduce, SplitK, TileKind, Tiles,
    coded,
};
use crate::residual::{ADOPT, EMBED, Embedding};
pub use crate::residual::{Adopt, Embed};
use crate::rms_norm::{Deferral, NORM, NORM_ROWS, NormedResiduals};
pub use crate::rms_norm::{Deferred, Norm, NormBy, NormOutput, NormRows, Scale, Sum};
use crate::short_conv::{CONVOLVE, Convolutions};
pub use crate::short_conv::{ConvBuffers, Convolve};
use amk::ir::rows::{PageGroups, Reach};
use amk::ir::{Buffer, BufferId, BufferKind, DType, Program};
use amk_cuda::image::decode::Refusal;
use amk_cuda::image::{Image, Record};
use amk_cuda::plan::Plan;
use amk_cuda::set::{BodySet, RowCode, SharedForm, SharedMemory, SharedState};
use amk_cuda::{Extensions, MOST_RING_SLOTS, Params};

amk_cuda::inventory::submit! {
    BodySet {
        name: "amk_kernels",
        code: DEVICE,
        abi: crate::abi::text,
        params: PARAMS,
        types: TYPES,
        kept: include_str!("kept.cuh"),
        begin_launch: "begin_fresh(s), begin_stages(s);",
        copy: "copy_stages(p, s, data, warp, lane);",
        begin_step: "begin_rotation(w), begin_order(w), begin_race(w);",
        see_logits: "enter_race(w, values, first, len);",
        instructions: &[
            "amk_kernels::embed",
            "amk_kernels::adopt",
            "amk_kernels::rms_norm",
            "amk_kernels::linear",
            "amk_kernels::add_bias",
            "amk_kernels::add",
            "amk_kernels::silu_mul",
            "amk_kernels::attention_split",
            "amk_kernels::normed_attention_split",
            "amk_kernels::combine_splits",
            "amk_kernels::best",
            "amk_kernels::first_probe",
            "amk_kernels::probe",
            "amk_kernels::choose",
            "amk_kernels::no_best",
            "amk_kernels::no_first_probe",
            "amk_kernels::no_probe",
            "amk_kernels::weigh",
            "amk_kernels::sum_squares",
            "amk_kernels::scale_by_squares",
        ],
        kinds: &[
            EMBED,
            SPLIT,
            JOIN,
            BEST,
            PROBE,
            GEMV,
            ADDENDS,
            CHOOSE,
            ADOPT,
            APPEND,
            PARTS,
            JOIN_PARTS,
            ATTEND_ROWS,
            BLOCK_PARTS,
            JOIN_ROWS,
            NORM,
            NORM_ROWS,
            CONVOLVE,
            REDUCE,
        ],
        fusions: &[&Attentions, &Projections, &NormedResiduals, &CentredNorms, &Convolutions, &Embedding, &Deferral],
        sampling: Some(&Choice),
        rows: RowCode { structs: ROWS.0, params: ROWS.1, code: ROW_DEVICE },
        shared: &DecoderState,
    }
}

/// Data of the fused bodies about a whole plan.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// Epsilon of all norms in fused tasks.
    pub eps: f32,
    /// Row length of the embedding table that fused tasks read.
    pub hidden: u32,
    /// The embedding table that fused tasks read.
    pub embedding: Option<BufferId>,
    /// The factor of its rows.
    pub embedding_scale: Option<f32>,
    /// The kinds of fused attention, which all have the same heads.
    pub forms: Vec<AttentionForm>,
    /// Their rotary frequencies.
    pub tables: Vec<RotaryTable>,
    /// Scale of their scores.
    pub score_scale: f32,
    /// Buffers of the layers with fused attention.
    pub layers: Vec<LayerBuffers>,
    /// Element-wise functions that projections apply to their results.
    pub functions: Vec<Function>,
    /// The kinds of tiles of its projections, by number.
    pub tiles: Vec<&'static TileKind>,
    /// Buffers of the fused short convolutions.
    pub convolutions: Vec<ConvBuffers>,
    /// Their channels, and inputs of each.
    pub convolved: [u32; 2],
}

impl Decoder {
    /// Returns the fused bodies' data of a plan, if it has any.
    pub fn of(plan: &Plan) -> Option<&Self> {
        plan.shared.get()
    }

    /// Returns the epsilon of the norms in a plan's fused tasks.
    pub(crate) fn eps(plan: &Plan) -> f32 {
        Self::of(plan).map_or(0.0, |decoder| decoder.eps)
    }

    /// Returns the fused bodies' data of a plan whose attention is fused.
    pub(crate) fn attending(plan: &Plan) -> Option<&Self> {
        Self::of(plan).filter(|decoder| !decoder.layers.is_empty())
    }

    /// Returns the layers of a plan whose attention is fused.
    pub fn layers(plan: &Plan) -> &[LayerBuffers] {
        Self::of(plan).map_or(&[], |decoder| &decoder.layers)
    }

    /// Returns a layer of a plan.
    pub(crate) fn layer(plan: &Plan, layer: usize) -> Option<&LayerBuffers> {
        Self::layers(plan).get(layer)
    }

    /// Returns the group of pages of each kind of attention of a plan.
    pub(crate) fn groups(&self, plan: &Plan) -> Vec<usize> {
        self.forms.iter().map(|form| form.group_in(plan)).collect()
    }

    /// Returns the place of a layer of a plan in its group of pages.
    pub(crate) fn place(plan: &Plan, layer: usize) -> u32 {
        let Some(decoder) = Self::of(plan) else { return 0 };
        let groups = decoder.groups(plan);
        let group = |layer: &LayerBuffers| groups.get(layer.kind);
        let own = decoder.layers.get(layer).map(group);
        decoder.layers.iter().take(layer).filter(|&before| Some(group(before)) == own).count() as u32
    }

    /// Returns the number of positions of the inputs of convolutions that a row reads.
    pub(crate) fn convolved_reach(&self, positions: u32) -> Reach {
        let [_, taps] = self.convolved;
        Some(taps).filter(|&taps| taps < positions)
    }

    /// Returns key/value heads, query heads and head dim, or 0 without fused attention.
    pub fn heads(&self) -> [u32; 3] {
        let of = |form: &AttentionForm| [form.kv_heads, form.kv_heads * form.group, form.head_dim];
        self.forms.first().map_or([0; 3], of)
    }

    /// Returns the splits of a kv head's cache, or 0 without fused attention.
    pub fn splits(&self) -> u32 {
        self.forms.first().map_or(0, |form| form.splits)
    }

    /// Returns the positions of a run of a split, or 1 without fused attention.
    pub(crate) fn run(&self) -> u32 {
        self.forms.first().map_or(1, |form| form.run * BLOCK)
    }

    /// Returns the form of a layer's attention, and its table of frequencies if it rotates.
    pub(crate) fn form(&self, layer: &LayerBuffers) -> Option<(AttentionForm, Option<RotaryTable>)> {
        let form = *self.forms.get(layer.kind)?;
        let table = form.table.and_then(|table| self.tables.get(table).copied());
        (form.table.is_some() == table.is_some()).then_some((form, table))
    }
}

/// State shared by the fused tasks of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// The embedding table that fused tasks read.
    pub embedding: Option<BufferId>,
    /// The factor of its rows.
    pub embedding_scale: Option<f32>,
    /// The layers of fused attention; the layers of a group of pages are stored in their order.
    pub layers: Vec<CachedLayer>,
    /// Inputs of each fused short convolution, in memory order, after the caches; if paged, in
    /// pages after their group's.
    pub convolutions: Vec<BufferId>,
    /// The group of pages of the inputs of convolutions.
    pub convolved_in: usize,
    /// The group of pages of each kind of fused attention.
    pub groups: Vec<usize>,
    /// The number of groups of pages; without pages one.
    pub group_count: usize,
    /// Their channels, and inputs of each.
    pub convolved: [u32; 2],
    /// Element type of the caches.
    pub cache: DType,
    /// The kinds of fused attention that the plan has, by number.
    pub attention: Vec<AttentionForm>,
    /// Their rotary frequencies, in memory order.
    pub tables: Vec<RotaryTable>,
    /// Element-wise functions that projections apply to their results. Function `n` is at index `n
    /// - 1`.
    pub functions: Vec<Function>,
    /// The kinds of tiles of projections, by number.
    pub tiles: Vec<&'static TileKind>,
    /// Row length of the embedding table.
    pub hidden: u32,
    /// Rows of the embedding table.
    pub tokens: u32,
    /// Blocks per kv head and layer of the cache.
    pub kv_blocks: u32,
    /// Whether these are pages of sequences.
    pub paged: bool,
    /// Epsilon of every norm of a fused task.
    pub eps: f32,
    /// Scale of attention scores.
    pub score_scale: f32,
}

/// The caches of a layer of fused attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedLayer {
    /// Keys and values.
    pub caches: [BufferId; 2],
    /// The group of pages that contains them.
    pub group: usize,
    /// The weight of the norm of its keys, if there is one.
    pub key_norm: Option<BufferId>,
}

/// Places, checks and binds [`Shared`].
struct DecoderState;

impl SharedState for DecoderState {
    fn defines(&self, plan: &Plan) -> String {
        source::defines(plan)
    }

    fn functions(&self, plan: &Plan) -> String {
        source::project(plan) + &copies(plan)
    }

    fn suits_narrow(&self, plan: &Plan) -> bool {
        source::reads_once(plan)
    }

    fn place(&self, plan: &Plan, to: &mut Extensions) {
        to.set(Shared::new(plan));
    }

    fn check(&self, image: &Image, program: &Program, plan: &Plan) -> Result<(), Refusal> {
        let shared = image.shared.get::<Shared>().ok_or_else(|| Refusal::new("shared", "is missing"))?;
        shared.check(program, plan)?;
        let streams = |pieces: &Vec<_>| pieces.len() >= MOST_RING_SLOTS as usize;
        if plan.rows().is_none() && !shared.layers.is_empty() && !image.pieces.iter().all(streams) {
            return Err(Refusal::new("pieces", "of a worker are fewer than the slots of the ring"));
        }
        Ok(())
    }

    fn memories(&self, image: &Image) -> Vec<SharedMemory> {
        let shared = Shared::of(image);
        let table = u64::from(shared.hidden) * 2;
        let freqs = shared.tables.iter().map(|table| (table.freqs, SharedForm::F32)).collect();
        let rows = u64::from(shared.tokens);
        vec![
            SharedMemory {
                bytes: rows * table,
                content: shared.embedding.map(|table| (table, SharedForm::BF16)).into_iter().collect(),
                pages: Vec::new(),
            },
            SharedMemory {
                bytes: shared.kv_bytes(),
                content: Vec::new(),
                pages: if shared.paged { shared.page_bytes() } else { Vec::new() },
            },
            SharedMemory { bytes: u64::from(shared.rotary()) * 4, content: freqs, pages: Vec::new() },
        ]
    }

    fn bind(&self, image: &Image, at: &[u64], to: &mut Params) {
        let shared @ &Shared { hidden, kv_blocks, eps, score_scale, .. } = Shared::of(image);
        let (rotary, rope_scale) = (shared.rotary(), shared.tables.first().map_or(1.0, |table| table.scale));
        let place = |number: usize| at.get(number).copied().unwrap_or(0);
        let (embedding, kv, inv_freq) = (place(0), place(1), place(2));
        to.push(&DecoderParams { embedding, kv, inv_freq, hidden, kv_blocks, rope_scale, eps, score_scale, rotary });
    }

    fn reaches(&self, plan: &Plan) -> Vec<Reach> {
        let Some(decoder) = Decoder::of(plan) else { return Vec::new() };
        let of_layer = |layer: &LayerBuffers| decoder.forms.get(layer.kind).map(|form| form.reach());
        let of_convolutions = decoder.convolutions.iter().map(|_| decoder.convolved_reach(plan.sizes.context));
        decoder.layers.iter().filter_map(of_layer).chain(of_convolutions).collect()
    }

    fn state_bytes(&self, plan: &Plan, pos: u32) -> u64 {
        let Some(decoder) = Decoder::of(plan) else { return 0 };
        let of_element = cache_of(plan).bytes();
        let bytes = |layer| {
            let form = decoder.form(layer)?.0;
            let positions = form.window.unwrap_or(u32::MAX).min(pos);
            Some(u64::from(form.kv_heads) * u64::from(form.head_dim * 2 * of_element) * u64::from(positions))
        };
        decoder.layers.iter().filter_map(bytes).sum()
    }
}

impl Shared {
    /// Collects the state that the tasks of a plan share.
    fn new(plan: &Plan) -> Self {
        let decoder = Decoder::of(plan).cloned().unwrap_or_default();
        let groups = decoder.groups(plan);
        let layer = |layer: &LayerBuffers| {
            let group = groups.get(layer.kind).copied().unwrap_or(0);
            CachedLayer { caches: layer.caches, group, key_norm: layer.head_norms.map(|[_, keys]| keys) }
        };
        Self {
            embedding: decoder.embedding,
            embedding_scale: decoder.embedding_scale,
            layers: decoder.layers.iter().map(layer).collect(),
            convolved_in: plan.group(decoder.convolved_reach(plan.sizes.context)),
            group_count: plan.groups.len().max(1),
            groups,
            convolutions: decoder.convolutions.iter().map(|buffers| buffers.inputs).collect(),
            convolved: decoder.convolved,
            cache: cache_of(plan),
            attention: decoder.forms,
            tables: decoder.tables,
            functions: decoder.functions,
            tiles: decoder.tiles,
            hidden: decoder.hidden,
            tokens: decoder.embedding.map_or(0, |table| plan.extent(table)),
            kv_blocks: kv_blocks(plan),
            paged: plan.has_pages(),
            eps: decoder.eps,
            score_scale: decoder.score_scale,
        }
    }

    /// Returns the shared state of an image.
    ///
    /// # Panics
    /// If the image was not built by the VM, which adds the state.
    pub fn of(image: &Image) -> &Self {
        image.shared.get().expect("every image has what the fused tasks share")
    }

    /// Returns the number of rotary frequencies.
    fn rotary(&self) -> u32 {
        self.tables.iter().map(|table| table.len).sum()
    }

    /// Returns the layer of a record of attention: its number within the group of its
    /// kind.
    pub(crate) fn layer_at(&self, record: &Record) -> Option<u32> {
        let group = self.groups.get(record.shape as usize)?;
        let of_group = self.layers.iter().zip(0..).filter(|(layer, _)| layer.group == *group);
        of_group.map(|(_, number)| number).nth(record.layer as usize)
    }

    /// Returns the layer of a record of attention.
    ///
    /// # Errors
    /// If there is no such layer.
    pub(crate) fn cached_at(&self, record: &Record) -> Result<&CachedLayer, Refusal> {
        let layer = self.layer_at(record).and_then(|layer| self.layers.get(layer as usize));
        layer.ok_or_else(|| Refusal::new("layer", format!("is {}", record.layer)))
    }

    /// Returns the bytes of the caches of fused attention and of the inputs of convolutions that
    /// are not paged.
    fn kv_bytes(&self) -> u64 {
        u64::from(self.kv_blocks) * self.page_bytes().iter().sum::<u64>()
    }

    /// Returns the bytes of a block of positions, in all layers and heads of each group.
    fn page_bytes(&self) -> Vec<u64> {
        let of_group = |group: usize| {
            let layers = self.layers.iter().filter(|layer| layer.group == group).count();
            let convolutions = if group == self.convolved_in { self.convolutions.len() } else { 0 };
            cache_page_bytes(&self.attention, self.cache, layers) + conv_page_bytes(self.convolved, convolutions)
        };
        (0..self.group_count).map(of_group).collect()
    }

    /// Checks the parameters that are the same in all launches.
    fn check(&self, program: &Program, plan: &Plan) -> Result<(), Refusal> {
        let shape = |id: BufferId| program.buffers.get(id.index()).map_or(&[][..], |buffer: &Buffer| &buffer.shape);
        let hidden = self.embedding.map_or(0, |table| shape(table).get(1).copied().unwrap_or(0));
        let numbers = [
            ("hidden", self.hidden, hidden),
            ("tokens", self.tokens, self.embedding.map_or(0, |table| shape(table).first().copied().unwrap_or(0))),
            ("kv_blocks", self.kv_blocks, kv_blocks(plan)),
            ("paged", u32::from(self.paged), u32::from(plan.has_pages())),
        ];
        for (field, value, expected) in numbers {
            if value != expected {
                return Err(Refusal::new(field, format!("is {value}, the program's buffers have {expected}")));
            }
        }
        // If no instruction of the program has such a parameter, the plan took it from the
        // function.
        let none = Decoder::default();
        let decoder = Decoder::of(plan).unwrap_or(&none);
        let factors = [("score_scale", self.score_scale, decoder.score_scale), ("eps", self.eps, decoder.eps)];
        for (field, value, expected) in factors {
            if value.to_bits() != expected.to_bits() {
                return Err(Refusal::new(field, format!("is {value}, the plan has {expected}")));
            }
        }
        self.check_groups(program, plan, decoder)?;
        if self.cache != cache_of(plan) {
            let what = format!("is {}, the plan has {}", self.cache, cache_of(plan));
            return Err(Refusal::new("cache", what));
        }
        self.check_attention(program, decoder)?;
        self.check_projections(decoder)?;
        self.check_caches(program)?;
        self.check_convolutions(program, decoder)
    }

    /// Checks that states are in pages of their groups. With rows, the program's tiles determine
    /// the groups. Without, a record's kind does; its window is also the one of the program's call.
    fn check_groups(&self, program: &Program, plan: &Plan, decoder: &Decoder) -> Result<(), Refusal> {
        let numbers = [
            ("group_count", self.group_count, plan.groups.len().max(1)),
            ("convolved_in", self.convolved_in, plan.group(decoder.convolved_reach(program.positions))),
        ];
        for (field, value, expected) in numbers {
            if value != expected {
                return Err(Refusal::new(field, format!("is {value}, the plan has {expected}")));
            }
        }
        let groups: Vec<usize> = self.attention.iter().map(|form| form.group_in(plan)).collect();
        if self.groups != groups {
            let what = format!("are {:?}, the kinds of attention have {groups:?}", self.groups);
            return Err(Refusal::new("groups", what));
        }
        let Some(known) = program.rows.map(|_| PageGroups::of(program)) else { return Ok(()) };
        let fits =
            |&CachedLayer { caches, group, .. }: &CachedLayer| caches.iter().all(|&id| known.group(id) == Some(group));
        if !self.layers.iter().all(fits) {
            return Err(Refusal::new("layers", "have caches in pages of another group than their own"));
        }
        if !self.convolutions.iter().all(|&id| known.group(id) == Some(self.convolved_in)) {
            return Err(Refusal::new("convolutions", "lie in pages of another group than their own"));
        }
        Ok(())
    }

    /// Checks inputs `[positions, channels]` of convolutions.
    fn check_convolutions(&self, program: &Program, decoder: &Decoder) -> Result<(), Refusal> {
        if self.convolved != decoder.convolved {
            let (found, expected) = (self.convolved, decoder.convolved);
            return Err(Refusal::new("convolved", format!("is {found:?}, the plan has {expected:?}")));
        }
        let [channels, _] = self.convolved;
        let fits = |id: &BufferId| {
            let of = |buffer: &Buffer| (buffer.kind, buffer.dtype) == (BufferKind::State, DType::BF16);
            let inputs = program.buffers.get(id.index()).filter(|buffer| of(buffer));
            inputs.is_some_and(|inputs| inputs.shape == [program.positions, channels])
        };
        let twice = |(at, id): (usize, &BufferId)| self.convolutions[..at].contains(id);
        if !self.convolutions.iter().all(fits) || self.convolutions.iter().enumerate().any(twice) {
            return Err(Refusal::new("convolutions", "have a buffer twice, or one that is not of their form"));
        }
        if self.convolutions.len() != decoder.convolutions.len() {
            return Err(Refusal::new("convolutions", format!("are {}", self.convolutions.len())));
        }
        Ok(())
    }

    /// Checks properties that the calls of tasks do not show: tables are stored as the launch finds
    /// them, one after the other, and tasks of wide steps have all positions, so no buffer has a
    /// dimension of splits.
    fn check_attention(&self, program: &Program, decoder: &Decoder) -> Result<(), Refusal> {
        let extent = |id: BufferId| program.buffers.get(id.index()).and_then(|buffer| buffer.shape.first());
        let fits = |table: &RotaryTable| extent(table.freqs) == Some(&table.len);
        if self.tables != decoder.tables || !self.tables.iter().all(fits) {
            let (found, expected) = (&self.tables, &decoder.tables);
            return Err(Refusal::new("tables", format!("are {found:?}, the plan has {expected:?}")));
        }
        let turned = |form: &AttentionForm| match form.table {
            Some(table) => self.tables.get(table).map(|table| 2 * table.len) == Some(form.turned),
            None => form.turned == 0,
        };
        if !self.attention.iter().all(turned) {
            return Err(Refusal::new("attention", "rotates other elements than its tables are for"));
        }
        // The code has the plan's kinds, by number.
        if self.attention != decoder.forms {
            let (found, expected) = (&self.attention, &decoder.forms);
            return Err(Refusal::new("attention", format!("has the kinds {found:?}, the plan {expected:?}")));
        }
        Ok(())
    }

    /// Checks what projections refer to by number: the code has the plan's.
    fn check_projections(&self, decoder: &Decoder) -> Result<(), Refusal> {
        if self.functions != decoder.functions {
            let (found, expected) = (&self.functions, &decoder.functions);
            return Err(Refusal::new("functions", format!("are {found:?}, the plan has {expected:?}")));
        }
        let alike = |(one, other): (&&TileKind, &&TileKind)| std::ptr::eq(*one, *other);
        if self.tiles.len() != decoder.tiles.len() || !self.tiles.iter().zip(&decoder.tiles).all(alike) {
            let (found, expected) = (&self.tiles, &decoder.tiles);
            return Err(Refusal::new("tiles", format!("are {found:?}, the plan has {expected:?}")));
        }
        let factor = |scale: Option<f32>| scale.map(f32::to_bits);
        if factor(self.embedding_scale) != factor(decoder.embedding_scale) {
            let (found, expected) = (self.embedding_scale, decoder.embedding_scale);
            return Err(Refusal::new("embedding_scale", format!("is {found:?}, the plan has {expected:?}")));
        }
        Ok(())
    }

    /// Checks caches `[kv_heads, splits, share, head_dim]`: every split must be large enough for
    /// its positions.
    fn check_caches(&self, program: &Program) -> Result<(), Refusal> {
        let Some(form) = self.attention.first() else {
            return match self.layers.is_empty() {
                true => Ok(()),
                false => Err(Refusal::new("caches", "are there without an attention")),
            };
        };
        let run = form.run * BLOCK;
        let mut seen = Vec::new();
        for &id in self.layers.iter().flat_map(|layer| &layer.caches) {
            let cache = program
                .buffers
                .get(id.index())
                .filter(|buffer| (buffer.kind, buffer.dtype) == (BufferKind::State, self.cache));
            let fits = cache.is_some_and(|cache| match cache.shape[..] {
                [kv_heads, positions, head_dim] if program.rows.is_some() => {
                    (kv_heads, positions, head_dim) == (form.kv_heads, program.positions, form.head_dim)
                }
                [kv_heads, splits, share, head_dim] => {
                    (kv_heads, splits, head_dim) == (form.kv_heads, form.splits, form.head_dim)
                        && share.is_multiple_of(run)
                        && u64::from(share) * u64::from(splits) >= u64::from(program.positions)
                }
                _ => false,
            });
            if !fits || seen.contains(&id) {
                let name = cache.map_or("?", |cache| cache.name.as_str());
                return Err(Refusal::new("caches", format!("have `{name}`, which is not one of the attention's form")));
            }
            seen.push(id);
        }
        Ok(())
    }
}

/// Bytes of a block of positions in the caches of `layers` layers.
pub(crate) fn cache_page_bytes(forms: &[AttentionForm], cache: DType, layers: usize) -> u64 {
    let of_position = 2 * cache.bytes();
    let block = |form: &AttentionForm| u64::from(form.kv_heads) * u64::from(BLOCK * form.head_dim * of_position);
    layers as u64 * forms.first().map_or(0, block)
}

/// Bytes of a block of positions in the inputs of `convolutions` convolutions.
pub(crate) fn conv_page_bytes([channels, _]: [u32; 2], convolutions: usize) -> u64 {
    convolutions as u64 * u64::from(BLOCK * channels * DType::BF16.bytes())
}

/// Bytes that a page of each group of a plan has of the states of fused tasks.
pub(crate) fn page_bytes(plan: &Plan) -> Vec<u64> {
    Shared::new(plan).page_bytes()
}

/// Returns the blocks of 64 positions of each kv head's cache, if it is not paged.
fn kv_blocks(plan: &Plan) -> u32 {
    if plan.has_pages() { 0 } else { plan.sizes.context.div_ceil(BLOCK) + 1 }
}
