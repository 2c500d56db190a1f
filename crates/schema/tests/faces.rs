//! Properties of the two faces: the same bytes, keys in the order of values, and no panic whatever the bytes are.

use std::cmp::Ordering;

use polychron_base::sizes::scaled;
use polychron_schema::{
    Changes, ColumnType, Date, Decimal, EncodedKey, FixedBytes, FixedString, IndexDefinition, Key, KeyExtractor,
    KeyScratch, Layout, OwnedKey, RangeScratch, Row, RowBuffer, RowRef, RowViewMut, TableDefinition, Timestamp, Value,
    build_row, set_value,
};
use proptest::prelude::*;

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_text", columns(text, small))]
#[index(name = "by_name", columns(name), unique)]
#[index(name = "by_note", columns = [note, maybe], unique)]
#[index(name = "by_numbers", columns(float, truth, tiny, day))]
struct Every {
    truth: bool,
    tiny: i8,
    small: i16,
    #[key]
    medium: i32,
    big: i64,
    tiny_unsigned: u8,
    small_unsigned: u16,
    medium_unsigned: u32,
    #[key]
    big_unsigned: u64,
    float: f64,
    money: Decimal<2>,
    day: Date,
    moment: Timestamp,
    name: FixedString<7>,
    digest: FixedBytes<5>,
    #[key]
    text: String,
    bytes: Vec<u8>,
    maybe: Option<i16>,
    maybe_name: Option<FixedString<9>>,
    note: Option<String>,
    blob: Option<Vec<u8>>,
    maybe_truth: Option<bool>,
    maybe_day: Option<Date>,
    maybe_money: Option<Decimal<4>>,
}

/// A row whose keys are short numbers.
#[derive(Row, Clone, Debug)]
#[index(name = "by_c", columns(c))]
#[index(name = "by_d", columns(d, b), unique)]
#[index(name = "by_e", columns = [e, f], unique)]
struct Short {
    c: i16,
    #[key]
    a: i32,
    d: Timestamp,
    #[key]
    b: u64,
    e: Decimal<2>,
    f: i64,
}

/// Text with many zero characters, which escaping must handle.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), any::<char>()], 0..8)
        .prop_map(String::from_iter)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(254), Just(255), any::<u8>()], 0..8)
}

fn name<const N: usize>() -> impl Strategy<Value = FixedString<N>> {
    text().prop_map(|text| FixedString::truncated(&text))
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<u64>().prop_map(f64::from_bits), Just(0.0), Just(-0.0), Just(f64::NAN), Just(-1.5)]
}

prop_compose! {
    fn every()(
        (truth, tiny, small, medium, big) in any::<(bool, i8, i16, i32, i64)>(),
        (tiny_unsigned, small_unsigned, medium_unsigned, big_unsigned) in any::<(u8, u16, u32, u64)>(),
        float in float(),
        (money, day, moment, digest) in any::<(i64, i32, i64, [u8; 5])>(),
        name in name::<7>(),
        (text, bytes) in (text(), bytes()),
        (maybe, maybe_truth, maybe_day, maybe_money) in any::<(Option<i16>, Option<bool>, Option<i32>, Option<i64>)>(),
        maybe_name in proptest::option::of(name::<9>()),
        (note, blob) in (proptest::option::of(text()), proptest::option::of(bytes())),
    ) -> Every {
        Every {
            truth, tiny, small, medium, big, tiny_unsigned, small_unsigned, medium_unsigned, big_unsigned, float,
            money: Decimal::from_units(money), day: Date(day), moment: Timestamp(moment), name,
            digest: FixedBytes(digest), text, bytes, maybe, maybe_name, note, blob, maybe_truth,
            maybe_day: maybe_day.map(Date), maybe_money: maybe_money.map(Decimal::from_units),
        }
    }
}

