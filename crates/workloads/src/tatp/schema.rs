//! The four tables.

use polychron_engine::{Row, Table};
use polychron_schema::FixedString;

/// A subscriber: ten bits, ten hexadecimal digits, ten bytes, and where the telephone is.
#[derive(Row, Clone, Debug)]
#[row(name = "subscriber")]
#[index(name = "by_number", columns(number), unique, kind = "hash")]
pub struct Subscriber {
    /// Its number among all.
    #[key]
    pub id: u32,
    /// The same number as 15 digits.
    pub number: FixedString<15>,
    /// `bit_1` to `bit_10`, from the lowest bit on.
    pub bits: u16,
    /// `hex_1` to `hex_10`, four bits each, from the lowest on.
    pub hexes: u64,
    /// `byte2_1` to `byte2_10`.
    pub bytes: FixedString<10>,
    /// The location at which it is registered.
    pub msc_location: u32,
    /// The location at which it was seen last.
    pub vlr_location: u32,
}

/// How a subscriber may enter the network.
#[derive(Row, Clone, Debug)]
#[row(name = "access_info")]
pub struct AccessInfo {
    /// The subscriber.
    #[key]
    pub subscriber: u32,
    /// 1 to 4.
    #[key]
    pub access_type: u8,
    /// 0 to 255.
    pub data1: u8,
    /// 0 to 255.
    pub data2: u8,
    /// Three letters.
    pub data3: FixedString<3>,
    /// Five letters.
    pub data4: FixedString<5>,
}

/// A service a subscriber has.
#[derive(Row, Clone, Debug)]
#[row(name = "special_facility")]
pub struct SpecialFacility {
    /// The subscriber.
    #[key]
    pub subscriber: u32,
    /// 1 to 4.
    #[key]
    pub facility_type: u8,
    /// Whether it is switched on.
    pub is_active: bool,
    /// 0 to 255.
    pub error_control: u8,
    /// 0 to 255.
    pub data_a: u8,
    /// Five letters.
    pub data_b: FixedString<5>,
}

/// A number to which calls are forwarded in some hours.
#[derive(Row, Clone, Debug)]
#[row(name = "call_forwarding")]
pub struct CallForwarding {
    /// The subscriber.
    #[key]
    pub subscriber: u32,
    /// The facility, 1 to 4.
    #[key]
    pub facility_type: u8,
    /// The first hour: 0, 8 or 16.
    #[key]
    pub start_time: u8,
    /// The hour behind the last one.
    pub end_time: u8,
    /// 15 digits.
    pub number: FixedString<15>,
}

/// The tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    pub(super) subscribers: Table<Subscriber>,
    pub(super) access: Table<AccessInfo>,
    pub(super) facilities: Table<SpecialFacility>,
    pub(super) forwardings: Table<CallForwarding>,
}

/// A subscriber's number as 15 digits.
pub(super) fn digits(mut number: u64) -> FixedString<15> {
    let mut text = [b'0'; 15];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    *FixedString::from_array(&text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_have_fifteen_digits() {
        assert_eq!(super::digits(907).as_str(), "000000000000907");
    }
}
