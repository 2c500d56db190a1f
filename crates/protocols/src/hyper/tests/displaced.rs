//! Deleted rows that only older transactions see: they are out of the way of others, and the older ones find them.

use polychron_index::AnyIndex;
use polychron_schema::Index;
use polychron_sync::atomic::{AtomicBool, Ordering};

use super::super::table::Relation;
use super::*;
use crate::displaced_tests::{
    Grouped, Stage, change, check, entries, member, readers_find_what_was_displaced, rows_are_displaced_under_a_scan,
};

impl Grouped for Account {
    const GROUPS: Index<Self, u32> = Self::BY_OWNER;

    fn parts(row: &AccountRef<'_>) -> (u64, i64) {
        (row.id(), row.balance())
    }
}

fn beside(relation: &Relation) -> Option<&AnyIndex> {
    relation.displaced.index()
}

fn quiesce(database: &Arc<Hyper>, worker: &mut HyperWorker) {
    for _ in 0..4 {
        database.memory().epochs().advance();
        worker.maintain();
    }
}

fn stage(backend: Backend) -> Stage<Hyper> {
    Stage::new(Bank::new(backend).database, beside, quiesce)
}

/// A queue beside an idle transaction: the head of the index is the head of the queue, but for what is deleted before that transaction is no
/// longer a young one.
#[test]
fn a_queue_beside_an_idle_transaction_has_no_deleted_head() {
    let rows = scaled(600, 40) as u64;
    for (mode, young) in [(Mode::Snapshot, 0), (Mode::ReadWrite, 300)] {
        let stage = stage(if young == 0 { Backend::Rows } else { Backend::Columns });
        let (members, mut idle, mut worker) = (stage.members, stage.worker(), stage.worker());
        stage.fill(&mut worker, 0..rows);
        let mut open = idle.begin(mode).unwrap();
        if mode == Mode::ReadWrite {
            open.insert(&members, &member(1 << 40)).unwrap();
            open.delete(&members, 1 << 40).unwrap();
        }
        let turns = 2 * rows + 2 * young;
        for tail in rows..rows + turns {
            stage.turn(&mut worker, tail - rows, tail);
            // Any thread that looks for the head goes past no more than these.
            let most = rows + 3 + if tail < rows + young + young / 4 { young } else { 0 };
            if tail % 16 == 0 {
                let there = stage.entries().into_iter().map(|counts| counts.0 as u64).max();
                assert!(there <= Some(most), "{there:?} entries for {rows} rows at {tail}, {mode:?}");
            }
        }
        for (there, beside) in stage.entries() {
            assert!(there as u64 <= rows + 3, "{there} entries for {rows} rows");
            assert_eq!(beside as u64, rows, "what came after the transaction is not kept for it");
        }
        check(&mut open, &members, &(0..rows).map(|id| (id, member(id).balance)).collect(), 3 * rows);
        drop(open);
        stage.quiesce(&mut worker);
        stage.has_rows_alone(rows as usize);
    }
}