fn values(row: &Every) -> Vec<Value> {
    let row = row.clone();
    vec![
        row.truth.into(),
        row.tiny.into(),
        row.small.into(),
        row.medium.into(),
        row.big.into(),
        row.tiny_unsigned.into(),
        row.small_unsigned.into(),
        row.medium_unsigned.into(),
        row.big_unsigned.into(),
        row.float.into(),
        row.money.into(),
        row.day.into(),
        row.moment.into(),
        row.name.into(),
        row.digest.into(),
        row.text.into(),
        row.bytes.into(),
        row.maybe.into(),
        row.maybe_name.into(),
        row.note.into(),
        row.blob.into(),
        row.maybe_truth.into(),
        row.maybe_day.into(),
        row.maybe_money.into(),
    ]
}

fn layout() -> Layout {
    Every::definition().layout().unwrap()
}

fn encoded<K: Key>(key: &K) -> Vec<u8> {
    let mut scratch = KeyScratch::new();
    let key = key.encode(&mut scratch);
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    bytes
}

fn check_key<K: OwnedKey + PartialOrd + std::fmt::Debug>(first: &K, second: &K) {
    let (a, b) = (encoded(first), encoded(second));
    assert_eq!(Some(a.cmp(&b)), first.partial_cmp(second), "{first:?} {second:?}");
    assert_eq!(K::decode(&a).unwrap().partial_cmp(first), Some(Ordering::Equal));
    assert_eq!(encoded(&first.as_key_ref()), a);
    let mut scratch = KeyScratch::new();
    assert_eq!(first.encode_bytes(&mut scratch), a);
    assert!(K::FIXED_BYTES.is_none_or(|bytes| bytes == a.len()));
    // In the form that more may follow, no key is the beginning of another, and the order is the same.
    let (mut one, mut other) = (KeyScratch::new(), KeyScratch::new());
    let (open_a, open_b) = (first.encode_prefix(&mut one), second.encode_prefix(&mut other));
    assert_eq!(open_a.cmp(open_b), a.cmp(&b));
    assert!(open_a == open_b || !open_a.starts_with(open_b));
}

/// As many cases as `PROPTEST_CASES` says, or else a fair number.
fn config() -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(scaled(512, 1) as u32))
}

/// A float as a key, compared as keys are.
#[derive(Clone, Copy, Debug)]
struct Total(f64);

