//! When changes are sealed, and what answers wait for.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use polychron_engine::{
    Access, Declare, Error, Interactive, Mode, Operations, Procedure, Protocol, Table, Ticket, Transaction, Worker,
};
use polychron_schema::{Key, KeyScratch};
use polychron_sync::Mutex;

use super::Recorder;
use crate::Setup;
use crate::rows::Item;
use crate::setup::{create, items};

/// What is done with an item.
#[derive(Clone, Copy, Debug)]
enum Act {
    Set(i64),
    Get,
    Delete,
    /// Reads it, and the item 1 before.
    GetSecond,
    /// Reads it, and fails.
    Fail,
}

/// Does something with the item of an id, and answers the value that it had.
struct Acting {
    table: Table<Item>,
    id: u64,
    act: Act,
}

impl Procedure for Acting {
    type Output = Option<i64>;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<i64>, Error> {
        let Self { table, id, act } = self;
        if matches!(act, Act::GetSecond) {
            transaction.get(table, 1)?;
        }
        let value = transaction.get(table, *id)?.map(|row| row.value());
        match act {
            Act::Set(value) => transaction.upsert(table, &Item { id: *id, value: *value })?,
            Act::Delete => _ = transaction.delete(table, *id)?,
            Act::Get | Act::GetSecond => {}
            Act::Fail => return Err(Error::RolledBack),
        }
        Ok(value)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        let mut scratch = KeyScratch::new();
        if matches!(self.act, Act::GetSecond) {
            declaration.key(self.table.id(), 1_u64.encode(&mut KeyScratch::new()), Access::Read);
        }
        let access =
            if matches!(self.act, Act::Get | Act::GetSecond | Act::Fail) { Access::Read } else { Access::Write };
        declaration.key(self.table.id(), self.id.encode(&mut scratch), access);
    }
}

/// Whether a row can be read as its writer leaves it before that has sealed it, by another transaction of the same thread, if there can be one.
pub fn is_seen_before_sealed<P: Protocol<Worker: Interactive + 'static>>(setup: &Setup<P>) -> bool {
    let recorder = Arc::new(Recorder::patient());
    let (database, table) = items(&setup.logged(&recorder), &[(1, 10)]);
    let mut reader = database.worker().expect("a slot is free");
    let seen = Arc::new(Mutex::new(None));
    recorder.on_seal({
        let seen = Arc::clone(&seen);
        move || {
            let Ok(mut transaction) = reader.begin(Mode::ReadWrite) else { return };
            let value = transaction.get(&table, 1).ok().flatten().map(|row| row.value());
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = value;
        }
    });
    let mut writer = database.worker().expect("a slot is free");
    let written = writer.execute(&mut Acting { table, id: 1, act: Act::Set(11) });
    recorder.on_seal(|| ());
    assert_eq!(written.expect("it commits"), Some(10));
    *seen.lock().unwrap_or_else(PoisonError::into_inner) == Some(11)
}

/// The same by another thread, which has so long for it.
pub fn is_seen_before_sealed_within<P: Protocol>(setup: &Setup<P>, time: Duration) -> bool {
    let recorder = Arc::new(Recorder::patient());
    let database = setup.logged(&recorder).open();
    let table = create::<P, Item>(&database);
    let mut writer = database.worker().expect("a slot is free");
    writer.execute(&mut Acting { table, id: 1, act: Act::Set(10) }).expect("it commits");
    let (seen, seen_first) = (Arc::new(Mutex::new(false)), channel());
    let (answers, answer) = seen_first;
    let mut reader = Some((database.worker().expect("a slot is free"), answers));
    recorder.on_seal({
        let seen = Arc::clone(&seen);
        move || {
            let Some((mut reader, answers)) = reader.take() else { return };
            std::thread::spawn(move || {
                let read = reader.execute(&mut Acting { table, id: 1, act: Act::Get });
                // Nobody may still be listening.
                let _ = answers.send(read.expect("it commits"));
            });
            let first = answer.recv_timeout(time);
            assert_ne!(first, Err(RecvTimeoutError::Disconnected), "the reader answers");
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = first == Ok(Some(11));
        }
    });
    writer.execute(&mut Acting { table, id: 1, act: Act::Set(11) }).expect("it commits");
    recorder.on_seal(|| ());
    *seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first answer that does not wait for what it depends on, if there is one.
pub fn answer_too_early<P: Protocol>(setup: &Setup<P>) -> Option<&'static str> {
    let recorder = Arc::new(Recorder::patient());
    let database = setup.logged(&recorder).open();
    let table = create::<P, Item>(&database);
    let (mut writer, mut reader) = (database.worker().expect("a slot"), database.worker().expect("a slot"));
    let acting = |id, act| Acting { table, id, act };
    let mut write = |id, act| {
        writer.execute(&mut acting(id, act)).expect("it commits");
        writer.take_ticket()
    };
    let first = write(1, Act::Set(1));
    let second = write(2, Act::Set(2));
    if first == Ticket::DONE || second <= first {
        return Some("a writer does not wait for its own seal");
    }
    let mut waits = |what, id, act, value: Result<Option<i64>, Error>, ticket: Ticket| {
        let answer = reader.execute(&mut acting(id, act));
        assert_eq!(format!("{answer:?}"), format!("{value:?}"), "{what}");
        (reader.take_ticket() < ticket).then_some(what)
    };
    let early = waits("a reader does not wait for the row", 2, Act::Get, Ok(Some(2)), second)
        .or_else(|| waits("a failure does not wait for the row", 2, Act::Fail, Err(Error::RolledBack), second));
    if early.is_some() {
        return early;
    }
    let deleted = write(2, Act::Delete);
    if let Some(early) = waits("a reader does not wait for a deletion", 2, Act::Get, Ok(None), deleted) {
        return Some(early);
    }
    setup.pass(&database, 4);
    writer.maintain();
    setup.pass(&database, 4);
    let gone = waits("a reader does not wait for what is gone", 2, Act::Get, Ok(None), deleted).or_else(|| {
        waits("a reader of another row does not wait for what is gone", 2, Act::GetSecond, Ok(None), deleted)
    });
    if gone.is_some() {
        return gone;
    }
    let last = reader.snapshot(&mut acting(1, Act::Get));
    assert_eq!(last.expect("a snapshot ends well"), Some(1));
    (reader.take_ticket() < first).then_some("a snapshot does not wait for the row")
}
