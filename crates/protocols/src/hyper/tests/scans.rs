//! Scans by columns: what they lend is what the rows hold, on both backends, with synopses of all sizes, while rows come, change and go.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::random::Random;
use polychron_base::sizes::{SHRINK, scaled};
use polychron_engine::batch;
use polychron_engine::scan::Comparison;
use polychron_engine::typed::{self, Aggregates, Conditions};
use polychron_engine::{
    Aggregate, ColumnBatch, Commit, Common, Interactive, Metric, MetricValue, Mode, Operations, Protocol, Restriction,
    Scan, Table, Worker,
};
use polychron_schema::{Row, RowRef, Value};
use polychron_sync::thread;

use crate::hyper::{Backend, BeforeImages, Hyper, HyperTransaction, HyperWorker, Options};

/// Numbers of all widths, some of them absent.
#[derive(Row, Clone, Copy, Debug, PartialEq)]
struct Reading {
    #[key]
    id: u64,
    wide: i64,
    unsigned: u64,
    narrow: Option<i32>,
    tiny: u8,
    weight: Option<f64>,
    flag: bool,
}

type Tx<'w> = HyperTransaction<'w>;

fn reading(random: &mut Random, id: u64) -> Reading {
    let some = |random: &mut Random| random.below(3) > 0;
    Reading {
        id,
        wide: random.next_u64() as i64 >> random.below(60),
        unsigned: random.next_u64() >> random.below(60),
        narrow: some(random).then(|| random.next_u64() as i32),
        tiny: random.below(256) as u8,
        // Whole numbers: their sums do not depend on the order.
        weight: some(random).then(|| random.below(1000) as f64 - 500.0),
        flag: random.below(2) == 0,
    }
}

struct Lab {
    database: Arc<Hyper>,
    readings: Table<Reading>,
}

/// Both backends, and synopses from the smallest to none, there with whole records as before-images.
fn variants() -> impl Iterator<Item = Options> {
    let synopses = [Some(16), Some(64), Some(1024), Some(1 << 16), None];
    let backends = [Backend::Columns, Backend::Rows];
    let before_images =
        |synopsis: Option<u32>| if synopsis.is_none() { BeforeImages::Records } else { BeforeImages::Columns };
    // What times its parts must answer the same.
    let of_backend = move |backend| {
        synopses.map(|synopsis| {
            let timed_scans = synopsis == Some(64);
            Options { backend, synopsis, before_images: before_images(synopsis), timed_scans, ..Options::default() }
        })
    };
    // Under an interpreter one for each backend.
    let all: Vec<_> = backends.into_iter().flat_map(of_backend).collect();
    all.into_iter().step_by(if SHRINK < 200 { 1 } else { 7 })
}

impl Lab {
    fn open(options: Options) -> Self {
        let memory = polychron_memory::Options {
            limit_bytes: Some(256 << 20),
            max_workers: 32,
            epoch_interval: None,
            ..polychron_memory::Options::tiny()
        };
        let database = Hyper::open(options, Common { memory, ..Common::default() }).unwrap();
        let readings = Table::from_id(database.create_table(Reading::definition()).unwrap());
        Self { database, readings }
    }

    fn worker(&self) -> HyperWorker {
        self.database.worker().unwrap()
    }

    fn quiesce(&self) {
        let mut worker = self.worker();
        for _ in 0..3 {
            self.database.memory().epochs().advance();
            worker.maintain();
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = self.database.statistics().metrics;
        let named = |metric: &&Metric| metric.name == name;
        match metrics.iter().find(named).expect("it is counted").value {
            MetricValue::Count(count) => count,
            _ => unreachable!("it is a count"),
        }
    }
}

/// Some questions about the table.
fn restrictions(random: &mut Random) -> Vec<Restriction> {
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::AtMost,
        Comparison::Greater,
        Comparison::AtLeast,
    ];
    let draw = |random: &mut Random| {
        let (column, value) = match random.below(9) {
            0 => (0, Value::Unsigned(random.below(2000))),
            1 => (1, Value::Integer(random.next_u64() as i64 >> random.below(64))),
            2 => (2, Value::Unsigned(random.next_u64() >> random.below(64))),
            // Of the other kind, and beyond all values of the column.
            3 => (2, Value::Integer(-5)),
            4 => (3, Value::Integer(random.next_u64() as i32 as i64)),
            5 => (3, Value::Null),
            6 => (4, Value::Unsigned(random.below(300))),
            7 => (5, Value::Float(random.below(1000) as f64 - 500.0)),
            _ => (6, Value::Bool(random.below(2) == 0)),
        };
        Restriction { column, comparison: comparisons[random.below(6) as usize], value }
    };
    (0..random.below(3)).map(|_| draw(random)).collect()
}

