//! Each step is left out, and something then goes wrong: the killers, as in `lab/check/tests/mutations`.

use polychron_engine::mutations::leave_out;
use polychron_engine::{Common, Error, Insertion, Interactive, Mode, Operations, Protocol, Table, drive};
use polychron_schema::Row;
use polychron_tutorial::{OneLock, OneLockTransaction, OneLockWorker, Options, Step};

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_code", columns(code), unique)]
#[index(name = "by_badge", columns(badge), unique)]
#[allow(clippy::duplicated_attributes, reason = "each index has its own")]
struct Member {
    #[key]
    id: u64,
    code: u32,
    badge: u32,
}

/// The one that is there at first.
const FIRST: Member = Member { id: 1, code: 1, badge: 1 };
const SECOND: Member = Member { id: 2, code: 2, badge: 2 };

struct Stage {
    members: Table<Member>,
    workers: [OneLockWorker; 2],
}

impl Stage {
    fn new() -> Self {
        let memory = polychron_memory::Options::tiny();
        let database = OneLock::open(Options::default(), Common { memory, ..Common::default() }).unwrap();
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        let mut stage = Self { members, workers: [database.worker().unwrap(), database.worker().unwrap()] };
        stage.run(Mode::ReadWrite, |t, members| t.insert(members, &FIRST)).unwrap();
        stage
    }

    fn run<O>(
        &mut self,
        mode: Mode,
        mut body: impl FnMut(&mut OneLockTransaction<'_>, &Table<Member>) -> Result<O, Error>,
    ) -> Result<O, Error> {
        drive::transact(&mut self.workers[0], mode, &mut |transaction| body(transaction, &self.members))
    }

    fn count(&mut self) -> u64 {
        self.run(Mode::ReadWrite, |t, members| t.scan(members, ..).count()).unwrap()
    }
}

fn row_of_an_open_transaction_is_read() -> bool {
    let Stage { members, workers: [one, two] } = &mut Stage::new();
    let mut writing = one.begin(Mode::ReadWrite).unwrap();
    writing.insert(members, &SECOND).unwrap();
    let Ok(mut reading) = two.begin(Mode::ReadWrite) else { return false };
    reading.get(members, SECOND.id).unwrap().is_some()
}

fn insertion_that_was_rolled_back() -> bool {
    let mut stage = Stage::new();
    let mut transaction = stage.workers[0].begin(Mode::ReadWrite).unwrap();
    transaction.insert(&stage.members, &SECOND).unwrap();
    drop(transaction);
    stage.count() != 1
}

fn insertion_that_was_refused() -> bool {
    let mut stage = Stage::new();
    let twin = Member { badge: FIRST.badge, ..SECOND };
    let outcome = stage.run(Mode::ReadWrite, |t, members| t.try_insert(members, &twin)).unwrap();
    assert_ne!(outcome, Insertion::Inserted);
    stage.count() != 1
}

fn code_of_two_members() -> bool {
    let twin = Member { code: FIRST.code, ..SECOND };
    Stage::new().run(Mode::ReadWrite, |t, members| t.try_insert(members, &twin)).unwrap() == Insertion::Inserted
}

fn snapshot_that_writes() -> bool {
    let mut stage = Stage::new();
    let _ = stage.run(Mode::Snapshot, |t, members| t.insert(members, &SECOND));
    stage.count() != 1
}

/// Whether something goes wrong that the step is there to prevent.
fn goes_wrong(step: Step) -> bool {
    match step {
        Step::AcquireLock => row_of_an_open_transaction_is_read(),
        Step::RefuseSnapshotWrites => snapshot_that_writes(),
        Step::UndoTransactions => insertion_that_was_rolled_back(),
        Step::UndoOperations => insertion_that_was_refused(),
        Step::RefuseDuplicates => code_of_two_members(),
    }
}

#[test]
fn every_step_is_needed() {
    for &step in Step::ALL {
        assert!(!goes_wrong(step), "{step:?} is not left out");
        let _without = leave_out(step);
        assert!(goes_wrong(step), "{step:?} is not needed");
    }
}
