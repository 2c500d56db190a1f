//! SQL in PostgreSQL's dialect, over the transactions of any protocol. Under one that plans whole transactions, `bohm`, none can be held open: `BEGIN` is refused there.
//!
//! Tables are there under their names, whoever has made them: SQL reads and changes what [`Row`](derive@crate::Row)s have, and the other way round. Statements run in a
//! serializable transaction of their own, which is run again when it conflicts; between `BEGIN` and `COMMIT` the client holds it, and begins again after
//! [`SqlState::SERIALIZATION_FAILURE`]. What is not there yet is refused with [`SqlState::FEATURE_NOT_SUPPORTED`], and named.
//!
//! ```
//! use polychron::prelude::*;
//! use polychron::sql::{self, FromRow};
//!
//! #[derive(Row, FromRow, Debug, PartialEq)]
//! struct Account {
//!     #[key]
//!     id: u64,
//!     owner: String,
//!     balance: i64,
//! }
//!
//! let database = Database::in_memory()?;
//! let accounts = database.create_table::<Account>()?;
//! database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, owner: "Ada".into(), balance: 50 }))?;
//!
//! let mut connection = database.sql()?;
//! connection.execute("INSERT INTO account VALUES ($1, $2, $3)", (2, "Grace", 70))?;
//! let rows = connection.query("SELECT * FROM account WHERE balance > $1 ORDER BY id", (10,))?;
//! assert_eq!(rows.all::<Account>()?.len(), 2);
//! for row in &rows {
//!     let (owner, balance): (&str, i64) = (row.get("owner")?, row.get(2)?);
//!     println!("{owner}: {balance}");
//! }
//!
//! // Bound once, and executed often.
//! let mut pay = connection.prepare("UPDATE account SET balance = balance + $2 WHERE id = $1")?;
//! for (id, amount) in [(1, -10), (2, 10)] {
//!     assert_eq!(pay.execute(&mut connection, (id, amount))?, 1);
//! }
//! let grace = database.transact(|transaction| transaction.get_owned(&accounts, 2))?;
//! assert_eq!(grace.map(|account| account.balance), Some(80));
//!
//! let refused = connection.execute("INSERT INTO account VALUES (2, 'Alan', 0)", ()).unwrap_err();
//! assert_eq!(refused.state(), sql::SqlState::UNIQUE_VIOLATION);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;
use std::{fmt, io};

use polychron_engine::Protocol;
#[doc(inline)]
pub use polychron_schema_derive::FromRow;
pub use polychron_sql::{
    Bound, CancelHandle, ColumnOrigin, ColumnType, Datum, Decimal, FromRow, FromSql, Interval, KeptBecause, LogIn,
    Notice, Notification, Outcome, OwnedDatum, Parameters, Parking, Row, RowColumn, RowIndex, Rows, RowsIter,
    SqlDatabase, SqlError as Error, SqlState, ToSql, Type, park_idle,
};

use crate::Database;
use crate::list::DefaultProtocol;

/// A connection: runs one statement after the other. It may go from thread to thread, but for a transaction that it holds: in another thread its
/// statements are refused until that has ended in its own.
pub struct Connection<P: Protocol = DefaultProtocol>(polychron_sql::Connection<P>);

impl<P: Protocol> fmt::Debug for Connection<P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl<P: Protocol> Database<P> {
    /// The tables as SQL has them, for what is between programs and clients: a server.
    #[doc(hidden)]
    pub fn sql_database(&self) -> &std::sync::Arc<SqlDatabase<P>> {
        self.sql.get_or_init(|| SqlDatabase::open(self.protocol.clone()))
    }

    /// A connection for statements in SQL; see [`crate::sql`]. It has a worker for itself, as a session has, unless it is [parked](Connection::park).
    ///
    /// ```
    /// let database = polychron::Database::in_memory()?;
    /// let mut connection = database.sql()?;
    /// connection.execute("CREATE TABLE note (id int PRIMARY KEY, words text NOT NULL)", ())?;
    /// connection.execute("INSERT INTO note VALUES (1, 'by SQL')", ())?;
    /// let (words,): (String,) = connection.query("SELECT words FROM note WHERE id = $1", (1,))?.only()?;
    /// assert_eq!(words, "by SQL");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SqlState::TOO_MANY_CONNECTIONS`] when all slots of workers are taken.
    pub fn sql(&self) -> Result<Connection<P>, Error> {
        self.sql_within(Duration::ZERO)
    }

