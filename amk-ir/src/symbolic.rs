//! Index maps for all dims: the tasks of an instruction write each result exactly once and stay
//! inside their operands.
//!
//! Statement, for each instruction: for all values of its dims that satisfy its `multiples`, (1)
//! the regions of the tasks of a result partition it, and (2) the regions of an operand lie inside
//! it. Ladder of proofs, top-down:
//!
//! 1. *Whole*: `..` is the operand.
//! 2. *Steps*: `lo(0) = 0`, `hi(g) = lo(g + step)` and `lo(extent of g) = extent of the dimension`
//!    as polynomials, and `hi - lo` has no negative term; the step divides the grid's extent or is
//!    a tile, whose last instance is shortened to fit. Each grid variable steps in one dimension.
//! 3. *Position*: `pos`, and `0..pos + 1`, in the dimension that holds the positions: the lowering
//!    bounds them by its extent.
//! 4. *Search*: all small dims that satisfy the multiples, tile by tile. A counterexample is an
//!    error. If none is found, nothing is proved, and the statement is left to the verifier, which
//!    decides it for the dims of each program.

use crate::expr::{Expr, Op};
use crate::graph_error::GraphError;
use crate::shapes::is_multiple;
use crate::signature::{GridSig, ParamKind, Signature, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Values tried for each dim and tile.
const VALUES: [i64; 5] = [1, 2, 3, 4, 6];
/// Assignments of dims tried at most.
const MOST_TRIED: usize = 20_000;
/// Maximum number of elements of an operand that is enumerated.
const MOST_ELEMENTS: i64 = 4096;
/// Tasks and elements that are written out for an operand at most, in all assignments together.
const MOST_WRITTEN_OUT: u64 = 1 << 22;

/// Returns the defects of an instruction's index maps, with a counterexample each. Codes `AMK0620`,
/// `AMK0621`.
pub fn check(signature: &Signature) -> Vec<GraphError> {
    let mut findings = shared_tiles(signature);
    if !findings.is_empty() {
        return findings;
    }
    for operand in operands(signature) {
        if !proved(signature, &operand)
            && let Some(found) = search(signature, &operand)
        {
            findings.push(report(signature, &operand, found));
        }
    }
    findings
}

/// Errors for tiles shared by several grid variables: at the end of one variable the tile has a
/// different size than at the end of the other.
fn shared_tiles(signature: &Signature) -> Vec<GraphError> {
    let shared = signature.tiles.iter().filter_map(|tile| {
        let mut cut = signature.grid.iter().filter(|grid| grid.step == Expr::name(&tile.name));
        let (first, second) = (cut.next()?, cut.next()?);
        let headline =
            format!("tile `{}` of `{}` cuts both `{}` and `{}`", tile.name, signature.name, first.var, second.var);
        let help = "give each grid variable its own tile: `tile = \"T = 16, U = 16\"`";
        Some(GraphError::new("AMK0620", headline, help))
    });
    shared.collect()
}

/// An operand or a result.
struct Operand<'a> {
    name: &'a str,
    shape: &'a [Expr],
    region: &'a [Span],
    /// A result: its regions partition it.
    result: bool,
}

fn operands(signature: &Signature) -> Vec<Operand<'_>> {
    let mut operands = Vec::new();
    for param in &signature.params {
        if let ParamKind::Tensor { shape, region, .. } = &param.kind {
            operands.push(Operand { name: &param.name, shape, region, result: false });
        }
    }
    for result in &signature.results {
        operands.push(Operand { name: &result.name, shape: &result.shape, region: &result.region, result: true });
    }
    operands
}

fn proved(signature: &Signature, operand: &Operand<'_>) -> bool {
    let mut stepped = BTreeSet::new();
    for (extent, span) in operand.shape.iter().zip(operand.region) {
        let Span::Range { lo, hi } = span else { continue };
        let steps = signature.grid.iter().find(|grid| steps(signature, grid, extent, lo, hi));
        match steps {
            Some(grid) => {
                if !stepped.insert(grid.var.as_str()) {
                    return false;
                }
            }
            None if !operand.result && within_positions(lo, hi) => {}
            None => return false,
        }
    }
    // A variable that steps in no dimension repeats the region: harmless to read, a second writer
    // of a result.
    !operand.result || signature.grid.iter().all(|grid| stepped.contains(grid.var.as_str()))
}

