//! Texts side by side, on a VM that counts.

use super::*;
use crate::grammar::{Grammars, Language};
use crate::sampler::{SamplerConfig, philox};
use crate::text::PlacedLogprobs;
use amk::rows::{Draw, PageEdit, PageGroup, PlacedRow};
use std::cell::RefCell;
use std::path::Path;

/// A VM whose next token is one more than the last.
#[derive(Default)]
struct Count(Vec<Vec<f32>>);

const TOKENS: usize = 50;

impl RowVm for Count {
    type Error = core::convert::Infallible;

    fn limits(&self) -> RowLimits {
        RowLimits::new(4, 40, 2)
    }

    fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        let next = |row: &PlacedRow| {
            let mut logits = vec![0.0; TOKENS];
            logits[(row.token.0 as usize + 1) % TOKENS] = 1.0;
            logits
        };
        self.0 = rows.iter().map(next).collect();
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.0[row]
    }
}

fn tokenizer() -> Tokenizer {
    let vocab: Vec<String> = (0..TOKENS).map(|id| format!("\"t{id}\": {id}")).collect();
    let json = format!(
        r#"{{"version": "1.0", "added_tokens": [], "pre_tokenizer": {{"type": "Whitespace"}},
        "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "t0"}}}}"#,
        vocab.join(", ")
    );
    Tokenizer::from_json(Path::new("tokenizer.json"), json.as_bytes()).unwrap()
}

/// A vocabulary of words with a space in front, of which decoding leaves out a text's first.
fn spaced_tokenizer() -> Tokenizer {
    let vocab: Vec<String> = (0..TOKENS).map(|id| format!("\"\u{2581}t{id}\": {id}")).collect();
    let json = format!(
        r#"{{"version": "1.0", "added_tokens": [],
        "decoder": {{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}},
        "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "\u2581t0"}}}}"#,
        vocab.join(", ")
    );
    Tokenizer::from_json(Path::new("tokenizer.json"), json.as_bytes()).unwrap()
}

#[test]
fn a_text_that_continues_its_prompt_has_the_space_between_them() {
    let tokenizer = spaced_tokenizer();
    let write = |request: Request| {
        let mut batch = Batch::new(Count::default(), &tokenizer);
        batch.add(&[10], &Request { max_tokens: Some(2), ..request }).unwrap();
        let mut text = String::new();
        while batch
            .step(&mut |_, event| {
                if let Event::Text(piece) = event {
                    text.push_str(piece.text);
                }
                Ok(())
            })
            .unwrap()
        {}
        text
    };
    assert_eq!(write(Request::default()), "t11 t12");
    assert_eq!(write(Request { continues: true, ..Request::default() }), " t11 t12");
    let grammars = Grammars::new(tokenizer.clone(), Vec::new());
    let grammar = grammars.compile(&Language::Choice(vec![" t11 t12".to_owned()])).unwrap();
    assert_eq!(write(Request { grammar: Some(grammar), ..Request::default() }), " t11 t12");
}

#[test]
fn a_cancelled_text_ends_without_an_event_and_makes_room() {
    let tokenizer = tokenizer();
    let mut batch = Batch::new(Count::default(), &tokenizer);
    let request = Request { max_tokens: Some(5), ..Request::default() };
    // Two have pages, one waits for them, one waits behind it.
    let ids = [10, 20, 30, 40].map(|first| batch.add(&[first], &request).unwrap());
    let mut ended: BTreeMap<TextId, Vec<u32>> = BTreeMap::new();
    let mut see = |id: TextId, event: Event<'_>| {
        if let Event::Ended(generated) = event {
            ended.insert(id, generated.tokens);
        }
        Ok(())
    };
    assert!(batch.step(&mut see).unwrap());
    batch.cancel(ids[0]);
    batch.cancel(ids[2]);
    assert_eq!(batch.session().free_pages(), [1]);
    let mut steps = 1;
    while batch.step(&mut see).unwrap() {
        steps += 1;
    }
    batch.cancel(ids[1]);
    assert_eq!(ended, BTreeMap::from([(ids[1], (21..26).collect()), (ids[3], (41..46).collect())]));
    assert_eq!((steps, batch.session().free_pages()), (5, vec![2]), "the last starts where the first was");
}

