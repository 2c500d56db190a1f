//! Ranges that are read one row after the other, chosen from, deleted and counted, against a map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use polychron_base::random::Random;
use polychron_base::sizes::scaled;
use polychron_engine::typed::Range;
use polychron_engine::{Error, IndexDefinition, Interactive, Operations, Protocol, Row, Transaction};
use polychron_schema::Index;

use crate::Setup;
use crate::rows::{Item, Person, person};
use crate::setup::{done, items, persons};

/// Takes rows from either end in a random order, until the range is used up or the draw says stop, and compares each with the expected one.
/// A limit holds for both ends together.
fn read_from_both_ends<T: Transaction + ?Sized, R: Row + Clone + PartialEq + std::fmt::Debug>(
    range: Range<'_, T, R>,
    expected: &[R],
    random: &mut Random,
) -> Result<(), Error> {
    let limit =
        if random.below(2) == 0 { expected.len() + 1 } else { random.below(expected.len() as u64 + 2) as usize };
    let range = if limit > expected.len() { range } else { range.limit(limit) };
    let is_reversed = random.below(2) == 0;
    let mut rows = if is_reversed { range.rev().iter() } else { range.iter() };
    let mut expected = expected.iter();
    let (ends, stops) = (random.below(3), random.below(4) == 0);
    for _ in 0..limit {
        let from_back = ends == 2 || ends == 1 && random.below(2) == 0;
        let wanted = if from_back == is_reversed { expected.next() } else { expected.next_back() };
        let row = match (from_back, random.below(2) == 0) {
            (false, true) => rows.next_ref()?.map(R::from_ref),
            (true, true) => rows.next_back_ref()?.map(R::from_ref),
            (false, false) => rows.next().transpose()?,
            (true, false) => rows.next_back().transpose()?,
        };
        assert_eq!(row.as_ref(), wanted);
        if row.is_none() || stops && random.below(50) == 0 {
            break;
        }
    }
    if !stops {
        assert!(rows.next().is_none() && rows.next_back().is_none(), "a range that ended goes on");
    }
    Ok(())
}

/// Rows of the primary index and of every kind of secondary index, from both ends, in either direction, with limits, across the parts that
/// are read ahead.
pub fn rows_from_both_ends<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let mut random = Random::from_seed(31);
    for count in [0, 1, 15, 16, 17, 48, scaled(2200, 100) as u64] {
        let code = |id: u64| (!id.is_multiple_of(3)).then_some(id as u32);
        let number = |id: u64| (id * 7919 % 1000) as i64 - 500;
        let row = |id| Person { code: code(id), number: number(id), ..person(id, (id % 5) as u16, 0) };
        let rows: Vec<_> = (0..count).map(row).collect();
        let (database, table) = persons(setup, &rows);
        let definition = IndexDefinition::new("by_number", [3]);
        let id = database.create_index(table.id(), definition).expect("it is a new one");
        let by_number: Index<Person, i64> = Index::of_table(table.id(), id, &[3], false, false);
        let sorted = |key: &dyn Fn(&Person) -> (i64, u64)| {
            let mut rows = rows.clone();
            rows.sort_by_key(key);
            rows
        };
        let by_team_rows = sorted(&|row| (row.team.into(), row.id));
        let by_code_rows = sorted(&|row| (row.code.map_or(-1, i64::from), row.id));
        let by_number_rows = sorted(&|row| (row.number, row.id));
        let mut worker = database.worker().unwrap();
        for _ in 0..8 {
            done(&mut worker, |t| {
                read_from_both_ends(t.scan(&table, ..), &rows, &mut random)?;
                read_from_both_ends(t.scan_range_by(&table, Person::BY_TEAM, 0_u16..), &by_team_rows, &mut random)?;
                read_from_both_ends(t.scan_range_by(&table, Person::BY_CODE, None..), &by_code_rows, &mut random)?;
                read_from_both_ends(t.scan_range_by(&table, by_number, i64::MIN..), &by_number_rows, &mut random)
            });
        }
    }
}

