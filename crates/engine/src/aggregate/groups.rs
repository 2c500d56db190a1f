//! Groups of rows, each with its aggregates, out of rows or out of column batches.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use polychron_base::{Error, TableId};
use polychron_schema::{KeyExtractor, KeyScratch, Layout, RowRef, ValueRef};

use super::state::State;
use super::{AggregateError, Group, Grouping, column_of, projection_of};
use crate::batch::ColumnBatch;
use crate::{Scan, Transaction};

/// The way in which a grouping is computed.
struct Plan<'a> {
    table: TableId,
    layout: Layout,
    grouping: Grouping<'a>,
    /// The columns that are looked at, each once.
    columns: Vec<usize>,
    /// Makes the keys of groups, unless all rows are one.
    keys: Option<KeyExtractor>,
}

/// The aggregates of one group.
type States = Vec<State>;

/// The groups so far.
enum Groups {
    /// All rows are one.
    Whole(States),
    By(BTreeMap<Box<[u8]>, States>),
}

impl<'a> Plan<'a> {
    fn new<T: Transaction + ?Sized>(transaction: &T, table: TableId, grouping: Grouping<'a>) -> Result<Self, Error> {
        let layout = transaction.definition(table)?.layout().map_err(Error::from)?;
        let columns = grouping.columns();
        for &column in &columns {
            column_of(&layout, table, column)?;
        }
        let keys = (!grouping.by.is_empty()).then(|| KeyExtractor::of_columns(&layout, grouping.by));
        Ok(Self { table, layout, grouping, columns, keys })
    }

    /// The aggregates of no rows.
    fn states(&self) -> Result<States, AggregateError> {
        self.grouping.wanted.iter().map(|&wanted| State::new(&self.layout, self.table, wanted)).collect()
    }

    fn groups(&self) -> Result<Groups, AggregateError> {
        // What has no sum is refused before a row is looked at.
        let states = self.states()?;
        Ok(if self.keys.is_none() { Groups::Whole(states) } else { Groups::By(BTreeMap::new()) })
    }

    /// The position of a column among those of a batch.
    fn position(&self, column: usize) -> usize {
        self.columns.binary_search(&column).expect("every column that is looked at is in the batch")
    }

    /// The groups of a batch.
    fn of_batch(&self, batch: &ColumnBatch<'_>) -> Result<Groups, Error> {
        let position = |column: Option<usize>| column.map_or(0, |column| self.position(column));
        let Some(keys) = &self.keys else {
            let states = self.grouping.wanted.iter();
            return Ok(Groups::Whole(
                states.map(|&wanted| State::of(batch, wanted, position(wanted.column()))).collect(),
            ));
        };
        let by: Vec<usize> = self.grouping.by.iter().map(|&column| self.position(column)).collect();
        let (mut groups, mut scratch) = (BTreeMap::new(), KeyScratch::new());
        for row in batch.positions() {
            let values = by.iter().map(|&column| batch.columns[column].value(row));
            let states = self.group(&mut groups, keys.encode_values(values, &mut scratch)?)?;
            for (state, wanted) in states.iter_mut().zip(self.grouping.wanted) {
                let value = wanted.column().map(|column| batch.columns[self.position(column)].value(row));
                state.add(value.unwrap_or_default());
            }
        }
        Ok(Groups::By(groups))
    }