fn steps(signature: &Signature, grid: &GridSig, extent: &Expr, lo: &Expr, hi: &Expr) -> bool {
    let at = |value: Expr| lo.substitute(&|name| (name == grid.var).then(|| value.clone()));
    let next = Expr::binary(Op::Add, Expr::name(&grid.var), grid.step.clone());
    let tiled = signature.tiles.iter().any(|tile| grid.step == Expr::name(&tile.name));
    let whole = tiled || is_multiple(&signature.multiples, &grid.extent, &grid.step);
    let only = [lo, hi].iter().all(|bound| mentions_only(signature, bound, &grid.var));
    whole
        && only
        && at(Expr::Const(0)).same(&Expr::Const(0))
        && hi.same(&at(next))
        && hi.is_at_least(lo)
        && at(grid.extent.clone()).same(extent)
}

/// Whether a bound mentions this grid variable only, and not the position.
fn mentions_only(signature: &Signature, bound: &Expr, var: &str) -> bool {
    let mut only = true;
    bound.names(&mut |name| {
        only &= name == var || (name != "pos" && signature.grid.iter().all(|grid| grid.var != name))
    });
    only
}

fn within_positions(lo: &Expr, hi: &Expr) -> bool {
    let pos = Expr::name("pos");
    let after = Expr::binary(Op::Add, pos.clone(), Expr::Const(1));
    let starts = lo.same(&pos) || lo.same(&Expr::Const(0));
    starts && (hi.same(&after) || hi.same(&pos))
}

/// A counterexample: the dims, and the defect for them.
struct Counterexample {
    dims: BTreeMap<String, i64>,
    fault: Fault,
}

enum Fault {
    /// An element that no task writes.
    Unwritten(Vec<i64>),
    /// An element that two tasks write.
    Twice(Vec<i64>),
    /// A region that leaves the operand.
    Outside { dim: usize, lo: i64, hi: i64, extent: i64 },
}

fn search(signature: &Signature, operand: &Operand<'_>) -> Option<Counterexample> {
    let names: Vec<String> = free_names(signature, operand).into_iter().collect();
    let tried = VALUES.len().checked_pow(names.len() as u32).unwrap_or(usize::MAX).min(MOST_TRIED);
    let mut left = MOST_WRITTEN_OUT;
    (0..tried).find_map(|number| {
        let mut rest = number;
        let dims: BTreeMap<String, i64> = names
            .iter()
            .map(|name| {
                let value = VALUES[rest % VALUES.len()];
                rest /= VALUES.len();
                (name.clone(), value)
            })
            .collect();
        let value = |name: &str| dims.get(name).copied();
        let holds = signature.multiples.iter().all(|(a, b)| match (a.eval(&value), b.eval(&value)) {
            (Ok(a), Ok(b)) => b > 0 && a > 0 && a % b == 0,
            _ => false,
        });
        let fault = holds.then(|| fault(signature, operand, &dims, &mut left)).flatten()?;
        Some(Counterexample { dims, fault })
    })
}

/// Dims, tiles and the position that the operand and the grid depend on.
fn free_names(signature: &Signature, operand: &Operand<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |expr: &Expr| {
        expr.names(&mut |name| {
            if signature.grid.iter().all(|grid| grid.var != name) {
                names.insert(name.to_owned());
            }
        });
    };
    operand.shape.iter().for_each(&mut add);
    for span in operand.region {
        if let Span::Range { lo, hi } = span {
            add(lo);
            add(hi);
        }
    }
    for grid in &signature.grid {
        add(&grid.extent);
        add(&grid.step);
    }
    for (a, b) in &signature.multiples {
        add(a);
        add(b);
    }
    names
}