proptest! {
    #![proptest_config(config())]

    #[test]
    fn faces_agree_on_rows(row in every(), other in every()) {
        let layout = layout();
        let (mut typed, mut dynamic) = (RowBuffer::new(), RowBuffer::new());
        other.encode(&mut typed).unwrap();
        row.encode(&mut typed).unwrap();
        build_row(&layout, &values(&row), &mut dynamic).unwrap();
        prop_assert_eq!(typed.as_bytes(), dynamic.as_bytes());
        prop_assert_eq!(typed.as_row().values(&layout), values(&row));
        let back = Every::from_ref(Every::view(typed.as_row()));
        prop_assert_eq!(values(&back), values(&row));
    }

    #[test]
    fn changes_give_the_bytes_of_a_fresh_row(row in every(), other in every(), columns in any::<u32>()) {
        let layout = layout();
        let (mut changed, mut in_place, mut fresh) = (RowBuffer::new(), RowBuffer::new(), RowBuffer::new());
        row.encode(&mut changed).unwrap();
        row.encode(&mut in_place).unwrap();
        let mut wanted = values(&row);
        let mut changes = Changes::NONE;
        let mut view = Every::view_mut(&mut changed, &mut changes);
        // One column through the typed face, the rest through the dynamic one.
        if columns & 1 << 20 != 0 {
            view.set_blob(other.blob.as_deref()).unwrap();
            wanted[20] = other.blob.clone().into();
            prop_assert!(view.changes().whole_row());
        }
        let mut view = polychron_schema::RowMut::new(&mut changed, &mut changes, Every::SHAPE);
        for (index, value) in values(&other).into_iter().enumerate() {
            if columns & 1 << index != 0 && ![3, 8, 15, 20].contains(&index) {
                set_value(&mut view, &layout, index, &value).unwrap();
                wanted[index] = value;
            }
        }
        build_row(&layout, &wanted, &mut fresh).unwrap();
        prop_assert_eq!(changed.as_bytes(), fresh.as_bytes());
        if !changes.whole_row() {
            prop_assert_eq!(changed.len(), in_place.len());
            let hull = changes.hull().range(changed.len());
            let mut previous = 0;
            let mut bytes = in_place.as_bytes().to_vec();
            for piece in changes.pieces(&layout, changed.len()) {
                prop_assert!(piece.start >= hull.start && piece.end <= hull.end && piece.start >= previous);
                prop_assert!(piece.start.is_multiple_of(8) && piece.end.is_multiple_of(8));
                bytes[piece.clone()].copy_from_slice(&changed.as_bytes()[piece.clone()]);
                previous = piece.end + 1;
            }
            prop_assert_eq!(&bytes[..], fresh.as_bytes());
        }
    }

    #[test]
    fn faces_agree_on_keys(row in every(), other in every()) {
        let definition = Every::definition();
        let (mut buffer, mut other_buffer) = (RowBuffer::new(), RowBuffer::new());
        row.encode(&mut buffer).unwrap();
        other.encode(&mut other_buffer).unwrap();
        let mut scratch = KeyScratch::new();
        let primary = KeyExtractor::primary(&definition).unwrap();
        prop_assert_eq!(primary.extract(buffer.as_row(), &mut scratch).unwrap(), encoded(&row.key()));
        let key_values = [row.medium.into(), row.big_unsigned.into(), row.text.clone().into()];
        prop_assert_eq!(primary.encode_key(&key_values, &mut scratch).unwrap(), encoded(&row.key_ref()));
        prop_assert_eq!(primary.decode_key(&encoded(&row.key())).unwrap(), key_values);
        for position in 0..definition.indexes.len() {
            let index = KeyExtractor::secondary(&definition, position).unwrap();
            let key = index.extract(buffer.as_row(), &mut scratch).unwrap().to_vec();
            let other_key = index.extract(other_buffer.as_row(), &mut scratch).unwrap().to_vec();
            let (decoded, other_decoded) = (index.decode_key(&key).unwrap(), index.decode_key(&other_key).unwrap());
            prop_assert_eq!(key.cmp(&other_key), decoded.cmp(&other_decoded));
            let columns = &definition.indexes[position].columns;
            let wanted: Vec<_> = columns.iter().map(|&column| values(&row)[column].clone()).collect();
            prop_assert_eq!(&decoded[..columns.len()], &wanted[..]);
            prop_assert!(key.starts_with(index.encode_key(&wanted, &mut scratch).unwrap()));
        }
    }

    #[test]
    fn short_keys_are_extracted_in_registers((a, b, c, d, e, f) in any::<(i32, u64, i16, i64, i64, i64)>()) {
        let row = Short { a, b, c, d: Timestamp(d), e: Decimal::from_units(e), f };
        let definition = Short::definition();
        let mut buffer = RowBuffer::new();
        row.encode(&mut buffer).unwrap();
        let mut scratch = KeyScratch::new();
        let primary = KeyExtractor::primary(&definition).unwrap();
        prop_assert_eq!(primary.extract_short(buffer.as_row()).unwrap(), row.key().encode(&mut scratch));
        let keys = [encoded(&(c, a, b)), encoded(&(row.d, b)), encoded(&(row.e, f))];
        for (position, key) in keys.iter().enumerate() {
            let index = KeyExtractor::secondary(&definition, position).unwrap();
            prop_assert!(index.extract_short(buffer.as_row()).is_some());
            prop_assert_eq!(index.extract(buffer.as_row(), &mut scratch).unwrap(), &key[..]);
        }
    }

    #[test]
    fn typed_look_ups_find_extracted_keys(row in every(), other in every()) {
        let definition = Every::definition();
        let mut buffer = RowBuffer::new();
        row.encode(&mut buffer).unwrap();
        let (mut scratch, mut point) = (KeyScratch::new(), KeyScratch::new());
        let mut range = RangeScratch::new();
        let mut extract = |position| {
            let index = KeyExtractor::secondary(&definition, position).unwrap();
            index.extract(buffer.as_row(), &mut scratch).unwrap().to_vec()
        };
        let (by_text, by_name, by_note) = (extract(0), extract(1), extract(2));
        prop_assert!(Every::BY_TEXT.equal((&row.text, row.small), &mut range).contains(&by_text));
        prop_assert!(Every::BY_TEXT.prefix(row.text.as_str(), &mut range).contains(&by_text));
        let found = Every::BY_TEXT.prefix((other.text.as_str(),), &mut range).contains(&by_text);
        prop_assert_eq!(found, other.text == row.text);
        prop_assert_eq!(Every::BY_NAME.point(row.name, &mut point), &by_name[..]);
        prop_assert!(Every::BY_NAME.equal(row.name, &mut range).contains(&by_name));
        let note = (row.note.as_deref(), row.maybe);
        prop_assert!(Every::BY_NOTE.equal(note, &mut range).contains(&by_note));
        if row.note.is_some() && row.maybe.is_some() {
            prop_assert_eq!(Every::BY_NOTE.point(note, &mut point), &by_note[..]);
        }
        let primary = encoded(&row.key());
        prop_assert!(Every::prefix((row.medium, row.big_unsigned), &mut range).contains(&primary));
        let found = Every::prefix(other.medium, &mut range).contains(&primary);
        prop_assert_eq!(found, other.medium == row.medium);
    }

    #[test]
    fn keys_sort_as_values(a in every(), b in every()) {
        check_key(&a.truth, &b.truth);
        check_key(&a.tiny, &b.tiny);
        check_key(&a.small, &b.small);
        check_key(&a.medium, &b.medium);
        check_key(&a.big, &b.big);
        check_key(&a.tiny_unsigned, &b.tiny_unsigned);
        check_key(&a.small_unsigned, &b.small_unsigned);
        check_key(&a.medium_unsigned, &b.medium_unsigned);
        check_key(&a.big_unsigned, &b.big_unsigned);
        check_key(&a.money, &b.money);
        check_key(&a.day, &b.day);
        check_key(&a.moment, &b.moment);
        check_key(&a.name, &b.name);
        check_key(&a.digest, &b.digest);
        check_key(&a.text, &b.text);
        check_key(&a.bytes, &b.bytes);
        check_key(&a.maybe, &b.maybe);
        check_key(&a.maybe_name, &b.maybe_name);
        check_key(&a.note, &b.note);
        check_key(&a.blob, &b.blob);
        let (x, y) = (Total(a.float), Total(b.float));
        prop_assert_eq!(encoded(&x.0).cmp(&encoded(&y.0)), x.0.total_cmp(&y.0));
        prop_assert_eq!(f64::decode(&encoded(&x.0)).unwrap().to_bits(), x.0.to_bits());
    }

    #[test]
    fn composite_keys_sort_as_tuples(a in every(), b in every(), share in any::<bool>()) {
        let b = if share { Every { text: a.text.clone(), note: a.note.clone(), tiny: a.tiny, ..b } } else { b };
        check_key(&(a.tiny, a.text.clone()), &(b.tiny, b.text.clone()));
        check_key(&(a.text.clone(), a.tiny), &(b.text.clone(), b.tiny));
        check_key(&(a.note.clone(), a.bytes.clone(), a.big), &(b.note.clone(), b.bytes.clone(), b.big));
        check_key(&(a.tiny, a.maybe, a.small), &(b.tiny, b.maybe, b.small));
        check_key(&(a.tiny, a.big, a.medium, a.tiny_unsigned), &(b.tiny, b.big, b.medium, b.tiny_unsigned));
        check_key(&(a.tiny, a.big, a.big_unsigned), &(b.tiny, b.big, b.big_unsigned));
        check_key(
            &(a.truth, a.tiny, a.small, a.name, a.text.clone(), a.maybe_name, a.blob.clone(), a.note.clone()),
            &(b.truth, b.tiny, b.small, b.name, b.text.clone(), b.maybe_name, b.blob.clone(), b.note.clone()),
        );
    }

    #[test]
    fn inconsistent_rows_do_no_harm(words in proptest::collection::vec(any::<u64>(), 0..40), row in every(), seed in any::<u64>()) {
        read_everything(RowRef::from_words(&words));
        let mut buffer = RowBuffer::new();
        buffer.overwrite_words(words.len()).copy_from_slice(&words);
        change_everything(&mut buffer, &row);
        // A good row in which one word is wrong: most often an offset or a length.
        row.encode(&mut buffer).unwrap();
        let count = buffer.as_words().len();
        let mut torn = buffer.as_words().to_vec();
        torn[seed as usize % count] = seed.rotate_left(32) & 0x0000_00FF_0000_00FF;
        read_everything(RowRef::from_words(&torn));
        buffer.overwrite_words(count).copy_from_slice(&torn);
        change_everything(&mut buffer, &row);
    }

    #[test]
    fn foreign_keys_are_refused_or_read(bytes in bytes()) {
        let definition = Every::definition();
        let _ = KeyExtractor::primary(&definition).unwrap().decode_key(&bytes);
        for position in 0..definition.indexes.len() {
            let _ = KeyExtractor::secondary(&definition, position).unwrap().decode_key(&bytes);
        }
        if let Ok(key) = <(Option<i8>, String, bool)>::decode(&bytes) {
            assert_eq!(encoded(&key), bytes);
        }
        if let Ok(key) = <(String, Option<String>)>::decode(&bytes) {
            assert_eq!(encoded(&key), bytes);
        }
    }

    #[test]
    fn values_have_a_total_order(a in every(), b in every(), c in every()) {
        let (a, b, c) = (values(&a), values(&b), values(&c));
        for ((x, y), z) in a.iter().zip(b.iter().rev()).zip(&c) {
            prop_assert_eq!(x.cmp(y), y.cmp(x).reverse());
            if x <= y && y <= z {
                prop_assert!(x <= z);
            }
        }
    }
}

