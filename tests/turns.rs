//! How attention deals out positions to warps (`turns.cuh`), compiled for this machine. Without a
//! C++ compiler it says "skipped".

use crate::native;
use std::process::Command;

#[test]
fn every_position_is_attended_to_once_where_the_loader_puts_it_with_any_ring() {
    for slots in [2, 3, 6] {
        let Some((_folder, program)) =
            native::build(native::file("attention/turns.cuh"), "turns", &[&format!("AMK_SLOTS={slots}")])
        else {
            return println!("skipped: no C++ compiler");
        };
        let output = Command::new(program).output().expect("it should start");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{slots} slots: {stdout}");
        println!("{slots} slots: {stdout}");
    }
}