/// Returns the defect for these dims by enumerating the regions; `None` also if the operand is too
/// large for that, or exceeds the budget `left`.
fn fault(signature: &Signature, operand: &Operand<'_>, dims: &BTreeMap<String, i64>, left: &mut u64) -> Option<Fault> {
    let number = |expr: &Expr| expr.eval(&|name| dims.get(name).copied()).ok();
    let shape: Vec<i64> = operand.shape.iter().map(number).collect::<Option<_>>()?;
    let elements = shape.iter().try_fold(1i64, |n, &extent| n.checked_mul(extent))?;
    if !(1..=MOST_ELEMENTS).contains(&elements) {
        return None;
    }
    // Positions are limited by the dimension that holds them.
    if let Some(&pos) = dims.get("pos")
        && shape.iter().zip(operand.region).any(|(&extent, span)| moves(span) && pos >= extent)
    {
        return None;
    }
    take(left, elements)?;
    let mut writers = vec![0u32; if operand.result { elements as usize } else { 0 }];
    for task in tasks(signature, dims, left)? {
        let mut region = Vec::with_capacity(shape.len());
        for (dim, (&extent, span)) in shape.iter().zip(operand.region).enumerate() {
            let (lo, hi) = match span {
                Span::Full => (0, extent),
                Span::Range { lo, hi } => {
                    let value = |name: &str| task.get(name).or_else(|| dims.get(name)).copied();
                    (lo.eval(&value).ok()?, hi.eval(&value).ok()?)
                }
            };
            if lo < 0 || hi > extent || lo > hi {
                return Some(Fault::Outside { dim, lo, hi, extent });
            }
            region.push(lo..hi);
        }
        if operand.result {
            take(left, region.iter().map(|interval| interval.end - interval.start).product())?;
            count(&mut writers, &shape, &region);
        }
    }
    let at = |wrong: fn(u32) -> bool| {
        writers.iter().position(|&writers| wrong(writers)).map(|flat| coordinates(flat, &shape))
    };
    at(|writers| writers == 0).map(Fault::Unwritten).or_else(|| at(|writers| writers > 1).map(Fault::Twice))
}

/// Takes `work` from the remaining budget; `None` if too little is left.
fn take(left: &mut u64, work: i64) -> Option<()> {
    let rest = left.checked_sub(work.unsigned_abs());
    *left = rest.unwrap_or(0);
    rest.map(drop)
}

fn moves(span: &Span) -> bool {
    let mut found = false;
    if let Span::Range { lo, hi } = span {
        [lo, hi].iter().for_each(|bound| bound.names(&mut |name| found |= name == "pos"));
    }
    found
}

/// The values of the grid variables and of the tiles, whose last instance is shortened to fit, for
/// each task.
fn tasks(signature: &Signature, dims: &BTreeMap<String, i64>, left: &mut u64) -> Option<Vec<BTreeMap<String, i64>>> {
    let mut tasks = vec![BTreeMap::new()];
    for grid in &signature.grid {
        let value = |name: &str| dims.get(name).copied();
        let (extent, step) = (grid.extent.eval(&value).ok()?, grid.step.eval(&value).ok()?);
        if step < 1 || extent / step > MOST_ELEMENTS {
            return None;
        }
        take(left, (extent.max(0) / step + 1).checked_mul(tasks.len() as i64)?)?;
        let tile = signature.tiles.iter().find(|tile| grid.step == Expr::name(&tile.name));
        let mut next = Vec::new();
        for task in &tasks {
            for start in (0..extent).step_by(usize::try_from(step).ok()?) {
                let mut task = task.clone();
                task.insert(grid.var.clone(), start);
                if let Some(tile) = tile {
                    task.insert(tile.name.clone(), step.min(extent - start));
                }
                next.push(task);
            }
        }
        tasks = next;
    }
    Some(tasks)
}

/// Counts a writer for every element of the region, which is inside the shape.
fn count(writers: &mut [u32], shape: &[i64], region: &[std::ops::Range<i64>]) {
    let mut flat = vec![0i64];
    for (&extent, interval) in shape.iter().zip(region) {
        flat = flat.iter().flat_map(|row| interval.clone().map(move |at| row * extent + at)).collect();
    }
    for element in flat {
        writers[element as usize] += 1;
    }
}

