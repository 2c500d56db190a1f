//! Transactions that are leaked, which safe code may do.

use super::*;
use polychron_engine::Worker;

use crate::cicada::options::Indexes;

/// Leaks a transaction that has read, written, inserted and deleted.
fn leak(worker: &mut CicadaWorker, accounts: &Table<Account>) {
    let mut leaked = worker.begin(Mode::ReadWrite).unwrap();
    leaked.update(accounts, 1, |row| row.set_balance(-1)).unwrap();
    leaked.insert(accounts, &Account { id: 7, group: 2, balance: -1 }).unwrap();
    assert!(leaked.delete(accounts, 2).unwrap());
    assert!(leaked.get(accounts, 9).unwrap().is_none());
    std::mem::forget(leaked);
}

fn balances(worker: &mut CicadaWorker, accounts: &Table<Account>) -> Vec<(u64, i64)> {
    done(worker, |t| {
        let mut found = Vec::new();
        for id in 0..10 {
            found.extend(t.get(accounts, id)?.map(|row| (id, row.balance())));
        }
        let by_group: i64 = t.scan_by(accounts, Account::BY_GROUP, 2).map(|row| row.balance()).sum()?;
        assert_eq!(by_group, 0, "an entry of the leaked transaction is there");
        Ok(found)
    })
}

/// Nothing of a leaked transaction commits, whatever its worker does next, and it holds nothing back afterwards.
#[test]
fn a_leaked_transaction_never_commits() {
    for indexes in [Indexes::SingleVersion, Indexes::MultiVersion] {
        let database = open(|options| options.indexes = indexes.clone());
        let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| (1..3).try_for_each(|id| t.insert(&accounts, &Account { id, group: 1, balance: 1 })));
        let next: [&dyn Fn(&mut CicadaWorker); 5] = [
            &|worker| worker.begin(Mode::ReadWrite).unwrap().commit().unwrap(),
            &|worker| worker.begin(Mode::Snapshot).unwrap().commit().unwrap(),
            &|worker| {
                let projection = polychron_engine::Projection::ALL;
                let found = worker.read_one(accounts.id(), Key8::new(1, 8), &projection, |row| row.is_some());
                assert!(found.unwrap());
            },
            &|worker| worker.maintain(),
            &|worker| std::mem::forget(worker.begin(Mode::Snapshot).unwrap()),
        ];
        for step in next {
            leak(&mut worker, &accounts);
            step(&mut worker);
            assert_eq!(balances(&mut worker, &accounts), [(1, 1), (2, 1)]);
        }
        leak(&mut worker, &accounts);
        drop(worker);
        let mut worker = database.worker().unwrap();
        assert_eq!(balances(&mut worker, &accounts), [(1, 1), (2, 1)]);
        // No epoch and no horizon waits for what was leaked.
        let (epoch, timestamp) = (database.memory().epochs().current(), worker.last_timestamp());
        (0..8).for_each(|_| database.tick());
        assert!(database.memory().epochs().readonly() >= epoch);
        assert!(database.shared.clocks.min_rts().is_after(timestamp));
    }
}

/// A log that panics at the seal of a debt.
#[derive(Debug, Default)]
struct Panicking(Mutex<i64>);

impl redo::Log for Panicking {
    fn admit(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn stage(&self, _: usize, _: TableId, _: &[u8], change: redo::Change<'_>) -> Result<(), Error> {
        *self.0.lock().unwrap() = balance_in(change);
        Ok(())
    }

    fn discard(&self, _: usize) {}

    fn seal(&self, _: usize, _: Order) -> Ticket {
        let balance = *self.0.lock().unwrap();
        assert!(balance >= 0, "the log fails");
        Ticket::DONE
    }

    fn ticket(&self, _: Order) -> Ticket {
        Ticket::DONE
    }

    fn define(&self, _: &polychron_engine::definitions::StoredCatalog) -> Result<(), Error> {
        Ok(())
    }

    fn sealed(&self) -> Ticket {
        Ticket::DONE
    }

    fn wait(&self, _: Ticket) -> Result<(), Error> {
        Ok(())
    }

    fn durability(&self) -> redo::Durability {
        redo::Durability::Immediate
    }
}

/// A commit that a panic of the log ends leaves nothing pending, for which others would wait for ever.
#[test]
fn a_panic_of_the_log_leaves_nothing_pending() {
    let database =
        Cicada::open(Options::default(), Common { journal: Journal::new(Arc::new(Panicking::default())), ..common() })
            .unwrap();
    let accounts: Table<Account> = Table::from_id(database.create_table(Account::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let mut put = |balance| {
        let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
        transaction.upsert(&accounts, &Account { id: 1, group: 0, balance }).unwrap();
        transaction.commit().is_ok()
    };
    assert!(put(1));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| put(-1))).is_err());
    assert!(put(2), "the version that was installed still waits");
}