#[test]
fn texts_beyond_a_bound_wait_for_one_that_is_written() {
    let tokenizer = tokenizer();
    let mut batch = Batch::new(Count::default(), &tokenizer).writing_at_most(1);
    let request = Request { max_tokens: Some(3), ..Request::default() };
    for first in [10, 20] {
        batch.add(&[first], &request).unwrap();
    }
    let mut most = 0;
    while batch.step(&mut |_, _| Ok(())).unwrap() {
        most = most.max(batch.state().live);
    }
    assert_eq!((most, batch.state().chosen), (1, 6));
}

#[test]
fn the_texts_of_one_owner_do_not_keep_another_waiting() {
    let tokenizer = tokenizer();
    let mut batch = Batch::new(Count::default(), &tokenizer);
    let request = Request { max_tokens: Some(5), ..Request::default() };
    for (owner, first) in [(1, 10), (1, 20), (1, 30), (2, 40)] {
        batch.add_of(owner, &[first], &request).unwrap();
    }
    let mut ended = Vec::new();
    while batch
        .step(&mut |TextId(number), event| {
            if let Event::Ended(_) = event {
                ended.push(number);
            }
            Ok(())
        })
        .unwrap()
    {}
    // There are pages for two at a time.
    assert_eq!((&ended[..2], ended.len()), (&[0, 3][..], 4));
}

/// Writes a text and returns it with the prompt's tokens that ran.
fn write<V: RowVm>(batch: &mut Batch<'_, V>, prompt: &[u32], request: &Request) -> (Vec<u32>, usize) {
    let mut ended = None;
    batch.add(prompt, request).unwrap();
    while ended.is_none() {
        batch
            .step(&mut |_, event| {
                if let Event::Ended(generated) = event {
                    ended = Some((generated.tokens, generated.prompt_run));
                }
                Ok(())
            })
            .unwrap();
    }
    ended.unwrap()
}

#[test]
fn a_prompt_goes_on_from_the_text_that_has_its_beginning() {
    let tokenizer = tokenizer();
    let request = Request { max_tokens: Some(5), ..Request::default() };
    let mut batch = Batch::new(Count::default(), &tokenizer).keeping(2);
    let first: Vec<u32> = (10..20).collect();
    assert_eq!(write(&mut batch, &first, &request), ((20..25).collect(), 10));
    // Of the first text 14 tokens have run; the last of the prompt runs again.
    assert_eq!(write(&mut batch, &(10..27).collect::<Vec<_>>(), &request), ((27..32).collect(), 3));
    assert_eq!(write(&mut batch, &first, &request), ((20..25).collect(), 1));
    assert_eq!(batch.state(), State { live: 0, waiting: 0, kept: 2, chosen: 15 });
    // Its beginning is shorter than what is worth it, and it takes the page of the oldest.
    assert_eq!(write(&mut batch, &[10, 11, 30], &request), (vec![31, 32, 33, 34, 35], 3));
    assert_eq!((batch.state().kept, batch.session().free_pages()), (1, vec![1]));
    let mut none = Batch::new(Count::default(), &tokenizer);
    write(&mut none, &first, &request);
    assert_eq!(write(&mut none, &first, &request).1, 10);
    assert_eq!(none.session().free_pages(), [2]);
}

