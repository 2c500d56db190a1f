//! Properties of the two APIs: the same bytes, keys in the order of values, and no panic whatever the bytes are.

use std::cmp::Ordering;

use polychron_base::sizes::scaled;
use polychron_schema::{
    Changes, Column, ColumnOrder, ColumnType, Date, Decimal, Decimal128, EncodedKey, FixedBytes, FixedString,
    IndexDefinition, Key, KeyExtractor, KeyScratch, Layout, OwnedKey, RangeScratch, Row, RowBuffer, RowRef, RowViewMut,
    TableDefinition, Timestamp, Value, build_row, set_value,
};
use proptest::prelude::*;

/// Numbers that fill a byte, with gaps.
#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Open,
    Paid = 7,
    Closed = 255,
}

/// Numbers with signs, in another order than they are declared in.
#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i64)]
enum Level {
    High = 1 << 40,
    Low = -1 - (1 << 40),
    Middle = 3,
}

#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cents(i64);

/// A newtype around a newtype.
#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Price {
    cents: Cents,
}

#[derive(Column, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label(String);

#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tag(FixedString<7>);

#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Phase(State);

#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_text", columns(text, small))]
#[index(name = "by_name", columns(name), unique)]
#[index(name = "by_note", columns = [note, maybe], unique)]
#[index(name = "by_numbers", columns(float, truth, tiny, day))]
#[index(name = "by_kinds", columns = [state, short_float, wide, letter, level, label, price, array])]
#[index(name = "by_short_kinds", columns = [level, letter, maybe_state], unique)]
#[index(name = "by_wide", columns = [wide_unsigned], unique)]
#[index(name = "by_maybe_label", columns = [maybe_label, wide_money, phase, tag], unique)]
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
    instant: Timestamp,
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
    short_float: f32,
    wide: i128,
    wide_unsigned: u128,
    letter: char,
    array: [u8; 3],
    wide_money: Decimal128<20>,
    state: State,
    level: Level,
    cents: Cents,
    price: Price,
    label: Label,
    tag: Tag,
    phase: Phase,
    maybe_state: Option<State>,
    maybe_wide: Option<u128>,
    maybe_label: Option<Label>,
    maybe_letter: Option<char>,
    maybe_short_float: Option<f32>,
    maybe_phase: Option<Phase>,
}

/// A row whose keys are short numbers.
#[derive(Row, Clone, Debug)]
#[index(name = "by_c", columns(c))]
#[index(name = "by_d", columns(d, b), unique)]
#[index(name = "by_e", columns = [e, f], unique)]
#[index(name = "by_g", columns = [g, h], unique)]
struct Short {
    c: i16,
    #[key]
    a: i32,
    d: Timestamp,
    #[key]
    b: u64,
    e: Decimal<2>,
    f: i64,
    g: Level,
    h: char,
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

fn short_float() -> impl Strategy<Value = f32> {
    prop_oneof![any::<u32>().prop_map(f32::from_bits), Just(0.0), Just(-0.0), Just(f32::NAN), Just(-1.5)]
}

/// A number of 128 bits, as often as not near a border of fewer.
fn wide() -> impl Strategy<Value = i128> {
    let borders = [0, 1 << 63, 1 << 64, i128::MAX, i128::MIN];
    prop_oneof![any::<i128>(), (0..borders.len(), -2..=2_i128).prop_map(move |(at, by)| borders[at].wrapping_add(by))]
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![Just(State::Open), Just(State::Paid), Just(State::Closed)]
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Low), Just(Level::Middle), Just(Level::High)]
}

