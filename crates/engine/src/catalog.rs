//! The list of a database's tables, changed rarely and read by every transaction.
//!
//! Each change makes a new list and raises a version. A worker keeps a pointer to the list it saw last ([`Seen`]) and asks for
//! the present one only when the version has moved, so that a transaction's lookup of a table is an array access. The
//! pointer is good for as long as the worker is pinned: lists that were replaced stay until no guard of their time is left
//! ([`Catalog::release`]). A worker that is idle keeps no table alive.

mod definitions;
mod kept;

use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use polychron_base::error::table_is_dropped;
use polychron_base::{Error, IndexId, TableId};
use polychron_memory::Epochs;
use polychron_schema::{EvolutionError, TableDefinition};
use polychron_sync::atomic::{AtomicU64, Ordering, fence};
use polychron_sync::{Mutex, MutexGuard, new_number};

use crate::definitions::Standing;
use crate::foreign_keys::Constraints;
use crate::mutations::left_out;
use crate::redo::{self, Journal};
use crate::stores::IndexRef;

use definitions::Provisional;
pub use kept::Kept;

/// A protocol's table, as the catalog needs it.
pub trait Described {
    /// The table's id.
    fn id(&self) -> TableId;

    /// The table's definition, with the indexes it has.
    fn definition(&self) -> &Arc<TableDefinition>;

    /// The ids of its secondary indexes, in the definition's order, and the highest that any has had.
    fn index_ids(&self) -> (Vec<IndexId>, IndexId) {
        (Vec::new(), IndexId::PRIMARY)
    }

    /// The foreign keys that lead from the table and to it.
    fn constraints(&self) -> &Constraints {
        Constraints::NONE
    }
}

/// The tables at one time, in slots of which at least half are free: so many as there are tables, not as there ever were.
///
/// The slot of a table is its position modulo the number of slots, which is a power of two. A new table is given a position that no table
/// has had, and whose slot is free. With twice the slots, tables that had different ones still do.
#[derive(Debug)]
pub struct TableList<T> {
    /// The number that ids of this database's tables carry.
    database: u32,
    slots: Vec<Option<Arc<T>>>,
    /// Tables that were made later than this list have this position or a higher one.
    next: u32,
    /// Tables in whose place others are, and why.
    superseded: Vec<Superseded>,
    /// Tables and indexes that are not permanent.
    provisional: Provisional,
}

/// A table in whose place there is another one, and what differs.
pub type Superseded = (TableId, Arc<EvolutionError>);

impl<T> Deref for TableList<T> {
    type Target = [Option<Arc<T>>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl<T> TableList<T> {
    /// No tables.
    const NONE: *const Self = &Self::empty(0);

    /// No tables of a database.
    const fn empty(database: u32) -> Self {
        Self { database, slots: Vec::new(), next: 0, superseded: Vec::new(), provisional: Provisional::NONE }
    }

    /// Whether a table that is not in the list is newer than the list. Otherwise it was dropped.
    pub fn is_older_than(&self, table: TableId) -> bool {
        table.position() >= self.next as usize
    }

    /// An error that is told better of a table in whose place there is another one, or that is another database's.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        let Error::NoSuchTable(missing) = &error else { return error };
        if missing.table.database() != self.database {
            return Error::other_database(missing.table);
        }
        let found = self.superseded.iter().find(|(superseded, _)| *superseded == missing.table);
        found.map_or(error, |(_, why)| EvolutionError::clone(why).into())
    }
}

impl<T: Described> TableList<T> {
    /// The table of this id.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::OtherDatabase`], or [`EvolutionError::Superseded`].
    fn get(&self, id: TableId) -> Result<&Arc<T>, Error> {
        get(self, id).map_err(|error| self.explain(error))
    }

    /// The same tables.
    fn copy(&self) -> Self {
        let (superseded, provisional) = (self.superseded.clone(), self.provisional.clone());
        Self { slots: self.slots.clone(), superseded, provisional, ..*self }
    }

