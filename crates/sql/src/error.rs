//! What a statement ends with when it does not succeed: PostgreSQL's codes and the first lines of its messages.

use std::fmt;

use polychron_base::Error;
use polychron_schema::EvolutionError;
use sqlparser::tokenizer::Location;

use crate::names::Name;
use crate::outcome::Notice;

/// A code of five characters, as the appendix "PostgreSQL Error Codes" of its manual lists them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub(crate) &'static str);

impl SqlState {
    /// The five characters.
    pub const fn code(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

macro_rules! states {
    ($($name:ident $code:literal $what:literal;)*) => {
        impl SqlState {
            $(#[doc = $what] pub const $name: Self = Self($code);)*
        }
    };
}

states! {
    SUCCESS "00000" "Nothing is wrong.";
    NO_DATA "02000" "No row, where one is wanted.";
    PROTOCOL_VIOLATION "08P01" "A value has fewer bytes than it needs.";
    INVALID_AUTHORIZATION "28000" "There is no such role, or it may not connect.";
    WARNING "01000" "Something that is no error.";
    INVALID_GRANT "0LP01" "What cannot be granted.";
    OBJECT_IN_USE "55006" "What is to be dropped is in use.";
    INVALID_PASSWORD "28P01" "The password is wrong.";
    UNDEFINED_STATEMENT "26000" "There is no such prepared statement.";
    UNDEFINED_DATABASE "3D000" "There is no such database.";
    DUPLICATE_STATEMENT "42P05" "There is a prepared statement of this name.";
    ADMIN_SHUTDOWN "57P01" "The server ends.";
    FEATURE_NOT_SUPPORTED "0A000" "What PostgreSQL has and this database has not.";
    CARDINALITY_VIOLATION "21000" "A subquery in an expression gives more than one row.";
    NULL_VALUE "22002" "NULL is read as a value of a type that has none.";
    STRING_DATA_RIGHT_TRUNCATION "22001" "A text is longer than its column.";
    NUMERIC_VALUE_OUT_OF_RANGE "22003" "A number does not fit its type.";
    INVALID_DATETIME_FORMAT "22007" "A text is no date or time.";
    DATETIME_FIELD_OVERFLOW "22008" "A date or time that does not exist, or is out of range.";
    CHARACTER_NOT_IN_REPERTOIRE "22021" "Bytes that are no text in UTF-8.";
    DIVISION_BY_ZERO "22012" "A division by zero.";
    INVALID_ESCAPE_SEQUENCE "22025" "A pattern ends with its escape character.";
    NULL_NOT_ALLOWED "22004" "An argument is NULL that must not be.";
    INVALID_NAME "42602" "No name that this may have.";
    INVALID_PARAMETER_VALUE "22023" "An argument or a setting has no such value.";
    SEQUENCE_LIMIT "2200H" "A sequence has no more numbers.";
    INVALID_ROW_COUNT_IN_LIMIT "2201W" "A negative LIMIT.";
    INVALID_ROW_COUNT_IN_OFFSET "2201X" "A negative OFFSET.";
    SUBSTRING_ERROR "22011" "A substring of negative length.";
    INVALID_TEXT_REPRESENTATION "22P02" "A text does not stand for a value of the type.";
    INVALID_BINARY_REPRESENTATION "22P03" "Bytes that stand for no value of the type.";
    BAD_COPY_FORMAT "22P04" "The data of a COPY are not written as it says.";
    NOT_NULL_VIOLATION "23502" "NULL in a column that has none.";
    FOREIGN_KEY_VIOLATION "23503" "A row without its parent, or a parent with children.";
    UNIQUE_VIOLATION "23505" "A key that is there already.";
    CHECK_VIOLATION "23514" "A row that a CHECK does not allow.";
    ACTIVE_TRANSACTION "25001" "A statement that cannot run inside of a transaction.";
    READ_ONLY_TRANSACTION "25006" "A change in a read-only transaction.";
    NO_ACTIVE_TRANSACTION "25P01" "A statement that makes sense inside of a transaction alone.";
    IN_FAILED_TRANSACTION "25P02" "A statement behind an error of the same transaction.";
    DEPENDENT_OBJECTS "2BP01" "Others depend on what is to be dropped.";
    INVALID_CURSOR_NAME "34000" "There is no such cursor.";
    INVALID_SCHEMA_NAME "3F000" "There is no such schema.";
    INVALID_SAVEPOINT "3B001" "There is no such savepoint.";
    SERIALIZATION_FAILURE "40001" "The transaction conflicts with others: run it again.";
    DEADLOCK_DETECTED "40P01" "The transaction waits for one that its own thread has open, or the session for itself, over advisory locks of others.";
    INSUFFICIENT_PRIVILEGE "42501" "What nobody may do.";
    SYNTAX_ERROR "42601" "The text is no statement.";
    DUPLICATE_COLUMN "42701" "Two columns of one name.";
    AMBIGUOUS_COLUMN "42702" "A name that more than one column has.";
    UNDEFINED_COLUMN "42703" "There is no such column.";
    UNDEFINED_OBJECT "42704" "There is no such type, index, constraint or setting.";
    DUPLICATE_OBJECT "42710" "There is such a constraint or object already.";
    DUPLICATE_ALIAS "42712" "Two tables of one name in a FROM.";
    AMBIGUOUS_ALIAS "42P09" "A name that more than one table has.";
    AMBIGUOUS_FUNCTION "42725" "More than one function or operator fits.";
    DUPLICATE_FUNCTION "42723" "There is such a procedure already.";
    GROUPING_ERROR "42803" "A column outside of groups and aggregates.";
    DATATYPE_MISMATCH "42804" "A value of another type than the place needs.";
    WRONG_OBJECT_TYPE "42809" "The name stands for another kind of object.";
    GENERATED_ALWAYS "428C9" "A value for a column that has its own.";
    RESERVED_NAME "42939" "A name that the system keeps for itself.";
    CANNOT_COERCE "42846" "There is no cast from the one type to the other.";
    UNDEFINED_FUNCTION "42883" "There is no such function or operator.";
    UNDEFINED_TABLE "42P01" "There is no such table.";
    UNDEFINED_PARAMETER "42P02" "There is no such parameter.";
    INVALID_CURSOR_DEFINITION "42P11" "A cursor that cannot be.";
    DUPLICATE_CURSOR "42P03" "There is a cursor of this name.";
    DUPLICATE_TABLE "42P07" "There is a table or index of this name.";
    INVALID_COLUMN_REFERENCE "42P10" "A position in ORDER BY or GROUP BY that is none, or no constraint for ON CONFLICT.";
    INDETERMINATE_DATATYPE "42P18" "A parameter whose type nothing tells.";
    INVALID_FUNCTION_DEFINITION "42P13" "A definition of a procedure that cannot be.";
    DUPLICATE_SCHEMA "42P06" "There is a schema of this name.";
    INVALID_TABLE_DEFINITION "42P16" "A definition of a table that cannot be.";
    INVALID_OBJECT_DEFINITION "42P17" "An object that cannot be as it is defined: a view that is made of itself.";
    INVALID_FOREIGN_KEY "42830" "A foreign key that leads to no unique key.";
    TOO_MANY_CONNECTIONS "53300" "All connections are in use.";
    OUT_OF_MEMORY "53200" "No memory.";
    DISK_FULL "53100" "No room on the disk.";
    PROGRAM_LIMIT_EXCEEDED "54000" "Beyond one of the limits: a row, a key, a list.";
    STATEMENT_TOO_COMPLEX "54001" "Nested too deeply.";
    TOO_MANY_COLUMNS "54011" "More columns than a table may have.";
    CONFIG_FILE "F0000" "A file of the configuration is wrong.";
    CANNOT_CHANGE "55P02" "The setting is what it is.";
    NOT_IN_PREREQUISITE_STATE "55000" "The object is not ready for this.";
    LOCK_NOT_AVAILABLE "55P03" "Other transactions use the table, for longer than was to be waited.";
    IDLE_IN_TRANSACTION_TIMEOUT "25P03" "A held transaction has heard nothing for too long, and is rolled back.";
    QUERY_CANCELED "57014" "Cancelled, or beyond its time.";
    IO_ERROR "58030" "The files failed.";
    RAISE_EXCEPTION "P0001" "What a procedure raises.";
    NO_DATA_FOUND "P0002" "No row, where a procedure wants one.";
    TOO_MANY_ROWS "P0003" "More than the one row that a procedure wants.";
    INTERNAL_ERROR "XX000" "A fault of the database.";
}

/// Why a statement has failed. What PostgreSQL says in the same case stands in `message`.
#[derive(Clone, Debug)]
pub struct SqlError {
    inner: Box<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
    notices: Vec<Notice>,
    /// Which of the rows that a statement inserts it is about.
    row: Option<usize>,
    about: About,
    place: Place,
}

/// Where in its text a statement is wrong.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Unknown,
    /// By line and column, both from 1.
    At(u64, u64),
    /// By its character, from 1.
    Position(usize),
}

/// The object that an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// Its schema.
    pub schema: Option<String>,
    /// The table.
    pub table: Option<String>,
    /// The column of the table.
    pub column: Option<String>,
    /// The constraint of the table.
    pub constraint: Option<String>,
}

/// The error of a statement that is bound to a table in whose place another one has come.
const ALTERED: &str = "could not serialize access due to concurrent definition of a table";

impl SqlError {
    /// There is no more memory for this.
    pub(crate) fn out_of_memory(detail: impl Into<String>) -> Self {
        Self::new(SqlState::OUT_OF_MEMORY, "out of memory").with_detail(detail)
    }

