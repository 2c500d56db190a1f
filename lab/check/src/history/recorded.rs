//! A transaction whose operations are noted as they are answered.

use polychron_engine::{Becomes, Error, Futures, IndexId, Insertion, Operations, Savepoint, Table, Transaction};
use polychron_schema::{Decimal, Index, Key, OwnedKey};
use std::ops::RangeInclusive;

use super::rows::{MARKS, Tracked, TrackedMut, TrackedRef, attributes, is_text_of, mark_of, mark_of_name, text};
use super::{ATTRIBUTES, Attributes, Item, Log, Marks, Operation, Position, RangeRead, Replaced, Version, Which};

/// How much of a range is read, and from which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From the largest key down.
    pub backward: bool,
    /// Rows at most.
    pub limit: usize,
}

impl Extent {
    /// All of it, forward.
    pub const ALL: Self = Self { backward: false, limit: usize::MAX };
}

/// What is written besides key and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Shared by several rows.
    pub team: u16,
    /// Unique, but for NULL.
    pub code: Option<u32>,
    /// Length of the text.
    pub length: usize,
    /// What the columns follow from that restrictions look at.
    pub mark: u8,
    /// What is wrong with the row.
    pub flaw: Flaw,
}

/// Why a write must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It need not be.
    None,
    /// A key of an index would be too long.
    KeyTooLong,
    /// The row that it refers to is not there.
    NoParent,
}

/// A change of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another text of this length.
    Text(usize),
    /// Another team.
    Team(u16),
    /// Another code.
    Code(Option<u32>),
    /// Another mark.
    Mark(u8),
    /// Something that must be refused.
    Flawed(Flaw),
}

/// A running transaction and the log of its thread.
///
/// Each operation is noted when it was answered, with the versions that the answer showed; a write that a conflict ends is
/// noted as intended. A refusal because of a duplicate is followed by the lookup that shows it, or notes that the duplicate is there.
pub struct Recorded<'t, T> {
    pub(super) transaction: &'t mut T,
    pub(super) log: &'t mut Log,
    /// Whether it looks for the row that stood in the way of a refused write. Otherwise nothing is known of that but what the refusal says.
    pub(super) looks_again: bool,
}

/// The index by team is the first, the index by code the second.
const TEAM: u8 = 1;
const CODE: u8 = 2;

/// What a row shows.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) version: Version,
    pub(super) attributes: Attributes,
    /// Whether the text is the version's, and the marked columns belong together.
    pub(super) whole: bool,
}

impl Seen {
    pub(super) fn of(row: TrackedRef<'_>) -> Self {
        let mark = mark_of(&row);
        Self {
            id: row.id(),
            version: Version(row.version()),
            attributes: attributes(row.team(), row.code(), mark.unwrap_or_default()),
            whole: is_text_of(row.text(), row.version()) && mark.is_some(),
        }
    }
}

/// What refused a write.
enum Refused {
    Duplicate(IndexId),
    Flaw(Flaw),
}

impl<'t, T: Transaction> Recorded<'t, T> {
    /// Records what `transaction` does in `log`.
    pub fn new(transaction: &'t mut T, log: &'t mut Log) -> Self {
        Self { transaction, log, looks_again: true }
    }

    pub(super) fn item(table: &Table<Tracked>, key: u64) -> Item {
        Item { table: table.id().position() as u32, key }
    }

    /// Reads a row.
    pub fn read(&mut self, table: &Table<Tracked>, id: u64) -> Result<Option<Version>, Error> {
        let seen = self.transaction.get(table, id)?.map(Seen::of);
        let item = Self::item(table, id);
        if seen.is_some_and(|seen| !seen.whole || seen.id != id) {
            self.log.note(Operation::Torn { item });
        }
        let seen = seen.map(|seen| seen.version);
        self.log.note(Operation::Read { item, seen });
        Ok(seen)
    }

    /// Reads the version column alone, so that the other columns are not copied.
    pub fn read_version(&mut self, table: &Table<Tracked>, id: u64) -> Result<Option<Version>, Error> {
        let seen = self.transaction.get_columns(table, id, (Tracked::VERSION,))?.map(|(version,)| Version(version));
        self.log.note(Operation::Read { item: Self::item(table, id), seen });
        Ok(seen)
    }

