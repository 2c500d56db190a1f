//! The extended protocol: statements and portals by their names, and all up to Sync as one transaction.
//!
//! Statements between two Syncs are one transaction, unless the client holds one. A statement behind which Sync has come already is one by itself, which is run
//! again where it conflicts.

use std::collections::HashMap;

use polychron::Protocol;
use polychron_sql::{
    Bound, ColumnOrigin, Datum, Forms, Kind, Named, OwnedDatum, RowColumn, Rows, SqlError, SqlState, TransactionStatus,
    Type,
};

use crate::answers::Format;
use crate::error::{End, malformed};
use crate::messages::{Bind, Longs, Named as Target, Shorts};
use crate::session::{Session, Wire};

/// The most portals of a session.
const MOST: usize = 10_000;

/// The most bytes that portals take with their values, and with rows which clients have not fetched yet.
const MOST_BYTES: usize = 1 << 30;
/// Up to how many bytes a portal is small.
const SMALL: usize = 4096;

/// A statement with values, and how far it has come.
#[derive(Debug)]
struct Portal {
    /// Greater than those of portals that were bound before.
    number: u64,
    statement: Named,
    /// The name of the statement.
    name: String,
    values: Vec<OwnedDatum>,
    /// One for all columns, or one for each.
    formats: Vec<Format>,
    /// Its answer, once it has run.
    rows: Option<Rows>,
    /// How many of its rows the client has.
    given: usize,
    is_done: bool,
}

fn format_of(formats: &[Format], column: usize) -> Format {
    let format = if formats.len() == 1 { formats.first() } else { formats.get(column) };
    format.copied().unwrap_or(Format::Text)
}

impl Portal {
    fn format(&self, column: usize) -> Format {
        format_of(&self.formats, column)
    }

    fn has_columns(&self) -> bool {
        !self.statement.prepared.columns().is_empty()
    }
}

/// Portals by their names; the empty name stands for the latest one without a name.
#[derive(Debug, Default)]
pub(crate) struct Extended {
    portals: ByName<Portal>,
}

/// What has names, and the one without, which nearly all portals are.
#[derive(Debug)]
struct ByName<T> {
    unnamed: Option<T>,
    named: HashMap<String, T>,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { unnamed: None, named: HashMap::new() }
    }
}

impl<T> ByName<T> {
    fn get(&self, name: &str) -> Option<&T> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    fn insert(&mut self, name: &str, value: T) {
        if name.is_empty() {
            self.unnamed = Some(value);
        } else {
            self.named.insert(name.to_owned(), value);
        }
    }

    fn remove(&mut self, name: &str) -> Option<T> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    fn clear(&mut self) {
        self.unnamed = None;
        if !self.named.is_empty() {
            self.named.clear();
        }
    }

    fn is_full(&self) -> bool {
        self.named.len() >= MOST
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.unnamed.iter().chain(self.named.values())
    }

    fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.unnamed = self.unnamed.take().filter(&keeps);
        self.named.retain(|_, value| keeps(value));
    }
}

impl Extended {
    /// Their transaction has ended.
    pub(crate) fn forget_portals(&mut self) {
        self.portals.clear();
    }

    /// Whether there is room for the rows of this portal beside those of the others.
    fn check_room(&self, new: &Portal) -> Result<(), SqlError> {
        let bytes = |portal: &Portal| {
            let rows = portal.rows.as_ref().filter(|_| !portal.is_done).map_or(0, Rows::bytes);
            rows + portal.values.iter().map(OwnedDatum::bytes).sum::<usize>()
        };
        // Small ones are bounded by their number.
        if bytes(new) <= SMALL || bytes(new) + self.portals.iter().map(bytes).sum::<usize>() <= MOST_BYTES {
            return Ok(());
        }
        let error = SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory");
        Err(error.with_detail(format!("Portals of a session take at most {MOST_BYTES} bytes.")))
    }

    /// A return to a savepoint has undone what was bound behind this number.
    pub(crate) fn forget_portals_behind(&mut self, number: u64) {
        self.portals.retain(|portal| portal.number <= number);
    }

    /// A text of the simple protocol takes the place of what has no name.
    pub(crate) fn forget_unnamed(&mut self) {
        self.portals.remove("");
    }
}

/// What a client is told of a column.
pub(crate) fn described(column: &RowColumn) -> (&str, Type, Bound, Option<ColumnOrigin>) {
    (&column.name, column.of, column.bound, column.origin)
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

fn too_many_portals() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("a session has at most {MOST} portals"))
}

fn formats(codes: Shorts<'_>) -> Result<Vec<Format>, SqlError> {
    let format = |code| match code {
        0 => Ok(Format::Text),
        1 => Ok(Format::Binary),
        other => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unsupported format code: {other}"))),
    };
    codes.iter().map(format).collect()
}

impl<P: Protocol> Session<P> {
    fn refuse<O>(&mut self, error: SqlError) -> Result<O, SqlError> {
        Err(self.connection.fail_request(error))
    }

