//! Portals: what clients get rows of as they ask for them, by their names.
//!
//! A cursor that DECLARE makes is one, and so is a statement that a client of a server has bound to values: either is fetched, moved, closed, described and executed by its name. What a
//! client has bound is not run before its rows are wanted. Where all of them are wanted at once, it runs as other statements do; else its query is read on as rows are asked for.

use std::io;
use std::sync::Arc;

use hashbrown::HashMap;
use polychron_base::TableId;
use polychron_engine::Protocol;

use crate::connection::Connection;
use crate::cursors::kept::{AT_ONCE, Cursor, too_much};
use crate::cursors::{Direction, Way};
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::exec::WORK_MEMORY;
use crate::outcome::Tag;
use crate::plan::Plan;
use crate::prepared::Kind;
use crate::rows::{RowColumn, Rows};
use crate::session::Sum;
use crate::session_statements::Named;

/// The most portals of a session.
const MOST: usize = 10_000;
/// Up to how many bytes a portal is small: those are bounded by their number.
const SMALL: usize = 4096;

/// A statement that a client has bound to values.
#[derive(Debug)]
pub struct BoundStatement {
    /// The statement.
    pub statement: Named,
    /// The name by which the client knows it.
    pub name: String,
    /// The values of its parameters.
    pub values: Vec<OwnedDatum>,
    /// Whether the client gets values in their binary form: one for all columns, or one for each; none stands for texts.
    pub formats: Vec<bool>,
}

/// A cursor as it was declared.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) text: Arc<str>,
    pub(crate) columns: Arc<[RowColumn]>,
    /// The tables that its query uses.
    pub(crate) tables: Vec<TableId>,
    pub(crate) way: Way,
    pub(crate) is_held: bool,
    /// When, in microseconds since 1970.
    pub(crate) since: i64,
}

#[derive(Debug)]
enum Content {
    Declared(Declared),
    Bound(BoundStatement),
}

/// A portal.
#[derive(Debug)]
pub struct Portal {
    pub(crate) name: String,
    /// Its number among those of the session: greater ones were made later.
    pub(crate) number: u64,
    content: Content,
    /// Its rows, once it is read in parts.
    pub(crate) cursor: Option<Box<Cursor>>,
    /// What it was called when all of its rows were given.
    done: Option<Tag>,
    /// The transaction that has made it has committed.
    pub(crate) has_survived: bool,
    /// What it takes, as it was counted last.
    counted: usize,
}

impl Portal {
    pub(crate) fn declared(name: &str, number: u64, declared: Declared) -> Self {
        Self::new(name, number, Content::Declared(declared))
    }

    fn new(name: &str, number: u64, content: Content) -> Self {
        let (name, cursor, done, has_survived, counted) = (name.to_owned(), None, None, false, 0);
        Self { name, number, content, cursor, done, has_survived, counted }
    }

    /// The columns of its rows.
    pub fn columns(&self) -> &[RowColumn] {
        match &self.content {
            Content::Declared(declared) => &declared.columns,
            Content::Bound(bound) => bound.statement.prepared.columns(),
        }
    }

    /// As [`BoundStatement::formats`].
    pub fn formats(&self) -> &[bool] {
        if let Content::Bound(bound) = &self.content { &bound.formats } else { &[] }
    }

    /// Whether running it begins a transaction where there is none.
    pub fn needs_transaction(&self) -> bool {
        let is_statement = |bound: &BoundStatement| bound.statement.prepared.kind() != Kind::Empty;
        let has_begun = self.cursor.is_some() || self.done.is_some();
        !has_begun && matches!(&self.content, Content::Bound(bound) if is_statement(bound))
    }

    /// What the client has bound, if it is no cursor.
    pub fn bound(&mut self) -> Option<&mut BoundStatement> {
        if let Content::Bound(bound) = &mut self.content { Some(bound) } else { None }
    }

