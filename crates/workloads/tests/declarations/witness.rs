//! A protocol that holds what procedures do against what they declare: the serial one, with a look at every write.
//!
//! A write that was not declared, or in another way, ends the transaction with [`Dishonest`]; and so does a declared write of a
//! key that a transaction which commits never tried.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use polychron_base::key::EncodedKey;
use polychron_engine::{
    Access, Common, Constraints, Counters, Declare, Error, Insertion, LazyFutures, Prefetch, Procedure, Projection,
    Protocol, Queries, RowMut, RowRef, Savepoints, Scan, Storage, TableDefinition, TableId, Transaction, Worker,
};
use polychron_protocols::serial::{Options, Serial, SerialWorker};

/// A declaration that is not what the procedure does.
#[derive(Debug, thiserror::Error)]
#[error("{table}, key {key:?}: {what}")]
pub(crate) struct Dishonest {
    table: String,
    key: Vec<u8>,
    what: &'static str,
}

impl From<Dishonest> for Error {
    fn from(error: Dishonest) -> Self {
        Self::other(error)
    }
}

pub(crate) const UNKNOWN: &str = "the procedure says that there may be writes which it does not name";
pub(crate) const UNDECLARED: &str = "a write that was not declared";
pub(crate) const ANOTHER_WAY: &str = "a write in another way than was declared";
pub(crate) const INDEXED: &str = "an update of a column on which an index keys, where none was declared";
pub(crate) const NOT_DONE: &str = "a write was declared and not done";

/// What a procedure declares.
#[derive(Default)]
struct Declared {
    keys: BTreeMap<(TableId, Vec<u8>), Vec<Access>>,
    prefixes: Vec<(TableId, Vec<u8>, Access)>,
    is_unknown: bool,
}

fn bytes<K: EncodedKey>(key: K) -> Vec<u8> {
    let mut bytes = vec![0; key.len()];
    key.write_to(&mut bytes);
    bytes
}

impl Declare for Declared {
    fn key<K: EncodedKey>(&mut self, table: TableId, key: K, access: Access) {
        self.keys.entry((table, bytes(key))).or_default().push(access);
    }

    fn prefix<K: EncodedKey>(&mut self, table: TableId, prefix: K, access: Access) {
        self.prefixes.push((table, bytes(prefix), access));
    }

    fn unknown(&mut self) {
        self.is_unknown = true;
    }
}

impl Declared {
    fn of(procedure: &impl Procedure) -> Self {
        let mut declared = Self::default();
        procedure.declare(&mut declared);
        declared
    }

    /// Whether a key may be written in one of these ways.
    fn allows(&self, key: &(TableId, Vec<u8>), ways: &[Access]) -> Result<(), &'static str> {
        let begins = |(table, prefix, access): &&(TableId, Vec<u8>, Access)| {
            *table == key.0 && key.1.starts_with(prefix) && ways.contains(access)
        };
        let accesses = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        if self.prefixes.iter().any(|prefix| begins(&prefix)) || accesses.iter().any(|access| ways.contains(access)) {
            return Ok(());
        }
        Err(if accesses.iter().all(|access| *access == Access::Read) { UNDECLARED } else { ANOTHER_WAY })
    }
}

/// A procedure under watch.
struct Watched<'p, P> {
    procedure: &'p mut P,
    declared: Declared,
}

impl<P: Procedure> Procedure for Watched<'_, P> {
    type Output = P::Output;
    type Error = P::Error;

    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<P::Output, P::Error> {
        if self.declared.is_unknown {
            let dishonest = Dishonest { table: "every table".to_owned(), key: Vec::new(), what: UNKNOWN };
            return Err(Error::from(dishonest).into());
        }
        let mut watching = Watching { transaction, declared: &self.declared, tried: BTreeSet::new() };
        let output = self.procedure.run(&mut watching)?;
        let is_write = |accesses: &[Access]| accesses.iter().any(|access| *access != Access::Read);
        let writes = self.declared.keys.iter().filter(|(_, accesses)| is_write(accesses)).map(|(key, _)| key);
        match { writes }.find(|key| !watching.tried.contains(*key)) {
            Some(key) => Err(watching.dishonest(key, NOT_DONE).into()),
            None => Ok(output),
        }
    }

    fn declare<D: Declare>(&self, declaration: &mut D) {
        self.procedure.declare(declaration);
    }
}

/// Its transaction.
struct Watching<'t, T> {
    transaction: &'t mut T,
    declared: &'t Declared,
    tried: BTreeSet<(TableId, Vec<u8>)>,
}

