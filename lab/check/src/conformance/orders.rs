//! Indexes whose columns are sorted in orders of their own: scans give rows in that order, whatever changed them and wherever they begin.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use polychron_base::key::Key8;
use polychron_base::random::Random;
use polychron_base::{Error, IndexId};
use polychron_engine::scan::Direction;
use polychron_engine::{Insertion, Interactive, Operations, Protocol, RowBuffer, Scan, Table, Transaction};
use polychron_schema::{
    ColumnOrder, ColumnType, IndexDefinition, KeyExtractor, KeyScratch, Row, TableDefinition, Value, build_row,
};

use crate::Setup;
use crate::rows::{Person, person};
use crate::setup::{done, run};

const TEAM: usize = 1;
const CODE: usize = 2;
const TEXT: usize = 4;

/// The teams fall, and within each the codes rise, those without one at the end.
const BY_TEAM: usize = 2;
/// Texts fall, as does what they are told apart by.
const BY_TEXT: usize = 3;
/// One person alone has a code; those without one come first.
const BY_CODE: usize = 4;

fn definition() -> TableDefinition {
    let (rising, falling) = (ColumnOrder::ASCENDING, ColumnOrder::DESCENDING);
    Person::definition()
        .with_index(IndexDefinition::new("falling", [TEAM, CODE]).with_orders([falling, rising.with_nulls_last(true)]))
        .with_index(IndexDefinition::new("texts", [TEXT]).with_orders([falling]))
        .with_index(
            IndexDefinition::new("one_code", [CODE]).with_unique(true).with_orders([falling.with_nulls_last(false)]),
        )
}

/// The order of two persons in an index; they are told apart by their ids.
fn compare(index: usize, one: &Person, other: &Person) -> Ordering {
    let by_columns = match index {
        BY_TEAM => {
            let code = |person: &Person| person.code.map_or(u64::MAX, u64::from);
            other.team.cmp(&one.team).then(code(one).cmp(&code(other)))
        }
        BY_TEXT => other.text.cmp(&one.text),
        _ => other.code.is_none().cmp(&one.code.is_none()).then(other.code.cmp(&one.code)),
    };
    by_columns.then(one.id.cmp(&other.id))
}

