//! Tables that become tables of rows with other columns, beside who uses them.

use polychron_sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polychron_base::sizes::scaled;
use polychron_engine::{
    Error, Futures, IndexDefinition, Interactive, Operations, Protocol, Row, Table, Transaction, Worker, evolve,
};
use polychron_schema::{EvolutionError, Value};

use crate::Setup;
use crate::setup::{all, begin, create, done, run, snapshot};

/// The rows before.
mod before {
    use super::Row;

    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "account")]
    #[index(columns(name))]
    pub(super) struct Account {
        #[key]
        pub(super) branch: u16,
        #[key]
        pub(super) id: String,
        pub(super) name: String,
        pub(super) balance: i64,
    }

    /// The same under a hash index.
    #[derive(Row, Clone, Debug, PartialEq, Eq)]
    #[row(name = "cell", primary = "hash")]
    pub(super) struct Cell {
        #[key]
        pub(super) id: u64,
        pub(super) value: i64,
    }
}

/// The rows afterwards: renamed columns, one of them in the key, new ones, another order, a greater maximum and another index.
#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[row(name = "account")]
#[index(columns(owner), unique)]
struct Account {
    #[column(default = 100)]
    limit: i64,
    #[key]
    #[column(was = "branch")]
    place: u16,
    #[key]
    id: String,
    balance: Option<i64>,
    #[column(was = "name")]
    owner: String,
    #[column(default = "none")]
    note: Option<String>,
    #[column(default = -3)]
    rank: Option<i16>,
    #[column(default = Some(b"ab"))]
    mark: Option<Vec<u8>>,
}

#[derive(Row, Clone, Debug, PartialEq, Eq)]
#[row(name = "cell", primary = "hash")]
struct Cell {
    #[key]
    id: u64,
    #[column(was = "value")]
    amount: i64,
    #[column(default = None)]
    text: Option<String>,
}

/// Rows that an account of before cannot become, or not with what it holds.
mod unfit {
    use super::Row;

    #[derive(Row, Clone, Debug)]
    #[row(name = "account")]
    pub(super) struct Undeclared {
        #[key]
        pub(super) branch: u16,
        #[key]
        pub(super) id: String,
        pub(super) name: String,
        pub(super) balance: i64,
        pub(super) limit: i64,
    }

    #[derive(Row, Clone, Debug)]
    #[row(name = "account")]
    pub(super) struct OtherType {
        #[key]
        pub(super) branch: u16,
        #[key]
        pub(super) id: String,
        pub(super) name: String,
        pub(super) balance: i32,
    }

    #[derive(Row, Clone, Debug)]
    #[row(name = "account")]
    pub(super) struct OtherKey {
        #[key]
        pub(super) id: String,
        pub(super) branch: u16,
        pub(super) name: String,
        pub(super) balance: i64,
    }

    #[derive(Row, Clone, Debug)]
    #[row(name = "account")]
    #[index(columns(balance), unique)]
    pub(super) struct Fewer {
        #[key]
        pub(super) branch: u16,
        #[key]
        pub(super) id: String,
        #[column(was = "name")]
        pub(super) owner: String,
        pub(super) balance: i64,
    }
}

fn old(number: u64) -> before::Account {
    let name = format!("owner {number}");
    before::Account { branch: (number % 3) as u16, id: format!("a{number:05}"), name, balance: number as i64 }
}

fn new(number: u64) -> Account {
    let before::Account { branch, id, name, balance } = old(number);
    Account {
        limit: 100,
        place: branch,
        id,
        balance: Some(balance),
        owner: name,
        note: Some("none".to_owned()),
        rank: Some(-3),
        mark: Some(b"ab".to_vec()),
    }
}

/// Opens the table of the rows `R` by a worker.
fn open<P: Protocol<Worker: Interactive>, R: Row>(database: &P, worker: &mut P::Worker) -> Result<Table<R>, Error> {
    Ok(evolve::open(database, &mut |copy| worker.execute(copy))?.expect("there is a table of this name"))
}

/// Why a table did not become what it was to be, or a handle is refused.
fn cause(error: &Error) -> Option<&EvolutionError> {
    if let Error::Other(error) = error { error.downcast_ref() } else { None }
}

fn is_superseded<O: std::fmt::Debug>(outcome: Result<O, Error>, what: &str) {
    let error = outcome.expect_err(what);
    let why = cause(&error);
    let names =
        |why: &EvolutionError| why.to_string().contains("account") && why.to_string().contains("`limit` is new");
    assert!(matches!(why, Some(why @ EvolutionError::Superseded { .. }) if names(why)), "{what}: {error}");
}

