//! What errors say: tables, indexes, columns and values of keys by name, whatever operation fails under whatever protocol, and never by number.

use std::fmt::Debug;
use std::ops::{Bound, ControlFlow};

use polychron_base::key::{Key8, MAX_KEY_BYTES};
use polychron_base::{Error, IndexId};
use polychron_engine::scan::Comparison;
use polychron_engine::typed::count;
use polychron_engine::{
    Access, Aggregate, Becomes, Declare, Futures, IndexDefinition, Interactive, Operations, Procedure, Projection,
    Protocol, Restriction, Row, RowBuffer, RowMut, Scan, Table, Transaction, Worker,
};
use polychron_schema::{Index, IndexKind, Key, KeyScratch, MAX_ROW_BYTES, Value};

use crate::Setup;
use crate::rows::{Cell, Image, Item, Page, Person, person};
use crate::setup::{begin, create, done, items, persons, run};

/// A number where a name is due, other than one that was asked for.
fn numbered<'t>(text: &'t str, asked: &[&str]) -> Option<&'t str> {
    ["table ", "index ", "column "].into_iter().find_map(|word| {
        let mut behind = text.match_indices(word).map(|(at, _)| &text[at + word.len()..]);
        behind.find(|found| {
            let digits = found.split(|next: char| !next.is_ascii_digit()).next().unwrap_or_default();
            !digits.is_empty() && !asked.contains(&digits)
        })
    })
}

/// An operation fails with an error that says these, and gives no number.
#[track_caller]
fn says<O: Debug>(outcome: Result<O, Error>, names: &[&str]) {
    let error = outcome.expect_err("it is refused");
    let text = error.to_string();
    assert!(!error.is_conflict(), "a conflict where a refusal is due");
    assert!(numbered(&text, names).is_none(), "{text:?} has a number in {:?}", numbered(&text, names));
    for name in names {
        assert!(text.contains(name), "{text:?} does not say {name:?}");
    }
}

fn encoded<R: Row>(row: &R) -> RowBuffer {
    let mut buffer = RowBuffer::new();
    row.encode(&mut buffer).expect("the row is sound");
    buffer
}

/// Of rows and keys as bytes.
pub fn of_bytes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (pages, persons) = (create::<P, Page>(&database), create::<P, Person>(&database));
    let mut worker = database.worker().unwrap();
    let key = Key8::new(2, 8);
    let item = encoded(&Item { id: 2, value: 20 });
    let path = "a path of more than twenty-four bytes";
    let page = encoded(&Page { path: path.into(), title: "title".into(), visits: 1 });
    done(&mut worker, |t| {
        says(t.insert_row(persons.id(), key, item.as_row()), &["person"]);
        says(t.put_row(persons.id(), key, item.as_row()), &["person"]);
        says(t.insert_row(table.id(), Key8::new(3, 8), item.as_row()), &["item", "(id)=(3)", "(id)=(2)"]);
        says(t.put_row(table.id(), Key8::new(3, 8), item.as_row()), &["item", "(id)=(3)", "(id)=(2)"]);
        let other = b"another path of more than twenty-four bytes";
        let names = ["page", path, "another path of more than twenty-four bytes"];
        says(t.insert_row(pages.id(), &other[..], page.as_row()), &names);
        // What is no key of the table has no values.
        says(t.insert_row(table.id(), &b"?"[..], item.as_row()), &["0x3f", "(id)=(2)"]);
        let first = Key8::new(1, 8);
        let change = |row: &mut RowMut<'_>| Item::ID.set(row, 9);
        says(t.update_row(table.id(), first, &Projection::ALL, change), &["item", "id"]);
        let narrow = Projection { start: 0, end: 8, ..Item::VALUE.projection() };
        says(t.update_row(table.id(), first, &narrow, |row| Item::VALUE.set(row, 3)), &["item", "value"]);
        let id = t.future(&table, 1, Item::ID)?;
        says(t.set_futures(&table, 1, [Item::ID.becomes(id)]), &["item", "id"]);
        Ok(())
    });
}

