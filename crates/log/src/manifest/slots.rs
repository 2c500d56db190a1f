//! The two files, and which one counts.

use super::{Error, Fault, MAX_BYTES, Manifest, decode, encode};
use crate::disk::{self, Access, BLOCK, Buffer, Cause, Disk, File, Files};

const PATHS: [&str; 2] = ["manifest.0", "manifest.1"];
/// How long the files are at first, in bytes; they grow with the catalog.
const FIRST_BYTES: u64 = 16 * BLOCK as u64;

/// The manifests of an open database.
pub struct Manifests<D: Disk> {
    files: Files<D>,
    slots: [File<D::File>; 2],
    generation: u64,
    current: Manifest,
}

/// The content of a slot.
enum Slot {
    Missing,
    Empty,
    /// Damaged, or a write was interrupted.
    Invalid,
    Valid {
        manifest: Manifest,
        generation: u64,
        /// The blocks it came from.
        bytes: Buffer,
    },
}

/// The slot that counts.
struct Chosen {
    slot: usize,
    manifest: Manifest,
    generation: u64,
    bytes: Buffer,
}

impl<D: Disk + Clone> Manifests<D> {
    /// Makes the manifests of a new database. What an interrupted creation has left is removed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when there is a database already, and what the disk says.
    pub fn create(files: &Files<D>, first: Manifest) -> Result<Self, Error> {
        if choose(files)?.is_some() {
            return Err(Error::Corrupt { path: PATHS[0], reason: "there is a database already" });
        }
        for path in PATHS {
            match files.remove(path) {
                Err(error) if error.cause != Cause::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        // Before that is durable, what is left could be taken for what is made now.
        files.sync_directory("")?;
        let slots = [files.create(PATHS[0], FIRST_BYTES)?, files.create(PATHS[1], FIRST_BYTES)?];
        files.sync_directory("")?;
        let mut manifests = Self { files: files.clone(), slots, generation: 0, current: first.clone() };
        // Both, so that from now on one of them is always valid.
        manifests.write(first.clone())?;
        manifests.write(first)?;
        Ok(manifests)
    }

    /// Opens the manifests of a database; `None` when there is none, or its creation was interrupted.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`], and what the disk says.
    pub fn open(files: &Files<D>) -> Result<Option<Self>, Error> {
        let Some(Chosen { slot, manifest, generation, bytes }) = choose(files)? else { return Ok(None) };
        let slots = [files.open(PATHS[0], Access::Write)?, files.open(PATHS[1], Access::Write)?];
        // The last process may have written what counts and not have synced it, or a sync of it may have failed and readers be shown it all the same. The
        // other one, which is overwritten next, must not go before this one is durable. To write it again leaves it as it is if it is there.
        slots[slot].write_at(0, &bytes)?;
        slots[slot].sync()?;
        Ok(Some(Self { files: files.clone(), slots, generation, current: manifest }))
    }

    /// The manifest that counts, without changing anything; `None` as in [`open`](Self::open).
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn read(files: &Files<D>) -> Result<Option<Manifest>, Error> {
        Ok(Self::read_with_generation(files)?.map(|(manifest, _)| manifest))
    }

    /// The same, and its generation.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn read_with_generation(files: &Files<D>) -> Result<Option<(Manifest, u64)>, Error> {
        Ok(choose(files)?.map(|chosen| (chosen.manifest, chosen.generation)))
    }

    /// The manifest that counts.
    pub fn current(&self) -> &Manifest {
        &self.current
    }

    /// How many manifests were written before this one, and it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Replaces what counts. It is durable after that.
    ///
    /// # Errors
    /// Without room ([`disk::Error::is_full`]) the one before goes on to count, and this may be tried again. After other errors of the disk either
    /// counts when the database is opened again, and no further one is written before that.
    pub fn write(&mut self, next: Manifest) -> Result<(), Error> {
        self.write_from(next, self.generation + 1)
    }

    /// The same with a generation that is at least so high.
    pub(crate) fn write_from(&mut self, next: Manifest, least: u64) -> Result<(), Error> {
        let generation = least.max(self.generation + 1);
        // The file of the one that counts is left alone.
        let generation = generation + u64::from(slot_of(generation) == slot_of(self.generation));
        let encoded = encode(&next, generation);
        if encoded.len() > MAX_BYTES {
            return Err(Error::TooLong { bytes: encoded.len() });
        }
        let mut bytes = Buffer::zeroed(encoded.len());
        bytes[..encoded.len()].copy_from_slice(&encoded);
        let slot = slot_of(generation);
        if let Err(error) = self.slots[slot].write_at(0, &bytes) {
            self.forgive(slot, &error)?;
            return Err(error.into());
        }
        self.slots[slot].sync()?;
        self.generation = generation;
        self.current = next;
        Ok(())
    }

    /// A slot that could not grow has lost nothing: it is written from its beginning the next time.
    fn forgive(&mut self, slot: usize, error: &disk::Error) -> Result<(), Error> {
        if error.is_full() {
            self.slots[slot] = self.files.open(PATHS[slot], Access::Write)?;
        }
        Ok(())
    }
}

/// Where a generation is written.
fn slot_of(generation: u64) -> usize {
    (generation % 2) as usize
}

/// Reads both slots, and chooses the one that counts. `None` if no manifest was ever durable.
fn choose<D: Disk>(files: &Files<D>) -> Result<Option<Chosen>, Error> {
    let damage = |slot: usize, reason| Err(Error::Corrupt { path: PATHS[slot], reason });
    let mut valid: Vec<Chosen> = Vec::new();
    let slots = [read_slot(files, 0)?, read_slot(files, 1)?];
    let [is_missing, is_empty] = [
        slots.each_ref().map(|slot| matches!(slot, Slot::Missing)),
        slots.each_ref().map(|slot| matches!(slot, Slot::Empty)),
    ];
    for (slot, found) in slots.into_iter().enumerate() {
        if let Slot::Valid { manifest, generation, bytes } = found {
            if slot_of(generation) != slot {
                return damage(slot, "it belongs into the other file");
            }
            valid.push(Chosen { slot, manifest, generation, bytes });
        }
    }
    valid.sort_by_key(|chosen| chosen.generation);
    let older = if valid.len() == 2 { Some(valid.remove(0)) } else { None };
    let Some(newest) = valid.pop() else {
        // The second file is written first. Once the first one has been, one of them has always been valid.
        let is_unfinished = is_missing[0] || is_missing[1] || is_empty[0];
        return if is_unfinished { Ok(None) } else { damage(0, "neither it nor the other one is valid") };
    };
    let other = 1 - newest.slot;
    if is_missing[other] {
        return damage(other, "it is missing");
    }
    // An interrupted write leaves old bytes and new ones, which are not all zero.
    if is_empty[other] && newest.generation > 1 {
        return damage(other, "it was written, and is empty");
    }
    if older.is_some_and(|older| older.manifest.database != newest.manifest.database) {
        return damage(other, "it is of another database");
    }
    Ok(Some(newest))
}

fn read_slot<D: Disk>(files: &Files<D>, slot: usize) -> Result<Slot, Error> {
    let path = PATHS[slot];
    let file = match files.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.cause == Cause::NotFound => return Ok(Slot::Missing),
        Err(error) => return Err(error.into()),
    };
    let length = file.bytes()?.min(MAX_BYTES.next_multiple_of(BLOCK) as u64) as usize / BLOCK * BLOCK;
    let mut bytes = Buffer::zeroed(length);
    if length > 0 {
        file.read_at(0, &mut bytes)?;
    }
    Ok(match decode(&bytes) {
        Ok((manifest, generation)) => Slot::Valid { manifest, generation, bytes },
        Err(Fault::Empty) => Slot::Empty,
        Err(Fault::Invalid) => Slot::Invalid,
        Err(Fault::Unsupported(format)) => return Err(Error::Unsupported { path, format }),
    })
}
