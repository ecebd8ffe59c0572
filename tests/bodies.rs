//! Fused attention, norms of whole vectors, short convolutions and deliveries of products, compiled
//! for this machine: the threads of a worker are coroutines. Without a C++ compiler it
//! says "skipped".

use crate::native;
use amk::tensor::e4m3;
use amk_cuda::image::abi::CHUNK;
use amk_cuda::row_scratch;
use amk_cuda::set::body_sets;
use amk_cuda::source;
use amk_kernels::fused::TileKind;
use std::process::Command;

/// The bodies of these files with what they need: the ABI, what a worker keeps, the worker.
fn code(files: &[&str]) -> String {
    code_with("", files)
}

/// Likewise, with more code before the files.
fn code_with(first: &str, files: &[&str]) -> String {
    let kept = kept("// For the choice of a token.");
    let places = native::text("vm/values.cuh") + &linear("rows");
    let places = places.split("#if AMK_ROWS && !AMK_WIDE").next().unwrap_or_default();
    // Of what comes at the beginning of a step, attention has the rotation.
    let rotation = |text: String| text.split("// Lists the rows").next().unwrap_or_default().to_owned();
    let bodies: String = files.iter().map(|file| rotation(native::text(file))).collect();
    let (abi, copies) = (source::registered_abi(), linear("copies"));
    format!(
        "{abi}{copies}#define AMK_PASSES 16\nstruct Kept {{\n{kept}}};\n#include \"shared.h\"\n{places}{first}{bodies}"
    )
}

/// The text of a file of projections.
fn linear(file: &str) -> String {
    native::text(&format!("linear/{file}.cuh"))
}

/// Returns the members that a worker keeps, up to this line.
fn kept(end: &str) -> String {
    let kept: String = body_sets().into_iter().map(|set| set.kept).collect();
    kept.split(end).next().unwrap_or_default().to_owned()
}

/// Runs `tests/device/NAME.cpp` with these macros; `None` without a C++ compiler.
fn run(name: &str, files: &[&str], defines: &[(&str, &str)]) -> Option<()> {
    run_with(name, &code(files), defines)
}

/// The same with this code.
fn run_with(name: &str, code: &str, defines: &[(&str, &str)]) -> Option<()> {
    let defines: Vec<String> = defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
    let Some((_folder, program)) = native::build(code, name, &defines) else {
        println!("skipped: no C++ compiler");
        return None;
    };
    let output = Command::new(program).output().expect("it should start");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout == "ok\n", "{defines:?}: {stdout}{}", output.status);
    Some(())
}

/// Heads of an attention.
#[derive(Clone, Copy)]
struct Heads {
    /// Elements.
    dim: u32,
    /// Query heads of a key head.
    group: u32,
    /// The bound of the scores, or 0.
    cap: f32,
    /// Elements that are rotated.
    turned: u32,
    /// Whether heads of the second kind are not rotated.
    still: bool,
    /// Key heads that are copies of one.
    copies: u32,
    /// Groups of pages: two, if each kind of layers has its own.
    groups: u32,
}

fn heads(dim: u32, group: u32) -> Heads {
    Heads { dim, group, cap: 0.0, turned: dim, still: false, copies: 1, groups: 1 }
}

fn capped(dim: u32, group: u32) -> Heads {
    Heads { cap: 2.0, ..heads(dim, group) }
}

/// Whether a step is wide: without packets from 9 rows on, with them none here.
fn wide(rows: &str, packets: &str) -> (&'static str, &'static str) {
    let rows: u32 = rows.parse().expect("a number");
    ("AMK_WIDE", if packets == "0" && rows > 8 { "1" } else { "0" })
}

/// A step of one row is `paged` or has its own caches, whose elements have so many bytes.
fn attention(rows: &str, paged: &str, bytes: &str, heads: Heads) -> Option<()> {
    attention_by(rows, paged, ("0", bytes), heads)
}

/// The same, of a step of rows with packets or without.
fn attention_by(rows: &str, paged: &str, by: (&str, &str), heads: Heads) -> Option<()> {
    attention_beside(CHUNK, rows, paged, by, heads)
}