/// Filters, ends by a condition, limits, and what is made of the rows.
pub fn chosen_rows<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    #[derive(Debug)]
    enum Ended {
        Reached(u64),
        Failed(Error),
    }

    impl From<Error> for Ended {
        fn from(error: Error) -> Self {
            Self::Failed(error)
        }
    }

    let rows: Vec<_> = (0..400).map(|id| (id, id as i64 * 3 % 50)).collect();
    let (database, table) = items(setup, &rows);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        let even: Vec<u64> =
            t.scan(&table, ..).filter(|row| row.id() % 2 == 0).limit(5).map(|row| row.id()).collect()?;
        assert_eq!(even, [0, 2, 4, 6, 8]);
        let few = t.scan(&table, 10..).take_while(|row| row.id() < 13).rev();
        assert_eq!(few.first(|row| row.id())?, None, "the condition ends the range at its first row");
        let both = t.scan(&table, ..).filter(|row| row.id() % 3 == 0).take_while(|row| row.id() < 10);
        assert_eq!(both.map(|row| row.id()).collect::<Vec<_>>()?, [0, 3, 6, 9]);
        assert_eq!(t.scan(&table, ..).filter(|row| row.value() == 3).last(|row| row.id())?, Some(351));
        assert_eq!(t.scan(&table, ..).filter(|row| row.id() > 390).count()?, 9);
        assert!(t.scan(&table, 400..).is_empty()? && !t.scan(&table, ..).is_empty()?);
        assert_eq!(t.scan(&table, ..).map(|row| row.value()).max()?, Some(49));
        assert_eq!(t.scan(&table, ..0).map(|row| row.value()).min()?, None);
        let reached: Result<(), Ended> = t.scan(&table, ..).try_for_each(|row| match row.id() {
            7 => Err(Ended::Reached(7)),
            id => {
                assert!(id < 7);
                Ok(())
            }
        });
        match reached {
            Err(Ended::Reached(7)) => {}
            Err(Ended::Failed(error)) => return Err(error),
            other => panic!("{other:?}"),
        }
        t.scan(&table, ..).visit(|row| {
            assert!(row.id() < 3);
            if row.id() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
}

/// What is asked of whole tables and deleted in whole ranges, in random order, against a map.
pub fn whole_ranges<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let (database, table) = items(setup, &[]);
    let mut worker = database.worker().unwrap();
    let mut random = Random::from_seed(17);
    let mut expected: BTreeMap<u64, i64> = BTreeMap::new();
    for _ in 0..scaled(60, 5) {
        let mut after = expected.clone();
        let seed = random.below(1 << 40);
        done(&mut worker, |t| {
            let mut random = Random::from_seed(seed);
            after.clone_from(&expected);
            for _ in 0..random.below(12) {
                let (from, to) = (random.below(100), random.below(100));
                let first = after.first_key_value().map(|(&id, &value)| Item { id, value });
                match random.below(7) {
                    0 => {
                        let doomed: Vec<_> = after.range(from.min(to)..to).map(|(&id, _)| id).collect();
                        doomed.iter().for_each(|id| _ = after.remove(id));
                        assert_eq!(t.delete_range(&table, from.min(to)..to)?, doomed.len() as u64);
                    }
                    1 => {
                        let before = after.len();
                        after.retain(|&id, value| id < from || *value % 2 == 0);
                        assert_eq!(
                            t.retain(&table, from.., |row| row.value() % 2 == 0)?,
                            (before - after.len()) as u64
                        );
                    }
                    2 => {
                        assert_eq!(t.pop_first(&table)?, first);
                        after.pop_first();
                    }
                    3 => assert_eq!(t.first(&table)?, first),
                    4 => assert_eq!(t.last(&table)?.map(|row| row.id), after.keys().next_back().copied()),
                    5 => {
                        assert_eq!(t.contains(&table, from)?, after.contains_key(&from));
                        assert_eq!(t.get_owned(&table, to)?.map(|row| row.value), after.get(&to).copied());
                    }
                    _ => {
                        for id in from..from + 10 {
                            t.upsert(&table, &Item { id, value: to as i64 })?;
                            after.insert(id, to as i64);
                        }
                    }
                }
                assert_eq!(t.len(&table)?, after.len() as u64);
            }
            Ok(())
        });
        expected = after;
    }
}
