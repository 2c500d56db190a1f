//! What is written is read, in groups of any length, and bytes of all kinds are refused in one line.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use polychron::schema::{ColumnType, EnumType, EnumVariant, RowBuffer, TableDefinition, Value, build_row};
use polychron_base::random::Random;

use super::super::{Sink as _, Source as _};
use super::columns::Values;
use super::{Columns, Groups};

static STATE: EnumType = EnumType::new(&[
    EnumVariant { name: "Open", number: -1 },
    EnumVariant { name: "Closed", number: 300 },
    EnumVariant { name: "Open", number: 7 },
]);

fn written(definition: &TableDefinition, rows: &[Vec<Value>], group_bytes: usize) -> Bytes {
    let layout = definition.layout().unwrap();
    let mut bytes = Vec::new();
    let mut groups = Groups::with_groups_of(definition, &layout, &mut bytes, group_bytes).unwrap();
    for values in rows {
        let mut row = RowBuffer::new();
        build_row(&layout, values, &mut row).unwrap();
        groups.write(row.as_row()).unwrap();
    }
    groups.finish().unwrap();
    bytes.into()
}

/// The rows of a file, as words.
fn read(definition: &TableDefinition, bytes: &Bytes) -> Result<Vec<Vec<u64>>, String> {
    let layout = definition.layout().unwrap();
    let mut columns = Columns::open(definition, bytes.clone())?;
    let (mut values, mut rows) = (Vec::new(), Vec::new());
    while let Some(number) = columns.next(&mut values)? {
        let mut row = RowBuffer::new();
        build_row(&layout, &values, &mut row).map_err(|error| format!(", row {number}: {error}"))?;
        rows.push(row.as_row().as_words().to_vec());
        assert_eq!(number, rows.len() as u64);
    }
    Ok(rows)
}

fn words(definition: &TableDefinition, rows: &[Vec<Value>]) -> Vec<Vec<u64>> {
    let layout = definition.layout().unwrap();
    let row = |values: &Vec<Value>| {
        let mut row = RowBuffer::new();
        build_row(&layout, values, &mut row).unwrap();
        row.as_row().as_words().to_vec()
    };
    rows.iter().map(row).collect()
}

/// A table of one column beside its key.
fn of(kind: ColumnType) -> TableDefinition {
    TableDefinition::new("of").with_column("id", ColumnType::U64).with_key([0]).with_nullable_column("c", kind)
}

