//! Futures as protocols see them: operands, expressions over them, and the columns that they stand for.

pub use polychron_base::error::{Arithmetic, FutureError};
use polychron_schema::{ColumnSpan, ColumnType, RowBuffer, RowMut, RowRef};

use crate::scan::Comparison;

/// The bits of a column's value, extended to 64 by its sign; truth values are 0 and 1, decimals their units.
pub type Scalar = u64;

/// A future, as a protocol sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A value.
    Known(Scalar),
    /// A place in the transaction's arena, which the protocol made.
    Pending(u32),
}

/// An expression over operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Expression {
    /// Checked: a result that does not fit in the column type is an error.
    Arithmetic { operation: Arithmetic, column_type: ColumnType, left: Operand, right: Operand },
    /// Checked. Digits behind the point for which the new type has no room are rounded, halves away from zero.
    Convert { from: ColumnType, to: ColumnType, value: Operand },
    /// A truth value. `column_type` is that of both sides.
    Compare { comparison: Comparison, column_type: ColumnType, left: Operand, right: Operand },
    /// One of two, by a truth value. The other one needs no value.
    Choose { condition: Operand, then: Operand, otherwise: Operand },
}

/// A column that a future is read from or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutureColumn {
    /// Its position in the row.
    pub span: ColumnSpan,
    /// Its type: one that has a [`FutureValue`](crate::FutureValue).
    pub column_type: ColumnType,
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

impl Expression {
    /// The value, once those of pending operands are known.
    ///
    /// # Errors
    /// [`FutureError::Overflow`], [`FutureError::Conversion`], [`FutureError::DivisionByZero`], or what `pending` answers.
    pub fn evaluate(self, mut pending: impl FnMut(u32) -> Result<Scalar, FutureError>) -> Result<Scalar, FutureError> {
        let mut value = |operand| match operand {
            Operand::Known(scalar) => Ok(scalar),
            Operand::Pending(position) => pending(position),
        };
        match self {
            Self::Arithmetic { operation, column_type, left, right } => {
                let (left, right) = (widen(value(left)?, column_type), widen(value(right)?, column_type));
                if operation == Arithmetic::Divide && right == 0 {
                    return Err(FutureError::DivisionByZero { left });
                }
                let result = compute(operation, column_type, left, right);
                let result = result.filter(|result| fits(*result, column_type));
                result.map(|result| result as Scalar).ok_or_else(|| FutureError::Overflow {
                    operation,
                    type_name: column_type.to_string(),
                    left,
                    right,
                })
            }
            Self::Convert { from, to, value: operand } => {
                let number = widen(value(operand)?, from);
                let (old, new) = (units_of_one(from), units_of_one(to));
                let converted = old.zip(new).and_then(|(old, new)| nearest(number.checked_mul(new)?, old));
                let converted = converted.filter(|converted| fits(*converted, to));
                converted.map(|converted| converted as Scalar).ok_or_else(|| FutureError::Conversion {
                    value: number,
                    from: from.to_string(),
                    to: to.to_string(),
                })
            }
            Self::Compare { comparison, column_type, left, right } => {
                let (left, right) = (widen(value(left)?, column_type), widen(value(right)?, column_type));
                Ok(comparison.holds(&left, &right).into())
            }
            Self::Choose { condition, then, otherwise } => {
                if value(condition)? != 0 {
                    value(then)
                } else {
                    value(otherwise)
                }
            }
        }
    }
}

