//! The tables of the tests.

// Two `#[index]`es of one table may well say the same of their kind.
#![allow(clippy::duplicated_attributes)]

use polychron_engine::{Error, Operations, Table, Transaction};
use polychron_schema::{Decimal, Row};

/// A number under a number.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    #[key]
    pub(crate) id: u64,
    pub(crate) value: i64,
}

/// The same in a hash table.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[row(primary = "hash")]
pub(crate) struct Cell {
    #[key]
    pub(crate) id: u64,
    pub(crate) value: i64,
}

/// A row with secondary indexes, a NULL and a text that makes it grow.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_team", columns(team))]
#[index(name = "by_code", columns(code), unique)]
pub(crate) struct Person {
    #[key]
    pub(crate) id: u64,
    pub(crate) team: u16,
    /// NULL equals nothing.
    pub(crate) code: Option<u32>,
    pub(crate) number: i64,
    #[column(max = 4000)]
    pub(crate) text: String,
}

/// A row whose secondary indexes are hashed.
#[derive(Row, Clone, Copy, Debug, PartialEq, Eq)]
#[index(name = "by_badge", columns(badge), unique, kind = "hash")]
#[index(name = "by_room", columns(room), kind = "hash")]
pub(crate) struct Guest {
    #[key]
    pub(crate) id: u64,
    pub(crate) badge: u32,
    pub(crate) room: u32,
}

/// A row with a long key.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_title", columns(title))]
pub(crate) struct Page {
    #[key]
    #[column(max = 4000)]
    pub(crate) path: String,
    #[column(max = 4000)]
    pub(crate) title: String,
    pub(crate) visits: u32,
}

/// A row with names of any length, the empty one among them.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_name", columns(name), unique)]
pub(crate) struct Named {
    #[key]
    pub(crate) key: String,
    pub(crate) name: String,
}

/// A long row.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    #[key]
    pub(crate) id: u64,
    #[column(max = 1 << 20)]
    pub(crate) bytes: Vec<u8>,
}

/// A person whose other columns follow from the id.
pub(crate) fn person(id: u64, team: u16, code: u32) -> Person {
    Person { id, team, code: Some(code), number: id as i64 * 10, text: format!("person {id}") }
}

/// The value of an item, if there is one.
pub(crate) fn value<T: Transaction>(transaction: &mut T, table: &Table<Item>, id: u64) -> Result<Option<i64>, Error> {
    Ok(transaction.get(table, id)?.map(|row| row.value()))
}

/// Sets the value of an item that is there.
pub(crate) fn set<T: Transaction>(transaction: &mut T, table: &Table<Item>, id: u64, value: i64) -> Result<(), Error> {
    let found = transaction.update(table, id, |row| row.set_value(value))?;
    assert!(found, "item {id} is there");
    Ok(())
}

/// A row with a unique text.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_name", columns(name), unique)]
pub(crate) struct Town {
    #[key]
    pub(crate) id: u64,
    pub(crate) name: String,
}

/// A row with composite keys of text, unique and not.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[index(name = "by_title", columns(title))]
#[index(name = "by_note", columns(note), unique)]
#[index(name = "by_code", columns(code))]
#[index(name = "by_place", columns(shelf, title))]
#[index(name = "by_mark", columns(shelf, note), unique)]
pub(crate) struct Song {
    #[key]
    pub(crate) id: u64,
    pub(crate) shelf: u16,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) code: Option<u32>,
}

/// A number under a text.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    #[key]
    #[column(max = 4000)]
    pub(crate) name: String,
    pub(crate) value: i64,
}

/// A person out of a view.
pub(crate) fn own(row: <Person as Row>::Ref<'_>) -> Person {
    Person::from_ref(row)
}

/// A row whose text keys are hashed.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[row(primary = "hash")]
#[index(name = "by_address", columns(address), unique, kind = "hash")]
pub(crate) struct Host {
    #[key]
    #[column(max = 4000)]
    pub(crate) name: String,
    #[column(max = 4000)]
    pub(crate) address: String,
}

/// A row with numbers of every kind that has sums, and text.
#[derive(Row, Clone, Debug, PartialEq)]
#[index(name = "by_shelf", columns(shelf))]
pub(crate) struct Goods {
    #[key]
    pub(crate) id: u64,
    pub(crate) shelf: Option<u16>,
    pub(crate) label: String,
    pub(crate) stock: i32,
    pub(crate) sold: Option<u64>,
    pub(crate) price: Decimal<2>,
    pub(crate) weight: f32,
    pub(crate) ratio: Option<f64>,
    pub(crate) far: i128,
    pub(crate) mark: i64,
}
