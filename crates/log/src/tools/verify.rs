//! All that is damaged.
//!
//! Whether the log is whole, reading it decides. If it is not, every file is searched for frames, wherever they are, and what lacks between them is reported:
//! frames that others say were durable. Damage behind these was never acknowledged, and is none.

use std::collections::BTreeMap;
use std::fmt;

use super::ReadOnly;
use crate::DatabaseId;
use crate::checkpoint::{Contents, Reader, RowSource, carried};
use crate::disk::{self, Access, BLOCK, Buffer, Cause, Disk, Files};
use crate::error::Error;
use crate::flush::pool::path_of;
use crate::frame::{Fault, Frame, Header};
use crate::manifest::Manifest;
use crate::read::{all_slots, read_at, read_by_epoch};
use crate::recover::{Batch, Sink, Tail};

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file; empty if it is not known which.
    pub file: String,
    /// Where it begins, if that is known.
    pub offset: Option<u64>,
    /// The findings.
    pub what: String,
}

impl Damage {
    fn new(file: String, offset: u64, what: impl fmt::Display) -> Self {
        Self { file, offset: Some(offset), what: what.to_string() }
    }

    fn of(error: Error) -> Self {
        let what = error.to_string();
        match error {
            Error::Corrupt { file, offset, reason, .. } | Error::Damaged { file, offset, reason } => {
                Self::new(file, offset, reason)
            }
            Error::Disk(error) => Self { file: error.path, offset: error.offset, what: error.cause.to_string() },
            Error::Manifest(crate::manifest::Error::Corrupt { path, reason }) => {
                Self { file: path.to_owned(), offset: None, what: reason.to_owned() }
            }
            _ => Self { file: String::new(), offset: None, what },
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.offset) {
            ("", _) => out.write_str(&self.what),
            (file, Some(offset)) => write!(out, "{file}, byte {offset}: {}", self.what),
            (file, None) => write!(out, "{file}: {}", self.what),
        }
    }
}

/// All that is damaged of a database; `None` if there is none. Where no file is, rows are recovered, too, and what contradicts itself first is reported.
///
/// # Errors
/// The error that keeps it from looking: rights, or a format of another version.
pub fn verify<D: Disk + Clone>(files: &Files<D>) -> Result<Option<Vec<Damage>>, Error> {
    let found = match ReadOnly::open(files) {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(error) => return damaged(error).map(|damage| Some(vec![damage])),
    };
    let mut all = checkpoint(files, &found.manifest)?;
    all.extend(log(files, &found)?);
    if all.is_empty() {
        let recovered = rows(files, &found);
        all.extend(recovered.err().map(damaged).transpose()?);
    }
    Ok(Some(all))
}

/// An error as damage, if it is some.
fn damaged(error: Error) -> Result<Damage, Error> {
    let is_damage = match &error {
        Error::Disk(error) | Error::Manifest(crate::manifest::Error::Disk(error)) => is_damage(error),
        Error::Unsupported { .. } | Error::Manifest(crate::manifest::Error::Unsupported { .. }) => false,
        Error::Catalog(crate::catalog::Error::Unsupported { .. }) => false,
        _ => true,
    };
    if is_damage { Ok(Damage::of(error)) } else { Err(error) }
}

fn is_damage(error: &disk::Error) -> bool {
    matches!(error.cause, Cause::Device | Cause::Ended | Cause::NotFound | Cause::IsADirectory)
}

/// The damage of the checkpoint: the first one of each file.
fn checkpoint<D: Disk>(files: &Files<D>, manifest: &Manifest) -> Result<Vec<Damage>, Error> {
    let mut all = Vec::new();
    for file in manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files) {
        let read = || -> Result<(), Error> {
            let mut reader = Reader::open(files, manifest.database, *file)?;
            while let Some(block) = reader.next_block()? {
                let is_malformed = match file.contents {
                    Contents::Rows { .. } => block.rows().any(|row| row.is_err()),
                    Contents::Records => block.records().any(|record| record.is_err()),
                    Contents::Changes => block.changes().is_err(),
                };
                if is_malformed {
                    return Err(reader.damaged("a row or a record is malformed"));
                }
            }
            Ok(())
        };
        all.extend(read().err().map(damaged).transpose()?);
    }
    Ok(all)
}

/// The damage of the log.
fn log<D: Disk + Clone>(files: &Files<D>, found: &ReadOnly<'_, D>) -> Result<Vec<Damage>, Error> {
    let Err(first) = read_by_epoch(files, &found.manifest, found.generation, &mut |_, _| {}) else {
        return Ok(Vec::new());
    };
    let first = damaged(first)?;
    let mut search = Search { files, known: found.manifest.durable, all: Vec::new() };
    let mut numbers: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
    for slot in all_slots(files)? {
        let seen = search.file(slot, found.manifest.database)?;
        // A file that is used again has a higher number, and frames of lower ones behind its own.
        let Some(number) = seen.iter().map(|seen| seen.header.place.file).max() else { continue };
        let own = seen.into_iter().filter(|seen| seen.header.place.file == number);
        numbers.entry(number).or_default().extend(own);
    }
    let live = numbers.range(found.manifest.first_log_file..).flat_map(|(_, seen)| seen);
    let seen: Vec<&Seen> = live.collect();
    search.known = seen.iter().map(|seen| seen.header.durable).fold(search.known, u64::max);
    search.gaps(&seen, found.manifest.first_log_file);
    let Search { mut all, .. } = search;
    if all.is_empty() {
        // Then only reading in sequence has found it.
        all.push(first);
    }
    Ok(all)
}

