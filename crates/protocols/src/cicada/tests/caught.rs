//! Errors that a procedure catches, and goes on.

use std::ops::ControlFlow;

use polychron_base::IndexId;
use polychron_engine::Scan;

use super::*;
use crate::cicada::options::Indexes;

#[derive(Row, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "two indexes are unique")]
#[row(name = "seat")]
#[index(name = "by_row", columns(row))]
#[index(name = "by_name", columns(name), unique)]
#[index(name = "by_number", columns(number), unique)]
struct Seat {
    #[key]
    id: u64,
    row: u16,
    name: String,
    number: u64,
}

type Seats<'w> = <CicadaWorker as Interactive>::Transaction<'w>;

type Writing<'c> = dyn Fn(&mut Seats<'_>, u64) -> Result<(), Error> + 'c;

fn seat(id: u64, row: u16, name: &str, number: u64) -> Seat {
    Seat { id, row, name: name.into(), number }
}

/// All rows by the primary index, after a comparison with what the secondary indexes lead to.
fn seats(worker: &mut CicadaWorker, table: &Table<Seat>) -> Vec<(u64, u16, u64)> {
    done(worker, |t| {
        let all = t.scan(table, ..).map(|seat| (seat.id(), seat.row(), seat.number())).collect::<Vec<_>>()?;
        for index in 1..4 {
            let (mut found, all_of_it) = (Vec::new(), Scan { index: IndexId(index), ..Scan::all(table.id()) });
            t.scan_rows(&all_of_it, &mut |row| {
                found.push(Seat::view(row).id());
                ControlFlow::Continue(())
            })?;
            found.sort_unstable();
            assert!(all.iter().map(|seat| &seat.0).eq(found.iter()), "index {index} disagrees: {all:?}, {found:?}");
        }
        Ok(all)
    })
}

/// Each operation that fails in the middle of its secondary entries is caught, within and without a savepoint; then the transaction
/// commits, and nothing of the operation is there.
#[test]
fn nothing_half_done_commits() {
    let long = "x".repeat(4000);
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        let database = open(|options| options.indexes = indexes.clone());
        let table: Table<Seat> = Table::from_id(database.create_table(Seat::definition()).unwrap());
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| {
            t.insert(&table, &seat(1, 1, "a", 10))?;
            t.insert(&table, &seat(2, 1, "b", 20))
        });
        let before = seats(&mut worker, &table);
        // In each the last index refuses, or the second one has no room for the key.
        let fail: [&dyn Fn(&mut Seats<'_>) -> bool; 6] = [
            &|t| t.insert(&table, &seat(3, 2, "c", 20)).is_err(),
            &|t| t.try_insert(&table, &seat(3, 2, "c", 20)).unwrap() != Insertion::Inserted,
            &|t| t.upsert(&table, &seat(1, 2, "c", 20)).is_err(),
            &|t| {
                let change = |row: &mut SeatMut<'_>| {
                    row.set_row(7);
                    row.set_name("d").unwrap();
                    row.set_number(20);
                };
                t.update(&table, 1, change).is_err()
            },
            &|t| t.insert(&table, &seat(3, 2, &long, 30)).is_err(),
            &|t| t.upsert(&table, &seat(1, 2, &long, 30)).is_err(),
        ];
        for (number, fail) in fail.into_iter().enumerate() {
            for with_savepoint in [false, true] {
                done(&mut worker, |t| {
                    t.update(&table, 2, |row| row.set_row(5))?;
                    let savepoint = with_savepoint.then(|| t.savepoint());
                    assert!(fail(t), "operation {number}");
                    if let Some(savepoint) = savepoint {
                        t.roll_back_to(savepoint)?;
                    }
                    t.update(&table, 2, |row| row.set_row(1)).map(drop)
                });
                assert_eq!(seats(&mut worker, &table), before, "operation {number}, {with_savepoint}");
            }
        }
    }
}

/// An operation meets the entry that an earlier transaction has moved since the row was read: a conflict, not a duplicate.
#[test]
fn an_entry_that_moved_meanwhile_is_a_conflict() {
    let database = open(|_| ());
    let table: Table<Seat> = Table::from_id(database.create_table(Seat::definition()).unwrap());
    let (mut left, mut right) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut left, |t| t.insert(&table, &seat(1, 1, "a", 10)));
    let write: [&Writing<'_>; 3] = [
        &|t, to| t.update(&table, 1, |row| row.set_row(to as u16)).map(drop),
        &|t, to| t.update(&table, 1, |row| row.set_number(to)).map(drop),
        &|t, to| t.upsert(&table, &seat(1, to as u16, "a", to)),
    ];
    for (number, write) in write.into_iter().enumerate() {
        let to = 100 + number as u64;
        let mut earlier = left.begin(Mode::ReadWrite).unwrap();
        let mut later = right.begin(Mode::ReadWrite).unwrap();
        assert!(later.get(&table, 1).unwrap().is_some());
        write(&mut earlier, to).unwrap();
        earlier.commit().unwrap();
        // The later one has read the row as it was, and finds the entry of the row as it is.
        let outcome = write(&mut later, to).and_then(|()| later.commit());
        let error = outcome.expect_err("what was read is no longer so");
        assert!(error.is_conflict(), "write {number}: {error:?}");
    }
}
