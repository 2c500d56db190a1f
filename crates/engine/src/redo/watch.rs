//! What transactions read while the log has stopped.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_base::{Error, IndexId, TableId};
use polychron_schema::{KeyExtractor, KeyScratch, Projection, RowRef};

use super::{Journal, Log, Order, Step, Ticket};
use crate::mutations::left_out;
use crate::{Direction, Scan};

/// A range of the primary keys of a table.
pub type KeyRange<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Looks whether what a transaction reads is durable, if its log had stopped when it began: then waiting tells nothing. Each operation asks behind what
/// it has read, for whatever it has read was sealed before. Elsewhere this is empty, and an operation costs a branch.
#[derive(Default)]
pub struct Watch(Option<Box<Watching>>);

struct Watching {
    log: Arc<dyn Log>,
    /// Something that was read may not be durable, or it is not known.
    has_met: bool,
    key: Vec<u8>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_met = self.0.as_ref().map(|watching| watching.has_met);
        out.debug_struct("Watch").field("has_met", &has_met).finish()
    }
}

impl Watch {
    /// A transaction begins that has read nothing yet.
    #[inline]
    pub fn begin(&mut self, journal: &Journal) {
        if self.is_on() || journal.has_stopped() {
            self.renew(journal);
        }
    }

    #[cold]
    fn renew(&mut self, journal: &Journal) {
        let log = journal.0.as_ref().filter(|log| log.has_stopped());
        self.0 = log.map(|log| Box::new(Watching { log: Arc::clone(log), has_met: false, key: Vec::new() }));
    }

    /// Nothing is known of what is read from now on.
    pub fn end(&mut self) {
        self.0 = None;
    }

    /// Whether what is read has to be [looked](Self::read_key) [at](Self::read_range).
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the log had stopped before the transaction began, and all that it has read is durable.
    #[inline]
    pub fn is_certain(&self) -> bool {
        self.0.as_ref().is_some_and(|watching| !watching.has_met)
    }

    /// What was read, or written, is not known.
    #[cold]
    pub fn give_up(&mut self) {
        if let Some(watching) = &mut self.0 {
            watching.has_met = true;
        }
    }

    /// A row was read, or missed. The extractor is that of the table's primary key, here and below.
    #[cold]
    pub fn read_key<K: EncodedKey>(&mut self, table: TableId, extractor: &KeyExtractor, key: K) {
        let Some(Watching { log, has_met, key: bytes }) = self.0.as_deref_mut() else { return };
        if *has_met || left_out(Step::WatchKeys) {
            return;
        }
        bytes.resize(key.len(), 0);
        key.write_to(bytes);
        *has_met |= log.is_lost(table, (Bound::Included(bytes), Bound::Included(bytes)), extractor);
    }

    /// A range was read, up to the row at which the visit has stopped, if it has. Where it is one of another index than the primary one, its rows may be
    /// any of the table: what was changed says nothing of the entries that there were before.
    #[cold]
    pub fn read_range(&mut self, extractor: &KeyExtractor, scan: &Scan<'_>, stopped_at: Option<&[u8]>) {
        let Some(Watching { log, has_met, .. }) = self.0.as_deref_mut() else { return };
        if *has_met || left_out(Step::WatchRanges) {
            return;
        }
        let range = match (scan.index, stopped_at, scan.direction) {
            (IndexId::PRIMARY, None, _) => (scan.lower, scan.upper),
            (IndexId::PRIMARY, Some(key), Direction::Forward) => (scan.lower, Bound::Included(key)),
            (IndexId::PRIMARY, Some(key), Direction::Backward) => (Bound::Included(key), scan.upper),
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        *has_met |= log.is_lost(scan.table, range, extractor);
    }
}

impl Journal {
    /// See [`Log::has_stopped`].
    #[inline]
    pub fn has_stopped(&self) -> bool {
        self.0.as_ref().is_some_and(|log| log.has_stopped())
    }

    /// See [`Log::ticket`]; of a transaction that was watched.
    #[inline]
    pub fn ticket_of(&self, watch: &Watch, read: impl FnOnce() -> Order) -> Ticket {
        if watch.is_certain() { Ticket::DONE } else { self.ticket(read) }
    }
}

/// Has a range visited, of which the whole rows are wanted for their keys. The key of the row at which the visit stops, if it does; a row without a key
/// leaves it as if it had not.
///
/// # Errors
/// Those of the visit.
pub fn visit_to_stop(
    scan: &Scan<'_>,
    extractor: &KeyExtractor,
    visitor: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    visit: impl FnOnce(&Scan<'_>, &mut &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<(), Error>,
) -> Result<Option<Vec<u8>>, Error> {
    let (mut stopped_at, mut left) = (None, scan.limit);
    let mut look = |row: RowRef<'_>| {
        left -= 1;
        let flow = visitor(row);
        if left == 0 || flow.is_break() {
            stopped_at = extractor.extract(row, &mut KeyScratch::new()).ok().map(<[u8]>::to_vec);
        }
        flow
    };
    visit(&Scan { projection: Projection::ALL, ..scan.clone() }, &mut (&mut look as _))?;
    Ok(stopped_at)
}