/// Rows of several transactions, with their indexes, under an ordered index and under a hash index.
pub fn by_declaration<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    for count in [0, 1, 256, scaled(900, 300) as u64] {
        let database = setup.open();
        let (accounts, cells) = (create::<P, before::Account>(&database), create::<P, before::Cell>(&database));
        let mut worker = database.worker().unwrap();
        done(&mut worker, |t| {
            (0..count).try_for_each(|number| t.insert(&accounts, &old(number)))?;
            (0..count).try_for_each(|id| t.insert(&cells, &before::Cell { id, value: 3 }))
        });
        let by_balance = IndexDefinition::new("by_balance", [3]);
        database.create_index(accounts.id(), by_balance.clone()).unwrap();
        let evolved: Table<Account> = open(&*database, &mut worker).unwrap();
        let mut expected: Vec<_> = (0..count).map(new).collect();
        expected.sort_by_key(|row| (row.place, row.id.clone()));
        assert_eq!(all(&mut worker, &evolved), expected);
        setup.pass(&database, 2);
        let rows = snapshot(&mut worker, |t| t.scan(&evolved, ..).count());
        assert!(rows == count || rows == 0, "a snapshot has all of the copy or nothing");
        let definition = database.definition(evolved.id()).unwrap();
        let indexes: Vec<_> = definition.indexes.iter().map(|index| (&*index.name, index.columns.clone())).collect();
        assert_eq!(
            (&*definition.name, &indexes[..]),
            ("account", &[("by_owner", vec![4]), ("by_name", vec![4]), ("by_balance", vec![3])][..])
        );
        if count > 0 {
            let owner = done(&mut worker, |t| t.scan_by(&evolved, Account::BY_OWNER, "owner 0").rows());
            assert_eq!(owner, [new(0)]);
        }
        // What there was is gone, and says so.
        is_superseded(run(&mut worker, |t| t.get_owned(&accounts, (0, "a"))), "a read");
        is_superseded(run(&mut worker, |t| t.insert(&accounts, &old(1))), "an insertion");
        is_superseded(database.definition(accounts.id()), "a look");
        assert_eq!(open::<P, Account>(&*database, &mut worker).unwrap().id(), evolved.id());
        assert!(matches!(
            cause(&open::<P, before::Account>(&*database, &mut worker).unwrap_err()),
            Some(EvolutionError::Missing { .. })
        ));
        let cells: Table<Cell> = open(&*database, &mut worker).unwrap();
        let found = done(&mut worker, |t| (0..count).map(|id| t.get_owned(&cells, id)).collect::<Result<Vec<_>, _>>());
        assert_eq!(found, (0..count).map(|id| Some(Cell { id, amount: 3, text: None })).collect::<Vec<_>>());
        // The new table is one like any other.
        done(&mut worker, |t| t.insert(&evolved, &Account { place: 9, owner: "late".into(), ..new(0) }));
        assert_eq!(all(&mut worker, &evolved).len() as u64, count + 1);
        database.drop_table(evolved.id()).unwrap();
    }
}

