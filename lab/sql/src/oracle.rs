//! PostgreSQL, where there is one.

use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::answer::{Answer, System};

/// A connection to PostgreSQL, and a database there that goes with it.
pub struct Postgres {
    client: Client,
    admin: Client,
    database: String,
    /// How many statements were prepared.
    prepared: usize,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Where the server is gone, the database is of no use.
        let _ = self.admin.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.database));
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("postgresql")
    }
}

impl Postgres {
    /// Connects to the server that `POLYCHRON_POSTGRES` names, with a database of this name that is made anew. `None` where nothing is named.
    ///
    /// # Panics
    /// When there is such a variable, but no such server.
    pub fn connect(database: &str) -> Option<Self> {
        let at = std::env::var("POLYCHRON_POSTGRES").ok()?;
        let mut admin = Client::connect(&at, NoTls).expect("POLYCHRON_POSTGRES names a server");
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)")).expect("it can be dropped");
        let made =
            format!("CREATE DATABASE {database} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8' ENCODING 'UTF8'");
        admin.batch_execute(&made).expect("it can be created");
        let mut client = Client::connect(&format!("{at} dbname={database}"), NoTls).expect("it can be connected to");
        let settings = "SET TimeZone = 'UTC'; SET synchronous_commit = off; SET client_min_messages = error;
            SET statement_timeout = '20s'; SET jit = off";
        client.batch_execute(settings).expect("the settings are there");
        Some(Self { client, admin, database: database.to_owned(), prepared: 0 })
    }

    /// Forgets all tables.
    ///
    /// # Panics
    /// When the server is gone.
    pub fn clear(&mut self) {
        let text = "ROLLBACK; DEALLOCATE ALL; DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public";
        self.client.batch_execute(text).expect("the server is there");
    }
}

impl System for Postgres {
    fn run_prepared(&mut self, text: &str, parameters: &[String]) -> Answer {
        // Where a transaction has failed, the one that was prepared last is still there.
        self.prepared += 1;
        let name = format!("prepared_{}", self.prepared);
        let answer = self.run(&format!("PREPARE {name} AS {text}"));
        if answer.code().is_some() {
            return answer;
        }
        let list = if parameters.is_empty() { String::new() } else { format!("({})", parameters.join(", ")) };
        self.run(&format!("EXECUTE {name}{list}"))
    }

    fn run(&mut self, text: &str) -> Answer {
        match self.client.simple_query(text) {
            Ok(messages) => {
                let (mut answered, mut rows) = (0, Vec::new());
                for message in messages {
                    match message {
                        SimpleQueryMessage::Row(row) => {
                            rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
                        }
                        SimpleQueryMessage::CommandComplete(count) => answered = count,
                        _ => {}
                    }
                }
                Answer::Done { count: answered, rows }
            }
            Err(error) => {
                let error = error.as_db_error().expect("the server is there");
                let message = error.message().lines().next().unwrap_or_default().into();
                Answer::Failed { code: error.code().code().into(), message }
            }
        }
    }
}
