//! Random inputs: numbers, the non-uniform distribution of clause 2.1.6, last names, and text.

use polychron_base::random;
use polychron_schema::FixedString;

/// Constant of the non-uniform distribution for last names while loading (clause 2.1.6.1).
const LAST_NAME_CONSTANT_LOAD: u32 = 157;
/// The same while running: its distance from the other must be in 65..=119 and neither 96 nor 112.
const LAST_NAME_CONSTANT_RUN: u32 = 223;
const CUSTOMER_CONSTANT: u32 = 867;
const ITEM_CONSTANT: u32 = 5003;

const _: () = {
    let distance = LAST_NAME_CONSTANT_RUN - LAST_NAME_CONSTANT_LOAD;
    assert!(distance >= 65 && distance <= 119 && distance != 96 && distance != 112);
};

/// Last names that there are.
pub(super) const LAST_NAMES: u32 = 1000;

/// A seeded generator with the draws of the specification.
#[derive(Clone, Debug)]
pub(super) struct Random {
    source: random::Random,
}

impl Random {
    /// A generator whose numbers depend on every one of `seeds` and on their order.
    pub(super) fn new(seeds: &[u64]) -> Self {
        let seed = seeds.iter().fold(0, |state, &seed| random::Random::stream(state, seed).next_u64());
        Self { source: random::Random::from_seed(seed) }
    }

    /// A number below `bound`.
    #[inline]
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.source.below(u64::from(bound)) as u32
    }

    /// A number in `low..=high`.
    #[inline]
    pub(super) fn range(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    #[inline]
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// A number in `low..=high`, some more often than others.
    #[inline]
    fn non_uniform(&mut self, mask: u32, constant: u32, low: u32, high: u32) -> u32 {
        let mixed = self.range(0, mask) | self.range(low, high);
        (mixed + constant) % (high - low + 1) + low
    }

    /// The customer of a transaction, out of `customers` of a district.
    #[inline]
    pub(super) fn customer(&mut self, customers: u32) -> u32 {
        self.non_uniform(1023, CUSTOMER_CONSTANT, 1, customers)
    }

    /// The item of an order line, out of `items`.
    #[inline]
    pub(super) fn item(&mut self, items: u32) -> u32 {
        self.non_uniform(8191, ITEM_CONSTANT, 1, items)
    }

    /// The last name for a lookup where `customers` customers were loaded.
    #[inline]
    pub(super) fn last_name(&mut self, customers: u32) -> FixedString<16> {
        last_name(self.non_uniform(255, LAST_NAME_CONSTANT_RUN, 0, customers.min(LAST_NAMES) - 1))
    }

    /// The last name of a loaded customer: the first thousand have all names once.
    pub(super) fn loaded_last_name(&mut self, customer: u32) -> FixedString<16> {
        if customer <= LAST_NAMES {
            last_name(customer - 1)
        } else {
            last_name(self.non_uniform(255, LAST_NAME_CONSTANT_LOAD, 0, LAST_NAMES - 1))
        }
    }

    /// `low` to `high` letters and digits.
    pub(super) fn text<const N: usize>(&mut self, low: u32, high: u32) -> FixedString<N> {
        // 64 characters, so that six bits are one; the letters a and b are a little more frequent.
        const CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
        let length = self.range(low, high) as usize;
        let mut bytes = [0; N];
        for chunk in bytes[..length].chunks_mut(10) {
            let mut bits = self.source.next_u64();
            for byte in chunk {
                *byte = CHARACTERS[(bits & 63) as usize];
                bits >>= 6;
            }
        }
        *FixedString::from_array(&bytes)
    }

    /// Exactly `N` digits.
    pub(super) fn digits<const N: usize>(&mut self) -> FixedString<N> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = b'0' + self.below(10) as u8;
        }
        *FixedString::from_array(&bytes)
    }

    /// A postal code: four random digits and `11111` (clause 4.3.2.7).
    pub(super) fn zip(&mut self) -> FixedString<9> {
        let mut bytes = *b"000011111";
        bytes[..4].copy_from_slice(self.digits::<4>().as_array());
        *FixedString::from_array(&bytes)
    }

    /// 26 to 50 characters, with `ORIGINAL` somewhere in every tenth.
    pub(super) fn item_data(&mut self) -> FixedString<50> {
        let text: FixedString<50> = self.text(26, 50);
        if !self.percent(10) {
            return text;
        }
        let length = text.as_str().len() as u32;
        let at = self.range(0, length - ORIGINAL.len() as u32) as usize;
        let mut bytes = *text.as_array();
        bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        *FixedString::from_array(&bytes)
    }

    /// The numbers `1..=count` in random order.
    pub(super) fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        for last in (1..numbers.len()).rev() {
            let other = self.below(last as u32 + 1) as usize;
            numbers.swap(last, other);
        }
        numbers
    }
}

const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Whether the data of an item or of its stock say `ORIGINAL`.
#[inline]
pub(super) fn is_original(data: &FixedString<50>) -> bool {
    data.as_array().windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

/// The last name of this number below 1000: a syllable for each of its three digits (clause 4.3.2.3).
#[inline]
pub(super) fn last_name(number: u32) -> FixedString<16> {
    const SYLLABLES: [&[u8]; 10] =
        [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
    let mut bytes = [0; 16];
    let mut length = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        bytes[length..length + syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
    *FixedString::from_array(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_made_of_syllables() {
        assert_eq!(last_name(371).as_str(), "PRICALLYOUGHT");
        assert_eq!(last_name(0).as_str(), "BARBARBAR");
        assert_eq!(last_name(999).as_str(), "EINGEINGEING");
        let longest = (0..LAST_NAMES).map(|number| last_name(number).as_str().len()).max();
        assert_eq!(longest, Some(15));
    }

    #[test]
    fn ranges_reach_both_ends() {
        let mut random = Random::new(&[1]);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.range(3, 7) as usize - 3] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn shares_are_as_asked() {
        let mut random = Random::new(&[2]);
        let share = (0..100_000).filter(|_| random.percent(15)).count();
        assert!((14_000..16_000).contains(&share), "{share}");
        assert!(!(0..1000).any(|_| random.percent(0)) && (0..1000).all(|_| random.percent(100)));
    }

    #[test]
    fn customers_and_items_are_not_uniform() {
        let mut random = Random::new(&[3]);
        let mut customers = vec![0u32; 3001];
        for _ in 0..300_000 {
            customers[random.customer(3000) as usize] += 1;
        }
        assert_eq!(customers[0], 0);
        let hottest = *customers.iter().max().expect("customers");
        assert!(hottest > 400, "uniform would give 100 each, the hottest has {hottest}");
        for _ in 0..10_000 {
            assert!((1..=100_000).contains(&random.item(100_000)));
            assert!((1..=50).contains(&random.item(50)));
        }
    }

    #[test]
    fn text_has_the_length_asked_for() {
        let mut random = Random::new(&[4]);
        for _ in 0..1000 {
            let text: FixedString<24> = random.text(14, 24);
            assert!((14..=24).contains(&text.as_str().len()) && text.as_str().chars().all(char::is_alphanumeric));
            assert!(random.zip().as_str().ends_with("11111"));
        }
        let original = (0..10_000).filter(|_| is_original(&random.item_data())).count();
        assert!((850..1150).contains(&original), "{original}");
    }

    #[test]
    fn permutations_have_every_number_once() {
        let mut numbers = Random::new(&[5]).permutation(100);
        assert_ne!(numbers, (1..=100).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    }
}
