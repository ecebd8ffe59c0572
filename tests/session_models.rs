//! Sessions on models of every kind of state: whatever is added, forked, rolled back and dropped
//! beside a sequence, its logits equal the annotated function's on its tokens alone.

use crate::models::{golden_folder, load};
use amk::ir::DType;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::registry::Registry;
use amk::rows::{ROLLBACK, RowsError, SequenceId};
use amk::session::{Session, SessionError};
use amk::vm::cpu::{Mode, Options, Vm};
use amk::{Pos, Token};
use amk_models::model::Model;
use amk_tests::generate::Rng;
use std::collections::BTreeMap;

const POSITIONS: usize = 256;
const ROWS: u32 = 9;
/// Of each group; a sequence of the whole context needs four.
const PAGES: usize = 6;
const TURNS: usize = 300;
const MOST_SEQUENCES: usize = 4;

/// The annotated function, and the tokens that it has run.
struct Function {
    model: Model,
    ran: Vec<Token>,
}

impl Function {
    /// The logits after tokens.
    fn after(&mut self, tokens: &[Token]) -> Vec<f32> {
        let same = self.ran.iter().zip(tokens).take_while(|(one, other)| one == other).count();
        let from = same.min(tokens.len() - 1);
        self.ran.truncate(from);
        let mut logits = Vec::new();
        for (pos, &token) in tokens.iter().enumerate().skip(from) {
            logits = (self.model.eager)(token, Pos(pos as u32)).data().to_vec();
            self.ran.push(token);
        }
        logits
    }
}

/// A sequence's tokens, those that have run and those that have not.
#[derive(Clone, Default)]
struct Plain {
    ran: Vec<Token>,
    pending: Vec<Token>,
    /// The furthest position of its first row in a step.
    stepped: usize,
}

struct Game {
    rng: Rng,
    session: Session<Vm>,
    function: Function,
    plain: BTreeMap<SequenceId, Plain>,
    compared: usize,
    refused: usize,
}

impl Game {
    fn new(name: &str, cache: Option<DType>, number: u64) -> Self {
        let folder = golden_folder().join("families").join(name);
        let mut model = load(&folder, POSITIONS);
        model.keep_caches(cache).expect("a function");
        let rows = Some(RowSchedule { most: ROWS, block: Some(2) });
        let schedule = Schedule { workers: 2, rows, cache, ..Schedule::default() };
        let verified = model.family.kernel.verified(&model.instance, Some(&schedule)).expect("a safe program");
        let options =
            Options { mode: Mode::Shuffled { seed: number }, pages: Some(PAGES.into()), ..Options::default() };
        let registry = Registry::linked().expect("instructions have unique paths");
        let vm = Vm::with(verified, &model.bindings, &registry, options).expect("a VM");
        let function = Function { model, ran: Vec::new() };
        let (rng, session) = (Rng::new(23, number), Session::new(vm));
        Self { rng, session, function, plain: BTreeMap::new(), compared: 0, refused: 0 }
    }

    fn turn(&mut self) {
        let ids: Vec<SequenceId> = self.plain.keys().copied().collect();
        let room = ids.len() < MOST_SEQUENCES;
        match (self.rng.below(100), self.rng.pick(&ids).copied()) {
            (0..6, _) | (_, None) if room => _ = self.plain.insert(self.session.add(), Plain::default()),
            (0..34, Some(id)) => self.push(id),
            (34..40, Some(id)) if room => self.fork(id),
            (40..44, Some(id)) => self.rollback(id),
            (44..47, Some(id)) => {
                self.session.drop(id).expect("it exists");
                self.plain.remove(&id);
            }
            _ => self.step(),
        }
    }

    fn push(&mut self, id: SequenceId) {
        let draft = self.rng.chance(40);
        let most = if draft { ROWS } else { 40 };
        let tokens: Vec<Token> = (0..=self.rng.below(most)).map(|_| Token(self.rng.below(128))).collect();
        let tokens = &tokens[..tokens.len().min(most as usize)];
        let pushed = if draft { self.session.push_draft(id, tokens) } else { self.session.push(id, tokens) };
        let plain = self.plain.get_mut(&id).expect("it exists");
        match pushed {
            Ok(()) => plain.pending.extend(tokens),
            Err(error) => {
                let len = plain.ran.len() + plain.pending.len() + tokens.len();
                assert_eq!(error, RowsError::Context { sequence: id, len, positions: POSITIONS });
                self.refused += 1;
            }
        }
    }

    fn fork(&mut self, id: SequenceId) {
        let plain = self.plain[&id].clone();
        let len = self.rng.below(plain.ran.len() as u32 + 1) as usize;
        match self.session.fork(id, len) {
            Ok(fork) => {
                let ran = plain.ran[..len].to_vec();
                self.plain.insert(fork, Plain { ran, pending: Vec::new(), stepped: plain.stepped });
            }
            Err(error) => self.given_back(&error, len, &plain),
        }
    }

    fn rollback(&mut self, id: SequenceId) {
        let plain = self.plain[&id].clone();
        let len = self.rng.below(plain.ran.len() as u32 + 1) as usize;
        match self.session.rollback(id, len) {
            Ok(()) => {
                let plain = self.plain.get_mut(&id).expect("it exists");
                plain.ran.truncate(len);
                plain.pending.clear();
            }
            Err(error) => self.given_back(&error, len, &plain),
        }
    }

    fn given_back(&mut self, error: &RowsError, len: usize, plain: &Plain) {
        assert!(matches!(error, RowsError::GivenBack { .. }) && len + ROLLBACK < plain.stepped, "{error}");
        self.refused += 1;
    }

    fn step(&mut self) {
        match self.session.step() {
            Err(SessionError::Rows(RowsError::Pages { .. })) => self.refused += 1,
            stepped => _ = stepped.expect("a step"),
        }
        for (&id, plain) in &mut self.plain {
            let from = plain.ran.len();
            let count = self.session.len(id).expect("it exists") - from;
            plain.ran.extend(plain.pending.drain(..count));
            if count == 0 {
                continue;
            }
            plain.stepped = plain.stepped.max(from);
            let logits: Vec<&[f32]> = self.session.all_logits(id).collect();
            for (number, found) in logits.iter().enumerate() {
                let end = plain.ran.len() - (logits.len() - 1 - number);
                assert!(self.function.after(&plain.ran[..end]) == *found, "{id} after {end} tokens");
                self.compared += 1;
            }
        }
    }
}

#[test]
fn sequences_of_every_kind_of_state_are_as_if_each_were_alone() {
    let models = [
        ("falcon3", None),
        ("gemma3", None),
        ("gemma3", Some(DType::E4M3)),
        ("lfm2", Some(DType::BF16)),
        ("phi3_window", None),
        ("olmo3", Some(DType::E4M3)),
    ];
    let mut refused = 0;
    for ((name, cache), number) in models.into_iter().zip(0..) {
        let mut game = Game::new(name, cache, number);
        for _ in 0..TURNS {
            game.turn();
        }
        for id in game.session.ids().collect::<Vec<_>>() {
            game.session.drop(id).expect("it exists");
        }
        let free = game.session.free_pages();
        println!("{name} {cache:?}: {} compared, {} refused, {free:?}", game.compared, game.refused);
        assert!(free.iter().all(|&pages| pages == PAGES), "{free:?}");
        assert!(game.compared > 60, "{name}");
        refused += game.refused;
    }
    assert!(refused > 50, "{refused}");
}