fn read_everything(row: RowRef<'_>) {
    let layout = layout();
    let _ = Every::from_ref(Every::view(row));
    let _ = Every::key_of(row);
    let _ = row.values(&layout);
    let definition = Every::definition();
    let mut scratch = KeyScratch::new();
    let _ = KeyExtractor::primary(&definition).unwrap().extract(row, &mut scratch);
    for position in 0..definition.indexes.len() {
        let _ = KeyExtractor::secondary(&definition, position).unwrap().extract(row, &mut scratch);
    }
}

fn change_everything(buffer: &mut RowBuffer, row: &Every) {
    let mut changes = Changes::NONE;
    let mut view = Every::view_mut(buffer, &mut changes);
    view.set_big(row.big);
    view.set_maybe(row.maybe);
    view.set_name(&row.name);
    let _ = view.set_note(row.note.as_deref());
    let _ = view.set_bytes(&row.bytes);
    assert_eq!((view.big(), view.maybe(), view.name()), (row.big, row.maybe, &row.name));
    read_everything(buffer.as_row());
}

#[test]
fn decimals_of_different_scales_compare() {
    let decimal = |units, scale| Value::Decimal { units, scale };
    assert_eq!(decimal(10, 1), decimal(100, 2));
    assert!(decimal(-1, 2) > decimal(-1, 1));
    assert!(decimal(i64::MAX, 0) > decimal(i64::MAX, 18));
    assert!(Value::Integer(-1) < Value::Unsigned(0) && Value::Integer(1) == Value::Unsigned(1));
    assert!(Value::Null < Value::Bool(false) && Value::Float(-0.0) < Value::Float(0.0));
}

#[test]
fn indexes_that_an_update_does_not_touch_are_skipped() {
    let table = TableDefinition::new("t")
        .with_column("a", ColumnType::U8)
        .with_column("b", ColumnType::U8)
        .with_key([0])
        .with_index(IndexDefinition::new("i", [1]));
    let index = KeyExtractor::secondary(&table, 0).unwrap();
    let set = polychron_schema::ColumnSet::EMPTY;
    assert!(index.affects(set.with(1)) && !index.affects(set.with(0)));
    assert!(index.is_prefix());
    assert_eq!(index.fixed_bytes(), Some(2));
}
