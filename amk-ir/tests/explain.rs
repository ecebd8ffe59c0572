//! Every code has a page, and the program in a page has the violation.

use amk_ir::explain::{explain, pages};
use amk_ir::text::parse;
use amk_ir::verify::{Code, check};

#[test]
fn pages_are_in_order_and_found() {
    let codes: Vec<u16> = pages().map(|page| page.code).collect();
    assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    assert_eq!(explain("AMK0302").unwrap().code, 302);
    assert_eq!(explain("302").unwrap().code, 302);
    assert!(explain("AMK0399").is_none());
    assert!(explain("x").is_none());
}

#[test]
fn examples_have_the_violation() {
    for page in pages() {
        let Some(example) = page.example() else {
            // A page without a program is about source text, or about more signals than a page can
            // hold.
            assert!(page.code >= 640 || (600..630).contains(&page.code) || page.code == 504, "{page}");
            continue;
        };
        let program = parse(&example).unwrap_or_else(|error| panic!("{page}{error}"));
        let codes: Vec<Code> = check(&program).iter().map(|violation| violation.code()).collect();
        assert!(!codes.is_empty() && codes.iter().all(|code| *code == Code(page.code)), "{page}found {codes:?}");
    }
}
