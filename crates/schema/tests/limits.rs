//! What is refused, with which error, and that nothing changes then.

use polychron_base::Error;
use polychron_schema::{
    Changes, Column, ColumnType, Decimal128, EncodedKey, IndexDefinition, Key, KeyExtractor, KeyScratch, MAX_COLUMNS,
    MAX_KEY_BYTES, MAX_ROW_BYTES, Row, RowBuffer, SchemaError, TableDefinition, Value, build_row,
};

#[derive(Row)]
#[index(name = "by_text", columns(text))]
struct Page {
    #[key]
    address: String,
    text: String,
    other: Option<Vec<u8>>,
}

fn page(address: usize, text: usize, other: usize) -> Page {
    Page { address: "a".repeat(address), text: "t".repeat(text), other: Some(vec![1; other]) }
}

#[test]
fn rows_end_at_a_mebibyte() {
    let fixed = Page::SHAPE.fixed_bytes as usize;
    let mut buffer = RowBuffer::new();
    page(10, MAX_ROW_BYTES - fixed - 30, 20).encode(&mut buffer).unwrap();
    assert_eq!(buffer.len(), MAX_ROW_BYTES);
    let before = buffer.as_bytes().to_vec();
    let mut changes = Changes::NONE;
    let mut row = Page::view_mut(&mut buffer, &mut changes);
    let too_long = row.set_other(Some(&[2; 21])).unwrap_err();
    assert!(matches!(too_long, Error::RowTooLong(told) if told.bytes == MAX_ROW_BYTES + 8));
    assert_eq!(buffer.as_bytes(), before);
    let too_long = page(10, MAX_ROW_BYTES - fixed - 30, 21).encode(&mut buffer);
    assert_eq!(too_long, Err(SchemaError::RowTooLong { bytes: MAX_ROW_BYTES + 8 }));
    assert!(buffer.is_empty());
    assert!(page(10, MAX_ROW_BYTES, MAX_ROW_BYTES).encode(&mut buffer).is_err());
    page(10, 0, 0).encode(&mut buffer).unwrap();
}

#[test]
fn keys_end_at_a_kibibyte() {
    let mut buffer = RowBuffer::new();
    page(MAX_KEY_BYTES, 2000, 0).encode(&mut buffer).unwrap();
    let definition = Page::definition();
    let mut scratch = KeyScratch::new();
    let primary = KeyExtractor::primary(&definition).unwrap();
    assert_eq!(primary.extract(buffer.as_row(), &mut scratch).unwrap().len(), MAX_KEY_BYTES);
    // The title, its end, and the path.
    let secondary = KeyExtractor::secondary(&definition, 0).unwrap();
    assert_eq!(
        secondary.extract(buffer.as_row(), &mut scratch),
        Err(SchemaError::KeyTooLong { bytes: 2000 + 2 + MAX_KEY_BYTES })
    );
    assert_eq!(
        page(MAX_KEY_BYTES + 1, 0, 0).encode(&mut buffer),
        Err(SchemaError::KeyTooLong { bytes: MAX_KEY_BYTES + 1 })
    );
    let long = "x".repeat(2000);
    assert_eq!(long.check(), Err(SchemaError::KeyTooLong { bytes: 2000 }));
    assert_eq!((1_u64, 2_u8).check(), Ok(()));
    assert_eq!(EncodedKey::len(&long.encode(&mut scratch)), MAX_KEY_BYTES);
    assert_eq!(primary.encode_key(&[long.into()], &mut scratch), Err(SchemaError::KeyTooLong { bytes: 2000 }));
}

fn valid() -> TableDefinition {
    TableDefinition::new("t")
        .with_column("a", ColumnType::U16)
        .with_column("b", ColumnType::String { max: 5 })
        .with_nullable_column("c", ColumnType::Decimal { scale: 2 })
        .with_column("d", ColumnType::FixedBytes { bytes: 3 })
        .with_key([0, 1])
}