/// The same, narrow steps with so many bytes of scratch.
fn attention_beside(scratch: u32, rows: &str, paged: &str, (packets, bytes): (&str, &str), heads: Heads) -> Option<()> {
    const SMALL: u32 = 128; // up to which a worker's memory has the same size
    let Heads { dim, group, cap, turned, still, copies, groups } = heads;
    let own = u32::from(rows != "0").to_string();
    let norm = (cap == 0.0 && !still).to_string();
    // In long steps two sets of 64 queries where there are two teams.
    let block = if rows.len() < 3 { 8 } else { 64 / group * if dim <= SMALL { 2 } else { 1 } };
    // Not in long steps, nor in narrow ones that exchange counters.
    let lone = if packets == "1" || (wide(rows, packets).1 == "1" && rows.len() < 3) { "1" } else { "0" };
    let files = ["begin", "cache", "turns", "fused", "rows", "wide", "blocks", "prompts"];
    let files = files.map(|file| format!("attention/{file}.cuh"));
    let wgmma = linear("wgmma");
    let places = between(&wgmma, "#if __CUDA_ARCH_FEAT_SM90_ALL", "#if __CUDA_ARCH_FEAT_SM90_ALL\n// The accumulators")
        + &between(&wgmma, "// Describes matrices of 8 rows", "#endif");
    let defines = [
        ("AMK_ROWS", rows),
        ("AMK_PAGED", paged),
        ("AMK_ROW_PACKETS", packets),
        ("AMK_ROW_SCRATCH", &scratch.to_string()),
        wide(rows, packets),
        ("AMK_CACHE_BYTES", bytes),
        ("AMK_ROW_BLOCK", &block.to_string()),
        ("AMK_WORKERS", "1"),
        ("AMK_HEAD_DIM", &dim.max(SMALL).to_string()),
        ("AMK_KINDS", "2"),
        ("AMK_CODED", if cap > 0.0 { "1" } else { "0" }),
        ("AMK_TURNS", &turned.to_string()),
        ("AMK_OWN_TURNS", &own),
        ("AMK_LONE_ROWS", lone),
        ("AMK_TURN_SCALE(p,at)", &format!("((at)<{}?0.75f:1.25f)", turned / 2)),
        ("TEST_HEAD", &dim.to_string()),
        ("TEST_GROUP", &group.to_string()),
        ("TEST_TURNED", &turned.to_string()),
        ("TEST_NORM", &norm),
        ("TEST_STILL", &still.to_string()),
        ("AMK_COPIES", &copies.to_string()),
        ("AMK_GROUPS", &groups.to_string()),
        ("TEST_CAP", &format!("{cap:?}f")),
        ("TEST_CAP_BITS", &format!("{:#x}u", cap.to_bits())),
    ];
    let code = code_with(&places, &files.each_ref().map(String::as_str));
    // Long steps have products of warpgroups on some GPUs, and positions in parts.
    let forms = match (rows.len() < 3, wide(rows, packets).1) {
        (false, _) => &[("0", "3"), ("1", "1"), ("1", "3")][..],
        (true, "1") => &[("0", "1")],
        (true, _) => &[("0", "3")],
    };
    forms.iter().try_for_each(|&(warpgroups, splits)| {
        let more = [("__CUDA_ARCH_FEAT_SM90_ALL", warpgroups), ("TEST_SPLITS", splits)];
        run_with("attention", &code, &Vec::from_iter(defines.into_iter().chain(more)))
    })
}

/// Steps of one row, with pages and without, and of several.
fn everywhere(bytes: &str, heads: [Heads; 3]) -> Option<()> {
    for (rows, paged) in [("0", "0"), ("0", "1"), ("8", "0"), ("24", "0"), ("150", "0")] {
        for heads in heads {
            attention(rows, paged, bytes, heads)?;
        }
    }
    Some(())
}

