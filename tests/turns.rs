//! How attention deals out positions to warps (`turns.cuh`), compiled for this machine. Without a
//! C++ compiler it says "skipped".

use crate::native;
use std::process::Command;

#[test]
fn every_position_is_attended_to_once_where_the_loader_puts_it_with_any_ring() {
    let of_bf16 = [(2, 0, 2), (3, 0, 2), (6, 0, 2), (2, 1, 2), (6, 1, 2)];
    for (slots, paged, bytes) in of_bf16.into_iter().chain([(2, 0, 1), (6, 0, 1), (6, 1, 1)]) {
        let [slots, paged] = [format!("AMK_SLOTS={slots}"), format!("AMK_PAGED={paged}")];
        let defines = [slots, paged, format!("AMK_CACHE_BYTES={bytes}")];
        let defines = defines.each_ref().map(String::as_str);
        let Some((_folder, program)) = native::build(&native::text("attention/turns.cuh"), "turns", &defines) else {
            return println!("skipped: no C++ compiler");
        };
        let output = Command::new(program).output().expect("it should start");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{defines:?}: {stdout}");
        println!("{defines:?}: {stdout}");
    }
}
