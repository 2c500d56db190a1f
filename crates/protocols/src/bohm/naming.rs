//! What a procedure declares, as entries of its transaction.

use std::sync::Arc;

use hashbrown::HashTable;
use polychron_base::error::KeyPreview;
use polychron_base::key::{EncodedKey, Key16};
use polychron_base::{Error, TableId};
use polychron_engine::{Access, Declare, Procedure, catalog, drive, steady};

use super::entry::{Entry, Want};
use super::planned::OwnBatch;
use super::table::{BohmStore, BohmTable, Prefix};
use super::version::RawVersion;

/// Entries that are looked at one after the other; where there are more, a table is made of them.
pub(super) const FEW: usize = 16;

/// Receives what a procedure declares.
pub(super) struct Naming<'n> {
    pub(super) client_batch: &'n mut OwnBatch,
    pub(super) tables: &'n [Option<Arc<BohmTable>>],
    pub(super) owner: u32,
    pub(super) partitions: usize,
    pub(super) reads: bool,
    pub(super) has_more: bool,
    /// A key was named that is longer than any can be. It is not planned, and its procedure not run.
    pub(super) is_too_long: bool,
    /// The entries of the transaction, where there are many.
    pub(super) known: &'n mut ByKey,
}

/// Entries by their keys: their positions, as far as they were added.
#[derive(Debug, Default)]
pub(super) struct ByKey {
    positions: HashTable<u32>,
    /// Entries that were looked at.
    pub(super) seen: usize,
    /// The secondary indexes that were named as ones whose entries may change, by their stores' addresses.
    intended: Vec<usize>,
}

impl ByKey {
    /// Adds an entry if it is of a key.
    pub(super) fn add(&mut self, position: u32, entry: &Entry, hash_at: impl Fn(u32) -> u64) {
        self.seen += 1;
        if entry.is_written() || entry.want == Want::Read {
            self.positions.insert_unique(entry.hash, position, |&other| hash_at(other));
        }
    }

    /// The entry with this hash that is the right one.
    pub(super) fn find(&self, hash: u64, is_right: impl Fn(u32) -> bool) -> Option<u32> {
        self.positions.find(hash, |&position| is_right(position)).copied()
    }

    pub(super) fn clear(&mut self) {
        self.intended.clear();
        if self.seen > 0 {
            self.positions.clear();
            self.seen = 0;
        }
    }
}

/// Entries by their versions, for a transaction that finds a version of its own otherwise than by the key.
#[derive(Debug, Default)]
pub(super) struct ByVersion {
    positions: HashTable<(RawVersion, u32)>,
    /// Entries that were looked at.
    pub(super) seen: usize,
}

impl ByVersion {
    /// Versions lie at multiples of 16; the product spreads them.
    fn hash(version: RawVersion) -> u64 {
        version.address().wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Adds an entry if it has a version of its own.
    pub(super) fn add(&mut self, position: u32, entry: &Entry) {
        self.seen += 1;
        if let Some(version) = entry.version().filter(|_| entry.is_written()) {
            self.positions.insert_unique(Self::hash(version), (version, position), |&(other, _)| Self::hash(other));
        }
    }

    pub(super) fn find(&self, version: RawVersion) -> Option<u32> {
        self.positions.find(Self::hash(version), |&(other, _)| other == version).map(|&(_, position)| position)
    }

    pub(super) fn clear(&mut self) {
        if self.seen > 0 {
            self.positions.clear();
            self.seen = 0;
        }
    }
}

impl Naming<'_> {
    /// Adds an entry.
    fn add(&mut self, mut entry: Entry) {
        entry.partition = (entry.hash % self.partitions as u64) as u16;
        let content = self.client_batch.content_mut();
        let entries = &mut content.entries;
        if let Some(sorted) = content.sorted.get_mut(usize::from(entry.partition)) {
            sorted.push(entries.len() as u32);
        }
        entries.push(entry);
    }

    /// The entries of the transaction so far, and what is known of them.
    fn own(&mut self) -> (&mut [Entry], &mut ByKey) {
        let first = self.client_batch.body_mut(self.owner as usize).first;
        let content = self.client_batch.content_mut();
        (&mut content.entries[first as usize..], self.known)
    }

    /// Says that the transaction may write anything.
    pub(super) fn everything(&mut self) {
        self.add(Entry::new(None, Key16::new(0, 0), 0, Want::Everything, self.owner));
    }

