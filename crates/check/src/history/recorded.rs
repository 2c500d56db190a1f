//! A transaction whose operations are noted as they are answered.

use std::ops::RangeInclusive;

use polychron_base::error::Stopped;
use polychron_engine::{Becomes, Error, Futures, IndexId, Insertion, Operations, Savepoint, Stop, Table, Transaction};
use polychron_schema::{Index, Key, OwnedKey};

use super::rows::{Tracked, TrackedRef, attributes, is_text_of, text};
use super::{Attributes, Item, Log, Operation, Position, RangeRead, Replaced, Version};

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
}

/// A running transaction and the log of its thread.
///
/// Each operation is noted when it was answered, with the versions that the answer showed; a write that a conflict ends is
/// noted as intended. A refusal because of a duplicate is followed by the look-up that shows it.
pub struct Recorded<'t, T> {
    transaction: &'t mut T,
    log: &'t mut Log,
}

/// The index by team is the first, the index by code the second.
const TEAM: u8 = 1;
const CODE: u8 = 2;

/// What a row shows.
#[derive(Clone, Copy)]
struct Seen {
    id: u64,
    version: Version,
    attributes: Attributes,
    /// Whether the text is the version's.
    whole: bool,
}

impl Seen {
    fn of(row: TrackedRef<'_>) -> Self {
        Self {
            id: row.id(),
            version: Version(row.version()),
            attributes: attributes(row.team(), row.code()),
            whole: is_text_of(row.text(), row.version()),
        }
    }
}

impl<'t, T: Transaction> Recorded<'t, T> {
    /// Records what `transaction` does in `log`.
    pub fn new(transaction: &'t mut T, log: &'t mut Log) -> Self {
        Self { transaction, log }
    }

    fn item(table: &Table<Tracked>, key: u64) -> Item {
        Item { table: table.id().position() as u32, key }
    }

    /// Reads a row.
    pub fn read(&mut self, table: &Table<Tracked>, id: u64) -> Result<Option<Version>, Stop> {
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
    pub fn read_version(&mut self, table: &Table<Tracked>, id: u64) -> Result<Option<Version>, Stop> {
        let seen = self.transaction.get_columns(table, id, (Tracked::VERSION,))?.map(|(version,)| Version(version));
        self.log.note(Operation::Read { item: Self::item(table, id), seen });
        Ok(seen)
    }

    /// Asks whether the team of a row is at least so much. What is observed is the answer, not the row; where there is no row, that is
    /// observed, and the transaction fails.
    pub fn ask(&mut self, table: &Table<Tracked>, id: u64, team: u16) -> Result<bool, Stop> {
        let future = self.transaction.future(table, id, Tracked::TEAM);
        let answer = future.and_then(|future| self.transaction.is_true(future.at_least(team)));
        let truth = answer.map_err(Stop::into_parts).map_err(|stopped| match stopped {
            Stopped::Conflict => Stop::conflict(),
            // Nothing was observed.
            Stopped::Failed(error @ Error::WaitsForItself { .. }) => error.into(),
            Stopped::Failed(error) => {
                self.log.note(Operation::Read { item: Self::item(table, id), seen: None });
                error.into()
            }
        })?;
        let bound = |team: u16, key| (u64::from(attributes(team, None)[0]), key);
        let (lower, upper) = match (truth, team.checked_sub(1)) {
            (false, _) => (bound(team, 0), bound(u16::MAX, u64::MAX)),
            (true, Some(below)) => (bound(0, 0), bound(below, u64::MAX)),
            (true, None) => return Ok(truth),
        };
        let (table, rows) = (table.id().position() as u32, Vec::new());
        let range = RangeRead { table, index: TEAM, lower, upper, backward: false, only: Some(id), rows };
        self.log.note(Operation::Range(Box::new(range)));
        Ok(truth)
    }

    /// Writes a row's version and team as values that may be left open until the commit; its text stays. Whether the row is there makes no
    /// difference, so that the transaction must fail where it is not.
    pub fn write_later(&mut self, table: &Table<Tracked>, id: u64, team: u16) -> Result<(), Stop> {
        let item = Self::item(table, id);
        let seen = self.transaction.get_columns(table, id, (Tracked::VERSION, Tracked::CODE))?;
        let version = self.log.next_version().beside_text();
        let replaced = seen.map_or(Replaced::Absent, |(before, _)| Replaced::Version(Version(before)));
        self.log.note(Operation::Read { item, seen: seen.map(|(before, _)| Version(before)) });
        let code = seen.and_then(|(_, code)| code);
        let columns = [Tracked::VERSION.becomes(version.0), Tracked::TEAM.becomes(team)];
        let attempt = self.transaction.set_futures(table, id, columns);
        self.note_intention(table, id, replaced, attributes(team, code), attempt)?;
        match seen {
            Some(_) => self.note_write(table, id, version, replaced, team, code),
            None => self.log.must_fail(item),
        }
        Ok(())
    }

    /// Reads a range of primary keys.
    pub fn scan(&mut self, table: &Table<Tracked>, keys: RangeInclusive<u64>, extent: Extent) -> Result<(), Stop> {
        let (lower, upper) = (*keys.start(), *keys.end());
        let range = self.transaction.scan(table, keys).limit(extent.limit);
        let range = if extent.backward { range.reverse() } else { range };
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
    ) -> Result<(), Stop> {
        let bounds = ((u64::from(*teams.start()), 0), (u64::from(*teams.end()), u64::MAX));
        self.scan_index(table, TEAM, Tracked::BY_TEAM, teams, bounds, extent)
    }

    /// Reads the row of a code, or rows between two codes.
    pub fn scan_codes(
        &mut self,
        table: &Table<Tracked>,
        codes: RangeInclusive<Option<u32>>,
        extent: Extent,
    ) -> Result<(), Stop> {
        let number = |code: &Option<u32>| u64::from(attributes(0, *code)[1]);
        let bounds = ((number(codes.start()), 0), (number(codes.end()), u64::MAX));
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
    ) -> Result<(), Stop>
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
        let range = if extent.backward { range.reverse() } else { range };
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
        let range = RangeRead {
            table: table.id().position() as u32,
            index,
            lower,
            upper,
            backward: extent.backward,
            only: None,
            rows,
        };
        self.log.note(Operation::Range(Box::new(range)));
    }

