//! The forms of a plan's attentions: all have the same heads; two kinds of layers may differ in
//! their window, their rotation or the soft cap on their scores.

use super::division::is_long;
use crate::fused::{Decoder, page_bytes};
use amk::ir::rows::Reach;
use amk::ir::schedule::Schedule;
use amk::ir::{Bound, BufferId, DType, Program};
use amk_cuda::plan::Plan;
use amk_cuda::source::by_group;

/// Constants of a kind of fused attention: the arguments of `Attention` in `turns.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionForm {
    /// Elements of a head.
    pub head_dim: u32,
    /// Query heads per kv head.
    pub group: u32,
    /// Key/value heads that are kept, copies included.
    pub kv_heads: u32,
    /// Copies of each, so that few query heads share one.
    pub copies: u32,
    /// Splits of a kv head's cache.
    pub splits: u32,
    /// Blocks per run of a split.
    pub run: u32,
    /// Whether queries and keys are normalised per head.
    pub normed: bool,
    /// Number of leading elements of a head that are rotated; 0: none.
    pub turned: u32,
    /// The number of the table with its frequencies, if heads are rotated.
    pub table: Option<usize>,
    /// The number of last positions that are attended to, unless all are.
    pub window: Option<u32>,
    /// The soft cap on the scores, if there is one.
    pub cap: Option<f32>,
}

/// Rotary frequencies of one or several kinds of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryTable {
    /// The frequencies, radians per position.
    pub freqs: BufferId,
    /// Scale of rotated values.
    pub scale: f32,
    /// Number of frequencies.
    pub len: u32,
}

impl AttentionForm {
    /// Returns its C++ type. `tables` are the plan's.
    fn cpp(self, tables: &[RotaryTable]) -> String {
        let Self { head_dim, group, kv_heads, splits, run, normed, turned, table, window, cap, .. } = self;
        let first: u32 = tables.iter().take(table.unwrap_or(0)).map(|table| table.len).sum();
        let (window, cap) = (window.unwrap_or(0), cap.map_or(0, f32::to_bits));
        let sizes = format!("{head_dim}, {group}, {kv_heads}, {splits}, {run}");
        format!("Attention<{sizes}, {normed}, {turned}, {window}, {first}, {cap:#x}>")
    }

    /// The places of a kept head's key and value among those of all heads, with queries first: the
    /// numbers of heads.
    pub(super) fn key_and_value(self, head: u32) -> [u32; 2] {
        let (queries, heads) = (self.kv_heads * self.group, self.kv_heads / self.copies);
        let key = queries + head / self.copies;
        [key, key + heads]
    }

    /// The path of the instruction that attends to a split.
    pub(super) fn split_path(self) -> &'static str {
        match (self.normed, self.cap, self.table) {
            (true, ..) => "amk_kernels::normed_attention_split",
            (false, Some(_), _) => "amk_kernels::capped_attention_split",
            (false, None, Some(_)) => "amk_kernels::attention_split",
            (false, None, None) => "amk_kernels::unturned_attention_split",
        }
    }

    /// The path of the instruction that attends to a split of the positions of a row.
    pub(super) fn part_path(self) -> &'static str {
        match self.cap {
            Some(_) => "amk_kernels::capped_attention_part",
            None => "amk_kernels::attention_part",
        }
    }

    /// The path of the instruction that attends to all positions of a row.
    pub(super) fn row_path(self) -> &'static str {
        match self.cap {
            Some(_) => "amk_kernels::capped_attention",
            None => "amk_kernels::window_attention",
        }
    }

    /// Where the positions that are attended to begin.
    pub(super) fn first(self) -> Bound {
        match self.window {
            Some(window @ 1..) => Bound::behind(window - 1),
            _ => Bound::fixed(0),
        }
    }

    /// The number of positions of the caches that a row reads; `None`: all.
    pub(crate) fn reach(self) -> Reach {
        self.window.filter(|&window| window > 0)
    }

    /// The group of pages of its layers in a plan.
    pub(crate) fn group_in(self, plan: &Plan) -> usize {
        plan.group(self.reach())
    }

    /// The number of last positions that are attended to: without a window, all of the program.
    pub(crate) fn last(self, program: &Program) -> u32 {
        self.window.unwrap_or(program.positions)
    }
}

/// Returns the first kind that rotates keys as `kind` does, and has its pages in the same group:
/// for appending keys they are equivalent.
pub(super) fn first_alike(forms: &[AttentionForm], groups: &[usize], kind: usize) -> usize {
    let of = |at: usize| Some((forms.get(at)?.table, groups.get(at)?));
    (0..forms.len()).find(|&at| of(at) == of(kind)).unwrap_or(kind)
}

