//! Catalogs: what is encoded is decoded, and no other bytes are.

use std::collections::BTreeMap;
use std::sync::Arc;

use polychron_base::IndexId;
use polychron_log::catalog::{Standing, StoredCatalog, StoredTable, decode, encode};
use polychron_schema::{
    ColumnOrder, ColumnType, EnumType, ForeignKeyDefinition, IndexDefinition, IndexKind, TableDefinition,
};

use crate::input::Input;

/// Bytes as a catalog, a catalog made of them, and its encoding cut off and with some bytes changed.
pub(crate) fn run_catalogs(bytes: &[u8]) {
    any_catalog(bytes);
    let mut input = Input::new(bytes);
    // In front, because a large catalog takes all of the input.
    let changes: Vec<_> = (0..=input.below(3)).map(|_| (input.number() as usize, input.byte())).collect();
    let end = input.number() as usize;
    let made = made_catalog(&mut input);
    let mut encoded = encode(&made);
    assert_eq!(decode(&encoded), Ok(made), "what is encoded is decoded");
    assert!(decode(&encoded[..end % encoded.len()]).is_err(), "a part is no whole");
    for (at, change) in changes {
        let at = at % encoded.len();
        encoded[at] ^= change;
    }
    any_catalog(&encoded);
}

fn any_catalog(bytes: &[u8]) {
    if let Ok(catalog) = decode(bytes) {
        assert_eq!(encode(&catalog), bytes, "there is one way to write a catalog");
        let valid = |table: &StoredTable| table.definition.validate().is_ok();
        assert!(catalog.tables().values().all(valid), "what is decoded is valid");
    }
}

/// Valid tables, some with foreign keys to those before.
fn made_catalog(input: &mut Input<'_>) -> StoredCatalog {
    let (mut tables, mut next) = (BTreeMap::<u32, StoredTable>::new(), 0);
    for _ in 0..input.below(5) {
        next += input.below(3) as u32;
        let parent = tables.values().nth(input.below(5)).map(|table| Arc::clone(&table.definition));
        let definition = made_table(input, next, parent.as_deref());
        let mut last_index = IndexId::PRIMARY;
        let mut id = || {
            last_index.0 += 1 + input.below(3) as u16;
            last_index
        };
        let indexes = definition.indexes.iter().map(|_| id()).collect();
        last_index.0 += input.below(3) as u16;
        let standing = if input.below(4) == 0 { Standing::Provisional } else { Standing::Permanent };
        tables.insert(next, StoredTable { definition: Arc::new(definition), indexes, last_index, standing });
        next += 1;
    }
    next += input.below(3) as u32;
    StoredCatalog::new(next, tables).expect("the tables are valid")
}

fn made_table(input: &mut Input<'_>, position: u32, parent: Option<&TableDefinition>) -> TableDefinition {
    let mut table = TableDefinition::new(format!("{position} {}", input.text(10)));
    let count = 1 + input.below(8);
    for at in 0..count {
        // The first one is the key's.
        let nullable = input.flag() && at > 0;
        let column_type = column_type(input);
        table = with_column(table, input.text(5), column_type, nullable);
    }
    let mut key = vec![0];
    key.extend((1..count).filter(|&at| !table.columns[at].nullable && input.flag()));
    table = table.with_key(key).with_primary_kind(kind(input)).with_expected_rows(input.number() as usize);
    for number in 0..input.below(4) {
        let (first, columns) = (input.below(count), 1 + input.below(count));
        let columns: Vec<_> = (first..first + columns).map(|column| column % count).collect();
        let index = IndexDefinition::new(format!("{number} {}", input.text(5)), columns);
        let index = index.with_unique(input.flag()).with_kind(kind(input));
        table = table.with_index(if index.kind == IndexKind::Ordered { in_orders(input, index) } else { index });
    }
    if input.flag() {
        let itself = ForeignKeyDefinition::new(table.key.clone(), table.name.clone());
        table = table.with_foreign_key(itself);
    }
    if let Some(parent) = parent {
        table = with_parent(input, table, parent);
    }
    if input.flag() { table.with_partition_column(input.below(count)) } else { table }
}

/// The same table with columns that hold a key of the parent, and an index of these.
fn with_parent(input: &mut Input<'_>, mut table: TableDefinition, parent: &TableDefinition) -> TableDefinition {
    let first = table.columns.len();
    for &column in &parent.key {
        let column_type = parent.columns[column].column_type;
        table = with_column(table, input.text(5), column_type, input.flag());
    }
    let columns: Vec<_> = (first..table.columns.len()).collect();
    table
        .with_index(IndexDefinition::new("parent", columns.clone()))
        .with_foreign_key(ForeignKeyDefinition::new(columns, parent.name.clone()))
}

fn with_column(table: TableDefinition, name: String, column_type: ColumnType, nullable: bool) -> TableDefinition {
    let name = format!("{} {name}", table.columns.len());
    if nullable { table.with_nullable_column(name, column_type) } else { table.with_column(name, column_type) }
}

/// The same index with an order for each column.
fn in_orders(input: &mut Input<'_>, index: IndexDefinition) -> IndexDefinition {
    let mut order = |_| ColumnOrder { descending: input.flag(), nulls_last: input.flag() };
    let orders: Vec<_> = (0..index.columns.len()).map(&mut order).collect();
    index.with_orders(orders)
}

fn kind(input: &mut Input<'_>) -> IndexKind {
    if input.flag() { IndexKind::Hash } else { IndexKind::Ordered }
}

/// Any type; fixed ones are so short that eight of them fit twice in a key.
fn column_type(input: &mut Input<'_>) -> ColumnType {
    use ColumnType::{Bool, Char, Date, F32, F64, I8, I16, I32, I64, I128, Timestamp, U8, U16, U32, U64, U128};
    const PLAIN: [ColumnType; 16] =
        [Bool, I8, I16, I32, I64, I128, U8, U16, U32, U64, U128, F32, F64, Char, Date, Timestamp];
    match input.below(8) {
        0 => ColumnType::Decimal { scale: input.below(19) as u32 },
        1 => ColumnType::Decimal128 { scale: input.below(39) as u32 },
        2 => ColumnType::FixedString { bytes: 1 + input.below(40) as u32 },
        3 => ColumnType::FixedBytes { bytes: 1 + input.below(40) as u32 },
        4 => ColumnType::String { max: input.number() as u32 >> 12 },
        5 => ColumnType::Bytes { max: input.number() as u32 >> 12 },
        6 => enum_type(input),
        _ => PLAIN[input.below(PLAIN.len())],
    }
}

fn enum_type(input: &mut Input<'_>) -> ColumnType {
    let names: Vec<_> = (0..=input.below(4)).map(|_| input.text(3)).collect();
    let (first, step) = (i128::from(input.number().cast_signed()), 1 + i128::from(input.byte()));
    let numbers = (0..).map(|at: i128| if first < 0 { first + at * step } else { first - at * step });
    let variants: Vec<_> = names.iter().map(String::as_str).zip(numbers).collect();
    ColumnType::Enum(EnumType::interned(&variants).expect("the numbers are different and small"))
}
