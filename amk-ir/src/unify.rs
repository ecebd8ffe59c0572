//! Binds a signature's dims to the extents of a call's operands: for a graph, to expressions over
//! the caller's dims; for a program, to numbers.

use crate::expr::Expr;
use crate::shapes::{Bindings, is_multiple, substitute};
use crate::signature::Signature;

/// An extent of an operand, or the value of a dim parameter.
pub(crate) struct Extent {
    /// The operand's place; results follow the parameters.
    pub(crate) position: usize,
    /// The dimension; `None` for a dim parameter.
    pub(crate) dim: Option<usize>,
    /// The extent in the signature.
    pub(crate) want: Expr,
    /// The extent in the call.
    pub(crate) have: Expr,
}

/// An extent that differs from the signature's.
pub(crate) struct Unequal {
    pub(crate) extent: Extent,
    /// The extent in the signature, with the bound dims substituted.
    pub(crate) expected: Expr,
    /// Its dims: the name, the value, and the place of the operand that bound it.
    pub(crate) because: Vec<(String, Expr, usize)>,
}

/// Binds a signature's dims to the extents of a call, and compares the other extents.
pub(crate) fn unify(mut extents: Vec<Extent>) -> (Bindings, Vec<Unequal>) {
    let mut bound = Bindings::new();
    let mut origins: Vec<(String, usize)> = Vec::new();
    let mut unequal = Vec::new();
    // Bare names bind first, so that compound extents can be compared whatever the order of the
    // parameters.
    extents.sort_by_key(|extent| !matches!(extent.want, Expr::Name(_)));
    for extent in extents {
        if let Expr::Name(name) = &extent.want
            && !bound.contains_key(name)
        {
            bound.insert(name.clone(), extent.have);
            origins.push((name.clone(), extent.position));
            continue;
        }
        let expected = substitute(&extent.want, &bound);
        if !expected.same(&extent.have) {
            let mut because = Vec::new();
            extent.want.names(&mut |name| {
                let origin = origins.iter().find(|(known, _)| known == name);
                if let (Some(value), Some((_, position))) = (bound.get(name), origin) {
                    because.push((name.to_owned(), value.clone(), *position));
                }
            });
            unequal.push(Unequal { extent, expected, because });
        }
    }
    (bound, unequal)
}

/// The multiples of a signature that do not follow from the values bound to its dims and from
/// `declared`: as in the signature, and with the bound values.
pub(crate) fn broken_multiples<'s>(
    signature: &'s Signature,
    bound: &Bindings,
    declared: &[(Expr, Expr)],
) -> impl Iterator<Item = (&'s (Expr, Expr), (Expr, Expr))> {
    let multiples = signature.multiples.iter();
    let multiples = multiples.map(|rule| (rule, (substitute(&rule.0, bound), substitute(&rule.1, bound))));
    multiples.filter(|(_, (of, by))| !is_multiple(declared, of, by))
}