/// Calls `visit` with the operands of an expression, which it may change.
#[inline]
pub fn each_operand(expression: &mut Expression, mut visit: impl FnMut(&mut Operand)) {
    match expression {
        Expression::Arithmetic { left, right, .. } | Expression::Compare { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Expression::Convert { value, .. } => visit(value),
        Expression::Choose { condition, then, otherwise } => {
            visit(condition);
            visit(then);
            visit(otherwise);
        }
    }
}

impl FutureColumn {
    /// The column's value in a row; `None` is NULL.
    pub fn load(self, row: RowRef<'_>) -> Option<Scalar> {
        if row.is_null(self.span.slot) {
            return None;
        }
        let bytes = row.fixed(self.span.slot);
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
        let bits = u64::from_le_bytes(word) << unused;
        Some(match self.column_type {
            ColumnType::Bool | ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => bits >> unused,
            _ => ((bits as i64) >> unused) as u64,
        })
    }

    /// Makes `value` the column's value.
    pub fn store(self, row: &mut RowMut<'_>, value: Scalar) {
        let bytes = row.fixed_mut(self.span);
        let width = bytes.len().min(8);
        bytes[..width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// As [`FutureColumn::store`], in a row of its own.
    pub fn store_in(self, row: &mut RowBuffer, value: Scalar) {
        let bytes = row.fixed_mut(self.span.slot);
        let width = bytes.len().min(8);
        bytes[..width].copy_from_slice(&value.to_le_bytes()[..width]);
        row.set_null(self.span.slot, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::futures::FutureValue;

    fn compute(operation: Arithmetic, column_type: ColumnType, values: [i128; 2]) -> Result<i128, FutureError> {
        let (left, right) = (Operand::Pending(0), Operand::Pending(1));
        let expression = Expression::Arithmetic { operation, column_type, left, right };
        let result = expression.evaluate(|position| Ok(values[position as usize] as Scalar))?;
        Ok(widen(result, column_type))
    }

    #[test]
    fn results_that_do_not_fit_are_refused() {
        use Arithmetic::{Add, Divide, Max, Min, Multiply, Subtract};
        let most = i128::from(u64::MAX);
        assert_eq!(compute(Add, ColumnType::U64, [most - 1, 1]), Ok(most));
        assert!(compute(Add, ColumnType::U64, [most, 1]).is_err());
        assert!(compute(Multiply, ColumnType::U64, [most, most]).is_err());
        assert_eq!(compute(Multiply, ColumnType::I64, [-3, 5]), Ok(-15));
        assert!(compute(Subtract, ColumnType::U8, [1, 2]).is_err());
        assert_eq!(compute(Subtract, ColumnType::I8, [-100, 28]), Ok(-128));
        let overflow = compute(Subtract, ColumnType::I8, [-100, 29]).unwrap_err();
        assert_eq!(overflow.to_string(), "-100 - 29 does not fit in i8");
        assert!(compute(Add, ColumnType::Decimal { scale: 2 }, [i64::MAX.into(), 1]).is_err());
        assert_eq!(compute(Divide, ColumnType::I64, [-7, 2]), Ok(-3));
        assert!(compute(Divide, ColumnType::I64, [i64::MIN.into(), -1]).is_err());
        assert_eq!(compute(Divide, ColumnType::U64, [7, 0]), Err(FutureError::DivisionByZero { left: 7 }));
        assert_eq!(compute(Min, ColumnType::I32, [-1, 1]), Ok(-1));
        assert_eq!(compute(Max, ColumnType::Bool, [0, 1]), Ok(1));
    }

    #[test]
    fn products_and_quotients_of_decimals_are_rounded() {
        use Arithmetic::{Divide, Multiply};
        let cents = ColumnType::Decimal { scale: 2 };
        // 1.50 × 2.25 = 3.375, −0.05 × 0.10 = −0.005, 0.05 × 0.09 = 0.0045.
        assert_eq!(compute(Multiply, cents, [150, 225]), Ok(338));
        assert_eq!(compute(Multiply, cents, [-5, 10]), Ok(-1));
        assert_eq!(compute(Multiply, cents, [5, 9]), Ok(0));
        // 2.00 ÷ 3.00, −1.00 ÷ 8.00 = −0.125, 0.01 ÷ 3.00.
        assert_eq!(compute(Divide, cents, [200, 300]), Ok(67));
        assert_eq!(compute(Divide, cents, [-100, 800]), Ok(-13));
        assert_eq!(compute(Divide, cents, [1, 300]), Ok(0));
        assert_eq!(compute(Divide, cents, [100, 0]), Err(FutureError::DivisionByZero { left: 100 }));
        let most = i128::from(i64::MAX);
        assert_eq!(compute(Multiply, cents, [most, 100]), Ok(most));
        assert!(compute(Multiply, cents, [most, 101]).is_err());
        let finest = ColumnType::Decimal { scale: 18 };
        assert_eq!(compute(Multiply, finest, [i64::MIN.into(), 10_i128.pow(18)]), Ok(i64::MIN.into()));
        assert!(compute(Divide, finest, [i64::MIN.into(), 1]).is_err());
    }

    #[test]
    fn numbers_are_converted_if_they_fit() {
        let convert = |number: i128, from, to| {
            let value = Operand::Known(number as Scalar);
            Expression::Convert { from, to, value }.evaluate(|_| unreachable!()).map(|value| widen(value, to))
        };
        let (cents, mills) = (ColumnType::Decimal { scale: 2 }, ColumnType::Decimal { scale: 3 });
        assert_eq!(convert(-5, ColumnType::I8, ColumnType::I64), Ok(-5));
        assert_eq!(convert(255, ColumnType::U64, ColumnType::U8), Ok(255));
        let refused = convert(256, ColumnType::U64, ColumnType::U8).unwrap_err();
        assert_eq!(refused.to_string(), "256 of type u64 does not fit in u8");
        assert!(convert(-1, ColumnType::I32, ColumnType::U64).is_err());
        assert!(convert(u64::MAX.into(), ColumnType::U64, ColumnType::I64).is_err());
        assert_eq!(convert(7, ColumnType::U16, cents), Ok(700));
        assert!(convert(i64::MAX.into(), ColumnType::I64, cents).is_err());
        assert_eq!([149, 150, -150, -149].map(|units| convert(units, cents, ColumnType::I16)), [1, 2, -2, -1].map(Ok));
        assert_eq!(convert(1235, mills, cents), Ok(124));
        assert_eq!(convert(-12, cents, mills), Ok(-120));
    }

    #[test]
    fn an_arena_is_resolved_in_the_order_of_its_making() {
        // choose(counter >= 10, counter - 10, counter + 91), as a lazy protocol would keep it.
        let (counter, column_type) = (Operand::Pending(0), ColumnType::I64);
        let known = |value: i64| Operand::Known(value.to_scalar());
        let (comparison, right) = (Comparison::AtLeast, known(10));
        let arena = [
            Expression::Compare { comparison, column_type, left: counter, right },
            Expression::Arithmetic { operation: Arithmetic::Subtract, column_type, left: counter, right },
            Expression::Arithmetic { operation: Arithmetic::Add, column_type, left: counter, right: known(91) },
            Expression::Choose {
                condition: Operand::Pending(1),
                then: Operand::Pending(2),
                otherwise: Operand::Pending(3),
            },
        ];
        for (counter, expected) in [(12, 2), (9, 100)] {
            let mut values = vec![counter];
            for expression in arena {
                values.push(expression.evaluate(|position| Ok(values[position as usize])).unwrap());
            }
            assert_eq!(values.last(), Some(&expected));
        }
    }
}
