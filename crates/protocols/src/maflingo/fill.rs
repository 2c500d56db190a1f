//! Work over whole tables: counting versions.

use polychron_engine::Versions;
use polychron_engine::redo::Redo;
use polychron_engine::stores::for_each;

use super::protocol::Shared;
use super::record::Record;

/// How many versions each record has besides the newest.
pub(super) fn count_versions<R: Redo>(shared: &Shared<R>) -> Versions {
    let mut versions = Versions::default();
    let (_, tables) = shared.catalog.snapshot();
    shared.deferred_drops.with_guard(|guard| {
        // The snapshot keeps every version that is counted.
        let snapshot = guard.begin_snapshot();
        for table in tables.iter().flatten() {
            for index in std::iter::once(table.primary.index()).chain(table.primary.displaced.index()) {
                for_each(index, guard, &mut |_, handle| {
                    // SAFETY: the handle was found under the guard.
                    let record = unsafe { Record::from_handle(handle) };
                    versions.count(extra_versions(record, snapshot.epoch()));
                });
            }
        }
    });
    versions
}

fn extra_versions(record: Record, epoch: u64) -> usize {
    let (mut extra, mut at) = (0, record);
    while at.tid().epoch() > epoch {
        let Some(previous) = at.previous() else { break };
        extra += 1;
        at = previous;
    }
    extra
}