#[test]
fn logprobs_come_with_the_text_of_their_tokens_up_to_a_stop_string() {
    let tokenizer = tokenizer();
    let mut batch = Batch::new(Count::default(), &tokenizer);
    let stop_strings = vec!["t13t".to_owned(), "t14 t15".to_owned()];
    let request = Request { max_tokens: Some(9), stop_strings, logprobs: Some(1), ..Request::default() };
    batch.add(&[10], &request).unwrap();
    let (mut pieces, mut ended) = (Vec::new(), None);
    while batch
        .step(&mut |_, event| {
            match event {
                Event::Text(piece) => {
                    let of = |token: &PlacedLogprobs| (token.offset, token.logprobs.chosen.token);
                    pieces.push((piece.text.to_owned(), piece.logprobs.iter().map(of).collect::<Vec<_>>()));
                    let likeliest = |token: &PlacedLogprobs| token.logprobs.top == [token.logprobs.chosen];
                    assert!(piece.logprobs.iter().all(likeliest));
                }
                Event::Ended(generated) => ended = Some(generated.ended),
                Event::Prompt { .. } | Event::Failed(_) => {}
            }
            Ok(())
        })
        .unwrap()
    {}
    // " t13" is held back until "t14" comes, and of "t14 t15" nothing but the space before it
    // is seen.
    let expected = [("t11", vec![(0, 11)]), (" t12", vec![(3, 12)]), (" ", vec![(7, 13)]), ("t13 ", vec![(11, 14)])];
    assert_eq!(pieces, expected.map(|(text, tokens)| (text.to_owned(), tokens)));
    assert_eq!(ended, Some(Ended::StopString));
}

/// A VM that counts, and has no logits after some token.
struct Broken(Count);

impl RowVm for Broken {
    type Error = core::convert::Infallible;

    fn limits(&self) -> RowLimits {
        self.0.limits()
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Self::Error> {
        self.0.edit_page(edit)
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        let broken: Vec<bool> = rows.iter().map(|row| row.token == Token(13)).collect();
        self.0.step_rows(rows)?;
        self.0.0.iter_mut().zip(broken).filter(|(_, broken)| *broken).for_each(|(logits, _)| logits.fill(f32::NAN));
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.0.logits(row)
    }
}

/// The texts after these prompts, and why they failed.
fn texts_or_errors<V: RowVm>(mut batch: Batch<'_, V>, requests: &[(&[u32], Request)]) -> Vec<Result<Vec<u32>, String>> {
    for (prompt, request) in requests {
        batch.add(prompt, request).unwrap();
    }
    let mut ended = BTreeMap::new();
    let mut see = |id: TextId, event: Event<'_>| {
        match event {
            Event::Ended(generated) => _ = ended.insert(id, Ok(generated.tokens)),
            Event::Failed(error) => _ = ended.insert(id, Err(error.to_string())),
            Event::Prompt { .. } | Event::Text(_) => {}
        }
        Ok(())
    };
    while batch.step(&mut see).unwrap() {}
    assert!(batch.session().is_empty());
    ended.into_values().collect()
}

#[test]
fn a_text_without_logits_fails_alone() {
    let tokenizer = tokenizer();
    let request = Request { max_tokens: Some(4), ..Request::default() };
    let texts = texts_or_errors(
        Batch::new(Broken(Count::default()), &tokenizer),
        &[(&[11], request.clone()), (&[20], request.clone())],
    );
    let none = "none of the 50 logits is a finite number".to_owned();
    assert_eq!(texts, [Err(none), Ok(vec![21, 22, 23, 24])]);
    // Nor does a text fail whose guesses come from such a model.
    let guessed = Request { speculate: Speculate::Model, ..request };
    let batch = Batch::new(Count::default(), &tokenizer).with_drafter(Broken(Count::default()));
    assert_eq!(texts_or_errors(batch, &[(&[11], guessed)]), [Ok(vec![12, 13, 14, 15])]);
}