    /// Asks whether the team of a row is at least so much. What is observed is the answer, not the row; where there is no row, that is
    /// observed, and the transaction fails.
    pub fn ask(&mut self, table: &Table<Tracked>, id: u64, team: u16) -> Result<bool, Error> {
        let future = self.transaction.future(table, id, Tracked::TEAM);
        let answer = future.and_then(|future| self.transaction.is_true(future.at_least(team)));
        let truth = answer.map_err(|stopped| match stopped {
            Error::Conflict => Error::Conflict,
            // Nothing was observed.
            error @ Error::WaitsForItself { .. } => error,
            error => {
                self.log.note(Operation::Read { item: Self::item(table, id), seen: None });
                error
            }
        })?;
        let bound = |team: u16, key| (u64::from(team), key);
        let (lower, upper) = match (truth, team.checked_sub(1)) {
            (false, _) => (bound(team, 0), bound(u16::MAX, u64::MAX)),
            (true, Some(below)) => (bound(0, 0), bound(below, u64::MAX)),
            (true, None) => return Ok(truth),
        };
        self.note_elsewhere(table, TEAM, id, (lower, upper), Marks::ALL);
        Ok(truth)
    }

    /// Writes a row's version and team as values that may be left open until the commit; its text stays. Whether the row is there makes no
    /// difference, so that the transaction must fail where it is not.
    pub fn write_later(&mut self, table: &Table<Tracked>, id: u64, team: u16) -> Result<(), Error> {
        let item = Self::item(table, id);
        let seen = self.transaction.get_columns(table, id, (Tracked::VERSION, Tracked::CODE, Tracked::NAME))?;
        let seen = seen.map(|(before, code, name)| (Version(before), code, mark_of_name(name)));
        let version = self.log.next_version().beside_text();
        let replaced = seen.map_or(Replaced::Absent, |(before, ..)| Replaced::Version(before));
        self.log.note(Operation::Read { item, seen: seen.map(|(before, ..)| before) });
        let after = seen.map_or([0; ATTRIBUTES], |(_, code, mark)| attributes(team, code, mark));
        let columns = [Tracked::VERSION.becomes(version.0), Tracked::TEAM.becomes(team)];
        let attempt = self.transaction.set_futures(table, id, columns);
        self.note_intention(table, id, replaced, after, attempt)?;
        match seen {
            Some(_) => self.note_write(table, id, version, replaced, after),
            None => self.log.must_fail(item),
        }
        Ok(())
    }

    /// Reads a range of primary keys.
    pub fn scan(&mut self, table: &Table<Tracked>, keys: RangeInclusive<u64>, extent: Extent) -> Result<(), Error> {
        let (lower, upper) = (*keys.start(), *keys.end());
        let range = self.transaction.scan(table, keys).limit(extent.limit);
        let range = if extent.backward { range.rev() } else { range };
        let rows: Vec<Seen> = range.map(Seen::of).collect()?;
        self.note_range(table, 0, ((lower, lower), (upper, upper)), extent, &rows);
        Ok(())
    }

    /// Reads the rows of a team, or of neighbouring teams.
    pub fn scan_teams(
        &mut self,
        table: &Table<Tracked>,
        teams: RangeInclusive<u16>,
        extent: Extent,
    ) -> Result<(), Error> {
        let bounds = ((u64::from(*teams.start()), 0), (u64::from(*teams.end()), u64::MAX));
        self.scan_index(table, TEAM, Tracked::BY_TEAM, teams, bounds, extent)
    }

    /// Reads the row of a code, or rows between two codes.
    pub fn scan_codes(
        &mut self,
        table: &Table<Tracked>,
        codes: RangeInclusive<Option<u32>>,
        extent: Extent,
    ) -> Result<(), Error> {
        let bounds = ((position_of(*codes.start()), 0), (position_of(*codes.end()), u64::MAX));
        self.scan_index(table, CODE, Tracked::BY_CODE, codes, bounds, extent)
    }

    fn scan_index<K>(
        &mut self,
        table: &Table<Tracked>,
        number: u8,
        index: Index<Tracked, K>,
        keys: RangeInclusive<K>,
        bounds: (Position, Position),
        extent: Extent,
    ) -> Result<(), Error>
    where
        K: for<'k> OwnedKey<Ref<'k> = K> + Key + Copy + PartialEq,
    {
        let transaction = &mut *self.transaction;
        // One key is asked for by equality, which hash indexes answer, too.
        let range = if keys.start() == keys.end() {
            transaction.scan_by(table, index, *keys.start())
        } else {
            transaction.scan_range_by(table, index, keys)
        };
        let range = if extent.backward { range.rev() } else { range };
        let rows: Vec<Seen> = range.limit(extent.limit).map(Seen::of).collect()?;
        self.note_range(table, number, bounds, extent, &rows);
        Ok(())
    }

