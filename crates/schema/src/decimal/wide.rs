//! Products of 128-bit numbers, which need 256 bits, and their quotients.

/// `value * factor / divisor`, rounded half away from zero, or `None` when the divisor is zero or the result does not fit.
pub(super) const fn mul_div(value: i128, factor: i128, divisor: i128) -> Option<i128> {
    let is_negative = (value < 0) ^ (factor < 0) ^ (divisor < 0);
    let quotient = match value.checked_mul(factor) {
        // No remainder is as long as its divisor, so that twice the one is compared without overflow.
        Some(product) if divisor != 0 => {
            let (product, divisor) = (product.unsigned_abs(), divisor.unsigned_abs());
            rounded(product / divisor, product % divisor, divisor)
        }
        _ => mul_div_unsigned(value.unsigned_abs(), factor.unsigned_abs(), divisor.unsigned_abs()),
    };
    match quotient {
        Some(quotient) if is_negative && quotient <= i128::MIN.unsigned_abs() => {
            Some((quotient as i128).wrapping_neg())
        }
        Some(quotient) if !is_negative && quotient <= i128::MAX as u128 => Some(quotient as i128),
        _ => None,
    }
}

const fn rounded(quotient: u128, rest: u128, divisor: u128) -> Option<u128> {
    if rest >= divisor - rest { quotient.checked_add(1) } else { Some(quotient) }
}

const fn mul_div_unsigned(value: u128, factor: u128, divisor: u128) -> Option<u128> {
    let (high, low) = product(value, factor);
    // Also when the divisor is zero.
    if high >= divisor {
        return None;
    }
    let (mut rest, mut quotient, mut bit) = (high, 0, 128);
    while bit > 0 {
        bit -= 1;
        // The rest is below the divisor, so of the doubled one at most one divisor is to be taken off.
        let carry = rest >> 127 != 0;
        rest = rest << 1 | low >> bit & 1;
        quotient <<= 1;
        if carry || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    rounded(quotient, rest, divisor)
}

/// The high and the low half of a product.
const fn product(one: u128, other: u128) -> (u128, u128) {
    let low = u64::MAX as u128;
    let (a, b, c, d) = (one >> 64, one & low, other >> 64, other & low);
    let (ac, ad, bc, bd) = (a * c, a * d, b * c, b * d);
    let middle = (bd >> 64) + (ad & low) + (bc & low);
    (ac + (ad >> 64) + (bc >> 64) + (middle >> 64), middle << 64 | bd & low)
}
