//! Texts, rounding and the edges.

use super::*;

#[test]
fn texts_round_trip() {
    for text in ["0.00", "1.05", "-0.01", "-92233720368547758.08", "92233720368547758.07"] {
        assert_eq!(text.parse::<Decimal<2>>().unwrap().to_string(), text);
    }
    assert_eq!("7".parse::<Decimal<2>>().unwrap(), Decimal::from_units(700));
    assert_eq!("+.5".parse::<Decimal<2>>().unwrap(), Decimal::from_units(50));
    for text in [
        "",
        ".",
        "-",
        "1.234",
        "1e3",
        "1,0",
        "92233720368547758.08",
        "--1",
        "99999999999999999999999999999999999999999",
    ] {
        assert!(text.parse::<Decimal<2>>().is_err(), "{text}");
    }
    assert_eq!(format!("{:>7}|{:<7}|", Decimal::<1>::from_units(-15), Decimal::<0>::from_units(3)), "   -1.5|3      |");
}

#[test]
fn arithmetic_rounds_half_away_from_zero() {
    let units = Decimal::<2>::from_units;
    assert_eq!(units(105).checked_mul(Decimal::<1>::from_units(5)), Some(units(53)));
    assert_eq!(units(-105).checked_mul(Decimal::<1>::from_units(5)), Some(units(-53)));
    assert_eq!(units(100).checked_div(units(300)), Some(units(33)));
    assert_eq!(units(200).checked_div(units(-300)), Some(units(-67)));
    assert_eq!(units(1).checked_div(units(0)), None);
    assert_eq!(units(i64::MAX).checked_add(units(1)), None);
    assert_eq!(units(i64::MIN).checked_sub(units(1)), None);
    assert_eq!(units(i64::MAX).checked_mul_integer(2), None);
    assert_eq!(Decimal::<2>::from_integer(3), Some(units(300)));
    assert_eq!(Decimal::<2>::from_integer(i64::MAX), None);
}

#[test]
fn wide_decimals_have_all_of_their_digits() {
    let most = "1701411834604692317316873037158.84105727";
    for text in ["0.00000000", "-0.00000001", most, "-1701411834604692317316873037158.84105728"] {
        assert_eq!(text.parse::<Decimal128<8>>().unwrap().to_string(), text);
    }
    assert!("1701411834604692317316873037158.84105728".parse::<Decimal128<8>>().is_err());
    assert_eq!("-1.5".parse::<Decimal128<38>>().unwrap().units(), -15 * 10_i128.pow(37));
    assert!("2".parse::<Decimal128<38>>().is_err());
    let wide = Decimal128::<2>::from(Decimal::<2>::MIN);
    assert_eq!(Decimal::try_from(wide), Ok(Decimal::<2>::MIN));
    assert!(Decimal::try_from(wide.checked_sub(Decimal128::from_units(1)).unwrap()).is_err());
}

#[test]
fn operators_do_as_the_checked_methods() {
    let (mut one, other) = (Decimal::<2>::from_units(1050), Decimal::<2>::from_units(-300));
    assert_eq!((one + other, one - other), (Decimal::from_units(750), Decimal::from_units(1350)));
    assert_eq!((-one, one * 2), (Decimal::from_units(-1050), Decimal::from_units(2100)));
    assert_eq!((one * other, one / other), (Decimal::from_units(-3150), Decimal::from_units(-350)));
    one += other;
    one -= Decimal::from_units(50);
    one *= 2;
    one /= Decimal::<1>::from_units(40);
    one *= Decimal::<0>::from_units(-1);
    assert_eq!(one, Decimal::from_units(-350));
    assert_eq!([one, one].iter().sum::<Decimal<2>>(), Decimal::from_units(-700));
    assert_eq!(one.rescale::<1>(), Some(Decimal::from_units(-35)));
    assert_eq!(Decimal::<2>::from_units(-45).rescale::<1>(), Some(Decimal::from_units(-5)));
    assert_eq!(Decimal::<2>::MAX.rescale::<3>(), None);
    for overflow in [|| Decimal::<2>::MAX + Decimal::from_units(1), || -Decimal::<2>::MIN] {
        assert!(std::panic::catch_unwind(overflow).is_err());
    }
}

/// Against the definition, in numbers that 128 bits hold, and by the inverse where they do not.
#[test]
fn wide_products_and_quotients_are_exact() {
    let numbers = [0, 1, 2, 3, 5, 10, 99, i64::MAX as i128, 1 << 64, 10_i128.pow(19), 10_i128.pow(38), i128::MAX];
    let signed: Vec<i128> = numbers.iter().flat_map(|&number| [number, -number]).chain([i128::MIN]).collect();
    for &value in &signed {
        for &factor in &signed {
            for &divisor in &signed {
                let found = wide::mul_div(value, factor, divisor);
                if divisor == 0 {
                    assert_eq!(found, None);
                    continue;
                }
                if let Some(product) = value.checked_mul(factor)
                    && let Some(twice) = product.checked_mul(2)
                    && divisor.unsigned_abs() < 1 << 120
                {
                    let sign = if (product < 0) == (divisor < 0) { 1 } else { -1 };
                    let expected = (twice + sign * divisor) / (2 * divisor);
                    assert_eq!(found, Some(expected), "{value} * {factor} / {divisor}");
                }
                if factor == divisor {
                    assert_eq!(found, Some(value), "{value} * {factor} / {divisor}");
                }
            }
        }
    }
}