    /// The same tables in another number of slots, unless two of them meet in one.
    fn spread(&self, slots: usize) -> Option<Self> {
        let mut spread: Vec<Option<Arc<T>>> = std::iter::repeat_with(|| None).take(slots).collect();
        for table in self.iter().flatten() {
            let slot = &mut spread[slot_of(table.id(), slots)];
            if slot.replace(Arc::clone(table)).is_some() {
                return None;
            }
        }
        let (superseded, provisional) = (self.superseded.clone(), self.provisional.clone());
        Some(Self { slots: spread, superseded, provisional, ..*self })
    }

    /// Makes room for one more table, and answers its position.
    fn make_room(&mut self) -> Option<u32> {
        if 2 * (self.iter().flatten().count() + 1) > self.len() {
            *self = self.spread((2 * self.len()).max(2)).expect("tables in different slots stay in different ones");
        }
        let mut positions = self.next..TableId::POSITIONS as u32;
        let free = positions.find(|&position| self[position as usize & (self.len() - 1)].is_none())?;
        self.next = free + 1;
        Some(free)
    }

    /// The slot of a table, which has one.
    fn slot(&mut self, table: TableId) -> &mut Option<Arc<T>> {
        let slot = slot_of(table, self.len());
        &mut self.slots[slot]
    }

    /// Gives slots up of which there are too many.
    fn shrink(&mut self) {
        while 8 * self.iter().flatten().count() < self.len()
            && self.len() > 1
            && let Some(fewer) = self.spread(self.len() / 2)
        {
            *self = fewer;
        }
    }
}

#[inline]
fn slot_of(table: TableId, slots: usize) -> usize {
    // Of no slots it is not below their number.
    table.position() & slots.wrapping_sub(1)
}

/// A list that is shared.
pub type Tables<T> = Arc<TableList<T>>;

/// The list of tables.
#[derive(Debug)]
pub struct Catalog<T> {
    /// The number that ids of this database's tables carry.
    database: u32,
    version: AtomicU64,
    /// Held by who changes the list, also while the log is told of the change. `lists` is not: transactions look for it.
    changing: Mutex<()>,
    lists: Mutex<Lists<T>>,
    journal: Journal,
}

#[derive(Debug)]
struct Lists<T> {
    present: Tables<T>,
    /// Whether any worker looks at lists through a pointer.
    lent: bool,
    /// Lists of the past at which a worker may still look, each with the epoch whose guards may; `None` until that is known.
    past: Vec<(Option<u64>, Tables<T>)>,
}

impl<T> Default for Catalog<T> {
    fn default() -> Self {
        Self::new(Journal::default())
    }
}

impl<T> Catalog<T> {
    /// No tables; a log is told of those that there will be.
    pub fn new(journal: Journal) -> Self {
        let database = new_number();
        let lists = Lists { present: Arc::new(TableList::empty(database)), lent: false, past: Vec::new() };
        let (version, lists) = (AtomicU64::new(0), Mutex::new(lists));
        Self { database, version, changing: Mutex::new(()), lists, journal }
    }

    /// The number that ids of this database's tables carry. No other database of the process has it.
    pub fn number(&self) -> u32 {
        self.database
    }

    fn lists(&self) -> MutexGuard<'_, Lists<T>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present list, and what nobody else changes it while he has it.
    fn change(&self) -> (MutexGuard<'_, ()>, Tables<T>) {
        let alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = Arc::clone(&self.lists().present);
        (alone, present)
    }
}

/// The list that a worker saw last.
#[derive(Debug)]
pub struct Seen<T> {
    version: u64,
    list: *const TableList<T>,
    /// The slots of the list, one step nearer.
    slots: *const [Option<Arc<T>>],
    /// The version of the list that [`Kept`] was given for it.
    kept: u64,
}

// SAFETY: it stands for a shared reference to the list.
unsafe impl<T: Send + Sync> Send for Seen<T> {}

/// The version of a list that was never looked at; no catalog changes so often.
const NEVER: u64 = u64::MAX;

impl<T> Default for Seen<T> {
    fn default() -> Self {
        let slots = &raw const *<&[Option<Arc<T>>]>::default();
        Self { version: NEVER, list: TableList::NONE, slots, kept: NEVER }
    }
}

impl<T> Deref for Seen<T> {
    type Target = [Option<Arc<T>>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: the caller of `renew` promised to look only while the list is kept.
        unsafe { &*self.slots }
    }
}

impl<T> Seen<T> {
    /// The list.
    pub fn list(&self) -> &TableList<T> {
        // SAFETY: as in `deref`.
        unsafe { &*self.list }
    }
}

impl<T: Described> Seen<T> {
    /// The table of this id.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], or [`Error::OtherDatabase`].
    #[inline]
    pub fn table(&self, id: TableId) -> Result<&T, Error> {
        get(self, id).map(|table| &**table).map_err(|error| self.list().explain(error))
    }