#[test]
fn attention_of_two_kinds_is_the_sum_over_the_positions() {
    if everywhere("2", [heads(256, 2), capped(256, 4), heads(128, 4)]).is_none() {
        return;
    }
    for paged in ["0", "1"] {
        let _ = attention("0", paged, "2", heads(64, 3));
    }
    for of in [capped(256, 4), heads(128, 4)] {
        let _ = attention_by("8", "0", ("1", "2"), of);
    }
    // With as many queries as a worker stages together, and more.
    for of in [heads(128, 4), heads(128, 7), capped(256, 8)] {
        let _ = attention_by("16", "0", ("1", "2"), of);
    }
}

/// Where the scratch has no room for the turns of all rows: `row_scratch` beside a short ring.
#[test]
fn attention_beside_a_short_ring_is_the_sum_over_the_positions() {
    let forms = [("8", "1"), ("8", "0"), ("16", "1")];
    let common = [heads(128, 4), heads(256, 2), capped(64, 3)];
    let all = forms.into_iter().flat_map(|form| common.map(|heads| (form, heads)));
    // Few warps join their outputs, which are no whole number of warps' pairs.
    let odd = [heads(112, 3), heads(48, 7), heads(80, 7)].map(|heads| (("8", "1"), heads));
    for ((rows, packets), heads) in all.chain(odd) {
        let scratch = row_scratch(rows.parse().expect("a number"), 2);
        if attention_beside(scratch, rows, "0", (packets, "2"), heads).is_none() {
            return;
        }
    }
}

/// Heads that are not whole vectors of a warp, rotated as a whole or in part.
#[test]
fn attention_of_heads_of_any_number_of_tiles_is_the_sum_over_the_positions() {
    let partly = Heads { turned: 20, ..heads(80, 3) };
    if everywhere("2", [partly, heads(112, 4), capped(48, 1)]).is_none() {
        return;
    }
    let _ = attention("0", "0", "1", partly);
    let _ = attention("24", "0", "1", heads(96, 5));
    for heads in [Heads { turned: 12, ..heads(48, 8) }, heads(16, 2)] {
        for (rows, packets) in [("0", "0"), ("8", "1")] {
            let _ = attention_by(rows, "0", (packets, "2"), heads);
        }
    }
}

#[test]
fn attention_of_two_kinds_finds_the_pages_of_each() {
    for (rows, paged, packets) in
        [("0", "1", "0"), ("8", "0", "0"), ("8", "0", "1"), ("24", "0", "0"), ("150", "0", "0")]
    {
        for still in [false, true] {
            let heads = Heads { still, groups: 2, ..heads(128, 4) };
            if attention_by(rows, paged, (packets, "2"), heads).is_none() {
                return;
            }
        }
    }
}

#[test]
fn attention_of_heads_that_are_not_rotated_or_copied_is_the_sum_over_the_positions() {
    for (rows, paged, packets) in [("0", "0", "0"), ("0", "1", "0"), ("8", "0", "1"), ("24", "0", "0")] {
        let still = [heads(64, 3), heads(128, 4)].map(|heads| Heads { still: true, ..heads });
        for heads in still.into_iter().chain([Heads { copies: 2, ..heads(128, 8) }]) {
            if attention_by(rows, paged, (packets, "2"), heads).is_none() {
                return;
            }
        }
    }
}

#[test]
fn attention_over_caches_of_e4m3_is_the_sum_over_the_positions() {
    if everywhere("1", [capped(256, 4), heads(128, 4), heads(64, 3)]).is_none() {
        return;
    }
    for heads in [heads(64, 8), heads(128, 8)] {
        let _ = attention("0", "0", "1", heads);
    }
}

