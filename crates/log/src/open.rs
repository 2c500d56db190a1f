//! Opening a log: what is there is read, made durable, and gone on with.

use std::collections::BTreeSet;
use std::sync::Arc;

use polychron_base::clock::Clock;
use polychron_engine::mutations::left_out;

use crate::disk::{Access, Cause, Disk, File, Files};
use crate::error::Error;
use crate::flush::flusher::{Flusher, Mark, Start};
use crate::flush::pool::{DIRECTORY, Lengths, Pool, path_of};
use crate::flush::{Ended, Log, Options, Parts};
use crate::frame::Order;
use crate::manifest::{Checkpoint, Manifest, Manifests};
use crate::read::{self, End, Logged, Manner};
use crate::ship;
use crate::steps::Step;

impl<D: Disk + Clone> Log<D> {
    /// Opens the log of a database whose manifests are open; the caller has the database's lock. `visit` is given all that the log has
    /// ([`read`](crate::read())), and `ended` is asked at each flush up to which order all transactions have ended.
    ///
    /// # Errors
    /// [`Error`]. Damage changes nothing; after errors of the disk the database may be opened again.
    pub fn open(
        files: &Files<D>,
        manifests: &mut Manifests<D>,
        options: Options,
        clock: Arc<dyn Clock>,
        ended: Ended,
        visit: &mut dyn FnMut(Logged<'_>),
    ) -> Result<Self, Error> {
        if let Some(complaint) = options.complaint() {
            return Err(Error::Options(complaint));
        }
        let end = Self::read(files, manifests, &Manner::default(), visit)?;
        Self::go_on(files, manifests, options, clock, ended, end)
    }

    /// Reads a log, and changes nothing.
    pub(crate) fn read(
        files: &Files<D>,
        manifests: &Manifests<D>,
        manner: &Manner<'_>,
        visit: &mut dyn FnMut(Logged<'_>),
    ) -> Result<End, Error> {
        let manifest = manifests.current();
        if manifest.incarnation == 0 {
            read::refuse_foreign(files)?;
            return Ok(End::of_none(manifest.first_log_file));
        }
        read::read_to_end(files, manifest, manifests.generation(), manner, visit)
    }

    /// Goes on with a log that was read to its end.
    pub(crate) fn go_on(
        files: &Files<D>,
        manifests: &mut Manifests<D>,
        options: Options,
        clock: Arc<dyn Clock>,
        ended: Ended,
        end: End,
    ) -> Result<Self, Error> {
        let manifest = manifests.current().clone();
        if manifest.incarnation == 0 {
            begin_directory(files)?;
        }
        make_durable(files, &end)?;
        let whole = end.whole;
        let incarnation = if left_out(Step::RaiseIncarnation) {
            manifest.incarnation
        } else {
            ship::next_incarnation(files, manifest.incarnation)?
        };
        let (file, pool, number, offset) = place(files, end, options.lengths())?;
        pool.note_checkpoint(manifest.checkpoint.as_ref().map_or(0, Checkpoint::bytes));
        // Before anything of this opening is in the log, so that no other one has its number.
        let raised = Manifest { incarnation, durable: whole, ..manifest };
        manifests.write(raised.clone())?;
        ship::forget(files)?;
        let start = Start { database: raised.database, incarnation, number, offset, whole };
        let mut flusher = Flusher::new(file, start, options.frame_bytes, Arc::clone(&clock))?;
        if !left_out(Step::MarkOpening) {
            let mark = Mark { consistent: Order::default(), manifest: manifests.generation() };
            flusher.finish(whole + 1, mark, &pool)?;
        }
        if whole == 0 {
            // From now on it is known that the log has something, should its files go.
            manifests.write(Manifest { durable: flusher.whole(), ..raised })?;
        }
        let manifest = manifests.generation();
        Ok(Self::new(Parts { flusher, pool, ended, options, clock, manifest }))
    }
}

/// Makes the log's directory anew. Nothing was logged yet, and what an interrupted creation has left may not be durable.
fn begin_directory<D: Disk>(files: &Files<D>) -> Result<(), Error> {
    match files.list(DIRECTORY) {
        Ok(entries) => {
            for entry in entries {
                files.remove(&format!("{DIRECTORY}/{}", entry.name))?;
            }
            files.remove_directory(DIRECTORY)?;
        }
        Err(error) if error.cause == Cause::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    files.sync_directory("")?;
    files.create_directory(DIRECTORY)?;
    files.sync_directory("")?;
    Ok(())
}

/// Makes what was read durable: frames that may be so only in the system's cache are written again, and files without anything that counts are removed,
/// since what they have on the medium may be something else than what they show.
pub(crate) fn make_durable<D: Disk>(files: &Files<D>, end: &End) -> Result<(), Error> {
    let unsure = if left_out(Step::RewriteFound) { &[] } else { end.unsure.as_slice() };
    for slot in unsure.iter().map(|found| found.slot).collect::<BTreeSet<_>>() {
        let file = files.open(&path_of(slot), Access::Write)?;
        for found in unsure.iter().filter(|found| found.slot == slot) {
            file.write_at(found.offset, &found.bytes)?;
        }
        file.sync()?;
    }
    if !left_out(Step::RemoveLeftovers) {
        let is_live = |slot| end.live.iter().any(|live| live.slot == slot);
        let unused: Vec<u32> = end.slots.iter().copied().filter(|slot| !is_live(*slot)).collect();
        for slot in &unused {
            files.remove(&path_of(*slot))?;
        }
        if !unused.is_empty() {
            files.sync_directory(DIRECTORY)?;
        }
    }
    Ok(())
}

type Placed<D> = (File<<D as Disk>::File>, Pool<D>, u64, u64);

/// The file that the log goes on in, and the place in it.
fn place<D: Disk + Clone>(files: &Files<D>, end: End, lengths: Lengths) -> Result<Placed<D>, Error> {
    let (last, offset) = (end.live.last().copied(), end.offset);
    let pool = Pool::new(files.clone(), lengths, end.live)?;
    if let Some(last) = last.filter(|last| last.number == end.number) {
        let file = files.open(&path_of(last.slot), Access::Write)?;
        if file.bytes()? > offset {
            return Ok((file, pool, last.number, offset));
        }
    }
    let number = if last.is_some() { end.number + 1 } else { end.number };
    let file = pool.take(number, end.whole + 1, 0)?;
    Ok((file, pool, number, 0))
}
