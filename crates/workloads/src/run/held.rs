//! A snapshot that stays open for the whole run: what an open reader costs the others.

use std::ops::ControlFlow;
use std::time::Duration;

use polychron_base::TableId;
use polychron_engine::{Error, Operations, Procedure, Transaction};
use polychron_schema::Projection;

use super::client::Phase;

/// The pause of the reader between two reads, by which it leaves epochs that have ended. The pause costs no processor time.
const PAUSE: Duration = Duration::from_millis(1);

/// Looks at a row from time to time until the run is over.
pub(super) struct Held<'r> {
    pub(super) phase: &'r Phase,
    pub(super) table: TableId,
}

impl Procedure for Held<'_> {
    type Output = ();
    type Error = Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), Error> {
        while self.phase.get() != Phase::OVER {
            transaction.scan_table(self.table, &Projection::NONE, &mut |_| ControlFlow::Break(()))?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