#[test]
fn a_penalty_beyond_the_range_of_numbers_fails_its_text_alone() {
    let tokenizer = tokenizer();
    let request = Request { max_tokens: Some(4), ..Request::default() };
    let sampler = SamplerConfig { repetition_penalty: 1e-39, ..SamplerConfig::default() };
    let penalised = Request { sampler, ..request.clone() };
    // The likeliest token after the first prompt is in it.
    let texts = texts_or_errors(Batch::new(Count::default(), &tokenizer), &[(&[31, 30], penalised), (&[20], request)]);
    let refused = SamplerError::Penalty { penalty: 1e-39 }.to_string();
    assert_eq!(texts, [Err(refused), Ok(vec![21, 22, 23, 24])]);
}

/// A VM whose logits depend on token and position, and that may choose.
struct Mixed {
    chooses: bool,
    logits: Vec<Vec<f32>>,
    tokens: Vec<Option<Token>>,
}

impl RowVm for Mixed {
    type Error = core::convert::Infallible;

    fn limits(&self) -> RowLimits {
        RowLimits::new(12, 60, 4)
    }

    fn chooses(&self) -> bool {
        self.chooses
    }

    fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        let of = |row: &PlacedRow| {
            let word = |id| philox::word(u64::from(row.token.0), u64::from(row.pos.0 % 3), id) >> 24;
            (0..TOKENS as u32).map(|id| word(id) as f32 / 64.0).collect()
        };
        self.logits = rows.iter().map(of).collect();
        let chosen = |(row, logits): (&PlacedRow, &Vec<f32>)| {
            let Choice { draw, changes } = row.choice.as_ref()?;
            let mut logits = logits.clone();
            changes.iter().for_each(|change| logits[change.token.index()] = change.of(logits[change.token.index()]));
            let Draw { temperature, top_p, seed, draw, .. } = *draw;
            let config = SamplerConfig { temperature, top_p, seed, ..SamplerConfig::default() };
            let token = Sampler::after(config, u64::from(draw)).unwrap().sample(&logits, &[]).unwrap();
            // Some draws are not decided.
            (token % 7 != 3).then_some(Token(token))
        };
        self.tokens = rows.iter().zip(&self.logits).map(chosen).collect();
        Ok(())
    }

    fn token(&self, row: usize) -> Option<Token> {
        self.tokens[row]
    }

    fn logits(&self, row: usize) -> &[f32] {
        assert_eq!(self.tokens[row], None, "the token is there");
        &self.logits[row]
    }
}

/// The texts after four prompts, with samplers of their own.
fn texts_of(chooses: bool, tokenizer: &Tokenizer, speculate: Speculate) -> BTreeMap<TextId, (Vec<u32>, usize)> {
    let mut batch = Batch::new(Mixed { chooses, logits: Vec::new(), tokens: Vec::new() }, tokenizer);
    let drawn = SamplerConfig { temperature: 0.8, top_p: 0.9, seed: 3, ..SamplerConfig::default() };
    let penalised = SamplerConfig { repetition_penalty: 1.4, frequency_penalty: 0.3, ..drawn.clone() };
    let biased = SamplerConfig { logit_bias: [(9, 2.0)].into(), ..SamplerConfig::default() };
    for (sampler, first) in [SamplerConfig::default(), drawn, penalised, biased].into_iter().zip(1..) {
        let logprobs = (first == 1).then_some(0);
        let request = Request { sampler, speculate, logprobs, max_tokens: Some(30), ..Request::default() };
        batch.add(&[first, 2, 5], &request).unwrap();
    }
    let mut ended = BTreeMap::new();
    while batch
        .step(&mut |id, event| {
            if let Event::Ended(generated) = event {
                ended.insert(id, (generated.tokens, generated.accepted));
            }
            Ok(())
        })
        .unwrap()
    {}
    ended
}

