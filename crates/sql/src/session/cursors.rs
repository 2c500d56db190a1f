//! Answers that are fetched in parts, or go to the client row by row.

use std::ops::Range;

use hashbrown::HashMap;
use polychron_base::TableId;
use polychron_engine::Interactive;

use super::modes::View;
use super::script::{Item, MOST_BYTES, Script};
use super::{HERE, Held, Kept, Session, Sum};
use crate::context::Now;
use crate::copy::Encoder;
use crate::cursors::kept::{AT_ONCE, Cursor};
use crate::cursors::{Direction, Way};
use crate::datum::OwnedDatum;
use crate::error::SqlError;
use crate::exec::{Failure, WORK_MEMORY, bytes_of};
use crate::plan::Plan;
use crate::portals::{Portal, Portals};
use crate::resident::Resident;
use crate::statement::each_row;
use crate::tape::lend;
use crate::text::Zone;

impl<W: Interactive + 'static> Session<W> {
    /// Makes a cursor in the open transaction.
    pub(crate) fn declare(&mut self, portal: Portal, (plan, values): Kept<'_>, way: Way) -> Result<(), SqlError> {
        if self.may_move_to_snapshot() {
            self.begin_anew(View::Fresh)?;
        }
        let name = portal.name.clone();
        self.portals.insert(portal);
        self.open_cursor(&name, (plan, values), way)
    }

    /// Opens the cursor of a statement that a client has bound, and reads as many rows as are wanted first. Where it has more and the transaction has done nothing else, it goes on in a snapshot.
    pub(crate) fn open_bound(&mut self, name: &str, kept: Kept<'_>, first: usize, zone: &Zone) -> Result<(), SqlError> {
        let may_move = self.may_move_to_snapshot();
        self.open_cursor(name, kept, Way::Forward)?;
        self.read_on(name, (first, 0), zone)?;
        let is_long = self.cursor(name).is_some_and(|cursor| !cursor.is_whole());
        if !may_move || !is_long {
            return Ok(());
        }
        if let Some(block) = &mut self.block {
            block.script.items.clear();
            block.tape.repeat();
        }
        self.drawn.repeat();
        self.begin_anew(View::Fresh)?;
        self.open_cursor(name, kept, Way::Forward)
    }

    /// Opens the cursor of a portal in the open transaction. Its rows are read when they are wanted.
    pub(crate) fn open_cursor(&mut self, name: &str, (plan, values): Kept<'_>, way: Way) -> Result<(), SqlError> {
        let (Some(portal), Some(block)) = (self.portals.get_mut(name), &mut self.block) else {
            return Err(SqlError::internal("a cursor is opened in a transaction"));
        };
        let own = values.iter().map(|value| value.owned()).collect();
        portal.cursor = Some(Cursor::of_query((plan, own), way, block.script.begin_sum())?.into());
        block.script.opened(portal.number, plan, values);
        self.portals.count(name);
        Ok(())
    }

    /// Goes to rows of a cursor: their numbers, and whether the last one comes first.
    pub(crate) fn fetch(
        &mut self,
        name: &str,
        direction: Direction,
        is_move: bool,
        zone: &Zone,
    ) -> Result<(Range<usize>, bool), SqlError> {
        let gone = self.go_to(name, direction, is_move, zone);
        gone.map_err(|error| {
            if let Some(cursor) = self.cursor(name) {
                cursor.fail();
            }
            self.fail(error.into())
        })
    }

    fn go_to(
        &mut self,
        name: &str,
        direction: Direction,
        is_move: bool,
        zone: &Zone,
    ) -> Result<(Range<usize>, bool), SqlError> {
        let missing = || SqlError::internal("a portal that is fetched has rows");
        let cursor = self.cursor(name).ok_or_else(missing)?;
        cursor.check(direction, is_move, name)?;
        let (until, passed) = cursor.needs(direction, is_move);
        self.read_on(name, (until, passed), zone)?;
        let cursor = self.cursor(name).ok_or_else(missing)?;
        // What it would go back to may have been forgotten.
        cursor.check(direction, is_move, name)?;
        let before = cursor.seen().0;
        cursor.see(until);
        let (gone, seen) = (cursor.go(direction), cursor.seen());
        let (Some(portal), Some(block)) = (self.portals.get(name), &mut self.block) else { return Ok(gone) };
        if !portal.has_survived && seen.0 > before {
            let saved = block.savepoints.last().map_or(0, |(_, _, mark)| mark.items);
            block.script.fetched(portal.number, seen, saved);
        }
        Ok(gone)
    }

    fn cursor(&mut self, name: &str) -> Option<&mut Cursor> {
        self.portals.get_mut(name)?.cursor.as_deref_mut()
    }

    /// The client has got the rows of a cursor: those that it does not go back to are forgotten.
    pub(crate) fn pass(&mut self, name: &str) {
        if let Some(cursor) = self.cursor(name) {
            cursor.forget(cursor.position());
            self.portals.count(name);
        }
    }

    /// Reads rows of a cursor until so many are known, or all. The first `passed` ones are forgotten, if the client does not go back to them.
    fn read_on(&mut self, name: &str, (until, passed): (usize, usize), zone: &Zone) -> Result<(), SqlError> {
        self.read_at_least(name, (until, until, passed), zone)
    }

    /// Reads rows of a cursor that the client is about to get: the next one, and up to so many if they are short. How many of these are known, and whether there are no more.
    pub(crate) fn read_ahead(&mut self, name: &str, most: usize, zone: &Zone) -> Result<(usize, bool), SqlError> {
        let Some(position) = self.cursor(name).map(|cursor| cursor.position()) else { return Ok((0, true)) };
        self.read_at_least(name, (position.saturating_add(1), position.saturating_add(most), position), zone)?;
        let known = |cursor: &mut Cursor| (cursor.known().saturating_sub(position).min(most), cursor.is_whole());
        Ok(self.cursor(name).map_or((0, true), known))
    }

    /// As [`Session::read_on`], until at least so many are known; no more than `until` are wanted.
    fn read_at_least(
        &mut self,
        name: &str,
        (least, until, passed): (usize, usize, usize),
        zone: &Zone,
    ) -> Result<(), SqlError> {
        self.begin_statement();
        loop {
            let room = self.portals.room(name);
            let Some(cursor) = self.portals.get_mut(name).and_then(|portal| portal.cursor.as_deref_mut()) else {
                return Ok(());
            };
            let known = cursor.known();
            if known >= least || cursor.is_whole() {
                self.portals.count(name);
                return Ok(());
            }
            let first = passed.min(known);
            if first > 0 {
                // What the client jumps over counts as what it has got.
                cursor.see(first);
                cursor.forget(first);
            }
            let block = self.block.as_mut().ok_or_else(|| SqlError::internal("a cursor has a transaction"))?;
            let transaction =
                block.transaction.as_mut().ok_or_else(|| SqlError::internal("one that has failed runs nothing"))?;
            let (now, wanted) = (Now::At(block.now), (until - known).min(AT_ONCE));
            let read =
                || transaction.with(|transaction| cursor.read(wanted, room, transaction, zone, now)).expect(HERE);
            let read = lend(&mut block.tape, read);
            if let Err(failure) = read {
                let recovered = self.recover_or_wait(failure, zone);
                // What its operators knew is lost.
                if recovered.is_err() {
                    self.cursor(name).into_iter().for_each(Cursor::fail);
                }
                recovered.map_err(|failure| self.fail(failure))?;
            }
        }
    }

    /// Has open cursors read the rest of their rows, before a statement changes these tables; `None`: any.
    pub(crate) fn gather(&mut self, tables: Option<&[TableId]>, zone: &Zone) -> Result<(), SqlError> {
        let reads = |portal: &&Portal| {
            let is_met = tables.is_none_or(|tables| portal.tables().iter().any(|table| tables.contains(table)));
            is_met && portal.cursor.as_ref().is_some_and(|cursor| cursor.reads())
        };
        let names: Vec<_> = self.portals.iter().filter(reads).map(|portal| portal.name.clone()).collect();
        names.iter().try_for_each(|name| self.gather_one(name, zone))
    }

    fn gather_one(&mut self, name: &str, zone: &Zone) -> Result<(), SqlError> {
        let position = self.cursor(name).map_or(0, |cursor| cursor.position());
        self.read_on(name, (usize::MAX, position), zone)?;
        if let (Some(portal), Some(block)) = (self.portals.get(name), &mut self.block) {
            block.script.note_of_cursor(Item::Gather { portal: portal.number });
        }
        Ok(())
    }

    /// The transaction is about to commit: cursors that outlive it read the rest of their rows.
    pub(crate) fn gather_held(&mut self, zone: &Zone) -> Result<(), SqlError> {
        if self.portals.is_empty() || self.block.as_ref().is_none_or(|block| block.transaction.is_none()) {
            return Ok(());
        }
        let is_held =
            |portal: &&Portal| portal.is_held() && portal.cursor.as_ref().is_some_and(|cursor| cursor.reads());
        let names: Vec<_> = self.portals.iter().filter(is_held).map(|portal| portal.name.clone()).collect();
        names.iter().try_for_each(|name| self.gather_one(name, zone))
    }

    /// Closes a portal, and tells whether there was one.
    pub(crate) fn close(&mut self, name: &str) -> bool {
        let Some(portal) = self.portals.remove(name) else { return false };
        self.note_closed(&portal);
        true
    }

    /// Closes all portals.
    pub(crate) fn close_all(&mut self) {
        let portals = std::mem::take(&mut self.portals);
        portals.iter().for_each(|portal| self.note_closed(portal));
    }

    fn note_closed(&mut self, portal: &Portal) {
        if let Some(block) = self.block.as_mut().filter(|_| portal.cursor.is_some() && !portal.has_survived) {
            block.script.note_of_cursor(Item::Close { portal: portal.number });
        }
    }

    /// Portals with greater numbers have ended.
    pub(super) fn note_undone(&mut self, number: u64) {
        self.undone_behind = Some(self.undone_behind.map_or(number, |it| it.min(number)));
    }

    /// From now on it is noted which portals end.
    pub(crate) fn forget_undone(&mut self) {
        self.undone_behind = None;
    }

    /// Whether the portal of this number has ended since then.
    pub(crate) fn has_undone(&self, number: u64) -> bool {
        self.undone_behind.is_some_and(|first| number > first)
    }

    /// The number of a new cursor or portal.
    pub(crate) fn next_portal(&mut self) -> u64 {
        self.portal_count += 1;
        self.portal_count
    }

    /// The transaction has ended: its portals go, but for cursors that are held where it has committed.
    pub(super) fn end_portals(&mut self, has_committed: bool) {
        self.note_undone(0);
        self.portals.retain(|portal| {
            let is_whole = portal.cursor.as_ref().is_some_and(|cursor| cursor.is_whole());
            if has_committed && portal.is_held() && is_whole && !portal.has_survived {
                portal.has_survived = true;
                portal.cursor.iter_mut().for_each(|cursor| cursor.outlive());
            }
            portal.has_survived
        });
    }

    /// Runs a plan in the open transaction, and gives its rows to the client as they come.
    pub(crate) fn run_out(
        &mut self,
        plan: &std::sync::Arc<Plan>,
        zone: &Zone,
        encoder: &mut Encoder<'_>,
    ) -> Result<u64, SqlError> {
        self.make_way_for(plan, zone)?;
        if self.is_explicit() {
            // What is long cannot be run again.
            self.leave_undeclared(false, zone)?;
        }
        loop {
            let block = self.block.as_mut().expect("a transaction is open");
            let transaction = block.transaction.as_mut().expect("one that has failed runs nothing");
            let (now, mut bytes) = (Now::At(block.now), 0_usize);
            let mut sum = block.script.begin_sum();
            let mut give = |row: &[crate::Datum<'_>]| {
                row.iter().for_each(|value| sum.add(*value));
                bytes = bytes.saturating_add(bytes_of(row));
                encoder.row(row)
            };
            let run = || {
                transaction.with(|transaction| each_row((plan, &[]), transaction, zone, now, &mut give)).expect(HERE)
            };
            match lend(&mut block.tape, run) {
                // An answer that is run again is kept whole.
                Ok(count) if bytes > MOST_BYTES => {
                    block.script.cut();
                    return Ok(count);
                }
                Ok(count) => {
                    block.script.push(plan, &[], sum.finish(count, &[]));
                    return Ok(count);
                }
                Err(failure) if encoder.has_given => return Err(self.fail(failure)),
                Err(failure) => {
                    self.recover(failure, zone).map_err(|failure| self.fail(failure))?;
                    encoder.begin();
                }
            }
        }
    }
}

