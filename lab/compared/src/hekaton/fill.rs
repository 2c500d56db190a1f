//! Work over whole tables: counting versions.

use polychron_engine::Versions;
use polychron_engine::stores::for_each;

use super::protocol::Shared;
use super::version::Record;

/// How many versions each record has besides the newest.
pub(super) fn count_versions(shared: &Shared) -> Versions {
    shared.base.count_versions(|table, guard, versions| {
        for_each(table.primary.index(), guard, &mut |_, handle| {
            // SAFETY: the handle was found under the guard.
            let record = unsafe { Record::from_handle(handle) };
            // Under its latch nothing leaves the list; a record that is being collected is not counted.
            if record.try_collect() {
                versions.count(extra_versions(record));
                record.end_collection();
            }
        });
    })
}

fn extra_versions(record: Record) -> usize {
    let mut version = record.latest();
    let mut count: usize = 0;
    while let Some(present) = version {
        count += 1;
        version = present.next();
    }
    count.saturating_sub(1)
}