    /// An error with this code and first line.
    #[cold]
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        let inner = Inner {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            notices: Vec::new(),
            row: None,
            about: About::default(),
            place: Place::Unknown,
        };
        Self { inner: Box::new(inner) }
    }

    /// Whether a table of the statement is gone, or another one has come in its place, in another way than through this object: the catalog does not know it yet.
    pub(crate) fn is_of_unknown_table(&self) -> bool {
        self.state() == SqlState::UNDEFINED_TABLE
            || self.state() == SqlState::SERIALIZATION_FAILURE && self.message() == ALTERED
    }

    /// What the engine has refused or failed with.
    #[cold]
    pub(crate) fn of_engine(error: Error) -> Self {
        let message = crate::names::in_words(&error.to_string());
        let state = match &error {
            Error::Conflict | Error::Conflicts(_) => {
                let message = "could not serialize access due to concurrent update";
                return Self::new(SqlState::SERIALIZATION_FAILURE, message)
                    .with_detail(crate::names::in_words(&error.to_string()))
                    .with_hint("The transaction might succeed if retried.");
            }
            Error::WaitsForItself(_) => {
                return Self::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").with_detail(message);
            }
            Error::NoParent(_) | Error::HasChildren(_) => SqlState::FOREIGN_KEY_VIOLATION,
            Error::Duplicate(_) => SqlState::UNIQUE_VIOLATION,
            Error::NameTaken(_) => SqlState::DUPLICATE_TABLE,
            Error::NoSuchTable(_) => SqlState::UNDEFINED_TABLE,
            // Another one has come in its place, to which the statement is bound when it is run again.
            Error::Other(other) if other.downcast_ref::<EvolutionError>().is_some() => {
                return Self::new(SqlState::SERIALIZATION_FAILURE, ALTERED)
                    .with_detail(message)
                    .with_hint("The transaction might succeed if retried.");
            }
            Error::Definition(_) => SqlState::INVALID_TABLE_DEFINITION,
            Error::OutOfMemory(_) => SqlState::OUT_OF_MEMORY,
            Error::TimedOut(_) => {
                return Self::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout");
            }
            Error::Cancelled => {
                return Self::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
            }
            Error::KeyTooLong(_) | Error::RowTooLong(_) | Error::TooLong(_) => SqlState::PROGRAM_LIMIT_EXCEEDED,
            Error::ReadOnly | Error::OpenedReadOnly(_) => SqlState::READ_ONLY_TRANSACTION,
            Error::Unsupported(_) => SqlState::FEATURE_NOT_SUPPORTED,
            Error::TooManyWorkers { .. } => SqlState::TOO_MANY_CONNECTIONS,
            _ => SqlState::INTERNAL_ERROR,
        };
        Self::new(state, message)
    }