#[test]
fn extremes_of_each_type_are_read_as_they_were_written() {
    use ColumnType as T;
    let text = |text: &str| Value::from(text);
    let decimal = |units, scale| Value::Decimal { units, scale };
    let all = [
        (T::Bool, vec![Value::Bool(false), Value::Bool(true)]),
        (T::I8, vec![Value::Integer(i8::MIN.into()), Value::Integer(i8::MAX.into())]),
        (T::I16, vec![Value::Integer(i16::MIN.into()), Value::Integer(i16::MAX.into())]),
        (T::I32, vec![Value::Integer(i32::MIN.into()), Value::Integer(i32::MAX.into())]),
        (T::I64, vec![Value::Integer(i64::MIN), Value::Integer(i64::MAX)]),
        (T::U8, vec![Value::Unsigned(0), Value::Unsigned(u8::MAX.into())]),
        (T::U16, vec![Value::Unsigned(0), Value::Unsigned(u16::MAX.into())]),
        (T::U32, vec![Value::Unsigned(0), Value::Unsigned(u32::MAX.into())]),
        (T::U64, vec![Value::Unsigned(0), Value::Unsigned(u64::MAX)]),
        (T::I128, vec![Value::Integer128(i128::MIN), Value::Integer128(-1), Value::Integer128(i128::MAX)]),
        (T::U128, vec![Value::Unsigned128(0), Value::Unsigned128(u128::MAX)]),
        (
            T::F32,
            [-0.0, f32::MIN, f32::MIN_POSITIVE, f32::NAN, f32::INFINITY].map(|it| Value::Float(it.into())).to_vec(),
        ),
        (T::F64, [-0.0, f64::MIN, f64::MIN_POSITIVE, f64::NAN, f64::NEG_INFINITY].map(Value::Float).to_vec()),
        (T::Char, vec![Value::Char('\0'), Value::Char(char::MAX)]),
        (T::Enum(&STATE), vec![Value::Integer(-1), Value::Integer(300), Value::Integer(7)]),
        (T::Decimal { scale: 18 }, vec![decimal(i64::MIN.into(), 18), decimal(-1, 18), decimal(i64::MAX.into(), 18)]),
        (T::Decimal { scale: 0 }, vec![decimal(i64::MIN.into(), 0), decimal(i64::MAX.into(), 0)]),
        (T::Decimal128 { scale: 38 }, vec![decimal(i128::MIN, 38), decimal(-1, 38), decimal(i128::MAX, 38)]),
        (T::Date, vec![Value::Date(i32::MIN), Value::Date(0), Value::Date(i32::MAX)]),
        (T::Timestamp, vec![Value::Timestamp(i64::MIN), Value::Timestamp(i64::MAX)]),
        (T::FixedString { bytes: 4 }, vec![text(""), text("\u{1f600}"), text("a")]),
        (T::FixedBytes { bytes: 3 }, vec![Value::from(vec![0, 0, 0]), Value::from(vec![255, 0, 255])]),
        (T::String { max: 9 }, vec![text(""), text("\0"), text(r"\N"), text("\u{1f600}")]),
        (T::Bytes { max: 9 }, vec![Value::from(vec![]), Value::from(vec![0]), Value::from(vec![255; 9])]),
    ];
    for (kind, values) in all {
        let definition = of(kind);
        let values = std::iter::once(Value::Null).chain(values).chain([Value::Null]);
        let rows: Vec<_> = values.enumerate().map(|(id, value)| vec![Value::from(id as u64), value]).collect();
        let expected = words(&definition, &rows);
        for group_bytes in [1, usize::MAX] {
            let bytes = written(&definition, &rows, group_bytes);
            assert_eq!(read(&definition, &bytes).as_ref(), Ok(&expected), "{kind} in groups of {group_bytes}");
        }
        let empty = written(&definition, &[], 1);
        assert_eq!(read(&definition, &empty), Ok(vec![]), "{kind}");
    }
}

fn drawn(random: &mut Random, rows: u64) -> Vec<Vec<Value>> {
    let text = |random: &mut Random| "ab".repeat(random.below(20) as usize);
    let row = |id| vec![Value::from(id), if random.chance(0.5) { Value::Null } else { Value::from(text(random)) }];
    (0..rows).map(row).collect()
}

#[test]
fn groups_are_bounded_and_rows_of_all_batches_are_there() {
    let definition = of(ColumnType::String { max: 40 });
    let rows = drawn(&mut Random::from_seed(1), 5000);
    let (one, many) = (written(&definition, &rows, usize::MAX), written(&definition, &rows, 10_000));
    let groups = |bytes: &Bytes| SerializedFileReader::new(bytes.clone()).unwrap().num_row_groups();
    assert_eq!(groups(&one), 1);
    assert!(groups(&many) > 10, "{}", groups(&many));
    let expected = words(&definition, &rows);
    assert!(read(&definition, &one).as_ref() == Ok(&expected) && read(&definition, &many).as_ref() == Ok(&expected));
}

#[test]
fn damage_is_one_line_or_another_value_and_never_a_panic() {
    let definition = of(ColumnType::String { max: 40 }).with_nullable_column("d", ColumnType::Decimal { scale: 2 });
    let mut random = Random::from_seed(2);
    let mut rows = drawn(&mut random, 60);
    rows.iter_mut().for_each(|row| row.push(Value::Decimal { units: random.below(1 << 40).into(), scale: 2 }));
    let whole = written(&definition, &rows, 1000);
    let mut refused = 0;
    for len in 0..whole.len() {
        let line = read(&definition, &whole.slice(..len)).unwrap_err();
        assert!(line.starts_with([':', ',']) && !line.contains('\n'), "{line}");
    }
    for number in 0..4000 {
        let mut bytes = whole.to_vec();
        for _ in 0..=random.below(3) {
            let at = if number % 2 == 0 {
                random.below(bytes.len() as u64)
            } else {
                bytes.len() as u64 - 1 - random.below(600)
            };
            bytes[at as usize] = random.next_u64() as u8;
        }
        refused += u32::from(read(&definition, &bytes.into()).is_err());
    }
    assert!(refused > 1000, "{refused}");
}

