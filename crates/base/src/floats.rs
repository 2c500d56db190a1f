//! Floating-point numbers of one width in another, bit by bit.
//!
//! The language's conversions keep the value of a number, but say nothing of the bits of what is no number (NaN), by which
//! keys and comparisons order it.

/// Bits of a mantissa in 64-bit numbers that 32-bit numbers do not have.
const FINER_BITS: u32 = 29;

/// The same number in 64 bits; of NaN the sign and the payload stay. The order of [`f64::total_cmp`] is that of
/// [`f32::total_cmp`].
#[inline]
pub fn widen(value: f32) -> f64 {
    if value.is_nan() {
        let bits = u64::from(value.to_bits());
        return f64::from_bits(bits >> 31 << 63 | 0x7FF << 52 | (bits & 0x7F_FFFF) << FINER_BITS);
    }
    value.into()
}

/// The number that [`widen`] makes this one of, if there is one.
#[inline]
pub fn narrow(value: f64) -> Option<f32> {
    let bits = value.to_bits();
    let narrowed = if value.is_nan() {
        let payload = bits & ((1 << 52) - 1);
        f32::from_bits((bits >> 63 << 31) as u32 | 0xFF << 23 | (payload >> FINER_BITS) as u32)
    } else {
        value as f32
    };
    (widen(narrowed).to_bits() == bits).then_some(narrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_bits_stay() {
        let mut all: Vec<f32> = (0..=u32::MAX).step_by(9_999_991).map(f32::from_bits).collect();
        let edges = [0, 1, 0x7F_FFFF, 0x80_0000, 0x7F7F_FFFF, 0x7F80_0000, 0x7F80_0001, 0x7FC0_0000, 0x7FFF_FFFF];
        all.extend(edges.iter().flat_map(|&bits| [f32::from_bits(bits), f32::from_bits(bits | 1 << 31)]));
        all.sort_by(f32::total_cmp);
        for pair in all.windows(2) {
            let (one, other) = (widen(pair[0]), widen(pair[1]));
            assert_eq!(one.total_cmp(&other), pair[0].total_cmp(&pair[1]), "{pair:?}");
        }
        for number in all {
            assert_eq!(narrow(widen(number)).map(f32::to_bits), Some(number.to_bits()));
        }
        let beyond = [0.1, f64::MAX, f64::MIN_POSITIVE, f64::from_bits(f64::NAN.to_bits() | 1), 16_777_217.0];
        assert!(beyond.into_iter().all(|number| narrow(number).is_none()));
        // What would be no payload at all is infinite, and not the same.
        assert!(narrow(f64::from_bits(0x7FF << 52 | 1)).is_none());
    }
}
