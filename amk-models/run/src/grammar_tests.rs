//! Texts of grammars, over a vocabulary of single characters and two special tokens.

use super::*;
use crate::sampler::{Sampler, SamplerConfig, SamplerError};
use std::path::Path;

/// The token that ends a text.
const END: u32 = 95;
/// Another special token.
const TURN: u32 = 96;

fn grammars() -> Grammars {
    let space = |byte: u8| if byte == b' ' { '\u{120}' } else { char::from(byte) };
    let vocab: serde_json::Map<String, Value> =
        (b' '..=b'~').zip(0..).map(|(byte, id)| (space(byte).to_string(), Value::from(id))).collect();
    let added = |id: u32, content: &str| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    };
    let json = json!({
        "version": "1.0", "added_tokens": [added(END, "<end>"), added(TURN, "<turn>")],
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    });
    let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string().as_bytes()).unwrap();
    Grammars::new(tokenizer, vec![END])
}

/// Draws a text by a seed from logits that are equal but for the `likely` token's.
fn draw(language: &Language, seed: u64, likely: u32) -> Result<(String, bool), SamplerError> {
    let grammars = grammars();
    let grammar = grammars.compile(language)?;
    let config = SamplerConfig { temperature: 1.0, seed, ..SamplerConfig::default() };
    let mut sampler = Sampler::new(config)?.with_grammar(Some(grammar));
    let mut logits = vec![0.0; 100];
    logits[likely as usize] = 50.0;
    let mut history = Vec::new();
    while !sampler.ended() && history.len() < 300 {
        history.push(sampler.sample(&logits, &history)?);
    }
    Ok((grammars.tokenizer.decode(&history).unwrap(), sampler.ended()))
}

fn schema(schema: Value, strict: bool) -> Language {
    Language::JsonSchema { schema, strict }
}

#[test]
fn json_of_a_schema_fits_it() {
    let language = schema(
        json!({ "type": "object", "required": ["n", "of"], "additionalProperties": false,
            "properties": { "n": { "type": "integer" }, "of": { "enum": ["cats", "dogs"] } } }),
        true,
    );
    for seed in 0..20 {
        let (text, ended) = draw(&language, seed, TURN).unwrap();
        assert!(ended, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["n"].is_number() && ["cats", "dogs"].contains(&value["of"].as_str().unwrap()), "{text}");
    }
}

#[test]
fn an_object_is_any_object() {
    let found = (0..20).map(|seed| draw(&Language::JsonObject, seed, 93).unwrap());
    let objects: Vec<(String, bool)> = found.filter(|(_, ended)| *ended).collect();
    assert!(objects.len() > 10);
    for (text, _) in objects {
        assert!(serde_json::from_str::<Value>(&text).unwrap().is_object(), "{text}");
    }
}

#[test]
fn a_text_ends_where_its_language_allows_it() {
    let ends = |language: &Language| draw(language, 1, END).unwrap();
    assert_eq!(ends(&Language::Regex("a{3,9}".to_owned())), ("aaa".to_owned(), true));
    let lark = "start: \"x\" tail\ntail: \"y\" tail | \"z\"".to_owned();
    let (text, ended) = ends(&Language::Lark(lark));
    assert!(ended && text.starts_with('x') && text.ends_with('z'), "{text}");
    let choice = Language::Choice(vec!["one \"1\"".to_owned(), "two".to_owned()]);
    let drawn: BTreeSet<String> = (0..20).map(|seed| draw(&choice, seed, END).unwrap().0).collect();
    assert_eq!(drawn, BTreeSet::from(["one \"1\"".to_owned(), "two".to_owned()]));
}

#[test]
fn a_choice_may_have_thousands_of_texts() {
    let choice = Language::Choice((0..3000).map(|number| format!("item {number}")).collect());
    let (text, ended) = draw(&choice, 1, 0).unwrap();
    assert!(ended && text.starts_with("item "), "{text}");
}

#[test]
fn a_text_that_the_vocabulary_cannot_write_is_an_error() {
    let error = draw(&Language::Lark("start: \"a\" \"é\"".to_owned()), 1, END).unwrap_err();
    assert_eq!(error.to_string(), "the grammar: no token of the vocabulary can follow");
}

#[test]
fn a_special_token_is_no_text() {
    let (text, _) = draw(&Language::Regex("[<turn>]{9}".to_owned()), 1, TURN).unwrap();
    assert_eq!(text.len(), 9);
}

#[test]
fn a_keyword_that_cannot_be_enforced_is_refused_where_it_is_strict() {
    let unknown = json!({ "type": "string", "if": { "const": "a" } });
    assert!(grammars().compile(&schema(unknown.clone(), false)).is_ok());
    let error = grammars().compile(&schema(unknown, true)).unwrap_err().to_string();
    assert!(error.contains("if"), "{error}");
}

/// The error of a strict schema; without `strict` it compiles.
#[track_caller]
fn refused_if_strict(text: &str) -> String {
    let of = |strict| grammars().compile(&schema(serde_json::from_str(text).unwrap(), strict));
    assert!(of(false).is_ok(), "{text}: {:?}", of(false));
    of(true).unwrap_err().to_string()
}

