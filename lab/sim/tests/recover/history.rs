//! Transactions, and what they make of rows: the tables, a model that is simple, and histories that a seed draws.

use std::collections::BTreeMap;
use std::sync::Arc;

use polychron_base::IndexId;
use polychron_base::random::Random;
use polychron_log::Logged;
use polychron_log::catalog::{Standing, StoredCatalog, StoredTable};
use polychron_log::frame::{Body, Order, Piece, Records, Writer};
use polychron_schema::{ColumnType, KeyExtractor, KeyScratch, RowBuffer, TableDefinition, Value, build_row};

/// A table of numbers.
pub(crate) const NUMBERS: u32 = 1;
/// A table whose rows have any length, by keys that may be long.
pub(crate) const TEXTS: u32 = 4;
/// A table that was dropped.
pub(crate) const DROPPED: u32 = 2;

/// Where a row of texts has its number, by words.
const NUMBER: usize = 0;

pub(crate) fn numbers() -> TableDefinition {
    let table = TableDefinition::new("numbers").with_column("id", ColumnType::U64);
    let table = (0..4).fold(table, |table, column| table.with_column(format!("n{column}"), ColumnType::U64));
    table.with_key([0])
}

pub(crate) fn texts() -> TableDefinition {
    TableDefinition::new("texts")
        .with_column("number", ColumnType::U64)
        .with_column("name", ColumnType::String { max: 100 })
        .with_column("text", ColumnType::String { max: 1000 })
        .with_key([1])
}

pub(crate) fn catalog() -> StoredCatalog {
    let table = |definition| StoredTable {
        definition: Arc::new(definition),
        indexes: Vec::new(),
        last_index: IndexId::PRIMARY,
        standing: Standing::Permanent,
    };
    let tables = BTreeMap::from([(NUMBERS, table(numbers())), (TEXTS, table(texts()))]);
    StoredCatalog::new(5, tables).expect("they are valid")
}

/// The words of a row.
pub(crate) fn row(definition: &TableDefinition, values: &[Value]) -> Vec<u64> {
    let mut buffer = RowBuffer::new();
    build_row(&definition.layout().expect("it is valid"), values, &mut buffer).expect("they fit");
    buffer.as_words().to_vec()
}

pub(crate) fn number_row(id: u64, numbers: [u64; 4]) -> Vec<u64> {
    [vec![id], numbers.to_vec()].concat()
}

pub(crate) fn text_row(name: &str, number: u64, text: &str) -> Vec<u64> {
    row(&texts(), &[number.into(), name.into(), text.into()])
}

/// The key of a row.
pub(crate) fn key(definition: &TableDefinition, row: &[u64]) -> Vec<u8> {
    let extractor = KeyExtractor::primary(definition).expect("it is valid");
    extractor.extract(polychron_schema::RowRef::from_words(row), &mut KeyScratch::new()).expect("it is short").to_vec()
}

pub(crate) fn number_key(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

#[derive(Clone, Debug)]
pub(crate) enum Done {
    Put(u32, Vec<u64>),
    Patch(u32, Vec<u8>, Vec<(usize, Vec<u64>)>),
    Delete(u32, Vec<u8>),
}

/// A patch of one range.
pub(crate) fn patch(table: u32, key: Vec<u8>, first: usize, words: &[u64]) -> Done {
    Done::Patch(table, key, vec![(first, words.to_vec())])
}

/// What one transaction has done.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) incarnation: u64,
    pub(crate) order: Order,
    pub(crate) done: Vec<Done>,
}

impl Transaction {
    pub(crate) fn new(incarnation: u64, order: u64, done: impl Into<Vec<Done>>) -> Self {
        Self { incarnation, order: Order { era: 0, timestamp: order }, done: done.into() }
    }

