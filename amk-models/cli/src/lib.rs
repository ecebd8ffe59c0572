//! The `amk` command: runs, checks and inspects megakernels.
//!
//! The command knows the instructions that are linked into its binary. A crate with instructions of
//! its own gets them into it by a binary that calls [`main`]:
//!
//! ```ignore
//! use my_crate as _;
//!
//! fn main() -> std::process::ExitCode {
//!     amk_cli::main()
//! }
//! ```

mod bench;
mod chat;
mod check;
mod completions;
mod doctor;
mod dump;
mod embed;
mod explain;
mod generate;
mod load;
mod model;
mod models;
mod options;
mod perplexity;
mod positions;
mod quantize;
mod sampling;
mod serve;
mod signals;
mod start;
mod subject;
mod trace;
mod tune;
mod verify_kernels;

use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;

/// Megakernels from annotated Rust functions: verified, and run on the CPU or a GPU.
#[derive(Parser)]
#[command(name = "amk", version, propagate_version = true, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate text.
    Generate(generate::Generate),
    /// Chat with a model in the terminal.
    Chat(chat::Chat),
    /// Serve a model through OpenAI's API.
    Serve(serve::Serve),
    /// Print the embeddings of texts.
    Embed(embed::Embed),
    /// Measure the perplexity of a text.
    Perplexity(perplexity::Perplexity),
    /// Quantise a model's weights.
    Quantize(quantize::Quantize),
    /// Verify declared instances, or a program from a file.
    Check(check::Check),
    /// Print a model's graph, program, schedule or expansion.
    Dump(dump::Dump),
    /// List the models and their instances.
    Models(models::Models),
    /// Explain a code such as AMK0302.
    Explain(explain::Explain),
    /// Show what this machine can run and what is missing.
    Doctor(doctor::Doctor),
    /// Time decode steps.
    Bench(bench::Bench),
    /// Show where the time of a step goes on a GPU.
    Trace(trace::Trace),
    /// Search for the best schedule of a model on a GPU.
    Tune(tune::Tune),
    /// Check every instruction in isolation.
    VerifyKernels(verify_kernels::VerifyKernels),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Write the manual pages to a folder.
    Man(completions::Man),
}

impl Cli {
    /// The command line of this process. A number may be negative, so that its range refuses it.
    fn of_process() -> Self {
        let signed = |argument: Arg| {
            let takes_values = argument.get_action().takes_values();
            argument.allow_negative_numbers(takes_values)
        };
        let command = Self::command().mut_subcommands(|command| command.mut_args(signed));
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

/// Runs the command line of this process, over the instructions that are linked into its binary.
///
/// Exit codes: 0 done, 1 refused or failed, 2 wrong usage (clap's own).
pub fn main() -> ExitCode {
    amk_kernels::link();
    let done = match Cli::of_process().command {
        Command::Generate(command) => command.run(),
        Command::Chat(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Embed(command) => command.run(),
        Command::Perplexity(command) => command.run(),
        Command::Quantize(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Dump(command) => command.run(),
        Command::Models(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Trace(command) => command.run(),
        Command::Tune(command) => command.run(),
        Command::VerifyKernels(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{} {error:#}", options::paint("error:", options::RED));
            ExitCode::FAILURE
        }
    }
}
