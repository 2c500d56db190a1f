//! Processes that are forked from one that has a database open: they are refused, end, and leave the files alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use fork::{Fork, fork, waitpid_nohang};
use polychron::{Access, Database, Declare, Durability, Error, Operations, Procedure, Row, Table, Transaction};
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many times a tenth of a second a process may take to end before it counts as one that hangs.
const LONGEST_WAIT: u32 = 1200;

/// One test forks at a time, so that none waits for what another one holds.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Row, Clone, Debug, PartialEq)]
struct Item {
    #[key]
    id: u64,
    text: String,
}

fn item(id: u64) -> Item {
    Item { id, text: "text ".repeat(id as usize % 50) }
}

struct Insert(Table<Item>, u64);

impl Procedure for Insert {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        transaction.insert(&self.0, &item(self.1))
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let all: &[u8] = &[];
        declaration.prefix(self.0.id(), all, Access::Write);
    }
}

/// What a process does that is forked from this one; it ends then. Whether all was well, and it has ended.
fn forked(child: impl FnOnce()) -> Result<(), String> {
    match fork().expect("the system can fork") {
        Fork::Child => {
            let done = catch_unwind(AssertUnwindSafe(child));
            std::process::exit(i32::from(done.is_err()));
        }
        Fork::Parent(process) => {
            for _ in 0..LONGEST_WAIT {
                match waitpid_nohang(process).map_err(|error| error.to_string())? {
                    Some(0) => return Ok(()),
                    Some(status) => return Err(format!("it has ended with {status}")),
                    None => std::thread::sleep(Duration::from_millis(100)),
                }
            }
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
            let _ = fork::waitpid(process);
            Err("it hangs".to_owned())
        }
    }
}

fn open(path: &Path, durability: Durability) -> (Database, Table<Item>) {
    let database = Database::builder().small().durability(durability).open(path).unwrap();
    let items = database.create_or_open_table::<Item>().unwrap();
    (database, items)
}

fn is_refused<O>(answer: Result<O, Error>) -> bool {
    matches!(answer, Err(Error::OtherProcess))
}

/// Everything that can be done with a database is refused, and it is dropped.
fn use_in_vain(database: Database, items: Table<Item>) {
    assert!(is_refused(database.transact(|t| t.insert(&items, &item(1_000_000)))));
    assert!(is_refused(database.snapshot(|t| t.len(&items))));
    assert!(is_refused(database.execute(&mut Insert(items, 1_000_001))));
    assert!(is_refused(database.submit(Insert(items, 1_000_002)).wait()));
    assert!(is_refused(database.session()));
    assert!(is_refused(database.begin()));
    assert!(is_refused(database.checkpoint()));
    assert!(is_refused(database.clone().close()));
    let more = Item::definition().with_name("more");
    assert!(is_refused(database.create_table_with(more)));
    drop(database);
}

/// What is closed can be opened again at once, though a process was forked meanwhile that has all files of this one, as each has until it executes
/// another program.
#[test]
fn a_forked_process_keeps_no_lock() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let (path, over) = (directory.path().join("database"), directory.path().join("over"));
    let (database, _) = open(&path, Durability::Immediate);
    match fork().expect("the system can fork") {
        Fork::Child => {
            let is_over = (0..LONGEST_WAIT).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                over.exists()
            });
            std::process::exit(i32::from(!is_over));
        }
        Fork::Parent(process) => {
            database.close().unwrap();
            let opened = Database::open(&path).map(drop);
            std::fs::write(&over, "").unwrap();
            fork::waitpid(process).unwrap();
            assert!(opened.is_ok(), "{opened:?}");
        }
    }
}

#[test]
fn a_forked_process_is_refused_and_changes_nothing() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    for durability in [Durability::Immediate, Durability::Eventual(Duration::from_millis(1))] {
        let path = directory.path().join(format!("{durability:?}").split('(').next().unwrap());
        let (database, items) = open(&path, durability);
        (0..100).for_each(|id| database.submit(Insert(items, id)).wait().unwrap());
        let (mut session, mut begun) = (database.session().ok(), database.begin().ok());
        begun.as_mut().unwrap().insert(&items, &item(200)).unwrap();
        let mut database = Some(database);
        // A child has copies of these, which it takes.
        let child = || {
            assert!(is_refused(begun.take().unwrap().commit()));
            let mut session = session.take().unwrap();
            assert!(is_refused(session.transact(|t| t.insert(&items, &item(300)))));
            drop(session);
            use_in_vain(database.take().unwrap(), items);
            // It may have a database of its own.
            let own = open(&directory.path().join("own"), durability);
            own.0.transact(|t| t.insert(&own.1, &item(1))).unwrap();
            own.0.close().unwrap();
        };
        assert_eq!(forked(child), Ok(()), "{durability:?}");
        drop((session, begun));
        let database = database.unwrap();
        database.transact(|t| t.insert(&items, &item(100))).unwrap();
        assert!(matches!(Database::open(&path), Err(Error::InUse(_))), "the lock is the parent's still");
        database.close().unwrap();
        std::fs::remove_dir_all(directory.path().join("own")).unwrap();
        let (database, items) = open(&path, durability);
        assert_eq!(database.transact(|t| t.len(&items)).unwrap(), 101, "{durability:?}");
    }
}

/// Whatever the threads are at that a forked process does not have.
#[test]
fn a_process_is_forked_while_others_commit() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let (database, items) = open(&directory.path().join("bank"), Durability::Immediate);
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    database.transact(|t| t.insert(&items, &item(id))).unwrap();
                }
            });
        }
        let ended: Vec<_> = (0..20).map(|_| forked(|| use_in_vain(database.clone(), items))).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    });
    database.close().unwrap();
    let (database, items) = open(&directory.path().join("bank"), Durability::Immediate);
    assert_eq!(database.transact(|t| t.len(&items)).unwrap(), next.load(Ordering::Relaxed));
}