fn coordinates(flat: usize, shape: &[i64]) -> Vec<i64> {
    let mut rest = flat as i64;
    let mut at: Vec<i64> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let index = rest % extent;
            rest /= extent;
            index
        })
        .collect();
    at.reverse();
    at
}

fn report(signature: &Signature, operand: &Operand<'_>, found: Counterexample) -> GraphError {
    let dims: Vec<String> = found.dims.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let (name, of) = (operand.name, &signature.name);
    let element =
        |at: &[i64]| format!("`{name}[{}]`", at.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let (code, headline, fact, help) = match found.fault {
        Fault::Unwritten(at) => (
            "AMK0620",
            format!("the tasks of `{of}` do not write all of `{name}`"),
            format!("no task writes {}", element(&at)),
            "let the regions of the grid's tasks meet, from 0 to the extent, or state what divides what in `multiples`",
        ),
        Fault::Twice(at) => (
            "AMK0620",
            format!("two tasks of `{of}` write the same element of `{name}`"),
            format!("two tasks write {}", element(&at)),
            "let each task's region end where the next one begins, and let every grid variable step in some dimension",
        ),
        Fault::Outside { dim, lo, hi, extent } => (
            "AMK0621",
            format!("a task of `{of}` leaves `{name}` in dimension {dim}"),
            format!("its region there is {lo}..{hi}, the extent is {extent}"),
            match lo < 0 && found.dims.contains_key("pos") {
                true => "begin it at 0 where it would begin before: `max(0, pos - W + 1)..pos + 1`",
                false => "keep the region inside the shape for all dims, or state what divides what in `multiples`",
            },
        ),
    };
    GraphError::new(code, headline, help).note(format!("for {}: {fact}", dims.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{ParamSig, ResultSig, TensorClass, TileSig};
    use crate::{Access, DType};

    fn expr(text: &str) -> Expr {
        Expr::parse(text).expect(text)
    }

    fn spans(texts: &[&str]) -> Vec<Span> {
        let span = |text: &&str| match text.split_once("..") {
            Some(("", "")) => Span::Full,
            Some((lo, hi)) => Span::Range { lo: expr(lo), hi: expr(hi) },
            None => panic!("`{text}` should be a span"),
        };
        texts.iter().map(span).collect()
    }

    /// `x: [..]` is read, `y: [..]` is written, over `(var, extent, step)`.
    fn signature(
        x: (&[&str], &[&str]),
        y: (&[&str], &[&str]),
        grid: &[(&str, &str, &str)],
        multiples: &[(&str, &str)],
    ) -> Signature {
        let shape = |extents: &[&str]| extents.iter().map(|e| expr(e)).collect::<Vec<_>>();
        let (class, access) = (TensorClass::Tensor, Access::Read);
        let kind = ParamKind::Tensor { class, access, shape: shape(x.0), region: spans(x.1) };
        Signature {
            name: "f".into(),
            path: "c::f".into(),
            op: "f".into(),
            declared_at: "c.rs:1".into(),
            params: vec![ParamSig { name: "x".into(), kind }],
            results: vec![ResultSig { name: "y".into(), dtype: DType::F32, shape: shape(y.0), region: spans(y.1) }],
            tiles: vec![TileSig { name: "T".into(), default: Expr::Const(4) }],
            grid: grid
                .iter()
                .map(|(var, extent, step)| GridSig { var: (*var).into(), extent: expr(extent), step: expr(step) })
                .collect(),
            multiples: multiples.iter().map(|(a, b)| (expr(a), expr(b))).collect(),
            cuda: None,
        }
    }

    fn codes(signature: &Signature) -> Vec<&'static str> {
        check(signature).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn tiles_steps_and_heads_are_proved() {
        let tiled = signature((&["K"], &[".."]), (&["N"], &["n..n+T"]), &[("n", "N", "T")], &[]);
        let heads = signature((&["H*D"], &["h*D..(h+1)*D"]), (&["H", "D"], &["h..h+1", ".."]), &[("h", "H", "1")], &[]);
        let stepped = signature((&["N"], &["n..n+D"]), (&["N"], &["n..n+D"]), &[("n", "N", "D")], &[("N", "D")]);
        for signature in [tiled, heads, stepped] {
            assert!(operands(&signature).iter().all(|operand| proved(&signature, operand)));
            assert_eq!(codes(&signature), [""; 0]);
        }
    }

    #[test]
    fn steps_that_go_back_are_not_proved() {
        let back = "n+n*(N-n)..n+T+(n+T)*(N-(n+T))";
        let signature = signature((&["N"], &[".."]), (&["N"], &[back]), &[("n", "N", "T")], &[]);
        assert!(operands(&signature).iter().any(|operand| !proved(&signature, operand)));
        assert_eq!(codes(&signature), ["AMK0621"]);
    }

    #[test]
    fn a_tile_cuts_one_grid_variable() {
        let grid = [("n", "N", "T"), ("m", "M", "T")];
        let findings = check(&signature((&["N"], &["n..n+T"]), (&["N", "M"], &["n..n+T", "m..m+T"]), &grid, &[]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].headline, "tile `T` of `f` cuts both `n` and `m`");
    }

    #[test]
    fn a_step_that_need_not_divide_has_a_counterexample() {
        let signature = signature((&["N"], &["n..n+D"]), (&["N"], &["n..n+D"]), &[("n", "N", "D")], &[]);
        let findings = check(&signature);
        assert_eq!(codes(&signature), ["AMK0621", "AMK0621"]);
        assert_eq!(findings[1].notes, ["for D = 2, N = 1: its region there is 0..2, the extent is 1"]);
    }

    #[test]
    fn a_grid_of_any_size_is_searched_as_far_as_it_goes() {
        let grid = [("a", "600*N", "1"), ("b", "600*N", "1"), ("c", "600*N", "1")];
        assert_eq!(codes(&signature((&["N"], &[".."]), (&["N"], &["0..N"]), &grid, &[])), [""; 0]);
    }

    #[test]
    fn gaps_overlaps_and_repeated_writers_are_found() {
        let gap = signature((&["N"], &[".."]), (&["N"], &["16*n..16*n+8"]), &[("n", "N/16", "1")], &[]);
        let floor = signature((&["N"], &[".."]), (&["N"], &["2*n..2*n+2"]), &[("n", "N/2", "1")], &[]);
        let overlap = signature((&["N"], &[".."]), (&["N"], &["n..n+2"]), &[("n", "N-1", "1")], &[]);
        let twice = signature((&["N"], &[".."]), (&["N"], &["n..n+T"]), &[("n", "N", "T"), ("m", "M", "1")], &[]);
        for signature in [gap, floor, overlap, twice] {
            assert_eq!(codes(&signature), ["AMK0620"]);
        }
    }

    #[test]
    fn a_shared_head_of_grouped_queries_stays_inside() {
        let read = ["h*G/Q..h*G/Q+1", "0..pos+1", ".."];
        let multiples = [("Q", "D"), ("Q/D", "G")];
        let good = signature((&["G", "C", "D"], &read), (&["Q"], &["h..h+D"]), &[("h", "Q", "D")], &multiples);
        assert_eq!(codes(&good), [""; 0]);
        let read = ["h/D..h/D+1", "0..pos+1", ".."];
        let wrong = signature((&["G", "C", "D"], &read), (&["Q"], &["h..h+D"]), &[("h", "Q", "D")], &multiples);
        assert_eq!(codes(&wrong), ["AMK0621"]);
    }

    #[test]
    fn a_window_begins_at_0_at_the_least() {
        let window = |lo: &str| signature((&["C"], &[&format!("{lo}..pos+1")]), (&["N"], &[".."]), &[], &[]);
        assert_eq!(codes(&window("max(0, pos - W + 1)")), [""; 0]);
        let findings = check(&window("pos - W + 1"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].help.contains("max(0, pos - W + 1)"), "{findings:?}");
    }
}
