//! Code of the user's that the engine calls between transactions: no transaction is open there, yet the thread may be in the middle of a
//! batch. Tables and indexes can be made and dropped there, or their maker learns that it would wait for its own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use polychron_base::clock::SystemClock;
use polychron_engine::futures::Resolved;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{
    Declare, Error, IndexDefinition, IndexId, Interactive, Operations, Procedure, Protocol, Row, Table, TableId,
    Transaction, Worker,
};

use crate::Setup;
use crate::rows::{Cell, Item};
use crate::setup::{all, items};
use crate::watch::{Progress, watched};

/// Where the engine calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    /// With the answer of a procedure of a batch.
    Done,
    /// To name keys.
    Declare,
    /// After the commit.
    Committed,
    /// To drop an answer that no client wants.
    AnswerDropped,
    /// To drop a procedure that was executed.
    ProcedureDropped,
    /// To wake who waits for an answer.
    Woken,
}

/// In which way the procedure comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Executed,
    Snapshot,
    InABatch,
    Submitted,
}

impl Called {
    const ALL: [Self; 6] =
        [Self::Done, Self::Declare, Self::Committed, Self::AnswerDropped, Self::ProcedureDropped, Self::Woken];

    fn ways(self) -> &'static [Way] {
        match self {
            Self::Done => &[Way::InABatch],
            Self::Declare | Self::Committed => &[Way::Executed, Way::Snapshot, Way::InABatch, Way::Submitted],
            Self::AnswerDropped | Self::ProcedureDropped | Self::Woken => &[Way::Submitted],
        }
    }
}

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    CreateIndex,
    DropIndex,
    CreateTable,
    DropTable,
}

impl Change {
    const ALL: [Self; 4] = [Self::CreateIndex, Self::DropIndex, Self::CreateTable, Self::DropTable];

    /// Does it. What is dropped is there, and what is created is not.
    fn apply<P: Protocol>(self, stage: &Stage<P>) -> Result<(), Error> {
        let Stage { database, table, index } = stage;
        let mut index = index.lock().unwrap();
        match self {
            Self::CreateIndex => *index = Some(database.create_index(table.id(), by_value())?),
            Self::DropIndex => {
                database.drop_index(table.id(), index.expect("it is there"))?;
                *index = None;
            }
            Self::CreateTable => drop(database.create_table(Cell::definition())?),
            Self::DropTable => database.drop_table(stage.cells().expect("it is there"))?,
        }
        Ok(())
    }

    /// Makes everything as it has to be before the change.
    fn prepare<P: Protocol>(self, stage: &Stage<P>) {
        let (has_index, has_table) = (stage.index.lock().unwrap().is_some(), stage.cells().is_some());
        let first = match self {
            Self::CreateIndex if has_index => Self::DropIndex,
            Self::DropIndex if !has_index => Self::CreateIndex,
            Self::CreateTable if has_table => Self::DropTable,
            Self::DropTable if !has_table => Self::CreateTable,
            _ => return,
        };
        first.apply(stage).expect("nobody is in its way");
    }
}

/// A database with a table, and another table and an index that come and go.
struct Stage<P> {
    database: Arc<P>,
    table: Table<Item>,
    index: Mutex<Option<IndexId>>,
}

impl<P: Protocol> Stage<P> {
    fn cells(&self) -> Option<TableId> {
        self.database.find_table(&Cell::definition().name)
    }
}

fn by_value() -> IndexDefinition {
    IndexDefinition::new("by_value", [1])
}

type Work = Box<dyn FnOnce() + Send>;

/// What is called at one of the places, once.
#[derive(Clone)]
struct Hook(Arc<Mutex<Option<Work>>>);

impl Hook {
    fn call(&self) {
        let taken = self.0.lock().unwrap().take();
        if let Some(work) = taken {
            work();
        }
    }
}

impl Wake for Hook {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

/// Calls when it is dropped.
struct AtEnd(Option<Hook>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(hook) = &self.0 {
            hook.call();
        }
    }
}

/// Reads, and calls.
struct Hooked {
    table: Table<Item>,
    at: Called,
    hook: Hook,
    _end: AtEnd,
}

impl Hooked {
    fn new(table: Table<Item>, at: Called, hook: &Hook) -> Self {
        let end = AtEnd((at == Called::ProcedureDropped).then(|| hook.clone()));
        Self { table, at, hook: hook.clone(), _end: end }
    }
}

