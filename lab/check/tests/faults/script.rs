//! The procedure that faults are put into, over two tables whose indexes are of both kinds.

use polychron_engine::{Error, Insertion, Operations, Procedure, Protocol, Table, TableId, Transaction, Worker};
use polychron_memory::faults::{Refusal, refuse};
use polychron_schema::Row;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The procedure panics at this point.
    Panic(u64),
    /// It rolls back before this operation.
    Fail(u64),
    /// It rolls back at its end.
    FailAtEnd,
    /// Allocations are refused.
    Refuse(Refusal),
}

/// What a panic says.
pub(crate) const ON_PURPOSE: &str = "on purpose";

/// Every index is ordered.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "sorted")]
#[index(name = "by_team", columns(team))]
#[index(name = "by_code", columns(code), unique)]
#[allow(clippy::duplicated_attributes, reason = "each index has its own")]
pub(crate) struct Sorted {
    #[key]
    id: u64,
    team: u16,
    code: Option<u32>,
    number: i64,
    #[column(max = 4000)]
    text: String,
}

/// The same with hash indexes where keys are unique.
#[derive(Row, Clone, Debug, PartialEq)]
#[row(name = "hashed", primary = "hash")]
#[index(name = "by_team", columns(team))]
#[index(name = "by_code", columns(code), unique, kind = "hash")]
#[allow(clippy::duplicated_attributes, reason = "each index has its own")]
pub(crate) struct Hashed {
    #[key]
    id: u64,
    team: u16,
    code: Option<u32>,
    number: i64,
    #[column(max = 4000)]
    text: String,
}

#[derive(Clone, Copy)]
pub(crate) struct Tables {
    sorted: Table<Sorted>,
    hashed: Table<Hashed>,
}

/// Ids and codes lie below this.
const MANY: u32 = 130;

/// A row as it is told from others.
type Facts = (u64, u16, Option<u32>, i64, String);

/// What the tables hold, by every index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    tables: [Seen; 2],
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    by_key: Vec<Facts>,
    by_team: Vec<Facts>,
    by_code: Vec<Facts>,
}

impl State {
    /// Every index leads to the same rows.
    pub(crate) fn assert_whole(&self) {
        for Seen { by_key, by_team, by_code } in &self.tables {
            let mut teams = by_team.clone();
            teams.sort();
            assert_eq!(*by_key, teams);
            let mut codes = by_code.clone();
            codes.sort();
            let with_code: Vec<_> = by_key.iter().filter(|facts| facts.2.is_some()).cloned().collect();
            assert_eq!(with_code, codes);
        }
    }
}

macro_rules! for_row {
    ($row:ident, $fill:ident, $change:ident, $see:ident, $touch:ident) => {
        fn $fill<T: Transaction>(t: &mut T, table: &Table<$row>) -> Result<(), Error> {
            (1..43).try_for_each(|id| {
                let (team, code) = ((id % 3) as u16, (id % 5 > 0).then_some(id as u32));
                t.insert(table, &$row { id, team, code, number: 0, text: "as it was".into() })
            })
        }

        /// One of everything.
        fn $change<T: Transaction>(script: &mut Script, t: &mut T, table: &Table<$row>) -> Result<(), Error> {
            let row = |id: u64, length| {
                let text = "n".repeat(length);
                $row { id, team: 1, code: Some(id as u32), number: 1, text }
            };
            script.point()?;
            let _ = t.get(table, 1)?.map(|row| row.number());
            script.point()?;
            t.insert(table, &row(60, 10))?;
            script.point()?;
            // Where a row was deleted.
            t.insert(table, &row(41, 10))?;
            script.point()?;
            t.update(table, 1, |row| {
                script.inner_point();
                row.set_number(2);
                script.inner_point();
            })?;
            script.point()?;
            t.update(table, 2, |row| row.set_text(&"long".repeat(100)).unwrap())?;
            script.point()?;
            t.update(table, 3, |row| {
                row.set_team(7);
                script.inner_point();
                row.set_code(Some(103));
            })?;
            script.point()?;
            t.delete(table, 4)?;
            script.point()?;
            t.insert(table, &row(4, 500))?;
            script.point()?;
            t.upsert(table, &row(5, 700))?;
            script.point()?;
            t.upsert(table, &row(61, 1))?;
            script.point()?;
            t.update(table, 60, |row| row.set_text(&"own".repeat(50)).unwrap())?;
            script.point()?;
            t.delete(table, 61)?;
            script.point()?;
            t.scan_range_by::<_, _, u16>(table, $row::BY_TEAM, ..).for_each(|row| {
                if row.id() < 4 {
                    script.inner_point();
                }
            })?;
            script.point()?;
            let _ = t.scan_by(table, $row::BY_CODE, Some(6)).count()?;
            script.point()?;
            // Refused on its way, for its primary key and for its code.
            assert_ne!(t.try_insert(table, &row(6, 10))?, Insertion::Inserted);
            script.point()?;
            assert_ne!(t.try_insert(table, &$row { id: 62, ..row(6, 10) })?, Insertion::Inserted);
            script.point()?;
            if script.nests {
                let savepoint = t.savepoint();
                for id in 63..85 {
                    script.point()?;
                    t.insert(table, &row(id, 20))?;
                }
                t.update(table, 7, |row| row.set_text(&"gone".repeat(100)).unwrap())?;
                t.roll_back_to(savepoint)?;
            }
            (90..100).try_for_each(|id| {
                script.point()?;
                t.insert(table, &row(id, 30))
            })?;
            script.point()
        }

        fn $see<T: Transaction>(t: &mut T, table: &Table<$row>) -> Result<Seen, Error> {
            let facts =
                |row: <$row as Row>::Ref<'_>| (row.id(), row.team(), row.code(), row.number(), row.text().to_owned());
            let mut seen = Seen::default();
            for id in 0..u64::from(MANY) {
                seen.by_key.extend(t.get(table, id)?.map(facts));
            }
            seen.by_team = t.scan_range_by::<_, _, u16>(table, $row::BY_TEAM, ..).map(facts).collect()?;
            for code in 0..MANY {
                let found: Vec<Facts> = t.scan_by(table, $row::BY_CODE, Some(code)).map(facts).collect()?;
                seen.by_code.extend(found);
            }
            Ok(seen)
        }

        fn $touch<T: Transaction>(t: &mut T, table: &Table<$row>) -> Result<(), Error> {
            t.insert(table, &$row { id: 120, team: 1, code: Some(120), number: 0, text: String::new() })?;
            t.update(table, 120, |row| row.set_team(2))?;
            t.delete(table, 120).map(drop)
        }
    };
}

