//! Questions about many rows, recorded: with restrictions, for rows, columns and answers over them; and updates that only look.
//!
//! A restriction looks at columns that follow from a row's mark, so it is a set of marks, whatever it compares with what. Which set, the
//! comparison of samples says, which shares nothing with the engine's. An answer that does not tell the rows' versions tells less than
//! them: of a row that it shows, that its mark is one of the set, if the row is there; of all others, that they do not lie in the range.

use polychron_engine::aggregate::AggregateError;
use polychron_engine::scan::Comparison;
use polychron_engine::{
    Aggregate, ColumnBatch, Direction, Error, Operations, Projection, Restriction, Scan, Table, Transaction,
};
use polychron_schema::{Key, KeyScratch, Row, Value};
use std::ops::{Bound, ControlFlow};

use super::recorded::Extent;
use super::rows::{MARKS, Tracked, mark_of_name, values_of};
use super::{Marks, Operation, RangeRead, Recorded, Version, Which};
use crate::samples::model::{normal, satisfies};

/// The position of the first column that follows from the mark.
pub(super) const FIRST_MARKED: usize = Tracked::SIGNED.index as usize;

/// What is asked of the rows of some keys that satisfy restrictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The first key.
    pub from: u64,
    /// The last key.
    pub to: u64,
    /// Of columns that follow from the mark.
    pub restrictions: Vec<Restriction>,
    /// What is wanted.
    pub shape: Shape,
}

/// What a [`Question`] wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The rows' keys, perhaps with their versions.
    Rows {
        /// Whether the versions are wanted, too.
        versions: bool,
        /// How much of the range.
        extent: Extent,
    },
    /// The same, batch by batch.
    Batches {
        /// Whether the versions are wanted, too.
        versions: bool,
    },
    /// An answer over them.
    Total(Aggregate),
}

/// The marks of the rows that satisfy this.
fn marks_where(is_one: impl Fn(usize, &[Value; 6]) -> bool) -> Marks {
    let is_one = |mark: &usize| is_one(*mark, &values_of(*mark));
    Marks((0..MARKS.len()).filter(is_one).fold(0, |marks, mark| marks | 1 << mark))
}

/// The marks of the rows that satisfy restrictions.
fn marks_of(restrictions: &[Restriction]) -> Marks {
    marks_where(|_, values| {
        restrictions.iter().all(|it| satisfies(&values[it.column - FIRST_MARKED], it.comparison, &it.value))
    })
}

/// What an aggregate answers of one row with these values; of none with none of them.
fn total_of(wanted: Aggregate, values: Option<&[Value; 6]>) -> Value {
    let value = |column: usize| values.map_or(Value::Null, |values| values[column - FIRST_MARKED].clone());
    match wanted {
        Aggregate::Rows => Value::Unsigned(values.is_some().into()),
        Aggregate::Count(column) => Value::Unsigned((!value(column).is_null()).into()),
        Aggregate::Sum(column) => match value(column) {
            Value::Float(sum) => normal(sum),
            sum => sum,
        },
        Aggregate::Min(column) | Aggregate::Max(column) => value(column),
        Aggregate::Average(_) => unreachable!("samples are asked for averages"),
    }
}

/// Whether an error says that a sum does not fit.
fn is_overflow(error: &Error) -> bool {
    matches!(error, Error::NoAnswer(failed) if matches!(failed.why, AggregateError::Overflow(..)))
}

/// Whether an error says that values have the wrong type for what was asked.
fn is_wrong_type(error: &Error) -> bool {
    match error {
        Error::NotNumeric(_) => true,
        Error::NoAnswer(failed) => matches!(failed.why, AggregateError::NoSum(..)),
        _ => false,
    }
}

