//! Draws random programs and compares the verifier with the oracle:
//! `soundness --programs 1000000 --seed 1`.

use amk_tests::routed::{self, Count, compare, draw_tangled, mutate::Class};
use amk_tests::rows;
use amk_tests::shrink::shrink;
use amk_tests::soundness::guided::Guided;
use amk_tests::soundness::{Difference, Family, Tally, cause, codes, draw, opinion};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Compares the verifier with an exhaustive oracle on random programs.
#[derive(Parser)]
struct Args {
    /// How many programs are drawn, of all families together.
    #[arg(long, default_value_t = 100_000)]
    programs: u64,
    /// The seed they are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Families of programs: small, large, moving, packets, ahead, deep, states, shared, relay,
    /// mixed, boxes, arena; all but `large` if none is named.
    #[arg(long, value_delimiter = ',', value_parser = family)]
    class: Vec<Family>,
    /// Prints the `n`-th program of a family and the verdicts on it, and nothing else.
    #[arg(long)]
    show: Option<u64>,
    /// Prints that many of the programs on which they differ, shrunk; false accepts first.
    #[arg(long, default_value_t = 3)]
    differences: usize,
    /// Keeps programs that show something new and changes those further.
    #[arg(long)]
    guided: bool,
    /// Where a guided search writes accepted programs that an edit makes unsafe.
    #[arg(long, requires = "guided")]
    keep: Option<PathBuf>,
    /// Programs with tables, each routing judged as a separate program.
    #[arg(long)]
    routed: bool,
    /// With `--routed`: programs other than mixtures of experts.
    #[arg(long, requires = "routed")]
    tangled: bool,
    /// Programs with rows, each step judged as a separate program.
    #[arg(long, conflicts_with_all = ["routed", "guided"])]
    rows: bool,
    /// With `--rows`: the most steps of several sequences that each program is judged in; over that
    /// many, random ones.
    #[arg(long, default_value_t = rows::STEPS, requires = "rows")]
    steps: usize,
    /// Prints a JSON summary instead of tables.
    #[arg(long)]
    json: bool,
}

fn family(name: &str) -> Result<Family, String> {
    let known = || Family::small().into_iter().chain([Family::Large]);
    let names = || known().map(|family| family.to_string()).collect::<Vec<_>>().join(", ");
    known().find(|family| family.to_string() == name).ok_or_else(|| format!("one of {}", names()))
}