/// The cursors of a transaction that is run again, by the numbers of their portals.
#[derive(Default)]
pub(super) struct Cursors(HashMap<u64, Cursor>);

/// In which zone, and when, a cursor reads.
type At<'a> = (&'a Zone, Now<'a>);

impl Cursors {
    pub(super) fn open(
        &mut self,
        portal: u64,
        (plan, values): (&std::sync::Arc<Plan>, &[OwnedDatum]),
        sum: Sum,
    ) -> Result<(), SqlError> {
        self.0.insert(portal, Cursor::of_query((plan, values.to_vec()), Way::Forward, sum)?);
        Ok(())
    }

    /// Goes so far, and gives what stands for the rows.
    pub(super) fn fetch<W: Interactive>(
        &mut self,
        portal: u64,
        asked: usize,
        held: &mut Resident<Held<W>>,
        at: At<'_>,
    ) -> Result<Option<u64>, Failure> {
        let Some(cursor) = self.0.get_mut(&portal) else { return Ok(None) };
        read_again(cursor, asked, held, at)?;
        Ok(Some(cursor.seen().1))
    }

    pub(super) fn gather<W: Interactive>(
        &mut self,
        portal: u64,
        held: &mut Resident<Held<W>>,
        at: At<'_>,
    ) -> Result<(), Failure> {
        let Some(cursor) = self.0.get_mut(&portal) else { return Ok(()) };
        while !cursor.is_whole() {
            read_more(cursor, AT_ONCE, held, at)?;
        }
        Ok(())
    }

