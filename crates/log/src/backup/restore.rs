//! Restoring: a backup is brought up to a later consistent point of its source, by what an archive and the log have.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use polychron_base::Error as Told;
use polychron_base::clock::SystemClock;
use polychron_engine::mutations::left_out;

use super::archive::MANIFESTS;
use super::{Copied, Origin, into_directory, target, told};
use crate::DatabaseId;
use crate::catalog::{self, StoredCatalog};
use crate::checkpoint::fold::{Kept, ReadLog};
use crate::checkpoint::pace::Pace;
use crate::checkpoint::{self, carried};
use crate::disk::{Access, Buffer, Cause, Directory, Disk, Entry, Files};
use crate::error::Error;
use crate::flush::flusher::Framed;
use crate::flush::pool::{self, path_of, slot_of};
use crate::frame::Order;
use crate::manifest::{self, Manifest, Manifests};
use crate::read::{self, Logged, Passed};
use crate::reading::Quiet;
use crate::steps::ArchiveStep;

/// Where a database was restored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The opening of the source whose transactions are there up to an order, and all of those before.
    pub incarnation: u64,
    /// That order; `None`: the backup is as it was.
    pub consistent: Option<Order>,
    /// When the epoch was written that tells this, in nanoseconds since 1970.
    pub written_ns: u64,
}

/// Where what was logged behind a backup is found.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'s, D: Disk> {
    /// An archive.
    pub archive: Option<&'s Files<D>>,
    /// The directory of the database itself.
    pub database: Option<&'s Files<D>>,
}

/// Writes the backup, brought up to the last consistent point that was written at this time or before, into an empty directory. The log counts up to the first
/// frame that is of a later time.
///
/// # Errors
/// [`Error`]: nothing is there then.
pub fn restore<D: Disk + Clone, E: Disk + Clone>(
    backup: &Files<D>,
    sources: Sources<'_, D>,
    to: &Files<E>,
    until_ns: u64,
    options: &checkpoint::Options,
) -> Result<Restored, Error> {
    target::refuse_full(to)?;
    let quiet = Quiet::<D>::begin(backup)?;
    let Some((base, _)) = Manifests::read_with_generation(backup)? else { return Err(Error::NoDatabase) };
    let Some(origin) = Origin::read(backup)? else { return Err(unrestorable("it is not a backup".to_owned())) };
    if base.incarnation != origin.incarnation {
        let reason = "the backup was opened to write, and has a history of its own since then";
        return Err(unrestorable(reason.to_owned()));
    }
    if until_ns < origin.written_ns {
        return Err(unrestorable(format!("the backup is of a later time: it was made {}", Seconds(origin.written_ns))));
    }
    let quiet_source = sources.database.map(Quiet::<D>::begin).transpose();
    let quiet_source = quiet_source.map_err(|error| unrestorable(format!("its source: {error}")))?;
    let joined = Joined::of(&sources, origin.database)?;
    let manifests = manifests(&sources, origin.database)?;
    let log = Files::new(joined.clone());
    let point = last_point(&log, &origin, &largest_carried(backup, &base)?, &manifests, until_ns);
    let point = point.map_err(|error| joined.named(error))?;
    let last = point.as_ref().map_or_else(|| backup_point(&origin), |point| point.last);
    let catalog = match &point {
        Some(point) => catalog::decode(&point.catalog)?.permanent(),
        None => catalog::decode(&base.catalog)?.permanent(),
    };
    let read_log: &ReadLog<'_> = &|visit| match &point {
        Some(_) => read_up_to(&log, &origin, last.epoch, visit).map_err(|error| joined.named(error)),
        None => Ok(()),
    };
    let drops = point.is_some() && !left_out(ArchiveStep::DropOpen);
    let kept = if drops { Kept::Nothing } else { Kept::Records };
    write(backup, &base, &catalog, read_log, last, to, options, kept)?;
    let ended = quiet.end(backup).and_then(|()| match (quiet_source, sources.database) {
        (Some(quiet), Some(files)) => quiet.end(files),
        _ => Ok(()),
    });
    ended.inspect_err(|_| _ = target::clear(to))?;
    let consistent = point.is_some().then_some(last.consistent);
    Ok(Restored { incarnation: last.incarnation, consistent, written_ns: last.written_ns })
}

#[expect(clippy::too_many_arguments, reason = "it is one call")]
fn write<D: Disk, E: Disk + Clone>(
    files: &Files<D>,
    manifest: &Manifest,
    catalog: &StoredCatalog,
    log: &ReadLog<'_>,
    last: Framed,
    to: &Files<E>,
    options: &checkpoint::Options,
    kept: Kept,
) -> Result<(), Error> {
    let clock = Arc::new(SystemClock::new());
    let pace = &Pace { clock, share: &|| 1.0, is_unwanted: Arc::default(), awaited: Arc::default() };
    Copied { files, manifest, catalog, log, last, options, pace, kept }.write(to, None)
}