impl<T: Transaction> Watching<'_, T> {
    fn dishonest(&self, (table, key): &(TableId, Vec<u8>), what: &'static str) -> Error {
        let table = self.transaction.definition(*table).map_or_else(|_| table.to_string(), |table| table.name.clone());
        Dishonest { table, key: key.clone(), what }.into()
    }

    fn hold<K: EncodedKey>(&mut self, table: TableId, key: K, ways: &[Access]) -> Result<(), Error> {
        let key = (table, bytes(key));
        self.declared.allows(&key, ways).map_err(|what| self.dishonest(&key, what))?;
        self.tried.insert(key);
        Ok(())
    }
}

impl<T: Transaction> Transaction for Watching<'_, T> {
    fn read_row<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        self.transaction.read_row(table, key, projection)
    }

    fn read_row_unvalidated<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
    ) -> Result<Option<RowRef<'_>>, Error> {
        self.transaction.read_row_unvalidated(table, key, projection)
    }

    fn update_unchecked<K: EncodedKey>(
        &mut self,
        table: TableId,
        key: K,
        projection: &Projection,
        change: impl FnOnce(&mut RowMut<'_>),
    ) -> Result<bool, Error> {
        self.hold(table, key, &[Access::Update, Access::Write])?;
        let mut changed = None;
        let found = self.transaction.update_unchecked(table, key, projection, |row| {
            change(row);
            changed = Some(row.changes().columns());
        })?;
        let indexes = &self.transaction.definition(table)?.indexes;
        let mut indexed = indexes.iter().flat_map(|index| &index.columns).map(|column| *column as u16);
        if changed.is_some_and(|changed| indexed.any(|column| changed.contains(column))) {
            let key = (table, bytes(key));
            self.declared.allows(&key, &[Access::Write]).map_err(|_| self.dishonest(&key, INDEXED))?;
        }
        Ok(found)
    }

    fn insert_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        self.hold(table, key, &[Access::Insert, Access::Write])?;
        self.transaction.insert_unchecked(table, key, row)
    }

    fn put_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K, row: RowRef<'_>) -> Result<Insertion, Error> {
        self.hold(table, key, &[Access::Write])?;
        self.transaction.put_unchecked(table, key, row)
    }

    fn delete_unchecked<K: EncodedKey>(&mut self, table: TableId, key: K) -> Result<bool, Error> {
        self.hold(table, key, &[Access::Write])?;
        self.transaction.delete_unchecked(table, key)
    }

    fn scan_unchecked(
        &mut self,
        scan: &Scan<'_>,
        visitor: &mut impl FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.transaction.scan_unchecked(scan, visitor)
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.transaction.mark()
    }

    fn undo_unchecked(&mut self, position: usize) -> Result<(), Error> {
        self.transaction.undo_unchecked(position)
    }

    fn savepoints(&mut self) -> &mut Savepoints {
        self.transaction.savepoints()
    }

    fn definition(&self, table: TableId) -> Result<&TableDefinition, Error> {
        self.transaction.definition(table)
    }

    fn constraints(&self, table: TableId) -> Result<&Constraints, Error> {
        self.transaction.constraints(table)
    }

    fn protect_reads(&mut self, protect: bool) {
        self.transaction.protect_reads(protect);
    }
}

impl<T: Transaction> Queries for Watching<'_, T> {}

impl<T: Transaction> LazyFutures for Watching<'_, T> {}

impl<T: Transaction> Prefetch for Watching<'_, T> {}

/// A worker whose procedures are watched.
pub(crate) struct WitnessWorker(SerialWorker);

impl Worker for WitnessWorker {
    fn execute<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        let declared = Declared::of(procedure);
        self.0.execute(&mut Watched { procedure, declared })
    }

    fn snapshot<P: Procedure>(&mut self, procedure: &mut P) -> Result<P::Output, P::Error> {
        let declared = Declared::of(procedure);
        self.0.snapshot(&mut Watched { procedure, declared })
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}

/// The serial protocol with such workers.
pub(crate) struct Witness(Arc<Serial>);

impl Protocol for Witness {
    const NAME: &'static str = "witness";
    const SUMMARY: &'static str = "the serial protocol, which watches that procedures do what they declare";

    type Options = Options;
    type Worker = WitnessWorker;
    type Driven = polychron_engine::WholeOnly<WitnessWorker>;

    fn open(options: Options, common: Common) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self(Serial::open(options, common)?)))
    }

    fn storage(&self) -> &dyn Storage {
        self.0.storage()
    }

    fn worker(self: &Arc<Self>) -> Result<WitnessWorker, Error> {
        self.0.worker().map(WitnessWorker)
    }
}
