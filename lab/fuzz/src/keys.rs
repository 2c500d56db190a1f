//! Encoded keys sort as their values, and come back as they were; foreign bytes are refused, or are a key.

use std::fmt::Debug;

use polychron_schema::{Date, Decimal, Decimal128, FixedString, Key, KeyScratch, OwnedKey, Timestamp};

use crate::input::Input;
use crate::rows::{Cents, Label, State};

pub(crate) fn run(bytes: &[u8]) {
    check_foreign::<(Option<i8>, String, bool)>(bytes);
    check_foreign::<(String, Option<String>)>(bytes);
    check_foreign::<(u64, Vec<u8>)>(bytes);
    check_foreign::<i64>(bytes);
    check_foreign::<(State, char)>(bytes);
    check_foreign::<(Option<State>, Label)>(bytes);
    check_foreign::<(u128, [u8; 2])>(bytes);
    let mut input = Input::new(bytes);
    check_pair(&mut input, |input| (input.number() as i64, input.number()));
    check_pair(&mut input, |input| (input.byte() as i8, i16::from_le_bytes(input.take()), input.flag()));
    check_pair(&mut input, |input| (input.text(12), input.byte()));
    check_pair(&mut input, |input| (input.bytes(12), input.bytes(12)));
    check_pair(&mut input, |input| (input.maybe(|input| input.text(9)), input.maybe(|input| input.byte() as i8)));
    check_pair(&mut input, |input| (input.maybe(|input| input.bytes(9)), input.number() as u32, input.text(5)));
    check_pair(&mut input, |input| (FixedString::<7>::truncated(&input.text(9)), input.number() as i32));
    check_pair(&mut input, |input| {
        let money = Decimal::<2>::from_units(input.number() as i64);
        (Date(input.number() as i32), Timestamp(input.number() as i64), money)
    });
    check_pair(&mut input, |input| (State::read(input), Cents(input.number() as i64), input.maybe(State::read)));
    check_pair(&mut input, |input| (input.wide() as i128, input.character()));
    check_pair(&mut input, |input| (input.maybe(Input::wide), Label(input.text(9)), input.take::<3>()));
    check_pair(&mut input, |input| (Decimal128::<4>::from_units(input.wide() as i128), input.flag()));
    let floats = [(); 2].map(|()| f32::from_bits(input.number() as u32));
    assert_eq!(encoded(&floats[0]).cmp(&encoded(&floats[1])), floats[0].total_cmp(&floats[1]), "{floats:?}");
}

fn encoded<K: Key>(key: &K) -> Vec<u8> {
    let mut scratch = KeyScratch::new();
    key.encode_bytes(&mut scratch).to_vec()
}

/// Two keys of one shape: their bytes sort as they do, and each comes back.
fn check_pair<K: OwnedKey + Ord + Debug>(input: &mut Input<'_>, read: fn(&mut Input<'_>) -> K) {
    let (first, second) = (read(input), read(input));
    let (a, b) = (encoded(&first), encoded(&second));
    assert_eq!(a.cmp(&b), first.cmp(&second), "{first:?} and {second:?} as {a:?} and {b:?}");
    assert_eq!(K::decode(&a).expect("own keys are read"), first);
    let (mut one, mut other) = (KeyScratch::new(), KeyScratch::new());
    let (open_a, open_b) = (first.encode_prefix(&mut one), second.encode_prefix(&mut other));
    assert_eq!(open_a.cmp(open_b), a.cmp(&b), "{first:?} and {second:?} where more may follow");
    assert!(open_a == open_b || !open_a.starts_with(open_b), "{second:?} begins {first:?}");
}

/// Bytes that are taken for a key are exactly what that key is encoded as, unless it is too long to be one.
fn check_foreign<K: OwnedKey>(bytes: &[u8]) {
    if let Ok(key) = K::decode(bytes)
        && key.check().is_ok()
    {
        assert_eq!(encoded(&key), bytes);
    }
}
