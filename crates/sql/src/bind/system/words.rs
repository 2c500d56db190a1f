//! Expressions of indexes as PostgreSQL shows them: each operator in parentheses.

use sqlparser::ast::{self, Expr};

use super::quoted;
use crate::bind::{column_type, folded};

/// An expression in words. What is not known here stays as it was written.
pub(super) fn expression_in_words(text: &str) -> String {
    crate::parse::expression(text).map_or_else(|_| text.to_owned(), |expr| words(&expr))
}

/// A condition in words, with parentheses around it.
pub(super) fn condition_in_words(text: &str) -> String {
    let shown = expression_in_words(text);
    if shown.starts_with('(') && shown.ends_with(')') { shown } else { format!("({shown})") }
}

/// The same without the parentheses around it.
pub(super) fn unwrapped(shown: &str) -> &str {
    shown.strip_prefix('(').and_then(|it| it.strip_suffix(')')).unwrap_or(shown)
}

/// An expression as it was written, without the parentheses around it.
pub(super) fn peeled(text: &str) -> std::borrow::Cow<'_, str> {
    let Ok(mut expr @ Expr::Nested(_)) = crate::parse::expression(text) else { return text.into() };
    while let Expr::Nested(inner) = expr {
        expr = *inner;
    }
    expr.to_string().into()
}

fn words(expr: &Expr) -> String {
    match expr {
        Expr::Nested(inner) => words(inner),
        Expr::Identifier(name) => quoted(&folded(name)),
        Expr::BinaryOp { op: op @ (ast::BinaryOperator::And | ast::BinaryOperator::Or), .. } => {
            let mut parts = Vec::new();
            operands(expr, op, &mut parts);
            format!("({})", parts.join(&format!(" {op} ")))
        }
        Expr::BinaryOp { left, op, right } => format!("({} {} {})", words(left), sign(op), words(right)),
        Expr::UnaryOp { op: ast::UnaryOperator::Not, expr } => format!("(NOT {})", words(expr)),
        Expr::UnaryOp { op, expr } => format!("({op} {})", words(expr)),
        Expr::IsNull(inner) => format!("({} IS NULL)", words(inner)),
        Expr::IsNotNull(inner) => format!("({} IS NOT NULL)", words(inner)),
        Expr::IsTrue(inner) => format!("({} IS TRUE)", words(inner)),
        Expr::IsNotTrue(inner) => format!("({} IS NOT TRUE)", words(inner)),
        Expr::IsFalse(inner) => format!("({} IS FALSE)", words(inner)),
        Expr::IsNotFalse(inner) => format!("({} IS NOT FALSE)", words(inner)),
        Expr::Cast { expr: inner, data_type, .. } => match column_type(data_type) {
            Ok(of) if is_text(inner) => format!("{inner}::{of}"),
            Ok(of) => format!("({})::{of}", words(inner)),
            Err(_) => expr.to_string(),
        },
        Expr::Function(function) => {
            let ast::FunctionArguments::List(list) = &function.args else { return expr.to_string() };
            let plain = list.args.iter().map(|argument| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(inner)) => Some(words(inner)),
                _ => None,
            });
            let is_plain = list.clauses.is_empty() && list.duplicate_treatment.is_none();
            match plain.collect::<Option<Vec<_>>>().filter(|_| is_plain) {
                Some(arguments) => format!("{}({})", function.name.to_string().to_lowercase(), arguments.join(", ")),
                None => expr.to_string(),
            }
        }
        other => other.to_string(),
    }
}

/// Whether an expression is a text in quotes.
fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, ast::Value::SingleQuotedString(_)))
}

/// A default in words: a text that is cast shows its type by its own name. `own` is that of the column's type, where it is an enum.
pub(super) fn cast_text_in_words(text: &str, own: impl FnOnce() -> Option<String>) -> Option<String> {
    match crate::parse::expression(text).ok()? {
        Expr::Cast { expr, data_type, .. } if is_text(&expr) => {
            let of = column_type(&data_type).ok().map(|of| of.to_string()).or_else(own)?;
            Some(format!("{expr}::{of}"))
        }
        _ => None,
    }
}

/// What a chain of one connective connects.
fn operands(expr: &Expr, by: &ast::BinaryOperator, parts: &mut Vec<String>) {
    match expr {
        Expr::BinaryOp { left, op, right } if op == by => {
            operands(left, by, parts);
            operands(right, by, parts);
        }
        Expr::Nested(inner) if matches!(&**inner, Expr::BinaryOp { op, .. } if op == by) => operands(inner, by, parts),
        other => parts.push(words(other)),
    }
}

fn sign(op: &ast::BinaryOperator) -> String {
    if *op == ast::BinaryOperator::NotEq { "<>".to_owned() } else { op.to_string() }
}
