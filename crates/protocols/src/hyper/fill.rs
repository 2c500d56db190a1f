//! Work over whole tables: counting versions.

use polychron_engine::Versions;

use super::protocol::Shared;

/// How many before-before-images each record has.
pub(super) fn count_versions(shared: &Shared) -> Versions {
    shared.base.count_versions(|table, guard, versions| {
        table.primary.rows.for_each(|record| {
            if !record.is_versioned() {
                // Without a latch, which a slot that no thread has used yet does not have for others.
                if record.is_present() {
                    versions.count(0);
                }
                return;
            }
            // Under the latch nothing leaves the chain.
            let latched = record.latch();
            if !latched.is_closed() {
                versions
                    .count(std::iter::successors(latched.version(guard), |before_image| before_image.older()).count());
            }
        });
    })
}