#[test]
fn bounds_that_are_not_exact_cannot_be_enforced() {
    for keyword in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"] {
        for bound in ["9007199254740992", "-9007199254740993", "1e300"] {
            let error = refused_if_strict(&format!(r#"{{ "type": "integer", "{keyword}": {bound} }}"#));
            assert!(error.contains(&format!("`{keyword}` cannot be enforced")), "{error}");
        }
    }
    refused_if_strict(r#"{ "type": "number", "multipleOf": 4294967296 }"#);
    refused_if_strict(r#"{ "type": "number", "multipleOf": 0.12345678901 }"#);
    let error = refused_if_strict(r#"{ "properties": { "a": { "items": { "enum": [18446744073709551616] } } } }"#);
    assert!(error.contains("`enum` cannot be enforced"), "{error}");
    refused_if_strict(r#"{ "anyOf": [{ "const": { "a": [9007199254740993] } }] }"#);
    let exact =
        json!({ "type": "integer", "minimum": 9_007_199_254_740_989_u64, "maximum": 9_007_199_254_740_991_u64 });
    let (text, ended) = draw(&schema(exact, true), 1, END).unwrap();
    assert!(ended && ["89", "90", "91"].contains(&&text[14..]), "{text}");
}

#[test]
fn patterns_beyond_regular_expressions_cannot_be_enforced() {
    let error = refused_if_strict(r#"{ "type": "string", "pattern": "^(?=a)a.*$" }"#);
    assert!(error.contains("`pattern` cannot be enforced") && error.contains("(?=a)"), "{error}");
    let error = refused_if_strict(r#"{ "type": "object", "patternProperties": { "(a)\\1": { "type": "null" } } }"#);
    assert!(error.contains("`patternProperties` cannot be enforced"), "{error}");
    refused_if_strict(r##"{ "$ref": "#/$defs/a", "$defs": { "a": { "type": "string", "pattern": "\\bword" } } }"##);
}

#[test]
fn a_schema_from_elsewhere_cannot_be_enforced() {
    let error = refused_if_strict(r#"{ "items": { "$ref": "https://example.com/a.json" } }"#);
    assert!(error.contains("`$ref` cannot be enforced") && error.contains("$defs"), "{error}");
    refused_if_strict(r##"{ "properties": { "a": { "$ref": "#a" } } }"##);
}

#[test]
fn what_can_be_done_about_a_strict_keyword_is_told() {
    let error = refused_if_strict(r#"{ "oneOf": [{ "type": "integer" }, { "type": "integer", "minimum": 3 }] }"#);
    assert!(error.contains("`oneOf`") && error.contains("`anyOf`") && !error.contains("coerce"), "{error}");
    let error = refused_if_strict(r#"{ "type": "array", "uniqueItems": true }"#);
    assert_eq!(error, "the grammar: [\"uniqueItems\"] cannot be enforced");
    let error = refused_if_strict(r#"{ "type": "string", "format": "colour" }"#);
    assert_eq!(error, "the grammar: the format colour cannot be enforced");
}

#[test]
fn names_and_values_like_keywords_are_none() {
    let of_names = json!({ "type": "object", "additionalProperties": false, "required": ["$ref", "const"],
        "properties": { "$ref": { "const": { "pattern": "(?=a)" } }, "const": { "enum": [["minimum"]] } } });
    let (text, ended) = draw(&schema(of_names, true), 1, END).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({ "$ref": { "pattern": "(?=a)" }, "const": ["minimum"] });
    assert_eq!((value, ended), (expected, true));
}

#[test]
fn wrong_and_unbounded_languages_are_errors() {
    let refused = |language: Language| grammars().compile(&language).unwrap_err().to_string();
    assert_eq!(refused(schema(json!(3), false)), "the grammar: a JSON schema is an object, not 3");
    assert!(refused(schema(json!({ "type": "strin" }), false)).contains("strin"));
    assert!(refused(Language::Lark("begin: \"a\"".to_owned())).contains("start"));
    refused(Language::Regex("(a".to_owned()));
    refused(Language::Choice(Vec::new()));
    let long = refused(Language::Regex("a".repeat(MOST_BYTES + 1)));
    assert!(long.contains(&MOST_BYTES.to_string()), "{long}");
    // Many states, or much nesting: refused or not, it takes bounded time and stack.
    let deep = "(".repeat(MOST_BYTES / 2 - 10);
    refused(Language::Lark(format!("start: {deep}")));
    let _ = grammars().compile(&Language::Lark(format!("start: {deep}\"a\"{}", ")".repeat(deep.len()))));
    let _ = grammars().compile(&Language::Regex(format!("{deep}a{}", ")".repeat(deep.len()))));
    let nested = (0..100).fold(json!({ "type": "null" }), |inner, _| json!({ "type": "array", "items": inner }));
    let _ = grammars().compile(&schema(nested, true));
    let _ = grammars().compile(&Language::Regex("((a{1,999}){1,999}){1,999}".to_owned()));
}