impl<T: Transaction> Recorded<'_, T> {
    /// Asks an ordered table.
    pub fn ask_rows(&mut self, table: &Table<Tracked>, question: &Question) -> Result<(), Error> {
        let (mut first, mut last) = (KeyScratch::new(), KeyScratch::new());
        let scan = Scan {
            lower: Bound::Included(question.from.encode_bytes(&mut first)),
            upper: Bound::Included(question.to.encode_bytes(&mut last)),
            restrictions: &question.restrictions,
            ..Scan::all(table.id())
        };
        match question.shape {
            Shape::Total(wanted) => self.ask_total(table, question, &scan, wanted),
            Shape::Rows { versions, extent } => {
                let version = Projection::NONE.with(Tracked::VERSION.span());
                let projection = if versions { version } else { Projection::NONE }.with(Tracked::ID.span());
                let direction = if extent.backward { Direction::Backward } else { Direction::Forward };
                let scan = Scan { direction, limit: extent.limit, projection, ..scan };
                let mut rows = Vec::new();
                self.transaction.scan_rows(&scan, &mut |row| {
                    let row = Tracked::view(row);
                    rows.push((row.id(), versions.then(|| Version(row.version()))));
                    if rows.len() == extent.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                self.note_answer(table, question, extent, &rows);
                Ok(())
            }
            Shape::Batches { versions } => {
                let id = usize::from(Tracked::ID.index);
                let columns = [id, usize::from(Tracked::VERSION.index)];
                let columns = if versions { &columns[..] } else { &columns[..1] };
                let mut look = |batch: &ColumnBatch<'_>| {
                    let version = |row| versions.then(|| Version(batch.columns[1].bits(row)));
                    batch.positions().map(|row| (batch.columns[0].bits(row), version(row))).collect::<Vec<_>>()
                };
                let mut rows = Vec::new();
                self.transaction.scan_columns(&scan, columns, &mut look, &mut |more: Vec<_>| {
                    rows.extend(more);
                    ControlFlow::Continue(())
                })?;
                rows.sort_unstable();
                self.note_answer(table, question, Extent::ALL, &rows);
                Ok(())
            }
        }
    }

    /// Notes which rows were the answer, with their versions or without.
    fn note_answer(
        &mut self,
        table: &Table<Tracked>,
        question: &Question,
        extent: Extent,
        rows: &[(u64, Option<Version>)],
    ) {
        let (mut from, mut to) = (question.from, question.to);
        for &(key, _) in rows {
            if !(from..=to).contains(&key) {
                self.log.note(Operation::Torn { item: Self::item(table, key) });
            }
        }
        // A scan that was stopped has looked no further than its last row.
        if let Some(&(last, _)) = rows.last().filter(|_| rows.len() >= extent.limit) {
            if extent.backward { from = last } else { to = last }
        }
        let marks = marks_of(&question.restrictions);
        let unknown: Vec<u64> = rows.iter().filter(|row| row.1.is_none()).map(|row| row.0).collect();
        for &key in &unknown {
            self.note_elsewhere(table, 0, key, ((key, key), (key, key)), marks.others());
        }
        let which = if unknown.is_empty() { Which::All } else { Which::Except(unknown) };
        let known = rows.iter().filter_map(|&(key, version)| Some((key, version?))).collect();
        self.note_marks(table, (from, to), (which, marks), extent.backward, known);
    }

    /// Notes which rows with these marks there are between two keys.
    fn note_marks(
        &mut self,
        table: &Table<Tracked>,
        (from, to): (u64, u64),
        (which, marks): (Which, Marks),
        backward: bool,
        rows: Vec<(u64, Version)>,
    ) {
        let (table, lower, upper) = (table.id().position() as u32, (from, from), (to, to));
        let range = RangeRead { table, index: 0, lower, upper, backward, which, marks, rows };
        self.log.note(Operation::Range(Box::new(range)));
    }

    /// Asks for an answer over the rows. Of a single row it tells between which marks the row's is; of several, what is missing.
    fn ask_total(
        &mut self,
        table: &Table<Tracked>,
        question: &Question,
        scan: &Scan<'_>,
        wanted: Aggregate,
    ) -> Result<(), Error> {
        let answer = match self.transaction.aggregate(scan, wanted) {
            Ok(Value::Float(sum)) if matches!(wanted, Aggregate::Sum(_)) => normal(sum),
            Ok(answer) => answer,
            Err(Error::Conflict) => return Err(Error::Conflict),
            Err(error) if is_overflow(&error) && question.from < question.to => return Ok(()),
            Err(error) => return Err(error),
        };
        let marks = marks_of(&question.restrictions);
        let asked = |mark: usize| marks.0 >> mark & 1 != 0;
        let none = total_of(wanted, None);
        let keys = (question.from, question.to);
        if answer == none {
            let missing = marks_where(|mark, values| asked(mark) && total_of(wanted, Some(values)) != none);
            self.note_marks(table, keys, (Which::All, missing), false, Vec::new());
        } else if question.from == question.to {
            let possible = marks_where(|mark, values| asked(mark) && total_of(wanted, Some(values)) == answer);
            let (key, at) = (question.from, (question.from, question.from));
            if possible.0 == 0 {
                let what = "an answer over it is that of no row which could be there";
                self.log.note(Operation::Contradiction { item: Self::item(table, key), what });
            }
            self.note_elsewhere(table, 0, key, (at, at), possible.others());
        } else if let Some((column, comparison)) = match wanted {
            Aggregate::Min(column) => Some((column, Comparison::Less)),
            Aggregate::Max(column) => Some((column, Comparison::Greater)),
            _ => None,
        } {
            let missing = marks_where(|mark, values| {
                asked(mark) && satisfies(&values[column - FIRST_MARKED], comparison, &answer)
            });
            self.note_marks(table, keys, (Which::All, missing), false, Vec::new());
        }
        Ok(())
    }

    /// An update that looks at the row's version, or at its name alone, and changes nothing.
    pub fn look(&mut self, table: &Table<Tracked>, id: u64, whole: bool) -> Result<(), Error> {
        let item = Self::item(table, id);
        if whole {
            let mut seen = None;
            self.transaction.update(table, id, |row| seen = Some(Version(row.version())))?;
            self.log.note(Operation::Read { item, seen });
            return Ok(());
        }
        let mut seen = None;
        self.transaction.update_columns(table, id, (Tracked::NAME,), |row| seen = Some(mark_of_name(row.name())))?;
        match seen {
            None => self.log.note(Operation::Read { item, seen: None }),
            Some(mark) => self.note_elsewhere(table, 0, id, ((id, id), (id, id)), Marks(1 << mark).others()),
        }
        Ok(())
    }

    /// Asks what the types of the columns, or the kind of the index, do not allow. The transaction goes on.
    pub fn ask_in_vain(&mut self, ordered: &Table<Tracked>, hash: &Table<Tracked>, way: u8) -> Result<(), Error> {
        let name = usize::from(Tracked::NAME.index);
        let ended = match way {
            0 => self.transaction.aggregate(&Scan::all(ordered.id()), Aggregate::Sum(name)).map(drop),
            1 => self
                .transaction
                .scan_columns(&Scan::all(ordered.id()), &[name], &mut |_| (), &mut |()| ControlFlow::Continue(())),
            _ => self.transaction.scan(hash, 0..=1).count().map(drop),
        };
        match ended {
            Err(Error::NoOrder(..)) if way > 1 => Ok(()),
            Err(error) if way < 2 && is_wrong_type(&error) => Ok(()),
            Err(Error::Conflict) => Err(Error::Conflict),
            Err(error) => Err(error),
            Ok(()) => {
                let what = ["a sum of texts", "a batch of texts", "a range of an index without order"]
                    [usize::from(way.min(2))];
                self.log.note(Operation::Contradiction { item: Self::item(ordered, 0), what });
                Ok(())
            }
        }
    }
}