    /// The table of this id, for a caller that changes what this lies in while it looks at the table.
    ///
    /// # Errors
    /// As [`Seen::table`].
    ///
    /// # Safety
    /// For `'t` the caller does not leave what its call of [`Seen::renew`] promised to look under: the guard, the snapshot, or the kept list.
    #[inline]
    pub unsafe fn table_during<'t>(&self, id: TableId) -> Result<&'t T, Error>
    where
        T: 't,
    {
        // SAFETY: the list keeps its tables, and is kept itself for as long as the caller of `renew` may look.
        self.table(id).map(|table| unsafe { &*std::ptr::from_ref(table) })
    }

    /// Looks at the present list from now on, if it is another one.
    ///
    /// # Safety
    /// The caller is pinned, and from now until the next call it looks through this only under guards of
    /// which the outermost stood, and was not renewed, since before this call; or while it holds what [`Seen::keep`] answered; or while a
    /// snapshot (`polychron_memory::Snapshot`) is open that was opened before this call; or while a caller that calls
    /// [`Catalog::take_released`] knows that it looks.
    #[inline]
    pub unsafe fn renew(&mut self, catalog: &Catalog<T>) {
        if !self.is_present(catalog) {
            self.renew_slowly(catalog);
        }
    }

    #[cold]
    fn renew_slowly(&mut self, catalog: &Catalog<T>) {
        let mut lists = catalog.lists();
        lists.lent = true;
        self.version = catalog.version.load(Ordering::Relaxed);
        self.list = Arc::as_ptr(&lists.present);
        self.slots = &raw const *lists.present.slots;
    }

    /// Whether this is the present list.
    #[inline]
    pub fn is_present(&self, catalog: &Catalog<T>) -> bool {
        catalog.version() == self.version
    }

    /// The first of these places whose table has other indexes now than this list says, or was superseded: what is written there would be missed
    /// where its rows are now. A table that was dropped has no indexes to keep up.
    #[inline]
    pub fn outdated<P: Iterator<Item = IndexRef>>(
        &self,
        catalog: &Catalog<T>,
        index_refs: impl FnOnce() -> P,
    ) -> Option<IndexRef> {
        if self.is_present(catalog) { None } else { self.outdated_among(catalog, index_refs()) }
    }

    #[cold]
    fn outdated_among(&self, catalog: &Catalog<T>, mut index_refs: impl Iterator<Item = IndexRef>) -> Option<IndexRef> {
        let (_, present) = catalog.snapshot();
        index_refs.find(|index_ref| {
            let Some(now) = known(&present, index_ref.table) else {
                return present.superseded.iter().any(|(old, _)| *old == index_ref.table);
            };
            known(self, index_ref.table).is_some_and(|known| !Arc::ptr_eq(now, known))
        })
    }