#[test]
fn texts_are_the_same_whether_the_vm_chooses_or_the_sampler() {
    let tokenizer = tokenizer();
    let expected = texts_of(false, &tokenizer, Speculate::Never);
    assert_eq!(texts_of(true, &tokenizer, Speculate::Never), expected);
    let guessed = texts_of(true, &tokenizer, Speculate::Lookup);
    let tokens = |texts: &BTreeMap<TextId, (Vec<u32>, usize)>| -> Vec<Vec<u32>> {
        texts.values().map(|(tokens, _)| tokens.clone()).collect()
    };
    assert_eq!(tokens(&guessed), tokens(&expected));
    assert!(guessed.values().any(|(_, accepted)| *accepted > 0), "some guesses are right");
}

/// A VM that notes of each step whether rows are kept alike.
#[derive(Default)]
struct Noting {
    count: Count,
    alike: bool,
    steps: Vec<bool>,
}

impl RowVm for Noting {
    type Error = core::convert::Infallible;

    fn limits(&self) -> RowLimits {
        self.count.limits()
    }

    fn keep_alike(&mut self, keep: bool) {
        self.alike = keep;
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Self::Error> {
        self.count.edit_page(edit)
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        self.steps.push(self.alike);
        self.count.step_rows(rows)
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.count.logits(row)
    }
}

#[test]
fn rows_are_kept_alike_while_a_text_has_guesses() {
    let tokenizer = tokenizer();
    let mut batch = Batch::new(Noting::default(), &tokenizer);
    let mut steps_of = |requests: &[(Speculate, usize)]| {
        for &(speculate, tokens) in requests {
            batch.add(&[1], &Request { speculate, max_tokens: Some(tokens), ..Request::default() }).unwrap();
        }
        let before = batch.session().vm().steps.len();
        while batch.step(&mut |_, _| Ok(())).unwrap() {}
        batch.session().vm().steps[before..].to_vec()
    };
    assert_eq!(steps_of(&[(Speculate::Never, 3)]), [false; 3]);
    assert_eq!(steps_of(&[(Speculate::Never, 5), (Speculate::Lookup, 3)]), [true, true, true, false, false]);
}

/// A VM that counts, with groups of states of which rows read so many positions.
struct Windowed(Count, Vec<PageGroup>);

impl RowVm for Windowed {
    type Error = amk::rows::contract::Breach;

    fn limits(&self) -> RowLimits {
        RowLimits { rows: 4, positions: 900, groups: self.1.clone() }
    }

    fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        amk::rows::contract::check(&self.limits(), &rows)?;
        let Ok(()) = self.0.step_rows(rows);
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.0.logits(row)
    }
}

#[test]
fn texts_with_a_window_are_longer_than_the_pages() {
    let tokenizer = tokenizer();
    let group = PageGroup { pages: 7, reach: Some(10) };
    let mut batch = Batch::new(Windowed(Count::default(), vec![group]), &tokenizer).keeping(1);
    let mut run = |prompts: &[&[u32]], tokens: usize| {
        let request = Request { max_tokens: Some(tokens), speculate: Speculate::Lookup, ..Request::default() };
        prompts.iter().for_each(|prompt| _ = batch.add(prompt, &request).unwrap());
        let mut ended = BTreeMap::new();
        let mut see = |id: TextId, event: Event<'_>| {
            if let Event::Ended(generated) = event {
                ended.insert(id, (generated.tokens, generated.prompt_run));
            }
            Ok(())
        };
        while batch.step(&mut see).unwrap() {}
        ended.into_values().collect::<Vec<_>>()
    };
    let counted = |first: u32, tokens: u32| (first..first + tokens).map(|token| token % TOKENS as u32).collect();
    // Each can come to need 3 pages of 7; 800 positions take 13.
    let texts = run(&[&[1], &[20], &[30]], 800);
    assert_eq!(texts, [(counted(2, 800), 1), (counted(21, 800), 1), (counted(31, 800), 1)]);
    // The last one is kept: what goes on from its end does not run again, its beginning does.
    let whole: Vec<u32> = counted(30, 800);
    let beginning = &whole[..300];
    assert_eq!(run(&[&whole], 2), [(counted(30, 802)[800..].to_vec(), 1)]);
    assert_eq!(run(&[beginning], 2), [(counted(30, 302)[300..].to_vec(), 300)]);
}