#[test]
fn definitions_are_checked() {
    let refused = |table: TableDefinition| table.validate().unwrap_err();
    valid().validate().unwrap();
    let unknown = SchemaError::UnknownColumn { column: "7 of t".into() };
    assert_eq!(refused(valid().with_key([0, 7])), unknown);
    assert_eq!(refused(valid().with_partition_column(7)), unknown);
    assert_eq!(refused(valid().with_index(IndexDefinition::new("i", [7]))), unknown);
    assert_eq!(refused(valid().with_key([])), SchemaError::NoKey { table: "t".into() });
    assert_eq!(refused(TableDefinition::new("t")), SchemaError::NoColumns { table: "t".into() });
    assert_eq!(refused(valid().with_key([2])), SchemaError::NullableKey { column: "c".into() });
    assert_eq!(refused(valid().with_key([0, 0])), SchemaError::RepeatedKeyColumn { column: "a".into() });
    assert_eq!(refused(valid().with_column("a", ColumnType::U8)), SchemaError::DuplicateName { name: "a".into() });
    assert_eq!(refused(valid().with_column("", ColumnType::U8)), SchemaError::EmptyName);
    assert_eq!(refused(valid().with_name("")), SchemaError::EmptyName);
    let index = || IndexDefinition::new("i", [2]);
    assert_eq!(
        refused(valid().with_index(index()).with_index(index())),
        SchemaError::DuplicateName { name: "i".into() }
    );
    let empty = IndexDefinition::new("i", []);
    assert_eq!(refused(valid().with_index(empty)), SchemaError::KeyColumns { key: "i".into(), columns: 0 });
    let column_type = ColumnType::Decimal { scale: 19 };
    assert_eq!(
        refused(valid().with_column("e", column_type)),
        SchemaError::InvalidType { column: "e".into(), column_type }
    );
    assert!(matches!(
        refused(valid().with_column("e", ColumnType::FixedString { bytes: 0 })),
        SchemaError::InvalidType { .. }
    ));
    let full = ColumnType::FixedBytes { bytes: MAX_ROW_BYTES as u32 };
    assert!(matches!(refused(valid().with_column("e", full)), SchemaError::RowTooWide { .. }));
    let many = (0..MAX_COLUMNS).fold(valid(), |table, index| table.with_column(format!("m{index}"), ColumnType::U8));
    assert_eq!(refused(many), SchemaError::TooManyColumns { columns: MAX_COLUMNS + 4 });
    let wide = valid().with_column("e", ColumnType::FixedBytes { bytes: 1025 });
    assert_eq!(refused(wide.clone().with_key([4])), SchemaError::KeyTooWide { key: "primary key".into(), bytes: 1025 });
    let nearly =
        valid().with_column("e", ColumnType::FixedBytes { bytes: 1024 }).with_index(IndexDefinition::new("i", [4]));
    assert_eq!(refused(nearly.clone()), SchemaError::KeyTooWide { key: "i".into(), bytes: 1026 });
    let mut unique = nearly;
    unique.indexes[0].unique = true;
    unique.validate().unwrap();
}

#[test]
fn wide_tables_err_on_the_safe_side() {
    let table = (0..200).fold(TableDefinition::new("wide").with_key([0]), |table, index| {
        table.with_nullable_column(format!("c{index}"), ColumnType::I64)
    });
    let mut table = table.with_index(IndexDefinition::new("i", [150]));
    table.columns[0].nullable = false;
    let layout = table.layout().unwrap();
    let index = KeyExtractor::secondary(&table, 0).unwrap();
    let mut buffer = RowBuffer::new();
    let mut values: Vec<_> = (0..200_i64).map(Value::from).collect();
    values[170] = Value::Null;
    build_row(&layout, &values, &mut buffer).unwrap();
    assert_eq!(buffer.as_row().values(&layout), values);
    let mut changes = Changes::NONE;
    let mut row = polychron_schema::RowMut::new(&mut buffer, &mut changes, layout.shape());
    polychron_schema::set_value(&mut row, &layout, 170, &Value::Integer(1)).unwrap();
    assert!(index.affects(changes.columns()));
    let slot = layout.columns()[170].slot;
    assert!(changes.runs(&layout, buffer.len()).any(|run| run.contains(&(slot.offset as usize))));
}