    fn sql_within(&self, longest: Duration) -> Result<Connection<P>, Error> {
        let tables = self.sql_database();
        tables.load_rules()?;
        let (answers, workers) = (self.answers.clone(), Box::new(self.pool.source(&self.protocol)));
        polychron_sql::Connection::with_workers_within(tables, answers, workers, longest).map(Connection)
    }

    /// As [`Database::sql`], of a role, whose privileges the connection has; without, it is that of `postgres`, which may do everything.
    ///
    /// # Errors
    /// As there; and there is no such role.
    pub fn sql_as(&self, role: &str) -> Result<Connection<P>, Error> {
        self.sql_as_within(role, Duration::ZERO)
    }

    /// As [`Database::sql_as`]. Where there is no worker, the connection waits so long for one, now and later: those of connections that hold none up come back meanwhile.
    /// Only for connections whose threads hold no other ones, which would wait for themselves.
    ///
    /// # Errors
    /// As there.
    pub fn sql_as_within(&self, role: &str, longest: Duration) -> Result<Connection<P>, Error> {
        let mut connection = self.sql_within(longest)?;
        connection.0.act_as(role)?;
        Ok(connection)
    }

    /// What a server has to know of a role. `None`: there is no such role.
    ///
    /// # Errors
    /// The definitions of roles cannot be read.
    pub fn sql_log_in(&self, role: &str) -> Result<Option<LogIn>, Error> {
        self.sql_database().log_in(role)
    }
}

impl<P: Protocol> Connection<P> {
    /// Runs a statement and answers with its rows. `$1` and so on stand for the parameters: a tuple, an array or a slice of values, or `()`.
    ///
    /// A text that comes again is not parsed again; [`Connection::prepare`] saves looking for it, too.
    ///
    /// ```
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// let rows = connection.query("SELECT $1 || ' and ' || $2", ("one", "two"))?;
    /// assert_eq!(rows.only::<(&str,)>()?, ("one and two",));
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the statement fails with. It has done nothing then; in a transaction that the client holds all of that is to be rolled back, or to a savepoint.
    pub fn query(&mut self, statement: &str, parameters: impl Parameters) -> Result<Rows, Error> {
        parameters.lend(|values| self.0.answer(statement, values))
    }

    /// As [`Connection::query`], and answers how many rows the statement has changed, or would have answered.
    ///
    /// ```
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// connection.execute("CREATE TABLE note (id int PRIMARY KEY)", ())?;
    /// assert_eq!(connection.execute("INSERT INTO note VALUES ($1), ($2)", [1, 2])?, 2);
    /// connection.execute("BEGIN", ())?;
    /// connection.execute("DELETE FROM note", ())?;
    /// connection.execute("ROLLBACK", ())?;
    /// assert_eq!(connection.query("SELECT count(*) FROM note", ())?.only::<(i64,)>()?, (2,));
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn execute(&mut self, statement: &str, parameters: impl Parameters) -> Result<u64, Error> {
        self.query(statement, parameters).map(|rows| rows.count())
    }

    /// Runs the statements of a text, one after the other, and tells `answered` what each of them has done, up to the one that fails. Outside of a transaction that
    /// the client holds they are one transaction, as PostgreSQL's simple protocol has it.
    ///
    /// ```
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// let mut tags = Vec::new();
    /// let text = "CREATE TABLE note (id int PRIMARY KEY); INSERT INTO note VALUES (1), (2); SELECT * FROM note";
    /// connection.run(text, &mut |outcome| tags.push(outcome.tag))?;
    /// assert_eq!(tags, ["CREATE TABLE", "INSERT 0 2", "SELECT 2"]);
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the first statement that fails has failed with.
    pub fn run(&mut self, statements: &str, answered: &mut dyn FnMut(Outcome)) -> Result<(), Error> {
        self.0.execute_each(statements, &[], answered)
    }

    /// Prepares a statement for many executions.
    ///
    /// ```
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// let mut sum = connection.prepare("SELECT $1 + 2")?;
    /// assert_eq!(sum.query(&mut connection, (40,))?.only::<(i32,)>()?, (42,));
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is wrong, or the text has several statements.
    pub fn prepare(&mut self, statement: &str) -> Result<Prepared, Error> {
        self.0.prepare(statement).map(Prepared)
    }

