//! What a server needs of a connection besides statements: values as bytes, the state of the transaction, and transactions that span several messages.

use std::fmt;

use bumpalo::Bump;
use polychron_engine::Protocol;

use crate::bind::Binder;
use crate::connection::Connection;
use crate::context::{Context, Now, now};
use crate::control::Modes;
use crate::copy::binary;
use crate::datum::{Datum, OwnedDatum};
use crate::error::{SqlError, SqlState};
use crate::parse::{self, Command};
use crate::prepared::Kind;
use crate::text::{self, Zone};
use crate::types::Type;

/// The role that every database has, and which may do everything.
pub const ROLE: &str = crate::bind::ROLE;
/// The name of the one database.
pub const DATABASE: &str = crate::bind::DATABASE;

/// What a client is told of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// The client holds none.
    Idle,
    /// The client holds one.
    Open,
    /// The client holds one that has failed, and was not ended.
    Failed,
}

impl Type {
    /// The type of this object id in PostgreSQL; `None`: it is none of a parameter. 0 is [`Type::Unknown`].
    pub fn of_oid(oid: u32) -> Option<Self> {
        match oid {
            0 | 705 => Some(Self::Unknown),
            // `name`, which is a text here.
            19 => Some(Self::Text),
            _ => Self::known().find(|of| of.oid() == oid && !matches!(of, Self::Void | Self::Record)),
        }
    }

    /// How many bytes each value of it has; −1: they differ.
    pub fn size(self) -> i16 {
        match self {
            Self::Bool => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Oid | Self::Float4 | Self::Date | Self::Enum(_) => 4,
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::Timestamptz => 8,
            Self::Interval | Self::Uuid => 16,
            Self::Unknown => -2,
            Self::Void => 4,
            other if other.is_object() => 4,
            _ => -1,
        }
    }
}

impl<P: Protocol> Connection<P> {
    /// The type of this object id, as [`Type::of_oid`] has it, or the enum of the database that has it.
    ///
    /// # Errors
    /// The definitions cannot be read.
    pub fn type_of_oid(&self, oid: u32) -> Result<Option<Type>, SqlError> {
        if let Some(known) = Type::of_oid(oid) {
            return Ok(Some(known));
        }
        let all = self.catalog().enums()?;
        let mut types = all.values().flat_map(|of| std::iter::once(Type::Enum(*of)).chain(Type::Enum(*of).array()));
        Ok(types.find(|of| of.oid() == oid))
    }

    /// What a client is told of its transaction.
    pub fn transaction_status(&self) -> TransactionStatus {
        match (self.session.is_explicit(), self.session.has_failed()) {
            (false, _) => TransactionStatus::Idle,
            (true, false) => TransactionStatus::Open,
            (true, true) => TransactionStatus::Failed,
        }
    }

    /// Begins a transaction for several statements of which the client has not said that they are one, unless one is open: up to
    /// [`Connection::end_pipeline`]. BEGIN makes it the client's.
    ///
    /// # Errors
    /// The engine begins none, or the protocol plans whole transactions.
    pub fn begin_pipeline(&mut self) -> Result<(), SqlError> {
        self.session.check_thread()?;
        if self.session.is_planned() {
            return Err(self.needs_block("several statements up to one Sync"));
        }
        self.is_pipelined = true;
        if self.session.is_open() {
            return Ok(());
        }
        self.database.know_all()?;
        self.session.begin(Modes::default(), false)
    }

    /// A number for a new portal, greater than those of older ones.
    pub fn number_portal(&mut self) -> u64 {
        self.session.next_cursor()
    }

    /// Portals with greater numbers than this are gone: since it was asked last, ROLLBACK TO has returned to a savepoint that was set before them.
    pub fn take_undone_portals(&mut self) -> Option<u64> {
        self.session.take_undone()
    }

    /// Whether statements run in such a transaction.
    pub fn is_pipelined(&self) -> bool {
        self.is_pipelined && self.session.is_open() && !self.session.is_explicit()
    }

    /// Commits what [`Connection::begin_pipeline`] has begun, unless it has failed before, or became the client's.
    ///
    /// # Errors
    /// What the commit fails with.
    pub fn end_pipeline(&mut self) -> Result<(), SqlError> {
        if !std::mem::take(&mut self.is_pipelined) || !self.session.is_open() || self.session.is_explicit() {
            return Ok(());
        }
        self.session.check_thread()?;
        self.limited("", |connection| connection.commit().map(|_| ()))
    }

    /// A request of the client has failed before a statement could: the open transaction has failed with it.
    pub fn fail_request(&mut self, error: SqlError) -> SqlError {
        let error = self.fail(error);
        self.finish_definitions();
        error
    }

    /// The value that a client has sent for a parameter of this type, as text or in the binary form of the type.
    ///
    /// # Errors
    /// The bytes stand for no value of the type.
    pub fn read_parameter(&self, of: Type, bytes: &[u8], is_binary: bool) -> Result<OwnedDatum, SqlError> {
        let of = self.type_now(of)?;
        let arena = Bump::new();
        if is_binary {
            return binary::read(of, bytes, &arena).map(Datum::owned);
        }
        let text = str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let wrong =
            || SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"");
        let text = text.ok_or_else(wrong)?;
        if of.is_object() {
            let catalog = self.catalog();
            let id = Binder::new(&catalog, &[], self.session.drawn()).id_of_name(of, text)?;
            return Ok(Datum::Int(id).owned());
        }
        let at = self.session.now().map_or_else(|| Now::At(now()), Now::At);
        let context = Context { now: at, ..Context::of(&arena, &self.zone) };
        text::read(of, text, &context).map(Datum::owned)
    }

    /// How values are written for this client.
    pub fn forms(&self) -> Forms {
        Forms { zone: self.zone.clone() }
    }
}

/// How values are written for a client.
pub struct Forms {
    zone: Zone,
}

impl fmt::Debug for Forms {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Forms").finish_non_exhaustive()
    }
}

impl Forms {
    /// Appends a value that is not NULL as text, as PostgreSQL shows it.
    pub fn text(&self, of: Type, value: Datum<'_>, out: &mut String) {
        text::write(of, value, &self.zone, out);
    }

    /// Appends a value in the binary form of its type, behind its length in four bytes; NULL has the length −1.
    pub fn binary(&self, of: Type, value: Datum<'_>, out: &mut Vec<u8>) {
        binary::write(of, value, out);
    }
}

/// Whether a text is one COPY, whose data the client sends or gets.
pub fn copy_of(text: &str) -> Option<Kind> {
    match parse::commands(text).ok()?.as_slice() {
        [Command::Copy(copy)] => Some(if copy.is_from { Kind::CopyIn } else { Kind::CopyOut }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_their_object_ids() {
        for of in Type::ALL.into_iter().chain(Type::ALL.into_iter().filter_map(Type::array)) {
            assert_eq!(Type::of_oid(of.oid()), Some(of));
        }
        assert_eq!((Type::of_oid(0), Type::of_oid(1)), (Some(Type::Unknown), None));
    }
}
