//! The serial oracle. Its mutex cannot be left out: the tables are not to be reached without it.

use std::sync::Arc;

use polychron_engine::{Common, Error, Insertion, Interactive, Mode, Operations, Protocol, Table, drive};
use polychron_protocols::serial::{Options, Serial, SerialTransaction, Step};
use polychron_schema::Row;

#[derive(Row, Clone, Copy, Debug, PartialEq)]
#[index(name = "by_code", columns(code), unique)]
struct Member {
    #[key]
    id: u64,
    code: u32,
}

struct Stage {
    database: Arc<Serial>,
    members: Table<Member>,
}

impl Stage {
    fn new() -> Self {
        let memory = polychron_memory::Options::tiny();
        let database = Serial::open(Options::default(), Common { memory, ..Common::default() }).unwrap();
        let members = Table::from_id(database.create_table(Member::definition()).unwrap());
        let stage = Self { database, members };
        stage.run(Mode::ReadWrite, |t| t.insert(&stage.members, &Member { id: 1, code: 1 })).unwrap();
        stage
    }

    fn run<O>(
        &self,
        mode: Mode,
        mut body: impl FnMut(&mut SerialTransaction<'_>) -> Result<O, Error>,
    ) -> Result<O, polychron_engine::Error> {
        drive::transact(&mut self.database.worker().unwrap(), mode, &mut body)
    }

    fn count(&self) -> u64 {
        self.run(Mode::ReadWrite, |t| t.scan(&self.members, ..).count()).unwrap()
    }
}

fn insertion_that_was_rolled_back() -> bool {
    let stage = Stage::new();
    let mut worker = stage.database.worker().unwrap();
    let mut transaction = worker.begin(Mode::ReadWrite).unwrap();
    transaction.insert(&stage.members, &Member { id: 2, code: 2 }).unwrap();
    drop(transaction);
    stage.count() != 1
}

fn code_of_two_members() -> bool {
    let stage = Stage::new();
    let twin = Member { id: 2, code: 1 };
    stage.run(Mode::ReadWrite, |t| t.try_insert(&stage.members, &twin)).unwrap() == Insertion::Inserted
}

fn snapshot_that_writes() -> bool {
    let stage = Stage::new();
    let _ = stage.run(Mode::Snapshot, |t| t.insert(&stage.members, &Member { id: 2, code: 2 }));
    stage.count() != 1
}

crate::killers! { Step:
    UndoTransactions: insertion_that_was_rolled_back, "a rollback undoes nothing";
    RefuseDuplicates: code_of_two_members, "a unique value occurs twice";
    RefuseSnapshotWrites: snapshot_that_writes, "a snapshot writes";
}