    /// Begins a `COPY … FROM STDIN`, whose data the answer takes, in pieces of any size: in the formats text, csv and binary of PostgreSQL.
    ///
    /// ```
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// connection.execute("CREATE TABLE note (id int PRIMARY KEY, words text)", ())?;
    /// let mut copy = connection.copy_in("COPY note FROM STDIN (FORMAT csv, HEADER MATCH)")?;
    /// copy.write(b"id,words\n1,\"one, ")?;
    /// copy.write(b"and a half\"\n2,two\n")?;
    /// assert_eq!(copy.finish()?, 2);
    /// // A copy that is not finished leaves nothing.
    /// connection.copy_in("COPY note FROM STDIN")?.write(b"3\tthree\n")?;
    /// assert_eq!(connection.query("SELECT count(*) FROM note", ())?.only::<(i64,)>()?, (2,));
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    ///
    /// # Errors
    /// The text is another statement, or this one is wrong.
    pub fn copy_in(&mut self, statement: &str) -> Result<CopyIn<'_, P>, Error> {
        self.0.copy_in(statement).map(CopyIn)
    }

    /// Runs a `COPY … TO STDOUT`, and writes its data to `out` while the query runs. The answer is the number of rows. Where it is an error, what was written is to be thrown
    /// away.
    ///
    /// ```
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// let mut data = Vec::new();
    /// let count = connection.copy_out("COPY (SELECT g, g * g FROM generate_series(1, 3) g) TO STDOUT csv", &mut data)?;
    /// assert_eq!((count, &data[..]), (3, &b"1,1\n2,4\n3,9\n"[..]));
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    ///
    /// # Errors
    /// The text is another statement, the query fails, or `out` does ([`SqlState::IO_ERROR`]). A query that conflicts behind the first 64 KiB fails with
    /// [`SqlState::SERIALIZATION_FAILURE`]; before, it is run again.
    pub fn copy_out(&mut self, statement: &str, out: &mut dyn io::Write) -> Result<u64, Error> {
        self.0.copy_out(statement, out)
    }

    /// A handle that ends the statement which the connection runs, from any thread, with [`SqlState::QUERY_CANCELED`]. `SET statement_timeout` does the same after a time.
    ///
    /// ```
    /// # use polychron::sql::SqlState;
    /// # let mut connection = polychron::Database::in_memory()?.sql()?;
    /// let handle = connection.cancel_handle();
    /// let endless = std::thread::spawn(move || connection.query("SELECT count(*) FROM generate_series(1, 1000000000000)", ()));
    /// while !endless.is_finished() {
    ///     handle.cancel(); // without effect as long as nothing runs
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(endless.join().unwrap().unwrap_err().state(), SqlState::QUERY_CANCELED);
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    pub fn cancel_handle(&mut self) -> CancelHandle {
        self.0.cancel_handle()
    }

    /// Parks the transaction that the client holds: it has no worker, locks and snapshot any longer. The next statement, in whatever thread it comes, has it run again, and
    /// fails with [`SqlState::SERIALIZATION_FAILURE`] where something else would have been answered. What cannot be run again stays as it is. A connection without a transaction
    /// gives its worker back, so a program can have more connections than workers.
    ///
    /// `SET park_after` says after which time of silence that is done by itself, when the transaction's thread uses any connection or calls [`park_idle`]; 100 ms at first, 0 for never.
    ///
    /// ```
    /// # use polychron::sql::{KeptBecause, Parking};
    /// # let database = polychron::Database::in_memory()?;
    /// let mut connection = database.sql()?;
    /// connection.execute("CREATE TABLE note (id int PRIMARY KEY)", ())?;
    /// connection.execute("BEGIN", ())?;
    /// connection.execute("INSERT INTO note VALUES (1)", ())?;
    /// assert_eq!(connection.park(), Parking::Parked);
    /// connection.execute("INSERT INTO note VALUES (2)", ())?; // behind the first one, which is there again
    /// connection.execute("SAVEPOINT s", ())?;
    /// connection.execute("ROLLBACK TO s", ())?;
    /// assert_eq!(connection.park(), Parking::Kept(KeptBecause::RunsOnce));
    /// connection.execute("COMMIT", ())?;
    /// assert_eq!(connection.park(), Parking::NoTransaction);
    /// assert_eq!(connection.query("SELECT count(*) FROM note", ())?.only::<(i64,)>()?, (2,));
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    pub fn park(&mut self) -> Parking {
        self.0.park()
    }

    /// As [`Connection::park`], where the transaction has heard nothing for `park_after`. For whoever has many connections, to be called now and then.
    pub fn park_idle(&mut self) -> Parking {
        self.0.park_idle()
    }

    /// How long the transaction that the client holds has heard nothing, if it holds one.
    pub fn idle_for(&self) -> Option<Duration> {
        self.0.idle_for()
    }

    /// What LISTEN has had the session hear since it has looked, the oldest first; nothing within a transaction. Other sessions, and the session itself, tell it by NOTIFY, when they commit.
    ///
    /// ```
    /// # let database = polychron::Database::in_memory()?;
    /// let (mut one, mut other) = (database.sql()?, database.sql()?);
    /// one.execute("LISTEN stock", ())?;
    /// other.execute("NOTIFY stock, 'apples'", ())?;
    /// let heard = one.notifications();
    /// assert_eq!((heard[0].channel(), heard[0].payload()), ("stock", "apples"));
    /// assert!(one.notifications().is_empty());
    /// # Ok::<(), polychron::sql::Error>(())
    /// ```
    pub fn notifications(&mut self) -> Vec<Notification> {
        self.0.notifications(usize::MAX)
    }

    /// As [`Connection::notifications`], and waits so long where there is none, or without end. The connection has no worker meanwhile. It does not wait within a transaction.
    pub fn wait_for_notifications(&mut self, longest: Option<Duration>) -> Vec<Notification> {
        self.0.wait_for_notifications(longest)
    }

    /// The connection without this interface, for what is between programs and clients: a server.
    #[doc(hidden)]
    pub fn into_inner(self) -> polychron_sql::Connection<P> {
        self.0
    }

    /// Whether the client holds a transaction, or has one that failed and was not ended.
    pub fn is_in_transaction(&self) -> bool {
        self.0.is_in_transaction()
    }
}

