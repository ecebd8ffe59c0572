//! Compiles the cases: those in `pass` must compile and run, those in `fail` must not, and must say what stands beside them.
//! `TRYBUILD=overwrite cargo test -p amk-ui-tests` writes the expected texts anew; review them as code.


#[test]
fn cases() {
    let cases = trybuild::TestCases::new();
    cases.pass("pass/*.rs");
    cases.compile_fail("fail/*.rs");
}