/// A text already has the pages of the one that it goes on from.
#[test]
fn texts_with_a_window_go_on_where_there_are_pages_for_one() {
    let tokenizer = tokenizer();
    let groups = [(15, None), (4, Some(10))].map(|(pages, reach)| PageGroup { pages, reach });
    let mut batch = Batch::new(Windowed(Count::default(), groups.to_vec()), &tokenizer).keeping(1);
    let request = Request::default();
    let mut prompt: Vec<u32> = vec![0];
    for tokens in [100, 300, 300] {
        let request = Request { max_tokens: Some(tokens), ..request.clone() };
        let (text, run) = write(&mut batch, &prompt, &request);
        assert_eq!(run, 1, "{} tokens", prompt.len());
        prompt.extend(text);
    }
    assert_eq!(batch.state().kept, 1);
}

/// Of pools that are small for several texts of the whole context.
fn small_pools(number: u64) -> Vec<PageGroup> {
    const POOLS: [[(usize, Option<usize>); 2]; 4] = [
        [(15, None), (4, Some(10))],
        [(20, None), (7, Some(70))],
        [(17, None), (17, None)],
        [(8, Some(200)), (5, Some(1))],
    ];
    let groups = POOLS[number as usize % POOLS.len()];
    groups.map(|(pages, reach)| PageGroup { pages, reach }).to_vec()
}

#[test]
fn texts_that_have_begun_have_the_pages_to_end_whatever_they_share() {
    let tokenizer = tokenizer();
    let (mut shared, mut waited) = (0, 0);
    for number in 0..40 {
        let mut draws = 0;
        let mut below = |end: usize| {
            draws += 1;
            philox::word(number, draws, 0) as usize % end
        };
        let batch = Batch::new(Windowed(Count::default(), small_pools(number)), &tokenizer);
        let mut batch = batch.keeping(below(4)).writing_at_most(1 + below(4));
        let (mut prompts, mut known) = (BTreeMap::new(), vec![vec![0]]);
        for _ in 0..60 {
            let (steps, text) = (below(120), &known[below(known.len())]);
            let (len, more) = (1 + below(text.len()), (0..below(30) as u32).map(|token| token * 7 % TOKENS as u32));
            let prompt: Vec<u32> = text[..len].iter().copied().chain(more).collect();
            let speculate = [Speculate::Never, Speculate::Lookup][below(2)];
            let request = Request { max_tokens: Some(1 + below(250)), speculate, ..Request::default() };
            if prompt.len() <= 900 {
                prompts.insert(batch.add(&prompt, &request).unwrap(), prompt);
            }
            if below(5) == 0 {
                let gone = *prompts.keys().nth(below(prompts.len().max(1))).unwrap_or(&TextId(0));
                batch.cancel(gone);
                prompts.remove(&gone);
            }
            for _ in 0..steps {
                let mut see = |id: TextId, event: Event<'_>| {
                    if let Event::Ended(generated) = event {
                        let mut prompt = prompts.remove(&id).expect("it is not cancelled");
                        shared += generated.prompt_tokens - generated.prompt_run;
                        for token in generated.tokens {
                            assert_eq!(token, (prompt[prompt.len() - 1] + 1) % TOKENS as u32);
                            prompt.push(token);
                        }
                        known.push(prompt);
                    }
                    Ok(())
                };
                batch.step(&mut see).unwrap();
                waited += batch.state().waiting;
            }
        }
        prompts.keys().for_each(|&id| batch.cancel(id));
        while let Some(kept) = batch.kept.pop() {
            batch.session.drop(kept).unwrap();
        }
        let pages: Vec<usize> = small_pools(number).iter().map(|group| group.pages).collect();
        assert_eq!(batch.session().free_pages(), pages, "no page is lost");
    }
    assert!(shared > 10_000 && waited > 1_000, "{shared} {waited}");
}