    /// Inserts a row, if none of its keys is taken.
    pub fn insert(&mut self, table: &Table<Tracked>, id: u64, columns: Columns) -> Result<bool, Stop> {
        let version = self.log.next_version();
        let attempt = self.transaction.try_insert(table, &row(id, version, columns));
        let replaced = Replaced::Absent;
        match self.note_intention(table, id, replaced, attributes(columns.team, columns.code), attempt)? {
            Insertion::Inserted => {
                self.note_write(table, id, version, replaced, columns.team, columns.code);
                self.note_unique(table, id, version, columns.code);
                Ok(true)
            }
            Insertion::Duplicate(index) => self.show_duplicate(table, id, index, columns.code),
        }
    }

    /// Writes a row, whether or not there is one. Looks beforehand unless it is `blind`; a key that is written blindly must
    /// never be inserted or deleted while others write it.
    pub fn upsert(&mut self, table: &Table<Tracked>, id: u64, columns: Columns, blind: bool) -> Result<bool, Stop> {
        let replaced = match blind {
            true => Replaced::Unknown,
            false => self.read(table, id)?.map_or(Replaced::Absent, Replaced::Version),
        };
        let version = self.log.next_version();
        let attempt = refusable(self.transaction.upsert(table, &row(id, version, columns)));
        match self.note_intention(table, id, replaced, attributes(columns.team, columns.code), attempt)? {
            Ok(()) => {
                self.note_write(table, id, version, replaced, columns.team, columns.code);
                self.note_unique(table, id, version, columns.code);
                Ok(true)
            }
            Err(index) => self.show_duplicate(table, id, index, columns.code),
        }
    }

