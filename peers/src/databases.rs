//! The databases that are compared.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Failure, VALUE_BYTES};

pub type Value = [u8; VALUE_BYTES];

/// A database with one table.
pub trait Peer {
    fn name(&self) -> &'static str;

    /// What one thread uses.
    fn client(&self) -> Result<Box<dyn Client>, Failure>;
}

/// What one thread does, each in a transaction of its own.
pub trait Client: Send {
    /// Writes rows, whether they are there or not, and answers once they are durable.
    fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure>;

    fn read(&mut self, key: u64) -> Result<Option<Value>, Failure>;
}

/// All of them, each with an empty table; Polychron comes first.
pub fn all(directory: &Path, postgres: Option<&str>) -> Result<Vec<Box<dyn Peer>>, Failure> {
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(polychrons::Ours::open(&directory.join("polychron"))?),
        Box::new(redbs::Redb::open(&directory.join("redb"))?),
        Box::new(fjalls::Fjall::open(&directory.join("fjall"))?),
        Box::new(sqlites::Sqlite::open(&directory.join("sqlite"))?),
    ];
    #[cfg(feature = "rocksdb")]
    peers.push(Box::new(rocks::Rocks::open(&directory.join("rocksdb"))?));
    #[cfg(feature = "rocksdb-system")]
    match crate::system_rocks::SystemRocks::open(&directory.join("rocksdb-system"))? {
        Some(rocks) => peers.push(Box::new(rocks)),
        None => eprintln!("RocksDB is left out: the system has no library of that name, see README.md"),
    }
    #[cfg(not(any(feature = "rocksdb", feature = "rocksdb-system")))]
    eprintln!("RocksDB is left out: it takes the feature `rocksdb` or `rocksdb-system`, see README.md");
    match postgres {
        Some(parameters) => peers.push(Box::new(servers::Postgres::open(parameters)?)),
        None => eprintln!("PostgreSQL is left out: no --postgres"),
    }
    Ok(peers)
}

mod polychrons {
    use polychron::{Database, DefaultProtocol, Durability, Operations as _, Row, Table};

    use super::*;

    #[derive(Row)]
    struct Pair {
        #[key]
        key: u64,
        value: [u8; VALUE_BYTES],
    }

    #[derive(Clone)]
    pub struct Ours {
        database: Arc<Database>,
        pairs: Table<Pair>,
    }

    impl Ours {
        pub fn open(path: &Path) -> Result<Self, Failure> {
            let database = Database::builder().durability(Durability::Immediate).create(path)?;
            let pairs = database.create_table::<Pair>()?;
            Ok(Self { database: Arc::new(database), pairs })
        }
    }

    impl Peer for Ours {
        fn name(&self) -> &'static str {
            "Polychron"
        }

        fn client(&self) -> Result<Box<dyn Client>, Failure> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Client for Ours {
        fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
            let pairs = &self.pairs;
            self.database.transact(|transaction| {
                for key in keys {
                    if !transaction.update(pairs, *key, |row| row.set_value(value))? {
                        transaction.insert(pairs, &Pair { key: *key, value: *value })?;
                    }
                }
                Ok::<_, polychron::Error>(())
            })?;
            Ok(())
        }

        fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
            let value = |transaction: &mut polychron::TransactionOf<'_, DefaultProtocol>| {
                Ok::<_, polychron::Error>(transaction.get(&self.pairs, key)?.map(|row| *row.value()))
            };
            Ok(self.database.transact(value)?)
        }
    }
}

mod redbs {
    use redb::{Database, Durability, ReadableDatabase, TableDefinition};

    use super::*;

    const PAIRS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("pairs");

    #[derive(Clone)]
    pub struct Redb {
        database: Arc<Database>,
    }

    impl Redb {
        pub fn open(path: &Path) -> Result<Self, Failure> {
            Ok(Self { database: Arc::new(Database::create(path)?) })
        }
    }

    impl Peer for Redb {
        fn name(&self) -> &'static str {
            "redb"
        }

        fn client(&self) -> Result<Box<dyn Client>, Failure> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Client for Redb {
        fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut pairs = transaction.open_table(PAIRS)?;
                for key in keys {
                    pairs.insert(key, value.as_slice())?;
                }
            }
            transaction.commit()?;
            Ok(())
        }

        fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
            let found = self.database.begin_read()?.open_table(PAIRS)?.get(key)?;
            Ok(found.map(|found| found.value().try_into()).transpose()?)
        }
    }
}

mod fjalls {
    use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

    use super::*;

    #[derive(Clone)]
    pub struct Fjall {
        database: Database,
        pairs: Keyspace,
    }

    impl Fjall {
        pub fn open(path: &Path) -> Result<Self, Failure> {
            let database = Database::builder(path).open()?;
            let pairs = database.keyspace("pairs", KeyspaceCreateOptions::default)?;
            Ok(Self { database, pairs })
        }
    }

    impl Peer for Fjall {
        fn name(&self) -> &'static str {
            "fjall"
        }

        fn client(&self) -> Result<Box<dyn Client>, Failure> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Client for Fjall {
        fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
            let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
            for key in keys {
                batch.insert(&self.pairs, key.to_be_bytes(), value);
            }
            batch.commit()?;
            Ok(())
        }

        fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
            let found = self.pairs.get(key.to_be_bytes())?;
            Ok(found.map(|found| found.as_ref().try_into()).transpose()?)
        }
    }
}

