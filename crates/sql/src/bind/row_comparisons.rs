//! Comparisons of rows that are written as such: `(a, b) < (1, 2)`, which becomes comparisons of their values.

use sqlparser::ast;

use super::Binder;
use super::assignments::row;
use super::expressions::{not, truth};
use super::literals::constant;
use super::operators::operator_name;
use crate::datum::Datum;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::records;
use crate::types::Type;

/// The values of a row in any number of parentheses.
fn values(expr: &ast::Expr) -> Option<Vec<&ast::Expr>> {
    match expr {
        ast::Expr::Nested(inner) => values(inner),
        other => row(other),
    }
}

/// The values of two rows side by side.
type Pairs = Vec<(Typed, Typed)>;

impl Binder<'_> {
    /// A test of rows. `None`: it is another expression.
    pub(super) fn test_of_rows(&mut self, expr: &ast::Expr) -> Result<Option<Typed>, SqlError> {
        let found = match expr {
            ast::Expr::BinaryOp { left, op, right } if *op != ast::BinaryOperator::Overlaps => {
                let (Some(left), Some(right)) = (values(left), values(right)) else { return Ok(None) };
                let (sign, pairs) = (operator_name(op)?, self.row_pairs(&left, &right)?);
                self.compared_rows(sign, pairs)?
            }
            ast::Expr::Between { expr, negated, low, high } => {
                let (Some(of), Some(low), Some(high)) = (values(expr), values(low), values(high)) else {
                    return Ok(None);
                };
                let (low, high) = (self.row_pairs(&of, &low)?, self.row_pairs(&of, &high)?);
                let both = [self.compared_rows(">=", low)?, self.compared_rows("<=", high)?];
                let both = Expr::And(both.into());
                if *negated { not(both) } else { both }
            }
            ast::Expr::In { expr, target: ast::InTarget::List(list), negated, .. } => {
                let Some(of) = values(expr) else { return Ok(None) };
                let Some(list) = list.iter().map(values).collect::<Option<Vec<_>>>() else { return Ok(None) };
                let equal = list.iter().map(|one| {
                    let pairs = self.row_pairs(&of, one)?;
                    self.compared_rows("=", pairs)
                });
                let any = Expr::Or(equal.collect::<Result<_, _>>()?);
                if *negated { not(any) } else { any }
            }
            ast::Expr::IsNull(inner) | ast::Expr::IsNotNull(inner) => {
                let Some(of) = values(inner) else { return Ok(None) };
                let is_null = matches!(expr, ast::Expr::IsNull(_));
                let parts = of.into_iter().map(|value| {
                    let value = self.expr(value)?;
                    let test = Expr::IsNull(Box::new(self.known(value)?.expr));
                    Ok(if is_null { test } else { not(test) })
                });
                Expr::And(parts.collect::<Result<_, SqlError>>()?)
            }
            ast::Expr::IsDistinctFrom(left, right) | ast::Expr::IsNotDistinctFrom(left, right) => {
                let (Some(left), Some(right)) = (values(left), values(right)) else { return Ok(None) };
                let differ = self.row_pairs(&left, &right)?.into_iter().map(|(left, right)| {
                    let sides = self.compared("=", vec![left, right])?.1.into_vec();
                    let sides = <[Expr; 2]>::try_from(sides).map_err(|_| SqlError::internal("a comparison of two"))?;
                    Ok(Expr::Distinct(Box::new(sides.into())))
                });
                let differ = Expr::Or(differ.collect::<Result<_, SqlError>>()?);
                if matches!(expr, ast::Expr::IsDistinctFrom(..)) { differ } else { not(differ) }
            }
            _ => return Ok(None),
        };
        Ok(Some(truth(found)))
    }

    fn row_pairs(&mut self, left: &[&ast::Expr], right: &[&ast::Expr]) -> Result<Pairs, SqlError> {
        if left.len() != right.len() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        if left.is_empty() {
            let message = "cannot compare rows of zero length";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        left.iter().zip(right).map(|(left, right)| Ok((self.expr(left)?, self.expr(right)?))).collect()
    }

    /// A comparison of two rows that are values: columns that are NULL are equal, and greater than others.
    pub(super) fn compared_values(&mut self, sign: &'static str, sides: &[Typed]) -> Result<Typed, SqlError> {
        let [left, right] = sides else { return Err(SqlError::internal("a comparison of two")) };
        let mismatch = |message: String| Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        let (one, other) = (self.shape(left.of)?, self.shape(right.of)?);
        if one.len() != other.len() {
            return mismatch("cannot compare record types with different numbers of columns".to_owned());
        }
        let mut pairs = (1..).zip(one.iter().zip(other));
        if let Some((at, ((_, one), (_, other)))) = pairs.find(|(_, ((_, one), (_, other)))| one.base != other.base) {
            let (one, other) = (one.base, other.base);
            return mismatch(format!("cannot compare dissimilar column types {one} and {other} at record column {at}"));
        }
        one.iter().try_for_each(|(_, of)| super::comparable::check_equal(of.base))?;
        let compared = Expr::Call(records::comparison(), [left.expr.clone(), right.expr.clone()].into());
        let zero = constant(Datum::Int(0), Type::Int4);
        self.apply(sign, vec![Typed::new(compared, Type::Int4), zero])
    }

    fn compared_rows(&mut self, sign: &'static str, pairs: Pairs) -> Result<Expr, SqlError> {
        let each = |binder: &mut Self, sign: &'static str, pairs: &Pairs| {
            let compared = pairs.iter().cloned().map(|(left, right)| Ok(binder.apply(sign, vec![left, right])?.expr));
            compared.collect::<Result<Box<[_]>, SqlError>>()
        };
        match sign {
            "=" => each(self, "=", &pairs).map(Expr::And),
            "<>" => each(self, "<>", &pairs).map(Expr::Or),
            "<" | "<=" | ">" | ">=" => self.ordered_rows(sign, pairs),
            other => Err(SqlError::unsupported(format!("the operator {other} of rows"))),
        }
    }

    /// The first values that are not equal decide, or are NULL. That the first ones of all are in the order, or equal, stands in front: an index may
    /// answer that. The form is flat, however many values there are.
    fn ordered_rows(&mut self, sign: &'static str, mut pairs: Pairs) -> Result<Expr, SqlError> {
        let (strict, loose) = if sign.starts_with('<') { ("<", "<=") } else { (">", ">=") };
        let Some((left, right)) = pairs.first().cloned() else { return Ok(Expr::NULL) };
        let may_be = self.apply(loose, vec![left, right])?.expr;
        let Some((left, right)) = pairs.pop() else { return Ok(Expr::NULL) };
        let otherwise = Box::new(self.apply(sign, vec![left, right])?.expr);
        let branches = pairs.into_iter().map(|(left, right)| {
            let sides = vec![left, right];
            let decides = not(Expr::Is(true, Box::new(self.equality(sides.clone())?)));
            Ok((decides, self.apply(strict, sides)?.expr))
        });
        let decided = Expr::Case { branches: branches.collect::<Result<_, SqlError>>()?, otherwise };
        Ok(Expr::And(Box::new([may_be, decided])))
    }
}
