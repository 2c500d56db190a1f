//! Powers, logarithms and exponentials of numerics.
//!
//! A numeric is made a binary number with 256 digits behind its point, which is far more than a numeric of 38 digits tells apart. The result is rounded to the
//! scale that PostgreSQL gives it; what lies that close to the middle between two numbers is taken to be the middle.

use std::sync::LazyLock;

use super::{Function, functions};
use crate::context::Context;
use crate::datum::Datum;
use crate::decimal::{Decimal, MAX_DIGITS, overflow};
use crate::error::{SqlError, SqlState};
use crate::wide::{self, Number};

/// Limbs of 32 bits, the least one first: eight behind the point, and eight in front of it.
const LIMBS: usize = 16;
const BEHIND: usize = 8;

/// A number that is not negative.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fixed([u32; LIMBS]);

impl Fixed {
    const ZERO: Self = Self([0; LIMBS]);

    fn whole(value: u128) -> Self {
        let mut it = Self::ZERO;
        (0..4).for_each(|at| it.0[BEHIND + at] = (value >> (32 * at)) as u32);
        it
    }

    const fn one() -> Self {
        let mut limbs = [0; LIMBS];
        limbs[BEHIND] = 1;
        Self(limbs)
    }

    fn of(value: Decimal) -> Self {
        (0..value.scale()).fold(Self::whole(value.units().unsigned_abs()), |it, _| it.over(10))
    }

    fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    fn is_less(&self, other: &Self) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }

    fn plus(mut self, other: Self) -> Self {
        let mut carry = 0_u64;
        for (own, more) in self.0.iter_mut().zip(other.0) {
            carry += u64::from(*own) + u64::from(more);
            *own = carry as u32;
            carry >>= 32;
        }
        self
    }

    /// Less another one that is not greater.
    fn minus(mut self, other: Self) -> Self {
        let mut borrow = 0_i64;
        for (own, less) in self.0.iter_mut().zip(other.0) {
            let rest = i64::from(*own) - i64::from(less) + borrow;
            *own = rest as u32;
            borrow = rest >> 32;
        }
        self
    }

    fn over(mut self, divisor: u32) -> Self {
        let mut rest = 0_u64;
        for own in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*own);
            *own = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        self
    }

    /// The product; nothing if it needs more limbs.
    fn by(&self, other: &Self) -> Option<Self> {
        let mut all = [0_u32; 2 * LIMBS];
        for (at, own) in self.0.iter().enumerate() {
            let mut carry = 0_u64;
            for (more, factor) in other.0.iter().enumerate() {
                carry += u64::from(*own) * u64::from(*factor) + u64::from(all[at + more]);
                all[at + more] = carry as u32;
                carry >>= 32;
            }
            all[at + LIMBS] = carry as u32;
        }
        let fits = all[BEHIND + LIMBS..].iter().all(|limb| *limb == 0);
        let mut it = Self::ZERO;
        it.0.copy_from_slice(&all[BEHIND..BEHIND + LIMBS]);
        fits.then_some(it)
    }

    fn doubled(self) -> Self {
        self.plus(self)
    }

    fn halved(self) -> Self {
        self.over(2)
    }

    /// The position of the first binary digit, counted from the point; it is not zero.
    fn exponent(&self) -> i32 {
        let at = self.0.iter().rposition(|limb| *limb != 0).unwrap_or(0);
        32 * (at as i32 - BEHIND as i32) + self.0[at].max(1).ilog2() as i32
    }

    fn shifted(self, count: i32) -> Self {
        (0..count.unsigned_abs()).fold(self, |it, _| if count < 0 { it.halved() } else { it.doubled() })
    }

    /// One divided by it; it is 1 at least and less than 4.
    fn inverse(&self) -> Self {
        let two = Self::whole(2);
        let mut it = Self::one().over(3);
        for _ in 0..12 {
            let error = two.minus(self.by(&it).unwrap_or(Self::ZERO));
            it = it.by(&error).unwrap_or(Self::ZERO);
        }
        it
    }

    /// The sum of the odd powers of a small number, each divided by its exponent, and twice that.
    fn doubled_artanh(&self) -> Self {
        let square = self.by(self).unwrap_or(Self::ZERO);
        let (mut power, mut sum, mut odd) = (*self, Self::ZERO, 1);
        while !power.is_zero() {
            sum = sum.plus(power.over(odd));
            power = power.by(&square).unwrap_or(Self::ZERO);
            odd += 2;
        }
        sum.doubled()
    }

    /// Rounded to so many digits behind the point.
    fn decimal(&self, scale: u32) -> Option<Decimal> {
        // What is missing to the middle by what was cut off is added.
        let mut it = self.plus(Self::one().shifted(-190).plus(self.shifted(-190)));
        for _ in 0..scale {
            it = it.by(&Self::whole(10))?;
        }
        let it = it.plus(Self::one().halved());
        let fits = it.0[BEHIND + 4..].iter().all(|limb| *limb == 0);
        let units = (0..4).map(|at| u128::from(it.0[BEHIND + at]) << (32 * at)).sum::<u128>();
        let units = i128::try_from(units).ok().filter(|units| fits && *units < 10_i128.pow(MAX_DIGITS))?;
        Some(Decimal::new(units, scale))
    }
}

