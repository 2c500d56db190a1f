//! Expressions over futures.

use std::cmp::Ordering;

pub use polychron_base::error::{Arithmetic, FutureError};
use polychron_schema::{ColumnType, ValueRef, parse_units};

use super::value::{Scalar, Span, Term, Texts, Value};
use crate::scan::Comparison;

/// An expression over the terms of one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Expression {
    /// Checked: a result that does not fit in the column type is an error.
    Arithmetic { operation: Arithmetic, column_type: ColumnType, left: Term, right: Term },
    /// Checked. Digits behind the point for which the new type has no room are rounded, halves away from zero.
    Convert { from: ColumnType, to: ColumnType, value: Term },
    /// A truth value. `column_type` is that of both sides. NULL is less than all values, and equal to itself, as in keys.
    Compare { comparison: Comparison, column_type: ColumnType, left: Term, right: Term },
    /// One of two, by a truth value. The other one needs no value.
    Choose { condition: Term, then: Term, otherwise: Term },
    /// Made of one value.
    Apply { function: Function, value: Term },
    /// Text behind text, or bytes behind bytes.
    Join { left: Term, right: Term },
    /// What has failed before there was an arena.
    Failed(Failure),
}

/// Functions of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Whether it is NULL.
    IsNull,
    /// The value itself, which is not NULL, or it fails.
    NotNull,
    /// The number of its bytes.
    Bytes,
    /// The number of its characters.
    Characters,
}

/// Why a known value came to nothing: as much of it as is copied at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as `FutureError` has them")]
pub enum Failure {
    Computed { operation: Arithmetic, column_type: &'static ColumnType, left: Scalar, right: Scalar },
    Converted { from: &'static ColumnType, to: &'static ColumnType, value: Scalar },
    NotANumber { text: Beginning, to: &'static ColumnType },
    NotText,
    NoNull,
    TooLong { bytes: u32, most: u32 },
    Foreign,
}

/// How a text begins, as far as there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    bytes: [u8; Self::ROOM],
    length: u8,
}

impl Beginning {
    const ROOM: usize = 15;