/// What the columns say must be what the rows say, which come by the index.
fn compare(t: &mut Tx<'_>, lab: &Lab, random: &mut Random) -> BTreeMap<u64, Vec<Value>> {
    let restrictions = restrictions(random);
    let scan = Scan { restrictions: &restrictions, ..Scan::all(lab.readings.id()) };
    let layout = Reading::definition().layout().unwrap();
    let values = |row: RowRef<'_>| (0..7).map(|column| row.value_ref(&layout, column).to_value()).collect::<Vec<_>>();
    let mut expected = BTreeMap::new();
    t.scan_rows(&scan, &mut |row| {
        let values = values(row);
        let Value::Unsigned(id) = values[0] else { unreachable!("ids are numbers") };
        expected.insert(id, values);
        ControlFlow::Continue(())
    })
    .unwrap();
    let mut found = BTreeMap::new();
    let mut look = |batch: &ColumnBatch<'_>| {
        let of_row = |row: usize| batch.columns.iter().map(|column| column.value(row).to_value()).collect::<Vec<_>>();
        assert_eq!(batch.positions().count(), batch.count());
        batch.positions().map(|row| (batch.columns[0].bits(row), of_row(row))).collect::<Vec<_>>()
    };
    t.scan_columns(&scan, &[0, 1, 2, 3, 4, 5, 6], &mut look, &mut |rows: Vec<_>| {
        rows.into_iter().for_each(|(id, row)| assert!(found.insert(id, row).is_none(), "{id} comes twice"));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(found, expected, "{restrictions:?}");
    // One column stands for all where each step is interpreted.
    let of_metrics = if SHRINK < 200 { 0..7 } else { 3..4 };
    for column in of_metrics {
        let of_column = || expected.values().map(|row| &row[column]).filter(|value| !value.is_null());
        let ask = |t: &mut Tx<'_>, wanted| t.aggregate(&scan, wanted).unwrap();
        assert_eq!(ask(t, Aggregate::Count(column)), Value::Unsigned(of_column().count() as u64));
        let least = of_column().min_by(|a, b| a.as_value_ref().partial_cmp(&b.as_value_ref()).unwrap());
        let most = of_column().max_by(|a, b| a.as_value_ref().partial_cmp(&b.as_value_ref()).unwrap());
        assert_eq!(ask(t, Aggregate::Min(column)), least.cloned().unwrap_or_default());
        assert_eq!(ask(t, Aggregate::Max(column)), most.cloned().unwrap_or_default());
    }
    assert_eq!(t.aggregate(&scan, Aggregate::Rows).unwrap(), Value::Unsigned(expected.len() as u64));
    for (column, sum) in [(3, whole_sum(&expected, 3)), (4, whole_sum(&expected, 4))] {
        assert_eq!(t.aggregate(&scan, Aggregate::Sum(column)).unwrap(), sum);
    }
    expected
}

/// The sum of a column of narrow integers.
fn whole_sum(rows: &BTreeMap<u64, Vec<Value>>, column: usize) -> Value {
    let values: Vec<_> = rows.values().map(|row| &row[column]).filter(|value| !value.is_null()).collect();
    if values.is_empty() {
        return Value::Null;
    }
    let sum = values.into_iter().map(|value| match value {
        Value::Integer(value) => i128::from(*value),
        Value::Unsigned(value) => i128::from(*value),
        other => unreachable!("{other:?} is no integer"),
    });
    match (sum.sum::<i128>(), column) {
        (sum, 4) => Value::Unsigned(sum as u64),
        (sum, _) => Value::Integer(sum as i64),
    }
}

/// Changes, deletes and inserts rows at random.
fn disturb(t: &mut Tx<'_>, lab: &Lab, random: &mut Random, rows: u64, times: u64) {
    for _ in 0..times {
        let id = random.below(rows + rows / 8 + 1);
        let fresh = reading(random, id);
        match random.below(6) {
            0 => _ = t.delete(&lab.readings, id).unwrap(),
            1 => t.upsert(&lab.readings, &fresh).unwrap(),
            2 => _ = t.update(&lab.readings, id, |row| row.set_wide(fresh.wide)).unwrap(),
            3 => _ = t.update(&lab.readings, id, |row| row.set_narrow(fresh.narrow)).unwrap(),
            4 => _ = t.update(&lab.readings, id, |row| row.set_weight(fresh.weight)).unwrap(),
            _ => _ = t.update(&lab.readings, id, |row| row.set_tiny(fresh.tiny)).unwrap(),
        }
    }
}

#[test]
fn columns_hold_what_rows_hold() {
    for (variant, options) in variants().enumerate() {
        let (lab, mut random) = (Lab::open(options), Random::stream(5, variant as u64));
        let rows = scaled(2300, 30) as u64;
        let (mut writer, mut reader, mut other) = (lab.worker(), lab.worker(), lab.worker());
        let mut t = writer.begin(Mode::ReadWrite).unwrap();
        (0..rows).for_each(|id| t.insert(&lab.readings, &reading(&mut random, id)).unwrap());
        compare(&mut t, &lab, &mut random);
        t.commit().unwrap();
        for round in 0..scaled(6, 2) {
            lab.quiesce();
            let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
            let before = compare_all(&mut snapshot, &lab);
            let mut t = writer.begin(Mode::ReadWrite).unwrap();
            disturb(&mut t, &lab, &mut random, rows, [0, 1, 9, 400][round % 4]);
            // What is not committed, what is the reader's own, and what has been committed since.
            compare(&mut other.begin(Mode::ReadWrite).unwrap(), &lab, &mut random);
            compare(&mut t, &lab, &mut random);
            if round % 3 == 2 {
                drop(t);
            } else {
                t.commit().unwrap();
            }
            compare(&mut snapshot, &lab, &mut random);
            assert_eq!(compare_all(&mut snapshot, &lab), before, "a snapshot stays");
            compare(&mut other.begin(Mode::Snapshot).unwrap(), &lab, &mut random);
        }
    }
}

fn compare_all(t: &mut Tx<'_>, lab: &Lab) -> Vec<(u64, i64)> {
    let mut rows = Vec::new();
    let mut look = |batch: &ColumnBatch<'_>| {
        let of_row = |row: usize| (batch.columns[0].bits(row), batch.columns[1].bits(row) as i64);
        batch.positions().map(of_row).collect::<Vec<_>>()
    };
    t.scan_columns(&Scan::all(lab.readings.id()), &[0, 1], &mut look, &mut |more: Vec<_>| {
        rows.extend(more);
        ControlFlow::Continue(())
    })
    .unwrap();
    rows.sort_unstable();
    rows
}

