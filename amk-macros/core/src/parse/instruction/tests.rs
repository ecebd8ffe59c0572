//! Accepted signatures, and the errors for refused ones.

use super::*;
use quote::quote;

fn origin() -> Origin {
    Origin { crate_name: "amk_kernels".into(), file: "amk-kernels/src/ops.rs".into(), line: 3, column: 1 }
}

fn signature(attribute: TokenStream, function: TokenStream) -> Result<Signature, Vec<String>> {
    let function: ItemFn = syn::parse2(function).expect("a function");
    let mut diagnostics = Diagnostics::default();
    let parsed = parse(&origin(), attribute, &function, &mut diagnostics);
    parsed.map(|instruction| instruction.signature).ok_or_else(|| diagnostics.messages())
}

fn first(attribute: TokenStream, function: TokenStream) -> String {
    signature(attribute, function).expect_err("rejected").remove(0)
}

#[test]
fn a_signature_is_read_from_clauses_and_types() {
    let found = signature(
        quote!(
            op = "attention",
            shape = "q: [Q], k: [G, C, D] -> y: [Q]",
            multiples = "Q % D",
            task = "h in 0..Q step D: y[h..h+D] <- q[h..h+D], k[h*G/Q..h*G/Q+1, 0..pos+1, ..]",
            cuda = "a.cuh"
        ),
        quote!(
            pub fn attention(q: &Tensor, k: &State, scale: f32, pos: amk::Pos) -> Tensor {
                todo!()
            }
        ),
    )
    .expect("a signature");
    assert_eq!((found.path.as_str(), found.op.as_str()), ("amk_kernels::attention", "attention"));
    assert_eq!(found.declared_at, "amk-kernels/src/ops.rs:3");
    assert!(matches!(found.params[1].kind, ParamKind::Tensor { class: TensorClass::State, access: Access::Read, .. }));
    assert_eq!((&found.params[2].kind, &found.params[3].kind), (&ParamKind::Float, &ParamKind::Pos));
    assert_eq!((found.results.len(), found.grid.len(), found.cuda.as_deref()), (1, 1, Some("a.cuh")));
}

