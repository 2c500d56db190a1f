//! Connections, and what they answer as text.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use polychron_engine::{Common, Protocol};
use polychron_sql::{Connection, SqlDatabase, SqlError};

/// An empty database.
pub(crate) fn database<P: Protocol>() -> Arc<SqlDatabase<P>> {
    SqlDatabase::open(P::open(P::Options::default(), Common::default()).unwrap())
}

/// A connection that parks nothing by itself, however slowly the test runs.
pub(crate) fn connect<P: Protocol>(database: &Arc<SqlDatabase<P>>) -> Connection<P> {
    let mut connection = Connection::open(database).unwrap();
    connection.execute("SET park_after = 0", &[]).unwrap();
    connection
}

/// The rows of what a text answers last, one a line, with bars between the values.
pub(crate) fn run<P: Protocol>(connection: &mut Connection<P>, text: &str) -> Result<String, SqlError> {
    let outcome = connection.execute(text, &[])?;
    let rows = outcome.texts().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|"));
    Ok(rows.collect::<Vec<_>>().join("\n"))
}

/// Runs texts that must not fail.
pub(crate) fn all<P: Protocol>(connection: &mut Connection<P>, texts: &[&str]) {
    for text in texts {
        run(connection, text).unwrap_or_else(|error| panic!("{}: {text}: {error} {:?}", P::NAME, error.detail()));
    }
}

/// The code of an error.
pub(crate) fn code(ended: Result<String, SqlError>) -> &'static str {
    ended.unwrap_err().state().code()
}