/// A `COPY … FROM STDIN` that takes its data. All of its rows are there when [`CopyIn::finish`] has answered, and none if it fails or is dropped before.
/// Between `BEGIN` and `COMMIT` it is one of the transaction's statements, and one that fails when it is dropped.
#[derive(Debug)]
#[must_use = "nothing is copied before it is finished"]
pub struct CopyIn<'c, P: Protocol = DefaultProtocol>(polychron_sql::CopyIn<'c, P>);

impl<P: Protocol> CopyIn<'_, P> {
    /// Takes more bytes of the data, which may end anywhere.
    ///
    /// # Errors
    /// What the data, or their insertion, fails with; [`Error::context`] says where. The copy has ended then, and nothing of it remains.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.0.write(bytes)
    }

    /// The data are complete. The answer is the number of rows, which are committed, unless the client holds a transaction.
    ///
    /// # Errors
    /// As [`CopyIn::write`]; and what the commit fails with: a copy of more than 16 MiB is not run again when it conflicts
    /// ([`SqlState::SERIALIZATION_FAILURE`]).
    pub fn finish(self) -> Result<u64, Error> {
        self.0.finish()
    }

    /// Gives the copy up, with a reason for what failed; a copy that is dropped is given up, too.
    pub fn abandon(self, reason: &str) {
        self.0.abandon(reason);
    }
}

/// Errors are those of [`CopyIn::write`], inside of one of [`io::ErrorKind::Other`].
impl<P: Protocol> io::Write for CopyIn<'_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A statement that is bound once, and again by itself when its tables change. It may be executed by any connection of the database.
#[derive(Clone, Debug)]
pub struct Prepared(polychron_sql::Prepared);

impl Prepared {
    /// As [`Connection::query`].
    ///
    /// # Errors
    /// As there.
    pub fn query<P: Protocol>(
        &mut self,
        connection: &mut Connection<P>,
        parameters: impl Parameters,
    ) -> Result<Rows, Error> {
        parameters.lend(|values| connection.0.answer_prepared(&mut self.0, values))
    }

    /// As [`Connection::execute`].
    ///
    /// # Errors
    /// As there.
    pub fn execute<P: Protocol>(
        &mut self,
        connection: &mut Connection<P>,
        parameters: impl Parameters,
    ) -> Result<u64, Error> {
        self.query(connection, parameters).map(|rows| rows.count())
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> &[Type] {
        self.0.parameters()
    }

    /// The columns of its rows.
    pub fn columns(&self) -> &[RowColumn] {
        self.0.columns()
    }
}
