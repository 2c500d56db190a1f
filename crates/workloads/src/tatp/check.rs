//! The conditions that must hold after any number of transactions.

use std::ops::Range;
use std::sync::Arc;

use polychron_engine::{Access, Declare, Error, Operations, Procedure, Protocol, Transaction, Worker};

use super::schema::{Subscriber, Tables, digits};
use crate::{CheckError, Checked};

/// Subscribers that one transaction looks at.
const CHUNK: u32 = 100;

const CONDITIONS: [&str; 3] = [
    "every subscriber is there, and is found by its number",
    "every call forwarding belongs to a facility of its subscriber, and ends after it starts",
    "there are as many call forwardings as were inserted and not deleted",
];

/// Looks at some subscribers and their call forwardings.
struct Look {
    tables: Tables,
    subscribers: Range<u32>,
}

/// The result of a scan: the number of call forwardings, and the first condition that is broken.
#[derive(Default)]
struct Seen {
    forwardings: i64,
    broken: Option<(usize, String)>,
}

impl Procedure for Look {
    type Output = Seen;
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Seen, Error> {
        let mut seen = Seen::default();
        for subscriber in self.subscribers.clone() {
            let number = transaction.get(&self.tables.subscribers, subscriber)?.map(|row| *row.number());
            let wanted = digits(subscriber.into());
            let found = transaction.scan_by(&self.tables.subscribers, Subscriber::BY_NUMBER, wanted);
            let found = found.map(|row| row.id()).collect::<Vec<_>>()?;
            if number != Some(digits(subscriber.into())) || found != [subscriber] {
                seen.broken.get_or_insert((0, format!("subscriber {subscriber} is found as {found:?}")));
            }
        }
        let first = (self.subscribers.start, 0, 0);
        let behind = (self.subscribers.end, 0, 0);
        let forwardings = transaction.scan(&self.tables.forwardings, first..behind);
        let forwardings: Vec<_> = forwardings.rows()?;
        seen.forwardings = forwardings.len() as i64;
        for row in forwardings {
            let facility = transaction.get(&self.tables.facilities, (row.subscriber, row.facility_type))?;
            if facility.is_none() || row.end_time <= row.start_time {
                seen.broken.get_or_insert((1, format!("{row:?}")));
            }
        }
        Ok(seen)
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.subscribers
            .clone()
            .for_each(|subscriber| declaration.row(&self.tables.subscribers, subscriber, Access::Read));
    }
}

/// Checks a database at rest.
pub(super) fn check<P: Protocol>(
    database: &Arc<P>,
    tables: &Tables,
    subscribers: u32,
    expected_forwardings: i64,
) -> Result<Checked, CheckError> {
    let broken = |at: usize, rows| CheckError::Broken { condition: CONDITIONS[at].to_owned(), rows };
    let mut worker = database.worker()?;
    let (mut forwardings, mut from) = (0, 1);
    while from <= subscribers {
        let end = (subscribers + 1).min(from + CHUNK);
        let seen = worker.execute(&mut Look { tables: *tables, subscribers: from..end })?;
        if let Some((condition, rows)) = seen.broken {
            return Err(broken(condition, rows));
        }
        forwardings += seen.forwardings;
        from = end;
    }
    if forwardings != expected_forwardings {
        return Err(broken(2, format!("{forwardings} call forwardings in place of {expected_forwardings}")));
    }
    Ok(Checked { conditions: CONDITIONS.map(str::to_owned).to_vec() })
}
