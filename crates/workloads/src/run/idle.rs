//! A client that comes and goes beside a run: it leaves something open and does nothing, for times and for seconds.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use polychron_base::Error;
use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::any::AnyProtocol;
use polychron_engine::{Access, Declare, Operations, Procedure, Protocol, Row, Table, Transaction, Worker};
use polychron_schema::{Projection, Row as DeriveRow};

use super::client::Phase;

/// The transaction that an idle client leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// A snapshot.
    Snapshot,
    /// A transaction that has written a row which nobody else wants.
    Writer,
    /// The one and the other, in turns.
    Both,
}

impl Idle {
    /// Whether a transaction of this round writes.
    fn writes(self, round: usize) -> bool {
        match self {
            Self::Snapshot => false,
            Self::Writer => true,
            Self::Both => round % 2 == 1,
        }
    }
}

/// For how long it does nothing, with something open and then without, in milliseconds. The number is odd, so that with [`Idle::Both`]
/// each kind has each length.
const HOLDS_MS: [u64; 5] = [20, 1000, 200, 5000, 50];

/// The length of one sleep, short enough that the end of a run does not wait for it.
const NAP: Duration = Duration::from_millis(5);

/// The client's own row.
#[derive(DeriveRow, Clone, Debug)]
#[row(name = "idle_client")]
struct Mark {
    #[key]
    id: u64,
    value: u64,
}

/// The client.
pub(super) struct Comings {
    worker: <AnyProtocol as Protocol>::Worker,
    table: Table<Mark>,
    idle: Idle,
}

impl Comings {
    /// Takes a worker and makes a table for the client's own row.
    pub(super) fn new(database: &Arc<AnyProtocol>, idle: Idle) -> Result<Self, Error> {
        let table = Table::from_id(database.create_table(Mark::definition())?);
        Ok(Self { worker: database.worker()?, table, idle })
    }

    /// Comes and goes until the run is over, and answers for how long it had to wait at most, in nanoseconds.
    pub(super) fn go_on(&mut self, phase: &Phase) -> Result<u64, Error> {
        let clock = SystemClock::new();
        let mut longest_ns = 0;
        for round in 0.. {
            if phase.get() == Phase::OVER {
                break;
            }
            let hold = Duration::from_millis(HOLDS_MS[round % HOLDS_MS.len()]);
            let mut doing = Nothing { table: self.table, writes: self.idle.writes(round), hold, phase, slept_ns: 0 };
            let began_ns = clock.now_ns();
            if doing.writes {
                self.worker.execute(&mut doing)?;
            } else {
                self.worker.snapshot(&mut doing)?;
            }
            longest_ns = longest_ns.max((clock.now_ns() - began_ns).saturating_sub(doing.slept_ns));
            sleep(hold, phase);
        }
        Ok(longest_ns)
    }
}

/// Sleeps for a time, or until the run is over.
fn sleep(time: Duration, phase: &Phase) {
    let clock = SystemClock::new();
    while phase.get() != Phase::OVER && clock.now_ns() < time.as_nanos() as u64 {
        std::thread::sleep(NAP);
    }
}

/// Looks at a row or writes one, and then does nothing.
struct Nothing<'r> {
    table: Table<Mark>,
    writes: bool,
    hold: Duration,
    phase: &'r Phase,
    /// For how long it wanted to do nothing, over all attempts.
    slept_ns: u64,
}

impl Procedure for Nothing<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        if self.writes {
            transaction.upsert(&self.table, &Mark { id: 0, value: 1 })?;
        } else {
            transaction.scan_table(self.table.id(), &Projection::NONE, &mut |_| ControlFlow::Break(()))?;
        }
        let clock = SystemClock::new();
        sleep(self.hold, self.phase);
        self.slept_ns += clock.now_ns();
        Ok(())
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        if self.writes {
            declaration.row(&self.table, 0, Access::Write);
        }
    }
}
