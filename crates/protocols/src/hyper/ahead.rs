//! Fetching versions ahead of a scan. To rebuild one slot takes a chain of misses: its state, its newest before-image, the stamp of that,
//! the next older one. The chains of many slots to come are followed side by side, step by step, so that their misses overlap.

use polychron_memory::Guard;

use super::rows::{Record, Rows};
use super::undo::Undo;

/// Slots whose chains are followed together, and how far.
const SLOTS: usize = 32;
const DEPTH: usize = 16;

/// Units that are looked through at once.
pub(super) const UNITS: usize = 64;

/// Fetches what readers of a timestamp undo in the units from a slot on. The guard keeps the before-images that are found.
pub(super) fn fetch(rows: &Rows, first: u64, end: u64, guard: &Guard<'_>, is_visible: impl Fn(u64) -> bool) {
    let mut records: [Option<Record<'_>>; SLOTS] = [None; SLOTS];
    let mut found = 0;
    let mut next = first;
    for _ in 0..UNITS {
        if next >= end {
            break;
        }
        let Some(unit) = rows.unit(next, end) else {
            next = rows.page_end(next);
            continue;
        };
        next = unit.end();
        unit.for_each_end(|record| {
            if let Some(slot) = records.get_mut(found) {
                record.prefetch_version();
                *slot = Some(record);
                found += 1;
            }
        });
    }
    let mut before_images = [None; SLOTS];
    for (before_image, record) in before_images.iter_mut().zip(&records[..found]) {
        *before_image = record.and_then(|record| record.version(guard));
        before_image.iter().copied().for_each(Undo::prefetch);
    }
    for _ in 0..DEPTH {
        let mut is_over = true;
        for before_image in before_images[..found].iter_mut().flatten() {
            before_image.buffer().prefetch();
            is_over = false;
        }
        if is_over {
            return;
        }
        for before_image in &mut before_images[..found] {
            *before_image = before_image.filter(|before_image| !is_visible(before_image.stamp())).and_then(Undo::older);
            before_image.iter().copied().for_each(Undo::prefetch);
        }
    }
}
