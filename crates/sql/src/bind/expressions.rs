//! Expressions.

use sqlparser::ast::{self, BinaryOperator as Sign, UnaryOperator};

use super::assignments::row;
use super::blanks::{passed_on, see_blanks, with_blanks};
use super::literals::{beyond_numerics, constant};
use super::operators::operator_name;
use super::subqueries::query_of;
use super::{Binder, folded};
use crate::asked::Asked;
use crate::casts::{self, Cast, Place};
use crate::context::Context;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Typed};
use crate::functions::{self, Function, Volatility};
use crate::sequences::Draw;
use crate::text::Zone;
use crate::types::{Bound, Category, ColumnType, Type};

impl Binder<'_> {
    /// An expression, of a type that may still be unknown.
    pub(crate) fn expr(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        self.expr_anywhere(expr).map_err(|error| super::places::of_name(error, expr))
    }

    fn expr_anywhere(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        if let Some(test) = self.test_of_rows(expr)? {
            return Ok(test);
        }
        match expr {
            ast::Expr::Identifier(name) if name.quote_style.is_none() && is_function(&folded(name)) => {
                self.plain_call(&folded(name), Vec::new())
            }
            ast::Expr::Identifier(name) => match self.named_column(None, name) {
                Err(error) if error.state() == SqlState::UNDEFINED_COLUMN => {
                    self.whole_row(&folded(name))?.ok_or(error)
                }
                found => found,
            },
            ast::Expr::CompoundIdentifier(parts) => match &parts[..] {
                [table, name] => self.named_column(Some((&*folded(table)).into()), name),
                [schema, table, name] => self.column_of_schema(&folded(schema), &folded(table), &folded(name)),
                _ => Err(SqlError::unsupported(format!("the name {expr}"))),
            },
            ast::Expr::Value(value) => self.literal(&value.value),
            ast::Expr::Nested(inner) => self.expr(inner),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::UnaryOp { op, expr } => self.unary(op, expr),
            ast::Expr::In { expr, target: ast::InTarget::List(list), negated, .. } => {
                self.in_list(expr, list, *negated)
            }
            ast::Expr::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            ast::Expr::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
            } => {
                let to = self.catalog.column_type(data_type)?;
                let inner = match &**expr {
                    ast::Expr::Array(array) => self.array(&array.elem, Some(to.base))?,
                    expr => self.expr(expr)?,
                };
                self.cast(inner, to, Place::Explicit)
            }
            ast::Expr::Array(array) => self.array(&array.elem, None),
            ast::Expr::Tuple(_) | ast::Expr::Function(_) if let Some(values) = row(expr) => self.written_row(&values),
            ast::Expr::CompoundFieldAccess { root, access_chain } => self.subscripts(root, access_chain),
            ast::Expr::TypedString(typed) => {
                let inner = self.literal(&typed.value.value)?;
                self.cast(inner, self.catalog.column_type(&typed.data_type)?, Place::Explicit)
            }
            ast::Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            ast::Expr::Function(function) => self.function(function),
            other => self.test(other),
        }
    }

    /// Tests and subqueries.
    fn test(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match expr {
            ast::Expr::IsNull(inner) | ast::Expr::IsNotNull(inner) => {
                let (inner, is_null) = (self.expr(inner)?, matches!(expr, ast::Expr::IsNull(_)));
                if inner.base() == Type::Record {
                    return self.row_test(&inner, is_null);
                }
                let test = Expr::IsNull(Box::new(self.known(inner)?.expr));
                Ok(truth(if is_null { test } else { not(test) }))
            }
            ast::Expr::IsTrue(inner) => self.is(inner, "IS TRUE", |it| Expr::Is(true, it)),
            ast::Expr::IsNotTrue(inner) => self.is(inner, "IS NOT TRUE", |it| not(Expr::Is(true, it))),
            ast::Expr::IsFalse(inner) => self.is(inner, "IS FALSE", |it| Expr::Is(false, it)),
            ast::Expr::IsNotFalse(inner) => self.is(inner, "IS NOT FALSE", |it| not(Expr::Is(false, it))),
            ast::Expr::IsUnknown(inner) => self.is(inner, "IS UNKNOWN", Expr::IsNull),
            ast::Expr::IsNotUnknown(inner) => self.is(inner, "IS NOT UNKNOWN", |it| not(Expr::IsNull(it))),
            ast::Expr::IsDistinctFrom(left, right) => self.distinct(left, right).map(truth),
            ast::Expr::IsNotDistinctFrom(left, right) => self.distinct(left, right).map(|it| truth(not(it))),
            ast::Expr::In { expr, target: ast::InTarget::Subquery(query), negated, .. } => {
                let found = self.any_of(expr, ("=", false), query)?;
                Ok(if *negated { truth(not(found.expr)) } else { found })
            }
            ast::Expr::Exists { subquery, negated } => self.exists(subquery, *negated),
            ast::Expr::Subquery(query) => self.scalar(query),
            ast::Expr::AnyOp { left, compare_op, right, .. } | ast::Expr::AllOp { left, compare_op, right } => {
                let needs_all = matches!(expr, ast::Expr::AllOp { .. });
                let sign = operator_name(compare_op)?;
                match query_of(right) {
                    Some(query) => self.any_of(left, (sign, needs_all), query),
                    None => self.any_of_array(left, (sign, needs_all), right),
                }
            }
            other => self.special(other),
        }
    }

    /// What has a syntax of its own and is a function.
    fn special(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match expr {
            ast::Expr::Extract { field, expr, .. } => {
                let (field, of) = (field.to_string().to_lowercase(), self.expr(expr)?);
                let field = Typed::new(Expr::Constant(OwnedDatum::Text(field.into())), Type::Text);
                self.call("extract", vec![field, of])
            }
            ast::Expr::Ceil { expr, field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                let inner = self.expr(expr)?;
                self.call("ceil", vec![inner])
            }
            ast::Expr::Floor { expr, field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                let inner = self.expr(expr)?;
                self.call("floor", vec![inner])
            }
            ast::Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = vec![self.expr(expr)?, self.expr(overlay_what)?, self.expr(overlay_from)?];
                overlay_for.iter().try_for_each(|count| self.expr(count).map(|count| arguments.push(count)))?;
                self.call("overlay", arguments)
            }
            ast::Expr::Position { expr, r#in } => {
                let (part, of) = (self.expr(expr)?, self.expr(r#in)?);
                self.call("strpos", vec![of, part])
            }
            ast::Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expr(expr)?];
                match substring_from {
                    Some(from) => arguments.push(self.expr(from)?),
                    None => arguments.push(constant(Datum::Int(1), Type::Int4)),
                }
                substring_for.iter().try_for_each(|count| self.expr(count).map(|count| arguments.push(count)))?;
                self.call("substring", arguments)
            }
            ast::Expr::Trim { expr, trim_where, trim_what, trim_characters } => {
                let mut arguments = vec![self.expr(expr)?];
                let set = trim_what.as_deref().or_else(|| trim_characters.as_ref().and_then(|it| it.first()));
                set.iter().try_for_each(|set| self.expr(set).map(|set| arguments.push(set)))?;
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                self.call(name, arguments)
            }
            other => self.pattern_or_time(other),
        }
    }

    /// The expression as one of a type: text where nothing told.
    pub(crate) fn known(&mut self, typed: Typed) -> Result<Typed, SqlError> {
        if typed.base() == Type::Unknown { self.cast(typed, Type::Text.into(), Place::Implicit) } else { Ok(typed) }
    }

    fn is(&mut self, inner: &ast::Expr, place: &str, of: impl FnOnce(Box<Expr>) -> Expr) -> Result<Typed, SqlError> {
        if matches!(inner, ast::Expr::IsDistinctFrom(..) | ast::Expr::IsNotDistinctFrom(..)) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"IS\""));
        }
        Ok(truth(of(Box::new(self.condition(inner, place)?))))
    }

    /// An expression that must be true or false.
    pub(crate) fn condition(&mut self, expr: &ast::Expr, place: &str) -> Result<Expr, SqlError> {
        let inner = self.expr(expr)?;
        let base = inner.base();
        if !matches!(base, Type::Bool | Type::Unknown) {
            let message = format!("argument of {place} must be type boolean, not type {base}");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        }
        Ok(self.cast(inner, Type::Bool.into(), Place::Implicit)?.expr)
    }

    fn binary(&mut self, left: &ast::Expr, sign: &Sign, right: &ast::Expr) -> Result<Typed, SqlError> {
        let name = match sign {
            Sign::And | Sign::Or => {
                let place = if *sign == Sign::And { "AND" } else { "OR" };
                // A long chain leans to the left, and is taken apart without going down.
                let (mut operands, mut left) = (vec![right], left);
                while let ast::Expr::BinaryOp { left: one, op, right: other } = left
                    && op == sign
                {
                    operands.push(other);
                    left = one;
                }
                operands.push(left);
                let parts = operands.into_iter().rev().map(|operand| self.condition(operand, place));
                let parts: Box<[_]> = parts.collect::<Result<_, _>>()?;
                return Ok(truth(if *sign == Sign::And { Expr::And(parts) } else { Expr::Or(parts) }));
            }
            Sign::StringConcat => return self.concatenation(left, right),
            Sign::Overlaps => return self.overlaps(left, right),
            Sign::Custom(name) if name == "->-" || name == "->>-" => {
                // The minus is that of the number.
                let sign = if name == "->-" { "->" } else { "->>" };
                let negated = ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(right.clone()) };
                return self.operator(sign, &[left, &negated]);
            }
            sign => operator_name(sign)?,
        };
        self.operator(name, &[left, right])
    }

    /// `||` takes anything that has a text on one of its sides.
    fn concatenation(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<Typed, SqlError> {
        let mut sides = [self.expr(left)?, self.expr(right)?];
        let is_text = |it: &Typed| matches!(it.base().category(), Category::Text | Category::Unknown);
        let texts = sides.iter().filter(|it| is_text(it)).count();
        let is_own = |it: &Typed| match it.base() {
            Type::Bytea | Type::Array(_) | Type::Int2vector | Type::Oidvector => true,
            Type::Jsonb => sides.iter().any(|it| it.base() == Type::Unknown),
            _ => false,
        };
        if texts == 1 && !sides.iter().any(is_own) {
            sides = sides.map(|it| if is_text(&it) { it } else { written(it) });
        }
        let [left, right] = sides;
        self.apply("||", vec![left, right])
    }

    fn unary(&mut self, sign: &UnaryOperator, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match sign {
            UnaryOperator::Not => Ok(truth(not(self.condition(expr, "NOT")?))),
            UnaryOperator::Minus => {
                // A number and its sign are one constant: the least integer would be out of range without.
                if let Some(digits) = constant_number(expr) {
                    return self.literal(&ast::Value::Number(negative(digits), false));
                }
                self.operator("-", &[expr])
            }
            UnaryOperator::Plus => self.operator("+", &[expr]),
            UnaryOperator::PGAbs => self.expr(expr).and_then(|of| self.call("abs", vec![of])),
            UnaryOperator::PGSquareRoot => self.expr(expr).and_then(|of| self.root("sqrt", of)),
            UnaryOperator::PGCubeRoot => self.expr(expr).and_then(|of| self.root("cbrt", of)),
            UnaryOperator::BitwiseNot => self.expr(expr).and_then(|of| self.complement(of)),
            other => Err(SqlError::unsupported(format!("the operator {other}"))),
        }
    }

    fn operator(&mut self, sign: &'static str, sides: &[&ast::Expr]) -> Result<Typed, SqlError> {
        let sides = sides.iter().map(|side| self.expr(side)).collect::<Result<_, _>>()?;
        self.apply(sign, sides)
    }

    pub(super) fn apply(&mut self, sign: &'static str, mut sides: Vec<Typed>) -> Result<Typed, SqlError> {
        see_blanks(sign, &mut sides);
        let types: Vec<_> = sides.iter().map(Typed::base).collect();
        if types == [Type::Record, Type::Record] {
            return self.compared_values(sign, &sides);
        }
        let found = functions::resolve(sign, &types).map_err(|why| functions::no_operator(sign, &types, why))?;
        self.invoke(found, sides)
    }

    pub(super) fn call(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        see_blanks(name, &mut arguments);
        let types: Vec<_> = arguments.iter().map(Typed::base).collect();
        let found = functions::resolve(name, &types).map_err(|why| functions::no_function(name, &types, why))?;
        self.invoke(found, arguments)
    }

    fn invoke(&mut self, function: &'static Function, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let (arguments, result) = self.fitted(function, arguments)?;
        self.note_call(function);
        Ok(Typed::new(fold(Expr::Call(function, arguments), function.volatility()), result))
    }

    /// A question to the session.
    pub(super) fn question(&mut self, asked: Asked, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let (name, types) = (asked.name(), arguments.iter().map(Typed::base).collect::<Vec<_>>());
        let found = functions::resolve(name, &types).map_err(|why| functions::no_function(name, &types, why))?;
        let (arguments, result) = self.fitted(found, arguments)?;
        Ok(Typed::new(self.drawing(Draw::Asked(asked), arguments), result))
    }

    /// The arguments as a function takes them, and its result.
    fn fitted(&mut self, function: &Function, arguments: Vec<Typed>) -> Result<(Box<[Expr]>, ColumnType), SqlError> {
        let types: Vec<_> = arguments.iter().map(Typed::base).collect();
        let element = function.element(&types).ok().flatten();
        if element.is_none() && function.is_polymorphic() {
            let message = "could not determine polymorphic type because input has type unknown";
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        }
        let concrete = |of: Type| match of {
            Type::AnyArray => {
                element.and_then(Type::array).ok_or_else(|| SqlError::unsupported("an array of such values"))
            }
            Type::AnyElement | Type::AnyEnum => Ok(element.unwrap_or(of)),
            of => Ok(of),
        };
        let result = passed_on(function, &arguments, concrete(function.result)?);
        let with_types = arguments.into_iter().zip(function.arguments);
        // A function of texts takes those that have a bound as they are.
        let casts =
            with_types.map(|(argument, of)| Ok(self.cast(argument, concrete(*of)?.into(), Place::Implicit)?.expr));
        Ok((casts.collect::<Result<_, SqlError>>()?, result))
    }

    /// The expression as one of another type, where that may be.
    pub(crate) fn cast(&mut self, typed: Typed, to: ColumnType, place: Place) -> Result<Typed, SqlError> {
        let from = typed.base();
        if let (Expr::Parameter(number), Type::Unknown) = (&typed.expr, from) {
            // The parameter is of this type from here on.
            let known = &mut self.parameters[*number];
            match *known {
                Type::Unknown => *known = to.base,
                of if of != to.base => {
                    let typed = Typed::new(typed.expr, of);
                    return self.cast(typed, to, Place::Explicit);
                }
                _ => {}
            }
            return Ok(bounded(Typed::new(typed.expr, to.base), to, place));
        }
        if let Some(named) = self.named_cast(&typed, to)? {
            return Ok(named);
        }
        let Some(cast) = casts::find(from, to.base, place) else {
            let message = match place {
                Place::Explicit => format!("cannot cast type {from} to {}", to.base),
                _ => format!("value is of type {from} where one of type {} is needed", to.base),
            };
            let state = if place == Place::Explicit { SqlState::CANNOT_COERCE } else { SqlState::DATATYPE_MISMATCH };
            return Err(SqlError::new(state, message));
        };
        self.note_cast(cast, &typed.expr, (from, to.base));
        let to = if to.bound == Bound::None { typed.of.passed_on(to.base) } else { to };
        let typed = if matches!(cast, Cast::Write(_)) { with_blanks(typed) } else { typed };
        let beyond = beyond_numerics(&typed.expr).filter(|_| matches!(to.base, Type::Float4 | Type::Float8));
        let expr = match (cast, &typed.expr) {
            _ if let Some(digits) = beyond => read_constant(to.base, digits)?,
            (Cast::Same, _) => typed.expr,
            (Cast::Read(of), Expr::Constant(OwnedDatum::Text(text))) if !is_of_clock(of) => read_constant(of, text)?,
            (cast, _) => fold(Expr::Cast(cast, Box::new(typed.expr)), volatility_of(from, to.base)),
        };
        if typed.of == to {
            return Ok(Typed { expr, of: to });
        }
        Ok(bounded(Typed::new(expr, to.base), to, place))
    }

    /// A cast between object ids and names.
    fn named_cast(&mut self, typed: &Typed, to: ColumnType) -> Result<Option<Typed>, SqlError> {
        let from = typed.base();
        let is_text = |of: Type| matches!(of, Type::Unknown | Type::Text | Type::Varchar | Type::Bpchar);
        if to.base.is_object() && is_text(from) {
            let Expr::Constant(OwnedDatum::Text(name)) = &typed.expr else {
                let is_null = matches!(&typed.expr, Expr::Constant(value) if value.get().is_null());
                if matches!(to.base, Type::Regclass | Type::Regtype) && from != Type::Unknown && !is_null {
                    let (names, of) = (self.names(to.base.name())?, Box::new(typed.expr.clone()));
                    return Ok(Some(Typed::new(Expr::Lookup { names, of }, to)));
                }
                let unknown = || SqlError::unsupported(format!("a cast of a computed text to {}", to.base));
                return if is_null { Ok(Some(Typed::new(Expr::NULL, to))) } else { Err(unknown()) };
            };
            let id = self.id_of_name(to.base, name)?;
            return Ok(Some(constant(Datum::Int(id), to.base)));
        }
        if from.is_object() && is_text(to.base) {
            let names = self.names(from.name())?;
            let expr = Expr::Lookup { names, of: Box::new(typed.expr.clone()) };
            return Ok(Some(Typed::new(expr, to.base)));
        }
        Ok(None)
    }

    fn distinct(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<Expr, SqlError> {
        let sides = vec![self.expr(left)?, self.expr(right)?];
        let mut sides = self.compared("=", sides)?.1.into_vec();
        let (right, left) = (sides.pop().unwrap_or(Expr::NULL), sides.pop().unwrap_or(Expr::NULL));
        Ok(Expr::Distinct(Box::new((left, right))))
    }

    /// Both sides as the comparison of this sign takes them.
    pub(super) fn compared(
        &mut self,
        sign: &str,
        sides: Vec<Typed>,
    ) -> Result<(&'static Function, Box<[Expr]>), SqlError> {
        let types: Vec<_> = sides.iter().map(Typed::base).collect();
        let found = functions::resolve(sign, &types).map_err(|why| functions::no_operator(sign, &types, why))?;
        Ok((found, self.fitted(found, sides)?.0))
    }

    /// Whether both sides are equal.
    pub(crate) fn equality(&mut self, sides: Vec<Typed>) -> Result<Expr, SqlError> {
        Ok(self.apply("=", sides)?.expr)
    }

    fn in_list(&mut self, expr: &ast::Expr, list: &[ast::Expr], negated: bool) -> Result<Typed, SqlError> {
        let value = self.expr(expr)?;
        let list = list.iter().map(|part| self.expr(part)).collect::<Result<Vec<_>, _>>()?;
        let of = common_type("IN", std::iter::once(&value).chain(&list))?;
        let value = self.cast(value, of.into(), Place::Implicit)?;
        let list = list.into_iter().map(|part| Ok(self.cast(part, of.into(), Place::Implicit)?.expr));
        let list: Box<[_]> = list.collect::<Result<_, SqlError>>()?;
        let sign = if negated { "<>" } else { "=" };
        let function =
            functions::resolve(sign, &[of, of]).map_err(|why| functions::no_operator(sign, &[of, of], why))?;
        Ok(truth(Expr::Any { eval: function.eval, needs_all: negated, value: Box::new(value.expr), list }))
    }

    fn between(
        &mut self,
        expr: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        let lower = self.operator(">=", &[expr, low])?;
        let upper = self.operator("<=", &[expr, high])?;
        let both = Expr::And(Box::new([lower.expr, upper.expr]));
        Ok(truth(if negated { not(both) } else { both }))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let mut tests = Vec::new();
        for when in conditions {
            tests.push(match operand {
                Some(operand) => self.operator("=", &[operand, &when.condition])?.expr,
                None => self.condition(&when.condition, "CASE/WHEN")?,
            });
        }
        // What stands behind ELSE comes first where a type is looked for.
        let mut results = vec![match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => constant(Datum::Null, Type::Unknown),
        }];
        for when in conditions {
            results.push(self.expr(&when.result)?);
        }
        let (results, of) = self.alike("CASE", results)?;
        let mut results = results.into_iter();
        let otherwise = Box::new(results.next().unwrap_or(Expr::NULL));
        let branches = tests.into_iter().zip(results).collect();
        Ok(Typed::new(Expr::Case { branches, otherwise }, of))
    }

    /// The expressions as ones of their common type, with the bound that all have.
    pub(crate) fn alike(&mut self, place: &str, parts: Vec<Typed>) -> Result<(Vec<Expr>, ColumnType), SqlError> {
        let base = common_type(place, &parts)?;
        let is_null = |it: &&Typed| matches!(&it.expr, Expr::Constant(value) if value.get().is_null());
        let mut bounds = parts.iter().filter(|it| !is_null(it)).map(|it| it.of);
        let first = bounds.next().filter(|of| of.base == base && bounds.all(|it| it == *of));
        let of = first.unwrap_or(base.into());
        let parts = parts.into_iter().map(|part| Ok(self.cast(part, base.into(), Place::Implicit)?.expr));
        Ok((parts.collect::<Result<_, SqlError>>()?, of))
    }
}

