//! What recovery makes of records: whatever they are, rows that are rows of their tables, each once, and the same in whichever sequence the records come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use polychron_base::IndexId;
use polychron_log::catalog::{Standing, StoredCatalog, StoredTable};
use polychron_log::checkpoint::block;
use polychron_log::frame::{Body, Order, Record, Records, Writer};
use polychron_log::recover::{Batch, Sink, Source, Tail, Visit};
use polychron_log::{Error, Logged};
use polychron_schema::{ColumnType, KeyExtractor, KeyScratch, RowBuffer, RowRef, TableDefinition, Value, build_row};

use crate::input::Input;

/// Records made of the bytes, some of their bytes changed, over a checkpoint.
pub(crate) fn run_tails(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let changed: Vec<_> = (0..input.below(3)).map(|_| (input.number() as usize, input.byte())).collect();
    let checkpoint = Rows((0..input.below(4)).map(|_| made_row(&mut input)).collect());
    let writer = made_records(&mut input);
    let mut content = writer.content().to_vec();
    for (at, change) in changed {
        let at = at % content.len().max(1);
        content.get_mut(at).into_iter().for_each(|byte| *byte ^= change);
    }
    let records: Vec<_> = Records::new(&content, writer.count()).map_while(Result::ok).collect();
    let logged: Vec<_> = records.iter().zip(0..).map(|(record, number)| (1 + number / 4, *record)).collect();
    let forwards = recovered(logged.iter().copied(), &checkpoint);
    let backwards = recovered(logged.iter().rev().copied(), &checkpoint);
    let orders: BTreeSet<_> = logged.iter().map(|(incarnation, record)| (*incarnation, record.order)).collect();
    // Two transactions with one order are none of a log's.
    if orders.len() == logged.len() {
        assert_eq!(forwards.is_ok(), backwards.is_ok(), "the sequence decides what is an error");
        if let (Ok(forwards), Ok(backwards)) = (forwards, backwards) {
            assert_eq!(forwards, backwards, "the sequence decides what is recovered");
        }
    }
}

type Recovered = BTreeMap<(u32, Vec<u8>), Vec<u64>>;

fn recovered<'b>(records: impl Iterator<Item = (u64, Record<'b>)>, checkpoint: &Rows) -> Result<Recovered, Error> {
    let mut tail = Tail::new(catalog(), 0)?;
    for (incarnation, record) in records {
        tail.add(Logged { incarnation, record });
    }
    let collected = Collected::default();
    tail.finish()?.merge(1, checkpoint, &collected)?;
    Ok(collected.0.into_inner().expect("nothing has panicked"))
}

fn definitions() -> &'static [TableDefinition; 2] {
    static DEFINITIONS: OnceLock<[TableDefinition; 2]> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let numbers = TableDefinition::new("numbers").with_column("id", ColumnType::U8);
        let numbers = numbers.with_column("a", ColumnType::U64).with_nullable_column("b", ColumnType::I64);
        let texts = TableDefinition::new("texts").with_column("name", ColumnType::String { max: 40 });
        let texts = texts.with_nullable_column("text", ColumnType::String { max: 100 });
        [numbers.with_key([0]), texts.with_column("is_old", ColumnType::Bool).with_key([0])]
    })
}

fn catalog() -> &'static StoredCatalog {
    static CATALOG: OnceLock<StoredCatalog> = OnceLock::new();
    CATALOG.get_or_init(|| {
        let stored = |definition: &TableDefinition| StoredTable {
            definition: Arc::new(definition.clone()),
            indexes: Vec::new(),
            last_index: IndexId::PRIMARY,
            standing: Standing::Permanent,
        };
        // One position in between is that of a dropped table.
        let tables = [0, 2].into_iter().zip(definitions().iter().map(stored)).collect();
        StoredCatalog::new(3, tables).expect("the tables are valid")
    })
}

fn definition(table: u32) -> &'static TableDefinition {
    &definitions()[usize::from(table == 2)]
}

/// A row, mostly a valid one.
fn made_row(input: &mut Input<'_>) -> (u32, Vec<u64>) {
    let table = input.below(3) as u32;
    let values = if table == 2 {
        let name = [String::new(), "a".to_owned(), "b".repeat(30)][input.below(3)].clone();
        let text = input.maybe(|input| input.text(60)).map_or(Value::Null, Value::from);
        vec![Value::from(name), text, Value::from(input.flag())]
    } else {
        let number = input.maybe(|input| input.number().cast_signed());
        vec![(input.below(4) as u8).into(), input.number().into(), number.map_or(Value::Null, Value::from)]
    };
    let mut buffer = RowBuffer::new();
    let layout = definition(table).layout().expect("it is valid");
    // Text may be too long.
    let _ = build_row(&layout, &values, &mut buffer);
    let mut words = buffer.as_words().to_vec();
    if input.below(16) == 15 {
        words.push(input.number());
    }
    (table, words)
}

fn made_records(input: &mut Input<'_>) -> Writer {
    let mut writer = Writer::new();
    let mut order = Order::default();
    for _ in 0..input.below(12) {
        let mut body = Body::new();
        for _ in 0..=input.below(4) {
            let (table, row) = made_row(input);
            let key = key_of(table, &row).unwrap_or_else(|| input.bytes(4));
            let first = input.below(row.len() + 1);
            let words: Vec<u64> = (0..=input.below(3)).map(|_| u64::from(input.byte())).collect();
            match input.below(4) {
                0 => body.delete(table, &key),
                1 => body.patch(table, &key, &[(first, &words)]),
                _ => body.put(table, &row),
            }
            .expect("it is within the limits");
        }
        order.timestamp = order.timestamp.wrapping_add(1 + input.below(3) as u64);
        order.era += u64::from(input.below(8) == 7);
        writer.push(order, 0, &body).expect("there is room");
    }
    writer
}

fn key_of(table: u32, row: &[u64]) -> Option<Vec<u8>> {
    let extractor = KeyExtractor::primary(definition(table)).expect("it is valid");
    extractor.extract(RowRef::from_words(row), &mut KeyScratch::new()).ok().map(<[u8]>::to_vec)
}

/// Rows of a checkpoint.
struct Rows(Vec<(u32, Vec<u64>)>);

impl Source for Rows {
    fn parts(&self) -> usize {
        1
    }

    fn read(&self, _: usize, visit: &mut Visit<'_>) -> Result<(), Error> {
        // That they are different is the checkpoint's to see to.
        let mut keys = BTreeSet::new();
        for (table, words) in self.0.iter().filter(|(table, words)| keys.insert((*table, key_of(*table, words)))) {
            let mut body = Body::new();
            body.put(*table, words).expect("it is short");
            let visited = visit(block::Rows::new(*table, body.as_bytes(), 1));
            if visited.expect("it is well formed").is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Collected(Mutex<Recovered>);

impl Sink for Collected {
    type Error = Error;

    fn rows(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let layout = batch.definition().layout().expect("it is valid");
        for row in batch.rows() {
            assert_eq!(layout.check_row(RowRef::from_words(row.words)), Ok(()), "a row is one of its table");
            assert_eq!(key_of(batch.table(), row.words).as_deref(), Some(row.key), "the key is the row's");
            let place = (batch.table(), row.key.to_vec());
            let before = self.0.lock().expect("nothing has panicked").insert(place, row.words.to_vec());
            assert_eq!(before, None, "a row leaves once");
        }
        Ok(())
    }
}