    fn note_range(
        &mut self,
        table: &Table<Tracked>,
        index: u8,
        (mut lower, mut upper): (Position, Position),
        extent: Extent,
        rows: &[Seen],
    ) {
        let position = |row: &Seen| RangeRead::position(index, row.id, &row.attributes);
        for row in rows {
            let item = Self::item(table, row.id);
            if !row.whole || !(lower..=upper).contains(&position(row)) {
                self.log.note(Operation::Torn { item });
            }
        }
        if let Some(pair) = rows.windows(2).find(|pair| pair[0].id == pair[1].id) {
            let what = "a range gave it twice";
            self.log.note(Operation::Contradiction { item: Self::item(table, pair[0].id), what });
        }
        // A scan that was stopped has looked no further than its last row.
        if let Some(last) = rows.last().filter(|_| rows.len() >= extent.limit) {
            if extent.backward { lower = position(last) } else { upper = position(last) }
        }
        let rows = rows.iter().map(|row| (row.id, row.version)).collect();
        self.note_rows(table, index, (lower, upper), extent.backward, rows);
    }

    /// Notes that these were the rows between two positions of an index.
    fn note_rows(
        &mut self,
        table: &Table<Tracked>,
        index: u8,
        (lower, upper): (Position, Position),
        backward: bool,
        rows: Vec<(u64, Version)>,
    ) {
        let (which, marks) = (Which::All, Marks::ALL);
        let range =
            RangeRead { table: table.id().position() as u32, index, lower, upper, backward, which, marks, rows };
        self.log.note(Operation::Range(Box::new(range)));
    }

    /// Notes that a row does not lie between two positions of an index with one of these marks.
    pub(super) fn note_elsewhere(
        &mut self,
        table: &Table<Tracked>,
        index: u8,
        id: u64,
        (lower, upper): (Position, Position),
        marks: Marks,
    ) {
        let (which, rows) = (Which::Only(id), Vec::new());
        let range =
            RangeRead { table: table.id().position() as u32, index, lower, upper, backward: false, which, marks, rows };
        self.log.note(Operation::Range(Box::new(range)));
    }

    /// Inserts a row, if none of its keys is taken.
    pub fn insert(&mut self, table: &Table<Tracked>, id: u64, columns: Columns) -> Result<bool, Error> {
        let version = self.log.next_version();
        let attempt = self.transaction.try_insert(table, &row(id, version, columns));
        let attempt = refusable(attempt).map(|outcome| match outcome {
            Ok(Insertion::Inserted) => Ok(()),
            Ok(Insertion::Duplicate(index)) => Err(Refused::Duplicate(index)),
            Err(refused) => Err(refused),
        });
        self.note_whole_row(table, id, version, Replaced::Absent, columns, attempt)
    }

    /// Writes a row, whether or not there is one. Looks beforehand unless it is `blind`; a key that is written blindly must
    /// never be inserted or deleted while others write it.
    pub fn upsert(&mut self, table: &Table<Tracked>, id: u64, columns: Columns, blind: bool) -> Result<bool, Error> {
        let replaced = match blind {
            true => Replaced::Unknown,
            false => self.read(table, id)?.map_or(Replaced::Absent, Replaced::Version),
        };
        let version = self.log.next_version();
        let attempt = refusable(self.transaction.upsert(table, &row(id, version, columns)));
        self.note_whole_row(table, id, version, replaced, columns, attempt)
    }

    /// Notes what became of an insertion or an upsert.
    fn note_whole_row(
        &mut self,
        table: &Table<Tracked>,
        id: u64,
        version: Version,
        replaced: Replaced,
        columns: Columns,
        attempt: Result<Result<(), Refused>, Error>,
    ) -> Result<bool, Error> {
        let after = columns.attributes();
        let outcome = self.note_intention(table, id, replaced, after, attempt)?;
        self.expect_flaw(table, id, columns.flaw, &outcome);
        match outcome {
            Ok(()) => {
                self.note_write(table, id, version, replaced, after);
                self.note_unique(table, id, version, columns.code);
                Ok(true)
            }
            Err(Refused::Duplicate(index)) => self.show_duplicate(table, id, index, columns.code),
            Err(Refused::Flaw(_)) => Ok(false),
        }
    }

    /// What is wrong with a row is what may refuse it, and must.
    fn expect_flaw<O>(&mut self, table: &Table<Tracked>, id: u64, flaw: Flaw, outcome: &Result<O, Refused>) {
        let what = match outcome {
            Ok(_) if flaw != Flaw::None => "a row was written that must be refused",
            Err(Refused::Flaw(by)) if *by != flaw => "a write was refused for something that is not so",
            _ => return,
        };
        self.log.note(Operation::Contradiction { item: Self::item(table, id), what });
    }

