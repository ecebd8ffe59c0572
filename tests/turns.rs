//! How attention deals out positions to warps (`turns.cuh`), compiled for this machine. Without a C++ compiler it says "skipped".

mod native;

use std::process::Command;

#[test]
fn every_position_is_attended_to_once_where_the_loader_puts_it() {
    let Some((_folder, program)) = native::build("turns.cuh", "turns") else {
        return println!("skipped: no C++ compiler");
    };
    let output = Command::new(program).output().expect("it should start");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    println!("{told}");
}