    pub(super) fn close(&mut self, portal: u64) {
        self.0.remove(&portal);
    }

    /// The session's cursors go on in the new transaction, if they have the rows there that the client has got.
    pub(super) fn put_back<W: Interactive>(
        mut self,
        portals: &mut Portals,
        script: &Script,
        held: &mut Resident<Held<W>>,
        at: At<'_>,
    ) -> Result<bool, Failure> {
        let mut names = Vec::new();
        for portal in portals.iter_mut().filter(|portal| !portal.has_survived) {
            let Some(cursor) = &mut portal.cursor else { continue };
            let (asked, answer) = cursor.seen();
            // One that was opened behind a savepoint to which the transaction has returned is opened again.
            let new = self.0.remove(&portal.number).map_or_else(|| cursor.again(script.begin_sum()), |it| Ok(Some(it)));
            let Some(mut new) = new? else { continue };
            read_again(&mut new, asked, held, at)?;
            if new.seen().1 != answer {
                return Ok(false);
            }
            cursor.go_on_as(new);
            names.push(portal.name.clone());
        }
        names.iter().for_each(|name| portals.count(name));
        Ok(true)
    }
}

/// Reads until the client has what it has asked for.
fn read_again<W: Interactive>(
    cursor: &mut Cursor,
    asked: usize,
    held: &mut Resident<Held<W>>,
    at: At<'_>,
) -> Result<(), Failure> {
    loop {
        let known = cursor.known();
        cursor.see(known.min(asked));
        cursor.forget(asked);
        if known >= asked || cursor.is_whole() {
            cursor.see(asked);
            return Ok(());
        }
        read_more(cursor, (asked - known).min(AT_ONCE), held, at)?;
    }
}

fn read_more<W: Interactive>(
    cursor: &mut Cursor,
    wanted: usize,
    held: &mut Resident<Held<W>>,
    (zone, now): At<'_>,
) -> Result<(), Failure> {
    held.with(|transaction| cursor.read(wanted, WORK_MEMORY, transaction, zone, now)).expect(HERE)
}