    pub(super) fn of(text: &str) -> Self {
        let length = text.floor_char_boundary(Self::ROOM);
        let mut bytes = [0; Self::ROOM];
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self { bytes, length: length as u8 }
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl Failure {
    #[cold]
    pub(super) fn error(self) -> FutureError {
        let none = |_| Err(FutureError::Foreign);
        let (known, mut texts) = (|value| Term::Known(Value::Scalar(value)), Texts::new());
        let again = |expression: Expression, texts: &mut Texts| expression.evaluate(texts, none).err();
        match self {
            Self::Computed { operation, column_type, left, right } => {
                let (left, right, column_type) = (known(left), known(right), *column_type);
                again(Expression::Arithmetic { operation, column_type, left, right }, &mut texts)
            }
            Self::Converted { from, to, value } => {
                again(Expression::Convert { from: *from, to: *to, value: known(value) }, &mut texts)
            }
            Self::NotANumber { text, to } => {
                Some(FutureError::NotANumber { text: text.text().to_owned(), type_name: to.to_string() })
            }
            Self::NotText => Some(FutureError::NotText),
            Self::NoNull => Some(FutureError::NoNull),
            Self::TooLong { bytes, most } => Some(FutureError::TooLong { bytes: bytes as usize, most: most as usize }),
            Self::Foreign => None,
        }
        .unwrap_or(FutureError::Foreign)
    }

    /// The same of another error of text or NULL.
    pub(super) fn of(error: &FutureError, to: &'static ColumnType) -> Self {
        match error {
            FutureError::NotANumber { text, .. } => Self::NotANumber { text: Beginning::of(text), to },
            FutureError::NotText => Self::NotText,
            FutureError::NoNull => Self::NoNull,
            FutureError::TooLong { bytes, most } => {
                let short = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
                Self::TooLong { bytes: short(*bytes), most: short(*most) }
            }
            _ => Self::Foreign,
        }
    }
}

/// The number behind the bits.
#[inline]
fn widen(scalar: Scalar, column_type: ColumnType) -> i128 {
    if column_type == ColumnType::U64 { scalar.into() } else { (scalar as i64).into() }
}

/// Whether a value of this type can have that number.
fn fits(number: i128, column_type: ColumnType) -> bool {
    let bits = 8 * column_type.width();
    match column_type {
        ColumnType::Bool => (0..=1).contains(&number),
        ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => (0..1 << bits).contains(&number),
        _ => (-(1 << (bits - 1))..1 << (bits - 1)).contains(&number),
    }
}

/// The units of one: of an integer, and of all that is no number, 1.
fn units_of_one(column_type: ColumnType) -> Option<i128> {
    match column_type {
        ColumnType::Decimal { scale } => 10_i128.checked_pow(scale),
        _ => Some(1),
    }
}

/// The quotient, to the nearest number, halves away from zero.
fn nearest(number: i128, divisor: i128) -> Option<i128> {
    let (quotient, rest) = (number.checked_div(divisor)?, number.checked_rem(divisor)?);
    let is_up = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
    let away = if (number < 0) == (divisor < 0) { 1 } else { -1 };
    if rest != 0 && is_up { quotient.checked_add(away) } else { Some(quotient) }
}

/// The result of a computation, if it has one.
fn compute(operation: Arithmetic, column_type: ColumnType, left: i128, right: i128) -> Option<i128> {
    let is_decimal = matches!(column_type, ColumnType::Decimal { .. });
    match operation {
        Arithmetic::Add => Some(left + right),
        Arithmetic::Subtract => Some(left - right),
        // The product of two 64-bit numbers without sign can need all 128 bits.
        Arithmetic::Multiply if is_decimal => nearest(left.checked_mul(right)?, units_of_one(column_type)?),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide if is_decimal => nearest(left.checked_mul(units_of_one(column_type)?)?, right),
        Arithmetic::Divide => left.checked_div(right),
        Arithmetic::Min => Some(left.min(right)),
        Arithmetic::Max => Some(left.max(right)),
    }
}

/// Whether values are text.
fn is_text(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::String { .. } | ColumnType::FixedString { .. })
}

fn is_bytes(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::Bytes { .. } | ColumnType::FixedBytes { .. })
}

/// A number in another type.
fn convert_number(from: ColumnType, to: ColumnType, scalar: Scalar) -> Result<Scalar, FutureError> {
    let number = widen(scalar, from);
    let (old, new) = (units_of_one(from), units_of_one(to));
    let converted = old.zip(new).and_then(|(old, new)| nearest(number.checked_mul(new)?, old));
    let converted = converted.filter(|converted| fits(*converted, to));
    converted.map(|converted| converted as Scalar).ok_or_else(|| FutureError::Conversion {
        value: number,
        from: from.to_string(),
        to: to.to_string(),
    })
}

/// A number as text, as it is written in a program.
fn write_number(texts: &mut Texts, column_type: ColumnType, scalar: Scalar) -> Result<Span, FutureError> {
    let number = widen(scalar, column_type);
    match column_type {
        ColumnType::Decimal { scale } => texts.write(ValueRef::Decimal { units: number, scale }),
        _ => texts.write(number),
    }
}

/// The number that a text is.
fn parse_number(text: &[u8], to: ColumnType) -> Result<Scalar, FutureError> {
    /// As much of a text as is told.
    const TOLD: usize = 40;
    let text = str::from_utf8(text).map_err(|_| FutureError::NotText)?;
    let number = match to {
        ColumnType::Decimal { scale } => parse_units(text, scale),
        _ => text.parse().ok(),
    };
    number.filter(|number| fits(*number, to)).map(|number| number as Scalar).ok_or_else(|| FutureError::NotANumber {
        text: text[..text.floor_char_boundary(TOLD)].to_owned(),
        type_name: to.to_string(),
    })
}

fn convert(
    texts: &mut Texts,
    from: ColumnType,
    to: ColumnType,
    value: Value<Span>,
) -> Result<Value<Span>, FutureError> {
    let Value::Bytes(span) = value else {
        let scalar = value.scalar()?;
        return match is_text(to) {
            true => write_number(texts, from, scalar).map(Value::Bytes),
            false => convert_number(from, to, scalar).map(Value::Scalar),
        };
    };
    let bytes = texts.get(span);
    if !is_text(to) && !is_bytes(to) {
        return parse_number(bytes, to).map(Value::Scalar);
    }
    if is_text(to) && is_bytes(from) && str::from_utf8(bytes).is_err() {
        return Err(FutureError::NotText);
    }
    let most = to.max_bytes() as usize;
    if bytes.len() > most { Err(FutureError::TooLong { bytes: bytes.len(), most }) } else { Ok(value) }
}

fn order(texts: &Texts, column_type: ColumnType, left: Value<Span>, right: Value<Span>) -> Ordering {
    match (left, right) {
        (Value::Scalar(left), Value::Scalar(right)) => widen(left, column_type).cmp(&widen(right, column_type)),
        (Value::Bytes(left), Value::Bytes(right)) => texts.get(left).cmp(texts.get(right)),
        (left, right) => (left != Value::Null).cmp(&(right != Value::Null)),
    }
}

fn arithmetic(
    operation: Arithmetic,
    column_type: ColumnType,
    left: Scalar,
    right: Scalar,
) -> Result<Scalar, FutureError> {
    let (left, right) = (widen(left, column_type), widen(right, column_type));
    if operation == Arithmetic::Divide && right == 0 {
        return Err(FutureError::DivisionByZero { left });
    }
    let result = compute(operation, column_type, left, right).filter(|result| fits(*result, column_type));
    result.map(|result| result as Scalar).ok_or_else(|| FutureError::Overflow {
        operation,
        type_name: column_type.to_string(),
        left,
        right,
    })
}

fn apply(texts: &Texts, function: Function, value: Value<Span>) -> Result<Value<Span>, FutureError> {
    let length = |count: fn(&[u8]) -> usize| match value {
        Value::Bytes(span) => Ok(Value::Scalar(count(texts.get(span)) as Scalar)),
        Value::Null | Value::Scalar(_) => Err(FutureError::NoNull),
    };
    match function {
        Function::IsNull => Ok(Value::Scalar((value == Value::Null).into())),
        Function::NotNull if value == Value::Null => Err(FutureError::NoNull),
        Function::NotNull => Ok(value),
        Function::Bytes => length(<[u8]>::len),
        // Each character has one byte that continues none.
        Function::Characters => length(|text| text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()),
    }
}

impl Expression {
    /// The value, once those of pending terms are known.
    ///
    /// # Errors
    /// Why it has none, or what `pending` answers.
    #[inline]
    pub fn evaluate(
        self,
        texts: &mut Texts,
        mut pending: impl FnMut(u32) -> Result<Value<Span>, FutureError>,
    ) -> Result<Value<Span>, FutureError> {
        let mut value = |term| match term {
            Term::Known(value) => Ok(value),
            Term::Pending(position) => pending(position),
        };
        match self {
            Self::Arithmetic {
                operation: operation @ (Arithmetic::Min | Arithmetic::Max),
                column_type,
                left,
                right,
            } => {
                let (left, right) = (value(left)?, value(right)?);
                let is_left =
                    (order(texts, column_type, left, right) == Ordering::Greater) == (operation == Arithmetic::Max);
                Ok(if is_left { left } else { right })
            }
            Self::Arithmetic { operation, column_type, left, right } => {
                let (left, right) = (value(left)?.scalar()?, value(right)?.scalar()?);
                arithmetic(operation, column_type, left, right).map(Value::Scalar)
            }
            Self::Convert { from, to, value: term } => {
                let value = value(term)?;
                convert(texts, from, to, value)
            }
            Self::Compare { comparison, column_type, left, right } => {
                let (left, right) = (value(left)?, value(right)?);
                let order = order(texts, column_type, left, right);
                Ok(Value::Scalar(comparison.holds(&order, &Ordering::Equal).into()))
            }
            Self::Choose { condition, then, otherwise } => {
                if value(condition)?.is_true() {
                    value(then)
                } else {
                    value(otherwise)
                }
            }
            Self::Apply { function, value: term } => {
                let value = value(term)?;
                apply(texts, function, value)
            }
            Self::Join { left, right } => match (value(left)?, value(right)?) {
                (Value::Bytes(left), Value::Bytes(right)) => texts.join(left, right).map(Value::Bytes),
                _ => Err(FutureError::NoNull),
            },
            Self::Failed(failure) => Err(failure.error()),
        }
    }
}

/// Calls `visit` with the terms of an expression, which it may change.
#[inline]
pub fn each_term(expression: &mut Expression, mut visit: impl FnMut(&mut Term)) {
    match expression {
        Expression::Arithmetic { left, right, .. }
        | Expression::Compare { left, right, .. }
        | Expression::Join { left, right } => {
            visit(left);
            visit(right);
        }
        Expression::Convert { value, .. } | Expression::Apply { value, .. } => visit(value),
        Expression::Choose { condition, then, otherwise } => {
            visit(condition);
            visit(then);
            visit(otherwise);
        }
        Expression::Failed(_) => {}
    }
}

#[cfg(test)]
mod tests;