/// What does not fit is told of by column, and leaves everything as it was; so does what the new table refuses.
pub fn refused<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let accounts = create::<P, before::Account>(&database);
    let mut worker = database.worker().unwrap();
    let rows: Vec<_> = (0..300).map(old).collect();
    done(&mut worker, |t| rows.iter().try_for_each(|row| t.insert(&accounts, row)));
    done(&mut worker, |t| t.update(&accounts, (2, "a00299"), |row| row.set_balance(1)).map(drop));
    let before = all(&mut worker, &accounts);
    let told = |outcome: Result<(), Error>, words: &str| {
        let error = outcome.unwrap_err();
        assert!(cause(&error).is_some() && error.to_string().contains(words), "{error}");
    };
    told(open::<P, unfit::Undeclared>(&*database, &mut worker).map(drop), "account.limit is not there");
    told(open::<P, unfit::OtherType>(&*database, &mut worker).map(drop), "account.balance is i64, and the row has i32");
    told(open::<P, unfit::OtherKey>(&*database, &mut worker).map(drop), "(branch, id), and that of the row is (id)");
    told(Table::<Account>::with_id(&*database, accounts.id()).map(drop), "`limit` is new");
    // Two rows have one balance: the copy is refused when many rows are there.
    match open::<P, unfit::Fewer>(&*database, &mut worker) {
        Err(Error::Duplicate(_)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(all(&mut worker, &accounts), before);
    assert_eq!(database.definition(accounts.id()).unwrap().indexes.len(), 1);
    done(&mut worker, |t| t.update(&accounts, (2, "a00299"), |row| row.set_balance(299)).map(drop));
    assert_eq!(all(&mut worker, &accounts).len(), 300);
    let evolved: Table<unfit::Fewer> = open(&*database, &mut worker).unwrap();
    let balances = done(&mut worker, |t| t.scan(&evolved, ..).map(|row| row.balance()).sum());
    assert_eq!(balances, (0..300).sum::<i64>());
}

/// Whether a write into the old table, acknowledged while it is copied, is missing in the new one.
pub fn loses_a_write<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> bool {
    let database = setup.open();
    let accounts = create::<P, before::Account>(&database);
    let (mut worker, mut other) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut worker, |t| (0..600).try_for_each(|number| t.insert(&accounts, &old(number))));
    let mut acknowledged = Vec::new();
    let evolved: Table<Account> = evolve::open(&*database, &mut |copy| {
        let more = worker.execute(copy)?;
        // Behind the first rows that are copied, before them, and in their midst.
        for number in [acknowledged.len() as u64, 900] {
            let written = run(&mut other, |t| t.upsert(&accounts, &before::Account { balance: -1, ..old(number) }));
            match written {
                Ok(()) => acknowledged.push(number),
                Err(error) => assert!(matches!(cause(&error), Some(EvolutionError::Superseded { .. })), "{error}"),
            }
        }
        Ok(more)
    })
    .unwrap()
    .unwrap();
    let kept = |number: &u64| {
        let id = old(*number).id;
        let row = done(&mut worker, |t| t.get_owned(&evolved, ((*number % 3) as u16, &id)));
        row.is_some_and(|row| row.balance == Some(-1))
    };
    !acknowledged.iter().all(kept)
}

/// Nothing that was acknowledged is lost: what comes while the table is copied is refused.
pub fn beside_writes<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    assert!(!loses_a_write(setup), "an acknowledged write is lost");
}

