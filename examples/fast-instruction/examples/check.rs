//! The `amk` command with the instructions of this crate.

use amk_fast_instruction as _;

fn main() -> std::process::ExitCode {
    amk_cli::main()
}