    /// Names a key that will be read or written.
    fn name<K: EncodedKey>(&mut self, table: &BohmTable, key: K, want: Want) {
        let (store, hash) = (&table.primary, key.hash(table.primary.hash_seed()));
        match self.find(Arc::as_ptr(store), hash, key) {
            Some(entry) if entry.want == Want::Write || want == Want::Read => {}
            Some(entry) => entry.want = want,
            None => self.add(Entry::new(Some(store), key, hash, want, self.owner)),
        }
    }

    /// The entry of a key.
    #[inline]
    fn find<K: EncodedKey>(&mut self, store: *const BohmStore, hash: u64, key: K) -> Option<&mut Entry> {
        let (own, known) = self.own();
        if own.len() <= FEW {
            return own.iter_mut().find(|entry| entry.is_of(store, hash, key));
        }
        for position in known.seen..own.len() {
            known.add(position as u32, &own[position], |other| own[other as usize].hash);
        }
        let found = known.find(hash, |position| own[position as usize].is_of(store, hash, key))?;
        Some(&mut own[found as usize])
    }

    /// Names a key that will be written, and the indexes whose entries that may change.
    pub(super) fn write<K: EncodedKey>(&mut self, table: &BohmTable, key: K) {
        self.name(table, key, Want::Write);
        self.intend(table);
    }

    /// Names the row of a key. Fails when the key is too long.
    #[inline]
    fn name_row<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) -> Result<(), Error> {
        let Some(known) = catalog::known(self.tables, table) else { return Ok(()) };
        steady!(table, key => self.name_row(table, key, access));
        match access {
            Access::Read if !self.reads => {}
            Access::Read => self.name(known, key, Want::Read),
            Access::Update => self.name(known, key, Want::Update),
            Access::Write | Access::Insert => self.write(known, key),
        }
        Ok(())
    }

    /// Names the rows whose keys begin with a prefix. Fails when that is too long.
    fn name_prefix<K: EncodedKey>(&mut self, table: TableId, prefix: K, access: Access) -> Result<(), Error> {
        let Some(known) = catalog::known(self.tables, table) else { return Ok(()) };
        steady!(table, prefix => self.name_prefix(table, prefix, access));
        let want = match access {
            Access::Read => return Ok(()),
            Access::Update => Want::PrefixUpdate,
            Access::Write | Access::Insert => Want::Prefix,
        };
        let prefix = Prefix::of(prefix);
        self.add(Entry::new(Some(&known.primary), prefix, prefix.hash(known.primary.hash_seed()), want, self.owner));
        if want == Want::Prefix {
            self.intend(known);
        }
        Ok(())
    }

    /// Names the indexes whose entries may change with rows of the table.
    fn intend(&mut self, table: &BohmTable) {
        for secondary in table.secondaries() {
            let store = Arc::as_ptr(secondary);
            if !self.known.intended.contains(&store.addr()) {
                self.known.intended.push(store.addr());
                self.add(Entry::new(Some(secondary), Key16::new(0, 0), secondary.hash(), Want::Entries, self.owner));
            }
        }
    }
}

impl Declare for Naming<'_> {
    #[inline]
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) {
        self.is_too_long |= self.name_row(table, key, access).is_err();
    }

    fn prefix<K: EncodedKey>(&mut self, table: TableId, prefix: K, access: Access) {
        self.is_too_long |= self.name_prefix(table, prefix, access).is_err();
    }

    fn unknown(&mut self) {
        self.has_more = true;
    }
}

/// Why a procedure is not executed inside of a transaction of the same thread: it comes later in the log, so whatever it needs of that
/// transaction, or of those that wait for it, would never be there.
pub(super) fn refuse_inside<P: Procedure>(procedure: &P) -> Error {
    /// The first key that is named.
    struct First(Option<(TableId, Option<KeyPreview>)>);

    impl Declare for First {
        fn key<K: EncodedKey>(&mut self, table: TableId, key: K, _: Access) {
            self.0.get_or_insert_with(|| (table, Some(KeyPreview::new(key))));
        }

        fn prefix<K: EncodedKey>(&mut self, table: TableId, _: K, _: Access) {
            self.0.get_or_insert((table, None));
        }

        fn unknown(&mut self) {}
    }

    let mut first = First(None);
    // What it has declared does not matter when it panics.
    let _ = drive::catch(|| procedure.declare(&mut first));
    let (table, key) = first.0.unwrap_or((TableId::NONE, None));
    Error::waits_for_itself(table, key)
}