for_row!(Sorted, fill_sorted, change_sorted, see_sorted, touch_sorted);
for_row!(Hashed, fill_hashed, change_hashed, see_hashed, touch_hashed);

impl Tables {
    pub(crate) fn create<P: Protocol>(database: &P) -> Self {
        Self {
            sorted: Table::from_id(database.create_table(Sorted::definition()).unwrap()),
            hashed: Table::from_id(database.create_table(Hashed::definition()).unwrap()),
        }
    }

    pub(crate) fn sorted(self) -> TableId {
        self.sorted.id()
    }

    pub(crate) fn fill<W: Worker>(self, worker: &mut W) {
        worker.execute(&mut Fill(self)).unwrap();
        worker.execute(&mut Thin(self)).unwrap();
    }

    pub(crate) fn state<W: Worker>(self, worker: &mut W) -> State {
        worker.execute(&mut See(self)).unwrap()
    }

    /// An ordinary transaction that leaves the tables as they were.
    pub(crate) fn touch<W: Worker>(self, worker: &mut W) {
        worker.execute(&mut Touch(self)).unwrap();
    }
}

struct Fill(Tables);

impl Procedure for Fill {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        fill_sorted(t, &self.0.sorted)?;
        fill_hashed(t, &self.0.hashed)
    }
}

/// Deletes rows, so that there are tombstones.
struct Thin(Tables);

impl Procedure for Thin {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        for id in 40..43 {
            t.delete(&self.0.sorted, id)?;
            t.delete(&self.0.hashed, id)?;
        }
        Ok(())
    }
}

struct See(Tables);

impl Procedure for See {
    type Output = State;
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<State, Error> {
        Ok(State { tables: [see_sorted(t, &self.0.sorted)?, see_hashed(t, &self.0.hashed)?] })
    }
}

struct Touch(Tables);

impl Procedure for Touch {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        touch_sorted(t, &self.0.sorted)?;
        touch_hashed(t, &self.0.hashed)
    }
}

/// The procedure.
pub(crate) struct Script {
    tables: Tables,
    fault: Fault,
    passed: u64,
    operations: u64,
    /// Whether the protocol has savepoints.
    nests: bool,
}

impl Script {
    pub(crate) fn new(tables: Tables, fault: Fault, nests: bool) -> Self {
        Self { tables, fault, passed: 0, operations: 0, nests }
    }

    /// Between two operations.
    fn point(&mut self) -> Result<(), Error> {
        self.inner_point();
        self.operations += 1;
        if self.fault == Fault::Fail(self.operations) {
            return Err(Error::RolledBack);
        }
        Ok(())
    }

    /// Inside of an operation, where only a panic is possible.
    fn inner_point(&mut self) {
        self.passed += 1;
        if self.fault == Fault::Panic(self.passed) {
            // As a panic, without its message on the terminal.
            std::panic::resume_unwind(Box::new(ON_PURPOSE));
        }
    }
}

impl Procedure for Script {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, t: &mut T) -> Result<(), Error> {
        (self.passed, self.operations) = (0, 0);
        if let Fault::Refuse(refusal) = self.fault {
            refuse(refusal);
        }
        let Tables { sorted, hashed } = self.tables;
        change_sorted(self, t, &sorted)?;
        change_hashed(self, t, &hashed)?;
        if self.fault == Fault::FailAtEnd {
            return Err(Error::RolledBack);
        }
        Ok(())
    }
}
