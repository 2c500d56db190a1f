//! Ranges: bounds, directions, limits, early stops, and own writes inside them.

use std::ops::{Bound, ControlFlow};

use polychron_base::TableId;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Direction, Error, Interactive, Operations, Projection, Protocol, Restriction, Row, Scan, Table, Transaction, Worker,
};
use polychron_schema::Value;

use crate::Setup;
use crate::rows::{Cell, Item, Named, Page, Person, person};
use crate::setup::{create, done, items, persons, run, snapshot};

fn ids<T: Transaction>(range: polychron_engine::typed::Range<'_, T, Item>) -> Result<Vec<u64>, Error> {
    range.map(|row| row.id()).collect()
}

/// The id of a table that is never created.
fn after(table: TableId) -> TableId {
    TableId::new(table.database(), 99)
}

/// Bounds of all kinds, forward and backward, over enough rows to cross nodes of any index.
pub fn bounds<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..500).map(|id| (id * 2, 0)).collect();
    let (database, table) = items(setup, &rows);
    let mut worker = database.worker().unwrap();
    let even = |from: u64, to: u64| (from..to).filter(|id| id % 2 == 0 && *id < 1000).collect::<Vec<_>>();
    done(&mut worker, |t| {
        assert_eq!(ids(t.scan(&table, ..))?, even(0, 1000));
        assert_eq!(ids(t.scan(&table, 100..200))?, even(100, 200));
        assert_eq!(ids(t.scan(&table, 100..=200))?, even(100, 201));
        assert_eq!(ids(t.scan(&table, 99..=201))?, even(99, 202));
        assert_eq!(ids(t.scan(&table, ..50))?, even(0, 50));
        assert_eq!(ids(t.scan(&table, 950..))?, even(950, 1000));
        assert_eq!(ids(t.scan(&table, (Bound::Excluded(100), Bound::Included(200))))?, even(101, 201));
        assert_eq!(ids(t.scan(&table, 7..8))?, [0; 0]);
        assert_eq!(ids(t.scan(&table, 2000..))?, [0; 0]);
        assert_eq!(ids(t.scan(&table, (Bound::Excluded(100), Bound::Excluded(100))))?, [0; 0]);
        for range in [0..1000, 3..997, 500..501, 100..300] {
            let mut backward = ids(t.scan(&table, range.clone()).rev())?;
            backward.reverse();
            assert_eq!(backward, even(range.start, range.end));
        }
        Ok(())
    });
}

/// A range whose lower bound lies above its upper one is empty.
pub fn inverted_bounds<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(1, 0), (5, 0), (9, 0)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let inverted = (Bound::Included(8), Bound::Excluded(2));
        assert_eq!(ids(t.scan(&table, inverted))?, [0; 0]);
        assert_eq!(ids(t.scan(&table, inverted).rev())?, [0; 0]);
        assert_eq!(ids(t.scan(&table, (Bound::Excluded(5), Bound::Excluded(5))).rev())?, [0; 0]);
        Ok(())
    });
}

/// Limits, visitors that stop, minimum and maximum.
pub fn limits_and_stops<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..300).map(|id| (id, 0)).collect();
    let (database, table) = items(setup, &rows);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        for limit in [0, 1, 2, 63, 64, 65, 150, 299, 300, 301] {
            let expected = limit.min(300) as u64;
            assert_eq!(ids(t.scan(&table, ..).limit(limit))?, (0..expected).collect::<Vec<_>>());
            let backward: Vec<_> = (300 - expected..300).rev().collect();
            assert_eq!(ids(t.scan(&table, ..).rev().limit(limit))?, backward);
            let mut seen = 0;
            t.scan(&table, ..).visit(|_| {
                seen += 1;
                if seen >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            assert_eq!(seen, limit.clamp(1, 300));
        }
        assert_eq!(t.scan(&table, 10..20).first(|row| row.id())?, Some(10));
        assert_eq!(t.scan(&table, 10..20).rev().first(|row| row.id())?, Some(19));
        assert_eq!(t.scan(&table, 1000..).first(|row| row.id())?, None);
        assert_eq!(t.scan(&table, ..).count()?, 300);
        Ok(())
    });
}