    pub(crate) fn parse(&mut self, name: &str, text: &str, types: Longs<'_>) -> Result<(), SqlError> {
        if let Err(error) = self.connection.check_new_name(name) {
            return self.refuse(error);
        }
        if name.is_empty() {
            // It is gone even if the new one is wrong.
            self.connection.forget_statement(name);
        }
        let mut declared = Vec::with_capacity(types.iter().len());
        for oid in types.iter() {
            match self.connection.type_of_oid(oid) {
                Ok(Some(of)) => declared.push(of),
                Err(error) => return self.refuse(error),
                Ok(None) => {
                    let message = format!("type with OID {oid} does not exist");
                    return self.refuse(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
            }
        }
        let prepared = self.connection.prepare_typed(text, &declared)?;
        let types = match prepared.parameters() {
            [] => declared,
            types => types.to_vec(),
        };
        let types = types.into();
        self.connection.name_statement(name, Named { prepared, types })?;
        self.wire.answers.plain(b'1');
        Ok(())
    }

    pub(crate) fn bind(&mut self, bind: &Bind<'_>) -> Result<(), SqlError> {
        match self.portal(bind) {
            Ok(mut portal) => {
                portal.number = self.connection.number_portal();
                if let Err(error) = self.extended.check_room(&portal) {
                    return self.refuse(error);
                }
                self.extended.portals.insert(bind.portal, portal);
                self.wire.answers.plain(b'2');
                Ok(())
            }
            Err(error) => self.refuse(error),
        }
    }

    /// The portal that a Bind makes.
    fn portal(&self, bind: &Bind<'_>) -> Result<Portal, SqlError> {
        let statement = self.connection.named_statement(bind.statement)?;
        if !bind.portal.is_empty() && self.extended.portals.get(bind.portal).is_some() {
            let message = format!("portal \"{}\" already exists", bind.portal);
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        }
        if self.extended.portals.is_full() {
            return Err(too_many_portals());
        }
        let (given, wanted) = (bind.values.count, statement.types.len());
        if given != wanted {
            let name = bind.statement;
            return Err(malformed(format!(
                "bind message supplies {given} parameters, but prepared statement \"{name}\" requires {wanted}"
            )));
        }
        let (parameter_formats, result_formats) = (formats(bind.formats)?, formats(bind.result_formats)?);
        if !matches!(bind.formats.len(), 0 | 1) && bind.formats.len() != wanted {
            let count = bind.formats.len();
            return Err(malformed(format!("bind message has {count} parameter formats but {wanted} parameters")));
        }
        let columns = statement.prepared.columns().len();
        if !matches!(result_formats.len(), 0 | 1) && result_formats.len() != columns {
            let count = result_formats.len();
            return Err(malformed(format!("bind message has {count} result formats but query has {columns} columns")));
        }
        let format = |at: usize| match parameter_formats[..] {
            [all] => all,
            _ => parameter_formats.get(at).copied().unwrap_or(Format::Text),
        };
        let mut values = Vec::with_capacity(wanted);
        for (at, (value, of)) in bind.values.iter().zip(&*statement.types).enumerate() {
            values.push(match value {
                None => OwnedDatum::NULL,
                Some(bytes) => self.connection.read_parameter(*of, bytes, format(at) == Format::Binary)?,
            });
        }
        let (statement, name) = (statement.clone(), bind.statement.to_owned());
        Ok(Portal { number: 0, statement, name, values, formats: result_formats, rows: None, given: 0, is_done: false })
    }

    pub(crate) fn describe(&mut self, named: Target<'_>) -> Result<(), SqlError> {
        let answers = &mut self.wire.answers;
        match named {
            Target::Statement(name) => {
                let statement = match self.connection.named_statement(name) {
                    Ok(statement) => statement,
                    Err(error) => return Err(self.connection.fail_request(error)),
                };
                answers.parameters(&statement.types);
                let columns = statement.prepared.columns();
                match columns {
                    [] => answers.plain(b'n'),
                    _ => answers.columns(columns.iter().map(described), |_| Format::Text),
                }
            }
            Target::Portal(name) => {
                let Some(portal) = self.extended.portals.get(name) else {
                    // A cursor is a portal, too.
                    let Some(columns) = self.connection.cursor_columns(name) else {
                        return self.refuse(no_portal(name));
                    };
                    answers.columns(columns.iter().map(described), |_| Format::Text);
                    return Ok(());
                };
                let columns = portal.statement.prepared.columns();
                match columns {
                    [] => answers.plain(b'n'),
                    _ => {
                        answers.columns(columns.iter().map(described), |at| portal.format(at));
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, named: Target<'_>) {
        // What is not there is closed already.
        match named {
            Target::Statement(name) => self.connection.forget_statement(name),
            Target::Portal(name) => drop(self.extended.portals.remove(name)),
        }
        self.wire.answers.plain(b'3');
    }

    pub(crate) fn execute(&mut self, name: &str, most: usize, next: Option<u8>) -> Result<Result<(), SqlError>, End> {
        let Some(mut portal) = self.extended.portals.remove(name) else { return Ok(self.refuse(no_portal(name))) };
        if portal.is_done && !portal.has_columns() {
            let message = format!("portal \"{name}\" cannot be run");
            return Ok(self.refuse(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)));
        }
        if portal.rows.is_some() && self.connection.transaction_status() == TransactionStatus::Failed {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Ok(self.refuse(SqlError::new(SqlState::IN_FAILED_TRANSACTION, message)));
        }
        let was_in_transaction = self.connection.is_in_transaction();
        if portal.rows.is_none() && portal.statement.prepared.kind() != Kind::Empty {
            // Sync ends the statement's transaction, whether it has come or not.
            if next != Some(b'S')
                && let Err(error) = self.connection.begin_pipeline()
            {
                return Ok(Err(error));
            }
        }
        let before = portal.statement.prepared.binding();
        let mut done = self.run_portal(&mut portal, most)?;
        if done.is_ok()
            && let Err(error) = self.extended.check_room(&portal)
        {
            done = self.refuse(error);
        }
        if portal.statement.prepared.binding() != before {
            self.connection.keep_bound(&portal.name, &portal.statement.prepared);
        }
        // The end of a transaction is that of its portals.
        let has_ended = was_in_transaction && !self.connection.is_in_transaction();
        if has_ended {
            self.extended.forget_portals();
        } else if done.is_ok() {
            self.extended.portals.insert(name, portal);
        }
        self.forget_undone();
        Ok(done)
    }

    /// Forgets portals that a return to a savepoint has undone.
    pub(crate) fn forget_undone(&mut self) {
        if let Some(number) = self.connection.take_undone_portals() {
            self.extended.forget_portals_behind(number);
        }
    }

    fn run_portal(&mut self, portal: &mut Portal, most: usize) -> Result<Result<(), SqlError>, End> {
        match portal.statement.prepared.kind() {
            Kind::Empty => self.wire.answers.plain(b'I'),
            Kind::CopyIn | Kind::CopyOut if portal.is_done => {
                return Ok(self.refuse(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, "portal cannot be run")));
            }
            Kind::CopyIn => {
                portal.is_done = true;
                return self.copy_in(portal.statement.prepared.text());
            }
            Kind::CopyOut => {
                portal.is_done = true;
                return self.copy_out(portal.statement.prepared.text());
            }
            Kind::Statement => {
                if portal.rows.is_none() {
                    let values: Vec<Datum<'_>> = portal.values.iter().map(OwnedDatum::get).collect();
                    let Named { prepared, types } = &mut portal.statement;
                    let Session { connection, wire, .. } = self;
                    let formats = &portal.formats;
                    // A portal that is left and gone on with has its whole answer.
                    let answered = match most {
                        usize::MAX => {
                            let forms = connection.forms();
                            let give = &mut |columns: &[RowColumn], row: &[Datum<'_>]| {
                                let values = columns.iter().zip(row).map(|(column, value)| (column.of, *value));
                                wire.answers.values(values, &forms, |column| format_of(formats, column));
                                wire.write_much()
                            };
                            connection.stream_decoded(prepared, types, &values, give)
                        }
                        _ => connection.answer_decoded(prepared, types, &values),
                    };
                    if self.wire.is_gone {
                        return Err(End::Gone);
                    }
                    match answered {
                        Ok(rows) => portal.rows = Some(rows),
                        Err(error) => return Ok(Err(error)),
                    }
                }
                give(&mut self.wire, portal, most, &self.connection.forms())?;
            }
        }
        Ok(Ok(()))
    }
}

/// Gives the client the next rows of a portal, or tells it that there are no more.
fn give(wire: &mut Wire, portal: &mut Portal, most: usize, forms: &Forms) -> Result<(), End> {
    let Some(rows) = &portal.rows else { return Ok(()) };
    if portal.given == 0 {
        wire.answers.notices(rows.notices());
    }
    let end = portal.given.saturating_add(most).min(rows.len());
    for at in portal.given..end {
        let Some(row) = rows.get(at) else { break };
        wire.answers.row(row, rows.columns(), forms, |column| portal.format(column));
        wire.answers.write_much(&wire.socket)?;
    }
    // As many rows as were asked for may not be all, even if no more come.
    let is_suspended = end < rows.len() || most != usize::MAX && end - portal.given == most;
    if is_suspended {
        wire.answers.plain(b's');
    } else {
        match rows.counted_verb() {
            // Where there are rows, it counts those that this Execute has given.
            Some(verb) if verb == "SELECT" || !rows.columns().is_empty() => {
                // What was given while the query ran counts once.
                let before = if portal.is_done { 0 } else { rows.given() };
                wire.answers.complete_counted(verb, before + (end - portal.given) as u64);
            }
            Some(verb) => wire.answers.complete_counted(verb, rows.count()),
            None => wire.answers.complete(&rows.tag()),
        }
        portal.is_done = true;
    }
    portal.given = end;
    Ok(())
}
