//! Snapshots of the macros' expansions.
//! `INSTA_UPDATE=always cargo test -p amk-macros-core --test expansion` rewrites them.

mod record;

use amk_macros_core::{Origin, instruction, megakernel, stage2, weight_layout};
use proc_macro2::TokenStream;
use quote::quote;
use record::record;

fn origin(line: usize) -> Origin {
    Origin { crate_name: "model".into(), file: "model/src/lib.rs".into(), line, column: 1 }
}

fn pretty(tokens: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(tokens).expect("an expansion is a list of items"))
}

/// A count distinguishes the companions of one location, so each snapshot has a separate location.
fn linear(line: usize) -> TokenStream {
    instruction(
        &origin(line),
        quote!(
            op = "linear",
            shape = "x: [K], w: [N, K] -> y: [N]",
            tile = "T = 16",
            task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]",
            cuda = "linear.cuh"
        ),
        quote! {
            /// `y = w x`
            pub fn linear(x: &Tensor, w: &Weight) -> Tensor {
                x.data().iter().collect()
            }
        },
    )
}

fn mlp(line: usize) -> TokenStream {
    weight_layout(
        &origin(line),
        quote! {
            pub struct Mlp {
                #[weight("mlp.{l}.up", or = "mlp.up", [FFN, HIDDEN])]
                pub up: Weight,
                #[param]
                pub eps: f32,
            }
        },
    )
}