static LOG_OF_TWO: LazyLock<Fixed> = LazyLock::new(|| Fixed::one().over(3).doubled_artanh());

/// A number with a sign.
#[derive(Clone, Copy)]
struct Signed {
    is_negative: bool,
    size: Fixed,
}

impl Signed {
    fn of(value: Decimal) -> Self {
        Self { is_negative: value.units() < 0, size: Fixed::of(value) }
    }

    fn by(&self, other: &Self) -> Option<Self> {
        Some(Self { is_negative: self.is_negative != other.is_negative, size: self.size.by(&other.size)? })
    }

    fn plus(self, other: Self) -> Self {
        if self.is_negative == other.is_negative {
            return Self { size: self.size.plus(other.size), ..self };
        }
        let (more, less) = if self.size.is_less(&other.size) { (other, self) } else { (self, other) };
        Self { size: more.size.minus(less.size), ..more }
    }

    fn decimal(&self, scale: u32) -> Result<Decimal, SqlError> {
        let decimal = self.size.decimal(scale).ok_or_else(overflow)?;
        if self.is_negative { decimal.negate() } else { Ok(decimal) }
    }
}

/// The natural logarithm of a number that is not zero: that of what is between one and two, and as often that of two as it was halved.
fn log(value: &Fixed) -> Signed {
    let exponent = value.exponent();
    let part = value.shifted(-exponent);
    let ratio = part.minus(Fixed::one()).by(&part.plus(Fixed::one()).inverse()).unwrap_or(Fixed::ZERO);
    let of_part = Signed { is_negative: false, size: ratio.doubled_artanh() };
    let count = Fixed::whole(exponent.unsigned_abs().into());
    let of_twos = Signed { is_negative: exponent < 0, size: count.by(&LOG_OF_TWO).unwrap_or(Fixed::ZERO) };
    of_part.plus(of_twos)
}

/// The number whose logarithm this is; nothing if that is too great.
fn exponential(value: &Signed) -> Option<Fixed> {
    // No numeric has more than 126 binary digits in front of its point or behind it.
    if !value.size.is_less(&Fixed::whole(170)) {
        return value.is_negative.then_some(Fixed::ZERO);
    }
    let two = *LOG_OF_TWO;
    let (mut rest, mut count) = (value.size, 0);
    while !rest.is_less(&two) {
        rest = rest.minus(two);
        count += 1;
    }
    if value.is_negative && !rest.is_zero() {
        (rest, count) = (two.minus(rest), count + 1);
    }
    let (mut term, mut sum, mut at) = (Fixed::one(), Fixed::ZERO, 1);
    while !term.is_zero() {
        sum = sum.plus(term);
        term = term.by(&rest)?.over(at);
        at += 1;
    }
    Some(sum.shifted(if value.is_negative { -count } else { count }))
}

/// Sixteen digits that count, of a number with so many in front of its point, and no fewer behind it than the operands have.
fn scale_of(digits: i32, operands: &[Decimal]) -> u32 {
    let least = operands.iter().map(|it| it.scale()).max().unwrap_or(0);
    u32::try_from(16 - digits).unwrap_or(0).max(least).min(MAX_DIGITS)
}

/// How many digits the logarithm of a number has in front of its point, about.
fn log_digits(value: Decimal) -> i32 {
    let float = value.to_float();
    if (0.9..=1.1).contains(&float) {
        let distance = value.subtract(Decimal::from(1)).map_or(0.0, |it| it.to_float().abs());
        return if distance == 0.0 { 0 } else { distance.log10().floor() as i32 };
    }
    float.ln().abs().log10() as i32
}