#[test]
fn values_are_checked() {
    let layout = valid().layout().unwrap();
    let mut buffer = RowBuffer::new();
    let good = [Value::Integer(1), "text".into(), Value::Null, Value::from(&[1, 2, 3][..])];
    build_row(&layout, &good, &mut buffer).unwrap();
    let mut refused = |column: usize, value: Value| {
        let mut values = good.clone();
        values[column] = value;
        let error = build_row(&layout, &values, &mut buffer).unwrap_err();
        assert!(buffer.is_empty());
        error
    };
    let out_of_range = SchemaError::OutOfRange { column: format!("{}.a", valid().name), expected: ColumnType::U16 };
    assert_eq!(refused(0, Value::Integer(-1)), out_of_range);
    assert_eq!(refused(0, Value::Unsigned(65536)), out_of_range);
    assert_eq!(refused(0, Value::Null), SchemaError::UnexpectedNull { column: format!("{}.a", valid().name) });
    assert!(matches!(refused(0, "1".into()), SchemaError::WrongType { found: "a string", .. }));
    assert_eq!(
        refused(1, "longer".into()),
        SchemaError::TooLong { column: format!("{}.b", valid().name), bytes: 6, max: 5 }
    );
    assert!(matches!(refused(1, Value::Bytes(vec![1])), SchemaError::WrongType { .. }));
    assert!(matches!(refused(2, Value::Decimal { units: 1, scale: 3 }), SchemaError::OutOfRange { .. }));
    assert!(matches!(refused(2, Value::Decimal { units: i64::MAX.into(), scale: 1 }), SchemaError::OutOfRange { .. }));
    assert!(matches!(refused(3, Value::Bytes(vec![1, 2])), SchemaError::OutOfRange { .. }));
    assert!(matches!(refused(3, Value::Bytes(vec![1; 4])), SchemaError::TooLong { .. }));
    let few = build_row(&layout, &good[..3], &mut buffer);
    assert_eq!(few, Err(SchemaError::RowArity { table: valid().name, expected: 4, found: 3 }));
}

/// Values of some columns as bytes of rows.
#[derive(Row, Clone, Debug, PartialEq)]
struct Kinds {
    #[key]
    id: u64,
    state: State,
    maybe: Option<State>,
    letter: char,
    float: f32,
    wide: i128,
    money: Decimal128<3>,
}

#[derive(Column, Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Paid = 7,
    Open = 2,
}

fn kinds() -> Kinds {
    let (letter, money) = ('ä', Decimal128::from_units(1));
    Kinds { id: 1, state: State::Open, maybe: None, letter, float: 0.1, wide: -1, money }
}

#[test]
fn values_of_kinds_are_checked() {
    let layout = Kinds::definition().layout().unwrap();
    let mut buffer = RowBuffer::new();
    kinds().encode(&mut buffer).unwrap();
    let good = buffer.as_row().values(&layout);
    let mut tried = |column: usize, value: Value| {
        let mut values = good.clone();
        values[column] = value;
        build_row(&layout, &values, &mut buffer)
    };
    for (column, value) in [
        (1, Value::Integer(7)),
        (1, Value::Unsigned128(2)),
        (2, Value::Unsigned(7)),
        (4, Value::Float(0.5)),
        (4, Value::Float(f64::NAN)),
        (4, Value::from(0.1_f32)),
        (5, Value::Unsigned128(i128::MAX as u128)),
        (6, Value::Decimal { units: i128::MIN, scale: 3 }),
        (6, Value::Decimal { units: -5, scale: 0 }),
    ] {
        assert_eq!(tried(column, value.clone()), Ok(()), "{column} {value}");
    }
    for (column, value) in [
        (1, Value::Integer(0)),
        (1, Value::Integer(-254)),
        (1, Value::Unsigned(7 + 256)),
        (2, Value::Unsigned128(2 + (1 << 64))),
        (4, Value::Float(0.1)),
        (4, Value::Float(1e300)),
        (5, Value::Unsigned128(1 << 127)),
        (6, Value::Decimal { units: i128::MAX, scale: 2 }),
        (6, Value::Decimal { units: 1, scale: 4 }),
    ] {
        assert!(matches!(tried(column, value.clone()), Err(SchemaError::OutOfRange { .. })), "{column} {value}");
    }
    for (column, value) in [(1, "Open".into()), (3, "ä".into()), (3, Value::Unsigned(1)), (4, Value::Integer(1))] {
        assert!(matches!(tried(column, value.clone()), Err(SchemaError::WrongType { .. })), "{column} {value}");
    }
    assert_eq!(tried(1, Value::Null), Err(SchemaError::UnexpectedNull { column: "kinds.state".into() }));
}

