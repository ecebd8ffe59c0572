//! The forms a body may have, as the graph's text, and those it may not, as messages.

use super::*;
use crate::expand::layout::layout;
use crate::origin::Origin;
use crate::parse;
use proc_macro2::TokenStream;
use quote::quote;

fn origin() -> Origin {
    Origin { crate_name: "ops".into(), file: "ops/src/lib.rs".into(), line: 1, column: 1 }
}

fn instruction(attribute: TokenStream, function: TokenStream) -> (String, Record) {
    let function: ItemFn = syn::parse2(function).expect("a function");
    let mut diagnostics = Diagnostics::default();
    let parsed = parse::instruction::parse(&origin(), attribute, &function, &mut diagnostics);
    let parsed = parsed.unwrap_or_else(|| panic!("{:?}", diagnostics.messages()));
    (function.sig.ident.to_string(), Record::Instruction(parsed.signature))
}

fn add_layout(records: &mut BTreeMap<String, Record>, input: syn::DeriveInput) {
    let mut diagnostics = Diagnostics::default();
    let item = parse::layout::parse(&input, &mut diagnostics).expect("a layout");
    let found = layout(&origin(), &input, &item, records, &mut diagnostics).expect("a record");
    records.insert(input.ident.to_string(), Record::Layout(found));
}