/// Programs a thread takes at a time.
const CHUNK: u64 = 100;

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.class.is_empty() {
        args.class = Family::small();
    }
    if args.rows {
        return with_rows(&args);
    }
    if args.routed {
        return routed(&args);
    }
    if let Some(number) = args.show {
        args.class.iter().for_each(|&family| show(family, args.seed, number));
        return ExitCode::SUCCESS;
    }
    let bar = bar(args.programs);
    let mut sum = Tally::default();
    let mut tallies = Vec::new();
    if args.guided {
        let started = Instant::now();
        sum = guided(&args, &bar);
        tallies.push(("guided".to_owned(), sum.clone(), started.elapsed().as_secs_f64()));
        args.class.clear();
    }
    for (n, &family) in (0..).zip(&args.class) {
        let families = args.class.len() as u64;
        let programs = args.programs / families + u64::from(n < args.programs % families);
        let started = Instant::now();
        let tally = run(&args, family, programs, &bar);
        sum.add(tally.clone());
        tallies.push((family.to_string(), tally, started.elapsed().as_secs_f64()));
    }
    bar.finish_and_clear();
    if args.json {
        json(&args, &sum);
    } else {
        table(&args, &tallies, &sum);
    }
    let mut left = args.differences;
    for (family, tally, _) in &tallies {
        for difference in tally.differences.iter().take(left) {
            explain(family, difference);
            left -= 1;
        }
    }
    if sum.total().false_accepts == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn bar(programs: u64) -> ProgressBar {
    let bar = ProgressBar::new(programs);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} programs, {msg}{eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Moves the bar; where no terminal shows it, a line tells of every twentieth part.
fn advance(bar: &ProgressBar, programs: u64) {
    let part = || bar.position() * 20 / bar.length().unwrap_or(0).max(1);
    let before = part();
    bar.inc(programs);
    if bar.is_hidden() && part() != before {
        let (seconds, position) = (bar.eta().as_secs(), bar.position());
        eprintln!("{position} of {} programs, {seconds} s left", bar.length().unwrap_or(0));
    }
}

/// Programs with tables, by class.
fn routed(args: &Args) -> ExitCode {
    let draw = if args.tangled { draw_tangled } else { routed::draw };
    if let Some(number) = args.show {
        let (class, program) = draw(args.seed, number);
        let (verdict, routing) = routed::judge(&program);
        println!(
            "; {class:?}: {verdict} for {routing:?}\n; verifier: {:?}\n{}",
            codes(&program),
            amk_ir::text::print(&program)
        );
        return ExitCode::SUCCESS;
    }
    let bar = bar(args.programs);
    let share = |thread: u64| bar.wrap_iter((thread..args.programs).step_by(args.threads.max(1) as usize));
    let mut counts: BTreeMap<Class, Count> = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads.max(1))
            .map(|thread| scope.spawn(move || compare(codes, draw, args.seed, share(thread))))
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

/// Programs with rows, by change.
fn with_rows(args: &Args) -> ExitCode {
    if let Some(number) = args.show {
        let (change, program) = rows::tally::drawn(args.seed, number);
        println!("; {change:?}");
        show_rows(&program, args.steps);
        return ExitCode::SUCCESS;
    }
    let bar = bar(args.programs);
    let started = Instant::now();
    let work = |first| rows::tally::Tally::run(codes, args.seed, first, args.steps);
    let sum = chunks(args, args.programs, &bar, work, rows::tally::Tally::add);
    bar.finish_and_clear();
    let total = sum.total();
    if args.json {
        let changes: serde_json::Map<_, _> =
            sum.changes.iter().map(|(change, count)| (format!("{change:?}"), serde_json::json!(count))).collect();
        let summary = serde_json::json!({
            "programs": args.programs, "seed": args.seed, "total": total, "changes": changes,
            "oracle": sum.verdicts, "verifier": sum.codes,
            "false accepts": sum.accepts, "false rejects": sum.rejects,
        });
        println!("{summary:#}");
    } else {
        for (change, count) in &sum.changes {
            println!("{:<24} {count}", format!("{change:?}"));
        }
        println!("{:<24} {total}\noracle {:?}\nverifier {:?}", "all", sum.verdicts, sum.codes);
        for (cause, (programs, number)) in &sum.accepts {
            println!("{programs:>9} accepted, but {cause} (as {number})");
        }
        for (cause, (programs, number)) in &sum.rejects {
            println!("{programs:>9} safe, but {cause} (as {number})");
        }
        let seconds = started.elapsed().as_secs_f64();
        println!("seed {}, {seconds:.1} s of {} threads", args.seed, args.threads);
    }
    for difference in sum.differences.iter().take(args.differences) {
        let accepted = difference.codes.is_empty();
        let first = difference.codes.first();
        let differs = |program: &amk_ir::Program| {
            let codes = codes(program);
            codes.first() == first && rows::judge(program, args.steps).is_safe() != accepted
        };
        println!("\n; {}", difference.number);
        show_rows(&shrink(difference.program.clone(), differs), args.steps);
    }
    if total.false_accepts == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show_rows(program: &amk_ir::Program, steps: usize) {
    println!("; oracle: {}", rows::judge(program, steps));
    for violation in amk_ir::verify::check(program) {
        println!("; verifier: {}\n; {violation:?}", cause(&violation));
    }
    println!("{}", amk_ir::text::print(program));
}

/// Compares the programs of a family, on all threads.
fn run(args: &Args, family: Family, programs: u64, bar: &ProgressBar) -> Tally {
    chunks(args, programs, bar, |numbers| Tally::run(codes, family, args.seed, numbers), Tally::add)
}

/// Compares chunks of programs, given by their numbers, on all threads.
fn chunks<T: Default + Send>(
    args: &Args,
    programs: u64,
    bar: &ProgressBar,
    compare: impl Fn(Range<u64>) -> T + Sync,
    add: fn(&mut T, T),
) -> T {
    let next = AtomicU64::new(0);
    let work = || {
        let mut sum = T::default();
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= programs {
                return sum;
            }
            let last = (first + CHUNK).min(programs);
            add(&mut sum, compare(first..last));
            advance(bar, last - first);
        }
    };
    threads(args.threads, work, add)
}

/// A guided search on every thread, each on its own.
fn guided(args: &Args, bar: &ProgressBar) -> Tally {
    let (next, each) = (AtomicU64::new(0), args.programs / args.threads.max(1));
    threads(
        args.threads,
        || {
            let thread = next.fetch_add(1, Ordering::Relaxed);
            let mut search = Guided::new(codes, &args.class, args.seed + (thread << 32));
            let mut judged = 0;
            while judged < each {
                search.run(CHUNK);
                let now = search.tally.total().programs;
                advance(bar, now - judged);
                judged = now;
            }
            let tally = search.tally.clone();
            if let Some(folder) = args.keep.as_ref().filter(|_| thread == 0) {
                for (n, miss) in search.near_misses(NEAR_MISSES).into_iter().enumerate() {
                    let path = folder.join(format!("{n:02}.amk"));
                    if let Err(error) = std::fs::write(&path, miss.print()) {
                        eprintln!("{}: {error}", path.display());
                    }
                }
            }
            tally
        },
        Tally::add,
    )
}

/// As many near misses are kept.
const NEAR_MISSES: usize = 40;

/// Runs some work on every thread, and adds up the counts.
fn threads<T: Default + Send>(threads: u64, work: impl Fn() -> T + Sync, add: fn(&mut T, T)) -> T {
    let mut sum = T::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(more) => add(&mut sum, more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    sum
}

fn table(args: &Args, tallies: &[(String, Tally, f64)], sum: &Tally) {
    for (label, count) in &sum.labels {
        let label = format!("{label:?}");
        let label = label.trim_start_matches("Mutant(").trim_end_matches(')');
        println!("{:>9} {label}: {} unsafe", count.programs, count.unsafe_programs);
    }
    for (feature, (programs, safe)) in &sum.features {
        println!("{programs:>9} with {feature}: {safe} safe");
    }
    println!("oracle {:?}", sum.verdicts);
    println!("verifier {:?}", sum.codes);
    for (cause, (programs, number)) in &sum.rejects {
        println!("{programs:>9} safe, but {cause} (as {number})");
    }
    println!(
        "\n{:<10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "class", "programs", "unsafe", "false acc", "false rej", "undecided", "a second"
    );
    let all = tallies.iter().map(|(_, _, seconds)| seconds).sum();
    let rows = tallies.iter().map(|(family, tally, seconds)| (family.clone(), tally, *seconds));
    for (name, tally, seconds) in rows.chain([("all".to_owned(), sum, all)]) {
        let count = tally.total();
        let speed = count.programs as f64 / seconds;
        println!(
            "{name:<10} {:>10} {:>10} {:>9} {:>9} {:>9} {speed:>9.0}",
            count.programs, count.unsafe_programs, count.false_accepts, count.false_rejects, count.undecided
        );
    }
    let (verifying, exploring) = (sum.verifying.as_secs_f64(), sum.exploring.as_secs_f64());
    let (slowest, number) = (sum.slowest.0.as_secs_f64(), sum.slowest.1);
    println!(
        "seed {}, {all:.1} s: verifier {verifying:.1} s, oracle {exploring:.1} s of {} threads; \
        the verifier took {slowest:.4} s for {number}",
        args.seed, args.threads
    );
}

fn json(args: &Args, tally: &Tally) {
    let labels: serde_json::Map<_, _> =
        tally.labels.iter().map(|(label, count)| (format!("{label:?}"), serde_json::json!(count))).collect();
    let summary = serde_json::json!({
        "programs": args.programs, "seed": args.seed, "total": tally.total(), "classes": labels,
        "features": tally.features, "oracle": tally.verdicts, "verifier": tally.codes, "false rejects": tally.rejects,
    });
    println!("{summary:#}");
}

fn show(family: Family, seed: u64, number: u64) {
    let (label, program) = draw(family, seed, number);
    println!("; {family} {label:?}\n{}", amk_ir::text::print(&program));
    let verdict = opinion(&program);
    println!("; oracle: {verdict}");
    for violation in amk_ir::verify::check(&program) {
        println!("; verifier: {}\n; {violation:?}", cause(&violation));
    }
}

fn explain(family: &str, difference: &Difference) {
    let accepted = difference.codes.is_empty();
    let differs =
        |program: &amk_ir::Program| codes(program).is_empty() == accepted && opinion(program).is_safe() != accepted;
    let small = shrink(difference.program.clone(), differs);
    let verdict = opinion(&small);
    println!("\n; {family} {}: oracle: {verdict}; verifier: {:?}", difference.number, codes(&small));
    for violation in amk_ir::verify::check(&small) {
        println!("; {violation:?}");
    }
    println!("{}", amk_ir::text::print(&small));
}
