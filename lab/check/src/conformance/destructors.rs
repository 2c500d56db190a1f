//! Destructors that panic: of answers, of errors that procedures answer with, and of procedures. A thread that drops such a thing in place
//! of its client goes on, and others are answered. A destructor panics also while its thread unwinds from another panic, which ends the
//! process where it is not caught.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;

use polychron_base::Error;
use polychron_base::clock::SystemClock;
use polychron_engine::futures::Resolved;
use polychron_engine::options::Submissions;
use polychron_engine::submission::Service;
use polychron_engine::{Declare, Interactive, Operations, Procedure, Protocol, Table, Transaction, Worker};

use crate::Setup;
use crate::rows::Item;
use crate::setup::{done, items, run};
use crate::watch::watched;

/// Panics where it is dropped, unless its client disarms it.
#[derive(Debug)]
struct Loud {
    is_armed: bool,
}

impl Loud {
    const fn new() -> Self {
        Self { is_armed: true }
    }

    fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        if self.is_armed {
            // Without the hook that writes about it.
            resume_unwind(Box::new("a destructor panics"));
        }
    }
}

/// The same as an error.
#[derive(Debug)]
struct LoudError(#[allow(dead_code, reason = "it has a destructor")] Loud);

impl std::fmt::Display for LoudError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a loud error")
    }
}

impl std::error::Error for LoudError {}

/// How a procedure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Answers,
    AnswersLoudly,
    FailsLoudly,
    /// Answers, and panics when it is told that it has committed.
    PanicsThen,
    /// Panics with a thing whose destructor panics.
    PanicsLoudly,
    /// Has written what was not declared, and answers all the same, or fails.
    Undeclared,
    UndeclaredFails,
    /// Another one commits in its midst what it has read, at the first attempt, before it answers, or fails.
    Conflicts,
    ConflictsAndFails,
}

impl End {
    const ALL: [Self; 9] = [
        Self::Answers,
        Self::AnswersLoudly,
        Self::FailsLoudly,
        Self::PanicsThen,
        Self::PanicsLoudly,
        Self::Undeclared,
        Self::UndeclaredFails,
        Self::Conflicts,
        Self::ConflictsAndFails,
    ];

    fn is_undeclared(self) -> bool {
        matches!(self, Self::Undeclared | Self::UndeclaredFails)
    }
}

/// Reads and writes a row of its own.
struct Ends<W> {
    table: Table<Item>,
    id: u64,
    end: End,
    beside: Option<W>,
    _own: Option<Loud>,
}

impl<W: Interactive + 'static> Procedure for Ends<W> {
    type Output = Option<Loud>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<Option<Loud>, Error> {
        let table = self.table;
        let old = t.get(&table, self.id)?.map(|row| row.value());
        if let Some(mut beside) = self.beside.take() {
            // It may have to wait for this one, and is told so.
            let _ = run(&mut beside, |t| t.update(&table, self.id, |row| row.set_value(row.value() + 100)));
        }
        let id = if self.end.is_undeclared() { self.id + 1 } else { self.id };
        t.update(&table, id, |row| row.set_value(old.unwrap_or(0) + 1))
            .map(drop)
            .or_else(|error| if error.is_conflict() || !self.end.is_undeclared() { Err(error) } else { Ok(()) })?;
        match self.end {
            End::Answers => Ok(None),
            End::PanicsLoudly => resume_unwind(Box::new(Loud::new())),
            End::FailsLoudly | End::UndeclaredFails | End::ConflictsAndFails => {
                Err(Error::other(LoudError(Loud::new())))
            }
            End::AnswersLoudly | End::PanicsThen | End::Undeclared | End::Conflicts => Ok(Some(Loud::new())),
        }
    }

    fn committed(&mut self, _: &mut Option<Loud>, _: &Resolved) {
        if self.end == End::PanicsThen {
            resume_unwind(Box::new(Loud::new()));
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        use polychron_schema::{Key, KeyScratch};
        let mut scratch = KeyScratch::new();
        declaration.key(self.table.id(), self.id.encode(&mut scratch), polychron_engine::Access::Update);
    }
}

/// Checks an answer, and drops it in peace.
fn check(end: End, outcome: Result<Option<Loud>, Error>) {
    let is_right = match (&outcome, end) {
        (Ok(None), End::Answers) => true,
        (Ok(Some(_)), End::AnswersLoudly | End::Undeclared | End::Conflicts) => true,
        (Err(Error::Other(error)), End::FailsLoudly | End::UndeclaredFails | End::ConflictsAndFails) => {
            error.is::<LoudError>()
        }
        (Err(Error::Panicked(_)), End::PanicsThen | End::PanicsLoudly) => true,
        // A planned protocol refuses the write, a locking one the other transaction, or this one.
        (Err(Error::Undeclared(_)), End::Undeclared | End::UndeclaredFails) => true,
        (Err(Error::WaitsForItself(_)), End::Conflicts | End::ConflictsAndFails) => true,
        _ => false,
    };
    let text = format!("{end:?}: {outcome:?}");
    match outcome {
        Ok(answer) => answer.into_iter().for_each(|mut loud| loud.disarm()),
        Err(Error::Other(error)) => match error.into_inner().downcast::<LoudError>() {
            Ok(mut error) => error.0.disarm(),
            Err(error) => drop(error),
        },
        Err(_) => {}
    }
    assert!(is_right, "{text}");
}

/// Rows, two for each procedure.
const ROWS: u64 = 64;

