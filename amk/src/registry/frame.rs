//! The arguments and results of one call of an instruction.

use crate::tensor::{Pos, State, Tensor, Token, Weight};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// The arguments of one call by parameter number, and its results by result number.
///
/// The function that `#[instruction]` generates takes each argument out once, calls the
/// instruction, and stores the results. It may rely on the numbers and types of the signature,
/// which were checked when the frame was made.
pub struct Frame<'a> {
    arguments: Vec<Argument<'a>>,
    results: Vec<Option<Output>>,
}

/// An argument.
pub enum Argument<'a> {
    /// An activation.
    Tensor(Tensor),
    /// A weight.
    Weight(&'a Weight),
    /// A state.
    State(State),
    /// A token id.
    Token(Token),
    /// A float parameter.
    Float(f32),
    /// A dim parameter.
    Dim(usize),
    /// The position.
    Pos(Pos),
    /// Taken out before.
    Taken,
}

/// A result.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// A tensor.
    Tensor(Tensor),
    /// A token id.
    Token(Token),
}

impl From<Tensor> for Output {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<Token> for Output {
    fn from(token: Token) -> Self {
        Self::Token(token)
    }
}

/// A view that lives as long as the call.
#[derive(Debug)]
pub struct Handle<'a, T> {
    value: T,
    call: PhantomData<&'a ()>,
}

impl<T> Deref for Handle<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

// Only for states: swapping a tensor's view out of its handle would outlive the call, a state
// shares its memory's ownership.
impl DerefMut for Handle<'_, State> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.value
    }
}

impl<'a> Frame<'a> {
    /// A frame for a call with these arguments and number of results.
    pub(crate) fn new() -> Self {
        Self { arguments: Vec::new(), results: Vec::new() }
    }

    /// Puts in the next argument.
    pub(crate) fn push(&mut self, argument: Argument<'a>) {
        self.arguments.push(argument);
    }

    /// The arguments that are in it.
    pub(crate) fn arguments(&self) -> &[Argument<'a>] {
        &self.arguments
    }

    /// Result number `number`, once.
    pub(crate) fn take_result(&mut self, number: usize) -> Option<Output> {
        self.results.get_mut(number).and_then(Option::take)
    }

    /// Forgets arguments and results.
    pub(crate) fn clear(&mut self) {
        self.arguments.clear();
        self.results.clear();
    }

    fn take(&mut self, number: usize) -> Argument<'a> {
        self.arguments.get_mut(number).map_or(Argument::Taken, |argument| core::mem::replace(argument, Argument::Taken))
    }

    /// Takes the tensor of parameter `number`.
    ///
    /// # Panics
    /// If the parameter is not a tensor or was taken before, as for the other accessors.
    pub fn tensor(&mut self, number: usize) -> Handle<'a, Tensor> {
        match self.take(number) {
            Argument::Tensor(value) => Handle { value, call: PhantomData },
            other => other.refuse(number, "a tensor"),
        }
    }

    /// Takes the weight of parameter `number`.
    pub fn weight(&mut self, number: usize) -> &'a Weight {
        match self.take(number) {
            Argument::Weight(weight) => weight,
            other => other.refuse(number, "a weight"),
        }
    }

    /// Takes the state that parameter `number` reads.
    pub fn state(&mut self, number: usize) -> Handle<'a, State> {
        self.state_mut(number)
    }

    /// Takes the state that parameter `number` writes.
    pub fn state_mut(&mut self, number: usize) -> Handle<'a, State> {
        match self.take(number) {
            Argument::State(value) => Handle { value, call: PhantomData },
            other => other.refuse(number, "a state"),
        }
    }

    /// Takes the token of parameter `number`.
    pub fn token(&mut self, number: usize) -> Token {
        match self.take(number) {
            Argument::Token(token) => token,
            other => other.refuse(number, "a token"),
        }
    }

    /// Takes the float of parameter `number`.
    pub fn float(&mut self, number: usize) -> f32 {
        match self.take(number) {
            Argument::Float(value) => value,
            other => other.refuse(number, "a float"),
        }
    }

    /// Takes the dim of parameter `number`.
    pub fn dim(&mut self, number: usize) -> usize {
        match self.take(number) {
            Argument::Dim(value) => value,
            other => other.refuse(number, "a dim"),
        }
    }

    /// The position of the step.
    pub fn pos(&self) -> Pos {
        let position = |argument: &Argument<'_>| match argument {
            Argument::Pos(pos) => Some(*pos),
            _ => None,
        };
        self.arguments.iter().find_map(position).unwrap_or_default()
    }

    /// Stores result `number`.
    pub fn result(&mut self, number: usize, value: impl Into<Output>) {
        if self.results.len() <= number {
            self.results.resize_with(number + 1, || None);
        }
        self.results[number] = Some(value.into());
    }
}

impl Argument<'_> {
    fn refuse(&self, number: usize, wanted: &str) -> ! {
        let found = match self {
            Self::Tensor(_) => "a tensor",
            Self::Weight(_) => "a weight",
            Self::State(_) => "a state",
            Self::Token(_) => "a token",
            Self::Float(_) => "a float",
            Self::Dim(_) => "a dim",
            Self::Pos(_) => "the position",
            Self::Taken => "nothing",
        };
        panic!("parameter {number} is {found}, not {wanted}: the entry does not fit its signature")
    }
}
