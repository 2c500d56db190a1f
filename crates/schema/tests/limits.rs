//! What is refused, with which error, and that nothing changes then.

use polychron_base::Error;
use polychron_schema::{
    Changes, ColumnType, EncodedKey, IndexDefinition, Key, KeyExtractor, KeyScratch, MAX_COLUMNS, MAX_KEY_BYTES,
    MAX_ROW_BYTES, Row, RowBuffer, SchemaError, TableDefinition, Value, build_row,
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
    let secondary = KeyExtractor::secondary(&definition, 0).unwrap();
    assert_eq!(secondary.extract(buffer.as_row(), &mut scratch), Err(SchemaError::KeyTooLong));
    assert_eq!(page(MAX_KEY_BYTES + 1, 0, 0).encode(&mut buffer), Err(SchemaError::KeyTooLong));
    let long = "x".repeat(2000);
    assert_eq!(long.check(), Err(SchemaError::KeyTooLong));
    assert_eq!((1_u64, 2_u8).check(), Ok(()));
    assert_eq!(EncodedKey::len(&long.encode(&mut scratch)), MAX_KEY_BYTES);
    assert_eq!(primary.encode_key(&[long.into()], &mut scratch), Err(SchemaError::KeyTooLong));
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
    let unknown = SchemaError::UnknownColumn { column: "7".into() };
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
    assert!(changes.pieces(&layout, buffer.len()).any(|piece| piece.contains(&(slot.offset as usize))));
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
    let out_of_range = SchemaError::OutOfRange { column: "a".into(), expected: ColumnType::U16 };
    assert_eq!(refused(0, Value::Integer(-1)), out_of_range);
    assert_eq!(refused(0, Value::Unsigned(65536)), out_of_range);
    assert_eq!(refused(0, Value::Null), SchemaError::UnexpectedNull { column: "a".into() });
    assert!(matches!(refused(0, "1".into()), SchemaError::WrongType { found: "a string", .. }));
    assert_eq!(refused(1, "longer".into()), SchemaError::TooLong { column: "b".into(), bytes: 6, max: 5 });
    assert!(matches!(refused(1, Value::Bytes(vec![1])), SchemaError::WrongType { .. }));
    assert!(matches!(refused(2, Value::Decimal { units: 1, scale: 3 }), SchemaError::OutOfRange { .. }));
    assert!(matches!(refused(2, Value::Decimal { units: i64::MAX, scale: 1 }), SchemaError::OutOfRange { .. }));
    assert!(matches!(refused(3, Value::Bytes(vec![1, 2])), SchemaError::OutOfRange { .. }));
    assert!(matches!(refused(3, Value::Bytes(vec![1; 4])), SchemaError::TooLong { .. }));
    let few = build_row(&layout, &good[..3], &mut buffer);
    assert_eq!(few, Err(SchemaError::Arity { expected: 4, found: 3 }));
}