/// Whether a name is that of a function that is called without parentheses.
fn is_function(name: &str) -> bool {
    matches!(name, "current_schema" | "current_role" | "current_catalog" | "current_user" | "session_user" | "user")
}

/// The digits of a constant, with its signs.
fn constant_number(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Nested(inner) => constant_number(inner),
        ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } => constant_number(expr).map(negative),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn negative(digits: String) -> String {
    digits.strip_prefix('-').map_or_else(|| format!("-{digits}"), str::to_owned)
}

pub(super) fn truth(expr: Expr) -> Typed {
    Typed::new(expr, Type::Bool)
}

pub(super) fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

/// The value as its text, whatever its type.
pub(super) fn written(typed: Typed) -> Typed {
    let of = typed.base();
    let expr = match of {
        Type::Unknown | Type::Text | Type::Varchar | Type::Bpchar => typed.expr,
        _ => Expr::Cast(Cast::Write(of), Box::new(typed.expr)),
    };
    Typed::new(expr, Type::Text)
}

/// The value as it is shown, which is another text than a cast's where it is a truth value.
pub(super) fn shown(typed: Typed) -> Expr {
    let typed = with_blanks(typed);
    let of = typed.base();
    if of == Type::Bool { Expr::Cast(Cast::Show(of), Box::new(typed.expr)) } else { written(typed).expr }
}