#[test]
fn a_mutable_state_is_left_of_the_arrow() {
    let shape = "cache: [G, C, D], x: [G*D]";
    let append = |cache: TokenStream, task: &str| {
        signature(
            quote!(op = "a", shape = #shape, task = #task),
            quote!(fn append(cache: #cache, x: &Tensor, pos: Pos) {}),
        )
    };
    let task = "g in 0..G step 1: cache[g..g+1, pos..pos+1, ..] <- x[g*D..(g+1)*D]";
    assert!(append(quote!(&mut State), task).is_ok());
    assert!(append(quote!(&State), task).expect_err("not mut")[0].starts_with("AMK0907"));
    assert!(append(quote!(&mut State), "x[..] <- cache[.., .., ..]").expect_err("sides")[0].starts_with("AMK0907"));
}

#[test]
fn a_name_has_one_meaning() {
    let id = |shape: &str, tile: &str, task: &str| {
        let f = quote!(
            fn d(x: &Tensor, pos: Pos) -> Tensor {}
        );
        first(quote!(op = "d", shape = #shape, tile = #tile, task = #task), f)
    };
    let n = "x: [N] -> y: [N]";
    for (shape, tile, task, headline) in [
        ("x: [pos] -> y: [pos]", "", "y[..] <- x[0..pos]", "`pos` is the position, not a dim"),
        (n, "pos = 4", "n in 0..N step pos: y[n..n+pos] <- x[..]", "`pos` is the position, not a tile"),
        (n, "T = 4", "pos in 0..N step T: y[pos..pos+T] <- x[..]", "`pos` is the position, not a grid variable"),
        ("x: [N] -> pos: [N]", "", "pos[..] <- x[..]", "`pos` is the position, not a result"),
        ("x: [step] -> y: [step]", "", "y[..] <- x[..]", "`step` is a word of the task clause, not a dim"),
        (n, "T = 4", "N in 0..N step T: y[N..N+T] <- x[..]", "`N` is both a dim and a grid variable"),
        (n, "N = 4", "n in 0..N step N: y[n..n+N] <- x[..]", "`N` is both a dim and a tile"),
        (n, "n = 4", "n in 0..N step n: y[n..n+n] <- x[..]", "`n` is both a tile and a grid variable"),
    ] {
        let message = id(shape, tile, task);
        assert!(message.starts_with(&format!("AMK0903: {headline}\n")), "{message}");
    }
    let f = quote!(
        fn d(pos: &Tensor) -> Tensor {}
    );
    let message = first(quote!(op = "d", shape = "pos: [N] -> y: [N]", task = "y[..] <- pos[..]"), f);
    assert!(message.starts_with("AMK0903: `pos` is the position, not an operand\n"), "{message}");
}

#[test]
fn a_token_is_one_element() {
    for shape in ["x: [N], t: [1] -> n: [N]", "x: [N], t: [M] -> n: [1]", "x: [N], t: [1, 1] -> n: [1]"] {
        let task = "n[..] <- x[..], t[..]";
        let message = first(
            quote!(op = "next", shape = #shape, task = #task),
            quote!(
                fn next(x: &Tensor, t: Token) -> Token {}
            ),
        );
        assert!(message.starts_with("AMK0904: `") && message.contains("` is one `Token`"), "{message}");
    }
}

#[test]
fn a_clause_is_repeated_in_part() {
    let double = quote!(
        fn d(x: &Tensor) -> Tensor {}
    );
    let task = format!("y[..] <- x[{}N]", "0+".repeat(300));
    let long = first(quote!(op = "d", shape = "x: [N] -> y: [N]", task = #task), double.clone());
    let headline = format!("AMK0903: more than 256 operations and parentheses at `{}..`, byte ", "0+".repeat(20));
    assert!(long.starts_with(&headline), "{long}");
    let end = first(quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[..]"), double);
    assert!(end.starts_with("AMK0903: expected `<-` at the end of this clause\n"), "{end}");
}

#[test]
fn what_disagrees_is_reported() {
    let f = quote!(
        fn double(x: &Tensor) -> Tensor {
            todo!()
        }
    );
    let cases = [
        ("AMK0902", quote!(op = "d", shape = "x: [N] -> y: [N]")),
        ("AMK0902", quote!(op = "d", shap = "x: [N] -> y: [N]", task = "y[..] <- x[..]")),
        ("AMK0902", quote!(op = "", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")),
        ("AMK0902", quote!(op = "a b\n", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")),
        ("AMK0903", quote!(op = "d", shape = "x: [N -> y: [N]", task = "y[..] <- x[..]")),
        (
            "AMK0903",
            quote!(op = "d", shape = "x: [N] -> y: [N]", tile = "T = 0", task = "n in 0..N step T: y[n..n+T] <- x[..]"),
        ),
        (
            "AMK0904",
            quote!(
                op = "d",
                shape = "x: [N] -> y: [N]",
                tile = "T = 4, U = 8",
                task = "n in 0..N step T: y[n..n+T] <- x[..]"
            ),
        ),
        ("AMK0904", quote!(op = "d", shape = "z: [N] -> y: [N]", task = "y[..] <- x[..]")),
        ("AMK0904", quote!(op = "d", shape = "x: [N]", task = "y[..] <- x[..]")),
        ("AMK0904", quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[..] <- x[.., ..]")),
        ("AMK0906", quote!(op = "d", shape = "x: [N] -> y: [M]", task = "y[..] <- x[..]")),
        ("AMK0906", quote!(op = "d", shape = "x: [N] -> y: [N]", task = "n in 0..N step T: y[n..n+T] <- x[..]")),
        ("AMK0906", quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[0..pos] <- x[..]")),
    ];
    for (code, attribute) in cases {
        let message = first(attribute, f.clone());
        assert!(message.starts_with(code) && message.contains("\nhelp: "), "{code}: {message}");
    }
    let good = quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]");
    for (code, function) in [
        (
            "AMK0901",
            quote!(
                fn d<T>(x: &Tensor) -> Tensor {}
            ),
        ),
        (
            "AMK0901",
            quote!(
                async fn d(x: &Tensor) -> Tensor {}
            ),
        ),
        (
            "AMK0901",
            quote!(
                unsafe fn d(x: &Tensor) -> Tensor {}
            ),
        ),
        (
            "AMK0904",
            quote!(
                fn d(x: Tensor) -> Tensor {}
            ),
        ),
        (
            "AMK0904",
            quote!(
                fn d(x: &Tensor) -> f32 {}
            ),
        ),
        (
            "AMK0904",
            quote!(
                fn d(x: &Tensor, pos: Pos, later: Pos) -> Tensor {}
            ),
        ),
        (
            "AMK0905",
            quote!(
                fn concat(x: &Tensor) -> Tensor {}
            ),
        ),
    ] {
        assert!(first(good.clone(), function).starts_with(code), "{code}");
    }
}