impl Procedure for Hooked {
    type Output = AtEnd;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<AtEnd, Error> {
        t.scan(&self.table, ..).count()?;
        Ok(AtEnd((self.at == Called::AnswerDropped).then(|| self.hook.clone())))
    }

    fn declare<D: Declare>(&self, _: &mut D) {
        if self.at == Called::Declare {
            self.hook.call();
        }
    }

    fn committed(&mut self, _: &mut AtEnd, _: &Resolved) {
        if self.at == Called::Committed {
            self.hook.call();
        }
    }
}

/// Stays under way until its sender is gone.
struct Held(Mutex<Receiver<()>>);

impl Procedure for Held {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, _: &mut T) -> Result<(), Error> {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

struct Read(Table<Item>);

impl Procedure for Read {
    type Output = u64;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<u64, Error> {
        t.scan(&self.0, ..).count()
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// Has a procedure executed that calls.
fn execute<P: Protocol>(way: Way, mut hooked: Hooked, worker: &mut P::Worker, service: &Service<P>) {
    let (at, hook, table) = (hooked.at, hooked.hook.clone(), hooked.table);
    match way {
        Way::Executed => drop(worker.execute(&mut hooked).unwrap()),
        Way::Snapshot => drop(worker.snapshot(&mut hooked).unwrap()),
        Way::InABatch => {
            let other = Hooked::new(table, Called::Done, &hook);
            worker.execute_batch(&mut [hooked, other], &mut |_, outcome| {
                outcome.unwrap();
                if at == Called::Done {
                    hook.call();
                }
            });
        }
        Way::Submitted => {
            let (release, held) = channel();
            let holds = service.submit(Held(Mutex::new(held)));
            let mut submission = service.submit(hooked);
            match at {
                Called::AnswerDropped => drop(submission),
                Called::Woken => {
                    let waker: Waker = Arc::new(hook.clone()).into();
                    // A helping thread may have executed it by now, because the held procedure takes long. The waker is not called then, so the
                    // procedure is submitted once more.
                    while pin!(&mut submission).poll(&mut Context::from_waker(&waker)).is_ready() {
                        submission = service.submit(Hooked::new(table, at, &hook));
                    }
                    drop(release);
                    submission.wait().unwrap();
                    return;
                }
                _ => {
                    drop(release);
                    submission.wait().unwrap();
                    return;
                }
            }
            drop(release);
            holds.wait().unwrap();
        }
    }
}

/// Tables and indexes come and go wherever the engine calls code of the user's, or the answer is that the thread would wait for itself; and
/// afterwards all goes on.
pub fn changes_between_transactions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress: &Progress| {
        let rows = [(0, 5), (1, 6), (2, 7)];
        let (database, table) = items(&setup, &rows);
        let mut worker = database.worker().unwrap();
        let options = Submissions { threads: 1, ..Submissions::default() };
        let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
        let stage = Arc::new(Stage { database, table, index: Mutex::default() });
        for at in Called::ALL {
            for (way, change) in at.ways().iter().flat_map(|way| Change::ALL.map(|change| (*way, change))) {
                let what = format!("{change:?} at {at:?} of a procedure that is {way:?}");
                progress.at(format!("what comes before {what}"));
                change.prepare(&stage);
                progress.at(&what);
                let (observed, answer) = channel();
                let of_hook = Arc::clone(&stage);
                let work = move || {
                    let made = catch_unwind(AssertUnwindSafe(|| change.apply(&of_hook)));
                    let _ = observed.send(made.map_err(|_| "a panic"));
                };
                let hook = Hook(Arc::new(Mutex::new(Some(Box::new(work)))));
                execute::<P>(way, Hooked::new(table, at, &hook), &mut worker, &service);
                if at == Called::Declare {
                    // Not every protocol asks for keys.
                    drop(hook.0.lock().unwrap().take());
                }
                match answer.recv() {
                    Ok(Ok(Ok(()) | Err(Error::WaitsForItself { .. }))) => {}
                    Err(_) if at == Called::Declare => {}
                    other => panic!("{what}: {other:?}"),
                }
                progress.at(format!("what comes after {what}"));
                change.prepare(&stage);
                change.apply(&stage).unwrap();
                assert_eq!(service.submit(Read(table)).wait().unwrap(), rows.len() as u64);
                assert_eq!(all(&mut worker, &table).len(), rows.len());
            }
        }
    });
}