fn bounded(typed: Typed, to: ColumnType, place: Place) -> Typed {
    if matches!(to.bound, Bound::None | Bound::Padded(_)) {
        return Typed { of: to, ..typed };
    }
    Typed { expr: fold(Expr::Bounded(to, place, Box::new(typed.expr)), Volatility::Immutable), of: to }
}

/// Whether a text of the type may stand for what only the timestamp of the execution tells: `now`, or a time without a zone.
fn is_of_clock(of: Type) -> bool {
    matches!(of, Type::Date | Type::Timestamp | Type::Timestamptz)
}

fn volatility_of(from: Type, to: Type) -> Volatility {
    let has_zone = from == Type::Timestamptz || to == Type::Timestamptz || is_of_clock(to);
    if has_zone { Volatility::Stable } else { Volatility::Immutable }
}

fn read_constant(of: Type, text: &str) -> Result<Expr, SqlError> {
    let (arena, zone) = (bumpalo::Bump::new(), Zone::utc());
    let value = crate::text::read(of, text, &Context::of(&arena, &zone))?;
    Ok(Expr::Constant(value.owned()))
}

/// An array of these parts, which is a constant where they are.
pub(super) fn fold_array(parts: Box<[Expr]>, is_nested: bool) -> Expr {
    let is_constant = parts.iter().all(|it| matches!(it, Expr::Constant(_)));
    let array = Expr::Array { parts, is_nested };
    if is_constant { computed(array) } else { array }
}

