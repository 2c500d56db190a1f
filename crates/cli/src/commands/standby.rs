//! `polychron standby`.

use std::time::Duration;

use polychron::{Database, Error, StandbyStatus};
use polychron_base::line::OneLine;
use polychron_sync::atomic::Ordering;

use crate::arguments::Standby;
use crate::interrupt;
use crate::output::print_status;
use crate::progress::opening;

/// How often it looks whether it still follows.
const LOOK: Duration = Duration::from_millis(100);

/// Follows until Ctrl-C, and reports when the connection begins and ends. Ends with the reason when it can follow no longer.
pub(super) fn run(given: &Standby) -> Result<(), Error> {
    interrupt::listen();
    let database: Database = Database::builder().on_event(opening()).open_standby(&given.directory, &given.of)?;
    let mut said = String::new();
    while !interrupt::STOP.load(Ordering::Relaxed) {
        let status = database.standby();
        let line = status.as_ref().and_then(|status| line_of(&given.of, status));
        if let Some(line) = line.filter(|line| *line != said) {
            print_status(&line);
            said = line;
        }
        if let Some(ended) = status.and_then(|status| status.ended).and_then(std::sync::Arc::into_inner) {
            database.close()?;
            return Err(ended);
        }
        std::thread::sleep(LOOK);
    }
    database.close()
}

/// `None`: it is about to connect.
fn line_of(primary: &str, status: &StandbyStatus) -> Option<String> {
    match (&status.trouble, status.is_connected) {
        (Some(trouble), _) => Some(format!("{primary}: {}", OneLine(trouble))),
        (None, true) => Some(format!("{primary}: connected")),
        (None, false) => None,
    }
}
