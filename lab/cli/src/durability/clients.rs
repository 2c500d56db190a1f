//! Clients that each write a row of their own.

use std::collections::VecDeque;
use std::time::Duration;

use polychron::{
    AnyProtocol, Database, Declare, Durability, Error, Operations, Procedure, Row, Submission, Table, Transaction,
};
use polychron_base::clock::SystemClock;
use tempfile::TempDir;

use super::disk::median;
use super::{Comparison, Place, Series, seconds_of};

/// How many procedures one client has under way.
const UNDER_WAY: usize = 1_000;

const GROUP: Durability = Durability::Group(Duration::from_millis(1));
const EVENTUAL: Durability = Durability::Eventual(Duration::from_millis(10));

#[derive(Row)]
struct Counter {
    #[key]
    id: u64,
    value: u64,
}

/// Adds one to a counter.
struct Add {
    counters: Table<Counter>,
    id: u64,
}

impl Procedure for Add {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        transaction.update(&self.counters, self.id, |row| row.set_value(row.value() + 1)).map(drop)
    }

    fn declare<D: Declare>(&self, _: &mut D) {}
}

/// A database with a row for each client.
pub(super) struct Clients {
    database: Database<AnyProtocol>,
    counters: Table<Counter>,
    count: u64,
    /// Goes last.
    _directory: Option<TempDir>,
}

impl Clients {
    /// In memory where there is no level.
    pub(super) fn open(place: &Place<'_>, level: Option<Durability>, count: u64) -> Result<Self, String> {
        let builder = place.builder();
        let (database, directory) = match level {
            None => (builder.in_memory(), None),
            Some(level) => {
                let directory = place.directory()?;
                (builder.durability(level).create(directory.path()), Some(directory))
            }
        };
        let said = |error: Error| error.to_string();
        let database = database.map_err(said)?;
        let counters = database.create_table::<Counter>().map_err(said)?;
        let rows = count.max(UNDER_WAY as u64);
        let filled = database.transact(|transaction| {
            (0..rows).try_for_each(|id| transaction.insert(&counters, &Counter { id, value: 0 }))
        });
        filled.map_err(said)?;
        Ok(Self { database, counters, count, _directory: directory })
    }

    /// The median time of one client's commits, in microseconds.
    pub(super) fn latency(&mut self, seconds: f64) -> Result<f64, String> {
        let (mut times, begin) = (Vec::new(), SystemClock::new());
        while seconds_of(&begin) < seconds {
            let start = SystemClock::new();
            self.database.execute(&mut Add { counters: self.counters, id: 0 }).map_err(|error| error.to_string())?;
            times.push(seconds_of(&start) * 1e6);
        }
        Ok(median(times))
    }

    /// Commits a second of all clients, each with a thread.
    fn rate(&mut self, seconds: f64) -> Result<f64, String> {
        let (database, counters, begin) = (&self.database, self.counters, &SystemClock::new());
        let commits: Result<u64, Error> = std::thread::scope(|scope| {
            let client = |id| {
                scope.spawn(move || {
                    let mut commits = 0;
                    while seconds_of(begin) < seconds {
                        database.execute(&mut Add { counters, id })?;
                        commits += 1;
                    }
                    Ok(commits)
                })
            };
            let clients: Vec<_> = (0..self.count).map(client).collect();
            clients.into_iter().map(|client| client.join().expect("a client does not panic")).sum()
        });
        Ok(commits.map_err(|error| error.to_string())? as f64 / seconds_of(begin))
    }

    /// Commits a second of one client that has many submissions under way, each on a row of its own.
    fn submitted(&mut self, seconds: f64) -> Result<f64, String> {
        let (mut under_way, begin) = (VecDeque::<Submission<(), Error>>::new(), SystemClock::new());
        let mut commits = 0_u64;
        while seconds_of(&begin) < seconds || !under_way.is_empty() {
            if under_way.len() < UNDER_WAY && seconds_of(&begin) < seconds {
                let id = (commits + under_way.len() as u64) % UNDER_WAY as u64;
                under_way.push_back(self.database.submit(Add { counters: self.counters, id }));
                continue;
            }
            let Some(first) = under_way.pop_front() else { break };
            first.wait().map_err(|error| error.to_string())?;
            commits += 1;
        }
        Ok(commits as f64 / seconds_of(&begin))
    }
}

fn named(level: Option<Durability>) -> String {
    level.map_or("in memory".to_owned(), |level| level.to_string())
}

/// Many clients at each level, beside one of them.
pub(super) fn levels<'p>(place: &'p Place<'_>) -> Result<Comparison<'p>, String> {
    let seconds = place.given.seconds;
    let immediate = [1, 4, 16, 64].map(|count| (Some(Durability::Immediate), count));
    let others = [Some(GROUP), Some(EVENTUAL), Some(Durability::OnCheckpoint), None].map(|level| (level, 64));
    let series = immediate.into_iter().chain(others).map(|(level, count)| {
        let mut clients = Clients::open(place, level, count)?;
        Ok(Series::new(format!("{count} clients, {}", named(level)), move || clients.rate(seconds)))
    });
    Ok(Comparison::new("clients", "commits a second", series.collect::<Result<_, String>>()?))
}

/// A thousand submissions under way, whose answers wait or do not.
pub(super) fn submissions<'p>(place: &'p Place<'_>) -> Result<Comparison<'p>, String> {
    let seconds = place.given.seconds;
    let series = [Some(EVENTUAL), Some(Durability::Immediate), None].into_iter().map(|level| {
        let mut clients = Clients::open(place, level, 1)?;
        Ok(Series::new(named(level), move || clients.submitted(seconds)))
    });
    Ok(Comparison::new("a thousand submissions", "commits a second", series.collect::<Result<_, String>>()?))
}
