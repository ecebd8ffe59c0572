//! Generates the functions that compute projections, specialised for a plan.

use super::blocks::blocks;
use super::columns::PartialSums;
use super::layout::cut;
use super::phase::{Gemv, Output, Published};
use super::pointwise;
use super::tile::TileKind;
use crate::abi::{GEMV_FLAGS_BIT, GEMV_NORM, GEMV_TILE_BIT, MOST_DEPTH, TILE_K, WIDE_UNITS};
use crate::attention::{self, block};
use crate::fused::Decoder;
use crate::{choose, short_conv};
use amk_cuda::image::abi::{UNIT, WARPS};
use amk_cuda::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum input tiles per warp if an input is read in two passes after one wait.
pub(super) const MOST_HELD: u32 = 6;

/// Tiles of an input that fit in the columns of B: it has eight columns, and a tile takes two.
const TILES_OF_B: u32 = 4;

/// Maximum number of passes over an input that share one wait if a load fetches all tiles of a
/// pass: without a norm, whose weights need registers, and with one.
const HELD_PASSES: u32 = 8;
const NORMED_PASSES: u32 = 4;

/// The projections of a plan, including those whose columns are shared.
fn projections(plan: &Plan) -> impl Iterator<Item = &Gemv> {
    let shared = plan.phases_of().map(|partials: &PartialSums| &partials.of);
    plan.phases_of().chain(shared)
}

/// Whether columns are shared in a plan.
pub(super) fn shares_columns(plan: &Plan) -> bool {
    plan.phases_of::<PartialSums>().next().is_some()
}

/// Returns the bits of a record's shape that select the function: input length, kind of tiles and
/// norm.
pub(super) fn input_shape(gemv: &Gemv) -> u32 {
    let norm = if gemv.norm.is_some() { GEMV_NORM << GEMV_FLAGS_BIT } else { 0 };
    (gemv.k / TILE_K) | (gemv.tiles.number << GEMV_TILE_BIT) | norm
}

/// Returns how often a projection waits for its input: once if the registers hold all of it,
/// otherwise before every pass.
pub(super) fn waits(gemv: &Gemv) -> u32 {
    let (depth, passes) = gemv.cut();
    let whole = passes == 1 || (gemv.norm.is_none() && passes == 2 && depth * passes <= MOST_HELD);
    if whole { 1 } else { passes }
}

/// Returns whether every warp has all its tiles.
fn even(gemv: &Gemv) -> bool {
    (gemv.k / TILE_K).is_multiple_of(gemv.cut().0 * WARPS)
}

/// Renders the device function call for a projection. Functions are specialised by depth, not by
/// shape: more of them would not stay in the instruction cache. In an even projection every warp
/// has all its tiles.
fn gemv(plan: &Plan, gemv: &Gemv) -> String {
    let ((depth, passes), even, tile) = (gemv.cut(), even(gemv), gemv.tiles.kind.cpp);
    if plan.rows().is_some() {
        return format!("times_rows<{depth}, {even}, {tile}>(w, pass)");
    }
    let whole = if is_held(plan, gemv) { passes } else { 0 };
    format!("multiply<{depth}, {whole}, {even}, {tile}>(w, r, group, prepare)")
}

/// Whether a task of one row waits for its input once, and holds it in registers.
fn is_held(plan: &Plan, gemv: &Gemv) -> bool {
    let most = if gemv.norm.is_some() { NORMED_PASSES } else { HELD_PASSES };
    waits(gemv) == 1 || (across(plan) > 1 && !splits(plan) && gemv.cut().1 <= most)
}

/// The number of neighbouring tiles of one row's input that a load of a warp fetches: see `ACROSS`
/// in `fused.cuh`. With fewer tiles per warp, as in small models, adding up lanes costs more than
/// it saves.
fn across(plan: &Plan) -> u32 {
    let is_deep = || projections(plan).any(|gemv| gemv.cut().0 == MOST_DEPTH);
    if plan.rows().is_none() && is_coded(plan) && !adds_up(plan) && is_deep() { TILES_OF_B } else { 1 }
}

/// Blocks of a slot that a warp multiplies at once in steps of one row.
pub(super) fn blocks_at_once(plan: &Plan, gemv: &Gemv) -> u32 {
    let block = gemv.block_bytes().max(1);
    if !gemv.tiles.kind.is_coded() || across(plan) == 1 { 1 } else { (plan.slot_bytes() / block).clamp(1, 4) }
}

/// Whether weights of a plan are decoded.
fn is_coded(plan: &Plan) -> bool {
    projections(plan).any(|gemv| gemv.tiles.kind.is_coded())
}

