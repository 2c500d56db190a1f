//! Batches: the records of procedures that wait are brought into the caches while others run.

use std::sync::Arc;

use polychron_base::key::Key16;
use polychron_base::{Error, TableId};
use polychron_index::{AnyIndex, Handle};

use super::{Records, Store, StoreTable};
use crate::{Interactive, Mode, Procedure, Worker, catalog, drive};

/// Where the rows of keys lie.
pub trait Prefetched {
    /// Whether [`Prefetched::fetch_more`] does anything.
    const HAS_MORE: bool = false;

    /// The index that leads to the key's record, and the record's lines. `None`: there is no such table, or it is not
    /// worth it.
    fn locate(&self, table: TableId, key: &Key16) -> Option<(&AnyIndex, usize)>;

    /// Starts fetching what a record leads to; its first line was asked for a while ago.
    fn fetch_more(&self, _table: TableId, _record: Handle) {}
}

impl<R: Records> Prefetched for [Option<Arc<StoreTable<Store<R>>>>] {
    #[inline]
    fn locate(&self, table: TableId, _key: &Key16) -> Option<(&AnyIndex, usize)> {
        let table = catalog::known(self, table)?;
        Some((table.primary.index(), table.lines(R::HEADER_BYTES)))
    }
}

/// Procedures whose keys are looked up together. Measured on 16-key transactions: 4 leave latency uncovered, 16 gain
/// nothing more and begin to push lines out of the first-level cache again.
pub const GROUP: usize = 8;

/// [`Worker::execute_batch`] in groups: `prefetch` brings the records of a whole group into the caches before its procedures run
/// one after the other.
pub fn execute_in_groups<W: Worker, P: Procedure>(
    worker: &mut W,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, Error>),
    mut prefetch: impl FnMut(&mut W, &[P]),
) {
    for (number, group) in procedures.chunks_mut(GROUP).enumerate() {
        prefetch(worker, group);
        for (position, procedure) in group.iter_mut().enumerate() {
            let outcome = worker.execute(procedure);
            done(number * GROUP + position, outcome);
        }
    }
}

/// A worker that looks up what a group of procedures declares, for the transactions in which they run.
pub trait Grouped: Interactive {
    /// Looks the keys up that the procedures declare, and stays in the epoch in which they were found ([`Local::hold`](polychron_memory::Local::hold)).
    fn begin_group<P: Procedure>(&mut self, group: &[P]);

    /// The procedure of the group that runs from now on.
    fn put_in_force(&mut self, position: usize);

    /// Forgets what was found, and leaves the epoch.
    fn end_group(&mut self);
}

/// [`Worker::execute_batch`] of a [`Grouped`] worker.
pub fn execute_grouped<W: Grouped, P: Procedure>(
    worker: &mut W,
    procedures: &mut [P],
    done: &mut impl FnMut(usize, Result<P::Output, Error>),
) {
    for (number, group) in procedures.chunks_mut(GROUP).enumerate() {
        let group_of = Group(&mut *worker);
        group_of.0.begin_group(group);
        for (position, procedure) in group.iter_mut().enumerate() {
            group_of.0.put_in_force(position);
            let outcome = drive::execute(&mut *group_of.0, Mode::ReadWrite, procedure);
            done(number * GROUP + position, outcome);
        }
    }
}

/// The group that is executed; it ends when this is dropped, after a panic, too.
struct Group<'w, W: Grouped>(&'w mut W);

impl<W: Grouped> Drop for Group<'_, W> {
    fn drop(&mut self) {
        self.0.end_group();
    }
}
