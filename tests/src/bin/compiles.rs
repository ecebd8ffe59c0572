//! Checks that device code compiles: `compiles ARCHITECTURE`, the code on standard input. A process
//! of its own, since later code of the process would hardly be optimised.

use amk_cuda::nvrtc;
use std::process::ExitCode;

fn main() -> ExitCode {
    let architecture = std::env::args().nth(1).unwrap_or_default();
    let source = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    match nvrtc::check(&source, &architecture) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