/// Whether the tasks of a narrow plan read the inputs of all rows only once, rather than for each
/// of several groups of units. More rows than a step can hold inputs for in registers would
/// otherwise take longer than in a wide step; so would decoding for them.
pub(crate) fn reads_once(plan: &Plan) -> bool {
    let once = |gemv: &Gemv| gemv.cut().1 == 1 || units_each(plan, gemv) <= plan.row_units();
    !is_coded(plan) && projections(plan).all(once)
}

/// Whether tasks of a narrow plan keep inputs of one pass for their next groups of units. Reading
/// them again takes about 2 us, keeping them 0.6 us per task (H200, 16 rows of Llama-3.2-1B and
/// SmolLM2-135M).
fn keeps_inputs(plan: &Plan) -> bool {
    let more = |gemv: &Gemv| (units_each(plan, gemv).div_ceil(plan.row_units()) - 1) * u32::from(gemv.cut().1 == 1);
    4 * projections(plan).map(more).sum::<u32>() > projections(plan).count() as u32
}

/// Whether most units of the residual have their products in the registers of the warps that add
/// them: those of groups for which all teams of a worker have units, in steps of several blocks of
/// rows.
fn holds_by_units(plan: &Plan) -> bool {
    let blocks = blocks(plan.rows());
    let residuals = projections(plan).filter(|gemv| matches!(gemv.output, Output::Residual { .. }));
    let each = residuals.map(|gemv| gemv.rows(plan).div_ceil(UNIT) / (plan.schedule.workers / blocks));
    blocks > 1 && each.min().is_some_and(|units| units > WIDE_UNITS / 2)
}

/// The passes over columns for which the tables of a wide step have room. 16 suffice for nearly all
/// models; with tables of one size their stages of weights have the same memory.
fn passes(plan: &Plan) -> u32 {
    projections(plan).map(|gemv| gemv.cut().1).fold(16, u32::max)
}

/// Maximum number of units of a projection that a worker has.
fn units_each(plan: &Plan, gemv: &Gemv) -> u32 {
    gemv.rows(plan).div_ceil(UNIT).div_ceil(plan.schedule.workers).max(1)
}

/// Renders properties common to the inputs of a plan's projections as macros.
pub(crate) fn defines(plan: &Plan) -> String {
    let gemvs: Vec<&Gemv> = projections(plan).collect();
    let any = |name: &str, is: fn(&Gemv) -> bool| {
        format!("#define {name} {}\n", u32::from(gemvs.iter().any(|gemv| is(gemv))))
    };
    inputs(&gemvs, |gemv| is_held(plan, gemv))
        + &any("AMK_BIASES", |gemv| gemv.biases.iter().any(Option::is_some))
        + &format!("#define AMK_CODED {}\n", u32::from(is_coded(plan)))
        + &format!("#define AMK_ACROSS {}\n", across(plan))
        + &format!("#define AMK_NORMED_PASSES {}\n", if across(plan) > 1 { NORMED_PASSES } else { 1 })
        + sums(plan)
        + &format!("#define AMK_SPLIT_K {}\n", u32::from(splits(plan)))
        + &format!("#define AMK_KEEPS_INPUTS {}\n", u32::from(keeps_inputs(plan)))
        + &format!("#define AMK_SHARED_COLUMNS {}\n", u32::from(shares_columns(plan)))
        + &format!("#define AMK_DEFERRED_NORMS {}\n", u32::from(defers_norms(plan)))
        + &format!("#define AMK_PASSES {}\n", passes(plan))
        + &format!("#define AMK_HELD_BY_UNITS {}\n", u32::from(holds_by_units(plan)))
        + &format!("#define AMK_MAPS {}\n", u32::from(pointwise::maps(plan)))
        + &format!("#define AMK_SUMMANDS {}\n", u32::from(summands(plan)))
        + &format!("#define AMK_LAYERS {}\n", Decoder::layers(plan).len())
        + &format!("#define AMK_ROW_BLOCK {}\n", block(plan))
        + &format!("#define AMK_EMBEDDING_SCALE {}\n", embedding_scale(plan))
        + &attention::defines(plan)
        + &short_conv::defines(plan)
        + &choose::defines(plan)
}

/// Whether the input of some projection of a plan is a sum.
pub(super) fn adds_up(plan: &Plan) -> bool {
    projections(plan).any(|gemv| gemv.sum().is_some())
}

/// Whether norms are deferred in a plan.
fn defers_norms(plan: &Plan) -> bool {
    let weighted = |gemv: &Gemv| matches!(gemv.output, Output::Residual { published: Published::Weighted(_), .. });
    projections(plan).any(weighted)
}

