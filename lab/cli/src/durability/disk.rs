//! What the disk takes for itself.

use polychron::Durability;
use polychron_base::clock::SystemClock;
use polychron_log::disk::{BLOCK, Buffer, Directory, Disk, DiskFile};

use super::clients::Clients;
use super::{Comparison, Place, Series, at, seconds_of};

/// The file that is written.
const BYTES: u64 = 64 << 20;

/// A client's commits beside writes of a block, each with a sync, of a file that was allocated and written before.
pub(crate) fn latency<'p>(place: &'p Place<'_>) -> Result<Comparison<'p>, String> {
    let directory = place.directory()?;
    let disk = Directory::open(directory.path()).map_err(|error| at(directory.path(), error))?;
    let file = disk.create("probe", BYTES).map_err(|error| at(directory.path(), error))?;
    let mut block = Buffer::zeroed(BLOCK);
    let seconds = place.given.seconds;
    let mut offset = 0;
    let probe = Series::new("bare write and sync", move || {
        // The directory goes with the last run.
        let _kept = &directory;
        let mut times = Vec::new();
        let begin = SystemClock::new();
        while seconds_of(&begin) < seconds {
            let start = SystemClock::new();
            block[0] = block[0].wrapping_add(1);
            let written = file.write_at(offset, &block).and_then(|()| file.sync());
            written.map_err(|error| at(directory.path(), error))?;
            times.push(seconds_of(&start) * 1e6);
            offset = (offset + BLOCK as u64) % BYTES;
        }
        Ok(median(times))
    });
    let mut clients = Clients::open(place, Some(Durability::Immediate), 1)?;
    let commit = Series::new("commit, immediate", move || clients.latency(seconds));
    Ok(Comparison::new("one client", "microseconds, medians", vec![probe, commit]))
}

pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
