//! Rust constructs that a graph lacks, and their replacements.

use crate::chain::key;
use crate::diag::Diagnostic;
use crate::parse::callee::{Callee, not_an_instruction};
use syn::{BinOp, Expr, Item, Macro, Path};

/// Code, headline and help for an expression.
pub(super) fn expression(expr: &Expr) -> (&'static str, String, String) {
    let (code, what, help) = match expr {
        Expr::While(_) => {
            ("AMK0910", "the graph cannot know how often a `while` loop runs", "write `for l in 0..w.layers.len()`")
        }
        Expr::Loop(_) => {
            ("AMK0910", "the graph cannot know how often a `loop` runs", "write `for l in 0..w.layers.len()`")
        }
        Expr::ForLoop(_) => ("AMK0910", "a `for` loop has no value to use here", "write the loop as a statement"),
        Expr::Match(_) => (
            "AMK0910",
            "a graph has no `match`: flags decide which calls run",
            "write `if w.flag { .. } else { .. }` on a `#[flag]`",
        ),
        Expr::Return(_) => (
            "AMK0910",
            "a megakernel has no early `return`: every step runs all of the graph",
            "end the function with the result as its last expression",
        ),
        Expr::Break(_) | Expr::Continue(_) => (
            "AMK0910",
            "a megakernel has no `break` or `continue`: every iteration runs to its end",
            "write the loop for the iterations it needs",
        ),
        Expr::Let(_) => (
            "AMK0914",
            "a graph has no `if let`: flags decide which calls run",
            "write `if w.flag { .. } else { .. }` on a `#[flag]`",
        ),
        Expr::Block(_) => ("AMK0910", "a labelled block has no use without `break`", "remove the label"),
        Expr::Closure(_) => (
            "AMK0911",
            "the graph cannot see what a closure does",
            "write its calls where it is called, or make it a function with `#[instruction(..)]`",
        ),
        Expr::Macro(call) => {
            let (headline, help) = macro_call(&call.mac);
            return ("AMK0911", headline, help);
        }
        Expr::MethodCall(call) => {
            let headline = format!("the macro cannot see what the method `.{}()` does", call.method);
            let help = match call.method.to_string().as_str() {
                "clone" | "to_owned" | "as_ref" | "borrow" => "pass a reference: `&x`".to_owned(),
                "iter" | "iter_mut" | "zip" | "enumerate" => "write it in the head of a `for`".to_owned(),
                method => format!("call an instruction as a function: `{method}(&x, ..)`"),
            };
            return ("AMK0911", headline, help);
        }
        Expr::Try(_) => (
            "AMK0911",
            "a step cannot end early with `?`: instructions do not fail",
            "remove `?`, and do what can fail before the step",
        ),
        Expr::Cast(_) => {
            ("AMK0911", "a graph does not convert numbers", "pass a `#[dim]` or a `#[param]` of the right type")
        }
        Expr::Struct(_) => ("AMK0911", "a graph does not make structs", "use tuples and variables"),
        Expr::Array(_) | Expr::Repeat(_) => ("AMK0911", "a graph does not make arrays", "use tuples and variables"),
        Expr::Range(_) => {
            ("AMK0911", "a range stands in the head of a `for` loop only", "write `for l in 0..w.layers.len()`")
        }
        Expr::Unsafe(_) => ("AMK0911", "a megakernel takes no `unsafe` block", "keep unsafe code in the instructions"),
        Expr::Async(_) | Expr::Await(_) => {
            ("AMK0911", "a graph has no `async`: what waits for what is derived", "write the call itself")
        }
        Expr::Assign(_) => ("AMK0911", "an assignment has no value to use here", "write it as a statement"),
        Expr::Binary(binary) if is_compound(&binary.op) => {
            ("AMK0917", "a graph has no compound assignment", "call an instruction: `x = add(&x, &y);`")
        }
        _ => ("AMK0911", "a graph does not have this expression", "use `let`, calls of instructions, `for` and `if`"),
    };
    (code, what.to_owned(), help.to_owned())
}

/// Headline and help for an item in the body.
pub(super) fn item(item: &Item) -> (String, String) {
    let (what, help) = match item {
        Item::Use(_) => (
            "the macro resolves names outside of the function, where this `use` is not seen",
            "move it out of the function",
        ),
        Item::Const(_) => {
            ("the macro cannot see the value of a constant", "add it to `dims(..)` and its value to each instance")
        }
        Item::Fn(_) => (
            "a graph calls no function that is inside the annotated one",
            "move it out and give it `#[instruction(..)]`",
        ),
        _ => ("a graph has no items", "move it out of the function"),
    };
    (what.to_owned(), help.to_owned())
}

/// Reports a call whose tokens alone show that it is not an instruction's.
pub(super) fn callee(kind: Callee, path: &Path) -> Diagnostic {
    let name = key(path);
    let (headline, help) = match kind {
        Callee::Variable => (
            format!("`{name}` is a variable here, and the graph cannot see what it calls"),
            "call an instruction by its name; where a variable hides it, rename the variable",
        ),
        Callee::Itself => (
            format!("`{name}` calls itself: a graph has no recursion"),
            "write a loop with a known number of rounds: `for l in 0..w.layers.len() { .. }`",
        ),
        Callee::Constructor => (
            format!("`{name}` makes a value that a graph does not have"),
            "pass the tensors themselves, by tuples and variables; for variants write `if` on a `#[flag]`",
        ),
        Callee::Associated => (
            format!("`{name}` is a function of a type, which cannot be an instruction"),
            "write a separate function with `#[instruction(..)]` and call it",
        ),
        Callee::Function => return not_an_instruction(path),
    };
    Diagnostic::new("AMK0911", path, headline, help)
}

/// Headline and help for the call of a macro.
pub(super) fn macro_call(call: &Macro) -> (String, String) {
    let name = crate::chain::key(&call.path);
    let headline = format!("the graph cannot see what the macro `{name}!` does");
    (headline, "remove it; to inspect values, call the function eagerly in a test".to_owned())
}

fn is_compound(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_) | BinOp::RemAssign(_)
    )
}
