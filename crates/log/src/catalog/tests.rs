use std::collections::BTreeMap;

use polychron_base::{IndexId, TableId};
use polychron_schema::{
    ColumnDefinition, ColumnOrder, ColumnType, EnumType, EnumVariant, ForeignKeyDefinition, IndexDefinition, IndexKind,
    SchemaError, TableDefinition,
};

use super::*;

static STATE: EnumType =
    EnumType::new(&[EnumVariant { name: "Open", number: -1 }, EnumVariant { name: "Paid", number: 300 }]);

/// A table with a column of each type.
fn all_types() -> TableDefinition {
    use ColumnType::{Bool, Char, Date, F32, F64, I8, I16, I32, I64, I128, Timestamp, U8, U16, U32, U64, U128};
    let plain = [Bool, I8, I16, I32, I64, I128, U8, U16, U32, U64, U128, F32, F64, Char, Date, Timestamp];
    let bounded = [
        ColumnType::Enum(&STATE),
        ColumnType::Decimal { scale: 2 },
        ColumnType::Decimal128 { scale: 38 },
        ColumnType::FixedString { bytes: 16 },
        ColumnType::FixedBytes { bytes: 200 },
        ColumnType::String { max: 0 },
        ColumnType::Bytes { max: 1 << 20 },
    ];
    let types = plain.into_iter().chain(bounded);
    let table = types.zip('a'..).fold(TableDefinition::new("types"), |table, (column_type, name)| {
        if name == 'b' { table.with_nullable_column("b", column_type) } else { table.with_column(name, column_type) }
    });
    table.with_key([8, 0])
}

/// Two tables, between and behind which there were others, with everything that a definition can have.
fn catalog() -> StoredCatalog {
    let order = TableDefinition::new("Aufträge")
        .with_column("id", ColumnType::U64)
        .with_column("to", ColumnType::U32)
        .with_nullable_column("paid", ColumnType::Bool)
        .with_key([0])
        .with_index(IndexDefinition::new("by_to", [1, 2]).with_unique(true))
        .with_index(IndexDefinition::new("h", [2]).with_kind(IndexKind::Hash))
        .with_index(IndexDefinition::new("d", [2, 1, 0]).with_orders([
            ColumnOrder::DESCENDING,
            ColumnOrder::ASCENDING,
            ColumnOrder::ASCENDING.with_nulls_last(true),
        ]))
        .with_foreign_key(ForeignKeyDefinition::new([1, 2], "types"))
        .with_foreign_key(ForeignKeyDefinition::new([0], "Aufträge"))
        .with_primary_kind(IndexKind::Hash)
        .with_expected_rows(1000)
        .with_partition_column(1);
    let types = StoredTable {
        definition: all_types().into(),
        indexes: Vec::new(),
        last_index: IndexId(0),
        standing: Standing::Permanent,
    };
    let indexes = vec![IndexId(2), IndexId(500), IndexId(501)];
    let order =
        StoredTable { definition: order.into(), indexes, last_index: IndexId(501), standing: Standing::Provisional };
    StoredCatalog::new(300, BTreeMap::from([(1, types), (130, order)])).unwrap()
}

/// What the description of the format says, of the catalog above.
const FIXTURE: &str = concat!(
    "0100ac0202",                                         // format, next position, number of tables
    "01000005747970657317",                               // position, standing, highest index, name, number of columns
    "01610100",                                           // bool
    "01620201",                                           // i8 or NULL
    "01630300",                                           // i16
    "01640400",                                           // i32
    "01650500",                                           // i64
    "01660600",                                           // i128
    "01670700",                                           // u8
    "01680800",                                           // u16
    "01690900",                                           // u32
    "016a0a00",                                           // u64
    "016b0b00",                                           // u128
    "016c0c00",                                           // f32
    "016d0d00",                                           // f64
    "016e0e00",                                           // char
    "016f1200",                                           // date
    "01701300",                                           // timestamp
    "01710f02044f70656effffffffffffffffffffffffffffffff", // enum, first variant
    "04506169642c01000000000000000000000000000000",       // second variant
    "0172100200",                                         // decimal
    "0173112600",                                         // decimal128
    "0174141000",                                         // fixed string
    "017515c80100",                                       // fixed bytes
    "0176160000",                                         // string
    "01771780804000",                                     // bytes
    "02080001",                                           // key, kind
    "00000000",                                           // indexes, foreign keys, expected rows, partition column
    "820101f503094175667472c3a4676503",                   // position, standing, highest index, name, number of columns
    "0269640a0002746f090004706169640101",                 // columns
    "010002",                                             // key, kind
    "03020562795f746f0201020101",                         // number of indexes, the first one
    "f403016801020002",                                   // the second one
    "f5030164030201000003030002",                         // the third one
    "02020102057479706573",                               // number of foreign keys, the first one
    "0100094175667472c3a46765",                           // the second one
    "e8070101",                                           // expected rows, partition column
);

