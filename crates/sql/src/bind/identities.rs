//! Columns that become identity columns, and that no longer are.

use sqlparser::ast::SequenceOptions;

use super::Binder;
use super::alter::Alteration;
use crate::catalog::Identity;
use crate::error::{SqlError, SqlState};
use crate::outcome::Notice;

impl Binder<'_> {
    /// `ADD GENERATED … AS IDENTITY`
    pub(super) fn add_identity(
        &mut self,
        at: usize,
        (is_always, options): (bool, &[SequenceOptions]),
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let own = change.draft.description.columns[at].clone();
        let refused = |what: &str| {
            let message = format!("column \"{}\" of relation \"{}\" {what}", own.name, change.draft.name);
            Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message))
        };
        match (own.identity, own.default.as_ref().or(own.generated.as_ref())) {
            _ if own.nullable => return refused("must be declared NOT NULL before identity can be added"),
            (Some(_), _) => return refused("is already an identity column"),
            (None, Some(_)) => return refused("already has a default value"),
            (None, None) => {}
        }
        let default = self.own_sequence(&mut change.draft, &own, options, true)?;
        let own = &mut change.draft.description.columns[at];
        own.default = Some(default);
        own.identity = Some(if is_always { Identity::Always } else { Identity::ByDefault });
        Ok(())
    }

    /// `SET GENERATED …`: which values the column takes.
    pub(super) fn set_identity(at: usize, to: Identity, change: &mut Alteration) -> Result<(), SqlError> {
        let own = &mut change.draft.description.columns[at];
        if own.identity.is_some() {
            own.identity = Some(to);
            return Ok(());
        }
        let message =
            format!("column \"{}\" of relation \"{}\" is not an identity column", own.name, change.draft.name);
        Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message))
    }

    /// `DROP IDENTITY`: the sequence goes.
    pub(super) fn drop_identity(
        &mut self,
        at: usize,
        may_be_missing: bool,
        change: &mut Alteration,
    ) -> Result<(), SqlError> {
        let table = change.draft.name.clone();
        let own = &mut change.draft.description.columns[at];
        let name = own.name.clone();
        if own.identity.take().is_none() {
            let message = format!("column \"{name}\" of relation \"{table}\" is not an identity column");
            if !may_be_missing {
                return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
            }
            let notice = Notice::remark(SqlState::SUCCESS, format!("{message}, skipping"));
            change.definition.notices.push(notice);
            return Ok(());
        }
        let sequence = own.default.take().as_deref().and_then(super::drops::sequence_of);
        if let Some(sequence) = sequence {
            change.draft.objects.retain(|(own, _)| *own != sequence);
            change.definition.set_object(&sequence, None);
        }
        Ok(())
    }
}