prop_compose! {
    /// The columns of the other half of the types.
    fn kinds()(
        (short_float, wide, wide_unsigned, wide_money) in (short_float(), wide(), wide(), wide()),
        (letter, array, maybe_letter) in any::<(char, [u8; 3], Option<char>)>(),
        (state, level, phase, maybe_state, maybe_phase) in
            (state(), level(), state(), proptest::option::of(state()), proptest::option::of(state())),
        (cents, price, label, tag) in (any::<i64>(), any::<i64>(), text(), name::<7>()),
        (maybe_wide, maybe_label, maybe_short_float) in
            (proptest::option::of(wide()), proptest::option::of(text()), proptest::option::of(short_float())),
        row in classic(),
    ) -> Every {
        Every {
            short_float, wide, wide_unsigned: wide_unsigned as u128, letter, array,
            wide_money: Decimal128::from_units(wide_money), state, level, cents: Cents(cents),
            price: Price { cents: Cents(price) }, label: Label(label), tag: Tag(tag), phase: Phase(phase), maybe_state,
            maybe_wide: maybe_wide.map(|wide| wide as u128), maybe_label: maybe_label.map(Label), maybe_letter,
            maybe_short_float, maybe_phase: maybe_phase.map(Phase), ..row
        }
    }
}

/// A row of every type.
fn every() -> impl Strategy<Value = Every> {
    kinds()
}

