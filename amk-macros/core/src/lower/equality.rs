//! `where(KV == KV_HEADS * HEAD_DIM)`: the graph has the right side wherever the function's types
//! have the left.

use crate::parse::fact::Equality;
use amk_ir::expr::Expr;
use amk_ir::layout::{FieldKind, Layout};

/// The expression with declared equalities put in.
pub(super) fn expr(expr: &Expr, equalities: &[Equality]) -> Expr {
    equalities.iter().fold(expr.clone(), |expr, equality| {
        expr.substitute(&|name| (name == equality.dim).then(|| equality.value.clone()))
    })
}

/// The layout with declared equalities put in.
pub(super) fn layout(from: &Layout, equalities: &[Equality]) -> Layout {
    if equalities.is_empty() {
        return from.clone();
    }
    let mut layout = from.clone();
    visit(&mut layout, &mut |size| *size = expr(size, equalities));
    layout
}

/// Calls `each` with every expression in a layout.
pub(super) fn visit(layout: &mut Layout, each: &mut dyn FnMut(&mut Expr)) {
    for field in &mut layout.fields {
        match &mut field.kind {
            FieldKind::Weight { shape, .. } | FieldKind::State { shape } | FieldKind::Table { shape } => {
                shape.iter_mut().for_each(&mut *each);
            }
            FieldKind::Dim(size) => each(size),
            FieldKind::Struct(inner) => visit(inner, each),
            FieldKind::List { layout, length } => {
                each(length);
                visit(layout, each);
            }
            FieldKind::Param | FieldKind::Flag => {}
        }
    }
}
