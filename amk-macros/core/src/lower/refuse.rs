//! What a graph does not have, and what to write instead.

use syn::{BinOp, Expr, Item, Macro};

/// Code, headline and help for an expression.
pub(super) fn expression(expr: &Expr) -> (&'static str, String, String) {
    let (code, what, help) = match expr {
        Expr::While(_) => ("AMK0910", "`while`: its number of iterations is not known", "write `for l in 0..LAYERS`"),
        Expr::Loop(_) => ("AMK0910", "`loop`: its number of iterations is not known", "write `for l in 0..LAYERS`"),
        Expr::ForLoop(_) => ("AMK0910", "a `for` where a value is expected", "write the loop as a statement"),
        Expr::Match(_) => ("AMK0910", "`match`", "write `if w.flag { .. } else { .. }` on a `#[flag]`"),
        Expr::Return(_) => ("AMK0910", "`return`", "end the function with the result as its last expression"),
        Expr::Break(_) | Expr::Continue(_) => (
            "AMK0910",
            "`break` and `continue`: every iteration runs to its end",
            "write the loop for the iterations it needs",
        ),
        Expr::Let(_) => ("AMK0914", "`if let`", "write `if w.flag { .. } else { .. }` on a `#[flag]`"),
        Expr::Block(_) => ("AMK0910", "a labelled block", "write a plain block"),
        Expr::Closure(_) => ("AMK0911", "a closure", "write the calls out, or write an `#[instruction]`"),
        Expr::Macro(call) => {
            let (headline, help) = macro_call(&call.mac);
            return ("AMK0911", headline, help);
        }
        Expr::MethodCall(call) => {
            let headline = format!("a method call: the macro cannot see what `.{}()` is", call.method);
            let help = match call.method.to_string().as_str() {
                "clone" | "to_owned" | "as_ref" | "borrow" => "pass a reference: `&x`".to_owned(),
                "iter" | "iter_mut" | "zip" | "enumerate" => "write it in the head of a `for`".to_owned(),
                method => format!("call an instruction as a function: `{method}(&x, ..)`"),
            };
            return ("AMK0911", headline, help);
        }
        Expr::Try(_) => ("AMK0911", "`?`: ops do not fail", "remove `?`; load what can fail before the step"),
        Expr::Cast(_) => ("AMK0911", "a cast", "pass a `#[dim]` or a `#[param]` of the right type"),
        Expr::Struct(_) => ("AMK0911", "a struct literal", "use tuples and variables"),
        Expr::Array(_) | Expr::Repeat(_) => ("AMK0911", "an array", "use tuples and variables"),
        Expr::Range(_) => {
            ("AMK0911", "a range where a tensor or a number is expected", "write ranges in the head of a `for`")
        }
        Expr::Unsafe(_) => ("AMK0911", "`unsafe`", "keep unsafe code in the instructions"),
        Expr::Async(_) | Expr::Await(_) => ("AMK0911", "`async`", "write the call itself; waits are derived"),
        Expr::Assign(_) => ("AMK0911", "an assignment where a value is expected", "write it as a statement"),
        Expr::Binary(binary) if is_compound(&binary.op) => {
            ("AMK0917", "a compound assignment", "call an instruction: `x = add(&x, &y);`")
        }
        _ => {
            ("AMK0911", "an expression that a graph does not have", "use `let`, calls of instructions, `for` and `if`")
        }
    };
    (code, what.to_owned(), help.to_owned())
}

/// Headline and help for an item in the body.
pub(super) fn item(item: &Item) -> (String, String) {
    let (what, help) = match item {
        Item::Use(_) => {
            ("`use` inside the function: the macro resolves names outside of it", "move it out of the function")
        }
        Item::Const(_) => ("a constant inside the function", "add it to `dims(..)` and its value to each instance"),
        Item::Fn(_) => ("a function inside the function", "move it out and give it `#[instruction(..)]`"),
        _ => ("an item inside the function", "move it out of the function"),
    };
    (what.to_owned(), help.to_owned())
}

/// Headline and help for the call of a macro.
pub(super) fn macro_call(call: &Macro) -> (String, String) {
    let name = crate::chain::key(&call.path);
    let headline = format!("the macro `{name}!`, whose code the graph cannot see");
    (headline, "remove it; to look at values call the function eagerly in a test".to_owned())
}

fn is_compound(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_) | BinOp::RemAssign(_)
    )
}