fn open<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) -> (Arc<P>, Table<Item>) {
    items(setup, &(0..ROWS).map(|id| (id, 0)).collect::<Vec<_>>())
}

fn ends<W>(table: Table<Item>, id: u64, end: End) -> Ends<W> {
    Ends { table, id: 2 * id, end, beside: None, _own: None }
}

/// Everybody goes on.
fn goes_on<W: Interactive + 'static>(worker: &mut W, table: Table<Item>) {
    check(End::Answers, worker.execute(&mut ends::<W>(table, 0, End::Answers)));
    assert_eq!(done(worker, |t| t.scan(&table, ..).count()), ROWS);
}

/// By itself, in a batch, and on a snapshot.
pub fn of_answers<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let (database, table) = open(&setup);
        let mut worker = database.worker().unwrap();
        for end in End::ALL {
            progress.at(format!("{end:?}"));
            let mut procedure = ends::<P::Worker>(table, 1, end);
            if matches!(end, End::Conflicts | End::ConflictsAndFails) {
                procedure.beside = Some(database.worker().unwrap());
            }
            check(end, worker.execute(&mut procedure));
            progress.at(format!("{end:?}, in a batch"));
            let mut batch: Vec<_> =
                (0..6).map(|id| ends::<P::Worker>(table, id, if id == 3 { end } else { End::Answers })).collect();
            worker.execute_batch(&mut batch, &mut |position, outcome| check(batch_end(position, end), outcome));
            goes_on(&mut worker, table);
        }
    });
}

fn batch_end(position: usize, end: End) -> End {
    if position == 3 { end } else { End::Answers }
}

/// A client that is told of answers panics, while there are others that no client still takes.
pub fn of_answers_that_are_not_taken<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let (database, table) = open(&setup);
        let mut worker = database.worker().unwrap();
        for at in [0, 3, 19] {
            progress.at(format!("at {at}"));
            let batch = || (0..20).map(|id| ends::<P::Worker>(table, id, End::AnswersLoudly)).collect::<Vec<_>>();
            let observed = |position, outcome| {
                check(End::AnswersLoudly, outcome);
                if position == at {
                    resume_unwind(Box::new("who is told panics"));
                }
            };
            let mut procedures = batch();
            let executed = catch_unwind(AssertUnwindSafe(|| worker.execute_batch(&mut procedures, &mut { observed })));
            assert!(executed.is_err());
            goes_on(&mut worker, table);
            let mut procedures = batch();
            // It may be told by a thread that helps.
            let _ = catch_unwind(AssertUnwindSafe(|| worker.execute_batch_with(&mut procedures, &observed, |_| ())));
            goes_on(&mut worker, table);
        }
    });
}

/// Of procedures that were submitted, and of their answers: waited for, given up before and after, with and without helpers, and left when
/// the service ends.
pub fn of_submissions<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |progress| {
        let (database, table) = open(&setup);
        let mut worker = database.worker().unwrap();
        for threads in [1, 2] {
            let options = Submissions { threads, batch_size: 4, ..Submissions::default() };
            let start =
                || Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
            let service = start();
            let submit = |service: &Service<P>, id: u64, end| {
                let _own = Some(Loud::new());
                service.submit(Ends::<P::Worker> { _own, ..ends(table, id, end) })
            };
            for end in End::ALL {
                progress.at(format!("{end:?} of {threads} threads"));
                let submissions: Vec<_> = (0..12).map(|id| submit(&service, id, end)).collect();
                submissions.into_iter().for_each(|submission| check(end, submission.wait()));
            }
            progress.at(format!("given up, {threads} threads"));
            for round in 0..10 {
                (0..8).for_each(|id| drop(submit(&service, id, End::AnswersLoudly)));
                let late = submit(&service, 9, End::AnswersLoudly);
                check(End::Answers, submit(&service, 10, End::Answers).wait());
                while round % 2 == 0 && !late.is_answered() {
                    std::thread::yield_now();
                }
                drop(late);
            }
            progress.at(format!("at the end, {threads} threads"));
            let left: Vec<_> = (0..40).map(|id| submit(&service, id % 20, End::AnswersLoudly)).collect();
            drop(service);
            // Those that come later are answered, or closed.
            for (number, submission) in left.into_iter().enumerate() {
                if number % 2 == 0 {
                    check(End::AnswersLoudly, submission.wait());
                }
            }
            goes_on(&mut worker, table);
        }
    });
}

/// Answers are dropped by a client that unwinds.
pub fn of_clients_that_panic<P: Protocol<Worker: Interactive>>(setup: &Setup<P>) {
    let setup = setup.clone();
    watched(move |_| {
        let (database, table) = open(&setup);
        let options = Submissions { threads: 1, ..Submissions::default() };
        let service = Service::start(&database, &options, Arc::new(SystemClock::new()), || database.worker()).unwrap();
        let (sender, receiver) = channel();
        let client = std::thread::spawn(move || {
            let submissions: Vec<_> =
                (0..6).map(|id| service.submit(ends::<P::Worker>(table, id, End::AnswersLoudly))).collect();
            while !submissions.iter().all(|submission| submission.is_answered()) {
                std::thread::yield_now();
            }
            sender.send(service).map_err(drop).expect("the test waits");
            resume_unwind(Box::new(submissions.len()));
        });
        assert!(client.join().is_err());
        let service = receiver.recv().expect("the client has sent it");
        check(End::Answers, service.submit(ends::<P::Worker>(table, 1, End::Answers)).wait());
        drop(service);
        goes_on(&mut database.worker().unwrap(), table);
    });
}