    /// Hands it out as a log does: in pieces if it has many changes.
    pub(crate) fn log(&self, visit: &mut dyn FnMut(Logged<'_>)) {
        let most = if self.done.len() > 3 { 2 } else { 3 };
        let (mut writer, count) = (Writer::new(), self.done.chunks(most).len());
        for (number, done) in self.done.chunks(most).enumerate() {
            let piece = Piece { first: (number * most) as u32, goes_on: number + 1 < count };
            writer.push_piece(self.order, 0, piece, &Self::body(done)).expect("there is room");
        }
        for record in Records::new(writer.content(), writer.count()) {
            visit(Logged { incarnation: self.incarnation, record: record.expect("it was encoded") });
        }
    }

    fn body(done: &[Done]) -> Body {
        let mut body = Body::new();
        for done in done {
            match done {
                Done::Put(table, row) => body.put(*table, row),
                Done::Patch(table, key, ranges) => {
                    let ranges: Vec<_> = ranges.iter().map(|(first, words)| (*first, words.as_slice())).collect();
                    body.patch(*table, key, &ranges)
                }
                Done::Delete(table, key) => body.delete(*table, key),
            }
            .expect("it is within the limits");
        }
        body
    }
}

/// Rows by table and key.
pub(crate) type Rows = BTreeMap<(u32, Vec<u8>), Vec<u64>>;

fn definition(table: u32) -> TableDefinition {
    if table == TEXTS { texts() } else { numbers() }
}

pub(crate) fn apply(rows: &mut Rows, done: &Done) {
    match done {
        Done::Put(table, row) => {
            rows.insert((*table, key(&definition(*table), row)), row.clone());
        }
        Done::Patch(table, key, ranges) => {
            let row = rows.get_mut(&(*table, key.clone())).expect("it is there");
            for (first, words) in ranges {
                row[*first..first + words.len()].copy_from_slice(words);
            }
        }
        Done::Delete(table, key) => {
            rows.remove(&(*table, key.clone()));
        }
    }
}

/// What is there after these transactions, in this order.
pub(crate) fn replay(transactions: &[Transaction]) -> Rows {
    let mut rows = Rows::new();
    transactions.iter().flat_map(|transaction| &transaction.done).for_each(|done| apply(&mut rows, done));
    rows
}

/// The rows of tables that are not dropped.
pub(crate) fn kept(mut rows: Rows) -> Rows {
    rows.retain(|(table, _), _| *table != DROPPED);
    rows
}

/// Transactions one after the other, of few keys and in some incarnations.
pub(crate) fn draw(random: &mut Random) -> Vec<Transaction> {
    let (mut rows, mut transactions) = (Rows::new(), Vec::new());
    let keys = 1 + random.below(12);
    for incarnation in 1..2 + random.below(3) {
        // Each one begins anew, or goes on.
        let mut order = Order { era: random.below(2), timestamp: random.below(100) };
        for _ in 0..random.below(60) {
            if random.chance(0.05) {
                order = Order { era: order.era + 1, timestamp: 0 };
            }
            order.timestamp += 1 + random.below(3);
            let mut done = Vec::new();
            for _ in 0..=random.below(5) {
                let one = draw_done(random, keys, &rows);
                apply(&mut rows, &one);
                done.push(one);
            }
            transactions.push(Transaction { incarnation, order, done });
        }
    }
    transactions
}

fn draw_done(random: &mut Random, keys: u64, rows: &Rows) -> Done {
    let table = [NUMBERS, NUMBERS, TEXTS, DROPPED][random.below(4) as usize];
    let id = random.below(keys);
    let name = if id.is_multiple_of(2) { id.to_string() } else { format!("{id:0>90}") };
    let row = if table == TEXTS {
        let length = if random.chance(0.5) { random.below(30) } else { random.below(1000) };
        text_row(&name, random.below(9), &"x".repeat(length as usize))
    } else {
        number_row(id, std::array::from_fn(|_| random.below(2) * random.next_u64()))
    };
    let key = key(&definition(table), &row);
    match rows.get(&(table, key.clone())) {
        Some(_) if random.chance(0.2) => Done::Delete(table, key),
        Some(_) if random.chance(0.6) => Done::Patch(table, key, draw_ranges(random, table)),
        // A deletion of nothing does no harm.
        None if random.chance(0.05) => Done::Delete(table, key),
        _ => Done::Put(table, row),
    }
}

/// Ranges of words that are no key's, and of which each value is one of its column.
fn draw_ranges(random: &mut Random, table: u32) -> Vec<(usize, Vec<u64>)> {
    if table == TEXTS {
        return vec![(NUMBER, vec![random.next_u64()])];
    }
    let first = 1 + random.below(4) as usize;
    let end = first + 1 + random.below(5 - first as u64) as usize;
    let mut words = |count: usize| (0..count).map(|_| random.below(2) * random.next_u64()).collect();
    let mut ranges = vec![(first, words(end - first))];
    if end < 4 {
        ranges.push((4, words(1)));
    }
    ranges
}
