//! Checks that device code compiles: `compiles ARCHITECTURE`, the code on standard input. Hardly
//! anything is optimised, which takes a fraction of the time. A process of its own: an NVRTC that
//! was once told to be fast optimises less of what it compiles later.

use amk_cuda::nvrtc::compile_with;
use std::process::ExitCode;

fn main() -> ExitCode {
    let architecture = std::env::args().nth(1).unwrap_or_default();
    let source = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    match compile_with(&source, &architecture, &["--Ofast-compile=max"]) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
