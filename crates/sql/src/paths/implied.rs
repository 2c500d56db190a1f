//! What follows from a condition, as far as partial indexes want to know.

use crate::expr::Expr;
use crate::plan::conjuncts;

/// Whether the condition of a computed column holds where all these parts do. Each part of it is among them, or follows from one of them alone.
pub(crate) fn is_implied(rule: &Expr, parts: &[Expr]) -> bool {
    let Expr::Case { branches, .. } = rule else { return false };
    let mut wanted = Vec::new();
    branches.iter().for_each(|(condition, _)| conjuncts(condition.clone(), &mut wanted));
    wanted.iter().all(|wanted| parts.iter().any(|part| follows(wanted, part)))
}

fn follows(wanted: &Expr, part: &Expr) -> bool {
    match wanted {
        // One alternative is enough.
        Expr::Or(alternatives) => part.is_same(wanted) || alternatives.iter().any(|it| follows(it, part)),
        Expr::Not(inner) if is_present(inner, part) => true,
        _ => part.is_same(wanted) || is_narrower(wanted, part),
    }
}

/// Whether what is said to be NULL is compared by the other condition, and so has a value.
fn is_present(wanted: &Expr, part: &Expr) -> bool {
    let (Expr::IsNull(inner), Expr::Call(function, sides)) = (wanted, part) else { return false };
    is_comparison(function.name) && function.is_strict && sides.iter().any(|side| side.is_same(inner))
}

fn is_comparison(sign: &str) -> bool {
    matches!(sign, "=" | "<" | "<=" | ">" | ">=" | "<>")
}

/// Whether both compare the same with constants, and the one leaves less than the other.
fn is_narrower(wanted: &Expr, part: &Expr) -> bool {
    let (Expr::Call(outer, wanted), Expr::Call(inner, own)) = (wanted, part) else { return false };
    let ([compared, Expr::Constant(limit)], [own, Expr::Constant(value)]) = (&**wanted, &**own) else { return false };
    let are_alike = outer.arguments == inner.arguments && is_comparison(outer.name) && compared.is_same(own);
    if !are_alike || limit.get().is_null() || value.get().is_null() {
        return false;
    }
    let order = value.get().compare(limit.get());
    match (outer.name, inner.name) {
        (">" | "<>", ">") | (">=", ">" | ">=" | "=") => order.is_ge(),
        (">", ">=" | "=") | ("<>", ">=") => order.is_gt(),
        ("<" | "<>", "<") | ("<=", "<" | "<=" | "=") => order.is_le(),
        ("<", "<=" | "=") | ("<>", "<=") => order.is_lt(),
        ("=", "=") => order.is_eq(),
        ("<>", "=") => order.is_ne(),
        _ => false,
    }
}