    /// Whether the client has got all of its rows, or it has run and has none.
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// It has run, and the client has got the first rows. The others are kept.
    pub fn keep_rest(&mut self, rows: &Rows, given: usize) {
        self.done = Some(rows.kind().clone());
        if given < rows.len() {
            let rest = (given..rows.len()).map(|at| rows.owned(at)).collect();
            self.cursor = Some(Cursor::of_rows(rest, Way::Forward, Sum::default()).into());
        }
    }

    /// It has run, and has no rows.
    pub fn set_done(&mut self) {
        self.done = Some(Tag::None);
    }

    pub(crate) fn declaration(&self) -> Option<&Declared> {
        if let Content::Declared(declared) = &self.content { Some(declared) } else { None }
    }

    /// The text of its statement.
    pub(crate) fn text(&self) -> &str {
        match &self.content {
            Content::Declared(declared) => &declared.text,
            Content::Bound(bound) => bound.statement.prepared.text(),
        }
    }

    /// The tables that its query uses.
    pub(crate) fn tables(&self) -> &[TableId] {
        match &self.content {
            Content::Declared(declared) => &declared.tables,
            Content::Bound(bound) => bound.statement.prepared.tables(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.declaration().is_some_and(|declared| declared.is_held)
    }

    /// Whether it is a query that has not begun.
    fn waits(&self) -> bool {
        let is_query = |bound: &BoundStatement| bound.statement.prepared.is_query();
        self.cursor.is_none()
            && self.done.is_none()
            && matches!(&self.content, Content::Bound(bound) if is_query(bound))
    }

    fn bytes(&self) -> usize {
        let values = match &self.content {
            Content::Bound(bound) => bound.values.iter().map(OwnedDatum::bytes).sum(),
            Content::Declared(_) => 0,
        };
        let rows = self.cursor.as_ref().map_or(0, |cursor| cursor.bytes());
        // Short values are counted by the number of portals.
        rows + if values > SMALL { values } else { 0 }
    }
}

/// Portals by their names. The one without a name is apart, because nearly all are.
#[derive(Debug, Default)]
pub(crate) struct Portals {
    unnamed: Option<Portal>,
    named: HashMap<String, Portal>,
    /// What they take.
    bytes: usize,
}

impl Portals {
    pub(crate) fn get(&self, name: &str) -> Option<&Portal> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Portal> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    /// Adds a portal, in the place of the one of its name.
    pub(crate) fn insert(&mut self, mut portal: Portal) {
        portal.counted = portal.bytes();
        self.bytes += portal.counted;
        let before = match portal.name.is_empty() {
            true => self.unnamed.replace(portal),
            false => self.named.insert(portal.name.clone(), portal),
        };
        self.bytes -= before.map_or(0, |portal| portal.counted);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Portal> {
        let portal = if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }?;
        self.bytes -= portal.counted;
        Some(portal)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unnamed.is_none() && self.named.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Portal> {
        self.unnamed.iter().chain(self.named.values())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Portal> {
        self.unnamed.iter_mut().chain(self.named.values_mut())
    }

    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&mut Portal) -> bool) {
        if self.is_empty() {
            return;
        }
        if let Some(portal) = &mut self.unnamed
            && !keeps(portal)
        {
            self.unnamed = None;
        }
        self.named.retain(|_, portal| keeps(portal));
        self.bytes = self.iter().map(|portal| portal.counted).sum();
    }

    /// That all of them take no more than they may.
    pub(crate) fn check_room(&self) -> Result<(), SqlError> {
        if self.bytes <= WORK_MEMORY { Ok(()) } else { Err(too_much()) }
    }

    /// What the rows of the portal of this name may take.
    pub(crate) fn room(&self, name: &str) -> usize {
        let own = self.get(name).map_or(0, |portal| portal.counted);
        WORK_MEMORY.saturating_sub(self.bytes - own)
    }

    /// The portal of this name keeps more rows, or fewer.
    pub(crate) fn count(&mut self, name: &str) {
        let Some(portal) = self.get_mut(name) else { return };
        let (before, now) = (portal.counted, portal.bytes());
        portal.counted = now;
        self.bytes = self.bytes - before + now;
    }
}

/// What an Execute has given.
#[derive(Debug)]
pub struct Given {
    /// What is complete, in PostgreSQL's words; `None`: as many rows as were wanted have come, and there may be more.
    pub tag: Option<String>,
}

/// Takes rows of a portal: its columns, its formats, and a row.
pub type GiveRow<'g> = dyn FnMut(&[RowColumn], &[bool], &[OwnedDatum]) -> io::Result<()> + 'g;

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

impl<P: Protocol> Connection<P> {
    /// The portal of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn portal(&self, name: &str) -> Result<&Portal, SqlError> {
        self.session.portals.get(name).ok_or_else(|| no_portal(name))
    }

    /// That a portal may get this name; the empty name may be taken.
    ///
    /// # Errors
    /// Another one has it, or there are too many.
    pub fn check_portal_name(&self, name: &str) -> Result<(), SqlError> {
        let portals = &self.session.portals;
        if !name.is_empty() && portals.get(name).is_some() {
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        if portals.named.len() >= MOST {
            let message = format!("a session has at most {MOST} cursors and portals");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }

    /// Makes a portal of a statement with values, up to the end of the transaction. [`Connection::check_portal_name`] has found its name free.
    ///
    /// # Errors
    /// The values take too much.
    pub fn bind_portal(&mut self, name: &str, bound: BoundStatement) -> Result<(), SqlError> {
        let portal = Portal::new(name, self.session.next_portal(), Content::Bound(bound));
        self.session.close(name);
        self.session.portals.insert(portal);
        let checked = self.session.portals.check_room();
        if checked.is_err() {
            self.session.close(name);
        }
        checked
    }

    /// Closes a portal. What is not there is closed already.
    pub fn close_portal(&mut self, name: &str) {
        self.session.close(name);
    }

    /// The client holds no transaction: portals are gone, but for cursors that are held.
    pub fn forget_portals(&mut self) {
        self.session.portals.retain(|portal| portal.has_survived);
    }

    /// Takes a portal out, to run its statement as others are run; `None`: its rows are to be given by [`Connection::fetch_portal`].
    ///
    /// # Errors
    /// There is none of this name.
    pub fn take_portal(&mut self, name: &str, most: usize) -> Result<Option<Portal>, SqlError> {
        let portal = self.portal(name)?;
        let is_left = self.is_in_transaction() || self.is_pipelined();
        if portal.cursor.is_some() || portal.declaration().is_some() || portal.is_done() && !portal.columns().is_empty()
        {
            return Ok(None);
        }
        if most < usize::MAX && portal.waits() && is_left && !self.session.is_planned() {
            return Ok(None);
        }
        self.session.forget_undone();
        Ok(self.session.portals.remove(name))
    }

    /// Puts a portal back that was taken out, unless what it has run has ended its transaction, or returned to a savepoint in front of it.
    ///
    /// # Errors
    /// What is kept of its rows takes too much.
    pub fn put_portal(&mut self, portal: Portal) -> Result<(), SqlError> {
        if self.session.has_undone(portal.number) {
            return Ok(());
        }
        self.session.portals.insert(portal);
        self.session.portals.check_room()
    }

    /// Gives the next rows of a portal to `give`: `most` at most.
    ///
    /// # Errors
    /// As of other statements; [`SqlState::IO_ERROR`] where `give` fails.
    pub fn fetch_portal(&mut self, name: &str, most: usize, give: &mut GiveRow<'_>) -> Result<Given, SqlError> {
        let text: Arc<str> = self.portal(name)?.text().into();
        let ended = self.limited("", |connection| {
            connection.check_not_failed()?;
            connection.note_portal(name);
            let given = connection.give_rows(name, most, give);
            connection.slot.activity.count_noted(given.as_ref().ok().map(|(count, _)| *count));
            given
        });
        self.finish_definitions();
        let (count, is_complete) = ended.map_err(|error| error.within(&text))?;
        let tag = self.session.portals.get(name).and_then(|portal| portal.done.clone());
        let tag = match tag {
            Some(Tag::Fixed(text)) => text.to_string(),
            Some(Tag::Counted(verb)) => Tag::Counted(verb).text(count),
            Some(Tag::None) | None => Tag::Counted(Tag::QUERY).text(count),
        };
        Ok(Given { tag: is_complete.then_some(tag) })
    }

    /// The statement of a portal runs, for others to see.
    fn note_portal(&self, name: &str) {
        let Some(portal) = self.session.portals.get(name) else { return };
        match &portal.content {
            Content::Bound(bound) => bound.statement.prepared.note(&self.slot.activity),
            Content::Declared(declared) => self.slot.activity.note_text(&declared.text),
        }
    }

    /// How many rows it has given, and whether there are no more.
    fn give_rows(&mut self, name: &str, most: usize, give: &mut GiveRow<'_>) -> Result<(u64, bool), SqlError> {
        self.open_portal(name, most.min(AT_ONCE))?;
        let mut given = 0;
        loop {
            let left = most - given;
            let (known, is_whole) = self.session.read_ahead(name, left.min(AT_ONCE), &self.zone)?;
            // The client learns where the end is.
            let wanted = if is_whole { left } else { known };
            let by = Direction::Forward(i64::try_from(wanted).unwrap_or(i64::MAX));
            let rows = match self.session.portals.get(name).is_some_and(|portal| portal.cursor.is_some()) {
                true => self.session.fetch(name, by, false, &self.zone)?.0,
                false => 0..0,
            };
            let count = rows.len();
            let Some(portal) = self.session.portals.get(name) else { return Err(no_portal(name)) };
            for number in rows {
                let row = portal.cursor.as_ref().map_or(&[][..], |cursor| cursor.row(number));
                if let Err(error) = give(portal.columns(), portal.formats(), row) {
                    let message = format!("could not write the rows of an answer: {error}");
                    return Err(self.fail(SqlError::new(SqlState::IO_ERROR, message)));
                }
            }
            self.session.pass(name);
            given += count;
            if count < wanted || given == most {
                return Ok((given as u64, count < wanted));
            }
        }
    }

    /// Begins the query of a portal that waits, of which so many rows are wanted first.
    pub(crate) fn open_portal(&mut self, name: &str, first: usize) -> Result<(), SqlError> {
        let Some(portal) = self.session.portals.get(name).filter(|portal| portal.waits()) else { return Ok(()) };
        let Content::Bound(bound) = &portal.content else { return Ok(()) };
        let (mut prepared, values) = (bound.statement.prepared.clone(), bound.values.clone());
        if !self.session.is_open() {
            self.begin_pipeline()?;
        }
        let now = self.bound_now(&mut prepared).map_err(|error| self.fail(error))?;
        let now = now.ok_or_else(|| SqlError::internal("a query is bound"))?;
        self.check_may_run(now.plan(), None)?;
        if let Some(Content::Bound(bound)) = self.session.portals.get_mut(name).map(|portal| &mut portal.content) {
            bound.statement.prepared = prepared;
        }
        let values: Vec<Datum<'_>> = values.iter().map(OwnedDatum::get).collect();
        self.session.open_bound(name, (now.plan(), &values), first, &self.zone)
    }

    /// Begins the queries of portals that the client has bound, and that have not begun, where they use one of these tables; `None`: any.
    pub(crate) fn open_waiting(&mut self, tables: Option<&[TableId]>) -> Result<(), SqlError> {
        let is_met = |portal: &&Portal| {
            let is_met = tables.is_none_or(|tables| portal.tables().iter().any(|table| tables.contains(table)));
            is_met && portal.waits()
        };
        let names: Vec<_> = self.session.portals.iter().filter(is_met).map(|portal| portal.name.clone()).collect();
        names.iter().try_for_each(|name| self.open_portal(name, 0))
    }
}

impl Plan {
    /// Whether it is a query, which can be left and gone on with.
    pub(crate) fn is_query(&self) -> bool {
        matches!(self, Self::Query { .. })
    }
}
