//! Resolves the function behind an instruction of a program and compares calls with its signature.
//!
//! A task is a call of the function on its tiles. An argument has the extents of its tile, except
//! that a dimension in which the tile moves with the position is whole; a result has the extents of
//! the tile at the position. They must match the function's shape clause at every position and for
//! every routing: `pos` and the rows of a group are symbolic names in them.

mod form;
mod unfit;

pub use form::Form;
pub use unfit::{Misdeclared, Misfit, Unfit};

use crate::expr::Expr;
use crate::signature::{ParamKind, Signature, Span, TensorClass};
use crate::unify::{Extent, broken_multiples, unify};
use crate::{Access, DType, Instruction};
use form::Given;
use std::collections::BTreeSet;

/// A function, with the sources of its arguments and the destinations of its results in calls of an
/// instruction.
#[derive(Clone, Debug)]
pub struct Callee {
    signature: Signature,
    /// Dims that some operand of a task covers only in part.
    cut: BTreeSet<String>,
    arguments: Vec<Argument>,
    results: Vec<Place>,
}

/// The source of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// An operand.
    Operand(Place),
    /// A parameter that is a float, by its number in the call.
    Float(usize),
    /// A parameter that is an unsigned integer, by its number in the call.
    Dim(usize),
    /// The position, which is a parameter of the call too.
    Pos(usize),
}

/// An operand of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its number in the call.
    pub number: usize,
    /// The class of tensor that the function expects.
    pub class: TensorClass,
}

impl Callee {
    /// Resolves the function behind an instruction. Operands and parameters are matched by name.
    ///
    /// # Errors
    /// If the instruction is declared with operands, accesses or parameters that differ from the
    /// function's.
    pub fn new(instruction: &Instruction, signature: Signature) -> Result<Self, Misdeclared> {
        match places(instruction, &signature) {
            Some((arguments, results)) => Ok(Self { cut: cut_dims(&signature), signature, arguments, results }),
            None => Err(Misdeclared::new(instruction, &signature)),
        }
    }

    /// The function's signature.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The sources of the arguments, by parameter of the function.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Where the results go.
    pub fn results(&self) -> &[Place] {
        &self.results
    }

    /// Checks that a call fits the function: classes of operands, types of parameters, and extents
    /// that match the shape clause. The verifier refuses missing and excess operands.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn check(&self, form: &Form) -> Result<(), Box<Misfit>> {
        let mut extents = Vec::new();
        for (position, argument) in self.arguments.iter().enumerate() {
            match *argument {
                Argument::Operand(place) => self.operand(form, position, place, &mut extents)?,
                Argument::Float(number) => self.param(form, position, number, Given::Float)?,
                Argument::Pos(number) => self.param(form, position, number, Given::Pos)?,
                Argument::Dim(number) => self.dim(form, position, number, &mut extents)?,
            }
        }
        for (position, &place) in (self.arguments.len()..).zip(&self.results) {
            self.operand(form, position, place, &mut extents)?;
        }
        let (bound, unequal) = unify(extents);
        if let Some(unequal) = unequal.into_iter().next() {
            let because = unequal.because.into_iter().map(|(dim, value, at)| (dim, value, self.name(at).to_owned()));
            return Err(Box::new(Misfit::Extent {
                operand: self.name(unequal.extent.position).to_owned(),
                dim: unequal.extent.dim,
                found: unequal.extent.have,
                expected: unequal.expected,
                because: because.collect(),
            }));
        }
        match broken_multiples(&self.signature, &bound, &[]).next() {
            Some((rule, found)) => Err(Box::new(Misfit::Multiple { rule: rule.clone(), found })),
            None => Ok(()),
        }
    }

    /// An operand of the function by its place, results last.
    fn name(&self, position: usize) -> &str {
        let params = self.signature.params.iter().map(|param| param.name.as_str());
        let results = self.signature.results.iter().map(|result| result.name.as_str());
        params.chain(results).nth(position).unwrap_or_default()
    }

    fn operand(&self, form: &Form, position: usize, place: Place, out: &mut Vec<Extent>) -> Result<(), Box<Misfit>> {
        let Some(Some(tile)) = form.operands.get(place.number) else { return Ok(()) };
        let operand = || self.name(position).to_owned();
        if tile.class != Ok(place.class) {
            let (expected, found) = (place.class, tile.class);
            return Err(Box::new(Misfit::Class { operand: operand(), number: place.number, expected, found }));
        }
        let result = position.checked_sub(self.arguments.len()).and_then(|number| self.signature.results.get(number));
        let (shape, region, extents): (&[Expr], &[Span], Vec<Expr>) =
            match (result, self.signature.params.get(position)) {
                (Some(result), _) => (&result.shape, &result.region, tile.result().collect()),
                (None, Some(param)) => match &param.kind {
                    ParamKind::Tensor { shape, region, .. } => (shape, region, tile.argument().collect()),
                    ParamKind::Float | ParamKind::Dim(_) | ParamKind::Pos => return Ok(()),
                },
                (None, None) => return Ok(()),
            };
        if shape.len() != extents.len() {
            return Err(Box::new(Misfit::Rank { operand: operand(), found: extents.len(), expected: shape.to_vec() }));
        }
        for (dim, (want, have)) in shape.iter().zip(extents).enumerate() {
            let is_full = matches!(region.get(dim), None | Some(Span::Full));
            let want = if is_full { self.whole(want) } else { Some(want.clone()) };
            out.extend(want.map(|want| Extent { position, dim: Some(dim), want, have }));
        }
        Ok(())
    }

    /// The extent of a dimension that a task covers whole: a dim that tasks tile elsewhere is a
    /// different dim here. `None` if it is only part of the extent, which then is not compared.
    fn whole(&self, want: &Expr) -> Option<Expr> {
        let mut cut = false;
        want.names(&mut |name| cut |= self.cut.contains(name));
        match want {
            Expr::Name(name) if cut => Some(Expr::name(format!("whole {name}"))),
            _ => (!cut).then(|| want.clone()),
        }
    }

    fn dim(&self, form: &Form, position: usize, number: usize, out: &mut Vec<Extent>) -> Result<(), Box<Misfit>> {
        match (form.params.get(number), self.signature.params.get(position).map(|param| &param.kind)) {
            (Some(&Given::Dim(value)), Some(ParamKind::Dim(want))) => {
                out.push(Extent { position, dim: None, want: want.clone(), have: Expr::Const(value.into()) });
                Ok(())
            }
            _ => self.param(form, position, number, Given::Dim(0)),
        }
    }

    fn param(&self, form: &Form, position: usize, number: usize, expected: Given) -> Result<(), Box<Misfit>> {
        let found = form.params.get(number).copied().unwrap_or(expected);
        if found == expected {
            return Ok(());
        }
        let (expected, found) = (expected.described(), found.described());
        Err(Box::new(Misfit::Param { param: self.name(position).to_owned(), expected, found }))
    }
}

