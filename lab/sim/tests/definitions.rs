//! Changes of tables come behind the rows that they count on, also where nobody waits until those are durable.

use polychron::schema::IndexDefinition;
use polychron::{AnyProtocol, Database, Durability, Error, Operations, Row};
use polychron_engine::mutations::leave_out;
use polychron_log::Options;
use polychron_log::disk::Files;
use polychron_log::steps::OpeningStep;
use polychron_sim::SimulatedDisk;

/// Protocols whose transactions can be driven step by step.
const NAMES: [&str; 5] = ["cicada", "maflingo", "hyper", "locking", "lazy-occ"];

#[derive(Row, Clone, Debug)]
struct Kept {
    #[key]
    id: u64,
    value: i64,
}

mod after {
    use super::Row;

    #[derive(Row, Clone, Debug)]
    #[row(name = "kept")]
    pub(super) struct Kept {
        #[key]
        pub(super) id: u64,
        #[column(default = 5)]
        pub(super) rank: i64,
        pub(super) value: i64,
    }
}

/// A database of which nothing is written by itself.
fn open(disk: &SimulatedDisk, protocol: &str) -> Result<Database<AnyProtocol>, Error> {
    let builder = Database::builder().small().memory_limit(24 << 20).workers(4).protocol(protocol);
    builder.durability(Durability::OnCheckpoint).open_on(&Files::new(disk.clone()), |settings| {
        let workers = settings.log.workers;
        settings.log = Options { workers, durability: settings.log.durability, ..Options::tiny() };
        (settings.threads, settings.has_threads) = (0, false);
    })
}

/// Two rows that are durable.
fn kept(disk: &SimulatedDisk, protocol: &str) -> Result<Database<AnyProtocol>, Error> {
    let database = open(disk, protocol)?;
    let table = database.create_table::<Kept>()?;
    let waits = database.with(Durability::Immediate);
    waits.transact(|t| (1..=2).try_for_each(|id| t.insert(&table, &Kept { id, value: 7 })))?;
    Ok(database)
}

/// A unique index comes behind the deletion that made it possible.
fn unique_index(protocol: &str) -> Result<(), Error> {
    let disk = SimulatedDisk::new(1);
    let database = kept(&disk, protocol)?;
    let table = database.table::<Kept>()?.expect("it was made");
    database.transact(|t| t.delete(&table, 2).map(drop))?;
    database
        .create_index_with(table.id(), IndexDefinition { unique: true, ..IndexDefinition::new("by_value", [1]) })?;
    for left in disk.outcomes(1..4) {
        let found = open(&left, protocol)?;
        let table = found.table::<Kept>()?.expect("it was made");
        assert_eq!(found.transact(|t| t.scan(&table, ..).count())?, 1, "{protocol}");
    }
    Ok(())
}

/// A table that takes another one's place comes behind its rows.
fn other_columns(protocol: &str) -> Result<(), Error> {
    let disk = SimulatedDisk::new(1);
    let database = kept(&disk, protocol)?;
    let table = database.create_or_open_table::<after::Kept>()?;
    assert_eq!(database.transact(|t| t.scan(&table, ..).count())?, 2);
    for left in disk.outcomes(1..4) {
        let found = open(&left, protocol)?;
        let table = found.create_or_open_table::<after::Kept>()?;
        if found.transact(|t| t.scan(&table, ..).count())? != 2 {
            return Err(Error::RolledBack);
        }
    }
    Ok(())
}

#[test]
fn tables_change_behind_what_was_sealed() {
    for protocol in NAMES {
        for (what, act) in [("an index", unique_index as fn(&str) -> _), ("other columns", other_columns)] {
            let done = act(protocol);
            assert!(done.is_ok(), "{what} of {protocol}: {done:?}");
            let _careless = leave_out(OpeningStep::FlushFirst);
            assert!(act(protocol).is_err(), "{what} of {protocol}");
        }
    }
}