/// A frame with a whole header.
struct Seen {
    slot: u32,
    header: Header,
    /// Where it ends.
    end: u64,
    checksum: u32,
    /// The fault of its content, and where it is.
    fault: Option<(u64, String)>,
}

struct Search<'f, D: Disk> {
    files: &'f Files<D>,
    /// An epoch that is known to have been durable.
    known: u64,
    all: Vec<Damage>,
}

impl<D: Disk> Search<'_, D> {
    /// All frames of a file, wherever they are.
    fn file(&mut self, slot: u32, database: DatabaseId) -> Result<Vec<Seen>, Error> {
        let file = self.files.open(&path_of(slot), Access::Read)?;
        let (mut all, mut block, mut offset) = (Vec::new(), Buffer::zeroed(BLOCK), 0);
        while offset + BLOCK as u64 <= file.bytes()? {
            let at = offset;
            offset += BLOCK as u64;
            match read_at(&file, at, &mut block) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if is_damage(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            let Ok((header, length)) = Frame::peek(&block) else { continue };
            if (header.place.database, header.place.offset) != (database, at) {
                continue;
            }
            let mut bytes = Buffer::zeroed(length);
            let fault = match read_at(&file, at, &mut bytes) {
                Ok(true) => fault_of(&bytes, &header),
                Ok(false) => Some((at, "the file ends within a frame".to_owned())),
                Err(error) if is_damage(&error) => Some((at, error.cause.to_string())),
                Err(error) => return Err(error.into()),
            };
            if fault.is_none() {
                offset = at + length as u64;
            }
            let checksum = Frame::checksum_of(&block);
            all.push(Seen { slot, header, end: at + length as u64, checksum, fault });
        }
        Ok(all)
    }

    /// Gaps between frames, and damage of frames.
    fn gaps(&mut self, seen: &[&Seen], first_log_file: u64) {
        let mut before: Option<&Seen> = None;
        // The last whole epoch, and whether a frame before goes on.
        let (mut whole, mut is_unfinished) = (0, false);
        for seen in seen {
            let header = &seen.header;
            if before.is_some_and(|before| header.incarnation < before.header.incarnation) {
                // What an opening has cut off.
                continue;
            }
            let follows = match before {
                None => header.place.file == first_log_file && header.place.offset == 0,
                Some(before) => {
                    let is_next = header.incarnation == before.header.incarnation && header.before == before.checksum;
                    let is_opening =
                        header.incarnation > before.header.incarnation && header.before == 0 && !is_unfinished;
                    header.first_epoch == whole + 1 && (is_next || is_opening)
                }
            };
            if !follows && whole < self.known {
                self.lacks(before, first_log_file, Some(seen));
            }
            if let Some((offset, what)) = &seen.fault
                && header.first_epoch <= self.known
            {
                self.all.push(Damage::new(path_of(seen.slot), *offset, what));
            }
            is_unfinished = header.last_epoch < header.first_epoch;
            whole = if is_unfinished { header.first_epoch - 1 } else { header.last_epoch };
            before = Some(seen);
        }
        if whole < self.known {
            self.lacks(before, first_log_file, None);
        }
    }

    fn lacks(&mut self, before: Option<&Seen>, first_log_file: u64, next: Option<&Seen>) {
        let until = next.map_or_else(
            || format!("up to epoch {}, which was durable", self.known),
            |next| format!("up to {}, byte {}", path_of(next.slot), next.header.place.offset),
        );
        let what = format!("frames lack from here {until}");
        self.all.push(match before {
            Some(before) => Damage::new(path_of(before.slot), before.end, what),
            None => Damage {
                file: crate::flush::pool::DIRECTORY.to_owned(),
                offset: None,
                what: format!("frames lack from the beginning of file number {first_log_file} on {until}"),
            },
        });
    }
}

fn fault_of(bytes: &[u8], header: &Header) -> Option<(u64, String)> {
    let offset = header.place.offset;
    match Frame::decode(bytes, header.place) {
        Ok(frame) => {
            // That pieces follow each other, reading finds.
            let is_malformed = frame
                .records()
                .any(|record| record.map_or(true, |record| record.changes().any(|change| change.is_err())));
            is_malformed.then(|| (offset, "a record is malformed".to_owned()))
        }
        Err(Fault::Content(at)) => Some((offset + at as u64, "the content of a frame is damaged".to_owned())),
        Err(fault) => Some((offset, fault.to_string())),
    }
}

/// Recovers all rows, and does nothing with them.
fn rows<D: Disk + Clone>(files: &Files<D>, found: &ReadOnly<'_, D>) -> Result<(), Error> {
    struct Nowhere;
    impl Sink for Nowhere {
        type Error = Error;

        fn rows(&self, _: &Batch<'_>) -> Result<(), Error> {
            Ok(())
        }
    }
    let mut tail = Tail::new(&found.catalog.permanent(), 0)?;
    carried(files, &found.manifest, &mut |logged| tail.add(logged))?;
    read_by_epoch(files, &found.manifest, found.generation, &mut |_, logged| tail.add(logged))?;
    tail.finish()?.merge(1, &RowSource::of(files, &found.manifest), &Nowhere).map(|_| ())
}