/// Whether the columns of units are split in a plan.
pub(super) fn splits(plan: &Plan) -> bool {
    projections(plan).any(|gemv| gemv.split.is_some())
}

/// Whether projections need more than the leading words of a record.
pub(super) fn reads_all(plan: &Plan) -> bool {
    adds_up(plan) || splits(plan)
}

/// Renders whether a projection has a sum as its input, and the code that this needs.
fn sums(plan: &Plan) -> &'static str {
    if adds_up(plan) { "#define AMK_SUMS 1\n#define AMK_NO_ARRIVALS 1\n" } else { "#define AMK_SUMS 0\n" }
}

/// Whether something other than a plain product is added to the residual: one with a bias, or a
/// function of it.
fn summands(plan: &Plan) -> bool {
    projections(plan).any(|gemv| match gemv.output {
        Output::Residual { function, .. } => function != 0 || gemv.biases[0].is_some(),
        _ => false,
    })
}

/// Renders the factor of the embedding.
fn embedding_scale(plan: &Plan) -> String {
    let scale = Decoder::of(plan).and_then(|decoder| decoder.embedding_scale);
    scale.map_or("1.0f".to_owned(), |scale| format!("__uint_as_float({:#x}u)", scale.to_bits()))
}

/// Renders `project`, which runs the record of a projection.
pub(crate) fn project(plan: &Plan) -> String {
    let mut gemvs = BTreeMap::<String, BTreeSet<u32>>::new();
    for of in projections(plan) {
        gemvs.entry(gemv(plan, of)).or_default().insert(input_shape(of));
    }
    let functions = tiles(plan) + &pointwise::calls(plan);
    if plan.is_wide() {
        return format!(
            "{functions}AMK_DEVICE void project(Worker& w, const Record& r) {{\
             \n    gemv_wide(w, r, [&](const GemvShape& g, WideGroups& groups) {{ {} }});\n}}\n",
            by_kind(plan)
        );
    }
    if plan.rows().is_some() {
        return format!(
            "{functions}AMK_DEVICE void project(Worker& w, const Record& r) {{\
             \n    const u32 input = r.shape & GEMV_INPUT;\
             \n    gemv_rows(w, r, [&](const RowPass& pass) {{ {} }});\n}}\n",
            by_input(&gemvs)
        );
    }
    format!(
        "{functions}AMK_DEVICE void project(Worker& w, const Record& r) {{\
         \n    const u32 input = r.shape & GEMV_INPUT;\
         \n    gemv(w, r, [&](Group& group, auto prepare) {{ {} }});\n}}\n",
        by_input(&gemvs)
    )
}

/// The kinds of a plan's tiles, by number.
fn kinds(plan: &Plan) -> &[&'static TileKind] {
    Decoder::of(plan).map_or(&[], |decoder| &decoder.tiles)
}

/// Renders the kinds of a plan's tiles, the bytes of each, the tiles of its packs, and those that a
/// team of warps multiplies at once.
fn tiles(plan: &Plan) -> String {
    let kinds = kinds(plan);
    let code: BTreeSet<String> = kinds.iter().map(|kind| kind.code.text()).collect();
    let code: String = code.into_iter().collect();
    let number = |name: &str, of: fn(&TileKind) -> String| {
        let (last, others) =
            kinds.split_last().map_or((of(TileKind::of(None, 0)), &[][..]), |(last, rest)| (of(last), rest));
        let cases = others.iter().enumerate().map(|(number, kind)| format!("kind == {number} ? {} : ", of(kind)));
        format!("AMK_DEVICE u32 {name}(u32 kind) {{ return {}{last}; }}\n", cases.collect::<String>())
    };
    code + &number("tile_bytes", |kind| kind.bytes.to_string())
        + &number("tile_pack", |kind| kind.pack.to_string())
        + &number("tile_teams", |kind| format!("{}::IN_TEAMS", kind.cpp))
        + &kinds
            .iter()
            .map(|kind| format!("static_assert({} == ({}::IN_TEAMS > 0));\n", kind.teams, kind.cpp))
            .collect::<String>()
}

/// Renders the products of wide steps by the types of tiles, the last for all remaining kinds.
fn by_kind(plan: &Plan) -> String {
    let mut types: Vec<(&str, Vec<String>)> = Vec::new();
    for (number, kind) in kinds(plan).iter().enumerate() {
        let this = format!("g.kind == {number}");
        match types.iter_mut().find(|(cpp, _)| *cpp == kind.cpp) {
            Some((_, these)) => these.push(this),
            None => types.push((kind.cpp, vec![this])),
        }
    }
    let case = |(nth, (cpp, these)): (usize, &(&str, Vec<String>))| {
        let call = format!("multiply_wide<{cpp}>(w, groups);");
        if nth + 1 < types.len() { format!("if (any({})) {call} else ", these.join(" || ")) } else { call }
    };
    types.iter().enumerate().map(case).collect()
}