/// Of scans, aggregates and batches.
pub fn of_scans<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = persons(setup, &[person(1, 2, 3), person(2, 2, 4)]);
    let (cells, images) = (create::<P, Cell>(&database), create::<P, Image>(&database));
    let mut worker = database.worker().unwrap();
    let whole = Scan::all(table.id());
    let go_on = || ControlFlow::Continue(());
    done(&mut worker, |t| {
        t.update(&table, 1, |row| row.set_number(i64::MAX))?;
        let restrictions = [Restriction { column: 64, comparison: Comparison::Equal, value: Value::Integer(1) }];
        let restricted = Scan { restrictions: &restrictions, ..whole.clone() };
        says(t.scan_rows(&restricted, &mut |_| go_on()), &["person", "64"]);
        says(t.aggregate(&whole, Aggregate::Sum(64)), &["person", "64"]);
        says(t.aggregate(&whole, Aggregate::Sum(Person::TEXT.index.into())), &["person.text", "string"]);
        says(t.scan(&table, ..).sum_of(Person::NUMBER), &["person.number"]);
        says(t.scan_columns(&whole, &[64], &mut |_| (), &mut |()| go_on()), &["person", "64"]);
        let text = [Person::TEXT.index.into()];
        says(t.scan_columns(&whole, &text, &mut |_| (), &mut |()| go_on()), &["person.text", "string"]);
        let bytes = [Image::BYTES.index.into()];
        let batch = t.scan_columns(&Scan::all(images.id()), &bytes, &mut |_| (), &mut |()| go_on());
        says(batch, &["image.bytes", "bytes"]);
        says(t.scan_rows(&Scan { index: IndexId(7), ..whole.clone() }, &mut |_| go_on()), &["person", "7"]);
        Ok(())
    });
    // Where hash tables have no order.
    match run(&mut worker, |t| t.scan(&cells, 1..5).count()) {
        Ok(_) => {}
        refused => says(refused, &["cell", "primary"]),
    }
    let definition = IndexDefinition::new("by_number", [3]).with_kind(IndexKind::Hash);
    let by_number = database.create_index(table.id(), definition).unwrap();
    let index = Index::<Person, i64>::of_table(table.id(), by_number, &[3], false, false);
    match run(&mut worker, |t| t.scan_range_by(&table, index, 1_i64..5).count()) {
        Ok(_) => {}
        refused => says(refused, &["person.by_number"]),
    }
    database.drop_index(table.id(), by_number).unwrap();
    says(run(&mut worker, |t| t.scan_by(&table, index, 1).count()), &["person.by_number"]);
    says(database.drop_index(table.id(), by_number), &["person.by_number"]);
}

/// Of futures.
pub fn of_futures<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, i64::MAX)]);
    let mut worker = database.worker().unwrap();
    let no_row = run(&mut worker, |t| {
        let value = t.future(&table, 7, Item::VALUE)?;
        t.is_true(value.at_least(0))
    });
    says(no_row, &["item", "does not exist"]);
    let no_row = run(&mut worker, |t| {
        let value = t.future(&table, 1, Item::VALUE)?;
        t.set_future(&table, 7, Item::VALUE, value)
    });
    says(no_row, &["item", "does not exist"]);
    let overflow = run(&mut worker, |t| {
        let value = t.future(&table, 1, Item::VALUE)?;
        t.set_future(&table, 1, Item::VALUE, value + 1)
    });
    says(overflow, &["9223372036854775807 + 1", "i64"]);
}

/// Declares what it does not write.
struct Stray(Table<Item>);

impl Procedure for Stray {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.update(&self.0, 2, |row| row.set_value(5)).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), Key::encode(&1_u64, &mut KeyScratch::new()), Access::Write);
    }
}

/// Declares nothing of what it writes.
struct Lost(Table<Page>, &'static str);

impl Procedure for Lost {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        t.delete(&self.0, self.1).map(drop)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        declaration.key(self.0.id(), Key::encode("another", &mut KeyScratch::new()), Access::Write);
    }
}

/// Of tables that are dropped, belong elsewhere, or are needed by others; and of keys that were not declared.
pub fn of_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (_other, foreign) = persons(setup, &[person(1, 2, 3)]);
    let mut worker = database.worker().unwrap();
    says(run(&mut worker, |t| t.get(&foreign, 1).map(|row| row.is_some())), &["person", "another database"]);
    says(database.drop_table(foreign.id()), &["person", "another database"]);
    let by_value = database.create_index(table.id(), IndexDefinition::new("by_value", [1])).unwrap();
    let index = Index::<Person, u16>::of_table(table.id(), by_value, &[1], false, false);
    let own = create::<P, Person>(&database);
    says(run(&mut worker, |t| t.scan_by(&own, index, 1).count()), &["item.by_value", "person"]);
    if let Err(error) = worker.execute(&mut Stray(table)) {
        says::<()>(Err(error), &["item", "(id)=(2)"]);
    }
    // Of a long key its first bytes are known.
    let pages = create::<P, Page>(&database);
    let path = "a path of more than twenty-four bytes";
    if let Err(error) = worker.execute(&mut Lost(pages, path)) {
        says::<()>(Err(error), &["page", "(path)=(a path of more than twen…)"]);
    }
    database.drop_table(table.id()).unwrap();
    says(run(&mut worker, |t| t.get(&table, 1).map(|row| row.is_some())), &["item", "does not exist"]);
    says(database.drop_table(table.id()), &["item", "does not exist"]);
    says(database.definition(table.id()), &["item", "does not exist"]);
}

