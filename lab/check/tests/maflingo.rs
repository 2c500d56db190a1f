//! What only Maflingo can show: phantoms when its node set is left out, and what it hands to the log.

mod setups;

use std::sync::{Arc, Mutex};

// Where the protocols behind virtual calls are compiled.
use polychron as _;
use polychron_check::conformance::{differential, phantoms};
use polychron_engine::mutations::leave_out;
use polychron_engine::redo::{Change, ExtendedTimestamp, Redo};
use polychron_engine::{Interactive, Mode, Operations, Protocol, Table, TableId, drive};
use polychron_protocols::maflingo::{Maflingo, Step};
use polychron_schema::{Row, RowBuffer};

use setups::maflingo;

macro_rules! needs_the_node_set {
    ($($test:ident: $scenario:ident;)*) => {$(
        #[test]
        fn $test() {
            let _careless = leave_out(Step::CompareNodes);
            assert!(phantoms::$scenario(&maflingo().erased()), "the scenario is refused for another reason, so it shows nothing");
        }
    )*};
}

needs_the_node_set! {
    absent_key_needs_the_node_set: commits_absent_key;
    absent_key_in_a_hash_table_needs_the_node_set: commits_absent_key_in_a_hash_table;
    count_needs_the_node_set: commits_count;
    empty_range_needs_the_node_set: commits_empty_range;
    minimum_needs_the_node_set: commits_minimum;
    maximum_needs_the_node_set: commits_maximum;
    backward_scan_needs_the_node_set: commits_backward_scan;
    stopped_scan_needs_the_node_set: commits_stopped_scan;
    secondary_lookup_needs_the_node_set: commits_secondary_lookup;
    secondary_range_needs_the_node_set: commits_secondary_range;
    unique_secondary_needs_the_node_set: commits_unique_secondary;
    update_into_a_range_needs_the_node_set: commits_updated_into_a_range;
    insertion_given_up_needs_the_node_set: commits_insertion_given_up;
    insertion_refused_needs_the_node_set: commits_insertion_refused;
}

/// The random interleavings find an anomaly by themselves when the check is left out.
#[test]
fn random_interleavings_need_the_node_set() {
    let _careless = leave_out(Step::CompareNodes);
    let found = (0..20).any(|seed| differential::find_anomaly(&maflingo().erased(), seed, 400).is_some());
    assert!(found, "the search is blind");
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Entry {
    #[key]
    id: u64,
    value: u64,
    text: String,
}

/// A log that builds the tables again.
#[derive(Clone, Debug, Default)]
struct Replayed(Arc<Mutex<std::collections::BTreeMap<Vec<u8>, Vec<u64>>>>);

impl Redo for Replayed {
    const ENABLED: bool = true;

    fn change(&self, _: usize, _: ExtendedTimestamp, _: TableId, key: &[u8], change: Change<'_>) {
        let mut rows = self.0.lock().unwrap();
        match change {
            Change::Put(words) => drop(rows.insert(key.to_vec(), words.to_vec())),
            Change::Patch { word, words } => {
                let row = rows.get_mut(key).expect("a patched row is there");
                row[word..word + words.len()].copy_from_slice(words);
            }
            Change::Delete => drop(rows.remove(key)),
        }
    }

    fn committed(&self, _: usize, _: ExtendedTimestamp) {}
}

/// Replaying the log gives the rows that the table has.
#[allow(clippy::type_complexity)] // The type of a body is written once.
#[test]
fn the_log_holds_every_change() {
    let log = Replayed::default();
    let setup = maflingo();
    let database = Maflingo::<Replayed>::open_with(setup.options, setup.common, log.clone()).unwrap();
    let table: Table<Entry> = Table::from_id(database.create_table(Entry::definition()).unwrap());
    let mut worker = database.worker().unwrap();
    let entry = |id, value, length| Entry { id, value, text: "e".repeat(length) };
    let mut run = |body: &mut dyn FnMut(
        &mut <polychron_protocols::maflingo::MaflingoWorker<Replayed> as Interactive>::Transaction<'_>,
    ) -> Result<(), polychron_engine::Error>| {
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t| body(t)).unwrap();
    };
    run(&mut |t| (0..10).try_for_each(|id| t.insert(&table, &entry(id, id, 5))));
    run(&mut |t| {
        t.update(&table, 1, |row| row.set_value(100))?;
        t.update(&table, 2, |row| row.set_text("much longer than it was").unwrap())?;
        t.delete(&table, 3)?;
        t.insert(&table, &entry(20, 1, 3))?;
        t.update(&table, 20, |row| row.set_value(2))?;
        t.insert(&table, &entry(21, 1, 3))?;
        t.delete(&table, 21).map(drop)
    });
    run(&mut |t| {
        t.insert(&table, &entry(3, 33, 50))?;
        t.upsert(&table, &entry(4, 44, 1))?;
        t.upsert(&table, &entry(30, 44, 1))
    });
    let mut rows = Vec::new();
    run(&mut |t| {
        rows = t.scan(&table, ..).rows()?;
        Ok(())
    });
    let replayed: Vec<Entry> = log
        .0
        .lock()
        .unwrap()
        .values()
        .map(|words| {
            let mut buffer = RowBuffer::new();
            buffer.overwrite_words(words.len()).copy_from_slice(words);
            Entry::from_ref(Entry::view(buffer.as_row()))
        })
        .collect();
    assert_eq!(replayed, rows);
}

/// A hash index that several rows share a value of is looked up by equality, too.
#[test]
fn shared_hash_lookup() {
    polychron_check::conformance::secondaries::shared_hash_lookup(&maflingo().erased());
}

/// A read-write transaction that stays open, has found nothing and does nothing holds back no version of what others update.
#[test]
fn an_open_transaction_does_not_fill_the_memory() {
    let setup = maflingo();
    let database = Maflingo::open(setup.options, setup.common).unwrap();
    let table: Table<Entry> = Table::from_id(database.create_table(Entry::definition()).unwrap());
    let (mut worker, mut holder) = (database.worker().unwrap(), database.worker().unwrap());
    let mut round = |database: &Maflingo, value: u64| {
        drive::transact(&mut worker, Mode::ReadWrite, &mut |t| {
            (0..50).try_for_each(|id| t.upsert(&table, &Entry { id, value, text: "text".into() }))
        })
        .unwrap();
        database.tick();
    };
    let used = |database: &Maflingo| database.statistics().memory.unwrap().used_bytes;
    (0..40).for_each(|value| round(&database, value));
    let before = used(&database);
    let open = holder.begin(Mode::ReadWrite).unwrap();
    for rounds in [100, 1000] {
        (0..rounds).for_each(|value| round(&database, value));
        let beside = used(&database);
        // The lists of what waits to be freed grow and shrink by a page.
        assert!(
            beside <= before + 2048,
            "{before} bytes were in use, and {beside} after {rounds} rounds beside the transaction"
        );
    }
    drop(open);
}
