//! The counts of a database.

use polychron_base::error;
use polychron_engine::{Metric, Protocol, Statistics, Versions};

use crate::Database;

impl<P: Protocol> Database<P> {
    /// Counts since the database was opened.
    ///
    /// ```
    /// # let database = polychron::Database::in_memory()?;
    /// database.transact(|_| polychron::Ok(()))?;
    /// assert_eq!(database.statistics().commits, 1);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn statistics(&self) -> Statistics {
        self.protocol.statistics()
    }

    /// The keys at which transactions conflicted most often, most often first, with how often that was at least: at most 32, each too small by at most a
    /// 33rd of all conflicts.
    ///
    /// ```
    /// # let database = polychron::Database::in_memory()?;
    /// for (key, conflicts) in database.hot_keys() {
    ///     println!("{conflicts} conflicts at {key}");
    /// }
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn hot_keys(&self) -> Vec<(error::NamedKey, u64)> {
        let hot = self.statistics().hot_keys;
        hot.iter().map(|hot| (error::key_name(hot.table, hot.index, hot.key.as_ref()), hot.conflicts)).collect()
    }

    /// How many versions records have; `None` where they have one only. Walks every table.
    ///
    /// ```
    /// # use polychron::{Database, Operations, Row};
    /// # #[derive(Row)] struct Account { #[key] id: u64, balance: i64 }
    /// # let database = Database::in_memory()?;
    /// # let accounts = database.create_table::<Account>()?;
    /// database.transact(|transaction| transaction.insert(&accounts, &Account { id: 1, balance: 0 }))?;
    /// let records: u64 = database.versions().map_or(0, |versions| versions.records.iter().sum());
    /// assert!(records <= 1);
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn versions(&self) -> Option<Versions> {
        self.protocol.versions()
    }

    /// Facts about its tables that only this protocol has. Walks every table.
    ///
    /// ```
    /// # let database = polychron::Database::in_memory()?;
    /// for metric in database.inspect() {
    ///     println!("{}: {:?}", metric.name, metric.value);
    /// }
    /// # Ok::<(), polychron::Error>(())
    /// ```
    pub fn inspect(&self) -> Vec<Metric> {
        self.protocol.inspect()
    }
}