/// What an older transaction that may write is answered when it asks for a row that was displaced, or writes it.
#[test]
fn older_writers_find_what_was_displaced() {
    type Ask = fn(&mut Tx<'_>, &Table<Account>, &Table<Card>) -> Result<(), Error>;
    // What comes of it at once, and whether a transaction commits that asks it and then writes elsewhere.
    let asks: [(&str, Ask, bool, bool); 11] = [
        ("a read", |t, accounts, _| t.get(accounts, 3).map(|row| assert_eq!(row.unwrap().balance(), 103)), true, false),
        ("an update", |t, accounts, _| t.update(accounts, 3, |row| row.set_balance(1)).map(drop), false, false),
        ("a move", |t, accounts, _| t.update(accounts, 3, |row| row.set_owner(9)).map(drop), false, false),
        ("a look", |t, accounts, _| t.update(accounts, 3, |_| ()).map(drop), false, false),
        ("a deletion", |t, accounts, _| t.delete(accounts, 3).map(drop), false, false),
        ("an upsert", |t, accounts, _| t.upsert(accounts, &account(3)), false, false),
        (
            "an insertion",
            |t, accounts, _| {
                let answer = t.try_insert(accounts, &Account { balance: 7, ..account(3) })?;
                assert_ne!(answer, Insertion::Inserted);
                assert_eq!(t.get(accounts, 3)?.map(|row| row.balance()), Some(103));
                Ok(())
            },
            true,
            false,
        ),
        (
            "a unique value",
            |t, _, cards| {
                assert_ne!(t.try_insert(cards, &Card { id: 2, account: 3 })?, Insertion::Inserted);
                assert_eq!(t.get(cards, 2)?.map(|row| row.id()), None);
                Ok(())
            },
            true,
            false,
        ),
        (
            "a scan that stops",
            |t, accounts, _| t.scan(accounts, 3..).first(|row| row.id()).map(|id| assert_eq!(id, Some(3))),
            true,
            false,
        ),
        (
            "a scan that stops before",
            |t, accounts, _| t.scan(accounts, ..).limit(3).map(|row| row.id()).collect::<Vec<_>>().map(drop),
            true,
            true,
        ),
        (
            "a scan of entries",
            |t, accounts, _| t.scan_by(accounts, Account::BY_OWNER, 3).count().map(|count| assert_eq!(count, 2)),
            true,
            false,
        ),
    ];
    for (what, ask, is_answered, stands) in asks {
        let bank = Bank::new(Backend::Rows);
        let (accounts, mut idle, mut worker) = (bank.accounts, bank.worker(), bank.worker());
        let cards: Table<Card> = Table::from_id(bank.database.create_table(Card::definition()).unwrap());
        change(&mut worker, |t| t.insert(&cards, &Card { id: 1, account: 3 }));
        let mut open = idle.begin(Mode::ReadWrite).unwrap();
        change(&mut worker, |t| t.delete(&cards, 1).map(drop));
        change(&mut worker, |t| t.delete(&accounts, 3).map(drop));
        (0..300).for_each(|balance| set_balance(&mut worker, &accounts, 9, balance));
        quiesce(&bank.database, &mut worker);
        assert_eq!(entries(&*bank.database, accounts.id(), beside), [(9, 1); 2], "it is displaced");
        let answer = ask(&mut open, &accounts, &cards);
        assert_eq!(answer.is_ok(), is_answered, "{what}");
        if is_answered {
            open.insert(&accounts, &account(1000)).unwrap();
            assert_eq!(open.commit().is_ok(), stands, "{what}, and a commit");
        } else {
            assert!(answer.is_err_and(|error| error.is_conflict()), "{what}");
            drop(open);
        }
        quiesce(&bank.database, &mut worker);
        assert_eq!(entries(&*bank.database, accounts.id(), beside), [(9 + usize::from(stands), 0); 2], "{what}");
    }
}

/// Now and then one that may write is open, too, and sees what is deleted meanwhile.
#[test]
fn readers_of_several_times_find_what_was_displaced() {
    for backend in [Backend::Rows, Backend::Columns] {
        readers_find_what_was_displaced(&stage(backend), 3, || ());
    }
}

#[test]
fn rows_leave_under_a_scan() {
    rows_are_displaced_under_a_scan(|| stage(Backend::Rows));
}

/// While one thread turns a queue, others see all of it at each timestamp, old ones and young ones, whatever moves beside meanwhile.
#[test]
fn older_transactions_see_whole_queues() {
    const ROWS: u64 = 40;
    let turns = scaled(3000, 100) as u64;
    let stage = stage(Backend::Rows);
    let (members, mut worker) = (stage.members, stage.worker());
    stage.fill(&mut worker, 0..ROWS);
    let ends = AtomicBool::new(false);
    let look = |t: &mut Tx<'_>| {
        let ids = t.scan(&members, ..).map(|row| row.id()).collect::<Vec<_>>().unwrap();
        assert!(ids.iter().copied().eq(ids[0]..ids[0] + ROWS), "{ids:?} is not the whole queue");
        let last = t.scan(&members, ..).rev().first(|row| row.id()).unwrap();
        assert_eq!(last, ids.last().copied());
        assert!(ids.iter().all(|id| t.get(&members, *id).unwrap().is_some()));
        assert_eq!(t.get(&members, ids[0] + ROWS).unwrap().map(|row| row.id()), None);
        ids[0]
    };
    std::thread::scope(|scope| {
        for mode in [Mode::Snapshot, Mode::ReadWrite] {
            let mut reader = stage.worker();
            let (look, ends) = (&look, &ends);
            scope.spawn(move || {
                let mut looks = 1;
                while !ends.load(Ordering::Relaxed) || looks == 1 {
                    let mut open = reader.begin(mode).unwrap();
                    let first = look(&mut open);
                    // One that may write is young at first: nothing is displaced behind it then.
                    (0..looks % 8 * if mode == Mode::Snapshot { 1 } else { 20 })
                        .for_each(|_| assert_eq!(look(&mut open), first));
                    looks += 1;
                }
            });
        }
        for tail in ROWS..ROWS + turns {
            stage.turn(&mut worker, tail - ROWS, tail);
        }
        ends.store(true, Ordering::Relaxed);
    });
    stage.quiesce(&mut worker);
    stage.has_rows_alone(ROWS as usize);
}