/// Every bf16, and f32 that lie between them: the device's rounding is the CPU VM's. And every code
/// is the number that it is on a CPU.
#[test]
fn the_device_rounds_to_e4m3_as_the_cpu_vm() {
    let halves = (0..=u16::MAX).map(|half| u32::from(half) << 16);
    let near_ties = (0..0x7f80u32).flat_map(|half| [0x8000, 0x7fff, 0x8001].map(|low| half << 16 | low));
    let others = (0..200_000u32).map(|n| n.wrapping_mul(2_654_435_761));
    let inputs: Vec<u32> = halves.chain(near_ties).chain(others).collect();
    let Some((_folder, program)) = native::build(&code(&["attention/cache.cuh"]), "e4m3", &["AMK_CACHE_BYTES=1"])
    else {
        return println!("skipped: no C++ compiler");
    };
    let input = inputs.iter().map(|bits| format!("{bits}\n")).collect();
    let output = native::answer(&program, input);
    let mut found = output.lines().map(|line| line.parse::<u32>().expect("a number"));
    for bits in inputs {
        let (low, high) = (f32::from_bits(bits), f32::from_bits(bits ^ 1 << 31));
        let expected = u32::from(e4m3::narrow(low)) | u32::from(e4m3::narrow(high)) << 8;
        assert_eq!(found.next(), Some(expected), "{low:?} {bits:#x}");
    }
    for code in 0..=u8::MAX {
        let expected = e4m3::widen(code).to_bits();
        let found = found.next().expect("a number");
        assert!(found == expected || code & 0x7f == 0x7f, "{code:#x} is {found:#x}, not {expected:#x}");
    }
}

/// The part of a text from `first` on, up to `end`.
fn between(text: &str, first: &str, end: &str) -> String {
    let from = text.find(first).unwrap_or_else(|| panic!("`{first}`"));
    let len = text[from..].find(end).unwrap_or_else(|| panic!("`{end}`"));
    text[from..][..len].to_owned()
}

/// The text from `begin` to the end of a file that depends on a macro as a whole.
fn to_end(text: &str, begin: &str) -> String {
    let from = text.find(begin).unwrap_or_else(|| panic!("`{begin}`"));
    text[from..].strip_suffix("#endif\n").expect("the end of the condition").to_owned()
}

/// The code that delivers products, and the embedding. A group of units of a wide step has few
/// parts.
fn delivery() -> String {
    let [inputs, partials, rows, wide] = ["inputs", "partials", "rows", "delivery"].map(linear);
    let [embedding, embeddings] = ["fused", "rows"].map(|file| native::text(&format!("residual/{file}.cuh")));
    let of_rows = between(&rows, "// What a lane delivers: a row of a unit", "// Runs a projection; `times`");
    let of_wide = between(&wide, "// Shared address of the columns' scales.", "// Calls `f` with the kind");
    let of_shares = between(&wide, "#if AMK_SHARED_COLUMNS\n// Adds up", "#endif\n#endif\n");
    [
        "#define AMK_EMBEDDING_SCALED (AMK_EMBEDDING_SCALE != 1.0f)\n",
        &between(&inputs, "struct GemvShape", "// Neighbouring tiles of an input"),
        &between(&inputs, "#if AMK_SUMS\n// The input x = r", "// Shared address of a warp's two sums"),
        "#if !AMK_ROWS\nstatic bool filtering(Worker&) { return false; }\nstatic void consider(Worker&, u32, float, u32) {}\n",
        &partials,
        "#elif AMK_WIDE\nstruct WideGroup {\n    u32 column, columns;\n\
         \x20   static constexpr u32 units = UNITS, first = 0, shares = 3;\n\
         \x20   static u32 pitch() { return LEN + 4; }\n\
         \x20   static u32 scratch_at() { return 512; }\n\
         \x20   u32 scales_at() const { return 512 + 4 * shares * columns * pitch(); }\n};\n\
         constexpr u32 LINE = 128;\n",
        &of_wide,
        &of_shares,
        "#endif\n#else\n",
        &of_rows,
        "#endif\n",
        &(embedding + &embeddings),
    ]
    .concat()
}

/// Projections of one row, with the tiles of 4 and 8 bits.
fn products() -> String {
    let kept = kept("// For attention.");
    let kind = TileKind::registered().find(|kind| kind.layout.encoding.name == "Q4_0").expect("a kind of tiles");
    let of_kind: String = kind.code.files.iter().map(|(_, text)| native::plain(text)).collect();
    let tile = linear("tile/tile");
    let fused = ["inputs", "partials", "cut", "fused"].map(linear).concat();
    let abi = source::registered_abi();
    format!("{abi}struct Kept {{\n{kept}}};\n#include \"streamed.h\"\n{tile}{of_kind}{fused}")
}