    /// What is not there yet, by its name.
    #[cold]
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// Whether the protocol refuses a call because the thread has a transaction open.
    pub(crate) fn is_from_inside(&self) -> bool {
        self.state() == SqlState::FEATURE_NOT_SUPPORTED && self.message().contains("from inside a transaction")
    }

    /// What cannot be.
    #[cold]
    pub(crate) fn internal(what: impl Into<String>) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, what)
    }

    /// The same error with a line that says more.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.inner.detail = Some(detail.into());
        self
    }

    /// The same error without the line that says more.
    #[must_use]
    pub(crate) fn without_detail(mut self) -> Self {
        self.inner.detail = None;
        self
    }

    /// The same error with a line of advice.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }

    /// The same error with a line behind those that say where it comes from: in procedures, or in the data of a COPY.
    #[must_use]
    pub(crate) fn with_context(mut self, place: impl Into<String>) -> Self {
        let context = self.inner.context.get_or_insert_default();
        if !context.is_empty() {
            context.push('\n');
        }
        context.push_str(&place.into());
        self
    }

    /// The same error of a statement that had noted this before.
    #[must_use]
    pub(crate) fn behind(mut self, mut notices: Vec<Notice>) -> Self {
        notices.append(&mut self.inner.notices);
        self.inner.notices = notices;
        self
    }

    /// The same error about one of the rows that are inserted, by its position.
    #[must_use]
    pub(crate) fn at_row(mut self, row: usize) -> Self {
        self.inner.row = Some(row);
        self
    }

    /// The same error about this table, and a column or a constraint of it.
    #[must_use]
    pub(crate) fn about(mut self, table: &Name, column: Option<&str>, constraint: Option<&str>) -> Self {
        self.inner.about = About {
            schema: Some(table.schema().to_owned()),
            table: Some(table.plain().to_owned()),
            column: column.map(str::to_owned),
            constraint: constraint.map(str::to_owned),
        };
        self
    }

    /// The same error of what stands there in the text. What is known already is nearer.
    #[must_use]
    pub(crate) fn at(mut self, place: Location) -> Self {
        if matches!(self.inner.place, Place::Unknown) && place.line > 0 {
            self.inner.place = Place::At(place.line, place.column);
        }
        self
    }

    /// The same error of a statement of this text. An error within a procedure has a place in that one's text, and none here.
    #[must_use]
    pub(crate) fn within(mut self, text: &str) -> Self {
        let Place::At(line, column) = self.inner.place else { return self };
        self.inner.place = Place::Unknown;
        if self.inner.context.is_none()
            && let Some(lines) = usize::try_from(line - 1).ok().filter(|&lines| lines <= text.matches('\n').count())
        {
            let before: usize = text.split_inclusive('\n').take(lines).map(|line| line.chars().count()).sum();
            let position = before.saturating_add(usize::try_from(column).unwrap_or(usize::MAX));
            self.inner.place = Place::Position(position.min(text.chars().count() + 1));
        }
        self
    }

    /// The same error at the end of this text.
    #[must_use]
    pub(crate) fn at_end(mut self, text: &str) -> Self {
        self.inner.place = Place::Position(text.chars().count() + 1);
        self
    }

    /// The row that it is about.
    pub(crate) fn row(&self) -> Option<usize> {
        self.inner.row
    }

    /// The code.
    pub fn state(&self) -> SqlState {
        self.inner.state
    }

    /// The first line.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// What says more, with values.
    pub fn detail(&self) -> Option<&str> {
        self.inner.detail.as_deref()
    }

    /// Advice.
    pub fn hint(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// Where it comes from, the innermost place first, in a line each: in procedures, or in the data of a COPY.
    pub fn context(&self) -> Option<&str> {
        self.inner.context.as_deref()
    }

    /// The object that it is about.
    pub fn object(&self) -> &About {
        &self.inner.about
    }

    /// Which character of the text is wrong, from 1.
    pub fn position(&self) -> Option<usize> {
        match self.inner.place {
            Place::Position(position) => Some(position),
            _ => None,
        }
    }

    /// What the statement had for the client before it failed.
    pub fn notices(&self) -> &[Notice] {
        &self.inner.notices
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.inner.state, self.inner.message)?;
        self.detail().map_or(Ok(()), |detail| write!(out, " ({detail})"))?;
        self.context().map_or(Ok(()), |context| write!(out, " ({context})"))
    }
}

impl std::error::Error for SqlError {}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        Self::of_engine(error)
    }
}
