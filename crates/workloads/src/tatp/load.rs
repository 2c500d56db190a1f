//! The first contents, as the TATP description 1.0 has them.

use std::ops::Range;

use polychron_base::random::Random;
use polychron_engine::{Access, Declare, Error, Operations, Procedure, Transaction};
use polychron_schema::FixedString;

use super::schema::{AccessInfo, CallForwarding, SpecialFacility, Subscriber, Tables, digits};

/// Subscribers that one transaction of the load inserts.
pub(super) const CHUNK: u32 = 20;

/// Loads some subscribers with all that belongs to them. Each subscriber's data come from a stream of its own, so that
/// they do not depend on who loads them.
pub(super) struct LoadSubscribers {
    pub(super) tables: Tables,
    pub(super) ids: Range<u32>,
    pub(super) seed: u64,
}

impl Procedure for LoadSubscribers {
    /// Call forwardings that were inserted.
    type Output = i64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<i64, Error> {
        let mut forwardings = 0;
        for id in self.ids.clone() {
            let mut random = Random::stream(self.seed, u64::from(id));
            transaction.insert(&self.tables.subscribers, &subscriber(id, &mut random))?;
            for access_type in some_types(&mut random) {
                transaction.insert(&self.tables.access, &access_info(id, access_type, &mut random))?;
            }
            for facility_type in some_types(&mut random) {
                transaction.insert(&self.tables.facilities, &facility(id, facility_type, &mut random))?;
                for start_time in [0, 8, 16] {
                    // Zero to three of the three times, each number equally likely in the mean.
                    if random.chance(0.5) {
                        let forwarding = forwarding(id, facility_type, start_time, &mut random);
                        transaction.insert(&self.tables.forwardings, &forwarding)?;
                        forwardings += 1;
                    }
                }
            }
        }
        Ok(forwardings)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        for id in self.ids.clone() {
            declaration.row(&self.tables.subscribers, id, Access::Insert);
            // What belongs to the subscriber is drawn in the run.
            declaration.rows(&self.tables.access, id, Access::Insert);
            declaration.rows(&self.tables.facilities, id, Access::Insert);
            declaration.rows(&self.tables.forwardings, id, Access::Insert);
        }
    }
}

/// One to four of the types 1 to 4.
fn some_types(random: &mut Random) -> impl Iterator<Item = u8> + use<> {
    let count = random.range_inclusive(1, 4) as usize;
    let mut types = [1, 2, 3, 4];
    for position in 0..count {
        let other = position + random.below((types.len() - position) as u64) as usize;
        types.swap(position, other);
    }
    types.into_iter().take(count)
}

fn byte(random: &mut Random) -> u8 {
    random.next_u64() as u8
}

fn letters<const N: usize>(random: &mut Random) -> FixedString<N> {
    let text: [u8; N] = std::array::from_fn(|_| b'A' + random.below(26) as u8);
    FixedString::new(std::str::from_utf8(&text).expect("letters are text"))
        .expect("as many letters as there is room for")
}

fn subscriber(id: u32, random: &mut Random) -> Subscriber {
    Subscriber {
        id,
        number: digits(u64::from(id)),
        bits: random.below(1 << 10) as u16,
        hexes: random.below(1 << 40),
        bytes: letters(random),
        msc_location: random.next_u64() as u32,
        vlr_location: random.next_u64() as u32,
    }
}

fn access_info(subscriber: u32, access_type: u8, random: &mut Random) -> AccessInfo {
    let (data1, data2) = (byte(random), byte(random));
    AccessInfo { subscriber, access_type, data1, data2, data3: letters(random), data4: letters(random) }
}

fn facility(subscriber: u32, facility_type: u8, random: &mut Random) -> SpecialFacility {
    let is_active = random.chance(0.85);
    let (error_control, data_a) = (byte(random), byte(random));
    SpecialFacility { subscriber, facility_type, is_active, error_control, data_a, data_b: letters(random) }
}

fn forwarding(subscriber: u32, facility_type: u8, start_time: u8, random: &mut Random) -> CallForwarding {
    let end_time = start_time + random.range_inclusive(1, 8) as u8;
    let number = digits(random.below(1_000_000_000_000_000));
    CallForwarding { subscriber, facility_type, start_time, end_time, number }
}