/// The same, and in steps of rows the products of one unit after the other.
fn products_of_rows() -> String {
    let rows = linear("rows");
    let of_rows =
        between(&rows, "// The products of the units of a pass, one after the other.", "// The same, two units");
    format!("{}#if AMK_ROWS\n#include \"row_pass.h\"\n{of_rows}#endif\n", products())
}

/// Products that read no sums, are split into no addends, and are stored as they are.
const STORED: [(&str, &str); 9] = [
    ("AMK_MOST", "4"),
    ("AMK_SHARED", "0"),
    ("AMK_EVEN", "0"),
    ("AMK_SUMS", "0"),
    ("AMK_SPLIT_K", "0"),
    ("AMK_EMBEDDING_SCALE", "1.0f"),
    ("AMK_SUMMANDS", "0"),
    ("AMK_BIASES", "0"),
    ("AMK_MAPS", "0"),
];

#[test]
fn warps_take_every_block_and_release_every_slot_once() {
    let slot = CHUNK.to_string();
    for rows in ["0", "8", "16"] {
        let of_bf16 = [("AMK_CODED", "0"), ("AMK_ACROSS", "1"), ("AMK_NORMED_PASSES", "1")];
        let defines = [&[("AMK_ROWS", rows), ("AMK_SLOT_BYTES", &slot[..])][..], &of_bf16, &STORED].concat();
        if run_with("blocks", &products_of_rows(), &defines).is_none() {
            return;
        }
    }
}

#[test]
fn products_of_coded_weights_are_those_of_their_elements_whatever_slots_hold() {
    for (across, slot) in [("1", CHUNK), ("4", CHUNK), ("4", CHUNK / 8 * 9)] {
        let slot = slot.to_string();
        let passes = if across == "1" { "1" } else { "4" };
        let of_codes = [("AMK_CODED", "1"), ("AMK_ACROSS", across), ("AMK_NORMED_PASSES", passes)];
        let defines = [&[("AMK_SLOT_BYTES", &slot[..])][..], &of_codes, &STORED].concat();
        if run_with("products", &products(), &defines).is_none() {
            return;
        }
    }
}

#[test]
fn a_loader_of_rows_takes_every_block_once() {
    let (inputs, cut) = (linear("inputs"), linear("cut"));
    let shape = between(&inputs, "struct GemvShape", "// Neighbouring tiles of an input");
    let cut = between(&cut, "// The partition of a projection's tape", "#if AMK_SPLIT_K\n// Passes over");
    let text = source::registered_abi() + &shape + &cut;
    for units in ["1", "2", "4", "8", "16"] {
        run_with("feed", &text, &[("AMK_ROW_UNITS", units), ("AMK_EMBEDDING_SCALE", "1.0f"), ("AMK_SUMS", "0")]);
    }
}

/// The code by which a launch begins the barriers of stages.
fn beginning() -> String {
    let begin = native::text("attention/begin.cuh");
    between(&begin, "AMK_DEVICE void begin_stages", "AMK_DEVICE void begin_fresh")
}

/// The code of the copying warps of wide steps.
fn copier() -> String {
    const SHARED: &str = "struct Params : VmParams, DecoderParams {};\n\
         struct Shared : Kept { RowWords rows[AMK_ROWS]; u32 progress, done; bool abandoned; };\n\
         static_assert(sizeof(Shared) <= RING, \"the ring lies behind it\");\n";
    let (rows, stages) = (linear("rows"), linear("stages"));
    [
        amk_cuda::image::abi::text(),
        source::registered_abi(),
        linear("copies"),
        format!("struct Kept {{\n{}}};\n{SHARED}", kept("// For attention.")),
        between(&linear("inputs"), "struct GemvShape", "// Neighbouring tiles of an input"),
        between(&linear("cut"), "struct GemvCut", "AMK_DEVICE u32 group_units"),
        between(&rows, "// The first row of the step that a record is for", "#endif"),
        between(&linear("wgmma"), "constexpr u32 LINE", "// Where a lane finds its row"),
        between(&stages, "// Columns of a product.", "constexpr u32 THREADS"),
        between(&stages, "// Whether teams multiply codes", "AMK_DEVICE void copy_16"),
        between(&stages, "// Copies contiguous runs of bytes", "// Waits for a barrier of the copying warps."),
        between(&stages, "// The groups of units and columns of a record", "// ---- what the consumers tell"),
        linear("boxes"),
        linear("copier"),
        beginning(),
    ]
    .concat()
}