    /// The group with this key.
    fn group<'g>(
        &self,
        groups: &'g mut BTreeMap<Box<[u8]>, States>,
        key: &[u8],
    ) -> Result<&'g mut States, AggregateError> {
        if !groups.contains_key(key) {
            let most = self.grouping.most;
            if groups.len() >= most {
                return Err(AggregateError::TooManyGroups { table: self.table, most });
            }
            groups.insert(key.into(), self.states()?);
        }
        Ok(groups.get_mut(key).expect("it is there or was put there"))
    }

    fn finish(&self, groups: Groups) -> Result<Vec<Group>, Error> {
        let all: Vec<(Box<[u8]>, States)> = match groups {
            Groups::Whole(states) => vec![(Box::default(), states)],
            Groups::By(groups) => groups.into_iter().collect(),
        };
        let mut finished = Vec::with_capacity(all.len());
        for (key, states) in all {
            let mut values = Vec::with_capacity(states.len());
            for (state, &wanted) in states.into_iter().zip(self.grouping.wanted) {
                let overflow = || AggregateError::Overflow(self.table, wanted.column().unwrap_or_default());
                values.push(state.finish(&self.layout, wanted).ok_or_else(overflow)?);
            }
            finished.push(Group { key, values });
        }
        Ok(finished)
    }
}

impl Groups {
    fn add_row(&mut self, plan: &Plan<'_>, row: RowRef<'_>) -> Result<(), Error> {
        let mut scratch = KeyScratch::new();
        let states = match (self, &plan.keys) {
            (Self::By(groups), Some(keys)) => plan.group(groups, keys.extract(row, &mut scratch)?)?,
            (Self::Whole(states), _) => states,
            (Self::By(_), None) => unreachable!("groups have keys"),
        };
        for (state, wanted) in states.iter_mut().zip(plan.grouping.wanted) {
            state.add(wanted.column().map_or(ValueRef::Null, |column| row.value_ref(&plan.layout, column)));
        }
        Ok(())
    }

    /// Adds those of other rows.
    fn merge(&mut self, plan: &Plan<'_>, others: Self) -> Result<(), Error> {
        let merge =
            |states: &mut States, more: States| states.iter_mut().zip(more).for_each(|(own, more)| own.merge(more));
        match (self, others) {
            (Self::Whole(states), Self::Whole(more)) => merge(states, more),
            (Self::By(groups), Self::By(more)) => {
                for (key, more) in more {
                    merge(plan.group(groups, &key)?, more);
                }
            }
            _ => unreachable!("all groups of a question are of one kind"),
        }
        Ok(())
    }
}

/// Goes on, unless there is an error, which is then kept.
fn go_on(outcome: Result<(), Error>, failed: &mut Option<Error>) -> ControlFlow<()> {
    match outcome {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failed = Some(error);
            ControlFlow::Break(())
        }
    }
}

/// The default of [`Queries::aggregate_range`](crate::Queries::aggregate_range).
///
/// # Errors
/// As there.
pub fn over_rows<T: Transaction + ?Sized>(
    transaction: &mut T,
    scan: &Scan<'_>,
    grouping: &Grouping<'_>,
) -> Result<Vec<Group>, Error> {
    let plan = Plan::new(transaction, scan.table, *grouping)?;
    let (mut groups, mut failed) = (plan.groups()?, None);
    let projection = projection_of(&plan.layout, &plan.columns);
    transaction.scan_unchecked(&Scan { projection, ..scan.clone() }, &mut |row| {
        go_on(groups.add_row(&plan, row), &mut failed)
    })?;
    failed.map_or_else(|| plan.finish(groups), Err)
}

/// As [`over_rows`], from the column batches of a range: for protocols that lend columns. The columns must come in batches.
///
/// # Errors
/// As [`Queries::aggregate_range`](crate::Queries::aggregate_range), and [`crate::batch::NotNumeric`].
pub fn over_columns<T: Transaction + ?Sized>(
    transaction: &mut T,
    scan: &Scan<'_>,
    grouping: &Grouping<'_>,
) -> Result<Vec<Group>, Error> {
    let plan = Plan::new(transaction, scan.table, *grouping)?;
    let (mut groups, mut failed) = (plan.groups()?, None);
    // What is made of rows that did not stand still is dropped, errors included.
    transaction.visit_columns(scan, &plan.columns, &mut |batch| plan.of_batch(batch), &mut |part| {
        go_on(part.and_then(|part| groups.merge(&plan, part)), &mut failed)
    })?;
    failed.map_or_else(|| plan.finish(groups), Err)
}