/// Of a conflict for good, and of a wait for the own thread.
pub fn of_conflicts<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10), (2, 20)]);
    let (mut outer, mut inner) = (database.worker().unwrap(), database.worker().unwrap());
    let waits = |outcome: Result<(), Error>| match outcome {
        Err(Error::Unsupported(_)) | Ok(()) => {}
        refused => says(refused, &["item"]),
    };
    if setup.interleaves {
        let mut open = begin(&mut outer);
        open.step(|t| t.update(&table, 1, |row| row.set_value(11)).map(drop));
        waits(run(&mut inner, |t| t.update(&table, 1, |row| row.set_value(12)).map(drop)));
        waits(database.create_index(table.id(), IndexDefinition::new("by_value", [1])).map(drop));
        drop(open);
        // Each attempt is doomed by what the thread itself commits inside.
        let doomed = run(&mut outer, |t| {
            let value = t.get(&table, 1)?.map(|row| row.value());
            run(&mut inner, |t| t.update(&table, 1, |row| row.set_value(row.value() + 1)).map(drop))?;
            t.update(&table, 1, |row| row.set_value(value.unwrap_or_default())).map(drop)
        });
        waits(doomed);
    }
    // Whoever listens to conflicts, or keeps one, reads the same names.
    if setup.interleaves {
        let mut open = begin(&mut outer);
        open.step(|t| t.get_owned(&table, 1));
        let other = run(&mut inner, |t| t.update(&table, 1, |row| row.set_value(0)).map(drop));
        open.step(|t| t.update(&table, 1, |row| row.set_value(1)).map(drop));
        if other.is_ok() && !open.commit() {
            let text = outer.last_abort().expect("it conflicts").to_string();
            assert!(text.contains("item") && numbered(&text, &[]).is_none(), "{text}");
        }
    }
}

/// Of keys and rows that are too long: whose they are, how long, and how long they may be.
pub fn of_lengths<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 10)]);
    let (pages, images) = (create::<P, Page>(&database), create::<P, Image>(&database));
    let mut worker = database.worker().unwrap();
    let (limit, longer) = (MAX_KEY_BYTES.to_string(), (MAX_KEY_BYTES + 1).to_string());
    let bytes = vec![1; MAX_KEY_BYTES + 1];
    let path = "p".repeat(MAX_KEY_BYTES + 1);
    let page = |path: &str, title: &str| Page { path: path.into(), title: title.into(), visits: 1 };
    done(&mut worker, |t| {
        t.insert(&pages, &page("here", "title"))?;
        let names = ["key of item", &limit, &longer];
        says(t.read_row(table.id(), &bytes[..], &Projection::ALL).map(|row| row.is_some()), &names);
        says(t.delete_row(table.id(), &bytes[..]), &names);
        says(
            t.scan_rows(&Scan { lower: Bound::Included(&bytes), ..Scan::all(table.id()) }, &mut |_| {
                ControlFlow::Continue(())
            }),
            &names,
        );
        let names = ["key of page", &limit, &longer];
        says(t.get_owned(&pages, &*path), &names);
        says(t.update(&pages, &*path, |row| row.set_visits(1)), &names);
        says(t.insert(&pages, &page(&path, "")), &names);
        says(t.upsert(&pages, &page(&path, "")), &names);
        says(t.scan(&pages, &*path..).count(), &names);
        says(t.scan_starting_with(&pages, &*path).count(), &names);
        // The entry of a title carries the path.
        let long = page(&path[..MAX_KEY_BYTES], "title");
        says(t.insert(&pages, &long), &["key of page.by_title", &limit]);
        let bytes = vec![7; MAX_ROW_BYTES];
        says(t.insert(&images, &Image { id: 1, bytes }), &["row of image", &MAX_ROW_BYTES.to_string()]);
        Ok(())
    });
    let grouped = run(&mut worker, |t| t.scan(&table, ..).group_by_at_most(0, Item::VALUE, count()).map(drop));
    says(grouped, &["item", "0"]);
    says(database.create_index(table.id(), IndexDefinition::new("broken", [99])), &["99", "item"]);
    assert_eq!(done(&mut worker, |t| t.scan(&pages, ..).count()), 1);
}

/// Line separators, marks of direction and other format characters in values stay out of messages.
pub fn have_one_line<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let pages = create::<P, Page>(&database);
    let mut worker = database.worker().unwrap();
    let path: String = "a\n\u{85}\u{2028}\u{2029}\u{202e}\u{200b}\u{200f}\u{feff}\u{2066}\u{ad}\u{1b}b".into();
    let page = Page { path: path.clone(), title: String::new(), visits: 1 };
    done(&mut worker, |t| t.insert(&pages, &page));
    let text = run(&mut worker, |t| t.insert(&pages, &page)).unwrap_err().to_string();
    assert!(text.contains("in page") && text.contains("=(a\\n"), "{text:?}");
    for special in path.chars().filter(|it| !it.is_ascii_alphabetic()) {
        assert!(!text.contains(special), "{text:?} has {special:?} as it is");
    }
}