fn unrestorable(reason: String) -> Error {
    Error::Unrestorable { reason }
}

/// The backup as it is.
fn backup_point(origin: &Origin) -> Framed {
    let Origin { incarnation, epoch, consistent, first_log_file: number, written_ns, .. } = *origin;
    Framed { epoch, incarnation, consistent, highest: consistent, number, offset: 0, written_ns }
}

/// The reader of a log that begins behind a backup.
fn behind(origin: &Origin) -> Manifest {
    let Origin { database, first_log_file, epoch, .. } = *origin;
    let folded = manifest::Checkpoint { epoch, ..manifest::Checkpoint::default() };
    // Nothing is known of what there must be.
    Manifest {
        database,
        incarnation: u64::MAX,
        first_log_file,
        durable: 0,
        checkpoint: Some(folded),
        catalog: Vec::new(),
    }
}

/// The highest order of the records that a backup carries.
fn largest_carried<D: Disk>(backup: &Files<D>, base: &Manifest) -> Result<Order, Error> {
    let mut largest = Order::default();
    carried(backup, base, &mut |logged| largest = largest.max(logged.record.order))?;
    Ok(largest)
}

/// A consistent point at which a restore may stop.
struct Point {
    last: Framed,
    catalog: Vec<u8>,
}

/// The last consistent point up to a time, if there is one behind the backup.
///
/// The tables of a point are those of the manifest that counted when its frame was written. Changes of tables depend on rows that were sealed before: so
/// the point has to cover all that the log has before the first frame with these tables.
fn last_point<D: Disk>(
    log: &Files<D>,
    origin: &Origin,
    carried: &Order,
    manifests: &BTreeMap<u64, Manifest>,
    until_ns: u64,
) -> Result<Option<Point>, Error> {
    let mut point = None;
    let (mut largest, mut covered, mut incarnation) = (*carried, *carried, origin.incarnation);
    let mut tables: Option<&[u8]> = None;
    let mut before = largest;
    read::read_points(log, &behind(origin), &mut |passed| match passed {
        Passed::Frame(header) => {
            if header.incarnation > incarnation {
                (incarnation, largest, covered, tables) =
                    (header.incarnation, Order::default(), Order::default(), None);
            }
            before = largest;
            header.written_ns <= until_ns
        }
        Passed::Record(logged) => {
            largest = largest.max(logged.record.order);
            true
        }
        Passed::Whole(header, (number, offset)) => {
            let counted = manifests.get(&header.manifest).filter(|it| it.incarnation == header.incarnation);
            let Some(counted) = counted else { return true };
            if tables != Some(counted.catalog.as_slice()) {
                (tables, covered) = (Some(counted.catalog.as_slice()), before);
            }
            let covers = header.consistent >= covered || left_out(ArchiveStep::CoverDefinitions);
            if header.last_epoch > origin.epoch && covers {
                let last = Framed {
                    epoch: header.last_epoch,
                    incarnation: header.incarnation,
                    consistent: header.consistent,
                    highest: header.consistent,
                    number,
                    offset,
                    written_ns: header.written_ns,
                };
                point = Some(Point { last, catalog: counted.catalog.clone() });
            }
            true
        }
    })?;
    Ok(point)
}