/// The empty key is where a scan ends, and where one goes on that collects entries in parts, whatever their number is.
pub fn empty_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let names = |count: u32| (0..count).map(|id| if id == 0 { String::new() } else { format!("k{id:05}") });
    for count in [1, 2, 4, 5, 63, 64, 65, 256, 320, 321, 1344] {
        let database = setup.open();
        let table = create::<P, Named>(&database);
        let mut worker = database.worker().unwrap();
        let insert = |key: String| Named { name: key.clone(), key };
        done(&mut worker, |t| names(count + 1).try_for_each(|key| t.insert(&table, &insert(key))));
        // What is deleted may still be met.
        done(&mut worker, |t| t.delete(&table, &names(count + 1).next_back().unwrap()).map(drop));
        let expected: Vec<_> = names(count).collect();
        for limit in [1, 2, 3, 4, 5, 63, 64, 65, 320, usize::MAX] {
            let forward: Vec<_> = expected.iter().take(limit).cloned().collect();
            let backward: Vec<_> = expected.iter().rev().take(limit).cloned().collect();
            done(&mut worker, |t| {
                assert_eq!(
                    t.scan(&table, ..).limit(limit).map(|row| row.key().to_owned()).collect::<Vec<_>>()?,
                    forward
                );
                let primary = t.scan(&table, ..).rev().limit(limit).map(|row| row.key().to_owned());
                assert_eq!(primary.collect::<Vec<_>>()?, backward, "{count} rows, {limit} wanted");
                let secondary = t.scan_range_by(&table, Named::BY_NAME, ""..).rev().limit(limit);
                assert_eq!(secondary.map(|row| row.name().to_owned()).collect::<Vec<_>>()?, backward);
                Ok(())
            });
        }
        setup.pass(&database, 3);
        let mut backward =
            snapshot(&mut worker, |t| t.scan(&table, ..).rev().map(|row| row.key().to_owned()).collect::<Vec<_>>());
        backward.reverse();
        assert_eq!(backward, expected, "a snapshot");
    }
}

/// Insertions, updates and deletions of the transaction itself show in its scans.
pub fn own_writes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(10, 1), (20, 2), (30, 3)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        t.insert(&table, &Item { id: 5, value: 0 })?;
        t.insert(&table, &Item { id: 25, value: 4 })?;
        t.insert(&table, &Item { id: 35, value: 5 })?;
        t.delete(&table, 20)?;
        t.delete(&table, 25)?;
        t.update(&table, 30, |row| row.set_value(33))?;
        assert_eq!(ids(t.scan(&table, ..))?, [5, 10, 30, 35]);
        assert_eq!(ids(t.scan(&table, ..).rev())?, [35, 30, 10, 5]);
        assert_eq!(ids(t.scan(&table, 11..).limit(1))?, [30]);
        assert_eq!(t.scan(&table, ..).first(|row| row.id())?, Some(5));
        assert_eq!(t.scan(&table, ..).rev().first(|row| row.id())?, Some(35));
        assert_eq!(t.scan(&table, ..).map(|row| row.value()).sum()?, 39);
        t.insert(&table, &Item { id: 20, value: 2 })?;
        assert_eq!(ids(t.scan(&table, 11..=30))?, [20, 30]);
        Ok(())
    });
    assert_eq!(done(&mut worker, |t| ids(t.scan(&table, ..))), [5, 10, 20, 30, 35]);
}

/// Own insertions into ranges that were scanned before, so many that nodes divide, do not abort the transaction.
pub fn own_insertions_do_not_abort<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[(0, 0), (1000, 0)]);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        for id in 1..400 {
            assert!(t.get(&table, id)?.is_none());
            assert_eq!(t.scan(&table, id..).count()?, 1);
            t.insert(&table, &Item { id, value: 0 })?;
        }
        assert_eq!(t.scan(&table, ..).count()?, 401);
        Ok(())
    });
    let statistics = database.statistics();
    assert_eq!(statistics.conflicts(), 0, "{:?}", statistics.aborts_by_reason().collect::<Vec<_>>());
}

/// A whole table, own changes included, once each and until the visitor stops.
pub fn whole_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..300).map(|id| (id, id as i64)).collect();
    let (database, table) = items(setup, &rows);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        t.delete(&table, 7)?;
        t.update(&table, 8, |row| row.set_value(-8))?;
        t.insert(&table, &Item { id: 1000, value: 1 })?;
        let mut seen = Vec::new();
        t.visit_all(&table, |row| seen.push((row.id(), row.value())))?;
        seen.sort_unstable();
        assert_eq!(seen, t.scan(&table, ..).map(|row| (row.id(), row.value())).collect::<Vec<_>>()?);
        assert_eq!(seen.len(), 300);
        let mut visits = 0;
        t.scan_table(table.id(), &Projection::ALL, &mut |_| {
            visits += 1;
            if visits == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        assert_eq!(visits, 10);
        Ok(())
    });
    let gone = run(&mut worker, |t| t.visit_all(&Table::<Item>::from_id(after(table.id())), |_| ()));
    assert!(matches!(gone, Err(polychron_base::Error::NoSuchTable(_))), "{gone:?}");
}

