//! Draws random programs and compares the verifier with the oracle: `soundness --programs 1000000 --seed 1`.

use amk_tests::generate::Size;
use amk_tests::routed::{Count, compare, mutate::Class};
use amk_tests::shrink::shrink;
use amk_tests::soundness::{Difference, Tally, codes, draw, opinion};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Compares the verifier with an exhaustive oracle on random programs.
#[derive(Parser)]
struct Args {
    /// How many programs are drawn.
    #[arg(long, default_value_t = 100_000)]
    programs: u64,
    /// The seed they are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Prints the `n`-th program and what is said of it, and nothing else.
    #[arg(long)]
    show: Option<u64>,
    /// Prints that many of the programs on which they differ, shrunk.
    #[arg(long, default_value_t = 3)]
    differences: usize,
    /// Programs of up to 80 tasks, judged by one execution a task and not by every interleaving.
    #[arg(long)]
    large: bool,
    /// Programs with tables, each routing judged as a program of its own.
    #[arg(long)]
    routed: bool,
    /// Prints a JSON summary instead of a table.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn size(&self) -> Size {
        if self.large { Size::LARGE } else { Size::SMALL }
    }
}

/// Programs a thread takes at a time.
const CHUNK: u64 = 100;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(number) = args.show {
        show(args.size(), args.seed, number);
        return ExitCode::SUCCESS;
    }
    if args.routed {
        return routed(&args);
    }
    let started = Instant::now();
    let tally = run(&args);
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        json(&args, &tally, seconds)
    } else {
        table(&args, &tally, seconds)
    }
    for difference in tally.differences.iter().take(args.differences) {
        explain(difference);
    }
    let total = tally.total();
    if total.false_accepts + total.false_rejects == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn bar(programs: u64) -> ProgressBar {
    let bar = ProgressBar::new(programs);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} programs, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Programs with tables, by class.
fn routed(args: &Args) -> ExitCode {
    let bar = bar(args.programs);
    let share = |thread: u64| bar.wrap_iter((thread..args.programs).step_by(args.threads.max(1) as usize));
    let mut counts: BTreeMap<Class, Count> = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads.max(1))
            .map(|thread| scope.spawn(move || compare(codes, args.seed, share(thread))))
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(more) => more.into_iter().for_each(|(class, more)| counts.entry(class).or_default().add(more)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    bar.finish_and_clear();
    let mut total = Count::default();
    for (class, count) in counts {
        println!("{:<22} {count}", format!("{class:?}"));
        total.add(count);
    }
    println!("{:<22} {total}", "all");
    if total.false_accepts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(args: &Args) -> Tally {
    let bar = bar(args.programs);
    let next = AtomicU64::new(0);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= args.programs {
                return tally;
            }
            let last = (first + CHUNK).min(args.programs);
            tally.add(Tally::run(codes, args.size(), args.seed, first..last));
            bar.inc(last - first);
        }
    };
    let mut sum = Tally::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(tally) => sum.add(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    bar.finish_and_clear();
    sum
}

fn table(args: &Args, tally: &Tally, seconds: f64) {
    println!(
        "{:<18} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "class", "programs", "unsafe", "false acc", "false rej", "undecided"
    );
    let total = tally.total();
    let labels = tally.labels.iter().map(|(label, count)| (format!("{label:?}"), count));
    for (label, count) in labels.chain([("all".to_owned(), &total)]) {
        let label = label.trim_start_matches("Mutant(").trim_end_matches(')');
        let (wrong, rejected) = (count.false_accepts, count.false_rejects);
        println!(
            "{label:<18} {:>9} {:>9} {wrong:>9} {rejected:>9} {:>9}",
            count.programs, count.unsafe_programs, count.undecided
        );
    }
    for (feature, (programs, safe)) in &tally.features {
        println!("{programs:>9} programs with {feature}, {safe} safe");
    }
    println!("oracle {:?}", tally.verdicts);
    println!("verifier {:?}", tally.codes);
    let (verifying, exploring) = (tally.verifying.as_secs_f64(), tally.exploring.as_secs_f64());
    println!(
        "seed {}, {seconds:.1} s: verifier {verifying:.1} s, oracle {exploring:.1} s of {} threads",
        args.seed, args.threads
    );
}

fn json(args: &Args, tally: &Tally, seconds: f64) {
    let labels: serde_json::Map<_, _> =
        tally.labels.iter().map(|(label, count)| (format!("{label:?}"), serde_json::json!(count))).collect();
    let summary = serde_json::json!({
        "programs": args.programs, "seed": args.seed, "seconds": seconds, "total": tally.total(), "classes": labels,
        "features": tally.features, "oracle": tally.verdicts, "verifier": tally.codes,
    });
    println!("{summary:#}");
}

fn show(size: Size, seed: u64, number: u64) {
    let (label, program) = draw(size, seed, number);
    println!("; {label:?}\n{}", amk_ir::text::print(&program));
    let verdict = opinion(&program, true);
    println!("; oracle: {verdict}");
    for violation in amk_ir::verify::check(&program) {
        println!("; verifier: {} {violation:?}", violation.code());
    }
}

fn explain(difference: &Difference) {
    let accepted = difference.codes.is_empty();
    let differs = |program: &amk_ir::Program| {
        codes(program).is_empty() == accepted && opinion(program, true).is_safe() != accepted
    };
    let small = shrink(difference.program.clone(), differs);
    let verdict = opinion(&small, true);
    println!("\n; program {}: oracle: {verdict}; verifier: {:?}", difference.number, codes(&small));
    for violation in amk_ir::verify::check(&small) {
        println!("; {violation:?}");
    }
    println!("{}", amk_ir::text::print(&small));
}