    /// Which list it is: each has another number.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The list as one that stays, for a thread that is about to leave the guard.
    pub fn keep(&self) -> Tables<T> {
        if self.version == NEVER {
            return Arc::new(TableList::empty(0));
        }
        // SAFETY: the pointer came from an `Arc`, which the catalog keeps as long as the list may be looked at.
        unsafe {
            Arc::increment_strong_count(self.list);
            Arc::from_raw(self.list)
        }
    }
}

impl<T: Described> Catalog<T> {
    /// Adds a table that `make` builds for its new id: `make` is shown the present tables, and answers also with what takes the place of some.
    ///
    /// # Errors
    /// [`Error::NameTaken`], what `make` answers, or what the log does.
    pub fn create(
        &self,
        name: &str,
        standing: Standing,
        make: impl FnOnce(TableId, &[Option<Arc<T>>]) -> Result<(T, Vec<(TableId, T)>), Error>,
    ) -> Result<TableId, Error> {
        let (alone, present) = self.change();
        if find(&present, name).is_some() {
            return Err(Error::name_taken(name.to_owned()));
        }
        let mut changed = present.copy();
        let Some(position) = changed.make_room() else {
            return Err(Error::definition("a database has had as many tables as it can"));
        };
        let id = TableId::new(self.database, position);
        let (table, replaced) = make(id, &present)?;
        *changed.slot(id) = Some(Arc::new(table));
        for (other, table) in replaced {
            *changed.slot(other) = Some(Arc::new(table));
        }
        if standing == Standing::Provisional {
            changed.provisional.tables.push(id);
        }
        self.publish(alone, &present, changed, || ())?;
        Ok(id)
    }

    /// Puts `change`'s answer in the place of a table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::OtherDatabase`], or what `change` answers.
    pub fn replace(&self, id: TableId, change: impl FnOnce(&T) -> Result<T, Error>) -> Result<(), Error> {
        let (alone, present) = self.change();
        let table = change(present.get(id)?)?;
        let mut changed = present.copy();
        *changed.slot(id) = Some(Arc::new(table));
        self.publish(alone, &present, changed, || ())
    }

    /// Takes a table out and returns it. `going` is shown it before anybody can know that.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::Definition`] when foreign keys of other tables lead to it, or what the log answers.
    pub fn remove(&self, id: TableId, going: impl FnOnce(&T)) -> Result<Arc<T>, Error> {
        let (alone, present) = self.change();
        let removed = Arc::clone(present.get(id)?);
        removed.constraints().check_removal(&removed.definition().name, id, |child| get(&present, child).is_ok())?;
        let mut changed = present.copy();
        *changed.slot(id) = None;
        changed.provisional.forget(id);
        changed.shrink();
        self.publish(alone, &present, changed, || {
            going(&removed);
            table_is_dropped(id, &removed.definition().name);
        })?;
        Ok(removed)
    }

    /// Puts a table in the place of another one, which goes, in one step: `renamed` is the same as the new one, and has the name of the old one. The new
    /// one is permanent then. `going` is shown the old one before anybody can know that.
    ///
    /// # Errors
    /// As [`Catalog::remove`], and what `renamed` answers.
    pub fn supersede(
        &self,
        (old, why): Superseded,
        new: TableId,
        renamed: impl FnOnce(&T) -> Result<T, Error>,
        going: impl FnOnce(&T),
    ) -> Result<Arc<T>, Error> {
        let (alone, present) = self.change();
        let removed = Arc::clone(present.get(old)?);
        removed.constraints().check_removal(&removed.definition().name, old, |child| get(&present, child).is_ok())?;
        let renamed = renamed(get(&present, new)?)?;
        let mut changed = present.copy();
        *changed.slot(new) = Some(Arc::new(renamed));
        *changed.slot(old) = None;
        changed.superseded.push((old, why));
        changed.provisional.forget(old);
        changed.provisional.tables.retain(|table| *table != new);
        self.publish(alone, &present, changed, || {
            going(&removed);
            table_is_dropped(old, &removed.definition().name);
        })?;
        Ok(removed)
    }

    /// The present list and its version.
    pub fn snapshot(&self) -> (u64, Tables<T>) {
        let lists = self.lists();
        (self.version.load(Ordering::Relaxed), Arc::clone(&lists.present))
    }

    /// The present version. A worker that begins a transaction after a change was acknowledged sees it here: the
    /// acquiring load pairs with the releasing store in `publish`.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The id of the table of this name.
    pub fn find(&self, name: &str) -> Option<TableId> {
        find(&self.snapshot().1, name)
    }