prop_compose! {
    fn classic()(
        (truth, tiny, small, medium, big) in any::<(bool, i8, i16, i32, i64)>(),
        (tiny_unsigned, small_unsigned, medium_unsigned, big_unsigned) in any::<(u8, u16, u32, u64)>(),
        float in float(),
        (money, day, instant, digest) in any::<(i64, i32, i64, [u8; 5])>(),
        name in name::<7>(),
        (text, bytes) in (text(), bytes()),
        (maybe, maybe_truth, maybe_day, maybe_money) in any::<(Option<i16>, Option<bool>, Option<i32>, Option<i64>)>(),
        maybe_name in proptest::option::of(name::<9>()),
        (note, blob) in (proptest::option::of(text()), proptest::option::of(bytes())),
    ) -> Every {
        Every {
            truth, tiny, small, medium, big, tiny_unsigned, small_unsigned, medium_unsigned, big_unsigned, float,
            money: Decimal::from_units(money), day: Date(day), instant: Timestamp(instant), name,
            digest: FixedBytes(digest), text, bytes, maybe, maybe_name, note, blob, maybe_truth,
            maybe_day: maybe_day.map(Date), maybe_money: maybe_money.map(Decimal::from_units), short_float: 0.0, wide: 0,
            wide_unsigned: 0, letter: 'a', array: [0; 3], wide_money: Decimal128::ZERO, state: State::Open,
            level: Level::Low, cents: Cents(0), price: Price { cents: Cents(0) }, label: Label(String::new()),
            tag: Tag(FixedString::default()), phase: Phase(State::Open), maybe_state: None, maybe_wide: None,
            maybe_label: None, maybe_letter: None, maybe_short_float: None, maybe_phase: None,
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
        row.instant.into(),
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
        row.short_float.into(),
        row.wide.into(),
        row.wide_unsigned.into(),
        row.letter.into(),
        row.array.into(),
        row.wide_money.into(),
        row.state.into(),
        row.level.into(),
        row.cents.into(),
        row.price.into(),
        row.label.into(),
        row.tag.into(),
        row.phase.into(),
        row.maybe_state.into(),
        row.maybe_wide.into(),
        row.maybe_label.into(),
        row.maybe_letter.into(),
        row.maybe_short_float.into(),
        row.maybe_phase.into(),
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

/// One of the four orders.
fn order(flags: u64) -> ColumnOrder {
    ColumnOrder { descending: flags & 1 != 0, nulls_last: flags & 2 != 0 }
}

/// How an index with such a column sorts two of its values.
fn compare(order: ColumnOrder, first: &Value, second: &Value) -> Ordering {
    match (first.is_null(), second.is_null()) {
        (false, false) if order.descending => second.cmp(first),
        (false, false) => first.cmp(second),
        (first, second) if order.nulls_last => first.cmp(&second),
        (first, second) => second.cmp(&first),
    }
}

/// A float as a key, compared as keys are.
#[derive(Clone, Copy, Debug)]
struct Total(f64);

proptest! {
    #![proptest_config(config())]

    #[test]
    fn apis_agree_on_rows(row in every(), other in every()) {
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
    fn changes_give_the_bytes_of_a_fresh_row(row in every(), other in every(), columns in any::<u64>()) {
        let layout = layout();
        let (mut changed, mut in_place, mut fresh) = (RowBuffer::new(), RowBuffer::new(), RowBuffer::new());
        row.encode(&mut changed).unwrap();
        row.encode(&mut in_place).unwrap();
        let mut wanted = values(&row);
        let mut changes = Changes::NONE;
        let mut view = Every::view_mut(&mut changed, &mut changes);
        // One column through the typed API, the rest through the dynamic one.
        if columns & 1 << 20 != 0 {
            view.set_blob(other.blob.as_deref()).unwrap();
            wanted[20] = other.blob.clone().into();
            prop_assert!(view.changes().whole_row());
        }
        if columns & 1 << 60 != 0 {
            let mut view = Every::view_mut(&mut changed, &mut changes);
            wanted[30..43].clone_from_slice(&values(&other)[30..43]);
            set_kinds(&mut view, &other);
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
            let bounding_range = changes.bounding_range().range(changed.len());
            let mut previous = 0;
            let mut bytes = in_place.as_bytes().to_vec();
            for run in changes.runs(&layout, changed.len()) {
                prop_assert!(run.start >= bounding_range.start && run.end <= bounding_range.end && run.start >= previous);
                prop_assert!(run.start.is_multiple_of(8) && run.end.is_multiple_of(8));
                bytes[run.clone()].copy_from_slice(&changed.as_bytes()[run.clone()]);
                previous = run.end + 1;
            }
            prop_assert_eq!(&bytes[..], fresh.as_bytes());
        }
    }

    #[test]
    fn apis_agree_on_keys(row in every(), other in every()) {
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
    fn orders_sort_keys(row in every(), other in every(), (first, count) in (0_usize..48, 1_usize..=32), flags in any::<u64>()) {
        let mut definition = Every::definition();
        let width = definition.columns.len();
        let columns: Vec<_> = (first..first + count).map(|column| column % width).collect();
        let orders: Vec<_> = (0..count).map(|at| order(flags >> (2 * (at % 32)))).collect();
        let index = IndexDefinition::new("in_orders", columns.clone()).with_unique(flags % 5 == 0).with_orders(orders);
        definition.indexes = vec![index.clone()];
        let (keys, mut scratch) = (KeyExtractor::secondary(&definition, 0).unwrap(), KeyScratch::new());
        let (mut buffer, mut other_buffer) = (RowBuffer::new(), RowBuffer::new());
        row.encode(&mut buffer).unwrap();
        other.encode(&mut other_buffer).unwrap();
        let mut extract = |row| keys.extract(row, &mut scratch).map(<[u8]>::to_vec);
        let (Ok(key), Ok(other_key)) = (extract(buffer.as_row()), extract(other_buffer.as_row())) else { return Ok(()) };
        let pick = |row| columns.iter().map(|&column| values(row)[column].clone()).collect::<Vec<_>>();
        let (wanted, other_wanted) = (pick(&row), pick(&other));
        let by_values = wanted.iter().zip(&other_wanted).enumerate().map(|(at, (a, b))| compare(index.order(at), a, b));
        let by_values = by_values.fold(Ordering::Equal, Ordering::then);
        if by_values.is_ne() {
            prop_assert_eq!(key.cmp(&other_key), by_values);
        }
        prop_assert_eq!(&keys.decode_key(&key).unwrap()[..count], &wanted[..]);
        for end in 1..=count {
            prop_assert!(key.starts_with(keys.encode_key(&wanted[..end], &mut scratch).unwrap()));
            let is_prefix_of_other = other_key.starts_with(keys.encode_key(&wanted[..end], &mut scratch).unwrap());
            if end < count {
                prop_assert_eq!(is_prefix_of_other, wanted[..end] == other_wanted[..end]);
            }
        }
        // What is known of a key's first bytes is named as far as it goes, and nothing panics.
        for end in 0..key.len() {
            prop_assert_eq!(keys.describe_front(&key[..end]).len(), count);
        }
        let described = keys.describe_front(&key);
        prop_assert!(wanted[..count - 1].iter().zip(&described).all(|(value, words)| value.to_string() == *words));
    }

    #[test]
    fn short_keys_in_orders_are_extracted_in_registers((a, b, c) in any::<(i32, u64, i16)>(), flags in any::<u64>()) {
        let row = Short { a, b, c, d: Timestamp(0), e: Decimal::from_units(0), f: 0, g: Level::Low, h: 'x' };
        let mut definition = Short::definition();
        let orders = [order(flags), order(flags >> 2)];
        definition.indexes = vec![IndexDefinition::new("in_orders", [0, 3]).with_unique(true).with_orders(orders)];
        let mut buffer = RowBuffer::new();
        row.encode(&mut buffer).unwrap();
        let (keys, mut scratch) = (KeyExtractor::secondary(&definition, 0).unwrap(), KeyScratch::new());
        prop_assert!(keys.extract_short(buffer.as_row()).is_some());
        let key = keys.extract(buffer.as_row(), &mut scratch).unwrap().to_vec();
        prop_assert_eq!(&key[..], keys.encode_key(&[c.into(), b.into()], &mut scratch).unwrap());
        prop_assert_eq!(keys.decode_key(&key).unwrap(), vec![c.into(), b.into()]);
    }

    #[test]
    fn short_keys_are_extracted_in_registers((a, b, c, d, e, f) in any::<(i32, u64, i16, i64, i64, i64)>(), g in level(), h in any::<char>()) {
        let row = Short { a, b, c, d: Timestamp(d), e: Decimal::from_units(e), f, g, h };
        let definition = Short::definition();
        let mut buffer = RowBuffer::new();
        row.encode(&mut buffer).unwrap();
        let mut scratch = KeyScratch::new();
        let primary = KeyExtractor::primary(&definition).unwrap();
        prop_assert_eq!(primary.extract_short(buffer.as_row()).unwrap(), row.key().encode(&mut scratch));
        let keys = [encoded(&(c, a, b)), encoded(&(row.d, b)), encoded(&(row.e, f)), encoded(&(g, h))];
        for (position, key) in keys.iter().enumerate() {
            let index = KeyExtractor::secondary(&definition, position).unwrap();
            prop_assert!(index.extract_short(buffer.as_row()).is_some());
            prop_assert_eq!(index.extract(buffer.as_row(), &mut scratch).unwrap(), &key[..]);
        }
    }

    #[test]
    fn typed_lookups_find_extracted_keys(row in every(), other in every()) {
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
        check_key(&a.instant, &b.instant);
        check_key(&a.name, &b.name);
        check_key(&a.digest, &b.digest);
        check_key(&a.text, &b.text);
        check_key(&a.bytes, &b.bytes);
        check_key(&a.maybe, &b.maybe);
        check_key(&a.maybe_name, &b.maybe_name);
        check_key(&a.note, &b.note);
        check_key(&a.blob, &b.blob);
        check_key(&a.wide, &b.wide);
        check_key(&a.wide_unsigned, &b.wide_unsigned);
        check_key(&a.letter, &b.letter);
        check_key(&a.array, &b.array);
        check_key(&a.wide_money, &b.wide_money);
        check_key(&a.state, &b.state);
        check_key(&(a.level as i64), &(b.level as i64));
        prop_assert_eq!(encoded(&a.level).cmp(&encoded(&b.level)), (a.level as i64).cmp(&(b.level as i64)));
        check_key(&a.price, &b.price);
        check_key(&a.label, &b.label);
        check_key(&a.tag, &b.tag);
        check_key(&a.maybe_phase, &b.maybe_phase);
        check_key(&a.maybe_wide, &b.maybe_wide);
        check_key(&a.maybe_label, &b.maybe_label);
        let (x, y) = (a.short_float, b.short_float);
        prop_assert_eq!(encoded(&x).cmp(&encoded(&y)), x.total_cmp(&y));
        prop_assert_eq!(f32::decode(&encoded(&x)).unwrap().to_bits(), x.to_bits());
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
        check_key(&(a.state, a.wide, a.letter), &(b.state, b.wide, b.letter));
        check_key(&(a.label.clone(), a.price, a.maybe_state), &(b.label.clone(), b.price, b.maybe_state));
        check_key(&(a.phase, a.letter, a.cents), &(b.phase, b.letter, b.cents));
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
        if let Ok(key) = <(State, Option<Phase>)>::decode(&bytes) {
            assert_eq!(encoded(&key), bytes);
        }
        if let Ok(key) = char::decode(&bytes) {
            assert_eq!(encoded(&key), bytes);
        }
        prop_assert_eq!(State::decode(&bytes).is_ok(), [vec![0], vec![7], vec![255]].contains(&bytes));
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

/// Sets the columns 30 to 42 by the setters.
fn set_kinds(view: &mut EveryMut<'_>, row: &Every) {
    view.set_wide(view.wide());
    view.set_state(row.state);
    view.set_level(row.level);
    view.set_cents(row.cents);
    view.set_price(row.price);
    let _ = view.set_label(&row.label.0);
    view.set_tag(row.tag);
    view.set_phase(row.phase);
    view.set_maybe_state(row.maybe_state);
    view.set_maybe_wide(row.maybe_wide);
    let _ = view.set_maybe_label(row.maybe_label.as_ref().map(|label| label.0.as_str()));
    view.set_maybe_letter(row.maybe_letter);
    view.set_maybe_short_float(row.maybe_short_float);
    view.set_maybe_phase(row.maybe_phase);
}

fn change_everything(buffer: &mut RowBuffer, row: &Every) {
    let mut changes = Changes::NONE;
    let mut view = Every::view_mut(buffer, &mut changes);
    view.set_big(row.big);
    view.set_maybe(row.maybe);
    view.set_name(&row.name);
    let _ = view.set_note(row.note.as_deref());
    let _ = view.set_bytes(&row.bytes);
    view.set_letter(row.letter);
    view.set_wide(row.wide);
    set_kinds(&mut view, row);
    assert_eq!((view.state(), view.price(), view.maybe_phase()), (row.state, row.price, row.maybe_phase));
    assert_eq!((view.letter(), view.wide(), view.tag()), (row.letter, row.wide, row.tag));
    assert_eq!((view.big(), view.maybe(), view.name()), (row.big, row.maybe, &row.name));
    read_everything(buffer.as_row());
}

#[test]
fn decimals_of_different_scales_compare() {
    let decimal = |units, scale| Value::Decimal { units, scale };
    assert_eq!(decimal(10, 1), decimal(100, 2));
    assert!(decimal(-1, 2) > decimal(-1, 1));
    assert!(decimal(i64::MAX.into(), 0) > decimal(i64::MAX.into(), 18));
    assert!(decimal(i128::MAX, 0) > decimal(i128::MAX, 38) && decimal(i128::MIN, 0) < decimal(i128::MIN, 38));
    assert!(Value::Integer(-1) < Value::Unsigned(0) && Value::Integer(1) == Value::Unsigned(1));
    assert!(
        Value::Unsigned128(u128::MAX) > Value::Integer128(i128::MAX) && Value::Integer128(-1) == Value::Integer(-1)
    );
    assert!(Value::Integer128(i128::MIN) < Value::Integer(i64::MIN) && Value::Unsigned(7) == Value::Unsigned128(7));
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