/// The value in place of the expression, unless computing it fails.
fn computed(expr: Expr) -> Expr {
    let (arena, zone) = (bumpalo::Bump::new(), Zone::utc());
    let value = expr.eval(&[], &Context::of(&arena, &zone)).map(Datum::owned);
    value.map_or(expr, Expr::Constant)
}

/// The value in place of the expression, where it is known and computing it does not fail: a failure is one of the execution.
pub(super) fn fold(expr: Expr, volatility: Volatility) -> Expr {
    let is_constant = |it: &Expr| matches!(it, Expr::Constant(_));
    let is_foldable = volatility == Volatility::Immutable
        && match &expr {
            Expr::Call(_, arguments) => arguments.iter().all(is_constant),
            Expr::Cast(_, inner) | Expr::Bounded(_, _, inner) => is_constant(inner),
            _ => false,
        };
    if is_foldable { computed(expr) } else { expr }
}

/// The type that all can become ("UNION, CASE, and Related Constructs" in PostgreSQL's manual, 10.5).
pub(crate) fn common_type<'t>(place: &str, parts: impl IntoIterator<Item = &'t Typed>) -> Result<Type, SqlError> {
    let mut common = Type::Unknown;
    for next in parts.into_iter().map(Typed::base) {
        if next == Type::Unknown || next == common {
            continue;
        }
        if common == Type::Unknown {
            common = next;
        } else if common.category() != next.category() {
            let message = format!("{place} types {common} and {next} cannot be matched");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        } else if !common.is_preferred()
            && casts::find(common, next, Place::Implicit).is_some()
            && casts::find(next, common, Place::Implicit).is_none()
        {
            common = next;
        }
    }
    Ok(if common == Type::Unknown { Type::Text } else { common })
}
