//! Work over whole tables: counting versions.

use polychron_engine::Versions;
use polychron_memory::Snapshot;

use super::protocol::Shared;
use super::record::Record;
use super::table::for_each;

/// How many versions each record has besides the newest.
pub(super) fn count_versions(shared: &Shared) -> Versions {
    shared.base.count_versions(|table, guard, versions| {
        // The snapshot keeps every version that is counted.
        let snapshot = guard.begin_snapshot();
        for entries in std::iter::once(&**table.primary).chain(table.primary.displaced.entries()) {
            for_each(entries, guard, &mut |record| versions.count(extra_versions(record, &snapshot)));
        }
    })
}

fn extra_versions<'g>(record: Record<'g>, snapshot: &'g Snapshot<'_>) -> usize {
    std::iter::successors(record.version_before(snapshot), |version| version.version_before(snapshot)).count()
}