/// Renders code with the C++ type of a plan's attentions, if it has any. With layers of two kinds
/// the record `r` chooses; `vote` is the vote of the lanes that run the code.
pub(super) fn by_kind(plan: &Plan, vote: &str, code: impl Fn(&str) -> String) -> Option<String> {
    let decoder = Decoder::attending(plan)?;
    let (last, others) = decoder.forms.split_last()?;
    let cases = others.iter().enumerate().map(|(kind, form)| {
        let call = code(&form.cpp(&decoder.tables));
        format!("if ({vote}(r.shape == {kind})) {call}; else ")
    });
    Some(cases.collect::<String>() + &code(&last.cpp(&decoder.tables)))
}

/// Renders code with the C++ type of a plan's first attention, for code that does not depend on the
/// kind.
pub(super) fn of_any_kind(plan: &Plan, code: impl Fn(&str) -> String) -> Option<String> {
    let decoder = Decoder::attending(plan)?;
    decoder.forms.first().map(|form| code(&form.cpp(&decoder.tables)))
}

/// Returns the element type of the caches of fused attention.
pub(crate) fn cache_of(plan: &Plan) -> DType {
    plan.schedule.cache.unwrap_or(DType::BF16)
}

/// Maximum number of elements of a head whose values one warp holds, up to which a worker's memory
/// has the same size.
pub(super) const SMALL_HEAD: u32 = 128;

/// Maximum number of rotations of a step's rows that a worker keeps. Beyond that, a task computes
/// those of its own rows.
const MOST_TURNS: u32 = 8 * SMALL_HEAD / 2;

/// Returns the blocks of a run for heads of `head_dim` elements: the schedule's, or half as many
/// for long heads, of which a worker then reads the same number of bytes.
pub(super) fn run_of(schedule: &Schedule, head_dim: u32) -> u32 {
    if head_dim > SMALL_HEAD { schedule.run / 2 } else { schedule.run }
}

/// Whether tasks that attend append the keys and values of rows that are alone in their sequences.
/// In long steps they cannot: copies load positions before the attending tasks begin.
fn appends_lone_rows(plan: &Plan) -> bool {
    plan.has_row_packets() || (plan.is_wide() && !is_long(plan))
}

/// Renders the memory that the bodies keep for a plan's attentions as macros.
pub(crate) fn defines(plan: &Plan) -> String {
    let none = Decoder::default();
    let decoder = Decoder::of(plan).unwrap_or(&none);
    let head_dim = decoder.forms.first().map_or(0, |form| form.head_dim).max(SMALL_HEAD);
    let turns = decoder.tables.iter().map(|table| table.len).sum::<u32>().max(SMALL_HEAD / 2);
    let own_turns = plan.rows().is_some_and(|rows| rows * turns > MOST_TURNS);
    let macros = [
        ("AMK_HEAD_DIM", head_dim.to_string()),
        ("AMK_KINDS", decoder.forms.len().to_string()),
        ("AMK_COPIES", decoder.forms.first().map_or(1, |form| form.copies).to_string()),
        ("AMK_TURNS", turns.to_string()),
        ("AMK_OWN_TURNS", u32::from(own_turns).to_string()),
        ("AMK_LONE_ROWS", u32::from(appends_lone_rows(plan)).to_string()),
        ("AMK_CACHE_BYTES", cache_of(plan).bytes().to_string()),
        ("AMK_PAGED", u32::from(plan.has_pages() && plan.rows().is_none()).to_string()),
        ("AMK_TURN_SCALE(p, at)", turn_scale(&decoder.tables)),
    ];
    macros.map(|(name, value)| format!("#define {name} ({value})\n")).concat() + &groups(plan, decoder)
}

/// Renders the group of the sliding-window attentions, 0 for none, and the bytes of a page of each
/// group; nothing if there is a single group.
fn groups(plan: &Plan, decoder: &Decoder) -> String {
    if plan.groups.len() < 2 {
        return String::new();
    }
    let case = |form: &AttentionForm| format!("(window) == {} ? {}u : ", form.window.unwrap_or(0), form.group_in(plan));
    let cases: String = decoder.forms.iter().map(case).collect();
    let bytes = by_group("group", page_bytes(plan));
    format!("#define AMK_GROUP_OF(window) ({cases}0u)\n#define AMK_PAGE_BYTES(group) ({bytes})\n")
}

/// Renders the scale of rotation `at` of all tables.
fn turn_scale(tables: &[RotaryTable]) -> String {
    if tables.windows(2).all(|pair| pair[0].scale.to_bits() == pair[1].scale.to_bits()) {
        return "(p).rope_scale".to_owned();
    }
    let mut end = 0;
    let case = |table: &RotaryTable| {
        end += table.len;
        format!("(at) < {end} ? __uint_as_float({:#x}u) : ", table.scale.to_bits())
    };
    tables.iter().map(case).collect::<String>() + "0.0f"
}
