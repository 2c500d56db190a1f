//! A primary and its standby, whose readers' snapshots are a part of one history: each is a prefix of the primary's serial order, and those of one session
//! do not go back.

use std::time::Duration;

use polychron::protocols::{Cicada, Hyper, Locking, Maflingo, Serial};
use polychron::{Builder, Database, Durability, Interactive, Protocol};
use polychron_check::checker::{Verdict, check};
use polychron_check::history::{Beside, History, Item, Operation, Pair, Round, Tables, run_round_beside};
use polychron_engine::mutations::{inherited, leave_out};
use polychron_engine::{Error, Table};
use polychron_log::steps::StandbyStep;
use polychron_sync::atomic::AtomicBool;

/// Readers of a standby.
const READERS: u32 = 2;

fn builder<P: Protocol>() -> Builder<P> {
    // Nobody waits for the log, which is flushed all the time.
    Database::builder().small().with::<P>().durability(Durability::Eventual(Duration::from_micros(500)))
}

/// The standby's tables, once it has them.
fn tables_of<P: Protocol>(standby: &Database<P>, tables: &Pair) -> Pair {
    let find = |name: &str| {
        // However long that takes on a busy machine.
        for _ in 0..6000 {
            if let Some(id) = standby.find_table(name) {
                return id;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the standby has no table {name}")
    };
    let [ordered, hash, owners] = ["ordered", "hash", "owner"].map(find);
    let found = Pair { ordered: Table::from_id(ordered), hash: Table::from_id(hash), owners: Table::from_id(owners) };
    // So that items are the same.
    assert_eq!(found.ordered.id().position(), tables.ordered.id().position());
    assert_eq!(found.hash.id().position(), tables.hash.id().position());
    found
}

fn read<P: Protocol>(beside: &Beside<'_>, standby: &Database<P>) -> Result<History, Error> {
    let tables = &tables_of(standby, &beside.tables);
    std::thread::scope(|scope| {
        let reader = |number| scope.spawn(move || beside.snapshots(standby.protocol(), tables, number));
        let readers: Vec<_> = (0..READERS).map(reader).collect();
        let mut all = History::default();
        for reader in readers {
            all.append(reader.join().expect("a reader does not panic")?);
        }
        Ok(all)
    })
}

/// The history of a round at the primary with what readers of a standby have seen.
fn joint<A: Protocol, B: Protocol<Worker: Interactive>>(seed: u64) -> History {
    let directory = tempfile::tempdir().unwrap();
    let primary = builder::<A>().serve_standbys("127.0.0.1:0").open(directory.path().join("primary")).unwrap();
    let address = primary.standby_address().unwrap().to_string();
    let mut round = Round::new(seed, 2, 900);
    // A standby applies what counts, and no more: one table of each kind shows more of that.
    round.mix.tables = Tables::Both;
    let left_out = inherited();
    let beside = |beside: &Beside<'_>| {
        let _left_out = left_out.leave_out();
        let standby = builder::<B>().open_standby(directory.path().join("standby"), &address)?;
        read(beside, &standby)
    };
    run_round_beside(primary.protocol(), &round, &AtomicBool::new(false), beside, |_| Ok(())).unwrap()
}

/// How many different versions readers of the standby have seen.
fn seen(history: &History) -> usize {
    let mut versions = Vec::new();
    for attempt in history.attempts.iter().filter(|attempt| attempt.thread >= 1000) {
        for operation in history.operations_of(attempt) {
            match operation {
                Operation::Read { item: Item { .. }, seen: Some(version) } => versions.push(*version),
                Operation::Range(range) => versions.extend(range.rows.iter().map(|(_, version)| *version)),
                _ => {}
            }
        }
    }
    versions.sort_unstable();
    versions.dedup();
    versions.len()
}

fn is_one_history<A: Protocol, B: Protocol<Worker: Interactive>>() {
    let mut versions = 0;
    for seed in 0..3 {
        let history = joint::<A, B>(seed);
        versions += seen(&history);
        match check(&history, true) {
            Verdict::Serializable(_) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(versions > 0, "readers saw something");
}

#[test]
fn snapshots_of_a_standby_are_prefixes() {
    is_one_history::<Cicada, Cicada>();
    is_one_history::<Hyper, Maflingo>();
    is_one_history::<Maflingo, Hyper>();
    is_one_history::<Cicada, Locking>();
    is_one_history::<Locking, Serial>();
}

#[test]
fn a_point_that_is_applied_in_parts_is_found() {
    let _careless = leave_out(StandbyStep::ApplyAtOnce);
    assert!((0..40).any(|seed| check(&joint::<Cicada, Cicada>(seed), true).anomaly().is_some()));
}

/// As if a reader had been shown what the primary had, from the last state to the first.
#[test]
fn a_session_that_goes_back_is_found() {
    let goes_back = |seed| {
        let mut history = joint::<Cicada, Cicada>(seed);
        let own: Vec<usize> = (0..history.attempts.len()).filter(|&it| history.attempts[it].thread == 1000).collect();
        for (first, last) in own.iter().zip(own.iter().rev()).take(own.len() / 2) {
            let operations = history.attempts[*first].operations.clone();
            history.attempts[*first].operations =
                std::mem::replace(&mut history.attempts[*last].operations, operations);
        }
        check(&history, true).anomaly().is_some()
    };
    assert!((0..20).any(goes_back));
}
