//! The macros' own share of a build: `cargo bench -p amk-macros-core`.
//!
//! Expands every use of the macros in the models and the instruction set, stage by stage, in this
//! process, and compares the sum with `cargo check -p amk-models` after a model was touched
//! (development profile, where the macros are optimised too).

#[path = "../tests/record/mod.rs"]
mod record;

use amk_macros_core::{Origin, instruction, megakernel, stage2, weight_layout};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use record::record;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use syn::{Attribute, File, Item};

/// Runs of each expansion; the fastest counts.
const RUNS: usize = 5;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut bench = Bench::default();
    // Layouts precede their users; a second round finds the ones that came too early.
    for _ in 0..2 {
        bench.rows.clear();
        bench.incomplete.clear();
        for folder in ["kernels/src", "amk-models/src/models"] {
            for file in rust_files(&root.join(folder)) {
                bench.file(&file);
            }
        }
    }
    assert!(bench.incomplete.is_empty(), "no graph of {:?}", bench.incomplete);
    bench.print();
    check(&root, bench.rows.iter().filter(|row| row.file.starts_with("models")).map(|row| row.time).sum());
}

/// `cargo check` of the models after one was touched, and the macros' part in it.
fn check(root: &Path, share: Duration) {
    let build = || Command::new(env!("CARGO")).args(["check", "-q", "-p", "amk-models"]).current_dir(root).status();
    if !build().is_ok_and(|status| status.success()) {
        println!("amk-models does not build here: no comparison with `cargo check`");
        return;
    }
    let mut total = Duration::MAX;
    for _ in 0..RUNS {
        let touched = std::fs::File::options().append(true).open(root.join("amk-models/src/models/llama.rs"));
        touched.and_then(|file| file.set_modified(SystemTime::now())).expect("a file of the workspace can be touched");
        let start = Instant::now();
        let _ = build();
        total = total.min(start.elapsed());
    }
    let percent = 100.0 * share.as_secs_f64() / total.as_secs_f64();
    println!(
        "cargo check -p amk-models after touching a model: {total:.0?}, of it the macros {share:.1?} ({percent:.0}%)"
    );
}

#[derive(Default)]
struct Bench {
    /// The records found so far by the item's name: kind and content.
    records: BTreeMap<String, (&'static str, String)>,
    rows: Vec<Row>,
    /// Kernels whose second stage made no graph.
    incomplete: Vec<String>,
}

struct Row {
    file: String,
    name: String,
    what: &'static str,
    time: Duration,
}

impl Bench {
    fn file(&mut self, path: &Path) {
        for name in ["Token", "Pos", "Tensor"] {
            self.records.insert(name.to_owned(), ("input", name.to_owned()));
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let file: File = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let name = format!("{}/{}", folder.to_string_lossy(), path.file_name().unwrap_or_default().to_string_lossy());
        for item in &file.items {
            self.item(&name, item);
        }
    }

    fn item(&mut self, file: &str, item: &Item) {
        let (ident, attributes) = match item {
            Item::Fn(function) => (&function.sig.ident, &function.attrs),
            Item::Struct(layout) => (&layout.ident, &layout.attrs),
            _ => return,
        };
        let origin = Origin { crate_name: "bench".into(), file: file.to_owned(), line: 1, column: 1 };
        if let Some((arguments, rest)) = split(attributes, item, "instruction") {
            let tokens =
                self.time(file, ident, "instruction", || instruction(&origin, arguments.clone(), rest.clone()));
            self.keep(ident, "instruction", &tokens);
        } else if let Some((arguments, rest)) = split(attributes, item, "megakernel") {
            let chain = self.time(file, ident, "first stage", || megakernel(arguments.clone(), rest.clone()));
            let end = self.end(&chain);
            let tokens = self.time(file, ident, "second stage", || stage2(end.clone()));
            let complete = tokens.to_string().starts_with("# [doc");
            self.incomplete.extend((!complete).then(|| format!("{file}: {ident}")));
        } else if attributes.iter().any(|attribute| attribute.to_token_stream().to_string().contains("WeightLayout")) {
            let tokens = self.time(file, ident, "derive", || weight_layout(&origin, item.to_token_stream()));
            let tokens = if tokens.to_string().contains("@ amk1") && !tokens.to_string().starts_with("impl") {
                let end = self.end(&tokens);
                self.time(file, ident, "define", || amk_macros_core::define(end.clone()))
            } else {
                tokens
            };
            self.keep(ident, "layout", &tokens);
        }
    }

    fn keep(&mut self, name: &syn::Ident, kind: &'static str, expansion: &TokenStream) {
        if let Some(content) = record(expansion) {
            self.records.insert(name.to_string(), (kind, content));
        }
    }

    fn time(
        &mut self,
        file: &str,
        name: &syn::Ident,
        what: &'static str,
        run: impl Fn() -> TokenStream,
    ) -> TokenStream {
        let mut best = Duration::MAX;
        let mut tokens = TokenStream::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            tokens = run();
            best = best.min(start.elapsed());
        }
        self.rows.push(Row { file: file.to_owned(), name: name.to_string(), what, time: best });
        tokens
    }

    /// The call of the last companion in a chain: all records and the payload.
    fn end(&self, chain: &TokenStream) -> TokenStream {
        let file: File = syn::parse2(chain.clone()).expect("items");
        let call = file.items.iter().find_map(|item| match item {
            Item::Macro(call) if call.ident.is_none() => Some(call.mac.tokens.clone()),
            _ => None,
        });
        let tokens: Vec<_> = call.expect("a chain").into_iter().collect();
        let (payload, links) = (&tokens[tokens.len() - 1], &tokens[tokens.len() - 2]);
        let mut keys: Vec<String> = vec![tokens[2].to_string()];
        if let proc_macro2::TokenTree::Group(links) = links {
            keys.extend(
                links
                    .stream()
                    .into_iter()
                    .filter(|tree| matches!(tree, proc_macro2::TokenTree::Literal(_)))
                    .map(|tree| tree.to_string()),
            );
        }
        let records = keys.iter().filter_map(|key| {
            let key = key.trim_matches('"');
            let (kind, content) = self.records.get(key.rsplit("::").next()?)?;
            let kind = quote::format_ident!("{kind}");
            Some(quote!({ #key #kind #content }))
        });
        quote!(@amk1 "$end" { #(#records)* } {} #payload)
    }

    fn print(&self) {
        let mut sums: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
        for row in &self.rows {
            let sum = sums.entry(row.what).or_default();
            *sum = (sum.0 + 1, sum.1 + row.time);
            if row.what == "second stage" {
                println!("{:<24} {:<12} {:<14} {:>10.2?}", row.file, row.name, row.what, row.time);
            }
        }
        for (what, (count, time)) in sums {
            println!("{count:>4} x {what:<14} {time:>10.2?}");
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect();
    files.sort();
    files
}

/// The arguments of the attribute, and the item without it.
fn split(attributes: &[Attribute], item: &Item, name: &str) -> Option<(TokenStream, TokenStream)> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident(name))?;
    let arguments = attribute.meta.require_list().ok()?.tokens.clone();
    let mut item = item.clone();
    if let Item::Fn(function) = &mut item {
        function.attrs.retain(|attribute| !attribute.path().is_ident(name));
    }
    Some((arguments, item.to_token_stream()))
}