/// The code of wide steps' products, by warpgroups where these multiply codes, and of the copying
/// warps.
fn wide_products() -> String {
    let [inputs, cut, rows, wgmma, stages] = ["inputs", "cut", "rows", "wgmma", "stages"].map(linear);
    let kinds = ["Q4_0", "Q4_K"].map(|name| {
        let kind = TileKind::registered().find(|kind| kind.layout.encoding.name == name).expect("a kind of tiles");
        kind.code.files.iter().map(|(_, text)| native::plain(text)).collect::<String>()
    });
    let of_lines = between(&wgmma, "constexpr u32 LINE", "#if __CUDA_ARCH_FEAT_SM90_ALL\n// The accumulators")
        + &between(&wgmma, "// Describes lines of 128 bytes", "// Describes matrices of 8 rows")
        + &to_end(&wgmma, "// Begins to add a warp's rows");
    [
        amk_cuda::image::abi::text(),
        source::registered_abi(),
        linear("copies"),
        format!("struct Kept {{\n{}}};\n#include \"wide.h\"\n", kept("// For attention.")),
        native::text("vm/values.cuh"),
        between(&rows, "#if AMK_ROWS\nconstexpr u32 SETS", "#if AMK_ROWS && !AMK_WIDE"),
        between(&inputs, "struct GemvShape", "// Neighbouring tiles of an input"),
        between(&cut, "struct GemvCut", "AMK_DEVICE u32 group_units"),
        "#define __CUDA_ARCH_FEAT_SM90_ALL 1\n".into(),
        of_lines,
        between(&stages, "// Columns of a product.", "constexpr u32 THREADS"),
        between(&stages, "// Whether teams multiply codes", "AMK_DEVICE void copy_16"),
        "static void await_own_copies() {}\n".into(),
        to_end(&stages, "// Copies contiguous runs of bytes"),
    ]
    .concat()
        + &linear("tile/tile")
        + &kinds.concat()
        + &["tile/pairs", "boxes", "copier", "delivery", "wide"].map(linear).concat()
        + &beginning()
}

#[test]
fn wide_products_of_codes_are_those_of_their_elements() {
    for rows in ["13", "32"] {
        let defines = [
            ("AMK_ROWS", rows),
            ("AMK_WIDE", "1"),
            ("AMK_COPIERS", "3"),
            ("AMK_PASSES", "16"),
            ("AMK_SHARED_COLUMNS", "1"),
            ("AMK_SUMS", "0"),
            ("AMK_SUMMANDS", "0"),
            ("AMK_MAPS", "0"),
            ("AMK_BIASES", "0"),
            ("AMK_CODED", "1"),
            ("AMK_HELD_BY_UNITS", "0"),
            ("AMK_DEFERRED_NORMS", "1"),
            ("AMK_EMBEDDING_SCALE", "1.0f"),
        ];
        if run_with("wide", &wide_products(), &defines.into_iter().chain(NO_ATTENTION).collect::<Vec<_>>()).is_none() {
            return;
        }
    }
}

#[test]
fn copying_warps_bring_every_stage_in_turn() {
    for rows in ["16", "24", "100", "300"] {
        let defines = [
            ("AMK_ROWS", rows),
            ("AMK_WIDE", "1"),
            ("AMK_PASSES", "16"),
            ("AMK_SHARED_COLUMNS", "0"),
            ("AMK_SUMS", "0"),
            ("AMK_EMBEDDING_SCALE", "1.0f"),
        ];
        if run_with("copier", &copier(), &defines).is_none() {
            return;
        }
    }
}

/// The names that the code of rows asks of an attention, where none runs.
const NO_ATTENTION: [(&str, &str); 6] = [
    ("AMK_ROW_BLOCK", "8"),
    ("AMK_HEAD_DIM", "128"),
    ("AMK_TURNS", "64"),
    ("AMK_OWN_TURNS", "1"),
    ("AMK_LONE_ROWS", "0"),
    ("AMK_WORKERS", "12"),
];