/// A file of one column of such a type beside the key, with one value.
fn other(physical: Physical, logical: Option<LogicalType>, value: &Values) -> Bytes {
    let id = Type::primitive_type_builder("id", Physical::INT64).with_repetition(Repetition::REQUIRED).build().unwrap();
    let builder = Type::primitive_type_builder("c", physical).with_repetition(Repetition::REQUIRED);
    let column = builder.with_logical_type(logical).build().unwrap();
    let fields = vec![Arc::new(id), Arc::new(column)];
    let schema = Type::group_type_builder("other").with_fields(fields).build().unwrap();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut next = group.next_column().unwrap().unwrap();
    next.typed::<Int64Type>().write_batch(&[1], None, None).unwrap();
    next.close().unwrap();
    let mut next = group.next_column().unwrap().unwrap();
    match value {
        Values::Int32(all) => next.typed::<Int32Type>().write_batch(all, None, None),
        Values::Int64(all) => next.typed::<Int64Type>().write_batch(all, None, None),
        Values::Double(all) => next.typed::<DoubleType>().write_batch(all, None, None),
        Values::Bytes(all) => next.typed::<ByteArrayType>().write_batch(all, None, None),
        _ => panic!("no test writes these"),
    }
    .unwrap();
    next.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes.into()
}

#[test]
fn other_types_are_read_where_the_value_is_one_of_the_columns() {
    use ColumnType as T;
    let nanos = || Some(LogicalType::timestamp(true, TimeUnit::NANOS));
    let text = |text: &str| Values::Bytes(vec![text.as_bytes().to_vec().into()]);
    let is_text = || Some(LogicalType::String);
    let right = [
        (other(Physical::INT64, None, &Values::Int64(vec![200])), T::U8, Value::Unsigned(200)),
        (other(Physical::INT32, None, &Values::Int32(vec![-2])), T::I128, Value::Integer(-2)),
        (
            other(Physical::INT32, None, &Values::Int32(vec![3])),
            T::Decimal { scale: 2 },
            Value::Decimal { units: 300, scale: 2 },
        ),
        (other(Physical::INT64, nanos(), &Values::Int64(vec![-5000])), T::Timestamp, Value::Timestamp(-5)),
        (other(Physical::BYTE_ARRAY, None, &text("a")), T::String { max: 1 }, Value::from("a")),
        (other(Physical::BYTE_ARRAY, is_text(), &text("Closed")), T::Enum(&STATE), Value::Integer(300)),
        (other(Physical::DOUBLE, None, &Values::Double(vec![0.5])), T::F32, Value::Float(0.5)),
    ];
    for (bytes, kind, value) in right {
        let definition = of(kind);
        assert_eq!(read(&definition, &bytes), Ok(words(&definition, &[vec![Value::from(1_u64), value]])), "{kind}");
    }
    let wrong = [
        (other(Physical::INT64, None, &Values::Int64(vec![256])), T::U8, ", row 1: "),
        (
            other(Physical::INT64, nanos(), &Values::Int64(vec![1])),
            T::Timestamp,
            ", row 1, column `c`: the value is no timestamp",
        ),
        (other(Physical::BYTE_ARRAY, is_text(), &text("a")), T::I8, ", column `c`: text are not values of i8"),
        (
            other(Physical::BYTE_ARRAY, is_text(), &text("Lost")),
            T::Enum(&STATE),
            ", row 1, column `c`: the value is no enum(",
        ),
        (other(Physical::BYTE_ARRAY, is_text(), &text("ab")), T::Char, ", row 1, column `c`: the value is no char"),
        (
            other(Physical::BYTE_ARRAY, None, &Values::Bytes(vec![vec![255].into()])),
            T::String { max: 1 },
            ", row 1, column `c`: ",
        ),
        (other(Physical::BYTE_ARRAY, is_text(), &text("ab")), T::String { max: 1 }, ", row 1: "),
        (other(Physical::DOUBLE, None, &Values::Double(vec![0.1])), T::F32, ", row 1: "),
        (
            other(Physical::DOUBLE, None, &Values::Double(vec![1.0])),
            T::I64,
            ", column `c`: floating-point numbers are not",
        ),
        (
            other(Physical::INT64, None, &Values::Int64(vec![0])),
            T::Date,
            ", column `c`: integers are not values of date",
        ),
    ];
    for (bytes, kind, line) in wrong {
        let said = read(&of(kind), &bytes).unwrap_err();
        assert!(said.starts_with(line), "{kind}: {said}");
    }
}