    /// Changes a row that is there.
    pub fn update(&mut self, table: &Table<Tracked>, id: u64, change: Change) -> Result<bool, Stop> {
        let version = self.log.next_version();
        let mut before = None;
        let attempt = self.transaction.update(table, id, |row| {
            let whole = is_text_of(row.text(), row.version());
            before = Some((Version(row.version()), row.team(), row.code(), whole));
            let mut length = row.text().len();
            row.set_version(version.0);
            match change {
                Change::Text(wanted) => length = wanted,
                Change::Team(team) => row.set_team(team),
                Change::Code(code) => row.set_code(code),
            }
            row.set_text(&text(version, length)).unwrap_or_default();
        });
        let intended = before.map_or([0; 2], |(_, team, code, _)| attributes(team, code));
        let replaced = before.map_or(Replaced::Unknown, |(version, ..)| Replaced::Version(version));
        let found = self.note_intention(table, id, replaced, intended, refusable(attempt))?;
        let item = Self::item(table, id);
        if before.is_some_and(|(.., whole)| !whole) {
            self.log.note(Operation::Torn { item });
        }
        let seen = before.map(|(version, ..)| version);
        match (found, before) {
            (Ok(true), Some((_, team, code, _))) => {
                let (team, new_code) = match change {
                    Change::Text(_) => (team, code),
                    Change::Team(team) => (team, code),
                    Change::Code(code) => (team, code),
                };
                self.note_write(table, id, version, replaced, team, new_code);
                if code != new_code {
                    self.note_unique(table, id, version, new_code);
                }
                Ok(true)
            }
            (Ok(_), _) => {
                self.log.note(Operation::Read { item, seen });
                Ok(false)
            }
            (Err(index), _) => {
                self.log.note(Operation::Read { item, seen });
                let code = if let Change::Code(code) = change { code } else { None };
                self.show_duplicate(table, id, index, code)
            }
        }
    }

    /// Deletes a row after having looked at it.
    pub fn delete(&mut self, table: &Table<Tracked>, id: u64) -> Result<bool, Stop> {
        let seen = self.read_version(table, id)?;
        let item = Self::item(table, id);
        let replaced = seen.map_or(Replaced::Absent, Replaced::Version);
        let attempt = self.transaction.delete(table, id);
        if attempt.as_ref().is_err_and(Stop::is_conflict) {
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
    pub fn roll_back_to(&mut self, savepoint: Savepoint, number: usize) -> Result<(), Stop> {
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
        team: u16,
        code: Option<u32>,
    ) {
        let (item, attributes) = (Self::item(table, id), attributes(team, code));
        self.log.note(Operation::Write { item, version, replaced, attributes });
    }

    /// A write that succeeded has shown that its row is the only one with its code.
    fn note_unique(&mut self, table: &Table<Tracked>, id: u64, version: Version, code: Option<u32>) {
        if code.is_none() {
            return;
        }
        let number = u64::from(attributes(0, code)[1]);
        let (lower, upper) = ((number, 0), (number, u64::MAX));
        let rows = vec![(id, version)];
        let range = RangeRead {
            table: table.id().position() as u32,
            index: CODE,
            lower,
            upper,
            backward: false,
            only: None,
            rows,
        };
        self.log.note(Operation::Range(Box::new(range)));
    }

    /// Notes what a write wanted when a conflict ends it.
    fn note_intention<O>(
        &mut self,
        table: &Table<Tracked>,
        id: u64,
        replaced: Replaced,
        attributes: Attributes,
        attempt: Result<O, Stop>,
    ) -> Result<O, Stop> {
        if attempt.as_ref().is_err_and(Stop::is_conflict) {
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
    ) -> Result<bool, Stop> {
        let item = Self::item(table, id);
        let shown = if index == IndexId::PRIMARY {
            self.read(table, id)?.is_some()
        } else {
            let mut others = 0;
            let rows = self.transaction.scan_by(table, Tracked::BY_CODE, code).map(Seen::of).collect::<Vec<_>>()?;
            others += rows.iter().filter(|row| row.id != id).count();
            let number = u64::from(attributes(0, code)[1]);
            self.note_range(table, CODE, ((number, 0), (number, u64::MAX)), Extent::ALL, &rows);
            others > 0
        };
        if !shown {
            let what = "a write was refused because of a duplicate that is not there";
            self.log.note(Operation::Contradiction { item, what });
        }
        Ok(false)
    }
}

fn row(id: u64, version: Version, columns: Columns) -> Tracked {
    let Columns { team, code, length } = columns;
    Tracked { id, version: version.0, team, code, text: text(version, length) }
}

/// A refusal because of a duplicate is an answer.
fn refusable<O>(outcome: Result<O, Stop>) -> Result<Result<O, IndexId>, Stop> {
    match outcome.map_err(Stop::into_parts) {
        Ok(output) => Ok(Ok(output)),
        Err(Stopped::Failed(Error::Duplicate { index, .. })) => Ok(Err(index)),
        Err(Stopped::Failed(error)) => Err(error.into()),
        Err(Stopped::Conflict) => Err(Stop::conflict()),
    }
}