/// Bytes of no value are refused where rows come in from outside, and read without harm.
#[test]
fn bytes_of_no_value_are_refused() {
    let layout = Kinds::definition().layout().unwrap();
    let mut buffer = RowBuffer::new();
    kinds().encode(&mut buffer).unwrap();
    layout.check_row(buffer.as_row()).unwrap();
    let mut change = |column: usize, bytes: &[u8]| {
        kinds().encode(&mut buffer).unwrap();
        buffer.fixed_mut(layout.columns()[column].slot)[..bytes.len()].copy_from_slice(bytes);
        let checked = layout.check_row(buffer.as_row());
        (checked, Kinds::from_ref(Kinds::view(buffer.as_row())))
    };
    for number in 0..=255 {
        let (checked, row) = change(1, &[number]);
        assert_eq!(checked.is_ok(), [2, 7].contains(&number), "{number}");
        assert_eq!(row.state, if number == 2 { State::Open } else { State::Paid });
    }
    for letter in [0xD800_u32, 0x11_0000, u32::MAX] {
        let (checked, row) = change(3, &letter.to_le_bytes());
        assert!(matches!(checked, Err(SchemaError::MalformedColumn { .. })));
        assert_eq!(row.letter, char::REPLACEMENT_CHARACTER);
    }
    // The zero of a NULL is no variant's.
    assert_eq!(change(2, &[0]).0, Ok(()));
}

/// Keys of plain numbers are encoded in registers; what a column does not hold is refused, and never cut.
#[test]
fn numbers_of_keys_fit_their_columns() {
    let table = TableDefinition::new("numbers")
        .with_column("a", ColumnType::I16)
        .with_column("b", ColumnType::Date)
        .with_column("c", ColumnType::I32)
        .with_column("d", ColumnType::I8)
        .with_key([0, 1, 2, 3]);
    let (layout, keys) = (table.layout().unwrap(), KeyExtractor::primary(&table).unwrap());
    let of = |a: i64, days: i32, c: i64, d: i64| {
        [Value::Integer(a), Value::Date(days), Value::Integer(c), Value::Integer(d)]
    };
    let mut sorted = Vec::new();
    for values in [
        of(-32_768, 5, 0, 0),
        of(-1, i32::MIN, 7, -128),
        of(-1, -1, -7, 127),
        of(0, 0, 0, 0),
        of(32_767, 1, i64::from(i32::MAX), 1),
    ] {
        let (mut scratch, mut row, mut of_row) = (KeyScratch::new(), RowBuffer::new(), KeyScratch::new());
        build_row(&layout, &values, &mut row).unwrap();
        let key = keys.encode_key(&values, &mut scratch).unwrap();
        assert_eq!(key, keys.extract(row.as_row(), &mut of_row).unwrap());
        assert_eq!(keys.decode_key(key).unwrap(), values);
        sorted.push(key.to_vec());
        let front = keys.encode_key(&values[..2], &mut of_row).unwrap();
        assert!(key.starts_with(front) && front.len() == 6);
    }
    assert!(sorted.is_sorted());
    for (values, column) in [(of(32_768, 0, 0, 0), "a"), (of(0, 0, i64::MAX, 0), "c"), (of(0, 0, 0, -129), "d")] {
        let refused = keys.encode_key(&values, &mut KeyScratch::new()).map(<[u8]>::to_vec);
        assert!(
            matches!(&refused, Err(SchemaError::OutOfRange { column: named, .. }) if named == column),
            "{refused:?}"
        );
    }
    let null = keys
        .encode_key(&[Value::Null, Value::Date(0), Value::Integer(0), Value::Integer(0)], &mut KeyScratch::new())
        .map(<[u8]>::to_vec);
    assert!(matches!(null, Err(SchemaError::UnexpectedNull { .. })), "{null:?}");
}