    /// Changes a row that is there.
    pub fn update(&mut self, table: &Table<Tracked>, id: u64, change: Change) -> Result<bool, Error> {
        let version = self.log.next_version();
        let mut before = None;
        let attempt = self.transaction.update(table, id, |row| {
            let whole = is_text_of(row.text(), row.version());
            before = Some((Version(row.version()), row.team(), row.code(), mark_of_name(row.name()), whole));
            let mut length = row.text().len();
            row.set_version(version.0);
            match change {
                Change::Text(wanted) => length = wanted,
                Change::Team(team) => row.set_team(team),
                Change::Code(code) => row.set_code(code),
                Change::Mark(mark) => set_mark(row, mark),
                Change::Flawed(Flaw::NoParent) => row.set_owner(Some(NO_OWNER)),
                Change::Flawed(_) => row.set_name(Some(&too_long())).unwrap_or_default(),
            }
            row.set_text(&text(version, length)).unwrap_or_default();
        });
        let intended = before.map_or([0; ATTRIBUTES], |(_, team, code, mark, _)| attributes(team, code, mark));
        let replaced = before.map_or(Replaced::Unknown, |(version, ..)| Replaced::Version(version));
        let found = self.note_intention(table, id, replaced, intended, refusable(attempt))?;
        let item = Self::item(table, id);
        if before.is_some_and(|(.., whole)| !whole) {
            self.log.note(Operation::Torn { item });
        }
        let seen = before.map(|(version, ..)| version);
        if before.is_some() {
            let flaw = if let Change::Flawed(flaw) = change { flaw } else { Flaw::None };
            self.expect_flaw(table, id, flaw, &found);
        }
        match (found, before) {
            (Ok(true), Some((_, team, code, mark, _))) => {
                let (team, new_code, mark) = match change {
                    Change::Team(team) => (team, code, mark),
                    Change::Code(code) => (team, code, mark),
                    Change::Mark(mark) => (team, code, mark.into()),
                    Change::Text(_) | Change::Flawed(_) => (team, code, mark),
                };
                self.note_write(table, id, version, replaced, attributes(team, new_code, mark));
                if code != new_code {
                    self.note_unique(table, id, version, new_code);
                }
                Ok(true)
            }
            (Err(Refused::Duplicate(index)), _) => {
                self.log.note(Operation::Read { item, seen });
                let code = if let Change::Code(code) = change { code } else { None };
                self.show_duplicate(table, id, index, code)
            }
            _ => {
                self.log.note(Operation::Read { item, seen });
                Ok(false)
            }
        }
    }

    /// Deletes a row after having looked at it.
    pub fn delete(&mut self, table: &Table<Tracked>, id: u64) -> Result<bool, Error> {
        let seen = self.read_version(table, id)?;
        let item = Self::item(table, id);
        let replaced = seen.map_or(Replaced::Absent, Replaced::Version);
        let attempt = self.transaction.delete(table, id);
        if attempt.as_ref().is_err_and(Error::is_conflict) {
            self.log.note(Operation::Delete { item, replaced });
        }
        let found = attempt?;
        if found != seen.is_some() {
            let what =
                if found { "it was read as absent, and deleted" } else { "it was read, and not there to delete" };
            self.log.note(Operation::Contradiction { item, what });
        } else if found {
            self.log.note(Operation::Delete { item, replaced });
        }
        Ok(found)
    }

    /// Sets a savepoint.
    pub fn savepoint(&mut self) -> Savepoint {
        self.log.savepoint();
        self.transaction.savepoint()
    }

    /// Returns to a savepoint, which was the one of that number.
    pub fn roll_back_to(&mut self, savepoint: Savepoint, number: usize) -> Result<(), Error> {
        self.transaction.roll_back_to(savepoint)?;
        self.log.roll_back_to(number);
        Ok(())
    }

    fn note_write(
        &mut self,
        table: &Table<Tracked>,
        id: u64,
        version: Version,
        replaced: Replaced,
        attributes: Attributes,
    ) {
        let item = Self::item(table, id);
        self.log.note(Operation::Write { item, version, replaced, attributes });
    }

    /// A write that succeeded has shown that its row is the only one with its code.
    fn note_unique(&mut self, table: &Table<Tracked>, id: u64, version: Version, code: Option<u32>) {
        if code.is_none() {
            return;
        }
        let number = position_of(code);
        self.note_rows(table, CODE, ((number, 0), (number, u64::MAX)), false, vec![(id, version)]);
    }