#[cfg(feature = "rocksdb")]
mod rocks {
    use rocksdb::{DB, Options, WriteBatch, WriteOptions};

    use super::*;

    #[derive(Clone)]
    pub struct Rocks {
        database: Arc<DB>,
    }

    impl Rocks {
        pub fn open(path: &Path) -> Result<Self, Failure> {
            let mut options = Options::default();
            options.create_if_missing(true);
            Ok(Self { database: Arc::new(DB::open(&options, path)?) })
        }
    }

    impl Peer for Rocks {
        fn name(&self) -> &'static str {
            "RocksDB"
        }

        fn client(&self) -> Result<Box<dyn Client>, Failure> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Client for Rocks {
        fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
            let mut batch = WriteBatch::default();
            for key in keys {
                batch.put(key.to_be_bytes(), value);
            }
            // Batches of threads that write at one time share a sync.
            let mut options = WriteOptions::default();
            options.set_sync(true);
            self.database.write_opt(batch, &options)?;
            Ok(())
        }

        fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
            let found = self.database.get_pinned(key.to_be_bytes())?;
            Ok(found.map(|found| found.as_ref().try_into()).transpose()?)
        }
    }
}

mod sqlites {
    use rusqlite::{Connection, OptionalExtension as _, params};

    use super::*;

    /// All writers share one connection, as SQLite has one writer at a time and others would sleep and try again.
    pub struct Sqlite {
        writer: Arc<Mutex<Connection>>,
        path: std::path::PathBuf,
    }

    struct Mine {
        writer: Arc<Mutex<Connection>>,
        reader: Connection,
    }

    fn connect(path: &Path) -> Result<Connection, Failure> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(connection)
    }

    impl Sqlite {
        pub fn open(path: &Path) -> Result<Self, Failure> {
            let connection = connect(path)?;
            connection.execute_batch("CREATE TABLE pairs (key INTEGER PRIMARY KEY, value BLOB NOT NULL)")?;
            Ok(Self { writer: Arc::new(Mutex::new(connection)), path: path.to_owned() })
        }
    }

    impl Peer for Sqlite {
        fn name(&self) -> &'static str {
            "SQLite, WAL"
        }

        fn client(&self) -> Result<Box<dyn Client>, Failure> {
            Ok(Box::new(Mine { writer: Arc::clone(&self.writer), reader: connect(&self.path)? }))
        }
    }

    impl Client for Mine {
        fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = writer.transaction()?;
            {
                let mut statement = transaction.prepare_cached("INSERT OR REPLACE INTO pairs VALUES (?1, ?2)")?;
                for key in keys {
                    statement.execute(params![*key as i64, value.as_slice()])?;
                }
            }
            transaction.commit()?;
            Ok(())
        }

        fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
            let mut statement = self.reader.prepare_cached("SELECT value FROM pairs WHERE key = ?1")?;
            let found: Option<Vec<u8>> = statement.query_row([key as i64], |row| row.get(0)).optional()?;
            Ok(found.map(|found| found.as_slice().try_into()).transpose()?)
        }
    }
}

mod servers {
    use postgres::{NoTls, Statement};

    use super::*;

    pub struct Postgres {
        parameters: String,
    }

    struct Mine {
        client: postgres::Client,
        write: Statement,
        read: Statement,
    }

    impl Postgres {
        pub fn open(parameters: &str) -> Result<Self, Failure> {
            let mut client = postgres::Client::connect(parameters, NoTls)?;
            client.batch_execute(
                "DROP TABLE IF EXISTS pairs; CREATE TABLE pairs (key bigint PRIMARY KEY, value bytea NOT NULL)",
            )?;
            let is_synced = |name: &str, client: &mut postgres::Client| -> Result<bool, Failure> {
                Ok(client.query_one(&format!("SHOW {name}"), &[])?.get::<_, String>(0) == "on")
            };
            if !is_synced("fsync", &mut client)? || !is_synced("synchronous_commit", &mut client)? {
                return Err("the PostgreSQL server does not sync its commits".into());
            }
            Ok(Self { parameters: parameters.to_owned() })
        }
    }

    impl Peer for Postgres {
        fn name(&self) -> &'static str {
            "PostgreSQL"
        }

        fn client(&self) -> Result<Box<dyn Client>, Failure> {
            let mut client = postgres::Client::connect(&self.parameters, NoTls)?;
            client.batch_execute("SET default_transaction_isolation = 'serializable'")?;
            let write = client.prepare(
                "INSERT INTO pairs SELECT key, $2 FROM unnest($1::bigint[]) AS key \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )?;
            let read = client.prepare("SELECT value FROM pairs WHERE key = $1")?;
            Ok(Box::new(Mine { client, write, read }))
        }
    }

    impl Client for Mine {
        fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
            let keys: Vec<i64> = keys.iter().map(|key| *key as i64).collect();
            loop {
                match self.client.execute(&self.write, &[&keys, &value.as_slice()]) {
                    Ok(_) => return Ok(()),
                    // A conflict of which clients with rows of their own have some, as its locks are on pages.
                    Err(error) if error.code().is_some_and(|code| code.code() == "40001") => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }

        fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
            let found = self.client.query_opt(&self.read, &[&(key as i64)])?;
            Ok(found.map(|found| found.get::<_, &[u8]>(0).try_into()).transpose()?)
        }
    }
}