#[test]
fn the_bytes_stay_the_same() {
    let text: String = encode(&catalog()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, FIXTURE);
}

#[test]
fn what_is_encoded_is_decoded() {
    for catalog in [catalog(), StoredCatalog::default()] {
        assert_eq!(decode(&encode(&catalog)), Ok(catalog));
    }
}

#[test]
fn a_part_is_an_error() {
    let bytes = encode(&catalog());
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "{end} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decode(&longer), malformed(bytes.len(), Malformed::Behind));
}

#[test]
fn a_changed_byte_is_an_error_or_another_catalog() {
    let mut bytes = encode(&catalog());
    let (mut refused, mut accepted) = (0, 0);
    for at in 0..bytes.len() {
        for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
            bytes[at] ^= flip;
            match decode(&bytes) {
                Ok(other) => {
                    assert_eq!(encode(&other), bytes, "byte {at}");
                    assert_ne!(other, catalog());
                    accepted += 1;
                }
                Err(_) => refused += 1,
            }
            bytes[at] ^= flip;
        }
    }
    assert!(refused > 1000 && accepted > 100, "{refused} {accepted}");
}

fn malformed<T>(offset: usize, reason: Malformed) -> Result<T, Error> {
    Err(Error::Malformed { offset, reason })
}

#[test]
fn errors_say_what_is_wrong() {
    let table = TableDefinition::new("t").with_column("c", ColumnType::Bool).with_key([0]);
    let table = StoredTable {
        definition: table.into(),
        indexes: Vec::new(),
        last_index: IndexId(0),
        standing: Standing::Permanent,
    };
    let bytes = encode(&StoredCatalog::new(1, BTreeMap::from([(0, table)])).unwrap());
    // Format, next position, tables; position, standing, highest index id, name, columns; name, type, nullable; key, kind, lists, rows, partition.
    assert_eq!(bytes, [1, 0, 1, 1, 0, 0, 0, 1, b't', 1, 1, b'c', 1, 0, 1, 0, 1, 0, 0, 0, 0]);
    let with = |at: usize, changed: &[u8]| {
        let bytes = [&bytes[..at], changed, &bytes[at + 1..]].concat();
        decode(&bytes)
    };
    let unknown = |what, number| Malformed::Unknown { what, number };
    assert_eq!(with(0, &[2]), Err(Error::Unsupported { format: 2 }));
    assert_eq!(with(2, &[0]), Err(CatalogError::Positions { next: 0, bound: 1 }.into()));
    assert_eq!(
        with(2, &[0x81, 0x80, 0x80, 0x08]),
        Err(CatalogError::Positions { next: (1 << 24) + 1, bound: 1 }.into())
    );
    assert_eq!(with(2, &[0x81, 0]), malformed(2, Malformed::Number), "a longer form");
    assert_eq!(with(2, &[0xFF, 0xFF, 0xFF, 0xFF, 0x1F]), malformed(2, Malformed::Number), "more than 32 bits");
    assert_eq!(with(3, &[2]), malformed(21, Malformed::Number), "a second table");
    assert_eq!(with(7, &[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), malformed(12, Malformed::Length));
    assert_eq!(with(8, &[0xFF]), malformed(8, Malformed::Text));
    assert_eq!(with(12, &[24]), malformed(12, unknown("column type", 24)));
    assert_eq!(with(12, &[0]), malformed(12, unknown("column type", 0)));
    assert_eq!(with(13, &[2]), malformed(13, unknown("truth value", 2)));
    assert_eq!(with(5, &[2]), malformed(5, unknown("truth value", 2)));
    assert_eq!(with(16, &[0]), malformed(16, unknown("kind of an index", 0)));
    assert_eq!(with(16, &[3]), malformed(16, unknown("kind of an index", 3)));
    let refused = |error| Err(Error::Tables(CatalogError::Definition { table: "t".into(), error }));
    assert_eq!(with(13, &[1]), refused(SchemaError::NullableKey { column: "c".into() }));
    assert_eq!(with(15, &[1]), refused(SchemaError::UnknownColumn { column: "1 of t".into() }));
    let column_type = ColumnType::Decimal { scale: 19 };
    assert_eq!(with(12, &[16, 19]), refused(SchemaError::InvalidType { column: "c".into(), column_type }));
    let mut variants = vec![15, 2, 1, b'a'];
    variants.extend_from_slice(&[&7_u128.to_le_bytes()[..], &[1, b'b'], &7_u128.to_le_bytes()].concat());
    let repeated = Malformed::Enum("two variants have the same number");
    assert_eq!(with(12, &variants), malformed(13, repeated));
    assert!(matches!(
        with(12, &[15, 0]),
        Err(Error::Tables(CatalogError::Definition { error: SchemaError::InvalidType { .. }, .. }))
    ));
    let twice = [&bytes[..3], &[2], &bytes[4..], &bytes[4..]].concat();
    assert_eq!(decode(&twice), malformed(21, Malformed::Order));
}

#[test]
fn tables_that_do_not_go_together_are_refused() {
    let parts = || (catalog().next(), catalog().tables().clone());
    let changed = |change: &dyn Fn(&mut TableDefinition, &mut StoredTable)| {
        let (next, mut tables) = parts();
        let table = tables.get_mut(&130).unwrap();
        let mut definition = TableDefinition::clone(&table.definition);
        change(&mut definition, table);
        table.definition = definition.into();
        StoredCatalog::new(next, tables)
    };
    assert_eq!(changed(&|_, _| {}), Ok(catalog()));
    let name = || "Aufträge".to_owned();
    let ids: [&dyn Fn(&mut StoredTable); 5] = [
        &|table| table.indexes.truncate(1),
        &|table| table.indexes.push(IndexId(501)),
        &|table| table.indexes.swap(0, 1),
        &|table| table.indexes[0] = IndexId::PRIMARY,
        &|table| table.last_index = IndexId(499),
    ];
    for change in ids {
        assert_eq!(changed(&|_, table| change(table)), Err(CatalogError::IndexIds { table: name() }));
    }
    assert_eq!(
        changed(&|definition, _| definition.name = "types".into()),
        Err(CatalogError::NameTaken { name: "types".into() })
    );
    assert_eq!(
        changed(&|definition, _| definition.foreign_keys[0].parent = "gone".into()),
        Err(CatalogError::NoParent { table: name(), parent: "gone".into() })
    );
    let error = SchemaError::ForeignKeyTypes { parent: "types".into() };
    assert_eq!(
        changed(&|definition, _| definition.columns[1].column_type = ColumnType::U64),
        Err(CatalogError::Definition { table: name(), error })
    );
    let error = SchemaError::DuplicateName { name: "id".into() };
    let repeated = ColumnDefinition { name: "id".into(), column_type: ColumnType::Bool, nullable: false };
    assert_eq!(
        changed(&|definition, _| definition.columns.push(repeated.clone())),
        Err(CatalogError::Definition { table: name(), error })
    );
    let (_, tables) = parts();
    assert_eq!(StoredCatalog::new(130, tables.clone()), Err(CatalogError::Positions { next: 130, bound: 131 }));
    assert!(StoredCatalog::new(131, tables.clone()).is_ok());
    assert!(StoredCatalog::new(TableId::POSITIONS as u32, tables.clone()).is_ok());
    let next = TableId::POSITIONS as u32 + 1;
    assert_eq!(StoredCatalog::new(next, tables), Err(CatalogError::Positions { next, bound: 131 }));
}