/// Of two groups each has to have the pages that a text can come to need.
#[test]
fn texts_wait_for_pages_of_every_group() {
    let tokenizer = tokenizer();
    let most_at_once = |pages: [usize; 2]| {
        let groups = pages.into_iter().zip([None, Some(10)]);
        let groups = groups.map(|(pages, reach)| PageGroup { pages, reach }).collect();
        let mut batch = Batch::new(Windowed(Count::default(), groups), &tokenizer);
        let request = Request { max_tokens: Some(300), ..Request::default() };
        let added: Result<Vec<_>, _> = (0..3).map(|first| batch.add(&[first], &request)).collect();
        added.map_err(|error| error.to_string())?;
        let (mut most, mut ended) = (0, 0);
        while batch
            .step(&mut |_, event| {
                ended += u32::from(matches!(event, Event::Ended(_)));
                Ok(())
            })
            .unwrap()
        {
            most = most.max(batch.state().live);
        }
        Ok((most, ended))
    };
    // A text of 301 positions needs 5 pages of the one and at most 3 of the other.
    assert_eq!(most_at_once([15, 9]), Ok((3, 3)));
    assert_eq!(most_at_once([10, 9]), Ok((2, 3)));
    assert_eq!(most_at_once([15, 6]), Ok((2, 3)));
    let refused = "out of pages of group 1 (the last 10 positions): the step needs 3 of 64 positions, 2 of 2 are free";
    assert_eq!(most_at_once([15, 2]), Err(refused.to_owned()));
}

/// A VM that counts on a device of its own, and notes when it runs.
struct Device<'n>(Count, &'n RefCell<Vec<String>>);

impl RowVm for Device<'_> {
    type Error = core::convert::Infallible;

    fn limits(&self) -> RowLimits {
        self.0.limits()
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), Self::Error> {
        self.0.edit_page(edit)
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        self.step_rows_overlapped(rows, &mut || {})
    }

    fn step_rows_overlapped(&mut self, rows: Vec<PlacedRow>, host_work: &mut dyn FnMut()) -> Result<(), Self::Error> {
        self.1.borrow_mut().push("(".to_owned());
        host_work();
        self.1.borrow_mut().push(")".to_owned());
        self.0.step_rows(rows)
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.0.logits(row)
    }
}

#[test]
fn text_that_ends_nothing_is_written_while_the_next_step_runs() {
    let tokenizer = tokenizer();
    let notes = |stop: &str| {
        let notes = RefCell::default();
        let mut batch = Batch::new(Device(Count::default(), &notes), &tokenizer);
        let stop_strings = Vec::from_iter((!stop.is_empty()).then(|| stop.to_owned()));
        batch.add(&[10], &Request { max_tokens: Some(3), stop_strings, ..Request::default() }).unwrap();
        let mut watch = |_, event: Event<'_>| {
            match event {
                Event::Text(piece) => notes.borrow_mut().push(piece.text.trim().to_owned()),
                Event::Ended(generated) => notes.borrow_mut().push(format!("{:?}", generated.ended)),
                _ => {}
            }
            Ok(())
        };
        while batch.step_overlapped(&mut watch, &mut || notes.borrow_mut().push("!".to_owned())).unwrap() {}
        notes.take().join(" ")
    };
    assert_eq!(notes(""), "( ! ) ( t11 ! ) ( t12 ! ) t13 MaxTokens");
    assert_eq!(notes("t99"), "( ! ) t11 ( ! ) t12 ( ! ) t13 MaxTokens", "a stop string may end it");
    assert_eq!(notes("t12"), "( ! ) t11 ( ! )  StopString");
}
