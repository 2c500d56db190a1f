//! Who hands privileges on, and which of them.

use super::Binder;
use super::grants::{OfColumns, Target};
use super::needs::denied;
use crate::error::{SqlError, SqlState};
use crate::outcome::Notice;
use crate::roles::{Access, Grant, Kind, Privileges, RoleId, acl};
use crate::statement::Definition;

/// The position of a column, what is wanted of it, and in whose name how much of that may be handed on.
pub(super) type HandedOn = (usize, Privileges, (RoleId, Privileges));

impl Binder<'_> {
    /// In whose name the session's role hands privileges on, and which of them it may: the owner's where it can, else its own or those of a role that it acts as.
    fn grantor(
        &self,
        (access, grants, kind): (&Access, &[Grant], Kind),
        wanted: Privileges,
    ) -> Result<(RoleId, Privileges), SqlError> {
        let rights = self.catalog.rights()?;
        let owner = access.owner();
        if rights.owns(access) {
            return Ok((owner, wanted));
        }
        let options = |role: RoleId| acl::options_of(grants, role, owner, kind) & wanted;
        let best = rights.acting.iter().copied().max_by_key(|role| {
            let own = options(*role);
            (own.count_ones(), *role == rights.role)
        });
        let best = best.unwrap_or(rights.role);
        Ok((best, options(best)))
    }

    /// Of what is wanted, that which the session's role may hand on; whose grant it is. Nothing at all is an error where it has no privilege, and a warning otherwise.
    pub(super) fn may_hand_on(
        &self,
        (target, column): (&Target, Option<usize>),
        (access, kind): (&Access, Kind),
        (wanted, is_all): (Privileges, bool),
        (definition, revokes): (&mut Definition, bool),
    ) -> Result<(RoleId, Privileges), SqlError> {
        // Of a column, what was granted of the whole counts, too.
        let of_column: &[Grant] = match (target, column) {
            (Target::Object(_, object), Some(column)) => object.column_grants(column),
            _ => &[],
        };
        let grants: Vec<_> = access.of(kind).iter().chain(of_column).cloned().collect();
        let (grantor, options) = self.grantor((access, &grants, kind), wanted)?;
        let name = target.shown();
        let rights = self.catalog.rights()?;
        let held = rights.held(access, kind) | rights.held_of_column(of_column);
        let named = match (target, column) {
            (Target::Object(_, object), Some(column)) => object.columns().into_iter().find(|(at, _)| *at == column),
            _ => None,
        };
        let shown = match named {
            Some((_, column)) => format!("column \"{column}\" of relation \"{name}\""),
            None => format!("\"{name}\""),
        };
        let verb = if revokes { "could be revoked" } else { "were granted" };
        let state = if revokes { SqlState("01006") } else { SqlState("01007") };
        if options == 0 {
            if held == 0 {
                return Err(denied(kind, &name));
            }
            definition.notices.push(Notice::warning(state, format!("no privileges {verb} for {shown}")));
        } else if options != wanted && !is_all {
            definition.notices.push(Notice::warning(state, format!("not all privileges {verb} for {shown}")));
        }
        Ok((grantor, options))
    }

    /// The same of columns, each with what may be handed on of it, and whose grant that is.
    pub(super) fn may_hand_on_columns(
        &self,
        target: &Target,
        access: &Access,
        (of_columns, is_all): (OfColumns, bool),
        (definition, revokes): (&mut Definition, bool),
    ) -> Result<Vec<HandedOn>, SqlError> {
        let each = of_columns.into_iter().map(|(column, privileges)| {
            let (place, wanted) = ((target, Some(column)), (privileges, is_all));
            let own = self.may_hand_on(place, (access, target.kind()), wanted, (&mut *definition, revokes))?;
            Ok((column, privileges, own))
        });
        each.collect()
    }
}