fn cut_dims(signature: &Signature) -> BTreeSet<String> {
    let params = signature.params.iter().filter_map(|param| match &param.kind {
        ParamKind::Tensor { shape, region, .. } => Some((shape, region)),
        ParamKind::Float | ParamKind::Dim(_) | ParamKind::Pos => None,
    });
    let operands = params.chain(signature.results.iter().map(|result| (&result.shape, &result.region)));
    let dims = operands.flat_map(|(shape, region)| shape.iter().zip(region));
    let mut cut = BTreeSet::new();
    for (extent, span) in dims {
        if let (Expr::Name(name), Span::Range { .. }) = (extent, span) {
            cut.insert(name.clone());
        }
    }
    cut
}

/// The sources of arguments and destinations of results; `None` if something has no place, has a
/// different access, or is left over.
fn places(instruction: &Instruction, signature: &Signature) -> Option<(Vec<Argument>, Vec<Place>)> {
    let operand = |name: &str, access: Access, class: TensorClass| {
        let number = instruction.operands.iter().position(|operand| operand.name == name)?;
        (instruction.operands[number].access == access).then_some(Place { number, class })
    };
    let scalar = |name: &str| instruction.params.iter().position(|param| param == name);
    let argument = |param: &crate::signature::ParamSig| {
        Some(match &param.kind {
            ParamKind::Tensor { class, access, .. } => Argument::Operand(operand(&param.name, *access, *class)?),
            ParamKind::Float => Argument::Float(scalar(&param.name)?),
            ParamKind::Dim(_) => Argument::Dim(scalar(&param.name)?),
            ParamKind::Pos => Argument::Pos(scalar(&param.name)?),
        })
    };
    let arguments: Vec<Argument> = signature.params.iter().map(argument).collect::<Option<_>>()?;
    let class = |dtype| if dtype == DType::U32 { TensorClass::Token } else { TensorClass::Tensor };
    let results = signature.results.iter().map(|result| operand(&result.name, Access::Write, class(result.dtype)));
    let results: Vec<Place> = results.collect::<Option<_>>()?;
    let operands = arguments.iter().filter(|argument| matches!(argument, Argument::Operand(_))).count();
    let all = (operands + results.len(), arguments.len() - operands);
    ((instruction.operands.len(), instruction.params.len()) == all).then_some((arguments, results))
}