    /// The names of all tables, sorted, but for those that go with the process.
    pub fn names(&self) -> Vec<String> {
        let (_, tables) = self.snapshot();
        let is_permanent = |table: &&Arc<T>| !tables.provisional.tables.contains(&table.id());
        let permanent = tables.iter().flatten().filter(is_permanent);
        let mut names: Vec<_> = permanent.map(|table| table.definition().name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The id of the index of this name, if the table has one.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn find_index(&self, id: TableId, name: &str) -> Result<Option<IndexId>, Error> {
        let (_, tables) = self.snapshot();
        let table = tables.get(id)?;
        let position = table.definition().indexes.iter().position(|index| index.name == name);
        Ok(position.map(|position| table.index_ids().0[position]))
    }

    /// The definition of a table.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn definition(&self, id: TableId) -> Result<Arc<TableDefinition>, Error> {
        let (_, tables) = self.snapshot();
        tables.get(id).map(|table| Arc::clone(table.definition()))
    }

    /// Drops the earlier lists that no thread reads, and with them the tables that only they had. Guards
    /// and snapshots decide, so a list goes when its time has come and this is called again.
    pub fn release(&self, epochs: &Epochs) {
        // A table that goes with its list takes time, and asks the deferred drops.
        drop(self.take_released(epochs));
    }

    /// The same lists, for a protocol whose transactions look at them beyond their guards: it gives them up itself.
    pub fn take_released(&self, epochs: &Epochs) -> Vec<Tables<T>> {
        let mut lists = self.lists();
        if lists.past.is_empty() {
            return Vec::new();
        }
        // Barrier: pairs with the one in a worker's pin. A worker that pins behind it finds the new version; one that
        // pinned before is in the epoch that is read next, or in an older one.
        fence(Ordering::SeqCst);
        // A snapshot that was opened before the replacement is older than that epoch.
        let (current, horizon) = (epochs.current(), epochs.readonly().min(epochs.collectable()));
        lists.past.iter_mut().for_each(|(epoch, _)| *epoch = Some(epoch.unwrap_or(current)));
        lists.past.extract_if(.., |(epoch, _)| *epoch <= Some(horizon)).map(|(_, list)| list).collect()
    }

    /// Tells the log of a changed list, and then makes it the present one. `going` is called in between, as soon as that can no longer fail.
    fn publish(
        &self,
        alone: MutexGuard<'_, ()>,
        present: &TableList<T>,
        changed: TableList<T>,
        going: impl FnOnce(),
    ) -> Result<(), Error> {
        if left_out(redo::Step::DefineFirst) {
            let defined = self.define(present, &changed);
            going();
            self.put(self.lists(), changed);
            return defined;
        }
        self.define(present, &changed)?;
        let lists = self.lists();
        going();
        self.put(lists, changed);
        drop(alone);
        Ok(())
    }

    /// Makes a list the present one.
    fn put(&self, mut lists: MutexGuard<'_, Lists<T>>, changed: TableList<T>) {
        let past = std::mem::replace(&mut lists.present, Arc::new(changed));
        if lists.lent {
            lists.past.push((None, past));
        }
        // Pairs with the acquiring load in `version`; the lock makes the increment the only one.
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The id of the table of this name.
pub fn find<T: Described>(tables: &[Option<Arc<T>>], name: &str) -> Option<TableId> {
    tables.iter().flatten().find(|table| table.definition().name == name).map(|table| table.id())
}

/// The table of this id.
///
/// # Errors
/// [`Error::NoSuchTable`], also where it is another database's.
#[inline]
pub fn get<T: Described>(tables: &[Option<Arc<T>>], id: TableId) -> Result<&Arc<T>, Error> {
    match known(tables, id) {
        Some(table) => Ok(table),
        None => Err(Error::no_such_table(id)),
    }
}

/// As [`get`], for callers that can do without the table.
#[inline]
pub fn known<T: Described>(tables: &[Option<Arc<T>>], id: TableId) -> Option<&Arc<T>> {
    // Ids of other databases have the same positions, and those of other tables the same slot.
    let table = tables.get(slot_of(id, tables.len()))?.as_ref()?;
    (table.id() == id).then_some(table)
}

#[cfg(test)]
mod tests;
