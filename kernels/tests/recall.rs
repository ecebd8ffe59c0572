//! A function that reads its state before it writes it finds 0 at a new position, whoever had the
//! page before.

use amk::ir::schedule::{RowSchedule, Schedule};
use amk::layout::{Source, SourceError, WeightRequest, build, zeroed};
use amk::prelude::*;
use amk::registry::Registry;
use amk::session::Session;
use amk::vm::Bindings;
use amk::vm::cpu::{Options, Vm};
use amk_kernels::{embed, kv_append};
use std::sync::Arc;

/// `y = ` the sum of the states at all positions up to this one.
#[instruction(op = "total", shape = "cache: [G, C, D] -> y: [D]", task = "y[..] <- cache[.., 0..pos+1, ..]")]
fn total(cache: &State, pos: Pos) -> Tensor {
    let &[heads, _, dim] = cache.shape() else { panic!("a cache of shape {:?}", cache.shape()) };
    let rows = (0..heads).flat_map(|head| (0..=pos.index()).map(move |at| [head, at]));
    rows.fold(vec![0.0; dim], |sum, at| sum.iter().zip(cache.row(at)).map(|(a, b)| a + b).collect()).into()
}

#[derive(WeightLayout)]
struct Embedding {
    #[weight("embed", [VOCAB, DIM])]
    embed: Weight,
}

#[derive(WeightLayout)]
struct Memory {
    #[state([1, CONTEXT, DIM])]
    rows: State,
}

/// The sum of the embeddings of all tokens before this one.
#[megakernel(dims(VOCAB, DIM, CONTEXT), instances(tiny(VOCAB = 8, DIM = 4, CONTEXT = 100)))]
fn recall(token: Token, pos: Pos, w: &Embedding, memory: &mut Memory) -> Tensor {
    let before = total(&memory.rows, pos);
    kv_append(&mut memory.rows, &embed(&w.embed, token), pos);
    before
}

/// Row `t` of the embedding is `t` everywhere.
struct Numbered;

impl Source for Numbered {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let elements = (0..request.shape[0]).flat_map(|row| vec![row as f32; request.shape[1]]);
        Ok(Weight::f32(request.shape, elements.collect())?)
    }

    fn table(&mut self, _: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        Ok(Weight::f32(shape, Vec::new())?)
    }

    fn param(&mut self, _: &str) -> Result<f32, SourceError> {
        Ok(0.0)
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Ok(false)
    }
}

fn session() -> Session<Vm> {
    let mut instance = RECALL.instance("tiny").unwrap().clone();
    let weights: Embedding = build(&instance.dims, &mut Numbered).unwrap();
    let bindings = Bindings::new().layout("w", &weights);
    instance.floats = bindings.floats().clone();
    let rows = Some(RowSchedule { most: 1, block: None });
    let verified = RECALL.verified(&instance, Some(&Schedule { rows, ..Schedule::default() })).unwrap();
    let options = Options { pages: Some(4.into()), ..Options::default() };
    Session::new(Vm::with(Arc::new(verified), &bindings, &Registry::linked().unwrap(), options).unwrap())
}

fn run(session: &mut Session<Vm>, id: amk::rows::SequenceId, tokens: &[u32]) -> f32 {
    session.push(id, &tokens.iter().map(|&token| Token(token)).collect::<Vec<_>>()).unwrap();
    while session.pending(id).unwrap() > 0 {
        session.step().unwrap();
    }
    session.logits(id).unwrap()[0]
}

/// The function's result for the last of some tokens, called for one after the other.
fn called(tokens: &[u32]) -> f32 {
    let dims = &RECALL.instance("tiny").unwrap().dims;
    let (weights, mut memory): (Embedding, Memory) = (build(dims, &mut Numbered).unwrap(), zeroed(dims).unwrap());
    let calls = tokens.iter().zip(0..).map(|(&token, pos)| recall(Token(token), Pos(pos), &weights, &mut memory));
    calls.last().map_or(0.0, |last| last.data()[0])
}

#[test]
fn a_new_position_is_empty_after_rollbacks_forks_and_drops() {
    let mut session = session();
    let first = session.add();
    assert_eq!(run(&mut session, first, &[3, 5, 7]), called(&[3, 5, 7]));
    let fork = session.fork(first, 1).unwrap();
    session.rollback(first, 1).unwrap();
    assert_eq!(run(&mut session, first, &[2]), called(&[3, 2]), "the 5 was rolled back");
    assert_eq!(run(&mut session, fork, &[4, 6]), called(&[3, 4, 6]), "the fork has the 3 alone");
    session.drop(first).unwrap();
    session.drop(fork).unwrap();
    let other = session.add();
    assert_eq!(run(&mut session, other, &[1]), called(&[1]), "another sequence had the page");
}