fn records() -> BTreeMap<String, Record> {
    let mut records = BTreeMap::from([
        instruction(
            quote!(
                op = "gemv",
                shape = "x: [K], w: [N, K] -> y: [N]",
                tile = "T = 4",
                task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]"
            ),
            quote!(
                fn linear(x: &Tensor, w: &Weight) -> Tensor {}
            ),
        ),
        instruction(
            quote!(op = "add", shape = "a: [N], b: [N] -> y: [N]", task = "y[..] <- a[..], b[..]"),
            quote!(
                fn add(a: &Tensor, b: &Tensor) -> Tensor {}
            ),
        ),
        instruction(
            quote!(op = "split", shape = "x: [N] -> (a: [N], t: [1])", task = "a[..], t[..] <- x[..]"),
            quote!(
                fn split(x: &Tensor, eps: f32) -> (Tensor, Token) {}
            ),
        ),
        instruction(
            quote!(op = "append", shape = "s: [C, N], x: [N], n: N", task = "s[pos..pos+1, ..] <- x[..]"),
            quote!(
                fn append(s: &mut State, x: &Tensor, n: usize, pos: Pos) {}
            ),
        ),
        ("Token".into(), Record::Input("Token".into())),
        ("Pos".into(), Record::Input("Pos".into())),
        ("Tensor".into(), Record::Input("Tensor".into())),
        ("Broken".into(), Record::Error),
    ]);
    add_layout(
        &mut records,
        syn::parse_quote! { struct Layer { #[weight("l.{l}", [H, H])] w: Weight, #[state([C, H])] s: State } },
    );
    add_layout(
        &mut records,
        syn::parse_quote! {
            struct Model {
                #[list(L)] layers: Vec<Layer>,
                #[layout] last: Layer,
                #[param] eps: f32,
                #[dim(H)] h: usize,
                #[flag] tied: bool,
            }
        },
    );
    records
}

fn lowered(attribute: TokenStream, body: TokenStream) -> Result<LoweredFunction, Vec<String>> {
    let function: ItemFn =
        syn::parse_quote! { fn f(x: &Tensor, pos: Pos, w: &Model, kv: &mut Model) -> Tensor { #body } };
    let mut diagnostics = Diagnostics::default();
    let attribute = quote!(dims(H, C, L, H2), inputs(x: [H]), events(e[L]), #attribute);
    let attribute = parse::kernel::parse(attribute, &function.sig.ident, &mut diagnostics).expect("an attribute");
    lower(&function, &attribute, &records(), &mut diagnostics).ok_or_else(|| diagnostics.messages())
}

/// The statements of the graph's text.
fn graph(body: TokenStream) -> Vec<String> {
    let mut lowered = lowered(quote!(), body).unwrap_or_else(|messages| panic!("{messages:#?}"));
    assert_eq!(amk_ir::shapes::check(&mut lowered.graph), []);
    let text = lowered.graph.to_string();
    text.lines().skip_while(|line| !line.starts_with("fn")).skip(1).map(|line| line.trim().to_owned()).collect()
}

/// The code of each finding.
fn codes(body: TokenStream) -> Vec<String> {
    let messages = lowered(quote!(), body).err().unwrap_or_default();
    assert!(messages.iter().all(|message| message.contains("\nhelp: ")), "{messages:#?}");
    messages.iter().map(|message| message[..7].to_owned()).collect()
}

#[test]
fn arguments_come_before_calls_and_names_stay_apart() {
    let lines = graph(quote! {
        let h = add(x, &linear(x, &w.last.w));
        let h = { let y = linear(&h, &w.last.w); (add(&y, &h)) };
        h
    });
    assert_eq!(
        lines,
        [
            "linear.0: f32[H] = linear(x, w.last.w)",
            "h: f32[H] = add(x, linear.0)",
            "y: f32[H] = linear(h, w.last.w)",
            "h.2: f32[H] = add(y, h)",
            "return h.2",
            "}"
        ]
    );
}

/// An accepted graph is read back, from JSON by the annotated crate and from text.
#[test]
fn loops_and_branches_nest_in_bounds() {
    let loops = |depth: usize| {
        let nest = |inner, at| {
            let index = quote::format_ident!("i{at}");
            quote!(for #index in 0..L { #inner })
        };
        let nest = (0..depth).fold(quote!(y = add(&y, x);), nest);
        quote!(let mut y = add(x, x); #nest y)
    };
    let branches = |depth: usize| {
        let chain = (0..depth).fold(
            quote!({
                y = add(&y, x);
            }),
            |otherwise, _| quote!(if w.tied {} else #otherwise),
        );
        quote!(let mut y = add(x, x); #chain y)
    };
    for body in [loops(DEEPEST), branches(DEEPEST)] {
        let graph = lowered(quote!(), body).unwrap_or_else(|messages| panic!("{messages:#?}")).graph;
        let json = serde_json::to_string(&graph).expect("JSON");
        assert!(serde_json::from_str::<Graph>(&json).expect("it should be read back") == graph);
        assert!(amk_ir::text::parse_graph(&graph.to_string()).expect("it should be read back") == graph);
    }
    for body in [loops(DEEPEST + 1), branches(DEEPEST + 1)] {
        assert_eq!(codes(body), ["AMK0910"]);
    }
}

#[test]
fn an_empty_statement_is_nothing() {
    let lines = graph(quote! { ;; let h = add(x, x);; h });
    assert_eq!(lines[1..], ["return h", "}"]);
}

#[test]
fn tuples_bind_and_results_are_several() {
    let lines = graph(quote! {
        let (a, (b, _)) = (add(x, x), split(x, 1e-5));
        let both = (add(&a, &b), w.eps);
        let (c, t) = split(&both.0, both.1);
        (c, t)
    });
    assert_eq!(lines[1], "b: f32[H], split.1: u32[1] = split(x, 1e-5)");
    assert_eq!(lines[3], "c: f32[H], t: u32[1] = split(both.0, w.eps)");
    assert_eq!(lines[4], "return c, t");
}

#[test]
fn what_is_moved_keeps_its_value() {
    let lines = graph(quote! {
        let mut y = add(x, x);
        let pair = (y, x);
        y = add(pair.1, x);
        add(&pair.0, &y)
    });
    assert_eq!(lines[1..4], ["pair.0 = y", "pair.1 = x", "y: f32[H] = add(pair.1, x)"]);
    assert!(lines[4].ends_with("add(pair.0, y)"), "{lines:?}");
}

#[test]
fn a_reference_is_a_variable_of_its_own() {
    let lines = graph(quote! {
        let t = add(x, x);
        let u = add(&t, x);
        let mut h = &t;
        let k = &u;
        if w.tied { h = k; }
        h = &u;
        add(h, &t)
    });
    assert_eq!(lines[2..7], ["h = t", "k = u", "if w.tied {", "h = k", "}"]);
    assert_eq!(lines[7..9], ["h = u", "add.2: f32[H] = add(h, t)"]);
}

#[test]
fn what_is_copied_out_of_a_reference_is_assigned_alone() {
    let lines = graph(quote! {
        let (_, token) = split(x, 1e-5);
        let r = &token;
        let mut other = *r;
        let (y, next) = split(x, 1e-5);
        other = next;
        y
    });
    assert_eq!(lines[1..3], ["r = token", "other = r"]);
    assert_eq!(lines[4], "other = next");
}

#[test]
fn an_argument_is_read_before_a_later_one_assigns() {
    let lines = graph(quote! {
        let t = add(x, x);
        let mut h = x;
        add(h, { h = &t; h })
    });
    assert_eq!(lines[2..5], ["kept = h", "h = t", "add.1: f32[H] = add(kept, h)"]);
}

#[test]
fn branches_give_tuples_element_by_element() {
    let lines = graph(quote! {
        let (a, b) = (add(x, x), linear(x, &w.last.w));
        let p = if w.tied { (add(&a, x), &b) } else { let both = (&b, &a); both };
        if !w.tied { add(&p.0, p.1) } else { linear(p.0, &w.last.w) }
    });
    let expected = [
        "if w.tied {",
        "p.0: f32[H] = add(a, x)",
        "p.1 = b",
        "} else {",
        "both.0 = b",
        "both.1 = a",
        "p.0 = both.0",
        "p.1 = both.1",
        "}",
    ];
    assert_eq!(lines[2..11], expected);
    let results = graph(quote!(let a = add(x, x); if w.tied { split(&a, 1e-5) } else { split(x, 1e-5) }));
    assert_eq!(results[results.len() - 2], "return if.0, if.1");
}

#[test]
fn a_function_without_a_result_may_end_in_a_statement() {
    let body = quote!(
        append(&mut kv.last.s, x, H, pos);
        if w.tied {
            append(&mut kv.last.s, x, H, pos);
        } else {
            append(&mut kv.last.s, x, H, pos);
        }
    );
    let function: ItemFn = syn::parse_quote! { fn f(x: &Tensor, pos: Pos, w: &Model, kv: &mut Model) { #body } };
    let mut diagnostics = Diagnostics::default();
    let attribute = quote!(dims(H, C, L), inputs(x: [H]));
    let attribute = parse::kernel::parse(attribute, &function.sig.ident, &mut diagnostics).expect("an attribute");
    let lowered = lower(&function, &attribute, &records(), &mut diagnostics).expect("a graph");
    assert!(lowered.graph.results.is_empty() && lowered.graph.values.len() == 1, "{}", lowered.graph);
}

#[test]
fn every_head_of_a_loop_becomes_a_range() {
    let heads = [
        quote!(for l in 0..L {
            y = linear(&y, &w.layers[l].w);
        }),
        quote!(for l in 0..w.layers.len() {
            let lw = &w.layers[l];
            y = linear(&y, &lw.w);
        }),
        quote!(for layer in w.layers.iter() {
            y = linear(&y, &layer.w);
        }),
        quote!(for layer in &w.layers {
            y = linear(&y, &layer.w);
        }),
        quote!(for (l, layer) in w.layers.iter().enumerate() {
            y = linear(&y, &layer.w);
        }),
        quote!(for (layer, _) in w.layers.iter().zip(&mut kv.layers) {
            y = linear(&y, &layer.w);
        }),
        quote!(for (_, (layer, cache)) in w.layers.iter().zip(kv.layers.iter_mut()).enumerate() {
            y = linear(&y, &layer.w);
        }),
    ];
    for head in heads {
        let lines = graph(quote!(let mut y = add(x, x); #head y));
        assert_eq!(lines[1..4], ["for l in 0..L {", "y: f32[H] = linear(y, w.layers[l].w)", "}"], "{head}");
    }
}

#[test]
fn nested_loops_have_indices_of_their_own() {
    let lines = graph(quote! {
        let mut y = add(x, x);
        for layer in &w.layers { for l in 0..L { y = linear(&y, &w.layers[l + 1].w); y = linear(&y, &layer.w); } }
        y
    });
    assert_eq!(
        lines[2..5],
        ["for l_2 in 0..L {", "y: f32[H] = linear(y, w.layers[l_2 + 1].w)", "y: f32[H] = linear(y, w.layers[l].w)"]
    );
}

#[test]
fn flags_choose_statements_and_values() {
    let lines = graph(quote! {
        let mut y = if !w.tied { linear(x, &w.last.w) } else { let z = add(x, x); z };
        if w.tied { y = add(&y, x); }
        y
    });
    let expected = [
        "if w.tied {",
        "z: f32[H] = add(x, x) site 1",
        "y = z",
        "} else {",
        "y: f32[H] = linear(x, w.last.w) site 0",
        "}",
        "if w.tied {",
        "y: f32[H] = add(y, x) site 3",
        "}",
        "return y",
        "}",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn states_sizes_and_the_position_are_arguments() {
    let lines = graph(quote! {
        append(&mut kv.last.s, x, w.h, pos);
        for (i, layer) in kv.layers.iter_mut().enumerate() { append(&mut layer.s, x, H, pos); }
        add(x, x)
    });
    assert_eq!(lines[0], "append(kv.last.s, x, H, pos)");
    assert_eq!(lines[1..3], ["for i in 0..L {", "append(kv.layers[i].s, x, H, pos)"]);
}

#[test]
fn signals_and_waits_belong_to_the_outer_call() {
    let lines = graph(quote! {
        let mut y = add(x, x);
        for l in 0..L {
            #[signal(e[l])]
            let h = linear(&add(&y, x), &w.last.w);
            #[wait(e[l] == 2 * H)]
            y = add(&y, &h);
        }
        y
    });
    assert_eq!(lines[3], "h: f32[H] = linear(add.1, w.last.w) signal e[l]");
    assert_eq!(lines[4], "y: f32[H] = add(y, h) wait e[l] >= 2 * H");
}

#[test]
fn equalities_are_put_in_where_the_types_have_the_dim() {
    let lowered =
        lowered(quote!(where(H2 == 2 * H)), quote!(for _ in 0..H2 { append(&mut kv.last.s, x, H, pos); } add(x, x)));
    let text = lowered.unwrap_or_else(|messages| panic!("{messages:#?}")).graph.to_string();
    assert!(text.contains("in 0..2 * H {"), "{text}");
}

#[test]
fn an_instruction_under_two_names_has_one_signature() {
    let function: ItemFn = syn::parse_quote! { fn f(x: &Tensor) -> Tensor { lin(&ops::add(x, x), x) } };
    let mut records = records();
    for (from, to) in [("add", "lin"), ("add", "ops::add")] {
        let Some(Record::Instruction(signature)) = records.get(from) else { panic!("no record") };
        let signature = signature.clone();
        records.insert(to.into(), Record::Instruction(signature));
    }
    let mut diagnostics = Diagnostics::default();
    let attribute = parse::kernel::parse(quote!(dims(H), inputs(x: [H])), &function.sig.ident, &mut diagnostics);
    let lowered = lower(&function, &attribute.expect("an attribute"), &records, &mut diagnostics);
    assert_eq!(lowered.expect("a graph").graph.signatures.len(), 1);
}

/// The messages for a function with these parameters, body and arguments.
fn messages(attribute: TokenStream, function: TokenStream, records: &BTreeMap<String, Record>) -> Vec<String> {
    let function: ItemFn = syn::parse2(function).expect("a function");
    let mut diagnostics = Diagnostics::default();
    if let Some(attribute) = parse::kernel::parse(attribute, &function.sig.ident, &mut diagnostics) {
        lower(&function, &attribute, records, &mut diagnostics);
    }
    diagnostics.messages()
}

#[test]
fn two_instructions_of_one_name_are_refused() {
    let mut records = records();
    let (_, other) = instruction(
        quote!(op = "other", shape = "a: [N], b: [N] -> y: [N]", task = "y[..] <- b[..], a[..]", multiples = "N % 2"),
        quote!(
            fn add(a: &Tensor, b: &Tensor) -> Tensor {}
        ),
    );
    records.insert("slow::add".into(), other);
    let function = quote!(
        fn f(x: &Tensor) -> Tensor {
            slow::add(&add(x, x), x)
        }
    );
    let messages = messages(quote!(dims(H), inputs(x: [H])), function, &records);
    assert_eq!(messages.len(), 1, "{messages:#?}");
    assert!(messages[0].starts_with("AMK0905: two instructions are `ops::add`"), "{messages:#?}");
}

#[test]
fn a_callee_may_be_in_a_group() {
    let add = proc_macro2::Group::new(proc_macro2::Delimiter::None, quote!(add));
    let lines = graph(quote!((add)(x, &#add(x, x))));
    assert_eq!(lines[1], "add.1: f32[H] = add(x, add.0)");
}

#[test]
fn an_index_is_not_named_like_a_tile() {
    let lines = graph(quote! {
        let mut y = add(x, x);
        for (n, layer) in w.layers.iter().enumerate() {
            #[signal(e[n])]
            let z = linear(&y, &layer.w);
            y = z;
        }
        y
    });
    assert_eq!(lines[1..3], ["for n_2 in 0..L {", "z: f32[H] = linear(y, w.layers[n_2].w) signal e[n_2]"]);
}

#[test]
fn fields_of_instances_are_looked_up() {
    let cases = [
        ("w.tied = true, w.eps = 1e-5", None),
        ("w.layers[1].missing = true", Some("`Layer` has no field `missing`")),
        ("w.layers.s = true", Some("`layers` is a `Vec`")),
        ("w.layers[2].s = true", Some("`layers` has 2 elements")),
        ("w.last[0].s = true", Some("`last` is not a `Vec`")),
        ("w.teid = true", Some("`Model` has no field `teid`")),
        ("ww.tied = true", Some("`ww` is not a parameter")),
        ("x.tied = true", Some("`x` is not a parameter")),
        ("w.eps = true", Some("a number is neither true nor false")),
        ("w.tied = 2.5", Some("a flag is not a number")),
        ("w.eps.y = 1.0", Some("`y` follows a value that has no fields")),
        ("w.last.w = 1.0", Some("this field is neither")),
        ("w.tied = true, w.tied = false", Some("instance `tiny` gives `w.tied` twice")),
    ];
    for (fields, expected) in cases {
        let fields: TokenStream = fields.parse().expect("tokens");
        let attribute = quote!(dims(H, C, L), inputs(x: [H]), instances(tiny(H = 8, C = 4, L = 2, #fields)));
        let function = quote!(
            fn f(x: &Tensor, w: &Model) -> Tensor {
                add(x, x)
            }
        );
        let messages = messages(attribute, function, &records());
        match expected {
            None => assert!(messages.is_empty(), "{fields}: {messages:#?}"),
            Some(expected) => {
                assert!(messages.len() == 1 && messages[0].contains(expected), "{fields}: {messages:#?}");
            }
        }
    }
}

#[test]
fn raw_names_in_instances_and_schedules_are_those_they_escape() {
    let schedule = quote!(schedule(tile(r#add = 4), fuse(r#add = producer)));
    let instance = quote!(r#in(H = 8, C = 4, L = 2, H2 = 16, r#w.r#tied = true, w.r#eps = 0.5, #schedule));
    let lowered = lowered(quote!(instances(#instance)), quote!(add(x, x))).unwrap_or_else(|found| panic!("{found:#?}"));
    let [instance] = lowered.graph.instances.as_slice() else { panic!("one instance") };
    assert_eq!(instance.name, "in");
    assert_eq!(instance.flags, [("w.tied".to_owned(), true)].into());
    assert_eq!(instance.floats, [("w.eps".to_owned(), 0.5)].into());
    let schedule = instance.schedule.as_ref().expect("its schedule");
    assert!(schedule.tiles.contains_key("add") && schedule.fuse[0].op == "add", "{schedule:?}");
}

#[test]
fn what_is_declared_twice_or_left_out_is_refused() {
    let function = quote!(
        fn f(x: &Tensor) -> Tensor {
            add(x, x)
        }
    );
    let cases = [
        (quote!(dims(H), inputs(x: [H]), events(e, e)), "AMK0930: event tensor `e` is declared twice"),
        (quote!(dims(H, pos), inputs(x: [H])), "AMK0930: `pos` is the position of the step, not a dim"),
        (quote!(dims(H), inputs(x: [H], x: [2 * H])), "AMK0930: input `x` is declared twice"),
        (quote!(dims(H), inputs(x: [H]), schedule(tile(add = 4, add = 8))), "AMK0932: `tile` has `add` twice"),
        (
            quote!(dims(H), inputs(x: [H]), schedule(fuse(add = producer, add = consumers))),
            "AMK0932: `fuse` has `add` twice",
        ),
        (quote!(dims(H), inputs(x: [H]), schedule(ring(haste = 4))), "AMK0932: unknown field `haste` of the ring"),
        (quote!(dims(H), inputs(x: [H]), schedule(exchange = mail)), "AMK0932: `mail` is not a valid value of"),
        (
            quote!(dims(H), inputs(x: [H]), schedule(ring(slots = 4, in_flight = 5))),
            "AMK0932: the ring has 5 slots in flight, and 4 in all",
        ),
        (
            quote!(dims(H), inputs(x: [H]), schedule(tile(add = 4), ring(pace = 9))),
            "AMK0932: no VM honours both `tile` and `ring`",
        ),
        (quote!(dims(H), inputs(x: [H]), schedule(workers = -1)), "AMK0932: `workers` of the schedule is -1\n"),
        (
            quote!(dims(H), inputs(x: [H]), schedule(workers = 4294967296)),
            "AMK0932: `workers` of the schedule is 4294967296",
        ),
        (quote!(dims(H), where(H % 0), inputs(x: [H])), "AMK0933: `H % 0` is neither"),
        (quote!(dims(H), inputs(x: [H]), instances(t(H = 0))), "AMK0931: `H` of instance `t` is not a positive number"),
        (quote!(dims(H), inputs(x: [H]), instances(t())), "AMK0931: instance `t` gives no value for `H`"),
    ];
    for (attribute, message) in cases {
        let twice = messages(attribute, function.clone(), &records());
        assert!(twice.len() == 1 && twice[0].starts_with(message), "{twice:#?}");
    }
    let function = quote!(
        fn f(x: &Tensor, #[cfg(any())] y: &Tensor) -> Tensor {
            add(x, x)
        }
    );
    let left_out = messages(quote!(dims(H), inputs(x: [H], y: [H])), function, &records());
    assert!(left_out.len() == 1 && left_out[0].starts_with("AMK0910"), "{left_out:#?}");
}

#[test]
fn a_step_has_one_token_and_one_position() {
    let function = quote!(
        fn f(x: &Tensor, a: Token, pos: Pos, b: Token, later: Pos) -> Tensor {
            add(x, x)
        }
    );
    let found = messages(quote!(dims(H), inputs(x: [H])), function, &records());
    let headlines: Vec<&str> = found.iter().filter_map(|message| message.lines().next()).collect();
    let second = [
        "AMK0921: `b` is a second `Token`: a step has one token",
        "AMK0921: `later` is a second `Pos`: a step has one position",
    ];
    assert_eq!(headlines, second);
}

#[test]
fn what_a_graph_does_not_have_is_refused() {
    let cases = [
        ("AMK0910", "while true {} add(x, x)"),
        ("AMK0910", "loop {} add(x, x)"),
        ("AMK0910", "return add(x, x);"),
        ("AMK0910", "match x { _ => add(x, x) }"),
        ("AMK0910", "use a::b; add(x, x)"),
        ("AMK0910", "const N: usize = 2; add(x, x)"),
        ("AMK0910", "println!(\"{x:?}\"); add(x, x)"),
        ("AMK0910", "let y; y = add(x, x); y"),
        ("AMK0910", "#[cfg(test)] let y = add(x, x); add(x, x)"),
        ("AMK0910", "w.eps = 1.0; add(x, x)"),
        ("AMK0910", "x; add(x, x)"),
        ("AMK0910", "add(x, x); add(x, x)"),
        ("AMK0910", "if w.tied { add(x, x); } add(x, x)"),
        ("AMK0911", "x.relu()"),
        ("AMK0911", "let f = |a: &Tensor| add(a, a); add(x, x)"),
        ("AMK0911", "add(x, x)?"),
        ("AMK0911", "let n = w.h as f32; add(x, x)"),
        ("AMK0911", "add(x, vec![x])"),
        ("AMK0912", "for l in 1..L { append(&mut kv.last.s, x, H, pos); } add(x, x)"),
        ("AMK0912", "for l in 0..=L { append(&mut kv.last.s, x, H, pos); } add(x, x)"),
        ("AMK0912", "for l in w.layers.iter().rev() {} add(x, x)"),
        ("AMK0912", "for l in w.eps {} add(x, x)"),
        ("AMK0913", "for (a, b) in w.layers.iter().zip(0..H) {} add(x, x)"),
        ("AMK0914", "if w.eps { add(x, x) } else { add(x, x) }"),
        ("AMK0914", "let y = if w.tied { add(x, x) }; add(x, x)"),
        ("AMK0914", "if L == 2 { add(x, x) } else { add(x, x) }"),
        ("AMK0915", "add(x, y)"),
        ("AMK0915", "for l in 0..HEADS {} add(x, x)"),
        ("AMK0916", "linear(x, &w.last.v)"),
        ("AMK0916", "linear(x, &w.layers.w)"),
        ("AMK0917", "x + x"),
        ("AMK0917", "let y = split(x, w.eps * 2.0); add(x, x)"),
        ("AMK0918", "add(x, w)"),
        ("AMK0918", "let eps = if w.tied { 1e-5 } else { add(x, x) }; add(x, x)"),
        ("AMK0919", "let (a, b) = add(x, x); add(x, x)"),
        ("AMK0919", "let Some(a) = add(x, x); add(x, x)"),
        ("AMK0922", "w.eps"),
        ("AMK0934", "#[signal(f[0])] let y = add(x, x); add(x, x)"),
        ("AMK0934", "#[wait(e[0])] let y = add(x, x); add(x, x)"),
        ("AMK0934", "#[signal(e[0])] let y = x; add(x, x)"),
        ("AMK0934", "add(x, #[wait(e[0] == 1)] &add(x, x))"),
        ("AMK0934", "let y = #[signal(e[0])] add(x, x); y"),
        ("AMK0934", "#[signal(e[0])] for l in 0..L { append(&mut kv.last.s, x, H, pos); } add(x, x)"),
        ("AMK0910", "add(x, #[cfg(test)] x)"),
        ("AMK0910", "#[cfg(test)] for l in 0..L { append(&mut kv.last.s, x, H, pos); } add(x, x)"),
        ("AMK0911", "<Ops as Trait>::add(x, x)"),
        ("AMK0911", "let g = |a: &Tensor| plain(a); g(x)"),
        ("AMK0911", "let add = add(x, x); add(&add, x)"),
        ("AMK0911", "x(x)"),
        ("AMK0911", "f(x, pos, w, kv)"),
        ("AMK0911", "Some(add(x, x))"),
        ("AMK0911", "Layer(add(x, x))"),
        ("AMK0911", "Tensor::zeros(x)"),
        ("AMK0923", "plain(x)"),
    ];
    for (code, body) in cases {
        assert_eq!(codes(body.parse().expect("tokens")), [code], "{body}");
    }
}

#[test]
fn a_constant_where_a_number_is_due_is_no_dim() {
    for body in ["split(x, EPS)", "split(x, f32::NAN)", "split(x, &crate::EPS)"] {
        let messages = lowered(quote!(), body.parse().expect("tokens")).err().expect(body);
        assert!(messages.len() == 1 && messages[0].starts_with("AMK0915"), "{messages:#?}");
        assert!(messages[0].ends_with("write the number, as in `1e-5`, or pass a `#[param]` of a layout"));
    }
}

#[test]
fn every_headline_is_more_than_the_name_of_a_construct() {
    let bodies = ["return x;", "match x {}", "let f = || x; x", "w.h as f32", "[x]", "unsafe { x }", "'a: { x }", "x?"];
    for body in bodies {
        let messages = lowered(quote!(), body.parse().expect("tokens")).err().expect(body);
        let headline = messages[0].lines().next().unwrap_or_default();
        assert!(headline.split_whitespace().count() > 4, "{headline}");
    }
}

#[test]
fn a_misspelt_signal_or_wait_is_corrected() {
    for (body, meant) in [
        ("#[signals(e[0])] let y = add(x, x); y", "signal"),
        ("#[waits(e[0] == 1)] let y = add(x, x); y", "wait"),
        ("#[Signal(e[0])] let y = add(x, x); y", "signal"),
    ] {
        let messages = lowered(quote!(), body.parse().expect("tokens")).err().expect(body);
        let expected = format!("did you mean `#[{meant}(..)]`?");
        assert!(messages.len() == 1 && messages[0].starts_with("AMK0934"), "{messages:#?}");
        assert!(messages[0].ends_with(&expected), "{messages:#?}");
    }
}

#[test]
fn equalities_of_equalities_stay_short() {
    let dims: Vec<proc_macro2::Ident> = (0..40).map(|n| quote::format_ident!("D{n}")).collect();
    let doubled = dims.windows(2).map(|pair| {
        let (less, more) = (&pair[0], &pair[1]);
        quote!(#more == #less + #less)
    });
    let doubled: Vec<TokenStream> = doubled.rev().collect();
    let attribute = quote!(dims(H, #(#dims),*), inputs(x: [H]), where(#(#doubled),*));
    let function = quote!(
        fn f(x: &Tensor) -> Tensor {
            add(x, x)
        }
    );
    let messages = messages(attribute, function, &records());
    assert!(messages.len() == 1 && messages[0].starts_with("AMK0933: `D39` has over 4096 names"), "{messages:#?}");
}

#[test]
fn layouts_of_layouts_stay_small() {
    let mut records = BTreeMap::new();
    add_layout(&mut records, syn::parse_quote! { struct L0 { #[param] a: f32 } });
    let refused = (1..40u32).find_map(|n| {
        let (name, inner) = (quote::format_ident!("L{n}"), quote::format_ident!("L{}", n - 1));
        let input: syn::DeriveInput = syn::parse_quote! { struct #name { #[layout] a: #inner, #[layout] b: #inner } };
        let mut diagnostics = Diagnostics::default();
        let item = parse::layout::parse(&input, &mut diagnostics).expect("a layout");
        let found = layout(&origin(), &input, &item, &records, &mut diagnostics);
        found.map(|found| records.insert(name.to_string(), Record::Layout(found)));
        diagnostics.messages().pop()
    });
    let message = refused.expect("a message");
    assert!(message.starts_with("AMK0909: `L15` has 98302 fields"), "{message}");
}

#[test]
fn one_mistake_is_one_message() {
    let body = quote! {
        let a = unknown_name;
        let b = add(&a, &linear(&a, &w.last.w));
        let mut y = add(&b, x);
        for l in &w.missing { y = linear(&y, &l.w); }
        y
    };
    assert_eq!(codes(body), ["AMK0915", "AMK0916"]);
}