/// Outside of a snapshot a table without order is refused by name, or visited as a whole.
pub fn whole_hash_tables<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table: Table<Cell> = create::<P, Cell>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| (0..50).try_for_each(|id| t.insert(&table, &Cell { id, value: 1 })));
    let visited = run(&mut worker, |t| {
        let mut sum = 0;
        t.visit_all(&table, |row| sum += row.value())?;
        Ok(sum)
    });
    match visited {
        Ok(sum) => assert_eq!(sum, 50),
        Err(error) => assert!(matches!(error, polychron_base::Error::NoOrder(..)), "{error}"),
    }
}

/// Restrictions filter rows, before the limit counts them; NULL satisfies none.
pub fn restrictions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let rows: Vec<_> = (0..100u64)
        .map(|id| Person { code: (id % 3 != 0).then_some(id as u32), ..person(id, (id % 10) as u16, 0) })
        .collect();
    let (database, table) = persons(setup, &rows);
    let mut worker = database.worker().unwrap();
    let team = |comparison, team: i64| Restriction { column: 1, comparison, value: Value::Integer(team) };
    let code = |comparison, code: i64| Restriction { column: 2, comparison, value: Value::Integer(code) };
    let count = |worker: &mut P::Worker, restrictions: &[Restriction], limit| {
        done(worker, |t| {
            let mut found = Vec::new();
            let scan = Scan {
                table: table.id(),
                index: polychron_base::IndexId::PRIMARY,
                lower: Bound::Unbounded,
                upper: Bound::Unbounded,
                direction: Direction::Forward,
                limit,
                projection: Projection::ALL,
                restrictions,
            };
            t.scan_rows(&scan, &mut |row| {
                found.push(Person::view(row).id());
                ControlFlow::Continue(())
            })?;
            Ok(found)
        })
    };
    assert_eq!(count(&mut worker, &[team(Comparison::Equal, 3)], usize::MAX).len(), 10);
    assert_eq!(count(&mut worker, &[team(Comparison::Equal, 3)], 4), [3, 13, 23, 33]);
    let both = [team(Comparison::AtLeast, 8), team(Comparison::NotEqual, 9)];
    assert_eq!(count(&mut worker, &both, 2), [8, 18]);
    assert_eq!(count(&mut worker, &[code(Comparison::Less, 5)], usize::MAX), [1, 2, 4]);
    assert_eq!(count(&mut worker, &[code(Comparison::NotEqual, 1)], usize::MAX).len(), 65);
}

/// Keys of any length, with zero bytes and common beginnings, come in order and by prefix.
pub fn long_keys<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let table: Table<Page> = create::<P, Page>(&database);
    let mut worker = database.worker().unwrap();
    let mut paths: Vec<String> =
        vec![String::new(), "\0".into(), "\0\0".into(), "a".into(), "a\0".into(), "a\0b".into()];
    paths.extend((0..40).map(|length| "same".repeat(length)));
    paths.extend((0..20).map(|last| format!("{}{last}", "deep/".repeat(60))));
    paths.sort();
    paths.dedup();
    let page = |path: &String| Page { path: path.clone(), title: path.chars().rev().take(9).collect(), visits: 1 };
    done(&mut worker, |t| paths.iter().rev().try_for_each(|path| t.insert(&table, &page(path))));
    done(&mut worker, |t| {
        let found: Vec<String> = t.scan(&table, ..).map(|row| row.path().to_owned()).collect()?;
        assert_eq!(found, paths);
        let mut backward: Vec<String> = t.scan(&table, ..).rev().map(|row| row.path().to_owned()).collect()?;
        backward.reverse();
        assert_eq!(backward, paths);
        for path in &paths {
            assert_eq!(t.get(&table, path)?.map(|row| row.path() == path), Some(true));
            let from: Vec<String> =
                t.scan(&table, path.as_str()..).limit(3).map(|row| row.path().to_owned()).collect()?;
            let expected: Vec<_> = paths.iter().filter(|other| *other >= path).take(3).cloned().collect();
            assert_eq!(from, expected);
        }
        Ok(())
    });
    done(&mut worker, |t| paths.iter().try_for_each(|path| t.delete(&table, path).map(drop)));
    setup.pass(&database, 6);
    worker.maintain();
    done(&mut worker, |t| {
        assert_eq!(t.scan(&table, ..).count()?, 0);
        paths.iter().try_for_each(|path| t.insert(&table, &page(path)))
    });
    assert_eq!(done(&mut worker, |t| t.scan(&table, ..).count()), paths.len() as u64);
    let gone = run(&mut worker, |t| t.scan(&Table::<Page>::from_id(after(table.id())), ..).count());
    assert!(matches!(gone, Err(polychron_base::Error::NoSuchTable(_))), "{gone:?}");
}
