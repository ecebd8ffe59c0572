//! The `amk` binary, with the instructions of `amk-kernels`.

fn main() -> std::process::ExitCode {
    amk_cli::main()
}