fn check_log(value: Decimal) -> Result<(), SqlError> {
    if value.units() > 0 {
        return Ok(());
    }
    let shown = if value.units() == 0 { "zero" } else { "a negative number" };
    Err(SqlError::new(SqlState("2201E"), format!("cannot take logarithm of {shown}")))
}

fn natural_log(value: Decimal) -> Result<Decimal, SqlError> {
    check_log(value)?;
    log(&Fixed::of(value)).decimal(scale_of(log_digits(value), &[value]))
}

fn log_to(base: Decimal, value: Decimal) -> Result<Decimal, SqlError> {
    check_log(base)?;
    check_log(value)?;
    let (of_base, of_value) = (log(&Fixed::of(base)), log(&Fixed::of(value)));
    if of_base.size.is_zero() {
        return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    // The divisor is made one between one and two.
    let exponent = of_base.size.exponent();
    let inverse = of_base.size.shifted(-exponent).inverse();
    let size = of_value.size.by(&inverse).ok_or_else(overflow)?.shifted(-exponent);
    let is_negative = of_base.is_negative != of_value.is_negative;
    Signed { is_negative, size }.decimal(scale_of(log_digits(value) - log_digits(base), &[base, value]))
}

const LOG_OF_E: f64 = std::f64::consts::LOG10_E;

fn exponential_of(value: Decimal) -> Result<Decimal, SqlError> {
    let scale = scale_of((value.to_float() * LOG_OF_E) as i32, &[value]);
    exponential(&Signed::of(value)).and_then(|it| it.decimal(scale)).ok_or_else(overflow)
}

fn power(base: Decimal, exponent: Decimal) -> Result<Decimal, SqlError> {
    let refused = |message| Err(SqlError::new(SqlState("2201F"), message));
    let whole = exponent.floor()?;
    let is_whole = whole == exponent;
    if base.units() == 0 && exponent.units() < 0 {
        return refused("zero raised to a negative power is undefined");
    }
    if base.units() < 0 && !is_whole {
        return refused("a negative number raised to a non-integer power yields a complex result");
    }
    if exponent.units() == 0 {
        return Decimal::from(1).rescale(scale_of(0, &[base]));
    }
    if base.units() == 0 {
        return Decimal::ZERO.rescale(16);
    }
    let of_base = log(&Fixed::of(base));
    let product = of_base.by(&Signed::of(exponent)).ok_or_else(overflow)?;
    let scale = if is_whole {
        scale_of(0, &[base])
    } else {
        let log = base.to_float().ln() * exponent.to_float();
        scale_of((log * LOG_OF_E) as i32, &[base, exponent])
    };
    let size = exponential(&product).ok_or_else(overflow)?;
    Signed { is_negative: base.units() < 0 && whole.units() % 2 != 0, size }.decimal(scale)
}

fn one(arguments: &[Datum<'_>], at: usize) -> Result<Decimal, SqlError> {
    wide::decimal(arguments[at])
}

/// A power whose exponent is whole may have any size.
fn power_of<'a>(arguments: &[Datum<'a>], context: &Context<'a>) -> Result<Datum<'a>, SqlError> {
    let small = one(arguments, 0).and_then(|base| power(base, one(arguments, 1)?));
    match (small, one(arguments, 1).ok().filter(|exponent| exponent.floor().is_ok_and(|whole| whole == *exponent))) {
        (Err(error), Some(exponent)) if error.state() == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => {
            let exponent = u32::try_from(exponent.to_whole()).map_err(|_| error)?;
            wide::whole_power(&Number::of(arguments[0]), exponent)?.within(context.arena)
        }
        (small, _) => small.map(Datum::Numeric),
    }
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "^"(Numeric, Numeric) -> Numeric = |it, context| power_of(it, context);
    "power"(Numeric, Numeric) -> Numeric = |it, context| power_of(it, context);
    "exp"(Numeric) -> Numeric = |it, _| exponential_of(one(it, 0)?).map(Datum::Numeric);
    "ln"(Numeric) -> Numeric = |it, _| natural_log(one(it, 0)?).map(Datum::Numeric);
    "log"(Numeric) -> Numeric = |it, _| log_to(Decimal::from(10), one(it, 0)?).map(Datum::Numeric);
    "log10"(Numeric) -> Numeric = |it, _| log_to(Decimal::from(10), one(it, 0)?).map(Datum::Numeric);
    "log"(Numeric, Numeric) -> Numeric = |it, _| log_to(one(it, 0)?, one(it, 1)?).map(Datum::Numeric);
};