/// Threads count in rows of the old table until they are refused: the new one has every count that was acknowledged.
pub fn beside_threads<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let accounts = create::<P, before::Account>(&database);
    let mut worker = database.worker().unwrap();
    done(&mut worker, |t| {
        (0..400).try_for_each(|number| t.insert(&accounts, &before::Account { balance: 0, ..old(number) }))
    });
    let is_warm = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (database, is_warm) = (Arc::clone(&database), Arc::clone(&is_warm));
            thread::spawn(move || {
                let mut worker = database.worker().unwrap();
                let mut counted = 0;
                loop {
                    let before::Account { branch, id, .. } = old((counted * 7 + writer * 200) % 400);
                    let outcome = run(&mut worker, |t| {
                        // A new row, too, which is in the way of a copy by ranges.
                        t.upsert(
                            &accounts,
                            &before::Account { balance: 0, ..old(1_000_000 * (1 + writer) + counted) },
                        )?;
                        t.update(&accounts, (branch, &id), |row| row.set_balance(row.balance() + 1))
                    });
                    match outcome {
                        Ok(true) => counted += 1,
                        Ok(false) => panic!("the row is there"),
                        Err(error) if matches!(cause(&error), Some(EvolutionError::Superseded { .. })) => {
                            return counted;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    // Relaxed: it says nothing of other memory.
                    is_warm.store(true, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while !is_warm.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    let evolved: Table<Account> = open(&*database, &mut worker).unwrap();
    let counted: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    let rows = all(&mut worker, &evolved);
    let sum: i64 = rows.iter().filter_map(|row| row.balance).sum();
    assert_eq!((sum as u64, rows.len() as u64), (counted, 400 + counted));
    let fingerprints = [before::Account::definition(), Account::definition()].map(|it| it.fingerprint());
    assert_ne!(fingerprints[0], fingerprints[1]);
    assert_eq!(database.definition(evolved.id()).unwrap().fingerprint(), fingerprints[1]);
    assert_eq!(Account::history()[0].default, Some(Value::Integer(100)));
}

/// Inside of a transaction a table becomes one of other rows at once, or not at all, and nobody waits.
pub fn inside_of_a_transaction<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let database = setup.open();
    let accounts = create::<P, before::Account>(&database);
    let (mut worker, mut other) = (database.worker().unwrap(), database.worker().unwrap());
    done(&mut worker, |t| t.insert(&accounts, &old(1)));
    let mut client = begin(&mut worker);
    let read = client.step(|t| t.get_owned(&accounts, (1, "a00001")));
    let inside = evolve::open::<P, Account>(&*database, &mut |copy| other.execute(copy));
    match &inside {
        Ok(_) | Err(Error::WaitsForItself(_) | Error::Unsupported(_)) => {}
        Err(error) => panic!("{error}"),
    }
    drop(client);
    assert!(read.is_none_or(|row| row == Some(old(1))));
    let evolved: Table<Account> = open(&*database, &mut other).unwrap();
    assert_eq!(all(&mut other, &evolved), [new(1)]);
}

/// A write into the old table.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Upsert,
    Update,
    /// By a future, which may be open until the commit.
    Assign,
    Delete,
    Insert,
}

impl Deed {
    const ALL: [Self; 5] = [Self::Upsert, Self::Update, Self::Assign, Self::Delete, Self::Insert];

    /// Does it to a row that is there, or adds one of another number.
    fn run<T: Transaction>(self, t: &mut T, table: &Table<before::Account>, number: u64) -> Result<(), Error> {
        let row = before::Account { balance: -1, ..old(number) };
        let key = (row.branch, &*row.id);
        match self {
            Self::Upsert => t.upsert(table, &row),
            Self::Update => t.update(table, key, |row| row.set_balance(-1)).map(drop),
            Self::Assign => t.set_future(table, key, before::Account::BALANCE, -1),
            Self::Delete => t.delete(table, key).map(drop),
            Self::Insert => t.insert(table, &before::Account { balance: -1, ..old(number + 20) }),
        }
    }

    /// Does the same to the rows that are expected.
    fn expect(self, rows: &mut BTreeMap<u64, i64>, number: u64) {
        match self {
            Self::Upsert | Self::Update | Self::Assign => _ = rows.insert(number, -1),
            Self::Delete => _ = rows.remove(&number),
            Self::Insert => _ = rows.insert(number + 20, -1),
        }
    }
}

/// Evolutions that do not wait for the open transaction have most often ended by then.
const EVOLVES_IN_MS: u64 = 50;

/// A transaction that began before the table became one of other rows, and writes into it or has done so, commits nothing that is missing there.
pub fn beside_an_open_transaction<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let cases = [false, true].into_iter().flat_map(|reads| [false, true].map(|writes| (reads, writes)));
    for ((reads, writes), deed) in cases.flat_map(|case| Deed::ALL.map(|deed| (case, deed))) {
        let database = setup.open();
        let accounts = create::<P, before::Account>(&database);
        let (mut worker, mut other) = (database.worker().unwrap(), database.worker().unwrap());
        done(&mut worker, |t| (0..9).try_for_each(|number| t.insert(&accounts, &old(number))));
        let before: BTreeMap<u64, i64> = (0..9).map(|number| (number, number as i64)).collect();
        let mut expected = before.clone();
        let mut client = begin(&mut worker);
        if reads {
            client.step(|t| t.scan(&accounts, ..).rows());
        }
        if writes && client.step(|t| deed.run(t, &accounts, 1)).is_some() {
            deed.expect(&mut expected, 1);
        }
        let has_evolved = AtomicBool::new(false);
        thread::scope(|scope| {
            let evolution = scope.spawn(|| {
                let evolved = evolve::open::<P, Account>(&*database, &mut |copy| other.execute(copy));
                has_evolved.store(true, Ordering::Release);
                evolved
            });
            // Some protocols wait for the open transaction here, and some do not.
            let _ = (0..EVOLVES_IN_MS).find(|_| {
                thread::sleep(Duration::from_millis(1));
                has_evolved.load(Ordering::Acquire)
            });
            // Whether it writes, and commits, is the protocol's affair: nothing of what it has written is lost if it does.
            if client.step(|t| Ok(deed.run(t, &accounts, 2).is_ok())) == Some(true) {
                deed.expect(&mut expected, 2);
            }
            if !client.commit() {
                expected = before;
            }
            evolution.join().expect("the evolution does not panic").expect("the table becomes one of the new rows");
        });
        let evolved: Table<Account> = open(&*database, &mut other).unwrap();
        let row = |(number, balance)| Account { balance: Some(balance), ..new(number) };
        let mut expected: Vec<_> = expected.into_iter().map(row).collect();
        expected.sort_by(|left, right| (left.place, &left.id).cmp(&(right.place, &right.id)));
        assert_eq!(all(&mut other, &evolved), expected, "{deed:?}, reads: {reads}, writes before: {writes}");
    }
}