    /// Notes what a write wanted when a conflict ends it.
    fn note_intention<O>(
        &mut self,
        table: &Table<Tracked>,
        id: u64,
        replaced: Replaced,
        attributes: Attributes,
        attempt: Result<O, Error>,
    ) -> Result<O, Error> {
        if attempt.as_ref().is_err_and(Error::is_conflict) {
            let version = self.log.next_version();
            self.log.note(Operation::Write { item: Self::item(table, id), version, replaced, attributes });
        }
        attempt
    }

    /// Looks for the row that stood in the way of a write. It must be there, in the same transaction.
    fn show_duplicate(
        &mut self,
        table: &Table<Tracked>,
        id: u64,
        index: IndexId,
        code: Option<u32>,
    ) -> Result<bool, Error> {
        let item = Self::item(table, id);
        if !self.looks_again {
            self.note_presence(table, id, index, code);
            return Ok(false);
        }
        let shown = if index == IndexId::PRIMARY {
            self.read(table, id)?.is_some()
        } else {
            let mut others = 0;
            let rows = self.transaction.scan_by(table, Tracked::BY_CODE, code).map(Seen::of).collect::<Vec<_>>()?;
            others += rows.iter().filter(|row| row.id != id).count();
            let number = position_of(code);
            self.note_range(table, CODE, ((number, 0), (number, u64::MAX)), Extent::ALL, &rows);
            others > 0
        };
        if !shown {
            let what = "a write was refused because of a duplicate that is not there";
            self.log.note(Operation::Contradiction { item, what });
        }
        Ok(false)
    }

    /// Notes that the row is there, or another one with the code.
    fn note_presence(&mut self, table: &Table<Tracked>, id: u64, index: IndexId, code: Option<u32>) {
        let value = position_of(code);
        let (index, lower, upper, which) = match index {
            IndexId::PRIMARY => (0, (id, id), (id, id), Which::All),
            _ => (CODE, (value, 0), (value, u64::MAX), Which::Except(vec![id])),
        };
        let (table, marks, rows) = (table.id().position() as u32, Marks::ALL, Vec::new());
        let range = RangeRead { table, index, lower, upper, backward: false, which, marks, rows };
        self.log.note(Operation::Present(Box::new(range)));
    }
}

/// The number of a code in its index.
fn position_of(code: Option<u32>) -> u64 {
    attributes(0, code, 0)[1].into()
}

/// The one row that others may refer to, and one that is not there.
pub(super) const OWNER: u64 = 0;
const NO_OWNER: u64 = 9;

/// A name that is too long for the key of an index.
fn too_long() -> String {
    "n".repeat(2000)
}

impl Columns {
    fn attributes(&self) -> Attributes {
        attributes(self.team, self.code, self.mark.into())
    }
}

fn row(id: u64, version: Version, columns: Columns) -> Tracked {
    let Columns { team, code, length, mark, flaw } = columns;
    let (signed, count, ratio, price, open, name) = MARKS[usize::from(mark)];
    let name = if flaw == Flaw::KeyTooLong { Some(too_long()) } else { name.map(str::to_owned) };
    let owner = if flaw == Flaw::NoParent { Some(NO_OWNER) } else { open.then_some(OWNER) };
    let (text, price) = (text(version, length), Decimal::from_units(price));
    Tracked { id, version: version.0, team, code, text, signed, count, ratio, price, open, name, owner }
}

/// Sets all columns that follow from a mark.
fn set_mark(row: &mut TrackedMut<'_>, mark: u8) {
    let (signed, count, ratio, price, open, name) = MARKS[usize::from(mark)];
    row.set_signed(signed);
    row.set_count(count);
    row.set_ratio(ratio);
    row.set_price(Decimal::from_units(price));
    row.set_open(open);
    row.set_name(name).unwrap_or_default();
}

/// A refusal is an answer.
fn refusable<O>(outcome: Result<O, Error>) -> Result<Result<O, Refused>, Error> {
    match outcome {
        Ok(output) => Ok(Ok(output)),
        Err(Error::Duplicate(of)) => Ok(Err(Refused::Duplicate(of.index))),
        Err(Error::KeyTooLong(_)) => Ok(Err(Refused::Flaw(Flaw::KeyTooLong))),
        Err(Error::NoParent { .. }) => Ok(Err(Refused::Flaw(Flaw::NoParent))),
        Err(error) => Err(error),
    }
}
