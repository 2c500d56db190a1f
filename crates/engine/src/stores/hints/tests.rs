use polychron_base::Error;
use polychron_base::key::Key8;
use polychron_memory::{Memory, Options};

use super::*;
use crate::Transaction;
use crate::stores::{RowRecords, Store};

const TABLE: TableId = TableId::new(1, 3);

/// Declares the keys from its first one on.
struct Declaring(u64, u64);

impl Procedure for Declaring {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        (self.0..self.0 + self.1).for_each(|key| declaration.key(TABLE, Key8::new(key, 8), Access::Read));
    }
}

/// No table is known here; the tests answer for them.
const NOWHERE: &[Option<Arc<StoreTable<Store<RowRecords>>>>] = &[];

/// Hints of a group whose records are the keys plus one.
fn group(guard: &Guard<'_>) -> Hints {
    let mut hints = Hints::default();
    hints.gather(NOWHERE, &[Declaring(10, 6), Declaring(20, 0), Declaring(30, 6)], guard);
    answer(&mut hints, 0);
    hints
}

fn answer(hints: &mut Hints, first: usize) {
    let keys: Vec<_> = hints.keys_from(first).collect();
    for (position, table, key) in keys {
        assert_eq!(table, TABLE);
        hints.set(position, Handle::new(key.slice(0) + 1));
    }
}

fn find(hints: &mut Hints, key: u64) -> Option<u64> {
    hints.find(TABLE, Key8::new(key, 8)).map(Handle::get)
}

fn with_guard(test: impl FnOnce(&Guard<'_>)) {
    let memory = Memory::new(Options::tiny()).unwrap();
    let local = memory.register().unwrap();
    test(&local.pin());
}

#[test]
fn each_procedure_has_its_own() {
    with_guard(|guard| {
        let mut hints = group(guard);
        hints.put_in_force(0);
        assert!(hints.has_declared());
        assert_eq!(
            (10..16).map(|key| find(&mut hints, key)).collect::<Vec<_>>(),
            (11..17).map(Some).collect::<Vec<_>>()
        );
        assert_eq!(find(&mut hints, 30), None, "another procedure declared it");
        hints.put_in_force(1);
        assert!(!hints.has_declared() && find(&mut hints, 10).is_none());
        hints.put_in_force(2);
        assert_eq!((find(&mut hints, 32), find(&mut hints, 31), find(&mut hints, 33)), (Some(33), Some(32), Some(34)));
        assert_eq!(hints.find(TableId::new(1, 4), Key8::new(34, 8)), None);
        hints.clear();
        assert!(!hints.any() && find(&mut hints, 30).is_none());
    });
}

/// What was found before the epoch was left leads nowhere; what is asked for later does, and the procedures of the group keep their places.
#[test]
fn what_is_outdated_leads_nowhere() {
    with_guard(|guard| {
        let mut hints = group(guard);
        hints.put_in_force(0);
        assert_eq!(find(&mut hints, 10), Some(11));
        hints.outdate();
        assert_eq!((11..16).find_map(|key| find(&mut hints, key)), None);
        hints.put_in_force(1);
        hints.ask(TABLE, Key8::new(50, 8));
        let first = hints.answer(NOWHERE, guard).expect("no table is known");
        answer(&mut hints, first);
        assert_eq!(find(&mut hints, 50), Some(51));
        hints.put_in_force(2);
        assert_eq!((find(&mut hints, 30), find(&mut hints, 33)), (None, None));
        hints.clear();
        hints = group(guard);
        hints.put_in_force(2);
        assert_eq!(find(&mut hints, 30), Some(31));
    });
}

/// A procedure that conflicts asks again, however often; what it asked for before must not add up, nor hide what it declared.
#[test]
fn a_repetition_begins_anew() {
    with_guard(|guard| {
        let mut hints = group(guard);
        hints.put_in_force(2);
        for _ in 0..3 {
            (40..43).for_each(|key| hints.ask(TABLE, Key8::new(key, 8)));
            assert!(hints.waits());
            let first = hints.answer(NOWHERE, guard).expect("no table is looked up here");
            assert_eq!((first, hints.keys_from(0).count()), (12, 15));
            answer(&mut hints, first);
            let keys = (30..36).chain(40..43);
            let found: Vec<_> = keys.clone().map(|key| find(&mut hints, key)).collect();
            assert_eq!(found, keys.map(|key| Some(key + 1)).collect::<Vec<_>>());
            hints.rewind();
            assert!(!hints.waits());
        }
    });
}