#[test]
fn deliveries_are_sums_of_parts_that_change_as_the_record_says() {
    let of_one = ["0", "1"].into_iter().flat_map(|coded| {
        [("0", "0"), ("1", "0"), ("0", "1"), ("1", "1")].map(|(sums, split)| ("0", "0", coded, sums, split))
    });
    let of_rows = [("3", "0"), ("8", "1"), ("12", "1"), ("16", "1"), ("24", "0"), ("100", "0"), ("150", "0")];
    let of_rows = of_rows.map(|(rows, packets)| (rows, packets, "0", "0", "0"));
    for (rows, packets, coded, sums, split) in of_one.chain(of_rows) {
        let defines = [
            ("AMK_ROWS", rows),
            ("AMK_ROW_PACKETS", packets),
            wide(rows, packets),
            ("AMK_SUMS", sums),
            ("AMK_SPLIT_K", split),
            ("AMK_SHARED_COLUMNS", if ["24", "100"].contains(&rows) { "1" } else { "0" }),
            ("AMK_HELD_BY_UNITS", if rows == "150" { "1" } else { "0" }),
            ("AMK_DEFERRED_NORMS", if rows == "24" { "1" } else { "0" }),
            ("AMK_EMBEDDING_SCALE", "1.25f"),
            ("AMK_SUMMANDS", "1"),
            ("AMK_BIASES", "1"),
            ("AMK_CODED", coded),
            ("AMK_MAPS", "1"),
        ]
        .into_iter()
        .chain(NO_ATTENTION);
        if run_with("delivery", &(code(&[]) + &delivery()), &defines.collect::<Vec<_>>()).is_none() {
            return;
        }
    }
}

#[test]
fn convolutions_are_the_sums_over_the_last_positions() {
    const FORMS: [(&str, &str, &str, &str); 8] = [
        ("0", "0", "0", "1"),
        ("0", "1", "0", "1"),
        ("0", "1", "0", "2"),
        ("8", "0", "0", "1"),
        ("8", "0", "1", "1"),
        ("8", "0", "0", "2"),
        ("16", "0", "1", "1"),
        ("24", "0", "0", "1"),
    ];
    for (rows, paged, packets, groups) in FORMS {
        let defines = [
            ("AMK_ROWS", rows),
            ("AMK_PAGED", paged),
            ("AMK_GROUPS", groups),
            ("AMK_CONV_GROUP", if groups == "2" { "1" } else { "0" }),
            ("AMK_ROW_PACKETS", packets),
            wide(rows, packets),
            ("AMK_CONVS", "2"),
            ("AMK_CONV_LEN", "64"),
            ("AMK_TAPS", "3"),
            ("AMK_CACHE_PAGE", "512"),
            ("AMK_KV_PAGE", "(512+2*64*64*2)"),
        ]
        .into_iter()
        .chain(NO_ATTENTION);
        if run("convolve", &["short_conv/fused.cuh", "short_conv/rows.cuh"], &defines.collect::<Vec<_>>()).is_none() {
            return;
        }
    }
}

#[test]
fn parts_of_a_norm_are_the_norm() {
    let of_rows = [
        ("3", "0", "0"),
        ("3", "1", "0"),
        ("8", "0", "0"),
        ("8", "1", "0"),
        ("12", "1", "0"),
        ("16", "1", "0"),
        ("12", "0", "0"),
        ("24", "0", "0"),
        ("48", "0", "0"),
        ("100", "0", "0"),
    ];
    for (rows, packets, sums) in [("0", "0", "0"), ("0", "0", "1")].into_iter().chain(of_rows) {
        let defines = [("AMK_ROWS", rows), ("AMK_ROW_PACKETS", packets), wide(rows, packets), ("AMK_SUMS", sums)];
        let defines = defines.into_iter().chain(NO_ATTENTION);
        if run("norm", &["rms_norm/fused.cuh", "rms_norm/rows.cuh"], &defines.collect::<Vec<_>>()).is_none() {
            return;
        }
    }
}
