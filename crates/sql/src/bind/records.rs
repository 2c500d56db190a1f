//! Records: variables that have the columns of the rows which are put there.
//!
//! Where a record gets rows of other columns, names behind that mean those. Which columns it has must not depend on the way that an execution takes: where
//! ways meet on which it has others, it cannot be used until it gets the next row. The body of a loop is bound again until what the records have at its beginning holds for
//! each round.

use super::bodies::Compiler;
use super::variables::{Field, Fields, What};
use crate::error::SqlError;
use crate::expr::{Expr, Typed};
use crate::plan::OutputColumn;
use crate::procedures::statements::{Statement, Target};
use crate::procedures::tree::{Put, Step};

/// What the records have, by their positions among the names.
pub(super) type Records = Vec<(usize, Fields)>;

impl Compiler<'_, '_, '_> {
    /// The record of this name, by its position among the names.
    pub(super) fn record(&self, targets: &[Target]) -> Option<usize> {
        let [target] = targets else { return None };
        let [name] = &target[..] else { return None };
        let at = self.entries.iter().rposition(|it| it.name == *name)?;
        matches!(self.entries[at].what, What::Record { .. }).then_some(at)
    }

    /// Where the columns of a row go.
    #[inline(never)]
    pub(super) fn puts(&mut self, targets: &[Target], columns: &[OutputColumn]) -> Result<Vec<Put>, SqlError> {
        let fields = match self.record(targets) {
            Some(at) => self.fields(at, columns)?,
            None => targets.iter().map(|target| self.target(target)).collect::<Result<Vec<_>, _>>()?,
        };
        let put = |(at, field): (usize, Field)| {
            let value = columns.get(at).map(|column| Typed::new(Expr::Column(at), column.of));
            let expr = value.map_or(Ok(Expr::NULL), |value| self.binder.put(value, field.of))?;
            Ok(Put { slot: field.slot, expr })
        };
        fields.into_iter().enumerate().map(put).collect()
    }

    /// The fields of a record that gets rows of these columns.
    fn fields(&mut self, at: usize, columns: &[OutputColumn]) -> Result<Vec<Field>, SqlError> {
        let What::Record { fields, is_fixed, known } = &self.entries[at].what else { return Ok(Vec::new()) };
        if let (Fields::Known(fields), true) = (fields, is_fixed) {
            return Ok(fields.clone());
        }
        let is_same = |(field, column): (&Field, &OutputColumn)| field.name == column.name && field.of == column.of;
        let is_known = |it: &&Vec<Field>| it.len() == columns.len() && it.iter().zip(columns).all(is_same);
        let fields = match known.iter().find(is_known) {
            Some(known) => known.clone(),
            None => {
                let new = columns.iter().map(|column| {
                    let (name, of) = (column.name.clone(), column.of);
                    Field { name, slot: self.new_slot(None), of }
                });
                let new: Vec<_> = new.collect();
                if let What::Record { known, .. } = &mut self.entries[at].what {
                    known.push(new.clone());
                }
                new
            }
        };
        self.set_state(at, Fields::Known(fields.clone()));
        Ok(fields)
    }

    pub(super) fn state(&self, at: usize) -> Fields {
        match &self.entries[at].what {
            What::Record { fields, .. } => fields.clone(),
            What::Value(_) => Fields::None,
        }
    }

    fn set_state(&mut self, at: usize, new: Fields) {
        if let What::Record { fields, .. } = &mut self.entries[at].what {
            *fields = new;
        }
    }

    /// What the records have now.
    pub(super) fn records(&self) -> Records {
        let is_record = |at: &usize| matches!(self.entries[*at].what, What::Record { .. });
        (0..self.entries.len()).filter(is_record).map(|at| (at, self.state(at))).collect()
    }

    pub(super) fn set_records(&mut self, records: &Records) {
        records.iter().for_each(|(at, fields)| self.set_state(*at, fields.clone()));
    }

    /// Other branches end here, too, where the records have this.
    pub(super) fn join_records(&mut self, others: &[Records]) {
        // Names of blocks that have ended are among them.
        let count = self.entries.len();
        for (at, other) in others.iter().flatten().filter(|(at, _)| *at < count) {
            let joined = match (self.state(*at), other) {
                (own, other) if own == *other => own,
                // Without a row all of its fields are NULL.
                (Fields::None, Fields::Known(_)) => other.clone(),
                (own @ Fields::Known(_), Fields::None) => own,
                _ => Fields::Lost,
            };
            self.set_state(*at, joined);
        }
    }

    /// The body of a loop, which each round begins by putting a row of these fields into a record, if one is given.
    pub(super) fn loop_body(
        &mut self,
        label: Option<&String>,
        body: &[Statement],
        row: Option<(usize, Fields)>,
    ) -> Result<(usize, Vec<Step>), SqlError> {
        let mut entry = self.records();
        // What a record has only grows: nothing, columns, those that are lost.
        loop {
            self.set_records(&entry);
            let id = self.enter(label.cloned(), true);
            let steps = self.statements(body);
            let mut others = self.around.pop().map(|it| it.exits).unwrap_or_default();
            let steps = steps?;
            others.push(entry.clone());
            self.join_records(&others);
            let mut next = self.records();
            if let Some((record, fields)) = &row
                && let Some(own) = next.iter_mut().find(|(at, _)| at == record)
            {
                own.1.clone_from(fields);
            }
            if next == entry {
                return Ok((id, steps));
            }
            entry = next;
        }
    }
}
