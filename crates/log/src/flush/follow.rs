//! The log of a standby, which has the frames of its primary and makes none, and what a primary's log does for standbys.

use std::sync::{Arc, PoisonError};

use polychron_base::clock::{Clock, Duration};
use polychron_engine::mutations::left_out;

use super::flusher::{Flusher, Framed, Shipped, Start};
use super::pool::{DIRECTORY, Pool, path_of};
use super::replicas::{Replica, Replication};
use super::{Log, Options, Parts};
use crate::disk::{Access, Disk, Files};
use crate::error::{Error, Stop};
use crate::frame::Order;
use crate::manifest::{Checkpoint, Manifests};
use crate::open::make_durable;
use crate::read::{Cursor, End};
use crate::steps::ShipStep;

impl<D: Disk + Clone> Log<D> {
    /// Goes on with a log that was read to its end, as a standby does: behind the last frame, without an incarnation of its own.
    pub(crate) fn follow(
        files: &Files<D>,
        manifests: &Manifests<D>,
        options: Options,
        clock: Arc<dyn Clock>,
        end: End,
    ) -> Result<(Self, Cursor), Error> {
        make_durable(files, &end)?;
        let manifest = manifests.current();
        let End { whole, number, offset, incarnation, before, consistent, written_ns, live, .. } = end;
        let Some(last) = live.iter().find(|live| live.number == number).copied() else {
            return Err(Error::Corrupt {
                file: DIRECTORY.to_owned(),
                offset: 0,
                first_epoch: whole,
                last_epoch: whole,
                reason: "a standby's log has no frame",
            });
        };
        let pool = Pool::new(files.clone(), options.lengths(), live)?;
        pool.note_checkpoint(manifest.checkpoint.as_ref().map_or(0, Checkpoint::bytes));
        let file = files.open(&path_of(last.slot), Access::Write)?;
        let start = Start { database: manifest.database, incarnation, number, offset, whole };
        let flusher = Flusher::new(file, start, options.frame_bytes, Arc::clone(&clock))?;
        let ended = Box::new(Order::default);
        let mut log = Self::new(Parts { flusher, pool, ended, options, clock, manifest: manifests.generation() });
        log.is_following = true;
        let framed = log.framed.get_mut().unwrap_or_else(PoisonError::into_inner);
        *framed = Framed { consistent, highest: consistent, written_ns, ..*framed };
        Ok((log, Cursor { number, offset, whole, incarnation, before, is_unfinished: false }))
    }
}

impl<D: Disk> Log<D> {
    /// Makes room for frames that follow, in files that are as long as the primary's. Where there is none, nothing is lost, and this may be tried again.
    pub(crate) fn make_room_for(&self, frames: &[Shipped]) -> Result<(), crate::disk::Error> {
        let mut number = self.framed().number;
        let begins_file = |shipped: &&Shipped| {
            let file = shipped.header.place.file;
            std::mem::replace(&mut number, file) != file
        };
        let lengths: Vec<u64> = frames.iter().filter(begins_file).map(|shipped| shipped.file_bytes).collect();
        if lengths.is_empty() { Ok(()) } else { self.pool.fill_exact(&lengths) }
    }

    /// Makes the frames of whole epochs durable, each of which follows the one before.
    pub(crate) fn append(&self, frames: &[Shipped]) -> Result<(), Stop> {
        let Some(last) = frames.last() else { return Ok(()) };
        self.turn.wait(last.header.last_epoch, |flusher| {
            let epoch = flusher.append(frames, &self.pool)?;
            self.note_framed(flusher.framed(last.header.consistent));
            Ok(epoch)
        })
    }

    /// Writes an empty frame, if the last one's consistent point does not cover all that was sealed, and a new one's would cover more. So what a log
    /// has last is seen at standbys, too.
    pub fn cover(&self) {
        let framed = self.framed();
        if self.is_following || framed.consistent >= framed.highest || left_out(ShipStep::CoverLast) {
            return;
        }
        if (self.ended)() > framed.consistent {
            // Whoever waits or begins learns of a failure.
            let _ = self.wait_with(self.rings.current(), true);
        }
    }

    /// Writes a frame for all that was sealed, or an empty one.
    pub fn write_down(&self) {
        if !self.is_following {
            // Whoever waits or begins learns of a failure.
            let _ = self.wait_with(self.rings.current(), true);
        }
    }

    /// A standby has this durably. What it says of orders is of the transactions of this incarnation.
    pub(crate) fn acknowledge(&self, standby: u128, replica: Replica) {
        self.replicas.acknowledge(standby, replica, &self.finished);
    }

    /// How far standbys have come that are connected.
    pub fn replication(&self) -> Replication {
        self.replicas.status(self.durable())
    }

    /// A connection to a standby has ended.
    pub(crate) fn leave(&self, connection: u64) {
        self.replicas.leave(connection);
    }

    /// Nothing more is heard of standbys.
    pub(crate) fn end_replicas(&self) {
        self.replicas.end();
    }

    /// Waits until there is a durable frame behind a place, or for so long.
    pub(crate) fn await_frame(&self, behind: &Cursor, time: Duration) {
        let framed = self.framed.lock().unwrap_or_else(PoisonError::into_inner);
        if (framed.number, framed.offset) == (behind.number, behind.offset) {
            drop(self.framed_changed.wait_timeout(framed, time));
        }
    }

    pub(super) fn note_framed(&self, framed: Framed) {
        *self.framed.lock().unwrap_or_else(PoisonError::into_inner) = framed;
        self.framed_changed.notify_all();
    }
}