/// Slot ranges without versions are lent whole, and versioned slots alone are rebuilt.
#[test]
fn what_is_plain_is_lent() {
    for options in variants().filter(|options| options.synopsis.is_some_and(|synopsis| synopsis <= 1024)) {
        let (is_lent, lab) = (options.backend == Backend::Columns, Lab::open(options));
        let rows = scaled(4096, 128) as u64;
        let (mut writer, mut random) = (lab.worker(), Random::from_seed(3));
        let mut t = writer.begin(Mode::ReadWrite).unwrap();
        (0..rows).for_each(|id| t.insert(&lab.readings, &reading(&mut random, id)).unwrap());
        t.commit().unwrap();
        lab.quiesce();
        let count = |lab: &Lab, snapshot: &mut Tx<'_>| {
            let names = ["records_lent", "records_gathered", "records_rebuilt"];
            let before = names.map(|name| lab.metric(name));
            assert_eq!(compare_all(snapshot, lab).len() as u64, rows);
            let after = names.map(|name| lab.metric(name));
            [0, 1, 2].map(|position| after[position] - before[position])
        };
        let mut reader = lab.worker();
        // The first scan corrects what the insertions have left.
        count(&lab, &mut reader.begin(Mode::Snapshot).unwrap());
        let all = if is_lent { [rows, 0, 0] } else { [0, rows, 0] };
        let mut snapshot = reader.begin(Mode::Snapshot).unwrap();
        assert_eq!(count(&lab, &mut snapshot), all);
        // To be counted a row is not looked at, wherever its words lie.
        let lent = lab.metric("records_lent");
        assert_eq!(snapshot.len(&lab.readings).unwrap(), rows);
        assert_eq!(lab.metric("records_lent") - lent, rows);
        let mut t = writer.begin(Mode::ReadWrite).unwrap();
        assert!(t.update(&lab.readings, rows / 3, |row| row.set_wide(7)).unwrap());
        t.commit().unwrap();
        let found = count(&lab, &mut snapshot);
        assert_eq!((found[0] + found[1], found[2]), (rows - 1, 1));
        drop(snapshot);
        lab.quiesce();
        count(&lab, &mut reader.begin(Mode::Snapshot).unwrap());
        assert_eq!(count(&lab, &mut reader.begin(Mode::Snapshot).unwrap()), all);
    }
}

