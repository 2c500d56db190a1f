//! The extended protocol: statements and portals by their names, and all up to Sync as one transaction.
//!
//! Statements between two Syncs are one transaction, unless the client holds one. A statement behind which Sync has come already is one by itself, which is run
//! again where it conflicts.

use polychron::Protocol;
use polychron_sql::{
    Bound, BoundStatement, ColumnOrigin, Datum, Kind, Named, OwnedDatum, Portal, RowColumn, Rows, SqlError, SqlState,
    Type,
};

use crate::answers::Format;
use crate::error::{End, malformed};
use crate::messages::{Bind, Longs, Named as Target, Shorts};
use crate::session::Session;

/// How a column is sent, as the client has bound it.
fn format_of(formats: &[bool], column: usize) -> Format {
    let is_binary = if formats.len() == 1 { formats.first() } else { formats.get(column) };
    if is_binary.copied().unwrap_or(false) { Format::Binary } else { Format::Text }
}

/// What a client is told of a column.
pub(crate) fn described(column: &RowColumn) -> (&str, Type, Bound, Option<ColumnOrigin>) {
    (&column.name, column.of, column.bound, column.origin)
}

/// Whether values are binary.
fn formats(codes: Shorts<'_>) -> Result<Vec<bool>, SqlError> {
    let format = |code| match code {
        0 => Ok(false),
        1 => Ok(true),
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
        let bound = self.bound(bind).and_then(|bound| self.connection.bind_portal(bind.portal, bound));
        if let Err(error) = bound {
            return self.refuse(error);
        }
        self.wire.answers.plain(b'2');
        Ok(())
    }

    /// What a Bind makes a portal of.
    fn bound(&self, bind: &Bind<'_>) -> Result<BoundStatement, SqlError> {
        let statement = self.connection.named_statement(bind.statement)?;
        self.connection.check_portal_name(bind.portal)?;
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
        let mut values = Vec::with_capacity(wanted);
        for (at, (value, of)) in bind.values.iter().zip(&*statement.types).enumerate() {
            values.push(match value {
                None => OwnedDatum::NULL,
                Some(bytes) => {
                    let is_binary = format_of(&parameter_formats, at) == Format::Binary;
                    self.connection.read_parameter(*of, bytes, is_binary)?
                }
            });
        }
        let (statement, name) = (statement.clone(), bind.statement.to_owned());
        Ok(BoundStatement { statement, name, values, formats: result_formats })
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
                let portal = match self.connection.portal(name) {
                    Ok(portal) => portal,
                    Err(error) => return Err(self.connection.fail_request(error)),
                };
                match portal.columns() {
                    [] => answers.plain(b'n'),
                    columns => answers.columns(columns.iter().map(described), |at| format_of(portal.formats(), at)),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, named: Target<'_>) {
        // What is not there is closed already.
        match named {
            Target::Statement(name) => self.connection.forget_statement(name),
            Target::Portal(name) => self.connection.close_portal(name),
        }
        self.wire.answers.plain(b'3');
    }

    pub(crate) fn execute(&mut self, name: &str, most: usize, next: Option<u8>) -> Result<Result<(), SqlError>, End> {
        // Sync ends the statement's transaction, whether it has come or not.
        if next != Some(b'S')
            && self.connection.portal(name).is_ok_and(Portal::needs_transaction)
            && let Err(error) = self.connection.begin_pipeline()
        {
            return Ok(Err(error));
        }
        let mut portal = match self.connection.take_portal(name, most) {
            Ok(Some(portal)) => portal,
            Ok(None) => return self.fetch(name, most),
            Err(error) => return Ok(self.refuse(error)),
        };
        if portal.is_done() {
            let message = format!("portal \"{name}\" cannot be run");
            return Ok(self.refuse(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)));
        }
        let Some(BoundStatement { statement, name, .. }) = portal.bound() else { return Ok(Ok(())) };
        let (name, before) = (std::mem::take(name), statement.prepared.binding());
        let done = self.run_portal(&mut portal, most)?;
        if let Some(BoundStatement { statement, .. }) = portal.bound()
            && statement.prepared.binding() != before
        {
            self.connection.keep_bound(&name, &statement.prepared);
        }
        Ok(done.and_then(|()| self.connection.put_portal(portal).or_else(|error| self.refuse(error))))
    }

    fn run_portal(&mut self, portal: &mut Portal, most: usize) -> Result<Result<(), SqlError>, End> {
        let Some(BoundStatement { statement: Named { prepared, types }, values, formats, .. }) = portal.bound() else {
            return Ok(Ok(()));
        };
        match prepared.kind() {
            Kind::Empty => self.wire.answers.plain(b'I'),
            Kind::CopyIn => {
                let text = prepared.text().to_owned();
                portal.set_done();
                return self.copy_in(&text);
            }
            Kind::CopyOut => {
                let text = prepared.text().to_owned();
                portal.set_done();
                return self.copy_out(&text);
            }
            Kind::Statement => {
                let values: Vec<Datum<'_>> = values.iter().map(OwnedDatum::get).collect();
                let Session { connection, wire, .. } = self;
                let forms = connection.forms();
                let give = &mut |columns: &[RowColumn], row: &[Datum<'_>]| {
                    let values = columns.iter().zip(row).map(|(column, value)| (column.of, *value));
                    wire.answers.values(values, &forms, |column| format_of(formats, column));
                    wire.write_much()
                };
                let answered = connection.stream_decoded(prepared, types, &values, most, give);
                if self.wire.is_gone {
                    return Err(End::Gone);
                }
                match answered {
                    Ok(rows) => self.give(portal, &rows, most)?,
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        Ok(Ok(()))
    }

    /// Gives the client the rows of a statement that has run, or the first ones of them.
    fn give(&mut self, portal: &mut Portal, rows: &Rows, most: usize) -> Result<(), End> {
        let (wire, forms) = (&mut self.wire, self.connection.forms());
        wire.answers.notices(rows.notices());
        let before = usize::try_from(rows.given()).unwrap_or(usize::MAX);
        let end = rows.len().min(most.saturating_sub(before));
        for row in rows.iter().take(end) {
            wire.answers.row(row, rows.columns(), &forms, |column| format_of(portal.formats(), column));
            wire.answers.write_much(&wire.socket)?;
        }
        portal.keep_rest(rows, end);
        let given = (before + end) as u64;
        // As many rows as were asked for may not be all, even if no more come.
        if most != usize::MAX && given >= most as u64 {
            wire.answers.plain(b's');
            return Ok(());
        }
        match rows.counted_verb() {
            // Where there are rows, it counts those that this Execute has given.
            Some(verb) if verb == "SELECT" || !rows.columns().is_empty() => wire.answers.complete_counted(verb, given),
            Some(verb) => wire.answers.complete_counted(verb, rows.count()),
            None => wire.answers.complete(&rows.tag()),
        }
        Ok(())
    }

    /// Gives the client the next rows of a portal that is read in parts.
    fn fetch(&mut self, name: &str, most: usize) -> Result<Result<(), SqlError>, End> {
        let Session { connection, wire, .. } = self;
        let forms = connection.forms();
        let give = &mut |columns: &[RowColumn], formats: &[bool], row: &[OwnedDatum]| {
            let values = columns.iter().zip(row).map(|(column, value)| (column.of, value.get()));
            wire.answers.values(values, &forms, |column| format_of(formats, column));
            wire.write_much()
        };
        let given = connection.fetch_portal(name, most, give);
        if self.wire.is_gone {
            return Err(End::Gone);
        }
        Ok(given.map(|given| match given.tag {
            Some(tag) => self.wire.answers.complete(&tag),
            None => self.wire.answers.plain(b's'),
        }))
    }
}