/// The ids in an index between two of its keys.
fn scanned<T: Transaction>(
    t: &mut T,
    table: &Table<Person>,
    index: usize,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> Result<Vec<u64>, Error> {
    let scan = Scan { index: IndexId(index as u16 + 1), lower, upper, direction, ..Scan::all(table.id()) };
    let mut ids = Vec::new();
    t.scan_rows(&scan, &mut |row| {
        ids.push(Person::view(row).id());
        ControlFlow::Continue(())
    })?;
    Ok(ids)
}

/// A person of a few teams and codes, with texts of which some begin others.
fn drawn(random: &mut Random, id: u64) -> Person {
    let texts = ["", "\0", "a", "a\0", "ab", "b", "\u{10FFFF}"];
    let code = (random.below(4) > 0).then(|| random.below(40) as u32);
    let text = texts[random.below(texts.len() as u64) as usize].to_owned();
    Person { code, text, team: random.below(4) as u16 + 254, ..person(id, 0, 0) }
}

/// Every index, forwards and backwards, as a whole and between two keys, gives what the model has there.
fn check<T: Transaction>(t: &mut T, table: &Table<Person>, model: &[Person], random: &mut Random) -> Result<(), Error> {
    let definition = definition();
    for index in [BY_TEAM, BY_TEXT, BY_CODE] {
        let keys = KeyExtractor::secondary(&definition, index)?;
        let mut sorted = model.to_vec();
        sorted.sort_by(|one, other| compare(index, one, other));
        let ids: Vec<_> = sorted.iter().map(|person| person.id).collect();
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(scanned(t, table, index, all, Direction::Forward)?, ids);
        let backwards: Vec<_> = ids.iter().rev().copied().collect();
        assert_eq!(scanned(t, table, index, all, Direction::Backward)?, backwards);
        // From one row's columns up to another's: the first columns alone, which many rows share.
        let Some(bounds) = random.below(model.len() as u64 + 1).checked_sub(1) else { continue };
        let (first, last) = (&model[bounds as usize], &model[random.below(model.len() as u64) as usize]);
        let column = |person: &Person| match index {
            BY_TEAM => Value::from(person.team),
            BY_TEXT => Value::from(person.text.as_str()),
            _ => Value::from(person.code),
        };
        let (mut lower, mut upper) = (KeyScratch::new(), KeyScratch::new());
        let lower = keys.encode_key(&[column(first)], &mut lower)?;
        keys.encode_key(&[column(last)], &mut upper)?;
        let bounded = upper.make_successor();
        let range =
            (Bound::Included(lower), if bounded { Bound::Excluded(upper.as_bytes()) } else { Bound::Unbounded });
        let of_front =
            |person: &Person| Person { code: person.code.filter(|_| index == BY_CODE), id: 0, ..person.clone() };
        let front = |one: &Person, other: &Person| compare(index, &of_front(one), &of_front(other));
        let within = sorted.iter().filter(|it| front(it, first).is_ge() && front(it, last).is_le());
        let within: Vec<_> = within.map(|person| person.id).collect();
        assert_eq!(scanned(t, table, index, range, Direction::Forward)?, within);
    }
    Ok(())
}

/// Insertions, changes and deletions, some rolled back, and scans by each index, in the transaction that changed rows and behind it.
pub fn of_columns<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table = Table::<Person>::from_id(database.create_table(definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut random = Random::from_seed(7);
    let mut model: Vec<Person> = Vec::new();
    for round in 0..60 {
        let (mut changed, fails) = (model.clone(), random.below(4) == 0);
        let ended = run(&mut worker, |t| {
            changed.clone_from(&model);
            let mut random = Random::from_seed(round);
            for _ in 0..3 {
                let id = random.below(24);
                let person = drawn(&mut random, id);
                let taken =
                    |other: &&Person| other.id != person.id && person.code.is_some() && other.code == person.code;
                let is_refused = changed.iter().any(|other| taken(&other));
                if random.below(4) == 0 {
                    t.delete(&table, person.id)?;
                    changed.retain(|other| other.id != person.id);
                    continue;
                }
                match t.upsert(&table, &person) {
                    Err(Error::Duplicate(_)) => assert!(is_refused),
                    outcome => {
                        outcome?;
                        assert!(!is_refused);
                        changed.retain(|other| other.id != person.id);
                        changed.push(person);
                    }
                }
            }
            check(t, &table, &changed, &mut random)?;
            if fails { Err(Error::other(std::fmt::Error)) } else { Ok(()) }
        });
        assert_eq!(ended.is_err(), fails, "{ended:?}");
        if !fails {
            model = changed;
        }
        done(&mut worker, |t| check(t, &table, &model, &mut Random::from_seed(round)));
        if round % 10 == 0 {
            (setup.tick)(&database);
        }
    }
    assert!(model.len() > 5);
}

/// An index in orders that is made over a full table, and one of as many columns as there may be.
pub fn of_new_indexes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let wide = (0..31).fold(TableDefinition::new("wide").with_column("id", ColumnType::U64), |table, at| {
        table.with_nullable_column(format!("c{at}"), ColumnType::I16)
    });
    let wide = wide.with_key([0]);
    let table = database.create_table(wide.clone()).unwrap();
    let mut worker = database.worker().unwrap();
    let layout = wide.layout().unwrap();
    let rows: Vec<Vec<Value>> = (0..20_u64)
        .map(|id| {
            let value = |at: u64| {
                if (id + at).is_multiple_of(5) { Value::Null } else { Value::from((id * 7 % (at + 2)) as i16) }
            };
            std::iter::once(Value::from(id)).chain((0..31).map(value)).collect()
        })
        .collect();
    done(&mut worker, |t| {
        for row in &rows {
            let mut buffer = RowBuffer::new();
            build_row(&layout, row, &mut buffer)?;
            let id = row[0].to_column::<u64>()?;
            assert_eq!(t.insert_row(table, Key8::new(id, 8), buffer.as_row())?, Insertion::Inserted);
        }
        Ok(())
    });
    let orders: Vec<_> = (0..32).map(|at| ColumnOrder { descending: at % 2 == 0, nulls_last: at % 3 == 0 }).collect();
    let columns: Vec<_> = (1..32).chain([0]).collect();
    let definition = IndexDefinition::new("by_all", columns.clone()).with_orders(orders);
    let index = database.create_index(table, definition.clone()).unwrap();
    let compare = |one: &Vec<Value>, other: &Vec<Value>| {
        let by_column = columns.iter().enumerate().map(|(at, &column)| {
            let (one, other) = (&one[column], &other[column]);
            let nulls = one.is_null().cmp(&other.is_null());
            let nulls = if definition.order(at).nulls_last { nulls } else { nulls.reverse() };
            let values = if definition.order(at).descending { other.cmp(one) } else { one.cmp(other) };
            if one.is_null() || other.is_null() { nulls } else { values }
        });
        by_column.fold(Ordering::Equal, Ordering::then)
    };
    let mut sorted = rows;
    sorted.sort_by(compare);
    let found = done(&mut worker, |t| {
        let mut found = Vec::new();
        t.scan_rows(&Scan { index, ..Scan::all(table) }, &mut |row| {
            found.push(row.values(&layout));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    });
    assert_eq!(found, sorted);
}