/// The call of the second stage by the last companion.
fn end(records: &[(&str, &str, String)], attribute: TokenStream, function: TokenStream) -> TokenStream {
    let records = records.iter().map(|(key, kind, content)| {
        let kind = quote::format_ident!("{kind}");
        quote!({ #key #kind #content })
    });
    quote!(@amk1 "$end" { #(#records)* } {} { [#attribute] #function })
}

fn kernel() -> (TokenStream, TokenStream) {
    let attribute = quote!(
        dims(HIDDEN, FFN),
        inputs(x: [HIDDEN]),
        instances(tiny(HIDDEN = 32, FFN = 64)),
        schedule(workers = 2, tile(linear = 32))
    );
    let function = quote! {
        /// The MLP's first half.
        pub fn up(x: &Tensor, w: &Mlp) -> Tensor {
            #[allow(clippy::let_and_return)]
            let y = linear(x, &w.up);
            y
        }
    };
    (attribute, function)
}

fn kernel_records() -> Vec<(&'static str, &'static str, String)> {
    vec![
        ("Tensor", "input", "Tensor".to_owned()),
        ("Mlp", "layout", record(&mlp(20)).expect("a record")),
        ("linear", "instruction", record(&linear(1)).expect("a record")),
    ]
}

#[test]
fn an_instruction_is_the_function_a_companion_and_an_entry() {
    insta::assert_snapshot!(pretty(linear(2)));
}

#[test]
fn a_layout_is_an_implementation_and_a_companion() {
    insta::assert_snapshot!(pretty(mlp(21)));
}

#[test]
fn a_megakernel_is_the_function_and_a_chain() {
    let (attribute, function) = kernel();
    insta::assert_snapshot!(pretty(megakernel(attribute, function)));
}

#[test]
fn the_end_of_the_chain_is_the_graph_as_text() {
    let (attribute, function) = kernel();
    insta::assert_snapshot!(pretty(stage2(end(&kernel_records(), attribute, function))));
}

#[test]
fn the_function_stays_where_something_is_wrong() {
    let wrong = instruction(
        &origin(1),
        quote!(op = "x"),
        quote!(
            pub fn f(x: &Tensor) -> Tensor {
                x.clone()
            }
        ),
    );
    let text = pretty(wrong);
    assert!(text.contains("pub fn f") && text.contains("AMK0902") && text.contains("pub use __amk_f"), "{text}");
    let wrong = megakernel(
        quote!(),
        quote!(
            pub async fn f(x: &Tensor) -> Tensor {
                x
            }
        ),
    );
    let text = pretty(wrong);
    assert!(text.contains("pub async fn f") && text.contains("AMK0901") && !text.contains("@amk1"), "{text}");
}

#[test]
fn what_stands_on_an_item_with_errors_says_nothing_more() {
    let mut records = kernel_records();
    records[2] = ("linear", "error", String::new());
    let (attribute, function) = kernel();
    assert_eq!(stage2(end(&records, attribute, function)).to_string(), "");
}

#[test]
fn expansion_is_the_same_each_time() {
    let (attribute, function) = kernel();
    let run = || stage2(end(&kernel_records(), attribute.clone(), function.clone())).to_string();
    assert_eq!(run(), run());
}

#[test]
fn the_crate_is_named_by_the_attribute() {
    let (_, function) = kernel();
    let text = megakernel(quote!(dims(HIDDEN), crate = my::amk), function).to_string();
    assert!(text.contains("my :: amk :: __private :: stage2"), "{text}");
    let attribute = quote!(op = "id", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]", crate = my::amk);
    let text = instruction(
        &origin(1),
        attribute,
        quote!(
            fn id(x: &Tensor) -> Tensor {}
        ),
    )
    .to_string();
    assert!(text.contains("my :: amk :: registry :: Entry"), "{text}");
}

const ATTRIBUTE: &str = "dims ( HIDDEN , FFN ) , where ( FFN % HIDDEN , FFN == 2 * HIDDEN ) , \
    inputs ( x : [ HIDDEN ] ) , \
    instances ( tiny ( HIDDEN = 32 , FFN = 64 , w . tied = true , schedule ( workers = 2 , limits \
    ( memory = 1 ) ) ) ) , \
    schedule ( workers = 2 , tile ( linear = 32 ) , queue = ticket , fuse ( linear = producer ) ) \
    , events ( e [ FFN / 32 ] )";

const FUNCTION: &str = "fn up ( x : & Tensor , w : & Mlp , pos : Pos ) -> Tensor { let mut y = \
    linear ( x , & w . up ) ; \
    for ( l , ( a , _ ) ) in w . layers . iter ( ) . zip ( & w . layers ) . enumerate ( ) { \
    # [ wait ( e [ l ] == 2 ) ] y = if ! w . tied { linear ( & y , & a . up ) } else { y } ; } \
    let ( a , b ) = ( & y , 1.5 ) ; linear ( a , & w . layers [ 0 ] . up ) }";

/// Editors expand unfinished text: no text with a word missing, doubled or replaced makes the macro
/// panic.
#[test]
fn unfinished_text_is_no_panic() {
    let edits = |text: &str| -> Vec<String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let edit = |at: usize, with: &[&str]| [&words[..at], with, &words[at + 1..]].concat().join(" ");
        let each = (0..words.len())
            .flat_map(|at| [edit(at, &[]), edit(at, &[words[at], words[at]]), edit(at, &["?"]), edit(at, &["0"])]);
        each.collect()
    };
    let mut run = 0;
    let pairs = edits(ATTRIBUTE).into_iter().map(|attribute| (attribute, FUNCTION.to_owned()));
    for (attribute, function) in
        pairs.chain(edits(FUNCTION).into_iter().map(|function| (ATTRIBUTE.to_owned(), function)))
    {
        let (Ok(attribute), Ok(function)) = (attribute.parse::<TokenStream>(), function.parse::<TokenStream>()) else {
            continue;
        };
        megakernel(attribute.clone(), function.clone());
        stage2(end(&kernel_records(), attribute, function));
        run += 1;
    }
    assert!(run > 500, "only {run} edits were text that Rust reads as tokens");
}

#[test]
fn unfinished_clauses_are_no_panic() {
    let clauses = [
        "x: [K], w: [N, K], d: D -> (y: [N], z: [1])",
        "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]",
        "T = 16",
        "Q / D % G",
    ];
    for clause in clauses {
        for cut in clause.char_indices().map(|(at, _)| at) {
            for text in
                [clause[..cut].to_owned(), clause[cut..].to_owned(), format!("{}[{}", &clause[..cut], &clause[cut..])]
            {
                let attribute = quote!(op = "o", shape = #text, tile = #text, task = #text, multiples = #text);
                instruction(
                    &origin(1),
                    attribute,
                    quote!(
                        fn f(x: &Tensor, w: &Weight, d: usize) -> Tensor {}
                    ),
                );
                let good = "x: [K], w: [N, K], d: D -> y: [N]";
                let attribute = quote!(op = "o", shape = #good, tile = #text, task = #text, multiples = #text);
                instruction(
                    &origin(1),
                    attribute,
                    quote!(
                        fn f(x: &Tensor, w: &Weight, d: usize) -> Tensor {}
                    ),
                );
            }
        }
    }
}
