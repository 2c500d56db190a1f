//! The directory that a copy is written into.

use std::path::Path;

use polychron_base::Error as Told;
use polychron_engine::mutations::left_out;

use super::origin;
use crate::checkpoint;
use crate::disk::{self, Cause, Directory, Disk, Files, Operation};
use crate::error::Error;
use crate::flush::pool;
use crate::steps::BackupStep;

/// Refuses a directory that has anything.
pub(super) fn refuse_full<E: Disk>(to: &Files<E>) -> Result<(), Error> {
    if to.list("")?.is_empty() || left_out(BackupStep::RefuseFull) {
        return Ok(());
    }
    let (operation, cause) = (Operation::Create, Cause::NotEmpty);
    Err(disk::Error { operation, path: String::new(), offset: None, cause }.into())
}

/// Removes all that a copy may have made, manifests first: what others are named by goes before them.
pub(crate) fn clear<E: Disk>(to: &Files<E>) -> Result<(), disk::Error> {
    for name in ["manifest.1", "manifest.0", origin::PATH] {
        match to.remove(name) {
            Err(error) if error.cause != Cause::NotFound => return Err(error),
            _ => {}
        }
    }
    to.sync_directory("")?;
    clear_directory(to, checkpoint::DIRECTORY)?;
    clear_directory(to, pool::DIRECTORY)
}

fn clear_directory<E: Disk>(to: &Files<E>, path: &str) -> Result<(), disk::Error> {
    let entries = match to.list(path) {
        Err(error) if error.cause == Cause::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = format!("{path}/{}", entry.name);
        if entry.is_directory { clear_directory(to, &path)? } else { to.remove(&path)? }
    }
    to.remove_directory(path)
}

/// The directory of a database that is there.
///
/// # Errors
/// [`Told::NoDatabase`], [`Told::Inaccessible`].
pub(crate) fn existing(path: &Path) -> Result<Files<Directory>, Told> {
    Directory::open(path).map(Files::new).map_err(|cause| match cause {
        Cause::NotFound => Told::no_database(path.display().to_string(), cause.to_string()),
        cause => Told::inaccessible(path.display().to_string(), cause.to_string()),
    })
}

/// Makes a directory, or takes one that is empty, and has something written into it. If that fails, the directory is as before.
///
/// # Errors
/// [`Told::DatabaseExists`], [`Told::Inaccessible`], and those of `write`.
pub(crate) fn into_directory<T>(
    path: &Path,
    write: impl FnOnce(&Files<Directory>) -> Result<T, Told>,
) -> Result<T, Told> {
    let (directory, is_new) = Directory::create(path).map_err(|cause| {
        let name = path.display().to_string();
        let is_database = || Directory::open(path).is_ok_and(|it| it.list("").is_ok_and(|all| has_manifest(&all)));
        if is_database() { Told::database_exists(name) } else { Told::inaccessible(name, cause.to_string()) }
    })?;
    write(&Files::new(directory.clone())).inspect_err(|_| {
        if is_new {
            // Something that cannot be removed is left.
            let _ = directory.remove_self();
        }
    })
}

fn has_manifest(entries: &[disk::Entry]) -> bool {
    entries.iter().any(|entry| entry.name.starts_with("manifest."))
}