/// Computes properties common to all inputs: the maximum tiles per warp and pass, whether all
/// shapes share the code of the request, whether all are even, and whether the passes over each are
/// alike. The request is shared if depths differ by at most one and no input is held for two
/// passes. Otherwise every task would pay for the registers of the deepest.
fn inputs(gemvs: &[&Gemv], is_held: impl Fn(&Gemv) -> bool) -> String {
    let depths = || gemvs.iter().map(|gemv| gemv.cut().0);
    let (least, most) = (depths().min().unwrap_or(1), depths().max().unwrap_or(1));
    let shared = most <= least + 1 && gemvs.iter().all(|gemv| !is_held(gemv) || gemv.cut().1 == 1);
    let even = gemvs.iter().all(|gemv| even(gemv));
    let alike = gemvs.iter().all(|gemv| gemv.cut() == cut(gemv.k, false));
    let [shared, even, alike] = [shared, even, alike].map(u32::from);
    format!(
        "#define AMK_MOST {most}\n#define AMK_SHARED {shared}\n#define AMK_EVEN {even}\n#define AMK_ALIKE {alike}\n"
    )
}

/// Renders the calls of projections, each for its input shapes, the last for all remaining ones.
/// See `any` in `amk/cuda/device/ptx.cuh` for the votes.
fn by_input(gemvs: &BTreeMap<String, BTreeSet<u32>>) -> String {
    let case = |(nth, (call, shapes)): (usize, (&String, &BTreeSet<u32>))| {
        let these: Vec<String> = shapes.iter().map(|shape| format!("input == {shape}")).collect();
        if nth + 1 < gemvs.len() {
            format!("if (any({})) {call}; else ", these.join(" || "))
        } else {
            format!("{call};")
        }
    };
    gemvs.iter().enumerate().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::phase::{Input, Tiles};
    use amk::ir::BufferId;

    fn reading(k: u32, norm: Option<BufferId>) -> Gemv {
        let output = Output::Store(Vec::new());
        let (input, weights, biases) = (Input::Packets(BufferId(0)), Vec::new(), Vec::new());
        let tiles = Tiles { number: 0, kind: TileKind::of(None, 0) };
        Gemv {
            tiles,
            input,
            norm,
            scale: None,
            k,
            weights,
            biases,
            output,
            split: None,
            columns: None,
            dealt: Vec::new(),
        }
    }

    #[test]
    fn the_request_is_shared_where_inputs_are_alike() {
        let of = |ks: &[u32]| {
            let gemvs: Vec<Gemv> = ks.iter().map(|&k| reading(k, None)).collect();
            inputs(&gemvs.iter().collect::<Vec<_>>(), |gemv| waits(gemv) == 1)
                .replace("#define AMK_", "")
                .replace('\n', ", ")
        };
        assert_eq!(of(&[576, 1536]), "MOST 3, SHARED 1, EVEN 0, ALIKE 1, ");
        assert_eq!(of(&[1024, 2048]), "MOST 4, SHARED 0, EVEN 1, ALIKE 1, ");
        assert_eq!(of(&[2048, 3072]), "MOST 4, SHARED 0, EVEN 1, ALIKE 1, ", "held for two passes");
        assert_eq!(of(&[4096, 14336]), "MOST 4, SHARED 1, EVEN 1, ALIKE 1, ");
        let deep = reading(3072, None).tiles.kind.for_units(3072, 2);
        let deep = Gemv { tiles: Tiles { number: 0, kind: deep }, ..reading(3072, None) };
        assert!(inputs(&[&deep], |_| false).ends_with("#define AMK_EVEN 0\n#define AMK_ALIKE 0\n"));
        assert_eq!(of(&[]), "MOST 1, SHARED 1, EVEN 1, ALIKE 1, ");
    }

    #[test]
    fn an_input_is_waited_for_once_where_the_registers_hold_it() {
        let waits_of = |k, norm| waits(&reading(k, norm));
        let norm = Some(BufferId(1));
        assert_eq!([576, 2048, 3072, 4096, 8192].map(|k| waits_of(k, None)), [1, 1, 1, 2, 4]);
        // The norm's weights take registers as well.
        assert_eq!([576, 2048, 3072, 4096].map(|k| waits_of(k, norm)), [1, 1, 2, 2]);
    }
}
