//! Databases that are restored to random times: each is what all transactions up to some one have left.

use std::path::Path;
use std::time::UNIX_EPOCH;

use polychron::{Durability, restore_directory};
use polychron_base::clock::calendar_time;
use polychron_base::random::Random;

use crate::client::{Kept, open};
use crate::examine::examine;
use crate::ledger::{Ledger, Line};
use crate::run::{Plan, Report};

pub(crate) fn now_ns() -> u64 {
    calendar_time().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Restores the database to random times between two, one after the other, and examines each. What was told is what must fit: whoever is missing has nobody
/// behind him, and there is a serial order of all others.
pub(crate) fn restore_often(
    plan: &Plan,
    directory: &Path,
    kept: &Kept,
    told: &[Line],
    (begun_ns, ended_ns): (u64, u64),
    random: &mut Random,
    report: &mut Report,
) -> Result<(), String> {
    if !kept.backup.exists() {
        // No client has come so far.
        return Ok(());
    }
    let mut times: Vec<u64> = (0..plan.restores).map(|_| begun_ns + random.below(ended_ns - begun_ns)).collect();
    times.sort_unstable();
    let mut before = None;
    for until_ns in times {
        let to = directory.join("restored");
        let database = directory.join("database");
        match restore_directory(&kept.backup, Some(&kept.archive), Some(&database), &to, until_ns) {
            Ok(_) => {}
            // The backup was not made by then.
            Err(error) if before.is_none() && error.to_string().contains("later time") => continue,
            Err(error) => return Err(format!("a restore to {until_ns} failed: {error}")),
        }
        let protocol = &plan.protocols[random.below(plan.protocols.len() as u64) as usize];
        let restored = open(&to, protocol, Durability::Immediate, None).map_err(|error| error.to_string())?;
        let mut ledger = Ledger::default();
        ledger.add(told.to_vec(), false);
        ledger.tables.clear();
        examine(&restored, &mut ledger).map_err(|what| format!("restored to {until_ns}, under {protocol}: {what}"))?;
        let count = ledger.present.len();
        if before.is_some_and(|before| count < before) {
            return Err(format!("restored to {until_ns}: there is less than at an earlier time"));
        }
        report.restores += 1;
        report.points += u64::from(before.is_none_or(|before| count > before));
        before = Some(count);
        drop(restored);
        std::fs::remove_dir_all(&to).map_err(|error| error.to_string())?;
    }
    Ok(())
}