/// Hands out what the log has behind the backup, up to an epoch.
fn read_up_to<D: Disk>(
    log: &Files<D>,
    origin: &Origin,
    epoch: u64,
    visit: &mut dyn FnMut(Logged<'_>),
) -> Result<(), Error> {
    let mut is_over = false;
    read::read_points(log, &behind(origin), &mut |passed| {
        match passed {
            Passed::Record(logged) => visit(logged),
            Passed::Whole(header, _) => is_over = header.last_epoch >= epoch,
            Passed::Frame(_) => return !is_over,
        }
        true
    })
}

/// The manifests that an archive has, by their generations, and the one that counts in the database's directory.
fn manifests<D: Disk + Clone>(
    sources: &Sources<'_, D>,
    database: DatabaseId,
) -> Result<BTreeMap<u64, Manifest>, Error> {
    let mut found = BTreeMap::new();
    if let Some(archive) = sources.archive {
        let directory = format!("{database}/{MANIFESTS}");
        for entry in archive.list(&directory)? {
            let file = archive.open(&format!("{directory}/{}", entry.name), Access::Read)?;
            let mut bytes = Buffer::zeroed(file.bytes()? as usize);
            file.read_at(0, &mut bytes)?;
            // One that is damaged or was interrupted is not known, as if it was never there.
            if let Ok((manifest, generation)) = manifest::decode(&bytes)
                && manifest.database == database
            {
                found.insert(generation, manifest);
            }
        }
    }
    if let Some(files) = sources.database
        && let Some((manifest, generation)) = Manifests::read_with_generation(files)?
    {
        if manifest.database != database {
            return Err(unrestorable("the backup is of another database than the one that is named".to_owned()));
        }
        found.insert(generation, manifest);
    }
    Ok(found)
}

/// The log files of an archive and of a database, read as those of one directory.
#[derive(Clone)]
struct Joined<D>(Arc<Vec<(D, String)>>);

impl<D: Disk + Clone> Joined<D> {
    fn of(sources: &Sources<'_, D>, database: DatabaseId) -> Result<Self, Error> {
        let mut parts = Vec::new();
        if let Some(archive) = sources.archive {
            if !archive.list("")?.iter().any(|entry| entry.name == database.to_string()) {
                return Err(unrestorable(format!("the archive has nothing of its database, {database}")));
            }
            parts.push((archive.disk().clone(), format!("{database}/")));
        }
        parts.extend(sources.database.map(|files| (files.disk().clone(), String::new())));
        Ok(Self(Arc::new(parts)))
    }

    /// The part that has a file, and its path there.
    fn part(&self, path: &str) -> Option<(&D, String)> {
        let slot = slot_of(path.strip_prefix(pool::DIRECTORY)?.strip_prefix('/')?)? as usize;
        let count = self.0.len();
        let (disk, prefix) = self.0.get(slot.checked_rem(count)?)?;
        Some((disk, format!("{prefix}{}", path_of((slot / count) as u32))))
    }

    /// An error that names files as they are called.
    fn named(&self, error: Error) -> Error {
        let real = |path: String| self.part(&path).map_or(path, |(_, real)| real);
        match error {
            Error::Corrupt { file, offset, first_epoch, last_epoch, reason } => {
                Error::Corrupt { file: real(file), offset, first_epoch, last_epoch, reason }
            }
            Error::Disk(error) => {
                let path = real(error.path);
                Error::Disk(crate::disk::Error { path, ..error })
            }
            Error::Unsupported { file, format } => Error::Unsupported { file: real(file), format },
            error => error,
        }
    }
}

impl<D: Disk + Clone> Disk for Joined<D> {
    type File = D::File;
    type Lock = D::Lock;

    fn create(&self, _: &str, _: u64) -> Result<D::File, Cause> {
        Err(Cause::Denied)
    }

    fn open(&self, path: &str, access: Access) -> Result<D::File, Cause> {
        match (self.part(path), access) {
            (Some((disk, path)), Access::Read) => disk.open(&path, access),
            _ => Err(Cause::Denied),
        }
    }

    fn remove(&self, _: &str) -> Result<(), Cause> {
        Err(Cause::Denied)
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, Cause> {
        let mut entries = Vec::new();
        for (part, (disk, prefix)) in self.0.iter().enumerate() {
            for entry in disk.list(&format!("{prefix}{path}"))? {
                if let Some(slot) = slot_of(&entry.name) {
                    let path = path_of((slot as usize * self.0.len() + part) as u32);
                    entries.push(Entry { name: path[pool::DIRECTORY.len() + 1..].to_owned(), is_directory: false });
                }
            }
        }
        Ok(entries)
    }

    fn names(&self) -> Result<Vec<String>, Cause> {
        Err(Cause::Denied)
    }

    fn create_directory(&self, _: &str) -> Result<(), Cause> {
        Err(Cause::Denied)
    }

    fn remove_directory(&self, _: &str) -> Result<(), Cause> {
        Err(Cause::Denied)
    }

    fn sync_directory(&self, _: &str) -> Result<(), Cause> {
        Err(Cause::Denied)
    }

    fn room(&self) -> Option<u64> {
        None
    }

    fn lock(&self) -> Result<D::Lock, Cause> {
        Err(Cause::Denied)
    }

    fn lock_to_read(&self) -> Result<Option<D::Lock>, Cause> {
        Err(Cause::Denied)
    }
}

/// A time in words, in seconds since 1970.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{:09} s after 1970", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Makes a database of a backup, an archive, and the directory of its source, which nobody has open to write, as far as they are named, in a directory that is
/// empty or not there.
///
/// # Errors
/// As of [`back_up_directory`](super::back_up_directory).
pub fn restore_directory(
    backup: &Path,
    archive: Option<&Path>,
    database: Option<&Path>,
    to: &Path,
    until_ns: u64,
) -> Result<Restored, Told> {
    let source = backup.display().to_string();
    let options = checkpoint::Options::production();
    let backup = target::existing(backup)?;
    let archive = archive.map(target::existing).transpose()?;
    let database = database.map(target::existing).transpose()?;
    let sources = Sources { archive: archive.as_ref(), database: database.as_ref() };
    into_directory(to, |files: &Files<Directory>| {
        restore(&backup, sources, files, until_ns, &options)
            .map_err(|error| told(error, &source, &to.display().to_string()))
    })
}
