//! Many threads on one row, and transactions of many operations.

use std::sync::mpsc;

use super::*;

/// More threads than any machine has cores write one row, having read it or unread: each of them commits all that it has to do.
#[test]
fn all_of_many_threads_commit() {
    const THREADS: u64 = 64;
    let rounds = scaled(40, 2) as u64;
    for blind in [false, true] {
        let mut common = common();
        common.memory.max_workers = 80;
        let database: Arc<Cicada> = Cicada::open(Options::default(), common).unwrap();
        let notes: Table<Note> = Table::from_id(database.create_table(Note::definition()).unwrap());
        let mut first = database.worker().unwrap();
        done(&mut first, |t| t.insert(&notes, &Note { id: 1, text: "0".into() }));
        let (ready, finished) = mpsc::channel();
        for thread in 0..THREADS {
            let (database, ready) = (Arc::clone(&database), ready.clone());
            // Not scoped: a thread that never ends is to fail the test, not to keep it.
            std::thread::spawn(move || {
                let mut worker = database.worker().unwrap();
                for round in 0..rounds {
                    done(&mut worker, |t| {
                        if blind {
                            return t.upsert(&notes, &Note { id: 1, text: (thread * rounds + round).to_string() });
                        }
                        let text = t.get(&notes, 1)?.map(|row| row.text().parse::<u64>().unwrap() + 1).unwrap();
                        t.update(&notes, 1, |row| row.set_text(&text.to_string()).unwrap()).map(drop)
                    });
                }
                ready.send(thread).unwrap();
            });
        }
        for _ in 0..THREADS {
            assert!(finished.recv_timeout(Duration::from_secs(60)).is_ok(), "a thread does not come to its end");
        }
        let text = done(&mut first, |t| Ok(t.get(&notes, 1)?.map(|row| row.text().to_owned())));
        assert!(blind || text == Some((THREADS * rounds).to_string()), "{text:?}");
    }
}

/// A transaction that looks for a key by a range, inserts it, and reads it again, many times: the keys it has written are looked
/// through a few times each, not once for every operation.
#[test]
fn own_keys_are_found_without_looking_at_all() {
    let database = open(|_| ());
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let keys = scaled(4000, 50) as u64;
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    let mut random = Random::stream(9, 9);
    let mut inserted = 0;
    for _ in 0..keys {
        let id = random.below(1 << 40);
        if transaction.scan(&accounts, id..=id).count().unwrap() > 0 {
            continue;
        }
        let savepoint = transaction.savepoint();
        transaction.insert(&accounts, &Account { id, group: 0, balance: 1 }).unwrap();
        if id.is_multiple_of(4) {
            transaction.roll_back_to(savepoint).unwrap();
        }
        let found = transaction.scan(&accounts, id..id + 2).count().unwrap();
        assert_eq!(found, u64::from(!id.is_multiple_of(4)));
        inserted += found;
    }
    let steps = transaction.state.sets.writes.steps.get();
    assert!(steps <= 150 * keys, "{steps} steps for {keys} keys");
    assert_eq!(transaction.scan(&accounts, ..).count().unwrap(), inserted);
    transaction.commit().unwrap();
}

/// A row that is written again and again by one transaction, with entries to keep up: each write costs the same.
#[test]
fn one_row_is_written_many_times() {
    let database = open(|_| ());
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| t.insert(&accounts, &Account { id: 1, group: 0, balance: 0 }));
    let rounds = scaled(4000, 20) as i64;
    done(&mut worker, |t| {
        for round in 0..rounds {
            t.update(&accounts, 1, |row| {
                row.set_balance(row.balance() + 1);
                row.set_group((round % 5) as u16);
            })?;
            assert_eq!(t.get(&accounts, 1)?.map(|row| row.balance()), Some(round + 1));
        }
        Ok(())
    });
    assert_eq!(done(&mut worker, |t| Ok(t.get(&accounts, 1)?.unwrap().balance())), rounds);
}