/// Typed answers go along the columns, with conditions and by groups; and come to what the rows come to.
#[test]
fn typed_answers_come_from_columns() {
    for options in variants() {
        let (lab, mut random) = (Lab::open(options), Random::from_seed(11));
        let rows = scaled(2300, 100) as u64;
        let mut worker = lab.worker();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        (0..rows).for_each(|id| t.insert(&lab.readings, &reading(&mut random, id)).unwrap());
        t.commit().unwrap();
        lab.quiesce();
        let looked =
            || ["records_lent", "records_gathered", "records_rebuilt"].map(|name| lab.metric(name)).iter().sum::<u64>();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let before = looked();
        let few = t.scan(&lab.readings, ..).such_that(Reading::TINY.less_than(100));
        let (sum, least, count) =
            few.aggregate((Reading::NARROW.sum(), Reading::WEIGHT.min(), typed::count())).unwrap();
        assert_eq!(looked() - before, rows);
        let few = t.scan(&lab.readings, ..).such_that(Reading::TINY.less_than(100));
        let groups = few.group_by((Reading::FLAG, Reading::NARROW), (Reading::WIDE.max(), typed::count())).unwrap();
        assert_eq!(looked() - before, 2 * rows);
        let (mut expected, mut by_group) = ((None, None, 0), BTreeMap::<_, (Option<i64>, u64)>::new());
        for row in t.scan(&lab.readings, ..).rows().unwrap().iter().filter(|row| row.tiny < 100) {
            expected.0 = row.narrow.map(i64::from).map(|narrow| narrow + expected.0.unwrap_or(0)).or(expected.0);
            expected.1 =
                row.weight.map(|weight| expected.1.map_or(weight, |least: f64| least.min(weight))).or(expected.1);
            expected.2 += 1;
            let group = by_group.entry((row.flag, row.narrow)).or_default();
            *group = (group.0.max(Some(row.wide)), group.1 + 1);
        }
        assert_eq!((sum, least, count), expected);
        assert_eq!(groups, by_group.into_iter().collect::<Vec<_>>());
    }
}

/// Money goes from row to row, rows come and go, transactions roll back; every sum is the same.
#[test]
fn sums_stay_while_rows_change() {
    for options in variants() {
        let lab = Arc::new(Lab::open(options));
        let rows = scaled(1500, 24) as u64;
        let mut worker = lab.worker();
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let row = |id| Reading { wide: 100, narrow: Some(1), ..reading(&mut Random::from_seed(id), id) };
        (0..rows).for_each(|id| t.insert(&lab.readings, &row(id)).unwrap());
        t.commit().unwrap();
        lab.quiesce();
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let lab = Arc::clone(&lab);
                thread::spawn(move || move_money(&lab, rows, seed))
            })
            .collect();
        let mut scans = 0;
        while scans < scaled(60, 4) || writers.iter().any(|writer| !writer.is_finished()) {
            let mode = if scans % 2 == 0 { Mode::Snapshot } else { Mode::ReadWrite };
            let mut t = worker.begin(mode).unwrap();
            let all = Scan::all(lab.readings.id());
            assert_eq!(t.aggregate(&all, Aggregate::Sum(1)).unwrap(), Value::Integer(100 * rows as i64));
            let sum: i64 = compare_all(&mut t, &lab).into_iter().map(|(_, wide)| wide).sum();
            assert_eq!(sum, 100 * rows as i64);
            drop(t);
            self::thread::yield_now();
            lab.database.memory().epochs().advance();
            scans += 1;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}

/// Moves amounts between rows; empties a row and puts it elsewhere; gives some of it up.
fn move_money(lab: &Lab, rows: u64, seed: u64) {
    let (mut worker, mut random) = (lab.worker(), Random::stream(8, seed));
    for round in 0..scaled(2000, 10) {
        let (from, to) = (random.below(rows), random.below(rows));
        let mut t = worker.begin(Mode::ReadWrite).unwrap();
        let outcome = (|| {
            let Some(amount) = t.get(&lab.readings, from)?.map(|row| row.wide()) else { return Ok(()) };
            if from == to || t.get(&lab.readings, to)?.is_none() {
                return Ok(());
            }
            if round % 5 == 0 {
                // The row goes, and comes again with nothing.
                t.delete(&lab.readings, from)?;
                t.update(&lab.readings, to, |row| row.set_wide(row.wide() + amount))?;
                let empty = Reading { wide: 0, ..reading(&mut random, from) };
                return t.insert(&lab.readings, &empty);
            }
            t.update(&lab.readings, from, |row| row.set_wide(row.wide() - 1))?;
            t.update(&lab.readings, to, |row| row.set_wide(row.wide() + 1)).map(drop)
        })();
        // A thread that conflicts, and every seventh one, gives up.
        if outcome.is_ok() && round % 7 != 3 {
            let _ = t.commit();
        }
    }
}

#[test]
fn a_visit_ends_when_asked() {
    let lab = Lab::open(Options { backend: Backend::Columns, ..Options::default() });
    let (mut worker, mut random) = (lab.worker(), Random::from_seed(4));
    let mut t = worker.begin(Mode::ReadWrite).unwrap();
    (0..2 * batch::ROWS as u64 + 10).for_each(|id| t.insert(&lab.readings, &reading(&mut random, id)).unwrap());
    let mut batches = 0;
    t.scan_columns(&Scan::all(lab.readings.id()), &[4], &mut |batch| batch.rows, &mut |_| {
        batches += 1;
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(batches, 1);
}
