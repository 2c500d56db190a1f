//! Large transactions: what one operation costs does not grow with those before it. A test of the sets themselves counts steps; here
//! a transaction whose steps grew with their number would not end.

use polychron_base::sizes::scaled;
use polychron_engine::{Interactive, Operations, Protocol};

use super::{Counter, Fixture, transact};

crate::on_each! {
    many_get_and_insert;
    many_changes_of_a_row;
    many_own_reads;
}

fn count() -> u64 {
    scaled(1 << 16, 200) as u64
}

/// Spreads keys over the index.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn many_get_and_insert<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let mut worker = fixture.worker();
    transact(&mut worker, |transaction| {
        for id in (0..count()).map(spread) {
            assert!(transaction.get(&fixture.counters, id)?.is_none());
            transaction.insert(&fixture.counters, &Counter { id, left: 0, right: 0 })?;
        }
        Ok(())
    });
    assert_eq!(transact(&mut worker, |transaction| transaction.scan(&fixture.counters, ..).count()), count());
}

fn many_changes_of_a_row<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    fixture.fill(0..4);
    let mut worker = fixture.worker();
    transact(&mut worker, |transaction| {
        for change in 1..=count() {
            let change_left = |row: &mut <Counter as polychron_schema::Row>::Mut<'_>| row.set_left(change);
            transaction.update_columns(&fixture.counters, 1, Counter::LEFT, change_left)?;
            transaction.update(&fixture.counters, 1, |row| row.set_right(row.right() + 1))?;
        }
        Ok(())
    });
    let counter = fixture.counter(&mut worker, 1).unwrap();
    assert_eq!((counter.left, counter.right), (count(), count()));
}

fn many_own_reads<P: Protocol<Worker: Interactive>>() {
    let fixture = Fixture::<P>::open();
    let mut worker = fixture.worker();
    transact(&mut worker, |transaction| {
        for id in (0..count()).map(spread) {
            transaction.upsert(&fixture.counters, &Counter { id, left: 1, right: 0 })?;
            assert_eq!(transaction.get(&fixture.counters, id)?.unwrap().left(), 1);
        }
        assert_eq!(transaction.scan(&fixture.counters, ..).count()?, count());
        Ok(())
    });
}
