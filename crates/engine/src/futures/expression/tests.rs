use super::*;

fn compute(operation: Arithmetic, column_type: ColumnType, values: [i128; 2]) -> Result<i128, FutureError> {
    let (left, right) = (Term::Pending(0), Term::Pending(1));
    let expression = Expression::Arithmetic { operation, column_type, left, right };
    let value = |position| Ok(Value::Scalar(values[position as usize] as Scalar));
    Ok(widen(expression.evaluate(&mut Texts::new(), value)?.scalar()?, column_type))
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
        let value = Term::Known(Value::Scalar(number as Scalar));
        let converted = Expression::Convert { from, to, value }.evaluate(&mut Texts::new(), |_| unreachable!())?;
        Ok::<_, FutureError>(widen(converted.scalar()?, to))
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
    let (counter, column_type) = (Term::Pending(0), ColumnType::I64);
    let known = |value: i64| Term::Known(Value::Scalar(value as Scalar));
    let (comparison, right) = (Comparison::AtLeast, known(10));
    let arena = [
        Expression::Compare { comparison, column_type, left: counter, right },
        Expression::Arithmetic { operation: Arithmetic::Subtract, column_type, left: counter, right },
        Expression::Arithmetic { operation: Arithmetic::Add, column_type, left: counter, right: known(91) },
        Expression::Choose { condition: Term::Pending(1), then: Term::Pending(2), otherwise: Term::Pending(3) },
    ];
    for (counter, expected) in [(12, 2), (9, 100)] {
        let mut values = vec![Value::Scalar(counter)];
        for expression in arena {
            values.push(expression.evaluate(&mut Texts::new(), |position| Ok(values[position as usize])).unwrap());
        }
        assert_eq!(values.last(), Some(&Value::Scalar(expected)));
    }
}
